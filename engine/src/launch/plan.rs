//! The messages between a run and its launcher.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::ExitStatus;
use crate::sandbox::resolve::ResolvedSandbox;
use crate::sandbox::{AppliedSandbox, Sandbox, SandboxError};

/// The program to start, and its sandbox. This is the first message, and it carries the program's
/// standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchPlan {
    /// The file to run.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// The run's marker.
    pub marker: String,
    pub sandbox: Sandbox,
    /// The paths that the launch supervisor passes to the first process inside of a mount view.
    pub inside: Option<ResolvedPaths>,
}

/// The paths that were examined outside, to be found again inside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResolvedPaths {
    /// Which paths.
    pub real: ResolvedSandbox,
}

/// A report from the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchReport {
    /// The program runs.
    Started(AppliedSandbox),
    /// The program was not started.
    Refused(LaunchRefusal),
    /// The program has ended and its tree is gone.
    Ended {
        /// How.
        status: ExitStatus,
        /// How many processes besides it had to be killed.
        killed: usize,
        /// How many could not be.
        survivors: usize,
    },
}

/// Why nothing was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LaunchRefusal {
    /// The sandbox could not be raised.
    Sandbox(String),
    /// The system refused to start the program.
    Spawn(i32),
    /// Something else went wrong.
    Other(String),
}

impl From<SandboxError> for LaunchRefusal {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error.to_string())
    }
}

impl LaunchRefusal {
    /// Creates the refusal for a spawn that failed.
    pub fn of_spawn(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Spawn(number),
            None => Self::Other(error.to_string()),
        }
    }

    /// Creates the refusal for a step that failed.
    pub fn at(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Other(format!("{what}: {error}"))
    }
}

/// An order from a run to its launcher after the plan, or from the launch supervisor to the first
/// process inside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchOrder {
    /// Pass this signal on to the program's process group.
    Signal(i32),
}
