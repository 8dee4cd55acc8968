//! Defines the messages between a run and its launcher.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::ExitStatus;
use crate::sandbox::resolve::ResolvedSandbox;
use crate::sandbox::{AppliedSandbox, Overuse, RequestedHost, Sandbox, SandboxError};

/// The program to start and its sandbox. This is the first message. It carries the program's
/// standard input. The plan for the first process inside a mount view carries all three standard
/// streams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaunchPlan {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// The program's environment. The launcher adds the marker and, where they apply, `TMPDIR` and
    /// the proxy's variables.
    pub env: BTreeMap<String, String>,
    pub marker: String,
    pub sandbox: Sandbox,
    /// The paths that the launch supervisor passes to the first process inside a mount view. `None`
    /// in the plan for the supervisor itself.
    pub inside: Option<ResolvedPaths>,
}

/// The paths that were resolved outside the mount view. They must be the same inside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ResolvedPaths {
    pub real: ResolvedSandbox,
}

/// A report from the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchReport {
    Started(AppliedSandbox),
    Refused(LaunchRefusal),
    /// The program has exited and its process tree is gone.
    Ended {
        status: ExitStatus,
        /// The number of other processes that had to be killed.
        killed: usize,
        /// The number of processes that could not be killed.
        survivors: usize,
        /// The hosts that the program requested.
        requested: Vec<RequestedHost>,
        /// The resource whose limit caused the program to be terminated.
        over: Option<Overuse>,
    },
}

/// The reason why the program was not started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LaunchRefusal {
    /// The sandbox could not be set up.
    Sandbox(String),
    /// The system refused to start the program, with this error number.
    Spawn(i32),
    /// Another step failed.
    Other(String),
}

impl From<SandboxError> for LaunchRefusal {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error.to_string())
    }
}

impl LaunchRefusal {
    /// Creates the refusal for a failed spawn.
    pub fn of_spawn(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Spawn(number),
            None => Self::Other(error.to_string()),
        }
    }

    /// Creates the refusal for a failed step. `what` completes the message `cannot …`.
    pub fn at(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Other(format!("cannot {what}: {error}"))
    }
}

/// A command from the launch supervisor to the first process inside the mount view.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchOrder {
    /// Sends this signal to the program's process group.
    Signal(i32),
}
