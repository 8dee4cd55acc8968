//! Child processes: started, watched, and gone without a trace.
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
//! One thread, one loop, no runtime. A child gets its own process group and carries
//! `RUNNER_RUN=<marker>`; this process becomes a child subreaper, so that whatever leaves the group
//! or loses its parent is still found and killed. The end is the child's exit, never the end of its
//! output: another process may hold the pipe.
//!
//! Must never leave a process behind, never wait without a deadline, never guess with a sleep, and
//! never signal a number that might meanwhile name somebody else.

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

/// How a child ended, and everything it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The status of the child itself; a child that KILL did not end in time counts as killed.
    pub status: ExitStatus,
    /// Which limit ended it, if one did.
    pub reason: Reason,
    /// Up to the cap.
    pub stdout: Vec<u8>,
    /// Up to the cap.
    pub stderr: Vec<u8>,
    /// More came on standard output than was kept.
    pub stdout_truncated: bool,
    /// More came on standard error than was kept.
    pub stderr_truncated: bool,
    /// Boot time of the spawn.
    pub started: Duration,
    /// Boot time when its tree was gone.
    pub ended: Duration,
    /// How many processes besides the child itself had to be killed.
    pub killed: usize,
    /// Whether it had to be ended after the result had been seen.
    pub lingered: bool,
    /// How many processes of its tree could not be ended. Anything but 0 is a failure of the host.
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
