//! Ensures, with a lock, that at most one daemon runs per user. The lock file's contents are used
//! only in messages.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::file_lock::{FileLock, FileLockError, LockMode};
use runner_engine::process_id::ProcessIdentity;
use serde::{Deserialize, Serialize};

use crate::ui::{Failure, show};

#[derive(Debug, Serialize, Deserialize)]
struct DaemonHolder {
    #[serde(flatten)]
    owner: ProcessIdentity,
    since: Timestamp,
}

/// Takes the lock and records this process in the file.
pub fn take(path: &Path, me: &ProcessIdentity, since: Timestamp) -> Result<FileLock, Failure> {
    let cannot = |error: io::Error| {
        Failure::cannot_write(format!("cannot lock {}: {error}", path.display()))
    };
    let file = FileLock::open(path).map_err(cannot)?;
    let mut lock = FileLock::take(file, LockMode::Exclusive).map_err(|error| match error {
        FileLockError::Held { content } => held(serde_json::from_str(&content).ok()),
        FileLockError::Io(error) => cannot(error),
    })?;
    let holder = DaemonHolder { owner: me.clone(), since };
    let text = serde_json::to_vec(&holder).expect("a holder has string keys only");
    lock.write(&text).map_err(cannot)?;
    Ok(lock)
}

fn held(holder: Option<DaemonHolder>) -> Failure {
    match holder {
        Some(holder) => Failure::later(format!(
            "a daemon is already running: PID {} since {}",
            holder.owner.pid,
            show::format_time(holder.since)
        ))
        .hint(format!("kill -TERM {}   (or leave it: it serves all projects)", holder.owner.pid)),
        None => Failure::later("a daemon is already starting").hint("runner status"),
    }
}
