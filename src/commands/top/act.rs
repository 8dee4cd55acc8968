//! Actions on runs and jobs in the application. Each action is a command that has the same effect
//! and is refused in the same cases as on the command line. The audit trail records who requested
//! the action.

use std::path::PathBuf;

use runner_engine::ids::RunId;
use runner_engine::store::{Event, RunRow, Store};
use runner_text::shell_line;

use crate::commands::{call, runs};
use crate::env::{self, Env};
use crate::project::FILE;
use crate::tui::Action;
use crate::ui::Failure;

/// The result of an action.
pub(super) enum ActionEnd {
    /// A description of the change, as the command prints it.
    Done(String),
    /// The action must be confirmed first.
    Ask(Action),
}

/// A command and its subject.
struct Request {
    words: Vec<String>,
    /// The run and its project's folder; `None` for an action on all jobs.
    of: Option<(RunRow, PathBuf)>,
}

/// Records an action in the audit trail and carries it out, or returns the action to confirm first.
///
/// # Errors
/// Returns the command's failure, or the reason why the action's subject could not be found or the
/// action could not be recorded.
pub(super) fn carry_out(home: &Env, action: &Action) -> Result<ActionEnd, Failure> {
    let mut store = home.store()?;
    let now = home.wall()?;
    let request = match action {
        Action::Cancel(run) => Request::of_run(&store, run, &["cancel", "--"])?,
        Action::Retry(run) => Request::of_run(&store, run, &["retry", "--"])?,
        Action::SwitchJob(run) => {
            let (row, folder) = found(&store, run)?;
            let paused = store.job_by_id(row.job)?.paused_until.is_some_and(|until| until > now);
            let words = [if paused { "resume" } else { "pause" }, "--", &row.job_name];
            Request { words: words.map(str::to_owned).into(), of: Some((row, folder)) }
        }
        Action::SwitchAll if store.paused_until(now)?.is_none() => {
            return Ok(ActionEnd::Ask(Action::PauseAll));
        }
        Action::SwitchAll => Request::of_all("resume"),
        Action::PauseAll => Request::of_all("pause"),
    };
    store.event(&Event {
        at: now,
        project: request.of.as_ref().map(|(row, _)| row.project.clone()),
        run: request.of.as_ref().map(|(row, _)| row.id.clone()),
        kind: "top".to_owned(),
        detail: format!("runner {}: asked by {}", shell_line(&request.words), env::person()),
    })?;
    drop(store);
    let folder = request.of.as_ref().map(|(_, folder)| folder.as_path());
    let done = call(home, folder, &request.words);
    done.result?;
    let text = format!("{}{}", done.captured.out, done.captured.notices);
    Ok(ActionEnd::Done(text.trim().to_owned()))
}

impl Request {
    fn of_run(store: &Store, run: &str, words: &[&str]) -> Result<Self, Failure> {
        let (row, folder) = found(store, run)?;
        let words = words.iter().copied().chain([row.id.as_str()]).map(str::to_owned).collect();
        Ok(Self { words, of: Some((row, folder)) })
    }

    fn of_all(word: &str) -> Self {
        Self { words: vec![word.to_owned(), "--all".to_owned()], of: None }
    }
}

/// Returns a run and the folder of its project.
fn found(store: &Store, run: &str) -> Result<(RunRow, PathBuf), Failure> {
    let id: RunId = run.parse().map_err(|_| Failure::data(format!("there is no run {run}")))?;
    let row = runs::find(store, id.as_str())?;
    let project = store.project(&row.project)?;
    let gone = || Failure::data(format!("run {run} has no project")).hint("runner projects");
    let folder = project.ok_or_else(gone)?.path;
    // If the folder had no settings file, the command would use the project of a parent folder.
    if !folder.join(FILE).is_file() {
        let what = format!("{} has no {FILE}", folder.display());
        return Err(Failure::data(what).hint("runner projects"));
    }
    Ok((row, folder))
}
