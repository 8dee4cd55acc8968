//! Shows a plan to people and scripts.

use serde::Serialize;

use crate::commands::args::SetupArgs;
use crate::setup::plan::SetupStep;
use crate::setup::{Convergence, SchedulerKind};

/// The plan of a setup, with notes for people.
pub(super) struct SetupView {
    pub(super) kind: SchedulerKind,
    pub(super) why: String,
    pub(super) minutes: Vec<i8>,
    pub(super) files: Vec<FileJson>,
    pub(super) notes: Vec<String>,
    pub(super) credentials: Vec<String>,
    pub(super) convergence: Convergence,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct FileJson {
    pub(super) path: String,
    pub(super) text: String,
}

#[derive(Debug, Serialize)]
pub(super) struct PlannedHost {
    pub(super) scheduler: &'static str,
    pub(super) why: String,
    pub(super) of_this_system: bool,
    pub(super) minutes: Vec<i8>,
    pub(super) files: Vec<FileJson>,
    pub(super) steps: Vec<String>,
    pub(super) left: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) credentials: Vec<String>,
    pub(super) troubles: Vec<String>,
    pub(super) act: &'static str,
}

impl SetupView {
    pub(super) fn shown(&self, args: &SetupArgs) -> PlannedHost {
        PlannedHost {
            scheduler: self.kind.as_str(),
            why: self.why.clone(),
            of_this_system: self.kind.is_of_this_system(),
            minutes: self.minutes.clone(),
            files: self.files.clone(),
            steps: self.convergence.steps.iter().filter_map(SetupStep::message).collect(),
            left: self.convergence.left.clone(),
            notes: self.notes.clone(),
            credentials: self.credentials.clone(),
            troubles: Vec::new(),
            act: match (args.apply, args.remove) {
                (true, _) => "apply",
                (_, true) => "remove",
                _ => "plan",
            },
        }
    }
}

impl PlannedHost {
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.scheduler, self.why);
        if !self.of_this_system {
            text.push_str(
                "  not available on this system; with the paths of this system it would be:\n",
            );
            for file in &self.files {
                text.push_str(&format!("\n{}\n", file.path));
                for line in file.text.lines() {
                    text.push_str(&format!("    {line}\n"));
                }
            }
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("  {note}\n"));
        }
        if !self.credentials.is_empty() {
            text.push_str("keys, by backend\n");
            for line in &self.credentials {
                text.push_str(&format!("  {line}\n"));
            }
        }
        if !self.steps.is_empty() {
            text.push_str("steps\n");
        }
        for step in &self.steps {
            let mut lines = step.lines();
            text.push_str(&format!("  {}\n", lines.next().unwrap_or_default()));
            for line in lines {
                text.push_str(&format!("  {line}\n"));
            }
        }
        if self.act == "plan" && self.of_this_system {
            text.push_str(match self.steps.is_empty() {
                true => "everything is as it should be\n",
                false => "nothing was done; `--apply` applies it\n",
            });
        }
        text
    }
}
