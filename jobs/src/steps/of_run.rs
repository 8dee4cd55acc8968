//! Reads an agent's earlier tool uses for a run.

use super::{StepsFile, ToolStep};
use crate::{Context, JobError};

/// The recording key for the last rows.
const LAST: &str = "steps";

impl Context<'_> {
    /// Returns the last rows of a steps file, oldest first, or the reason why the file cannot be
    /// read.
    ///
    /// # Errors
    /// Returns an error if the run is replayed and the recorded run did not read these rows.
    pub(crate) fn last_steps(
        &self,
        path: &str,
        agent: Option<&str>,
        count: usize,
    ) -> Result<Result<Vec<ToolStep>, String>, JobError> {
        let question = format!("{count} of {path}");
        self.recording.through(LAST, &question, || {
            let file = StepsFile::new(self.files.root(), path, agent);
            Ok(file.last(count).map_err(|error| error.to_string()))
        })
    }
}
