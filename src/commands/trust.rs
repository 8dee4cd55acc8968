//! `runner trust`: shows what changed in the files that control a project's jobs, and records that
//! the user accepts them. This module must never accept files without the user's consent.

use std::collections::BTreeSet;

use runner_engine::outcome::Exit;
use runner_text::redact::Redacted;
use serde::Serialize;

use super::Cli;
use crate::project::LoadedProject;
use crate::project::trust::{self, FileChange};
use crate::setup::plan::difference;
use crate::ui::{Failure, Ui, View, show};

/// Show what changed in the project's settings since you last accepted them, and accept them
///
/// The settings are runner.toml, .ctxrc, and the prompts and cycles that they name. They may come
/// from other people: `git pull` changes them, and so may an agent. A change takes effect only when
/// you accept it here, or make it with `runner config set`. Until then, the jobs that it affects are
/// deferred and keep their schedules. `[trust] paths` in your own config.toml names folders whose
/// projects need no acceptance.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: git pull && runner trust")]
pub struct TrustArgs {
    /// Accept the changes without asking
    #[arg(long)]
    yes: bool,
}

/// The changes that the user has not accepted yet.
#[derive(Debug, Serialize)]
struct TrustView<'a> {
    /// The project's folder.
    project: String,
    /// Whether all files are accepted now.
    accepted: bool,
    files: Vec<ChangedFile<'a>>,
    /// The names of the jobs affected by the changes.
    jobs: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ChangedFile<'a> {
    path: &'a str,
    change: &'static str,
    /// The unified diff, with secrets replaced, or a note if only a secret changed.
    diff: String,
    /// The 1-based numbers of the lines in which secrets are replaced. The user must read these
    /// lines in the file itself.
    hidden: Vec<usize>,
}

impl<'a> ChangedFile<'a> {
    fn of(change: &'a FileChange) -> Self {
        let FileChange { path, old, new } = change;
        let word = match (old, new) {
            (None, _) => "new",
            (_, None) => "removed",
            _ => "changed",
        };
        let text = |text: &Option<String>| Redacted::of(text.as_deref().unwrap_or_default());
        let diff = difference(&text(old), &text(new));
        let diff = match diff.is_empty() {
            // The accepted text is stored without secrets.
            true => "    a secret in this file was changed\n".to_owned(),
            false => diff,
        };
        // A key may span several lines, so the lines are compared with the redacted text.
        let current = new.as_deref().unwrap_or_default();
        let shown = Redacted::of(current);
        let shown: BTreeSet<&str> = shown.lines().collect();
        let hidden = current.lines().zip(1..).filter(|(line, _)| !shown.contains(line));
        Self { path, change: word, diff, hidden: hidden.map(|(_, number)| number).collect() }
    }
}

impl View for TrustView<'_> {
    fn print(&self, ui: Ui) {
        if self.files.is_empty() {
            return ui.info(&format!("{}: all settings are accepted", self.project));
        }
        for file in &self.files {
            show::out(&format!("{} ({})\n{}\n", file.path, file.change, file.diff.trim_end()));
            if !file.hidden.is_empty() {
                let numbers: Vec<String> = file.hidden.iter().map(usize::to_string).collect();
                let lines = numbers.join(", ");
                show::out(&format!(
                    "    parts of these lines are hidden here, so read them in the file: {lines}\n"
                ));
            }
        }
        show::out(&match self.jobs.as_slice() {
            [] => "no job is affected\n".to_owned(),
            jobs => format!("affected jobs: {}\n", jobs.join(", ")),
        });
    }
}

impl TrustArgs {
    /// Shows the changes and asks for consent.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut project = LoadedProject::load(cli.env, cli.here)?;
        let accepted = review(cli, &mut project, self.yes)?;
        Ok(if accepted { Exit::Done } else { Exit::Failed })
    }
}

/// Shows the changes in a project's files and, with the user's consent, accepts the files. Returns
/// whether all files are now accepted.
pub(super) fn review(
    cli: &Cli<'_>,
    project: &mut LoadedProject,
    yes: bool,
) -> Result<bool, Failure> {
    let changes = project.trust.changes.clone();
    let jobs = project.trust.jobs.clone();
    let mut view = TrustView {
        project: project.root.display().to_string(),
        accepted: changes.is_empty() && project.trust.holds(),
        files: changes.iter().map(ChangedFile::of).collect(),
        jobs: jobs.iter().map(String::as_str).collect(),
    };
    if view.accepted {
        cli.ui.show(&view);
        return Ok(true);
    }
    refuse_in_run()?;
    cli.ui.show_part(&view);
    view.accepted = yes || (cli.ui.may_ask() && cli.ui.confirm("Accept these settings?"));
    if view.accepted {
        accept(cli, project)?;
        cli.ui.info(&format!("the settings of {} are accepted", view.project));
    } else {
        cli.ui.info("nothing was accepted; to accept: runner trust --yes");
    }
    if cli.ui.json {
        cli.ui.show(&view);
    }
    Ok(view.accepted)
}

/// Records that the user accepts the project's current files.
pub(super) fn accept(cli: &Cli<'_>, project: &mut LoadedProject) -> Result<(), Failure> {
    refuse_in_run()?;
    let (mut store, now) = (cli.env.store()?, cli.env.wall()?);
    // The project's row must exist before its acceptance is recorded.
    project.register(&mut store, now)?;
    project.accept(&mut store)?;
    project.register(&mut store, now)
}

/// Returns an error if a run started this command.
pub(super) fn refuse_in_run() -> Result<(), Failure> {
    match trust::in_run() {
        false => Ok(()),
        true => Err(Failure::usage("a run cannot accept the files of its own project")),
    }
}
