//! Tracks the work of a run's children in the project: records the project's state before the first
//! child starts, and imports the children's commits after the last child exits.

use std::path::Path;

use runner_engine::git::{Git, GitError};
use runner_engine::outcome::Class;
use runner_engine::recording::InputRecording;
use runner_engine::sandbox::Sandbox;
use runner_engine::work::{Work, WorkError, WorkResult};

use crate::{Finished, JobError};

/// The name under which a recording stores the result.
const WORK: &str = "work";

/// The work of a run's children.
pub(crate) struct ChildWork<'a> {
    /// The sandbox of children that may write to the project, or `None` if no child
    /// may or the sandbox is off.
    sandbox: Option<&'a Sandbox>,
    run_dir: &'a Path,
    git: Git,
    run: String,
    open: Option<Work>,
    closed: Option<WorkResult>,
    /// Why the commits of a failed run could not be imported.
    not_imported: Option<String>,
    recording: InputRecording,
}

impl<'a> ChildWork<'a> {
    pub(super) fn new(
        sandbox: Option<&'a Sandbox>,
        run_dir: &'a Path,
        git: Git,
        recording: InputRecording,
    ) -> Self {
        let sandbox = sandbox.filter(|it| !it.off && (it.git.is_some() || !it.keep.is_empty()));
        let run = git.marker().to_owned();
        Self { sandbox, run_dir, git, run, open: None, closed: None, not_imported: None, recording }
    }

    /// Records the project's state before the first child starts.
    ///
    /// # Errors
    /// Returns an error if the state cannot be recorded or the private git directory cannot be
    /// created.
    pub(crate) fn open(&mut self) -> Result<(), JobError> {
        if let Some(sandbox) = self.sandbox {
            let opened = Work::open(sandbox, self.run_dir, &self.git, &self.run);
            self.open = Some(opened.map_err(|error| {
                JobError::failed(Class::Environment, format!("no child was started: {error}"))
            })?);
        }
        Ok(())
    }

    /// Imports the children's commits into the project. After a success, later calls return the
    /// same result.
    ///
    /// # Errors
    /// Returns an error if the commits cannot be imported. They are then kept in the run's folder.
    pub(crate) fn close(&mut self) -> Result<WorkResult, JobError> {
        if let Some(closed) = &self.closed {
            return Ok(closed.clone());
        }
        let recording = self.recording.clone();
        let closed = match (&mut self.open, recording.replays()) {
            (None, false) => WorkResult::default(),
            (None, true) => {
                recording.through(WORK, "", || Ok::<_, JobError>(WorkResult::default()))?
            }
            (Some(work), _) => recording.through(WORK, "", || {
                work.close(self.run_dir).map_err(|error| failure(&error, self.run_dir))
            })?,
        };
        self.closed = Some(closed.clone());
        Ok(closed)
    }

    /// Returns the commit that was checked out before the first child started, if it is known.
    pub(crate) fn head(&self) -> Option<&str> {
        self.open.as_ref()?.head()
    }

    /// Returns the result as lines for the report of a run that did not succeed.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(WorkResult { imported, .. }) = &self.closed else {
            return self.not_imported.iter().cloned().collect();
        };
        let commits = imported.commits.iter().map(|commit| format!("committed {commit}"));
        commits.chain(imported.held.iter().chain(&imported.notes).cloned()).collect()
    }

    /// Closes the work and adds its result to the job's result.
    pub(crate) fn finish(
        &mut self,
        done: Result<Finished, JobError>,
    ) -> Result<Finished, JobError> {
        let closed = match self.closed.is_some() || self.open.is_some() {
            true => match (self.close(), &done) {
                (Ok(closed), _) => closed,
                // The job's own error explains why it ended, unless git rejected its objects.
                (
                    Err(error),
                    Err(
                        JobError::Cancelled { .. }
                        | JobError::TimedOut { .. }
                        | JobError::Failed { .. },
                    ),
                ) if !is_guard(&error) => {
                    self.not_imported = Some(error.whole());
                    return done;
                }
                (Err(error), _) => return Err(error),
            },
            false => return done,
        };
        if let Some(why) = closed.violation() {
            return Err(JobError::failed(Class::Guard, why));
        }
        let mut finished = done?;
        finished.lines.extend(closed.imported.notes);
        if let Some(first) = closed.imported.held.first() {
            let why = format!("not everything was imported into the repository: {first}");
            finished.degraded.get_or_insert(why);
            finished.lines.extend(closed.imported.held);
        }
        Ok(finished)
    }
}

fn is_guard(error: &JobError) -> bool {
    matches!(error, JobError::Failed { class: Class::Guard, .. })
}

fn failure(error: &WorkError, run_dir: &Path) -> JobError {
    // `GitError::Failed` means that git exited with an error, usually because it rejected the
    // objects.
    let class = match error {
        WorkError::Git(GitError::Failed { .. }) => Class::Guard,
        _ => Class::Environment,
    };
    let why = format!(
        "its commits cannot be imported into the repository and are kept in {}: {error}",
        run_dir.display()
    );
    JobError::failed(class, why)
}
