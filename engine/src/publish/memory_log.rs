//! The publication log used by tests.

use std::collections::BTreeMap;

use super::{LogError, Manifest, PublishLog, RecordedManifest};
use crate::ids::{Fence, RunId};

/// An in-memory log for one job.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    /// The job's current fence. Increase it to simulate a takeover.
    pub fence: Fence,
    records: BTreeMap<RunId, RecordedManifest>,
}

impl MemoryLog {
    /// Creates a log for a job whose current fence is `fence`.
    pub fn new(fence: Fence) -> Self {
        Self { fence, records: BTreeMap::new() }
    }

    fn guard(&self, run: &RunId, held: Fence) -> Result<(), LogError> {
        if held == self.fence {
            return Ok(());
        }
        Err(LogError::StaleFence { run: run.clone(), held, current: self.fence })
    }
}

impl PublishLog for MemoryLog {
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError> {
        Ok(self.records.get(run).cloned())
    }

    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        self.guard(run, fence)?;
        if self.records.contains_key(run) {
            return Err(LogError::ManifestExists { run: run.clone() });
        }
        self.records
            .insert(run.clone(), RecordedManifest { manifest: manifest.clone(), settled: false });
        Ok(())
    }

    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.guard(run, fence)?;
        let record =
            self.records.get_mut(run).ok_or_else(|| LogError::NoManifest { run: run.clone() })?;
        if record.settled {
            return Err(LogError::Settled { run: run.clone() });
        }
        record.settled = true;
        Ok(())
    }
}
