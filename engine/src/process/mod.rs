//! Starts and supervises child processes, and makes sure that none is left behind.
//!
//! ```text
//! ChildSpec ──check──> spawn ──> poll: stdout, stderr, stdin, pidfd, cancel, alarm
//!                                  │ event                     ^
//!                                  v                           │ effect: TERM, KILL
//!                              Supervisor (pure) ──────────────┘
//!                                  │ Finish
//!                                  v
//!                        sweep the tree ──> reap ──> Ended
//! ```
//!
//! Each child is handled by one thread with one loop, without an async runtime. A child gets its
//! own process group and carries `RUNNER_RUN=<marker>`. This process becomes a child subreaper, so
//! that a process that leaves the group or loses its parent is still found and killed. A child has
//! ended when its process exits, not when its output ends, because another process may hold the
//! pipe.
//!
//! This module must never leave a process behind, never wait without a deadline, never guess with a
//! sleep, and never signal a process id that another process may have by now.

mod cancel;
mod disk_quota;
mod run;
mod spec;
mod supervisor;
mod sweep;
pub mod tree;
pub(crate) mod wait;

use std::time::Duration;

use crate::sandbox::AppliedSandbox;

pub use cancel::Cancel;
pub use run::{OutputVerdict, run};
pub use spec::{ChildSandbox, ChildSpec, Limits, MARKER_VARIABLE, SpawnError, Stdin, find_program};
pub use supervisor::{ExitStatus, Reason, Stream, Supervisor, SupervisorEffect, SupervisorEvent};

/// How a child ended, and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The status of the child itself; a child that KILL did not end in time counts as killed.
    pub status: ExitStatus,
    /// The limit that ended the child, or [`Reason::Exited`] if none did.
    pub reason: Reason,
    /// The child's standard output, up to the cap.
    pub stdout: Vec<u8>,
    /// The child's standard error, up to the cap.
    pub stderr: Vec<u8>,
    /// Whether the child wrote more to standard output than was kept.
    pub stdout_truncated: bool,
    /// Whether the child wrote more to standard error than was kept.
    pub stderr_truncated: bool,
    /// The start of the child, as time since boot.
    pub started: Duration,
    /// The time since boot at which the child's whole process tree had ended.
    pub ended: Duration,
    /// The number of processes that had to be killed, besides the child itself.
    pub killed: usize,
    /// Whether the child had to be ended after its result had been seen.
    pub lingered: bool,
    /// The number of processes of the child's tree that could not be ended. A value other than 0 is
    /// a failure of the host.
    pub survivors: usize,
    /// The sandbox of the child, if it was started through a launcher.
    pub containment: Option<AppliedSandbox>,
}

impl Ended {
    /// Returns whether the child ended by itself with exit code 0 and its whole output is here, or
    /// was ended only after its result had been seen.
    pub fn is_success(&self) -> bool {
        self.reason == Reason::Exited && (self.status == ExitStatus::Exit(0) || self.lingered)
    }

    /// Returns how long the child ran.
    pub fn took(&self) -> Duration {
        self.ended.saturating_sub(self.started)
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
