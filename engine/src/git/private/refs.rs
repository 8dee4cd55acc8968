//! Reads the references of a private git directory without running git.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{DOCUMENT, SMALL, read_no_link};

/// Maximum number of references to read from a private directory.
const MOST: usize = 100_000;
/// Maximum nesting depth of reference folders.
const DEEPEST: usize = 32;

/// The folder for linked work trees in a git directory.
pub const WORKTREES: &str = "worktrees";

/// The commit or branch that is checked out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// The full name of a branch, which need not exist yet.
    Branch(String),
    /// The object name of a commit.
    Detached(String),
}

/// The references of a private directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateRefs {
    /// `None` if `HEAD` is missing or invalid.
    pub head: Option<Head>,
    /// Object names by full reference name.
    pub refs: BTreeMap<String, String>,
    /// The commits of all stash entries, oldest first.
    pub stashes: Vec<String>,
    /// The commit or branch of each linked work tree, by the work tree's name.
    pub worktrees: BTreeMap<String, Head>,
}

/// Reads all references in the directory, and ignores entries that git would not have written.
///
/// # Errors
/// Returns an error if the directory contains more than 100,000 references.
pub fn read(folder: &Path) -> io::Result<PrivateRefs> {
    let text = |path: &Path, limit| {
        let bytes = read_no_link(path, limit).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    };
    let mut found =
        PrivateRefs { head: head(&text(&folder.join("HEAD"), SMALL)), ..PrivateRefs::default() };
    for line in text(&folder.join("packed-refs"), DOCUMENT).lines() {
        if let Some((object, name)) = line.split_once(' ')
            && is_object(object)
            && is_name(name)
        {
            found.refs.insert(name.to_owned(), object.to_owned());
        }
    }
    let too_many = || io::Error::other(format!("it has more than {MOST} references"));
    walk(&folder.join("refs"), "refs", DEEPEST, &mut |name, path| {
        let object = text(path, SMALL);
        if is_object(object.trim_end()) && is_name(name) {
            found.refs.insert(name.to_owned(), object.trim_end().to_owned());
        }
        match found.refs.len() > MOST {
            true => Err(too_many()),
            false => Ok(()),
        }
    })?;
    if found.refs.len() > MOST {
        return Err(too_many());
    }
    let log = text(&folder.join("logs/refs/stash"), DOCUMENT);
    let entries = log.lines().filter_map(|line| line.split(' ').nth(1));
    found.stashes = entries.filter(|it| is_object(it)).map(str::to_owned).collect();
    for entry in fs::read_dir(folder.join(WORKTREES)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let (true, Some(head)) =
            (is_name(&format!("refs/{name}")), head(&text(&entry.path().join("HEAD"), SMALL)))
        {
            found.worktrees.insert(name, head);
        }
    }
    Ok(found)
}

/// Parses the contents of `HEAD`. Returns `None` if they are invalid.
pub fn head(text: &str) -> Option<Head> {
    let text = text.trim_end();
    match text.strip_prefix("ref: ") {
        Some(name) if is_name(name) => Some(Head::Branch(name.to_owned())),
        None if is_object(text) => Some(Head::Detached(text.to_owned())),
        _ => None,
    }
}

fn walk(
    folder: &Path,
    name: &str,
    depth: usize,
    each: &mut dyn FnMut(&str, &Path) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => walk(&entry.path(), &name, depth - 1, each)?,
            Ok(kind) if kind.is_file() => each(&name, &entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether `text` is a full object name.
fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether `name` is a full reference name that is valid in git and shorter than 400 bytes.
fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.ends_with(".lock")
    };
    name.starts_with("refs/")
        && name.len() < 400
        && name.split('/').all(part)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(|c: char| c.is_control() || " ~^:?*[\\".contains(c))
}

/// Removes everything in a private directory that git would not have written and that could
/// redirect git elsewhere: symbolic links, special files such as devices, and files with several
/// hard links.
///
/// # Errors
/// Returns an error if a folder cannot be read or an entry cannot be removed.
pub fn remove_links(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        let path = entry.path();
        if data.is_dir() {
            remove_links(&path)?;
        } else if !data.is_file() || data.nlink() > 1 {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_references_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        fs::create_dir_all(at("refs/heads/a")).unwrap();
        fs::create_dir_all(at("logs/refs")).unwrap();
        fs::write(at("HEAD"), "ref: refs/heads/a/b\n").unwrap();
        fs::write(
            at("packed-refs"),
            format!("# pack-refs with: sorted\n{one} refs/heads/main\n^{two}\n{one} ../x\n{one} refs/heads/a/b\n"),
        )
        .unwrap();
        fs::write(at("refs/heads/a/b"), format!("{two}\n")).unwrap();
        fs::write(at("refs/heads/symbolic"), "ref: refs/heads/main\n").unwrap();
        fs::write(at("refs/heads/x.lock"), format!("{two}\n")).unwrap();
        fs::write(at("outside"), format!("{two}\n")).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("refs/heads/link")).unwrap();
        fs::write(at("logs/refs/stash"), format!("{one} {two} a <a> 0 +0000\tx\n")).unwrap();
        fs::create_dir_all(at("worktrees/side")).unwrap();
        fs::write(at("worktrees/side/HEAD"), format!("{one}\n")).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!(found.head, Some(Head::Branch("refs/heads/a/b".into())));
        let expected = [("refs/heads/a/b", &two), ("refs/heads/main", &one)];
        let expected = expected.map(|(name, object)| (name.to_owned(), object.clone()));
        assert_eq!(found.refs, expected.into());
        assert_eq!(found.stashes, std::slice::from_ref(&two));
        assert_eq!(found.worktrees, [("side".to_owned(), Head::Detached(one))].into());
        assert_eq!(head(&two), Some(Head::Detached(two)));
        assert_eq!(head("ref: ../../x"), None);
        let many = |count: usize| -> String {
            (0..count).map(|number| format!("{} refs/heads/n{number}\n", "1".repeat(40))).collect()
        };
        fs::write(at("packed-refs"), many(MOST)).unwrap();
        fs::remove_file(at("refs/heads/a/b")).unwrap();
        assert_eq!(read(folder.path()).unwrap().refs.len(), MOST);
        fs::write(at("packed-refs"), many(MOST + 1)).unwrap();
        let why = read(folder.path()).unwrap_err().to_string();
        assert!(why.contains("more than"), "{why}");
        remove_links(folder.path()).unwrap();
        assert!(at("refs/heads/link").symlink_metadata().is_err() && at("outside").exists());
    }
}
