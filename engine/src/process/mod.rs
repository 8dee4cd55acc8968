//! Starts and supervises child processes, and ensures that none is left behind.
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
//! Each child is handled by one thread with one loop, without an async runtime. The child gets its
//! own process group and carries `RUNNER_RUN=<marker>`. This process becomes a child subreaper, so
//! that it can still find and kill a process that leaves the group or loses its parent. A child has
//! ended when its process exits, not when its output ends, because another process may hold the
//! pipe open.
//!
//! This module must never leave a process behind, wait without a deadline, sleep for a guessed
//! time, or signal a process id that may have been reused.

mod cancel;
mod disk_quota;
mod run;
mod snapshot;
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

/// How a child ended, and the output that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit status of the child itself. A child that did not exit in time after KILL is
    /// recorded as killed.
    pub status: ExitStatus,
    /// Why the child ended: the limit or cancellation that stopped it, or [`Reason::Exited`] if
    /// neither did.
    pub reason: Reason,
    /// The child's standard output, up to the cap.
    pub stdout: Vec<u8>,
    /// The child's standard error, up to the cap.
    pub stderr: Vec<u8>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// The time since boot at which the child started.
    pub started: Duration,
    /// The time since boot at which the sweep of the child's process tree was complete.
    pub ended: Duration,
    /// The number of processes that had to be killed, not including the child.
    pub killed: usize,
    /// Whether the child had to be stopped after it had written its result.
    pub lingered: bool,
    /// The number of processes in the child's tree that could not be killed. A nonzero value
    /// indicates a problem with the host.
    pub survivors: usize,
    /// The child's sandbox, if the child was started through a launcher.
    pub containment: Option<AppliedSandbox>,
}

impl Ended {
    /// Returns whether the child exited by itself with exit code 0 and its output is complete, or
    /// was stopped only after it had written its result.
    pub fn is_success(&self) -> bool {
        self.reason == Reason::Exited && (self.status == ExitStatus::Exit(0) || self.lingered)
    }

    /// Returns the time from the child's start to the end of the sweep.
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
