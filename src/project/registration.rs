//! Compares a folder with the database's record of it.
//!
//! ```text
//! the id is not recorded
//!   the path is not recorded                new
//!   the path is recorded with another id    recloned (new, if the folder has its own id)
//! the id is recorded at the same path
//!   for this folder                         known
//!   for another folder                      replaced (recloned, if only that clone had its own id)
//! the id is recorded at another path
//!   this folder is at that path too         known (an alias)
//!   for this folder                         moved
//!   no project or another id is there       moved
//!   a project with the same id is there     copied, cloned, moved or recloned
//!   that path cannot be examined            unsure
//! only the record is examined               known, replaced, recloned, vanished, emptied,
//!                                           unreadable or overtaken
//! ```
//!
//! A folder whose device, inode and creation time match the record is the project, regardless of
//! the folder's contents: a child can write to the folder, but not to the database.
//!
//! [`judge`] is pure; [`inspect_path`] only reads. This module changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::ids::ProjectId;
use runner_engine::store::Node;
use runner_text::shell_word;

/// A folder that carries an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProject {
    /// The folder's canonical path.
    pub path: PathBuf,
    /// The folder's identity in the file system.
    pub node: Node,
    /// Whether the id is stored in the clone's own git folder, and not only in its `runner.toml`.
    pub own: bool,
    /// The project recorded in the database at this path, if it is a different one.
    pub other_here: Option<ProjectId>,
}

/// The database's record of an id, and the current state of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownProject {
    /// The path at which the project was registered.
    pub path: PathBuf,
    /// The identity of the folder that was registered.
    pub node: Node,
    /// The id, if it is known to be the clone's own and not only a seed. A clone's own id prevents
    /// another clone from being mistaken for it.
    pub own: Option<ProjectId>,
    pub seen: PathOccupant,
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOccupant {
    Nothing,
    /// A folder without a `runner.toml`.
    NoProject,
    /// The path cannot be examined, with the reason.
    Unreadable(String),
    /// A project's folder.
    Project {
        node: Node,
        /// Whether the folder carries the id in question.
        same_id: bool,
        /// Whether that id is the clone's own.
        own: bool,
    },
}

/// The relation of a folder to its record in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The project was never registered.
    New,
    /// The project is as it was registered.
    Known,
    /// The same folder under another name, such as another spelling or a second mount.
    Alias {
        /// The path at which the folder is registered.
        of: PathBuf,
    },
    /// A different folder with the same id at the same path, after a restore or a new clone.
    Replaced,
    /// A clone without its own id, at a path where the database records a different project or
    /// clone.
    Recloned {
        /// The project recorded in the database.
        was: ProjectId,
    },
    /// The project was moved: the old path no longer contains it, or this is the same folder that
    /// was there.
    Moved {
        /// The old path.
        from: PathBuf,
    },
    /// A copy: its own id is also the id of a folder that still exists.
    Copied {
        /// The path of the other folder.
        of: PathBuf,
    },
    /// Another clone or worktree of a repository that is registered at another path.
    Cloned {
        /// The path at which the repository is registered.
        of: PathBuf,
    },
    /// It is unknown whether the project is still at the old path.
    Unsure {
        /// The old path.
        of: PathBuf,
        why: String,
    },
    /// The folder is gone.
    Vanished,
    /// The folder exists but has no `runner.toml`.
    Emptied,
    /// The folder cannot be examined.
    Unreadable { why: String },
    /// Another project is at the project's path.
    Overtaken,
}

/// Returns the relation of the folder `found` to its record in the database. Without `found`, only
/// the record is examined.
pub fn judge(known: Option<&KnownProject>, found: Option<&FoundProject>) -> Registration {
    let (known, found) = match (known, found) {
        (None, None) => return Registration::New,
        (None, Some(found)) => {
            return match &found.other_here {
                Some(was) if !found.own => Registration::Recloned { was: was.clone() },
                _ => Registration::New,
            };
        }
        (Some(known), None) => return judge_row(known),
        (Some(known), Some(found)) => (known, found),
    };
    if found.path == known.path {
        return match (found.node.is(&known.node), &known.own) {
            (true, _) => Registration::Known,
            (false, Some(was)) if !found.own => Registration::Recloned { was: was.clone() },
            (false, _) => Registration::Replaced,
        };
    }
    let of = || known.path.clone();
    match &known.seen {
        PathOccupant::Project { node, .. } if node.is(&found.node) => {
            Registration::Alias { of: of() }
        }
        // The folder at the old path was created there later.
        _ if found.node.is(&known.node) => Registration::Moved { from: of() },
        // A clone took the old path, and the clone with the project's own id is here.
        PathOccupant::Project { same_id: true, own: false, .. }
            if known.own.is_some() && found.own =>
        {
            Registration::Moved { from: of() }
        }
        PathOccupant::Project { same_id: true, .. } => match &found.other_here {
            Some(was) if !found.own => Registration::Recloned { was: was.clone() },
            _ if found.own => Registration::Copied { of: of() },
            _ => Registration::Cloned { of: of() },
        },
        PathOccupant::Unreadable(why) => Registration::Unsure { of: of(), why: why.clone() },
        PathOccupant::Nothing | PathOccupant::NoProject | PathOccupant::Project { .. } => {
            Registration::Moved { from: of() }
        }
    }
}

