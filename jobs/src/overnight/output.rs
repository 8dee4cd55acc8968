//! The output folder of a run, and the folder of earlier nights.
//!
//! Each artifact is written atomically as soon as it is ready, so a dead run leaves its finished
//! artifacts behind. This module must never follow a link or write outside the output folder and
//! the `runs` folder beside it. A successful run publishes its summary. The summary of a failed or
//! dead run is written here.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::failpoint;
use runner_engine::files::{DOCUMENT, beneath, open_with_no_link, read_in, write_atomic};
use runner_engine::publish::{FsError, PublishFs as _, RealFs};
use serde::{Deserialize, Serialize};

use super::ownership::{self, Refusal, Standing};
pub use super::ownership::{LOG, SUMMARY};
use crate::json::pretty;

/// The folder for the morning packets, inside the output folder.
pub const PACKETS: &str = "morning-packets";

/// Why an output could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file operation failed.
    #[error("cannot {act} {path}: {source}")]
    Io { act: &'static str, path: String, source: io::Error },
    /// The output folder was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The output folder of a run, inside the project.
#[derive(Clone, Debug)]
pub struct Output {
    root: PathBuf,
    below: String,
}

/// The state that a run records in its `run.json` as it proceeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub run_id: String,
    /// The time at which the run began.
    pub started_at: String,
    #[serde(default)]
    pub goal: String,
    /// The run's time limit in seconds.
    #[serde(default)]
    pub timeout_seconds: u64,
    #[serde(default)]
    pub last_step: Option<String>,
    #[serde(default)]
    pub at_step: Option<String>,
    /// Number of rescues left when the loop began, or `None` if it has not begun.
    #[serde(default)]
    pub rescues: Option<u64>,
    /// Number of times the run was resumed.
    #[serde(default)]
    pub resumed: u64,
    /// Why the run ended, recorded by the process that found the run dead. Cleared when the run is
    /// resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died: Option<String>,
}

impl Output {
    /// Returns the folder at `below` in the project, without creating it.
    pub fn new(root: &Path, below: &str) -> Self {
        Self { root: root.to_owned(), below: below.trim_end_matches('/').to_owned() }
    }

    /// Returns the folder's path, relative to the project.
    pub fn below(&self) -> &str {
        &self.below
    }

