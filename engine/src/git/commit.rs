//! Commits individual files on behalf of runner, without running filters or hooks and without
//! committing other index entries.
//!
//! ```text
//! bytes ──hash-object──> blobs ──hash-object──> trees, based on HEAD ──commit-tree──> commit
//!                                  index ──update-index, these paths──> blobs
//!                                  HEAD ──update-ref, only if unchanged──> commit
//! ```
//!
//! The commit contains no other staged or changed files. The sandbox restricts git's writes to
//! git's own folders and does not let git start any program. This module must never read the work
//! tree, sign, or move a branch that another program has moved since it was read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Git, GitError, Read, Stdin};
use crate::sandbox::inert::Inert;

/// A file to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// The file's path, relative to the project.
    pub path: String,
    pub bytes: Vec<u8>,
}

impl Git {
    /// Commits `files` on top of `HEAD` and updates their entries in the index. Returns the new
    /// commit, or `None` if `HEAD` already contains the files.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails. If there is no identity for the commit, or if another
    /// program has locked the index, nothing except unreferenced objects has been written. If
    /// `HEAD` has moved since it was read, the files are staged but not committed.
    pub fn commit_files(
        &self,
        files: &[NewFile],
        message: &str,
    ) -> Result<Option<String>, GitError> {
        let head = self.head()?;
        // The project may be a subfolder of its repository.
        let prefix = self.ask(Read::RevParse, &["--show-prefix"])?;
        let prefix = String::from_utf8_lossy(&prefix).trim_end().to_owned();
        let mut blobs = Vec::new();
        for file in files {
            let blob = self.store("blob", file.bytes.clone())?;
            blobs.push((format!("{prefix}{}", file.path), blob));
        }
        let base = match &head {
            Some(head) => Some(self.one_line(Read::RevParse, &[&format!("{head}^{{tree}}")])?),
            None => None,
        };
        let paths: Vec<(&str, &str)> =
            blobs.iter().map(|(path, blob)| (path.as_str(), blob.as_str())).collect();
        let tree = self.tree(base.as_deref(), &paths)?;
        if base.as_deref() != Some(tree.as_str()) {
            let mut args = vec!["commit-tree", "--no-gpg-sign", &tree, "-F", "-"];
            if let Some(head) = &head {
                args.extend(["-p", head]);
            }
            let commit = self.change(Writes::Objects, &args, message.as_bytes().to_vec())?;
            // The index is updated before the branch. If another program has locked the index, the
            // branch does not move.
            self.index(&blobs)?;
            // An old value of all zeros means that the branch must not exist yet.
            let zeros = "0".repeat(commit.len());
            let old = head.as_deref().unwrap_or(&zeros);
            // The reflog message is fixed, so that no text from a model is appended to git's files.
            let update = ["update-ref", "-m", "commit: runner", "HEAD", &commit, old];
            self.change(Writes::Everything, &update, vec![])?;
            return Ok(Some(commit));
        }
        self.index(&blobs)?;
        Ok(None)
    }

    fn index(&self, blobs: &[(String, String)]) -> Result<(), GitError> {
        let entries: String =
            blobs.iter().map(|(path, blob)| format!("100644 {blob}\t{path}\0")).collect();
        self.change(
            Writes::Everything,
            &["update-index", "-z", "--index-info"],
            entries.into_bytes(),
        )?;
        Ok(())
    }

    /// Stores a copy of the tree `base` in which these paths are added or replaced, and returns its
    /// object name.
    fn tree(&self, base: Option<&str>, paths: &[(&str, &str)]) -> Result<String, GitError> {
        let mut entries = match base {
            Some(base) => {
                let bytes = self.ask(Read::CatFile, &["tree", base])?;
                tree_entries(&bytes, base.len() / 2)
                    .ok_or_else(|| GitError::Damaged { object: base.to_owned() })?
            }
            None => Vec::new(),
        };
        let mut names: Vec<&str> = paths
            .iter()
            .map(|(path, _)| path.split_once('/').map_or(*path, |(folder, _)| folder))
            .collect();
        names.dedup();
        for name in names {
            let at = entries.iter().position(|it| it.name == name.as_bytes());
            let old = at.map(|at| entries.swap_remove(at));
            let below: Vec<(&str, &str)> = paths
                .iter()
                .filter_map(|(path, blob)| {
                    Some((path.strip_prefix(name)?.strip_prefix('/')?, *blob))
                })
                .collect();
            let (mode, object) = match below.is_empty() {
                false => {
                    let folder = old.as_ref().filter(|old| old.mode == FOLDER);
                    let folder = folder.map(|folder| folder.object.clone());
                    (FOLDER.to_owned(), self.tree(folder.as_deref(), &below)?)
                }
                true => {
                    let blob = paths.iter().find(|(path, _)| *path == name);
                    let blob = blob.map_or_else(String::new, |(_, blob)| (*blob).to_owned());
                    (FILE.to_owned(), blob)
                }
            };
            entries.push(TreeEntry { mode, name: name.as_bytes().to_vec(), object });
        }
        entries.sort_by_key(TreeEntry::order);
        let mut bytes = Vec::new();
        for entry in &entries {
            bytes.extend(entry.mode.bytes().chain([b' ']));
            bytes.extend(entry.name.iter().copied().chain([0]));
            bytes.extend(unhex(&entry.object));
        }
        self.store("tree", bytes)
    }

