//! File access for a run.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use runner_engine::locks::JobLock;
use runner_engine::scope::Scope;

use crate::agent_folders::AgentFolders;

/// The subfolder of a run's folder where the backends' child processes work.
pub const CHILD_FOLDER: &str = "child";
/// The subfolder of a run's folder where a command leaves its artifacts.
pub const OUT_FOLDER: &str = "out";

/// The folders that a run uses.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// The project's canonical root.
    pub root: &'a Path,
    /// A folder for this project's caches, outside the project. Its contents may disappear at any
    /// time.
    pub cache: &'a Path,
    /// The run's private folder.
    pub run_dir: &'a Path,
    /// Runner's state folder, which contains the locks. `None` if the run changes no files before
    /// its main work.
    pub state: Option<&'a Path>,
    /// The folders of the agents' programs.
    pub agents: &'a AgentFolders,
}

/// Whether a run may keep caches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caches {
    Kept,
    /// The run only plans its work.
    Discarded,
}

/// The files of a run: a [`Scope`], which is the only way to write, and the folders that the run
/// may read.
pub struct RunFiles<'a> {
    folders: Folders<'a>,
    scope: Scope,
    caches: Caches,
    /// A lock that is held until the run is settled.
    lock: Option<JobLock>,
}

impl<'a> RunFiles<'a> {
    pub(super) fn new(folders: Folders<'a>, scope: Scope, caches: Caches) -> Self {
        Self { folders, scope, caches, lock: None }
    }

    /// Returns the project's canonical root. A job may read every file in the project.
    pub fn root(&self) -> &'a Path {
        self.folders.root
    }

    pub fn cache(&self) -> &'a Path {
        self.folders.cache
    }

    /// Returns whether the run may save caches. A dry run may not.
    pub(crate) fn keeps_caches(&self) -> bool {
        self.caches == Caches::Kept
    }

    /// Returns the run's private folder.
    pub fn run_dir(&self) -> &'a Path {
        self.folders.run_dir
    }

    pub(crate) fn agents(&self) -> &'a AgentFolders {
        self.folders.agents
    }

    pub(crate) fn state(&self) -> Option<&'a Path> {
        self.folders.state
    }

    /// Returns the working folder of a backend's child process. The child may write nowhere else in
    /// the run's folder.
    pub fn child_dir(&self) -> PathBuf {
        self.folders.run_dir.join(CHILD_FOLDER)
    }

    /// Takes a lock, if it becomes available within a few seconds, and holds it until the run is
    /// settled.
    ///
    /// The lock keeps other processes from changing the same files. Even without the lock, the run
    /// never overwrites a changed file; it fails instead.
    pub fn hold_lock(&mut self, lock: &Path) {
        match JobLock::take_for_run(lock, |_| false) {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => tracing::warn!(%error, "the run continues without the lock on its files"),
        }
    }

    /// Returns the scope to publish, and the lock to drop once the run is settled.
    pub(crate) fn into_scope(self) -> (Scope, Option<JobLock>) {
        (self.scope, self.lock)
    }
}

impl Deref for RunFiles<'_> {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}

impl DerefMut for RunFiles<'_> {
    fn deref_mut(&mut self) -> &mut Scope {
        &mut self.scope
    }
}