    /// Returns the path of a file in the folder, relative to the project.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.below)
    }

    fn at(&self, name: &str) -> Result<PathBuf, OutputError> {
        let below = match name {
            "" => self.below.clone(),
            name => self.path_of(name),
        };
        beneath(&self.root, Path::new(&below)).map_err(|source| OutputError::Io {
            act: "write",
            path: below,
            source,
        })
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the folder cannot be created.
    pub fn make(&self) -> Result<(), OutputError> {
        let path = self.at("")?;
        failpoint::reach();
        fs::create_dir_all(&path).map_err(fail("create", &path))
    }

    /// Writes a file, completely or not at all. Missing folders are created.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the file cannot be written.
    pub fn text(&self, name: &str, text: &str) -> Result<(), OutputError> {
        let path = self.at(name)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fail("create", parent))?;
        }
        write_atomic(&path, text.as_bytes(), 0o644).map_err(|error| OutputError::Io {
            act: "write",
            path: path.display().to_string(),
            source: error.source,
        })
    }

    /// Writes a document as JSON.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the file cannot be written.
    pub fn json(&self, name: &str, value: &impl Serialize) -> Result<(), OutputError> {
        self.text(name, &pretty(value))
    }

    /// Appends a line to the log.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the log cannot be written.
    pub fn log(&self, now: Timestamp, line: &str) -> Result<(), OutputError> {
        let path = self.at(LOG)?;
        let line = line.replace(['\n', '\r'], " ");
        open_with_no_link(File::options().append(true).create(true), &path)
            .and_then(|mut file| file.write_all(format!("{now:.0} {line}\n").as_bytes()))
            .map_err(fail("write", &path))
    }

    /// Reads a JSON document in the folder. Returns `None` if the file cannot be read or parsed.
    pub fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        let bytes = read_in(&self.root, self.at(name).ok()?, DOCUMENT).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Removes the summary so that it can be written again.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if a file cannot be removed.
    pub fn drop_summary(&self) -> Result<(), OutputError> {
        for name in SUMMARY {
            let path = self.at(name)?;
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(fail("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the runs with a recorded state in this folder, ordered by id.
    pub fn runs(&self) -> Vec<RunState> {
        let Ok(path) = self.at("") else {
            return Vec::new();
        };
        let mut names: Vec<String> = fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names.iter().filter_map(|name| self.read::<RunState>(&format!("{name}/run.json"))).collect()
    }

    /// Returns the path of the folder in `runs` that keeps this run's artifacts, relative to the
    /// project.
    pub fn kept(&self, run_id: &str) -> String {
        match self.below.rsplit_once('/') {
            Some((parent, _)) => format!("{parent}/{}/{run_id}", ownership::RUNS),
            None => format!("{}/{run_id}", ownership::RUNS),
        }
    }

    /// Copies files from a folder to the same folder in `runs/<run_id>`. The paths of the copies
    /// remain valid when the next night moves the output folder there.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if a file cannot be copied.
    pub fn keep(&self, run_id: &str, folder: &str, names: &[&str]) -> Result<(), OutputError> {
        let kept = Self::new(&self.root, &self.kept(run_id));
        kept.clear(folder)?;
        for name in names {
            let name = format!("{folder}/{name}");
            let from = self.at(&name)?;
            let bytes = read_in(&self.root, &from, DOCUMENT).map_err(fail("read", &from))?;
            kept.text(&name, &String::from_utf8_lossy(&bytes))?;
        }
        Ok(())
    }

    /// Removes a folder in the output folder, if it exists.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the folder cannot be removed.
    pub fn clear(&self, folder: &str) -> Result<(), OutputError> {
        let path = self.at(folder)?;
        match runner_engine::files::remove_tree(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(fail("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes `runs/<run_id>` if it contains nothing but copies of packets in the output folder.
    /// The output folder can then be moved to that path.
    fn give_way(&self, run_id: &str) {
        let kept = Self::new(&self.root, &self.kept(run_id));
        let same = |name: &str| {
            let read = |output: &Self| read_in(&self.root, output.at(name).ok()?, DOCUMENT).ok();
            read(self).is_some_and(|own| read(&kept) == Some(own))
        };
        let names = |folder: &str| -> Option<Vec<String>> {
            let entries = fs::read_dir(kept.at(folder).ok()?).ok()?;
            entries.map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
        };
        let only = names("").is_some_and(|all| all == [PACKETS]);
        let known = names(PACKETS)
            .is_some_and(|all| all.iter().all(|name| same(&format!("{PACKETS}/{name}"))));
        if only
            && known
            && let Ok(path) = kept.at("")
        {
            // If the copies cannot be removed, the output folder is moved to a numbered name.
            let _stays = fs::remove_dir_all(path);
        }
    }

    /// Inspects the folder with [`ownership::inspect`].
    ///
    /// # Errors
    /// Returns the errors of [`ownership::inspect`].
    pub fn inspect(&self) -> Result<Standing, Refusal> {
        ownership::inspect(&self.root, &self.below)
    }

    /// Moves `earlier`, which [`Output::inspect`] found here, to `runs/<name>` beside it, and
    /// returns its new path relative to the project. If the name is taken, a number is appended.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the folder cannot be moved, or if another folder has replaced
    /// it. That folder is moved back.
    pub fn set_aside(&self, earlier: &RealFs, name: &str) -> Result<String, OutputError> {
        let from = ownership::parse(&self.below)?;
        let beside = ownership::runs_beside(&from);
        Self::new(&self.root, beside.as_str()).make()?;
        let failed = |source: io::Error| fail("move", Path::new(from.as_str()))(source);
        let moved = |error: FsError| failed(io::Error::other(error));
        let fs = RealFs::open(&self.root).map_err(moved)?;
        self.give_way(name);
        let mut number = 1;
        let target = loop {
            let target = match number {
                1 => beside.join(name),
                _ => beside.join(&format!("{name}-{number}")),
            };
            let target = target.map_err(|error| failed(io::Error::other(error)))?;
            // On a file system without a no-replace rename, the rename replaces at most an empty
            // folder.
            let done = match fs.rename_noreplace(&from, &target) {
                Err(error) if error.is_unsupported() => fs.rename_replace(&from, &target),
                done => done,
            };
            match done {
                Ok(()) => break target,
                Err(error) if error.is_taken() => number += 1,
                Err(error) => return Err(moved(error)),
            }
        };
        let found = fs.hold(&target).map_err(moved)?;
        let is_same = found.map_or(Ok(false), |found| found.is_same(earlier));
        if !is_same.map_err(failed)? {
            fs.rename_noreplace(&target, &from).map_err(moved)?;
            return Err(OutputError::Refused(Refusal {
                path: self.below.clone(),
                why: "another folder replaced it while the night was starting".to_owned(),
            }));
        }
        fs.sync_dir(Some(&beside)).map_err(moved)?;
        fs.sync_dir(from.parent().as_ref()).map_err(moved)?;
        Ok(target.to_string())
    }
}

fn fail(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.display().to_string();
    move |source| OutputError::Io { act, path, source }
}
