//! Formats a setup's plan for users and scripts.

use serde::Serialize;

use super::SetupArgs;
use crate::setup::plan::SetupStep;
use crate::setup::{Convergence, SchedulerKind};
use crate::ui::{Ui, View, show};

/// A setup's plan, and its result once the plan has been carried out.
#[derive(Debug, Default, Serialize)]
pub(super) struct SetupView {
    pub(super) scheduler: SchedulerKind,
    pub(super) why: String,
    pub(super) of_this_system: bool,
    pub(super) minutes: Vec<i8>,
    pub(super) files: Vec<SetupFile>,
    /// The messages of the planned steps.
    pub(super) steps: Vec<String>,
    /// Runner's items that were left unchanged, each with the reason.
    pub(super) left: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) credentials: Vec<String>,
    pub(super) troubles: Vec<String>,
    pub(super) act: SetupAction,
    #[serde(skip)]
    pub(super) planned: Vec<SetupStep>,
}

/// A file of the host scheduler.
#[derive(Debug, Serialize)]
pub struct SetupFile {
    pub path: String,
    pub text: String,
}

/// The action that the flags request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SetupAction {
    #[default]
    Plan,
    Apply,
    Remove,
}

impl SetupAction {
    pub(super) fn of(args: &SetupArgs) -> Self {
        match (args.apply, args.remove) {
            (true, _) => Self::Apply,
            (_, true) => Self::Remove,
            _ => Self::Plan,
        }
    }
}

impl SetupView {
    /// Creates a view of the steps, without a scheduler and its files.
    pub(super) fn of(act: SetupAction, convergence: Convergence) -> Self {
        Self {
            steps: convergence.steps.iter().filter_map(SetupStep::message).collect(),
            left: convergence.left,
            act,
            planned: convergence.steps,
            ..Self::default()
        }
    }

    /// Formats the plan for users.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.scheduler.as_str(), self.why);
        if !self.of_this_system {
            text.push_str(
                "  not available on this system; the files, with the paths of this system:\n",
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
        if self.act == SetupAction::Plan && self.of_this_system {
            text.push_str(match self.steps.is_empty() {
                true => "nothing to change\n",
                false => "nothing was changed; `--apply` makes the changes\n",
            });
        }
        text
    }
}

impl View for SetupView {
    fn print(&self, ui: Ui) {
        ui.info(match (self.act, self.planned.is_empty()) {
            (SetupAction::Plan, _) => return show::out(&self.text()),
            (_, true) => "nothing to change",
            (SetupAction::Remove, false) => "the setup has been removed",
            (SetupAction::Apply, false) => {
                "set up; `runner setup --verify` checks the setup, `runner doctor` checks everything"
            }
        });
    }
}
