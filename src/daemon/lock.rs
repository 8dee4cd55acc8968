//! Allows one daemon per user: an `flock` on a file that is never deleted.
//!
//! The kernel releases the lock with the process, so a held lock means a live daemon. The file's
//! content is for people only.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use jiff::Timestamp;
use runner_engine::files::open_with;
use runner_engine::process_id::ProcessIdentity;
use serde::{Deserialize, Serialize};

use crate::ui::{Failure, show};

#[derive(Debug, Serialize, Deserialize)]
struct DaemonHolder {
    #[serde(flatten)]
    owner: ProcessIdentity,
    since: Timestamp,
}

/// The lock, held until dropped.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
}

impl DaemonLock {
    /// Takes the lock and writes this process's identity into the file.
    pub fn take(path: &Path, me: &ProcessIdentity, since: Timestamp) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::cannot_write(format!("cannot lock {}: {error}", path.display()))
        };
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = open_with(&mut options, path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The holder may not have written its name yet.
                let _unreadable = file.read_to_string(&mut text);
                return Err(held(serde_json::from_str(&text).ok()));
            }
        }
        let holder = DaemonHolder { owner: me.clone(), since };
        let text = serde_json::to_vec(&holder).expect("a holder has string keys only");
        file.set_len(0).map_err(cannot)?;
        file.rewind().map_err(cannot)?;
        file.write_all(&text).map_err(cannot)?;
        Ok(Self { file })
    }
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

impl Drop for DaemonLock {
    fn drop(&mut self) {
        // The unlock is explicit because a child between fork and exec may still have a copy of the
        // descriptor.
        let _already_gone = self.file.unlock();
    }
}