fn judge_row(known: &KnownProject) -> Registration {
    match &known.seen {
        PathOccupant::Nothing => Registration::Vanished,
        PathOccupant::NoProject => Registration::Emptied,
        PathOccupant::Unreadable(why) => Registration::Unreadable { why: why.clone() },
        PathOccupant::Project { same_id: false, .. } => Registration::Overtaken,
        PathOccupant::Project { node, .. } if node.is(&known.node) => Registration::Known,
        PathOccupant::Project { own, .. } => match &known.own {
            Some(was) if !own => Registration::Recloned { was: was.clone() },
            _ => Registration::Replaced,
        },
    }
}

impl Registration {
    /// Returns the state's name, for scripts.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Known | Self::Alias { .. } => "known",
            Self::Replaced => "replaced",
            Self::Recloned { .. } => "recloned",
            Self::Moved { .. } => "moved",
            Self::Copied { .. } => "copied",
            Self::Cloned { .. } => "cloned",
            Self::Unsure { .. } => "unsure",
            Self::Vanished => "vanished",
            Self::Emptied => "emptied",
            Self::Unreadable { .. } => "unreadable",
            Self::Overtaken => "overtaken",
        }
    }

    /// Returns a description of the problem with the project at `path`, and the command that fixes
    /// it. Returns `None` if nothing prevents the project from running.
    pub fn trouble(&self, path: &Path, id: &ProjectId) -> Option<(String, String)> {
        let here = path.display();
        let word = shell_word(&here);
        let moved =
            |old: &Path| format!("runner projects move {} {word}", shell_word(old.display()));
        let new_id = format!("runner init --new-id {word}");
        Some(match self {
            Self::New | Self::Known | Self::Alias { .. } | Self::Replaced => return None,
            Self::Recloned { was } => (
                format!(
                    "{here} is not the clone that was registered here: it does not have its own id yet"
                ),
                format!(
                    "runner init {word}   (continues project {was}; if that project has moved: runner projects move {was} NEW-PATH)"
                ),
            ),
            Self::Moved { from } => (
                format!("{here} is the project that was at {}", from.display()),
                format!("{}   (or, to make it a separate project: {new_id})", moved(from)),
            ),
            Self::Copied { of } => (
                format!("{here} has the same id as {}: one of them is a copy", of.display()),
                format!("{new_id}   (makes the copy a separate project)"),
            ),
            Self::Cloned { of } => (
                format!(
                    "{here} is another clone or worktree of the repository at {}, and is not a project yet",
                    of.display()
                ),
                format!("runner init {word}"),
            ),
            Self::Unsure { of, why } => (
                format!("{here} has the same id as {}, which cannot be read: {why}", of.display()),
                format!("{}   (if the project moved; otherwise: {new_id})", moved(of)),
            ),
            Self::Vanished => (
                "the project is gone: its folder does not exist".to_owned(),
                format!("runner projects move {word} NEW-PATH   (or: runner projects forget {id})"),
            ),
            Self::Emptied => (
                "the project is gone: its folder no longer contains runner.toml".to_owned(),
                format!(
                    "git -C {word} checkout runner.toml   (or: runner init {word}, or: runner projects forget {id})"
                ),
            ),
            Self::Unreadable { why } => (
                format!("the project's folder cannot be read: {why}"),
                format!("ls -ld {word}   (its owner must give you access)"),
            ),
            Self::Overtaken => (
                "another project is now at this project's path".to_owned(),
                format!(
                    "runner projects forget {id}   (or, if the project moved: runner projects move {id} NEW-PATH)"
                ),
            ),
        })
    }
}

