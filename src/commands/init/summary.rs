//! Prints the summary of `runner init`: the project's backend, night, timer and notes, and the next
//! commands.

use std::fs;

use runner_jobs::dream::review::Privacy;
use runner_jobs::kind::Asks;
use runner_text::{shell_line, some_of};
use serde::Serialize;

use super::detect::DetectedBackend;
use crate::budget;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::setup::record::SetupRecord;
use crate::ui::{Failure, Ui, View, show};

#[derive(Debug, Serialize)]
pub(super) struct InitSummary {
    project: String,
    /// The lines that report what was written.
    written: Vec<String>,
    /// The backend of the first job, by name, that can use a model.
    backend: String,
    found: Vec<DetectedBackend>,
    night: String,
    timer: Option<&'static str>,
    notes: usize,
    /// Whether each dream job's notes are private, and how to make them private.
    privacy: Vec<String>,
    /// Whether the user has accepted the settings. No job runs before that.
    accepted: bool,
    next: Vec<NextCommand>,
}

#[derive(Debug, Serialize)]
struct NextCommand {
    command: &'static str,
    effect: &'static str,
}

const NEXT: [NextCommand; 3] = [
    NextCommand {
        command: "runner night --dry-run",
        effect: "shows the requests and their maximum cost; changes nothing",
    },
    NextCommand {
        command: "runner night",
        effect: "runs every enabled job once, and prints where the report is",
    },
    NextCommand {
        command: "runner dream review",
        effect: "shows the proposals; you decide on each with one key",
    },
];

impl InitSummary {
    pub(super) fn of(
        home: &Env,
        project: &LoadedProject,
        written: Vec<String>,
        found: Vec<DetectedBackend>,
        privacy: Vec<Privacy>,
    ) -> Result<Self, Failure> {
        let config = &project.config;
        let asking = config.jobs.values().filter(|job| job.spec.kind.asks() != Asks::Never);
        let night = &config.night;
        let cap = budget::format_budget(night.budget);
        let record = SetupRecord::read(&home.setup_note())?;
        let notes = fs::read_dir(project.root.join("ideas")).into_iter().flatten().flatten();
        Ok(Self {
            project: project.root.display().to_string(),
            written,
            backend: asking.map(|job| job.spec.backend.clone()).next().unwrap_or_default(),
            found,
            night: format!("opens at {}; at most {cap}", night.at.strftime("%H:%M")),
            timer: record.hosts.keys().next().map(|kind| kind.as_str()),
            notes: notes
                .filter(|entry| entry.path().extension().is_some_and(|it| it == "md"))
                .count(),
            privacy: privacy
                .iter()
                .flat_map(|it| [Some(it.to_string()), it.hint()])
                .flatten()
                .collect(),
            accepted: project.trust.holds(),
            next: NEXT.into(),
        })
    }

    /// Describes the backend, the other backends that were found, and what works without a model.
    fn describe_backend(&self) -> Vec<String> {
        let names: Vec<&str> = self.found.iter().map(|it| it.name).collect();
        let mut lines = match (self.backend.as_str(), names.as_slice()) {
            ("builtin", []) => {
                vec!["builtin, which answers by rule; no model was found".to_owned()]
            }
            ("builtin", names) => {
                let first = &self.found[0];
                let mut lines = vec![
                    format!("builtin, which answers by rule; found: {}", names.join(", ")),
                    format!("to use {}: {}", names[0], command(first)),
                ];
                if first.needs_model() && first.only_model().is_none() {
                    let models = first.models.iter().map(|listed| listed.name.as_str());
                    lines.push(format!("MODEL is one of its models: {}", some_of(models)));
                }
                lines
            }
            (backend, _) => vec![backend.to_owned()],
        };
        if self.backend == "builtin" {
            lines.push(
                "without a model: dream passes by rule, command jobs, the curator, reports"
                    .to_owned(),
            );
            lines.push(
                "only with a model: prompt jobs, agents' work and journals, the council".to_owned(),
            );
        }
        lines
    }
}

impl View for InitSummary {
    fn print(&self, ui: Ui) {
        let said = match self.written.is_empty() {
            true => "is already a project; nothing was written",
            false => "is a project now",
        };
        ui.info(&format!("{} {said}", self.project));
        let mut rows = Vec::new();
        let mut name = "  backend";
        for line in self.describe_backend() {
            rows.push(show::row([name, &line]));
            name = "";
        }
        rows.push(show::row(["  night", &self.night]));
        let timer = match self.timer {
            Some(kind) => format!("{kind}; `runner setup --status` shows it"),
            None => {
                "none: nothing starts by itself; to set one up: runner setup --apply".to_owned()
            }
        };
        rows.push(show::row(["  timer", &timer]));
        let notes = match self.notes {
            0 => "none yet; write one idea per file into ideas/".to_owned(),
            count => format!("{} in ideas/", show::count(count as u64, "note")),
        };
        rows.push(show::row(["  notes", &notes]));
        for line in &self.privacy {
            rows.push(show::row(["", line]));
        }
        ui.info(show::table(&rows).trim_end());
        ui.info("next:");
        let next: Vec<_> = self
            .next
            .iter()
            .map(|it| show::row([&format!("  {}", it.command), it.effect]))
            .collect();
        ui.info(show::table(&next).trim_end());
    }
}

/// Returns the command that makes dream passes use a backend.
fn command(found: &DetectedBackend) -> String {
    let model = found.needs_model().then(|| found.only_model().unwrap_or("MODEL"));
    let settings = found.settings(model);
    let words = ["runner", "config", "set"].map(str::to_owned).into_iter();
    let words = words.chain(settings.into_iter().flat_map(|(key, value)| [key, value]));
    shell_line(words)
}
