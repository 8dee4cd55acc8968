//! Writes state files that are not part of a publication, such as failure markers, reports and
//! caches. The submodule `reader` contains the only functions that open files for reading.
//!
//! Readers see either the old file or the new one, and a completed write survives a power cut. A
//! project's live artifacts must be published instead (see [`crate::publish`]).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

mod reader;
mod tree_walk;

pub use tree_walk::{TreeVisitor, remove_tree, walk};

pub use reader::{
    DOCUMENT, RECORD, Refused, SMALL, copy_host, create_new, open_host, open_in, open_named,
    open_no_link, open_null, open_with, open_with_no_link, read_host, read_in, read_no_link,
    read_proc, read_text_host, read_text_in, read_text_named, read_text_proc, sync_folder,
};
pub(crate) use reader::{NotOpened, irregular, read_bounded, regular_at, walk_to};

/// The error for a state file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", .path.display())]
pub struct WriteError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// Writes `bytes` to `path` with exactly these permission bits. The function writes and syncs a
/// temporary file in the same folder, renames it, and syncs the folder. The folder must exist. A
/// symbolic link at `path` is replaced, not followed.
///
/// # Errors
/// Returns an error if `path` does not name a file, or if the temporary file cannot be created,
/// written, synced or renamed. The existing file is then unchanged. Also returns an error if the
/// folder cannot be synced after the rename. In that case, the new content may not survive a power
/// cut.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
    write(path, bytes, mode).map_err(|source| WriteError { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    crate::failpoint::reach();
    let unusable = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file");
    let name = path.file_name().ok_or_else(unusable)?.to_string_lossy();
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let (temp, mut file) = make_temp(folder, &name)?;
    let done = file
        .write_all(bytes)
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode & 0o7777)))
        .and_then(|()| file.sync_all())
        .and_then(|()| {
            crate::failpoint::reach();
            fs::rename(&temp, path)
        });
    if let Err(error) = done {
        let _ = fs::remove_file(&temp);
        return Err(error);
    }
    sync_folder(folder)
}

/// Creates a temporary file in `folder`. Its name contains the process id and a call number. If a
/// file with that name exists, the next number is used.
fn make_temp(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let stem: String = name.chars().take(40).collect();
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let temp = folder.join(format!(".{stem}.{}-{call}.tmp", process::id()));
        match create_new(&temp, 0o600) {
            Ok(file) => return Ok((temp, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Joins `root` and `below`, and refuses symbolic links in `below`. A repository's contents must
/// not redirect runner's files.
///
/// # Errors
/// Returns an error if a component of `below` is a symbolic link, cannot be inspected, or is not a
/// plain name. A component that does not exist is accepted.
pub fn beneath(root: &Path, below: &Path) -> io::Result<PathBuf> {
    let mut path = root.to_owned();
    for component in below.components() {
        let std::path::Component::Normal(name) = component else {
            return Err(io::Error::other(format!(
                "{} is not a path inside the project",
                below.display()
            )));
        };
        path.push(name);
        match std::fs::symlink_metadata(&path) {
            Ok(data) if data.is_symlink() => {
                return Err(io::Error::other(format!("{} is a symbolic link", path.display())));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn atomic_write_replaces_content_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        write_atomic(&path, b"one", 0o600).unwrap();
        write_atomic(&path, b"two", 0o640).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(names(folder.path()), ["state.json"]);
    }

    #[test]
    fn failed_write_leaves_the_folder_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("full")).unwrap();
        let error = write_atomic(&taken, b"x", 0o600).unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(names(folder.path()), ["taken"]);
        assert!(write_atomic(&folder.path().join("no/such/file"), b"x", 0o600).is_err());
        assert!(write_atomic(Path::new("/"), b"x", 0o600).is_err());
        assert!(write_atomic(Path::new(".."), b"x", 0o600).is_err());
    }

    #[test]
    fn atomic_write_leaves_linked_files_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (path, twin) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&twin, "theirs").unwrap();
        fs::hard_link(&twin, &path).unwrap();
        write_atomic(&path, b"ours", 0o600).unwrap();
        assert_eq!(fs::read(&twin).unwrap(), b"theirs");

        let link = folder.path().join("link");
        symlink(&twin, &link).unwrap();
        write_atomic(&link, b"ours", 0o600).unwrap();
        assert_eq!(fs::read(&twin).unwrap(), b"theirs");
        assert_eq!(fs::read(&link).unwrap(), b"ours");
    }
}
