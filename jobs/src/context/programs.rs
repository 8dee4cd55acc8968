//! The programs that a job itself starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_engine::process::{ChildSandbox, find_program};
use runner_engine::sandbox::{AppliedSandbox, SandboxedStart};

/// The environment and the sandbox of the programs that a job itself starts.
pub struct Programs<'a> {
    env: &'a BTreeMap<String, String>,
    sandbox: Option<&'a SandboxedStart>,
    applied: Option<AppliedSandbox>,
}

impl<'a> Programs<'a> {
    pub(super) fn new(
        env: &'a BTreeMap<String, String>,
        sandbox: Option<&'a SandboxedStart>,
    ) -> Self {
        Self { env, sandbox, applied: None }
    }

    pub fn env(&self) -> &'a BTreeMap<String, String> {
        self.env
    }

    pub fn sandbox(&self) -> ChildSandbox {
        self.sandbox.cloned().into()
    }

    /// Finds a program in the `PATH` of child processes, or relative to `folder` if its name
    /// contains a slash. Returns `None` if there is no executable file.
    pub fn find(&self, program: &Path, folder: &Path) -> Option<PathBuf> {
        find_program(program, folder, self.env.get("PATH").map_or("", String::as_str)).ok()
    }

    /// Stores the sandbox that was applied to the last program.
    pub(crate) fn note_sandbox(&mut self, applied: Option<&AppliedSandbox>) {
        self.applied = applied.cloned();
    }

    pub(crate) fn applied(&self) -> Option<&AppliedSandbox> {
        self.applied.as_ref()
    }
}
