//! Resolves the requested paths to existing files and folders.
//!
//! Every path is opened without following a symbolic link. This module must never create anything.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::private_git::Cover;
use super::{Sandbox, SandboxError};

/// An existing file or folder with its device and inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResolvedPath {
    pub path: PathBuf,
    pub folder: bool,
    pub device: u64,
    pub inode: u64,
}

/// The existing paths of a [`Sandbox`], resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedSandbox {
    /// Paths that may be written.
    pub write: Vec<ResolvedPath>,
    /// Paths beneath `write` that must never be written or created.
    pub keep: Vec<ResolvedPath>,
    /// The shortest missing prefix of each kept path that does not exist. The child must not create
    /// it.
    pub missing: Vec<PathBuf>,
    /// Paths that must be hidden from the child.
    pub hide: Vec<ResolvedPath>,
    /// Paths beneath `hide` that the child may read.
    pub show: Vec<ResolvedPath>,
}

/// Resolves every path of the sandbox.
///
/// # Errors
/// Returns [`SandboxError::Path`] for a path that is not absolute, has a `.` or `..` component,
/// contains a symbolic link, or cannot be opened.
pub fn resolve(sandbox: &Sandbox) -> Result<ResolvedSandbox, SandboxError> {
    let mut real = ResolvedSandbox::default();
    let temp = sandbox.temp.iter();
    let git = sandbox.git.iter().map(|git| &git.folder);
    for path in sandbox.write.iter().chain(temp).chain(git) {
        real.write.extend(resolve_path(path)?);
    }
    for path in &sandbox.hide {
        real.hide.extend(resolve_path(path)?);
    }
    for path in &sandbox.show {
        real.show.extend(resolve_path(path)?);
    }
    let mut missing = BTreeSet::new();
    for path in &sandbox.keep {
        match resolve_path(path)? {
            Some(place) => real.keep.push(place),
            None => {
                missing.insert(first_missing(path));
            }
        }
    }
    // A path outside every writable folder needs no protection, nor does a hidden one.
    real.keep.retain(|place| {
        let hidden = within_any(&place.path, &real.hide) && !within_any(&place.path, &real.show);
        within_any(&place.path, &real.write) && !hidden
    });
    real.missing = missing.into_iter().filter(|path| within_any(path, &real.write)).collect();
    for places in [&mut real.write, &mut real.keep, &mut real.hide, &mut real.show] {
        places.sort();
        places.dedup();
    }
    // A protected path takes precedence over writable paths at or beneath it.
    let kept = real.keep.clone();
    real.write.retain(|place| !within_any(&place.path, &kept));
    Ok(real)
}

impl ResolvedSandbox {
    /// Replaces the rules for a path with those for the path that a mount puts in its place.
    ///
    /// # Errors
    /// Returns an error if the mounted path does not exist or goes through a symbolic link.
    pub fn cover(&mut self, cover: &Cover) -> Result<(), SandboxError> {
        let missing =
            || SandboxError::Path { path: cover.from.clone(), why: "it does not exist".to_owned() };
        let from = resolve_path(&cover.from)?.ok_or_else(missing)?;
        let place = ResolvedPath { path: cover.to.clone(), ..from };
        for places in [&mut self.write, &mut self.keep] {
            places.retain(|other| other.path != cover.to);
        }
        match cover.writable {
            true => self.write.push(place),
            false => self.keep.push(place),
        }
        Ok(())
    }
}

/// Returns whether `path` is in `places` or is beneath a path in `places`.
pub fn within_any(path: &Path, places: &[ResolvedPath]) -> bool {
    places.iter().any(|place| path.starts_with(&place.path))
}

/// Resolves the file or folder at `path`. Returns `None` if nothing exists there.
pub fn resolve_path(path: &Path) -> Result<Option<ResolvedPath>, SandboxError> {
    let refuse = |why: String| SandboxError::Path { path: path.to_owned(), why };
    let plain =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain {
        return Err(refuse("it is not a plain absolute path".to_owned()));
    }
    let handle = openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    );
    let handle = match handle {
        Ok(handle) => handle,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => {
            let real = fs::canonicalize(path);
            let real = real.map_or_else(|_| String::new(), |real| format!(": {}", real.display()));
            return Err(refuse(format!(
                "its path contains a symbolic link; use the real path{real}"
            )));
        }
        Err(error) => return Err(refuse(error.to_string())),
    };
    let stat = fstat(&handle).map_err(|error| refuse(error.to_string()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        return Err(refuse("it is a symbolic link; use the real path".to_owned()));
    }
    Ok(Some(ResolvedPath {
        path: path.to_owned(),
        folder: kind == FileType::Directory,
        device: stat.st_dev,
        inode: stat.st_ino,
    }))
}

/// Returns the shortest prefix of `path` that does not exist.
fn first_missing(path: &Path) -> PathBuf {
    let mut shortest = path;
    for above in path.ancestors().skip(1) {
        match fs::symlink_metadata(above) {
            Ok(_) => break,
            Err(_) => shortest = above,
        }
    }
    shortest.to_owned()
}

/// Returns whether the path still has the device and inode recorded in `place`.
pub fn unchanged(place: &ResolvedPath) -> bool {
    fs::symlink_metadata(&place.path)
        .is_ok_and(|data| (data.dev(), data.ino()) == (place.device, place.inode))
}

/// Returns the folders above each protected path, up to and including the writable folder that
/// contains it. A process that could rename one of them could put another folder in its place.
pub fn on_the_way(real: &ResolvedSandbox) -> BTreeSet<PathBuf> {
    let protected = real.keep.iter().map(|place| place.path.as_path());
    let protected = protected.chain(real.missing.iter().map(PathBuf::as_path));
    let mut all = BTreeSet::new();
    for path in protected {
        for above in path.ancestors().skip(1) {
            if within_any(above, &real.write) {
                all.insert(above.to_owned());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("work/.git")).unwrap();
        fs::write(root.join("work/.git/config"), "x").unwrap();
        symlink("/etc", root.join("work/link")).unwrap();
        let sandbox = |write: &str, keep: &[&str]| Sandbox {
            write: vec![root.join(write)],
            keep: keep.iter().map(|path| root.join(path)).collect(),
            ..Sandbox::default()
        };
        let real =
            resolve(&sandbox("work", &["work/.git/config", "work/.claude/settings.json", "other"]))
                .unwrap();
        assert_eq!(real.write.len(), 1);
        assert_eq!(real.keep[0].path, root.join("work/.git/config"));
        assert_eq!(real.missing, [root.join("work/.claude")]);
        assert_eq!(on_the_way(&real), [root.join("work"), root.join("work/.git")].into());
        for bad in ["work/link", "work/link/passwd", "work/../work"] {
            assert!(resolve(&sandbox(bad, &[])).is_err(), "{bad}");
        }
        assert!(resolve(&sandbox("work", &["work/link"])).is_err());
        assert_eq!(resolve(&sandbox("nothing", &[])).unwrap(), ResolvedSandbox::default());
        // Naming a writable path inside a kept folder does not make that path writable.
        let mut inside = sandbox("work/.git", &["work/.git"]);
        inside.write.push(root.join("work/.git/config"));
        assert_eq!(resolve(&inside).unwrap().write, []);
    }
}
