//! `runner report --list`: lists a project's nights.

use runner_engine::outcome::Exit;
use runner_jobs::report::archive::{self, ArchivedNight};
use schemars::JsonSchema;
use serde::Serialize;

use super::ReportedProject;
use crate::commands::Cli;
use crate::ui::show::{List, Tone};
use crate::ui::{Failure, Ui, View, show};

/// The nights of a project, newest first.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct NightIndex {
    nights: Vec<ArchivedNight>,
}

impl View for NightIndex {
    fn print(&self, _ui: Ui) {
        if self.nights.is_empty() {
            return show::out("no nights yet; `runner night` starts the first\n");
        }
        let rows = self.nights.iter().map(|night| {
            let worst = night.worst.as_deref().unwrap_or("no report yet");
            let headline = night.headline.as_deref().unwrap_or_default();
            (tone(night.worst.as_deref()), show::row([&night.night, worst, headline]))
        });
        let rows = rows.collect();
        List { header: &["NIGHT", "WORST", "SUMMARY"], toned: 1, rows }.print();
    }
}

/// Returns the tone of a night's worst outcome.
pub(super) fn tone(worst: Option<&str>) -> Tone {
    match worst {
        Some("succeeded") => Tone::Good,
        Some("failed" | "lost" | "timed-out") => Tone::Bad,
        Some("degraded" | "deferred" | "cancelled" | "missed") => Tone::Warn,
        _ => Tone::Plain,
    }
}

pub(super) fn run(cli: &Cli<'_>, project: &ReportedProject) -> Result<Exit, Failure> {
    let store = cli.env.store_to_read()?;
    let nights = archive::nights(store.as_ref(), &project.id, &project.root)?;
    cli.ui.show(&NightIndex { nights });
    Ok(Exit::Done)
}
