//! Placeholders for protected paths that do not exist while a child runs.
//!
//! A mount needs an existing mount point. The launcher therefore creates an empty folder at the
//! missing path. Git ignores empty folders, and the child cannot fill this one, because it is
//! mounted read-only for the child.
//!
//! ```text
//!           create (first)                  create (again)
//! nothing ────────────────> exists, 1 holder ────────────> exists, n holders
//!    ^                             │ released by the last holder, or by recovery
//!    └─────────────────────────────┘
//! ```
//!
//! Several launchers may need the same placeholder at the same time, and removing the entry under a
//! mount removes the mount for every child. Each placeholder is therefore registered as a file in a
//! folder that no child sees. Its holders share a lock on that file, and a holder that can lock it
//! exclusively is the last. All of this happens under another lock, which is held only while a few
//! files are handled. The locks of a killed holder are released with its process.
//!
//! At a missing path, this module must never remove anything but an empty folder.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::resolve::{ResolvedSandbox, resolve};
use super::{Sandbox, SandboxError};
use crate::digest::Digest;
use crate::files::{open_host, open_with};

/// The name of the registry folder in the state folder.
pub const FOLDER: &str = "blockers";
const LOCK: &str = "lock";

/// The mount placeholders that one launcher needs. They are released when this value is dropped.
#[derive(Debug, Default)]
pub struct Placeholders {
    folder: Option<PathBuf>,
    files: Vec<File>,
}

/// Resolves all paths of the sandbox and creates a placeholder for every kept path that does not
/// exist.
///
/// # Errors
/// Returns an error if a path is invalid or a placeholder cannot be created.
pub fn create(sandbox: &Sandbox) -> Result<(ResolvedSandbox, Placeholders), SandboxError> {
    let mut held = Placeholders::default();
    let Some(folder) = &sandbox.blockers else {
        let real = resolve(sandbox)?;
        return match real.missing.first() {
            None => Ok((real, held)),
            Some(path) => Err(cannot(path, &"there is no folder to register it in")),
        };
    };
    let _only_one = lock(folder).map_err(|error| cannot(folder, &error))?;
    let real = resolve(sandbox)?;
    held.folder = Some(folder.clone());
    let there = real.keep.iter().map(|place| &place.path);
    for path in there.filter(|path| entry(folder, path).exists()) {
        held.join(folder, path).map_err(|error| cannot(path, &error))?;
    }
    for path in &real.missing {
        // The placeholder is registered before it is created, so that a process that dies in
        // between leaves only a registry entry.
        held.join(folder, path).map_err(|error| cannot(path, &error))?;
        put(path).map_err(|error| cannot(path, &error))?;
    }
    Ok((real, held))
}

/// Removes the placeholders that no process holds. Recovery calls this function.
pub fn clear_abandoned(folder: &Path) {
    if let Ok(_only_one) = fs::metadata(folder).and_then(|_| lock(folder)) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() != LOCK
                && let Ok(file) = open_host(entry.path())
            {
                end(folder, &file);
            }
        }
    }
}

impl Placeholders {
    fn join(&mut self, folder: &Path, path: &Path) -> io::Result<()> {
        let mut options = File::options();
        options.read(true).append(true).create(true);
        let mut file = open_with(&mut options, entry(folder, path))?;
        if file.metadata()?.len() == 0 {
            file.write_all(path.as_os_str().as_bytes())?;
        }
        file.lock_shared()?;
        self.files.push(file);
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else {
            return;
        };
        let only_one = lock(&folder);
        for file in self.files.drain(..) {
            let _ = file.unlock();
            if only_one.is_ok() {
                end(&folder, &file);
            }
        }
    }
}

/// Removes a placeholder and its registry entry, unless a process still holds it.
fn end(folder: &Path, file: &File) {
    if file.try_lock().is_err() {
        return;
    }
    let mut path = Vec::new();
    let mut file = file;
    let whole = io::Seek::rewind(&mut file).and_then(|()| file.read_to_end(&mut path));
    if whole.is_err() {
        return;
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    if path.is_absolute() {
        // `remove_dir` removes the folder only if it is empty.
        let _ = fs::remove_dir(&path);
    }
    let _ = fs::remove_file(entry(folder, &path));
}

fn put(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        // Another process has created the path. It exists now and is protected like the others.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Locks the registry. The wait is short, because a holder handles only a few files.
fn lock(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let file = File::create(folder.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

fn entry(folder: &Path, path: &Path) -> PathBuf {
    folder.join(Digest::of(path.as_os_str().as_bytes()).to_string().replace(':', "-"))
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> SandboxError {
    SandboxError::Path { path: path.to_owned(), why: format!("it cannot be protected: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_removed_after_last_use() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("work")).unwrap();
        let names = [".claude", "rem", ".codex"].map(|name| root.join("work").join(name));
        let sandbox = Sandbox {
            write: vec![root.join("work")],
            keep: names.to_vec(),
            blockers: Some(root.join("registry")),
            ..Sandbox::default()
        };
        let all = |there: bool| assert!(names.iter().all(|name| name.exists() == there));
        let (real, first) = create(&sandbox).unwrap();
        assert_eq!(real.missing.len(), 3);
        all(true);
        let (real, second) = create(&sandbox).unwrap();
        assert_eq!((real.missing.len(), real.keep.len()), (0, 3));
        drop(first);
        clear_abandoned(&root.join("registry"));
        all(true);
        drop(second);
        all(false);
        // A killed process loses its locks, and its placeholders remain.
        let (_, mut killed) = create(&sandbox).unwrap();
        killed.folder = None;
        drop(killed);
        all(true);
        fs::write(root.join("work/rem/x"), "somebody's").unwrap();
        clear_abandoned(&root.join("registry"));
        assert!(!names[0].exists() && names[1].exists() && !names[2].exists());
        assert_eq!(fs::read_dir(root.join("registry")).unwrap().count(), 1);
    }
}
