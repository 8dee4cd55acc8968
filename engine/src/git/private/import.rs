//! Imports a child's commits into the project's repository.
//!
//! ```text
//! private references ──changed?──> packed without the child's settings ──index-pack --strict──> objects
//!        │ the starting branch, if only allowed paths changed and no commits are lost ──> branch, index
//!        └ all others, and a branch that cannot be advanced ──> refs/runner/RUN/…
//! ```
//!
//! Every step can be repeated, so a second call to [`import()`] completes an interrupted import.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::index::{ChildIndex, whole_index};
use super::kept_above;
use super::prepare::RepositoryStart;
use super::refs::{self, Head, PrivateRefs, WORKTREES};
use crate::digest::Digest;
use crate::failpoint;
use crate::files::{copy_host, open_no_link, sync_folder};
use crate::git::commit::Writes;
use crate::git::push::empty_repository;
use crate::git::{Git, GitError, Read};
use crate::process::Stdin;
use crate::sandbox::private_git::{PrivateGit, Repository};

/// Maximum number of commits listed for one repository.
const LISTED: usize = 200;
/// The byte range of the object count in a pack's header.
const COUNT: std::ops::Range<usize> = 8..12;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// New commits on the branches that were advanced, newest first, each as a short hash and a
    /// subject. At most 200 are listed for each repository.
    pub commits: Vec<String>,
    /// Notes for the user about other results.
    pub notes: Vec<String>,
    /// Commits that could not be added to their branch, and index paths that were not changed.
    pub held: Vec<String>,
    /// The commits and index changes that the run was not allowed to make, each with the reason.
    pub refused: Vec<String>,
}

/// The rules for an import.
pub struct ImportRules<'a> {
    pub run: &'a str,
    /// The folder for a temporary repository, in which git reads the child's objects.
    pub scratch: &'a Path,
    /// Whether branches may be advanced. Otherwise everything is kept under `refs/runner/`.
    pub advance: bool,
    /// The absolute paths that the child must not change in an index or in its commits. For commits
    /// on the branch that was checked out at the start, `refuse` is called instead.
    pub keep: &'a [PathBuf],
    /// Returns the reason why a commit on the branch that was checked out at the start must not
    /// change this path, or `None` if it may.
    pub refuse: &'a dyn Fn(&Path) -> Option<String>,
}

/// Imports the child's commits into the repository and all its submodules, innermost first.
///
/// # Errors
/// Returns a [`GitError`] if git fails, if a private directory cannot be read, or if its objects
/// are damaged or cannot be stored. Nothing is lost, because the private directories are kept.
pub fn import(
    git: &Git,
    private: &PrivateGit,
    starts: &[RepositoryStart],
    rules: &ImportRules<'_>,
) -> Result<Imported, GitError> {
    let mut done = Imported::default();
    for (one, start) in private.repositories.iter().zip(starts).rev() {
        let own = private.folder.join(&one.below);
        let from = Source { one, start, folder: &own };
        let git = Git { root: one.top.clone(), ..git.clone() };
        from.import(&git, rules, &mut done)?;
    }
    Ok(done)
}

/// A private repository, and the repository that it was created from.
struct Source<'a> {
    one: &'a Repository,
    start: &'a RepositoryStart,
    folder: &'a Path,
}

/// A reference that the child changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Changed {
    /// The name under which the value is kept in `refs/runner/RUN/`.
    name: String,
    object: String,
}

/// A path that differs between two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathChange {
    pub path: PathBuf,
    /// The mode and object name before the change. `None` if the path did not exist.
    pub old: Option<(u32, String)>,
    /// The mode and object name after the change. `None` if the path no longer exists.
    pub new: Option<(u32, String)>,
}

