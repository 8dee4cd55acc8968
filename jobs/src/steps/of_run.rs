//! Reads the earlier tool uses of an agent for a run.

use super::{StepsFile, ToolStep};
use crate::{Context, JobError};

/// The name under which a recording stores the last rows.
const LAST: &str = "steps";

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
            let file = StepsFile::new(self.files.root(), path, agent);
            Ok(file.last(count).map_err(|error| error.to_string()))
        })
    }
}
