//! A child's private git directory: the paths that it replaces, as plain data.
//!
//! `git::private` creates the directory, and imports the child's commits into the project.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::{beneath, create_new};

/// The folder in a private git directory in which the project's objects are mounted. Git LFS
/// searches for its files next to a borrowed object folder, so the objects are one level deeper.
pub(crate) const BORROWED: &str = "borrowed";

/// The private git directory of a child, and the paths that it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateGit {
    /// The `.git` of the work tree, which the private directory replaces.
    pub at: PathBuf,
    /// Whether `at` is a folder. In a linked work tree it is a file.
    pub is_folder: bool,
    /// The private directory, in the run's folder.
    pub folder: PathBuf,
    /// The repository and its submodules, outermost first.
    pub repositories: Vec<Repository>,
    /// The `.git` entries of submodules, which the child must not change.
    pub links: Vec<PathBuf>,
}

/// Where a child sees the objects that it borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BorrowedObjects {
    /// A folder of the private directory.
    Mounted,
    /// The project's own folder.
    InProject,
}

/// A repository of the project whose objects the child borrows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// The path of its private directory inside [`PrivateGit::folder`]. Empty for the outermost
    /// repository.
    pub below: PathBuf,
    /// The top-level folder of its work tree.
    pub top: PathBuf,
    /// The folder with its index and its `HEAD`.
    pub git_dir: PathBuf,
    /// The folder with its references and hooks.
    pub common_dir: PathBuf,
    pub objects: PathBuf,
    /// The entries of its index when it was found, as `git ls-files --stage -z` lists them. `None`
    /// if they were not read in this process.
    #[serde(skip)]
    pub listing: Option<Vec<u8>>,
}

/// A path that a mount replaces with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    pub from: PathBuf,
    pub to: PathBuf,
    pub writable: bool,
}

impl PrivateGit {
    /// Returns the mounts that replace the work tree's `.git` in a child's view, outermost first.
    pub fn covers(&self) -> Vec<Cover> {
        let cover = |from: PathBuf, to: PathBuf| Cover { from, to, writable: false };
        if !self.is_folder {
            return vec![cover(self.link_file(), self.at.clone())];
        }
        let whole = Cover { from: self.folder.clone(), to: self.at.clone(), writable: true };
        let mut all = vec![whole];
        for one in &self.repositories {
            let at = self.at.join(&one.below).join(BORROWED);
            all.push(cover(one.objects.clone(), at.join("objects")));
            let lfs = one.lfs();
            if lfs.is_dir() {
                all.push(cover(lfs, at.join("lfs/objects")));
            }
        }
        all
    }

    /// Writes the path of the borrowed objects, as the child sees it, to each repository's
    /// `alternates` file.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn borrow_objects(&self, objects: BorrowedObjects) -> io::Result<()> {
        for one in &self.repositories {
            let mounted = objects == BorrowedObjects::Mounted;
            let objects = match mounted && self.is_folder {
                true => self.at.join(&one.below).join(BORROWED).join("objects"),
                false => one.objects.clone(),
            };
            let line = [objects.as_os_str().as_bytes(), b"\n"].concat();
            // An earlier child of the run may have put a link in place of the folder.
            let info = beneath(&self.folder, &one.below.join("objects/info"))?;
            let path = info.join("alternates");
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // The file is not synced: only the child reads it, and an import removes it first.
            create_new(&path, 0o600)?.write_all(&line)?;
        }
        Ok(())
    }

    /// Returns the file that replaces the `.git` file of a linked work tree.
    pub(crate) fn link_file(&self) -> PathBuf {
        self.folder.with_extension("link")
    }
}

impl Repository {
    /// Returns the folder in which Git LFS stores its files.
    pub(crate) fn lfs(&self) -> PathBuf {
        self.common_dir.join("lfs/objects")
    }
}
