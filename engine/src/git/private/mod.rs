//! Creates a private git directory for a child that may commit, and imports the child's commits.
//!
//! ```text
//! project's .git ──find──> PrivateGit ──prepare──> run folder/git     own refs, index, config,
//!       ^                                              │              hooks; objects borrowed
//!       │                                              │ the child works
//!       └── objects, branch, index <──import── read, check, pack
//!                 refs/runner/RUN/… <── all other changed references
//! ```
//!
//! The child never writes to the project's own git folder. A list of protected names in that folder
//! could never be complete: neither a mount nor Landlock can refuse a name that does not exist yet
//! in a folder where git must create files. With a mount view, the private directory covers the
//! project's `.git`, and the project's objects are mounted read-only inside it. If the mounts
//! cannot be created, `.git` is not writable, and the child cannot commit.
//!
//! After the child has exited, runner reads the private references itself. Git packs the new
//! objects in a repository without the child's configuration, and checks every object while it
//! stores the pack. This module must never run git with a configuration that a child wrote, and
//! never move a reference that another program has moved since the run started.

mod advance;
mod import;
mod index;
mod prepare;
pub(super) mod refs;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Git, GitError, Read};
use crate::files::beneath;
use crate::sandbox::private_git::{PrivateGit, Repository};

pub use import::{ImportRules, Imported, import};
pub use prepare::{RepositoryStart, prepare};

/// Returns the first path in `keep` that contains or equals `path`, ignoring letter case, or `None`
/// if there is none. All paths are absolute.
pub(crate) fn kept_above<'k>(keep: &'k [PathBuf], path: &Path) -> Option<&'k Path> {
    let folded = |path: &Path| PathBuf::from(path.to_string_lossy().to_lowercase());
    let own = folded(path);
    keep.iter().map(PathBuf::as_path).find(|kept| own.starts_with(folded(kept)))
}

impl Git {
    /// Finds the git directory that a private directory at `folder` replaces for a child. Returns
    /// `None` if the work tree is not in a repository, if the repository belongs to another user,
    /// or if git cannot be started. In these cases, no child can commit.
    ///
    /// # Errors
    /// Returns [`GitError::Unsupported`] if a private directory cannot replace the project's
    /// `.git`, for example because it is a link, and another [`GitError`] if git fails.
    pub fn private(&self, folder: &Path) -> Result<Option<PrivateGit>, GitError> {
        let outermost = match self.repository() {
            Err(
                GitError::NotARepository { .. } | GitError::Foreign { .. } | GitError::Spawn(_),
            ) => return Ok(None),
            found => found?,
        };
        let at = outermost.top.join(".git");
        let unsupported = |why: &'static str| GitError::Unsupported { path: at.clone(), why };
        let data = fs::symlink_metadata(&at)
            .map_err(|_| unsupported("it does not exist, so the work tree is set elsewhere"))?;
        if data.is_symlink() {
            return Err(unsupported("it is a symbolic link"));
        }
        let is_folder = data.is_dir();
        if is_folder && fs::canonicalize(&at).ok() != fs::canonicalize(&outermost.git_dir).ok() {
            return Err(unsupported("it is not the git folder that git uses"));
        }
        let mut found = PrivateGit {
            at: at.clone(),
            is_folder,
            folder: folder.to_owned(),
            repositories: Vec::new(),
            links: Vec::new(),
        };
        self.submodules(outermost, &mut found)?;
        Ok(Some(found))
    }

    fn repository(&self) -> Result<Repository, GitError> {
        let args = [
            "--path-format=absolute",
            "--show-toplevel",
            "--git-dir",
            "--git-common-dir",
            "--git-path",
            "objects",
        ];
        let unsupported = |why| GitError::Unsupported { path: self.root.clone(), why };
        let out = match self.ask(Read::RevParse, &args) {
            Err(error @ GitError::Failed { .. }) => {
                let inside = self.one_line(Read::RevParse, &["--is-inside-work-tree"])?;
                return Err(match inside.as_str() {
                    "true" => error,
                    _ => unsupported("it is a git folder without a work tree"),
                });
            }
            out => out?,
        };
        let lines = out.strip_suffix(b"\n").unwrap_or(&out).split(|byte| *byte == b'\n');
        let paths: Vec<PathBuf> = lines.map(|it| PathBuf::from(OsStr::from_bytes(it))).collect();
        let Ok([top, git_dir, common_dir, objects]) = <[PathBuf; 4]>::try_from(paths) else {
            return Err(unsupported("its path contains a line feed"));
        };
        Ok(Repository { below: PathBuf::new(), top, git_dir, common_dir, objects, listing: None })
    }

    /// Adds a repository and its checked-out submodules to `found`.
    fn submodules(&self, one: Repository, found: &mut PrivateGit) -> Result<(), GitError> {
        let top = one.top.clone();
        let here = Self { root: top.clone(), ..self.clone() };
        let listing = here.ask(Read::LsFiles, &["--stage", "-z"])?;
        found.repositories.push(Repository { listing: Some(listing.clone()), ..one });
        for entry in listing.split(|byte| *byte == 0).filter(|it| it.starts_with(b"160000 ")) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let path = Path::new(OsStr::from_bytes(&entry[tab + 1..]));
            // A path that leads through a link in the work tree refers to another repository.
            let Ok(link) = beneath(&top, &path.join(".git")) else { continue };
            let Ok(data) = fs::symlink_metadata(&link) else { continue };
            found.links.push(link);
            let inner = Self { root: top.join(path), ..self.clone() };
            let Ok(inside) = inner.repository() else { continue };
            let outer = &found.repositories[0].git_dir;
            if let (true, true, Ok(below)) =
                (found.is_folder, data.is_file(), inside.git_dir.strip_prefix(outer))
            {
                let below = below.to_owned();
                inner.submodules(Repository { below, ..inside }, found)?;
            }
        }
        Ok(())
    }
}
