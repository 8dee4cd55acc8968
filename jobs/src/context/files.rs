//! The files of a run.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use runner_engine::locks::JobLock;
use runner_engine::scope::Scope;

/// The subfolder of a run's folder in which the children of backends work.
pub const CHILD_FOLDER: &str = "child";
/// The subfolder of a run's folder in which a command leaves its artifacts.
pub const OUT_FOLDER: &str = "out";

/// The folders in which a run works.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// The project's canonical root.
    pub root: &'a Path,
    /// A folder for this project's caches, outside the project. Its content may vanish at any time.
    pub cache: &'a Path,
    /// A private folder of this run.
    pub run_dir: &'a Path,
    /// The folder of runner's own state, which contains the locks; `None` for a run that changes no
    /// files before its work.
    pub state: Option<&'a Path>,
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
    /// The lock that is held until the run is settled.
    lock: Option<JobLock>,
}

impl<'a> RunFiles<'a> {
    pub(super) fn new(folders: Folders<'a>, scope: Scope, caches: Caches) -> Self {
        Self { folders, scope, caches, lock: None }
    }

    /// Returns the project's canonical root. It may be read freely.
    pub fn root(&self) -> &'a Path {
        self.folders.root
    }

    /// Returns the folder for this project's caches.
    pub fn cache(&self) -> &'a Path {
        self.folders.cache
    }

    /// Returns whether caches may be kept. A dry run keeps none.
    pub(crate) fn keeps_caches(&self) -> bool {
        self.caches == Caches::Kept
    }

    /// Returns the private folder of this run for the files of children.
    pub fn run_dir(&self) -> &'a Path {
        self.folders.run_dir
    }

    /// Returns the folder of runner's own state.
    pub(crate) fn state(&self) -> Option<&'a Path> {
        self.folders.state
    }

    /// Returns the folder in which a child of a backend works, the only part of the run's folder
    /// that the child may write.
    pub fn child_dir(&self) -> PathBuf {
        self.folders.run_dir.join(CHILD_FOLDER)
    }

    /// Holds a lock from now until the run is settled, if it can be taken within a few seconds. The
    /// lock keeps others from changing the same files in the meantime. Without it, a file that
    /// changed is still never overwritten, but it costs the run its result.
    pub fn hold_lock(&mut self, lock: &Path) {
        match JobLock::take_for_run(lock, |_| false) {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => tracing::warn!(%error, "continuing without the lock on its files"),
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
