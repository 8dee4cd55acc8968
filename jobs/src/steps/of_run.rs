//! Reads the earlier tool uses of an agent for a run, and sets the file that records the run's own
//! tool uses.

use runner_engine::recording::UnrecordedInput;

use super::{StepsFile, ToolStep};
use crate::{Context, JobError};

/// The names under which a recording stores the last rows, and whether further rows can be written.
const LAST: &str = "steps";
const HOLD: &str = "steps are recorded";

impl Context<'_> {
    /// Returns the last rows of a record below the project, the oldest first, or the reason why the
    /// record cannot be read.
    ///
    /// # Errors
    /// Returns an error if the run is replayed and the recorded run did not ask for these rows.
    pub(crate) fn last_steps(
        &self,
        path: &str,
        agent: Option<&str>,
        count: usize,
    ) -> Result<Result<Vec<ToolStep>, String>, JobError> {
        let question = format!("{count} of {path}");
        self.recording.through(LAST, &question, || {
            let file = StepsFile::new(self.root, path, agent);
            Ok(file.last(count).map_err(|error| error.to_string()))
        })
    }

    /// Records every tool that the backend's agent uses from now on as a row of this file.
    pub fn record_steps(&mut self, file: StepsFile) {
        let held = self.recording.through(HOLD, &file.path, || {
            let held = file.hold_lock().map_err(|error| error.to_string());
            Ok::<_, UnrecordedInput>(held.map(drop))
        });
        if let Ok(Err(error)) = held {
            let why = format!("{} cannot be written: {error}", file.path);
            tracing::warn!(why, "the tool uses of the agent are not recorded");
            self.unrecorded = Some(why);
        }
        // A replayed run has no agent.
        if !self.recording.replays() {
            self.steps = Some(file);
        }
    }
}