/// Determines the state of `path` with regard to `id`; `id_of` reads a folder's id and reports
/// whether it is the folder's own.
///
/// `recorded` is the folder recorded in the database under this id. The id is considered to be that
/// folder's own, regardless of the result of `id_of`.
pub fn inspect_path(
    path: &Path,
    id: &ProjectId,
    recorded: Option<&Node>,
    id_of: impl FnOnce(&Path) -> Option<(ProjectId, bool)>,
) -> PathOccupant {
    match fs::metadata(path.join(super::FILE)) {
        Ok(data) if data.is_file() => match fs::metadata(path) {
            Ok(folder) => {
                let node = Node::of(&folder);
                if recorded.is_some_and(|recorded| recorded.is(&node)) {
                    return PathOccupant::Project { node, same_id: true, own: true };
                }
                let found = id_of(path);
                PathOccupant::Project {
                    node,
                    // If the id cannot be read, the project is assumed to still be there.
                    same_id: found.as_ref().is_none_or(|(found, _)| found == id),
                    own: found.is_none_or(|(_, own)| own),
                }
            }
            Err(error) => PathOccupant::Unreadable(error.to_string()),
        },
        Ok(_) => PathOccupant::NoProject,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => match path.is_dir() {
                true => PathOccupant::NoProject,
                false => PathOccupant::Nothing,
            },
            _ => PathOccupant::Unreadable(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Node = Node::new(1, 10);
    const TWO: Node = Node::new(1, 20);

    fn id() -> ProjectId {
        "01KA5V7Q4B0000000000000000".parse().unwrap()
    }

    /// Checks every state of the known path against every folder that can be found elsewhere.
    #[test]
    fn every_combination_is_judged_as_expected() {
        let old = PathBuf::from("/old");
        let is = |node, same_id| PathOccupant::Project { node, same_id, own: true };
        let no = || PathOccupant::Unreadable("no".to_owned());
        let (moved, copied, cloned) = ("moved", "copied", "cloned");
        // Each row has the state of the known path, the judgement if no other folder is found, and
        // the judgements for a folder elsewhere: with the known inode and with a different inode,
        // in each case with and without its own id file.
        let table = [
            (PathOccupant::Nothing, "vanished", [moved, moved, moved, moved]),
            (PathOccupant::NoProject, "emptied", [moved, moved, moved, moved]),
            (no(), "unreadable", [moved, moved, "unsure", "unsure"]),
            (is(ONE, true), "known", ["known", "known", copied, cloned]),
            (is(ONE, false), "overtaken", ["known", "known", moved, moved]),
            // The folder elsewhere with inode TWO is the same folder under another name.
            (is(TWO, true), "replaced", [moved, moved, "known", "known"]),
            (is(TWO, false), "overtaken", [moved, moved, "known", "known"]),
            (is(Node::new(2, 10), true), "replaced", [moved, moved, copied, cloned]),
            (is(Node::new(2, 10), false), "overtaken", [moved, moved, moved, moved]),
        ];
        for (seen, alone, elsewhere) in table {
            let known =
                KnownProject { path: old.clone(), node: ONE, seen: seen.clone(), own: None };
            assert_eq!(judge(Some(&known), None).as_str(), alone, "{seen:?}");
            let sure = |own| {
                let mut sure = known.clone();
                sure.own = Some(id());
                if let PathOccupant::Project { own: seen, .. } = &mut sure.seen {
                    *seen = own;
                }
                sure
            };
            // A clone that has only the seed is not the project that was known by its own id.
            assert_eq!(judge(Some(&sure(true)), None).as_str(), alone, "{seen:?}");
            let by_seed = if alone == "replaced" { "recloned" } else { alone };
            assert_eq!(judge(Some(&sure(false)), None).as_str(), by_seed, "{seen:?}");
            let cases = [(ONE, true), (ONE, false), (TWO, true), (TWO, false)];
            for ((node, own), expected) in cases.into_iter().zip(elsewhere) {
                let mut found = FoundProject { path: "/new".into(), node, own, other_here: None };
                let standing = judge(Some(&known), Some(&found));
                assert_eq!(standing.as_str(), expected, "{seen:?}, {node:?}, own {own}");
                let standing = judge(Some(&sure(true)), Some(&found));
                assert_eq!(standing.as_str(), expected, "{seen:?}, {node:?}, own {own}");
                // The folder whose own id matches is the project, not the clone at the old path.
                let by_seed = if expected == copied { moved } else { expected };
                let standing = judge(Some(&sure(false)), Some(&found));
                assert_eq!(standing.as_str(), by_seed, "{seen:?}, {node:?}, own {own}");
                // A clone that takes the place of another project continues as that project.
                found.other_here = Some(id());
                let standing = judge(Some(&known), Some(&found)).as_str();
                let expected = if expected == cloned { "recloned" } else { expected };
                assert_eq!(standing, expected, "{seen:?}, {node:?}, own {own}");
                // A folder found at the known path is judged by its own identity, regardless of the
                // earlier inspection.
                found.path.clone_from(&old);
                let expected = if node.is(&ONE) { "known" } else { "replaced" };
                assert_eq!(judge(Some(&known), Some(&found)).as_str(), expected);
                let expected = match (expected, own) {
                    ("replaced", false) => "recloned",
                    _ => expected,
                };
                assert_eq!(judge(Some(&sure(true)), Some(&found)).as_str(), expected);
            }
        }
        for own in [true, false] {
            for other_here in [None, Some(id())] {
                let expected = match (own, &other_here) {
                    (false, Some(_)) => "recloned",
                    _ => "new",
                };
                let found = FoundProject { path: "/new".into(), node: TWO, own, other_here };
                assert_eq!(judge(None, Some(&found)).as_str(), expected);
            }
        }
        assert_eq!(judge(None, None), Registration::New);
    }

    #[test]
    fn every_trouble_names_a_fix() {
        let of = || PathBuf::from("/old");
        let why = || "no".to_owned();
        let all = [
            (Registration::Recloned { was: id() }, "runner init '/a b'"),
            (Registration::Moved { from: of() }, "runner projects move /old '/a b'"),
            (Registration::Copied { of: of() }, "runner init --new-id '/a b'"),
            (Registration::Cloned { of: of() }, "runner init '/a b'"),
            (Registration::Unsure { of: of(), why: why() }, "runner projects move /old '/a b'"),
            (Registration::Vanished, "runner projects move '/a b' NEW-PATH"),
            (Registration::Emptied, "git -C '/a b' checkout runner.toml"),
            (Registration::Unreadable { why: why() }, "ls -ld '/a b'"),
            (Registration::Overtaken, "runner projects forget 01KA5V7Q4B0000000000000000"),
        ];
        let mut words = std::collections::BTreeSet::new();
        for (standing, command) in all {
            let (what, hint) = standing.trouble(Path::new("/a b"), &id()).unwrap();
            assert!(hint.starts_with(command), "{hint}");
            assert!(words.insert(what), "two registrations have the same message");
        }
        for fine in [
            Registration::New,
            Registration::Known,
            Registration::Replaced,
            Registration::Alias { of: of() },
        ] {
            assert_eq!(fine.trouble(Path::new("/a b"), &id()), None);
        }
    }

    #[test]
    fn path_occupants_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let seen = |path: &Path, found: Option<(ProjectId, bool)>| {
            inspect_path(path, &id(), None, |_| found)
        };
        assert_eq!(seen(&root.join("none"), None), PathOccupant::Nothing);
        assert_eq!(seen(root, None), PathOccupant::NoProject);
        fs::write(root.join("runner.toml"), "").unwrap();
        let data = fs::metadata(root).unwrap();
        let node = Node::of(&data);
        let is = |same_id, own| PathOccupant::Project { node, same_id, own };
        assert_eq!(seen(root, None), is(true, true));
        assert_eq!(seen(root, Some((id(), true))), is(true, true));
        assert_eq!(seen(root, Some((id(), false))), is(true, false));
        let other: ProjectId = "01KA5V7Q4B0000000000000001".parse().unwrap();
        assert_eq!(seen(root, Some((other.clone(), true))), is(false, true));
        // The folder recorded in the database is the project, regardless of its id file.
        let recorded = |born| {
            let recorded = Node { born, ..node };
            inspect_path(root, &id(), Some(&recorded), |_| Some((other.clone(), false)))
        };
        assert_eq!(recorded(node.born), is(true, true));
        // A folder that was created later has reused the inode.
        if node.born.is_some() {
            assert_eq!(recorded(Some(1)), is(false, false));
        }
        // There is a file where the folder should be.
        assert_eq!(seen(&root.join("runner.toml"), None), PathOccupant::Nothing);
    }
}