impl Source<'_> {
    fn import(
        &self,
        git: &Git,
        rules: &ImportRules<'_>,
        done: &mut Imported,
    ) -> Result<(), GitError> {
        let failed = |source| GitError::Folder { path: self.folder.to_owned(), source };
        // The file `alternates` in this folder refers git to other object folders.
        let info = self.folder.join("objects/info");
        fs::remove_dir_all(&info).or_else(ignore_missing).map_err(failed)?;
        refs::remove_links(self.folder).map_err(failed)?;
        let found = refs::read(self.folder).map_err(failed)?;
        let (target, others) = self.changed(&found);
        let length = match self.start.refs.values().next() {
            Some(object) => object.len(),
            None => match git.one_line(Read::RevParse, &["--show-object-format"])?.as_str() {
                "sha256" => 64,
                _ => 40,
            },
        };
        let reader = self.reader(git, rules.scratch, length).map_err(failed)?;
        let refused = self.refused_index(git, &reader, &found, rules)?;
        done.refused.extend(refused);
        if target.is_none() && others.is_empty() {
            return Ok(());
        }
        let kept = git.all_refs()?;
        let mut news: BTreeSet<&str> = others.iter().map(|it| it.object.as_str()).collect();
        news.extend(target.as_ref().map(|it| it.object.as_str()));
        self.bring_objects(&reader, (&news, &kept))?;
        self.bring_lfs(done).map_err(failed)?;
        for other in &others {
            let refused = self.refused_other(git, other, rules)?;
            done.refused.extend(refused);
            self.keep(git, rules, other, done)?;
        }
        if let Some(target) = target {
            self.advance(git, rules, &target, done)?;
        }
        Ok(())
    }

    /// Returns the new value of the branch that was checked out at the start, if the child changed
    /// it, and the other changed references.
    fn changed(&self, found: &refs::PrivateRefs) -> (Option<Changed>, Vec<Changed>) {
        let mut target = None;
        let mut others = Vec::new();
        for (name, object) in &found.refs {
            if self.start.refs.get(name) == Some(object) || name == "refs/stash" {
                continue;
            }
            let kept = name.strip_prefix("refs/").unwrap_or(name).to_owned();
            let one = Changed { name: kept, object: object.clone() };
            match self.start.head == Head::Branch(name.clone()) {
                true => target = Some(one),
                false => others.push(one),
            }
        }
        if let Some(Head::Detached(object)) = &found.head {
            let one = Changed { name: "HEAD".to_owned(), object: object.clone() };
            match &self.start.head {
                Head::Detached(start) if start == object => {}
                Head::Detached(_) => target = Some(one),
                Head::Branch(_) if found.refs.values().any(|it| it == object) => {}
                Head::Branch(_) => others.push(one),
            }
        }
        let mut stashes = found.stashes.clone();
        let newest = found.refs.get("refs/stash");
        stashes.extend(newest.filter(|it| !found.stashes.contains(it)).cloned());
        for (name, head) in &found.worktrees {
            let Head::Detached(object) = head else { continue };
            let mut known = found.refs.values().chain(self.start.refs.values());
            if !known.any(|it| it == object) && self.start.head != *head {
                let name = format!("{WORKTREES}/{name}");
                others.push(Changed { name, object: object.clone() });
            }
        }
        others.extend(
            stashes
                .into_iter()
                .enumerate()
                .map(|(at, object)| Changed { name: format!("stash/{}", at + 1), object }),
        );
        (target, others)
    }

    /// Creates a repository that has no references and gives git access to the objects of the child
    /// and of the project, but not to their settings. Returns an instance that uses this
    /// repository.
    fn reader(&self, git: &Git, scratch: &Path, length: usize) -> io::Result<Git> {
        empty_repository(scratch, length, &[&self.folder.join("objects"), &self.one.objects])?;
        // A split index refers to a second file in the git directory.
        for entry in fs::read_dir(self.folder)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                copy_host(&entry.path(), &scratch.join(entry.file_name()))?;
            }
        }
        // In a shallow clone, this file lists the commits whose parents are missing.
        if let Ok(mut file) = open_no_link(self.one.common_dir.join("shallow")) {
            io::copy(&mut file, &mut fs::File::create(scratch.join("shallow"))?)?;
        }
        let mut reader = Git { root: scratch.to_owned(), ..git.clone() };
        reader.env.insert("GIT_DIR".to_owned(), scratch.display().to_string());
        Ok(reader)
    }

    /// Packs the new objects, and stores them in the project after git has checked each of them.
    fn bring_objects(
        &self,
        reader: &Git,
        (news, kept): (&BTreeSet<&str>, &BTreeMap<String, String>),
    ) -> Result<(), GitError> {
        let mut wanted: String = news.iter().map(|object| format!("{object}\n")).collect();
        let known: BTreeSet<&String> = kept.values().collect();
        wanted.extend(known.into_iter().map(|object| format!("^{object}\n")));
        let args =
            ["--revs", "--thin", "--stdout", "--quiet", "--threads=1", "--delta-base-offset"];
        let pack = reader.ask_with(Read::PackObjects, &args, Stdin::Bytes(wanted.into_bytes()))?;
        let count = pack.get(COUNT).is_some_and(|count| count != [0; 4]);
        if count {
            // Git stores a pack before the check is complete, so the pack is first stored in
            // another repository.
            let args = ["index-pack", "--stdin", "--fix-thin", "--strict", "--threads=1"];
            let name = reader.change(Writes::Objects, &args, pack)?;
            let name = name.rsplit('\t').next().unwrap_or_default();
            let checked = reader.root.join("objects/pack");
            let to = self.one.objects.join("pack");
            place_pack(&checked, &to, name)
                .map_err(|source| GitError::Folder { path: to, source })?;
        }
        Ok(())
    }

    /// Copies the files that Git LFS stored for the child. The name of each file is its SHA-256
    /// digest. A file whose contents do not match its name is skipped.
    fn bring_lfs(&self, done: &mut Imported) -> io::Result<()> {
        let mut left: Vec<PathBuf> = vec![self.folder.join("lfs/objects")];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type()?.is_dir() {
                    left.push(entry.path());
                } else if let Some(digest) = Digest::parse(&name) {
                    let to = self.one.lfs().join(&name[..2]).join(&name[2..4]);
                    let mut file = open_no_link(entry.path())?;
                    if to.join(&name).exists() {
                        continue;
                    }
                    fs::create_dir_all(&to)?;
                    let half = to.join(format!(".{name}.runner"));
                    let mut copy = fs::File::create(&half)?;
                    io::copy(&mut file, &mut copy)?;
                    copy.sync_all()?;
                    if Digest::of_reader(&mut open_no_link(&half)?)?.0 == digest {
                        fs::rename(&half, to.join(&name))?;
                        sync_folder(&to)?;
                    } else {
                        fs::remove_file(&half)?;
                        done.notes.push(format!("the LFS file {name} is damaged and was skipped"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps the new value of a reference under `refs/runner/`, and adds a note for the user.
    fn keep(
        &self,
        git: &Git,
        rules: &ImportRules<'_>,
        one: &Changed,
        done: &mut Imported,
    ) -> Result<(), GitError> {
        let name = git.keep(rules.run, &one.name, &one.object)?;
        done.notes.push(match one.name.strip_prefix("stash/") {
            Some(_) => format!("it stashed changes, which are kept as {name}"),
            None => format!("it changed {}, which is kept as {name}", one.name),
        });
        Ok(())
    }

    /// Advances the branch that was checked out at the start, or keeps its new value under
    /// `refs/runner/`.
    fn advance(
        &self,
        git: &Git,
        rules: &ImportRules<'_>,
        target: &Changed,
        done: &mut Imported,
    ) -> Result<(), GitError> {
        let new = &target.object;
        let old = match &self.start.head {
            Head::Branch(name) => self.start.refs.get(name).cloned(),
            Head::Detached(object) => Some(object.clone()),
        };
        let commits = self.new_commits(git, new, old.as_deref())?;
        let refused = self.refused(git, (old.as_deref(), new), &commits, rules)?;
        let why = match refused {
            Some(why) => {
                done.refused.push(why);
                None
            }
            None if !(rules.advance && done.refused.is_empty()) => None,
            None => {
                match git.advance(self.one, &self.start.head, (old.as_deref(), new), rules.run)? {
                    Ok(advanced) => {
                        let range = old.map_or_else(|| new.clone(), |old| format!("{old}..{new}"));
                        let listed = format!("--max-count={LISTED}");
                        done.commits.extend(git.log("%h %s", &[&listed, &range, "--"])?);
                        done.held.extend(advanced);
                        return Ok(());
                    }
                    Err(why) => Some(why),
                }
            }
        };
        let name = git.keep(rules.run, &target.name, new)?;
        done.held.push(match why {
            Some(why) => {
                format!("its commits are kept as {name} because {why}; fix: git merge {name}")
            }
            None => format!("its commits are kept as {name}"),
        });
        Ok(())
    }

    /// Describes the first index entry in the private directory that changes a path at or beneath
    /// those in `rules.keep`. Returns `None` if there is no such entry.
    fn refused_index(
        &self,
        git: &Git,
        reader: &Git,
        found: &PrivateRefs,
        rules: &ImportRules<'_>,
    ) -> Result<Option<String>, GitError> {
        let main = found.head.iter().map(|head| (self.folder.to_owned(), head));
        let linked = found.worktrees.iter();
        let linked = linked.map(|(name, head)| (self.folder.join(WORKTREES).join(name), head));
        for (folder, head) in main.chain(linked) {
            let file = folder.join("index");
            let start = &self.start.index_digest;
            // An index that equals the child's initial index contains no change.
            if !file.is_file() || start.is_some() && whole_index(&folder) == *start {
                continue;
            }
            let head = match head {
                Head::Branch(name) => found.refs.get(name).map(String::as_str),
                Head::Detached(object) => Some(object.as_str()),
            };
            let index = ChildIndex { file: &file, head };
            let changed = index.changed((reader, git), &self.start.index, rules.keep)?;
            if changed.is_some() {
                return Ok(changed);
            }
        }
        Ok(None)
    }

    /// Describes a change at or beneath a path in `rules.keep` by the new commits of a reference
    /// other than the branch that was checked out at the start. Returns `None` if there is none.
    fn refused_other(
        &self,
        git: &Git,
        other: &Changed,
        rules: &ImportRules<'_>,
    ) -> Result<Option<String>, GitError> {
        let commits = self.new_commits(git, &other.object, None)?;
        let out = git.diffs(commits, &["-c", "--raw", "-z", "--full-index"])?;
        for (commit, change) in changes(&out) {
            let Some(kept) = kept_above(rules.keep, &self.one.top.join(&change.path)) else {
                continue;
            };
            if self.is_current(git, &change) {
                continue;
            }
            let commit: String = commit.chars().take(12).collect();
            let kept = kept.strip_prefix(git.root()).unwrap_or(kept);
            return Ok(Some(format!(
                "{}: commit {commit} changes {}: {} is a path that this job must never write",
                other.name,
                change.path.display(),
                kept.display()
            )));
        }
        Ok(None)
    }

    /// Returns whether a change only records the current contents of a file in the work tree. The
    /// child cannot write to a file that its commits must not change, so these contents are not the
    /// child's.
    fn is_current(&self, git: &Git, change: &PathChange) -> bool {
        change.new.as_ref().is_some_and(|(mode, object)| {
            matches!(mode, 0o100_644 | 0o100_755)
                && git.blob_of(&change.path, object.len()).is_some_and(|it| it == *object)
        })
    }

    /// Returns the hashes of the commits that are reachable from `new` but not from `old` or from
    /// any reference that the child got, one per line, newest first.
    fn new_commits(&self, git: &Git, new: &str, old: Option<&str>) -> Result<Vec<u8>, GitError> {
        // The current references are not used, because an interrupted import or the user may have
        // moved them.
        let mut known: BTreeSet<&str> = self.start.refs.values().map(String::as_str).collect();
        known.extend(old);
        let mut input = format!("{new}\n");
        input.extend(known.into_iter().map(|object| format!("^{object}\n")));
        // Missing objects are ignored, because the user may have removed a branch together with its
        // objects. Git has already checked `new`.
        let args = ["--ignore-missing", "--stdin"];
        git.ask_with(Read::RevList, &args, Stdin::Bytes(input.into_bytes()))
    }

    /// Returns the reason why the run must not make these commits, or `None` if it may. The reason
    /// names a commit and a path.
    fn refused(
        &self,
        git: &Git,
        (old, new): (Option<&str>, &str),
        commits: &[u8],
        rules: &ImportRules<'_>,
    ) -> Result<Option<String>, GitError> {
        let refuse = |change: &PathChange| {
            let shown = change.path.display();
            if change.path.iter().any(|part| part.eq_ignore_ascii_case(".git")) {
                return Some(format!("{shown}: git would use it as a repository"));
            }
            let path = self.one.top.join(&change.path);
            let why = (rules.refuse)(&path)?;
            (!self.is_current(git, change)).then(|| format!("{shown}: {why}"))
        };
        let out = git.diffs(commits.to_vec(), &["-c", "--raw", "-z", "--full-index"])?;
        for (commit, change) in changes(&out) {
            if let Some(why) = refuse(&change) {
                let commit: String = commit.chars().take(12).collect();
                return Ok(Some(format!("commit {commit} changes {why}")));
            }
        }
        for change in git.tree_changes(old, new)? {
            if let Some(why) = refuse(&change) {
                let commit: String = new.chars().take(12).collect();
                return Ok(Some(format!("commit {commit} contains a change to {why}")));
            }
        }
        Ok(None)
    }
}

impl Git {
    /// Keeps an object under `refs/runner/RUN/` and returns the name of its reference.
    fn keep(&self, run: &str, name: &str, object: &str) -> Result<String, GitError> {
        let name = format!("refs/runner/{run}/{name}");
        if self.value(&name)?.as_deref() != Some(object) {
            failpoint::reach();
            let zeros = "0".repeat(object.len());
            let update = ["update-ref", "-m", "kept: runner", &name, object, &zeros];
            self.change(Writes::Everything, &update, Vec::new())?;
        }
        Ok(name)
    }

    /// Returns the name of the object that a reference points to, or `None` if the reference does
    /// not exist.
    pub(super) fn value(&self, name: &str) -> Result<Option<String>, GitError> {
        let args = ["--verify", "--quiet", name];
        let out = self.ask_if_any(Read::RevParse, &args, Stdin::Null)?;
        Ok(out.map(|out| String::from_utf8_lossy(&out).trim_end().to_owned()))
    }

    /// Returns the paths that differ between two commits, or all paths in `new` if `old` is `None`.
    pub(super) fn tree_changes(
        &self,
        old: Option<&str>,
        new: &str,
    ) -> Result<Vec<PathChange>, GitError> {
        let empty = crate::git::changes::empty_tree(new.len());
        let args = ["-r", "-z", "--raw", "--no-renames", "--full-index", old.unwrap_or(empty), new];
        let out = self.ask(Read::DiffTree, &args)?;
        Ok(changes(&out).into_iter().map(|(_, change)| change).collect())
    }
}

/// Parses the output of `diff-tree --raw -z`. A commit's name is followed by `:MODE MODE OBJECT
/// OBJECT STATUS` and the path for each of its changes. A merge has an additional colon, mode and
/// object for each further parent.
fn changes(out: &[u8]) -> Vec<(String, PathChange)> {
    let mut fields = out.split(|byte| *byte == 0);
    let mut commit = String::new();
    let mut all = Vec::new();
    while let Some(field) = fields.next() {
        let facts = String::from_utf8_lossy(field);
        let colons = facts.len() - facts.trim_start_matches(':').len();
        if colons == 0 {
            commit = facts.into_owned();
            continue;
        }
        let Some(path) = fields.next() else { break };
        let facts: Vec<&str> = facts[colons..].split(' ').collect();
        let side = |at: usize| {
            let mode = u32::from_str_radix(facts.get(at)?, 8).ok().filter(|mode| *mode != 0)?;
            Some((mode, (*facts.get(at + colons + 1)?).to_owned()))
        };
        // A path is not necessarily valid UTF-8.
        let path = PathBuf::from(OsStr::from_bytes(path));
        all.push((commit.clone(), PathChange { path, old: side(0), new: side(colons) }));
    }
    all
}

/// Copies a checked pack into a repository. Git uses a pack once its index exists, so the index is
/// copied last.
fn place_pack(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    for kind in ["pack", "rev", "idx"] {
        let name = format!("pack-{name}.{kind}");
        if !from.join(&name).exists() || to.join(&name).exists() {
            continue;
        }
        failpoint::reach();
        // Git removes leftover files whose names begin with `tmp_`.
        let half = to.join(format!("tmp_runner_{name}"));
        copy_host(&from.join(&name), &half)?;
        open_no_link(&half)?.sync_all()?;
        fs::rename(&half, to.join(&name))?;
    }
    sync_folder(to)
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_differences_are_parsed() {
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let text = format!(
            "{a}\0:100644 100755 {a} {b} M\0x/y\0:000000 100644 {a} {b} A\0:odd\0\
             {b}\0::100644 000000 100644 {a} {b} {c} MM\0z\0"
        );
        let found = changes(text.as_bytes());
        let commits: Vec<&str> = found.iter().map(|(commit, _)| commit.as_str()).collect();
        assert_eq!(commits, [&a, &a, &b]);
        let paths = found.iter().map(|(_, change)| change.path.to_str().unwrap());
        let paths: Vec<&str> = paths.collect();
        assert_eq!(paths, ["x/y", ":odd", "z"]);
        assert_eq!(found[0].1.new, Some((0o100_755, b.clone())));
        assert_eq!(found[1].1.old, None);
        assert_eq!(found[2].1.new, Some((0o100_644, c)));
    }
}
