//! Identifies a process, even if its process id is reused later.
//!
//! The identity is intended for diagnostics and for finding dead processes. It must never be used
//! as a lock.

use std::fmt;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::process::tree;

/// The identity of a process on this host, unique across process id reuse and reboots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// The start time of the process, in clock ticks since boot.
    pub start: u64,
    /// The id of the boot in which the process id is valid.
    pub boot: String,
}

impl ProcessIdentity {
    /// Returns the identity of the calling process.
    pub fn me() -> Self {
        Self::of(std::process::id())
    }

    /// Returns the identity of process `pid`, which must be the calling process or a child that has
    /// not been reaped.
    pub fn of(pid: u32) -> Self {
        Self {
            pid,
            start: tree::start_time(pid).unwrap_or(0),
            boot: tree::boot_id().unwrap_or_default(),
        }
    }

    /// Returns whether the identified process is still alive.
    pub fn is_alive(&self) -> bool {
        Some(&self.boot) == tree::boot_id().as_ref() && tree::is_alive(self.pid, self.start)
    }

    /// Sends a signal to this exact process. Returns a descriptor that becomes readable when the
    /// process exits, or `None` if the process no longer exists or no descriptor can be opened. The
    /// descriptor is opened before the process is checked, so the signal cannot reach another
    /// process that reuses the id.
    pub fn signal(&self, signal: Signal) -> Option<OwnedFd> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        if !self.is_alive() {
            return None;
        }
        let _already_gone = rustix::process::pidfd_send_signal(&handle, signal);
        Some(handle)
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PID {}", self.pid)
    }
}
