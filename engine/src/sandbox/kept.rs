//! Compares the paths that a child must not write to, before and after the child runs.
//!
//! A mount protects a file, not a name. Another program on the host may replace a kept file by
//! renaming another file over it, as most editors and git do. The kernel then removes the mount in
//! every view, and the child can write to the new file. The kept paths are therefore compared after
//! the child has exited. A folder whose device and inode are unchanged has kept its mount, which
//! covers everything in it; a file must also have unchanged content. This module must never restore
//! or change a kept path.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::files::{DOCUMENT, create_new, read_no_link};

/// A kept path, as it was when the child started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPath {
    path: PathBuf,
    identity: Identity,
    /// The file in the run's folder that contains the initial content.
    copy: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Identity {
    /// The path does not exist, or is an empty folder, which may be a run's placeholder.
    Missing,
    Folder {
        device: u64,
        inode: u64,
    },
    File {
        device: u64,
        inode: u64,
        content: Option<Digest>,
    },
}

/// Records the identity of each path, and copies each readable file of at most 64 MiB to `folder`.
///
/// # Errors
/// Returns an error if a copy cannot be written.
pub fn record(paths: &[PathBuf], folder: &Path) -> io::Result<Vec<KeptPath>> {
    fs::create_dir_all(folder)?;
    let mut all = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let (identity, bytes) = identity(path);
        let copy = match (bytes, path.file_name()) {
            (Some(bytes), Some(name)) => {
                let copy = folder.join(format!("{number}-{}", name.to_string_lossy()));
                // The comparison uses the digest. The copy is only an aid for the user, so it is
                // not synced.
                let _ = fs::remove_file(&copy);
                create_new(&copy, 0o600)?.write_all(&bytes)?;
                Some(copy)
            }
            _ => None,
        };
        all.push(KeptPath { path: path.clone(), identity, copy });
    }
    Ok(all)
}

/// Describes each path that has changed.
pub fn changed(paths: &[KeptPath]) -> Vec<String> {
    let differs = paths.iter().filter(|kept| identity(&kept.path).0 != kept.identity);
    differs
        .map(|kept| match &kept.copy {
            Some(copy) => format!(
                "{} was changed during the run; its earlier content is in {}",
                kept.path.display(),
                copy.display()
            ),
            None => {
                format!("{} was created, replaced or removed during the run", kept.path.display())
            }
        })
        .collect()
}

/// Returns the identity of a path, and the content of a file.
fn identity(path: &Path) -> (Identity, Option<Vec<u8>>) {
    let Ok(data) = fs::symlink_metadata(path) else {
        return (Identity::Missing, None);
    };
    let (device, inode) = (data.dev(), data.ino());
    if data.is_dir() {
        let is_missing = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            // Another run has just removed its placeholder.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        return match is_missing {
            true => (Identity::Missing, None),
            false => (Identity::Folder { device, inode }, None),
        };
    }
    let bytes = read_no_link(path, DOCUMENT).ok();
    let content = bytes.as_deref().map(Digest::of);
    (Identity::File { device, inode, content }, bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Another run creates and removes its placeholder while the paths are compared.
    #[test]
    fn placeholder_of_another_run_is_not_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".ctxrc");
        let kept = record(std::slice::from_ref(&path), &folder.path().join("copies")).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    fs::create_dir(&path).unwrap();
                    fs::remove_dir(&path).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            let mut found = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                found.extend(changed(&kept));
            }
            assert_eq!(found, Vec::<String>::new());
        });
    }

    #[test]
    fn replaced_and_edited_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["same", "edited", "replaced", "removed"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("placeholder")).unwrap();
        fs::create_dir_all(at("folder/inside")).unwrap();
        let names = ["same", "edited", "replaced", "removed", "new", "placeholder", "folder"];
        let kept = record(&names.map(at), &at("copies")).unwrap();
        assert_eq!(changed(&kept), Vec::<String>::new());
        fs::write(at("edited"), "other").unwrap();
        fs::write(at("half"), "replaced").unwrap();
        fs::rename(at("half"), at("replaced")).unwrap();
        fs::remove_file(at("removed")).unwrap();
        fs::write(at("new"), "new").unwrap();
        fs::remove_dir(at("placeholder")).unwrap();
        fs::write(at("folder/inside/file"), "theirs").unwrap();
        let found = changed(&kept);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert_eq!(fs::read_to_string(at("copies/1-edited")).unwrap(), "edited");
        assert!(found[0].contains("1-edited") && found[3].contains("was created"));
    }
}
