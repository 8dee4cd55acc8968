//! Manages the work of a child that may change the project. The initial state is recorded before
//! the child starts. After the child exits, the kept paths are checked and the child's commits are
//! imported.
//!
//! ```text
//! open: private git directory, identity of kept paths ──> work.json
//!   the child works
//! close: kept paths compared ──> commits imported ──> work.json with the result
//! ```
//!
//! The record contains everything needed to close the work, so recovery closes the work of a dead
//! run in the same way. Every step can be repeated. Open and close the work only while no process
//! of the child is alive.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failpoint;
use crate::files::{DOCUMENT, read_no_link, write_atomic};
use crate::git::private::{ImportRules, Imported, RepositoryStart, import, kept_above, prepare};
use crate::git::{Git, GitError};
use crate::sandbox::Sandbox;
use crate::sandbox::kept::{self, KeptPath};
use crate::sandbox::private_git::PrivateGit;

/// The name of the record in the run's folder.
const RECORD: &str = "work.json";
/// The folder, inside the run's folder, that contains copies of the kept files as they were at the
/// start.
const KEPT: &str = "kept";
/// The new name, inside the run's folder, of a private git directory with nothing to import.
const UNCHANGED: &str = "git-unchanged";
/// The folder, inside the run's folder, where git reads the child's objects.
const SCRATCH: &str = "git-read";

/// The error for work that could not be opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A file in the run's folder cannot be read, written or renamed.
    #[error("{}: {source}", path.display())]
    Record { path: PathBuf, source: io::Error },
    /// The private git directory cannot be created or read, or its commits cannot be imported.
    #[error("cannot use the run's git directory: {0}")]
    Git(#[from] GitError),
}

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    root: PathBuf,
    run: String,
    /// The environment for git.
    env: BTreeMap<String, String>,
    git: Option<Box<PrivateGit>>,
    starts: Vec<RepositoryStart>,
    write: Vec<PathBuf>,
    keep: Vec<PathBuf>,
    kept: Vec<KeptPath>,
    closed: Option<WorkResult>,
}

/// The changes made by a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkResult {
    /// The commits that were imported into the repository.
    pub imported: Imported,
    /// The kept paths that changed.
    pub changed: Vec<String>,
}

impl WorkResult {
    /// Returns the reason why the run must fail, if any.
    pub fn violation(&self) -> Option<String> {
        let all: Vec<&str> =
            self.changed.iter().chain(&self.imported.refused).map(String::as_str).collect();
        (!all.is_empty()).then(|| {
            let held = self.imported.held.iter().map(String::as_str);
            all.into_iter().chain(held).collect::<Vec<_>>().join("; ")
        })
    }
}

impl Work {
    /// Records the start of the work and creates the private git directory.
    ///
    /// # Errors
    /// Returns a [`WorkError`]. In that case, no child may start.
    pub fn open(
        sandbox: &Sandbox,
        run_dir: &Path,
        git: &Git,
        run: &str,
    ) -> Result<Self, WorkError> {
        let record = |source| WorkError::Record { path: run_dir.to_owned(), source };
        let starts = match &sandbox.git {
            None => Vec::new(),
            Some(private) => prepare(git, private, &sandbox.keep)?,
        };
        let kept = sandbox.watched();
        let work = Self {
            root: git.root().to_owned(),
            run: run.to_owned(),
            env: git.environment().clone(),
            git: sandbox.git.clone(),
            starts,
            write: sandbox.write.clone(),
            keep: sandbox.keep.clone(),
            kept: kept::record(&kept, &run_dir.join(KEPT)).map_err(record)?,
            closed: None,
        };
        work.save(run_dir)?;
        Ok(work)
    }

    /// Reads the record of a run. Returns `None` if the run has no record.
    ///
    /// # Errors
    /// Returns [`WorkError::Record`] if the record cannot be read. Its run may have made commits.
    pub fn of_run(run_dir: &Path) -> Result<Option<Self>, WorkError> {
        let path = run_dir.join(RECORD);
        let read = match read_no_link(&path, DOCUMENT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from)),
        };
        read.map(Some).map_err(|source| WorkError::Record { path, source })
    }

    /// Returns the commit that was checked out in the project at the start. Returns `None` if no
    /// commit was checked out or the child has no private git directory.
    pub fn head(&self) -> Option<&str> {
        self.starts.first()?.commit()
    }

    /// Checks the kept paths and imports the commits. A second call on the same value returns the
    /// same result.
    ///
    /// # Errors
    /// Returns a [`WorkError`]. The private git directory then remains in the run's folder.
    pub fn close(&mut self, run_dir: &Path) -> Result<WorkResult, WorkError> {
        if let Some(closed) = &self.closed {
            return Ok(closed.clone());
        }
        let (scratch, unchanged) = (run_dir.join(SCRATCH), run_dir.join(UNCHANGED));
        // An earlier call found nothing. The user may have edited a kept file since then.
        let changed = match unchanged.exists() {
            true => Vec::new(),
            false => kept::changed(&self.kept),
        };
        let mut imported = Imported::default();
        if let Some(private) = self.git.as_ref().filter(|_| !unchanged.exists()) {
            let git = Git::new(&self.root, &self.env, &self.run);
            let rules = ImportRules {
                run: &self.run,
                scratch: &scratch,
                advance: changed.is_empty(),
                keep: &self.keep,
                refuse: &|path| self.refusal(path),
            };
            imported = import(&git, private, &self.starts, &rules)?;
        }
        let closed = WorkResult { imported, changed };
        self.closed = Some(closed.clone());
        let nothing = closed == WorkResult::default();
        match &self.git {
            // Because of this name, a later call imports and compares nothing. The rename is not
            // synced: if a power cut undoes it, the later call reads the complete directory again.
            Some(private) if nothing && !unchanged.exists() => {
                failpoint::reach();
                fs::rename(&private.folder, &unchanged)
                    .map_err(|source| WorkError::Record { path: unchanged.clone(), source })?;
            }
            Some(_) if nothing => {}
            None if nothing && self.kept.is_empty() => {}
            _ => self.save(run_dir)?,
        }
        // The import is complete, so these folders are no longer needed.
        let inside = fs::read_dir(&unchanged).into_iter().flatten().flatten();
        let inside = inside.map(|entry| entry.path());
        for path in inside.chain([scratch]).chain(self.git.iter().map(|it| it.folder.clone())) {
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        Ok(closed)
    }

    /// Returns the reason why a commit by the run must not change this path, if any.
    fn refusal(&self, path: &Path) -> Option<String> {
        if let Some(kept) = kept_above(&self.keep, path) {
            let kept = kept.strip_prefix(&self.root).unwrap_or(kept);
            return Some(format!("{} is a path that this job must never write", kept.display()));
        }
        let within = self.write.iter().any(|write| path.starts_with(write));
        (!within).then(|| "it is outside the paths that this job may write".to_owned())
    }

    fn save(&self, run_dir: &Path) -> Result<(), WorkError> {
        let path = run_dir.join(RECORD);
        let failed = |source| WorkError::Record { path: path.clone(), source };
        let bytes = serde_json::to_vec(self).map_err(|error| failed(io::Error::other(error)))?;
        write_atomic(&path, &bytes, 0o600).map_err(|error| failed(error.source))
    }
}
