//! `runner setup --remove`: plans how to undo the setup.

use super::SetupArgs;
use super::view::{SetupAction, SetupView};
use crate::commands::Cli;
use crate::project;
use crate::setup::project::undo;
use crate::setup::record::SetupRecord;
use crate::setup::{SchedulerKind, WantedSetup, converge};
use crate::ui::{Failure, show};

/// Plans how to undo the setup for the current project, or for all projects, and how to remove the
/// timer if no project needs it.
pub(super) fn plan(
    cli: &Cli<'_>,
    args: &SetupArgs,
    old: &SetupRecord,
) -> Result<SetupView, Failure> {
    let home = cli.env;
    let kind = old.hosts.keys().next_back().copied();
    let mut record = old.clone();
    let mut left = Vec::new();
    let mut edits = Vec::new();
    let mut notes = Vec::new();
    let root = project::find(cli.here).ok().map(|root| root.display().to_string());
    let gone: Vec<String> = match (args.all, root) {
        (true, _) => old.projects.keys().cloned().collect(),
        (false, Some(root)) if old.projects.contains_key(&root) => vec![root],
        (false, Some(root)) => {
            notes.push(format!("{root} was not set up"));
            Vec::new()
        }
        (false, None) => {
            record.everywhere = false;
            Vec::new()
        }
    };
    if args.all {
        record.everywhere = false;
    }
    for root in gone {
        if let Some(served) = record.projects.remove(&root) {
            match undo(&root, &served)? {
                Ok(edit) => edits.extend(edit),
                Err(why) => left.push(why),
            }
        }
    }
    let wanted = record.is_wanted();
    if wanted {
        let who: Vec<&str> = record.projects.keys().map(String::as_str).collect();
        notes.push(format!(
            "the timer is kept for {}; each tick serves all projects, so nights continue in this project too; to stop everything: runner pause --all; to stop one job: set enabled = false in its settings; to remove the timer: runner setup --remove --all",
            if who.is_empty() { "all projects".to_owned() } else { who.join(", ") }
        ));
    } else {
        // A timer also serves projects for which `setup` was never run.
        let store = home.store_to_read().ok().flatten();
        let served = store.and_then(|store| store.projects().ok()).unwrap_or_default();
        if !served.is_empty() && kind.is_some_and(|kind| kind != SchedulerKind::Manual) {
            notes.push(format!(
                "{} will no longer be served by a timer",
                show::count(served.len() as u64, "project")
            ));
        }
    }
    let target = if wanted { kind } else { None };
    let minutes = record.minutes();
    let mut convergence =
        converge(home, old, WantedSetup { kind: target, record, edits, environment: None })?;
    convergence.left.splice(0..0, left);
    let scheduler = kind.unwrap_or(SchedulerKind::Manual);
    Ok(SetupView {
        scheduler,
        why: match kind {
            Some(_) => "already set up".to_owned(),
            None => "nothing is set up".to_owned(),
        },
        of_this_system: scheduler.is_of_this_system(),
        minutes: minutes.into_iter().collect(),
        notes,
        ..SetupView::of(SetupAction::of(args), convergence)
    })
}
