//! The owners of claimed files, and the recovery of files whose owner died.

use std::fs;
use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::process_id::ProcessIdentity;
use serde::{Deserialize, Serialize};

use super::files::{names, read, remove};
use super::{MovedFile, Worker, host};
use crate::curator::job::{CuratorJobKind, JobFile};

/// How long after its claim an owner on another host is assumed to be alive.
const ELSEWHERE: SignedDuration = SignedDuration::from_hours(1);

/// The process that has claimed a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ClaimHolder {
    #[serde(flatten)]
    pub(super) owner: ProcessIdentity,
    pub(super) host: String,
    pub(super) since: Timestamp,
    /// The run for which the file is claimed, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
}

/// A function that returns whether a run is over. A dead run may have an incomplete publication, so
/// its files remain claimed until the run is settled.
pub type IsOver<'a> = &'a dyn Fn(&str) -> bool;

impl Worker {
    /// Recovers the files left by dead consumers whose runs are over. The caller must hold the
    /// lock.
    pub(super) fn recover(
        &self,
        now: Timestamp,
        is_over: IsOver<'_>,
    ) -> io::Result<Vec<MovedFile>> {
        let mut moved = Vec::new();
        for name in names(&self.path("processing"))? {
            let id = name.strip_suffix(".json").unwrap_or(&name);
            let owner = self.file("processing", &format!("{id}.owner"));
            let run = holder(&owner).and_then(|it| it.run);
            if self.is_held(&owner, now) || run.is_some_and(|run| !is_over(&run)) {
                continue;
            }
            let here = self.file("processing", &name);
            let mut record = |to, why: &str| {
                moved.push(MovedFile { name: id.to_owned(), to, why: why.to_owned() });
            };
            if self.file("done", &name).exists() || self.file("queue", &name).exists() {
                // The job had already been done or put back when its owner died.
                remove(&here)?;
            } else {
                let bytes = read(&here)?.unwrap_or_default();
                match JobFile::read(&name, &bytes, &CuratorJobKind::ALL) {
                    Ok(mut job) if job.returned == 0 => {
                        job.returned = 1;
                        self.return_as(&job)?;
                        record("queue", "the process that worked on it died");
                    }
                    Ok(_) => {
                        let why = "the process that worked on it died, for the second time";
                        self.reject("processing", &name, why, now)?;
                        record("failed", why);
                    }
                    Err(why) => {
                        let why = self.reject("processing", &name, &why, now)?;
                        record("failed", &why);
                    }
                }
            }
            remove(&owner)?;
        }
        for entry in fs::read_dir(self.path("processing"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "owner")
                && !path.with_extension("json").exists()
            {
                remove(&path)?;
            }
        }
        Ok(moved)
    }

    /// Returns whether the owner of a claimed file is assumed to be working on it.
    pub(super) fn is_held(&self, owner: &Path, now: Timestamp) -> bool {
        let Some(holder) = holder(owner) else {
            return false;
        };
        if holder.host == host() {
            return holder.owner.is_alive();
        }
        now.duration_since(holder.since).abs() < ELSEWHERE
    }
}

fn holder(owner: &Path) -> Option<ClaimHolder> {
    serde_json::from_slice(&read(owner).ok()??).ok()
}
