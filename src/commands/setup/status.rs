//! `runner setup --status` and `--verify`: shows the current setup and checks it.

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use serde::Serialize;

use super::SetupArgs;
use crate::commands::Cli;
use crate::doctor::{self, DoctorFinding, timers};
use crate::setup::hosts::lingers;
use crate::setup::record::SetupRecord;
use crate::ui::{Failure, Ui, View, show};

/// The current setup.
#[derive(Debug, Serialize)]
struct SetupStatus {
    scheduler: Option<&'static str>,
    also: Vec<&'static str>,
    unfinished: bool,
    minutes: Vec<i8>,
    projects: Vec<String>,
    last_tick: Option<Timestamp>,
    lingers: Option<bool>,
    findings: Vec<DoctorFinding>,
}

impl View for SetupStatus {
    fn print(&self, _ui: Ui) {
        let mut text = match self.scheduler {
            Some(word) => format!("{word} is set up\n"),
            None => "nothing is set up; `runner setup` shows the plan\n".to_owned(),
        };
        let last = self.last_tick.map_or_else(|| "never".to_owned(), show::format_time);
        text.push_str(&format!("  last tick, from any source: {last}\n"));
        for root in &self.projects {
            text.push_str(&format!("  for {root}\n"));
        }
        text.push_str(&doctor::text(&self.findings));
        show::out(&text);
    }
}

/// Shows the current setup, and checks it if `--verify` is given.
pub(super) fn run(cli: &Cli<'_>, args: &SetupArgs) -> Result<Exit, Failure> {
    let home = cli.env;
    let record = SetupRecord::read(&home.setup_note())?;
    let mut kinds: Vec<&'static str> = record.hosts.keys().map(|kind| kind.as_str()).collect();
    let findings = match args.verify || !kinds.is_empty() {
        true => timers::findings(home, &record),
        false => Vec::new(),
    };
    let bad = findings.iter().any(DoctorFinding::is_wrong);
    let status = SetupStatus {
        scheduler: kinds.pop(),
        also: kinds,
        unfinished: record.pending,
        minutes: record.minutes().into_iter().collect(),
        projects: record.projects.keys().cloned().collect(),
        last_tick: home.last_tick(),
        lingers: lingers(),
        findings,
    };
    cli.ui.show(&status);
    Ok(if args.verify && (bad || status.scheduler.is_none()) { Exit::Failed } else { Exit::Done })
}
