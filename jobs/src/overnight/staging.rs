//! The staged copy of a corpus that an iteration works on:
//! `.agents/overnight/staging/<n>/.agents/`.
//!
//! A checkpoint copies the corpus's five paths (see `corpus`), by reflink where the file system
//! supports it, and fails if the copy would exceed its cap. The steps then write only to the copy.
//! Staging must never write outside its folder, and never copy through a link.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_engine::failpoint;
use runner_engine::files::{DOCUMENT, create_new, open_no_link, read_in};

use super::corpus::read::{Plain, files};
use super::corpus::{Changes, FOLDER as CORPUS};
use super::lock::FOLDER;

/// Why a copy could not be made, changed, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The copy would exceed the cap.
    #[error(
        "the checkpoint needs {need} bytes, but only {cap} are allowed (checkpoint_max_mb); fix: runner overnight start --checkpoint-max-mb {}",
        need.div_ceil(1024 * 1024)
    )]
    Cap { need: u64, cap: u64 },
    /// A file or folder could not be read, written or removed.
    #[error("cannot {act} {path}: {source}")]
    Io { act: &'static str, path: String, source: io::Error },
    /// The corpus could not be listed.
    #[error(transparent)]
    Read(#[from] super::corpus::read::ReadError),
}

fn fail(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StageError {
    let path = path.display().to_string();
    move |source| StageError::Io { act, path, source }
}

/// A staged copy of a corpus.
#[derive(Debug)]
pub struct Staging {
    /// The folder of the copy: `staging/<n>` inside the overnight folder.
    outer: PathBuf,
    /// Number of bytes that were copied, including the bytes in `shared`.
    pub copied: u64,
    /// Number of bytes that share their blocks with the original.
    pub shared: u64,
}

impl Staging {
    /// Copies the five paths of `root`'s corpus for iteration `number`. Copies left by dead
    /// iterations are removed first.
    ///
    /// # Errors
    /// Returns [`StageError::Read`] if the corpus cannot be listed, and [`StageError::Io`] if a
    /// file or folder cannot be read, written or removed. Returns [`StageError::Cap`] before
    /// copying anything if the corpus exceeds the cap.
    pub fn checkpoint(root: &Path, number: u64, cap: u64) -> Result<Self, StageError> {
        let live = root.join(CORPUS);
        let mut ignored = Vec::new();
        let plain = files(&live, &mut ignored)?;
        let need: u64 = plain.iter().map(|file| file.length).sum();
        if need > cap {
            return Err(StageError::Cap { need, cap });
        }
        discard_all(root)?;
        let outer = root.join(FOLDER).join("staging").join(number.to_string());
        let mut staging = Self { outer, copied: 0, shared: 0 };
        let copy = staging.folder();
        failpoint::reach();
        fs::create_dir_all(&copy).map_err(fail("create", &copy))?;
        let mut made: Option<PathBuf> = None;
        let mut clones = true;
        for Plain { path, length } in plain {
            let (from, to) = (live.join(&path), copy.join(&path));
            if let Some(parent) = to.parent()
                && made.as_deref() != Some(parent)
            {
                fs::create_dir_all(parent).map_err(fail("create", parent))?;
                made = Some(parent.to_owned());
            }
            clones = clone(&from, &to, clones)?;
            staging.copied += length;
            staging.shared += if clones { length } else { 0 };
        }
        failpoint::reach();
        Ok(staging)
    }

    /// Returns the folder of the copied corpus.
    pub fn folder(&self) -> PathBuf {
        self.outer.join(CORPUS)
    }

    /// Writes a step's changes to the copy.
    ///
    /// # Errors
    /// Returns [`StageError::Io`] if a file cannot be written or removed.
    pub fn write(&self, changes: &Changes) -> Result<(), StageError> {
        let folder = self.folder();
        for (path, content) in changes {
            failpoint::reach();
            let path = folder.join(path);
            match content {
                Some(bytes) => {
                    if let Some(parent) = path.parent() {
                        fs::create_dir_all(parent).map_err(fail("create", parent))?;
                    }
                    fs::write(&path, bytes).map_err(fail("write", &path))?;
                }
                None => match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(fail("remove", &path)(error));
                    }
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// Returns the current content of a staged file, or `None` if the file is gone.
    ///
    /// # Errors
    /// Returns [`StageError::Io`] if the file cannot be read.
    pub fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, StageError> {
        let path = self.folder().join(path);
        match read_in(&self.folder(), &path, DOCUMENT) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fail("read", &path)(error)),
        }
    }

    /// Removes this and every other staged copy.
    ///
    /// # Errors
    /// Returns [`StageError::Io`] if a copy cannot be removed.
    pub fn discard(self, root: &Path) -> Result<(), StageError> {
        discard_all(root)
    }
}

/// Removes every staged copy of a corpus. The caller must hold the run lock.
///
/// # Errors
/// Returns [`StageError::Io`] if a copy cannot be removed.
pub fn discard_all(root: &Path) -> Result<(), StageError> {
    let below = Path::new(FOLDER).join("staging");
    let path = runner_engine::files::beneath(root, &below).map_err(fail("remove", &below))?;
    failpoint::reach();
    match runner_engine::files::remove_tree(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail("remove", &path)(error)),
        _ => Ok(()),
    }
}

/// Copies one file, by reflink if `try_clone` is set and the file system supports it. Returns
/// whether the copy is a reflink.
fn clone(from: &Path, to: &Path, try_clone: bool) -> Result<bool, StageError> {
    let mut source = open_no_link(from).map_err(fail("read", from))?;
    let target = create_new(to, 0o666).map_err(fail("write", to))?;
    if try_clone && rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        keep_mode(&source, &target);
        return Ok(true);
    }
    let mut target = target;
    io::copy(&mut source.by_ref(), &mut target).map_err(fail("copy", from))?;
    keep_mode(&source, &target);
    Ok(false)
}

fn keep_mode(source: &File, target: &File) {
    if let Ok(data) = source.metadata() {
        let mode = data.permissions().mode() & 0o777;
        // Without write permission for the owner, the copy could not be changed.
        let _as_it_is = target.set_permissions(fs::Permissions::from_mode(mode | 0o600));
    }
}
