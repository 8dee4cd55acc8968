//! The record of tools as a run has it: what its agents did before, and where what its own does goes.

use runner_engine::recording::UnrecordedInput;

use super::{StepsFile, ToolStep};
use crate::{Context, JobError};

/// The names on a recording: the last rows, and whether more can be written.
const LAST: &str = "steps";
const HOLD: &str = "steps are recorded";

impl Context<'_> {
    /// The last rows of a record below the project, oldest first, or why it cannot be read.
    ///
    /// # Errors
    /// The run is gone through again, and did not ask that then.
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

    /// From now on every tool that the backend's agent uses is a row of this file.
    pub fn record_steps(&mut self, file: StepsFile) {
        let held = self.recording.through(HOLD, &file.path, || {
            let held = file.hold_lock().map_err(|error| error.to_string());
            Ok::<_, UnrecordedInput>(held.map(drop))
        });
        if let Ok(Err(error)) = held {
            let why = format!("{} cannot be written: {error}", file.path);
            tracing::warn!(why, "what its agent does is not recorded");
            self.unrecorded = Some(why);
        }
        // Of a run that is gone through again there is no agent.
        if !self.recording.replays() {
            self.steps = Some(file);
        }
    }
}