    fn store(&self, kind: &str, bytes: Vec<u8>) -> Result<String, GitError> {
        let mut args = vec!["hash-object", "-w", "-t", kind];
        if kind == "blob" {
            args.push("--no-filters");
        }
        args.push("--stdin");
        self.change(Writes::Objects, &args, bytes)
    }

    /// Returns git's output as a string, without trailing whitespace.
    pub(super) fn one_line(&self, read: Read, args: &[&str]) -> Result<String, GitError> {
        let out = self.ask(read, args)?;
        Ok(String::from_utf8_lossy(&out).trim_end().to_owned())
    }

    /// Runs a command that may write to git's own folders, and returns its output without trailing
    /// whitespace.
    ///
    /// Git follows links when it writes to these folders, and an agent may have created a link from
    /// a log to a hook. If a command may write more than objects, such links are refused before it
    /// starts.
    pub(super) fn change(
        &self,
        writes: Writes,
        args: &[&str],
        stdin: Vec<u8>,
    ) -> Result<String, GitError> {
        let objects = self.path(&["--git-path", "objects"])?;
        let write = match writes {
            Writes::Objects => vec![objects],
            Writes::Everything => {
                let folders = vec![self.path(&["--git-common-dir"])?, self.path(&["--git-dir"])?];
                for folder in &folders {
                    refuse_links(folder)?;
                }
                folders
            }
        };
        let answer = self.started(args, Stdin::Bytes(stdin), Inert { write })?;
        let out = self.successful(&args[..1], answer)?;
        Ok(String::from_utf8_lossy(&out).trim_end().to_owned())
    }
}

/// The folders that a command may write to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// The object store only.
    Objects,
    /// All of git's folders, including refs, logs and the index.
    Everything,
}

/// Returns an error if one of the files that git writes when a ref or the index changes is a link,
/// a special file, or a file with several hard links. `folder` is one of git's own folders.
fn refuse_links(folder: &Path) -> Result<(), GitError> {
    let mut left: Vec<PathBuf> =
        ["HEAD", "index", "packed-refs", "logs", "refs"].map(|name| folder.join(name)).to_vec();
    while let Some(path) = left.pop() {
        let Ok(data) = fs::symlink_metadata(&path) else {
            continue;
        };
        if data.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path()));
        } else if !data.is_file() || data.nlink() > 1 {
            return Err(GitError::Linked { path });
        }
    }
    Ok(())
}

const FOLDER: &str = "40000";
const FILE: &str = "100644";

pub(super) struct TreeEntry {
    mode: String,
    name: Vec<u8>,
    object: String,
}

impl TreeEntry {
    /// Returns the key for git's sort order, in which a folder sorts as if its name ended with a
    /// slash.
    fn order(&self) -> Vec<u8> {
        let mut name = self.name.clone();
        if self.mode == FOLDER {
            name.push(b'/');
        }
        name
    }
}

/// Parses a tree object, which is a sequence of entries: `MODE NAME`, a NUL and the `length` bytes
/// of the object name. Returns `None` if any part has a different format.
pub(super) fn tree_entries(mut tree: &[u8], length: usize) -> Option<Vec<TreeEntry>> {
    let mut all = Vec::new();
    while let Some(end) = tree.iter().position(|byte| *byte == 0) {
        let (head, rest) = (&tree[..end], &tree[end + 1..]);
        let (Some(space), Some(object)) =
            (head.iter().position(|byte| *byte == b' '), rest.get(..length))
        else {
            break;
        };
        all.push(TreeEntry {
            mode: String::from_utf8_lossy(&head[..space]).into_owned(),
            name: head[space + 1..].to_vec(),
            object: object.iter().map(|byte| format!("{byte:02x}")).collect(),
        });
        tree = &rest[length..];
    }
    tree.is_empty().then_some(all)
}

fn unhex(text: &str) -> impl Iterator<Item = u8> {
    let digits = text.as_bytes().chunks(2);
    digits.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
}
