//! Creates a child's private git directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::index::{KeptEntries, whole_index};
use super::refs::{Head, head};
use crate::files::{SMALL, copy_host, open_no_link, read_no_link};
use crate::git::{Git, GitError, Read};
use crate::process::Stdin;
use crate::sandbox::private_git::{BORROWED, PrivateGit, Repository};

/// The sections of the project's configuration that a child gets. None of them configures
/// credentials.
const SECTIONS: &str = "alias apply author blame branch color column commit committer core diff \
                        fetch filter format i18n index init lfs log merge notes pull push rebase \
                        remote rerere status submodule tag user";
/// The keys in these sections that a child does not get, because they name signing keys or programs
/// that the child cannot use, select an index format, or are set by runner.
const OMITTED: &str = "core.repositoryformatversion core.bare core.fsmonitor core.sshcommand \
                       core.askpass core.gitproxy core.untrackedcache core.alternaterefscommand \
                       core.splitindex commit.gpgsign tag.gpgsign user.signingkey";
/// The keys of a remote that a child gets.
const REMOTE: &str = "url pushurl fetch tagopt promisor partialclonefilter";
/// References that a child does not get, because they refer to the current work in this work tree
/// or to the results of earlier runs.
const OWN_REFS: [&str; 5] =
    ["refs/stash", "refs/runner/", "refs/bisect/", "refs/worktree/", "refs/rewritten/"];
/// Settings that every private directory gets. Nobody can enter a passphrase inside a sandbox, and
/// garbage collection would repack the borrowed objects.
const SETTINGS: &str = "[core]\n\tbare = false\n[commit]\n\tgpgsign = false\n[tag]\n\tgpgsign = \
                        false\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";

/// A repository's references and index when the child was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryStart {
    pub head: Head,
    /// Object names by full reference name, without the references that a child does not get, such
    /// as the stash.
    pub refs: BTreeMap<String, String>,
    /// The index entries at or beneath the paths that the child must not change.
    #[serde(default)]
    pub index: KeptEntries,
    /// The digest of the child's initial index, as hexadecimal digits. `None` if there is no index,
    /// or if the index refers to other files.
    #[serde(default)]
    pub index_digest: Option<String>,
}

impl RepositoryStart {
    /// Returns the checked-out commit, if there is one.
    pub fn commit(&self) -> Option<&str> {
        match &self.head {
            Head::Branch(name) => self.refs.get(name).map(String::as_str),
            Head::Detached(commit) => Some(commit),
        }
    }
}

/// Creates the private directory, and returns the references and the index entries of each
/// repository. `hidden` lists the absolute paths at or beneath which the child must not change
/// index entries. `git add` ignores untracked files there.
///
/// # Errors
/// Returns a [`GitError`] if the project's repository cannot be read or a file cannot be written.
pub fn prepare(
    git: &Git,
    private: &PrivateGit,
    hidden: &[PathBuf],
) -> Result<Vec<RepositoryStart>, GitError> {
    let mut starts = Vec::new();
    for one in &private.repositories {
        let git = Git { root: one.top.clone(), ..git.clone() };
        let index = match &one.listing {
            Some(listing) => KeptEntries::of(listing, &one.top, hidden),
            None => {
                let listing = git.ask(Read::LsFiles, &["--stage", "--full-name", "-z"])?;
                KeptEntries::of(&listing, &one.top, hidden)
            }
        };
        let (references, listing) = std::thread::scope(|scope| {
            let references = scope.spawn(|| git.references());
            let listing = git.ask(Read::ConfigList, &[]);
            (references.join(), listing)
        });
        let references = references.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut start = RepositoryStart { index, ..references };
        let listing = listing?;
        let config = carried_config(&String::from_utf8_lossy(&listing), &one.below);
        let folder = private.folder.join(&one.below);
        lay_out(one, &folder, &start, config.as_bytes(), hidden)
            .map_err(|source| GitError::Folder { path: folder.clone(), source })?;
        start.index_digest = whole_index(&folder);
        starts.push(start);
    }
    if !private.is_folder {
        let link = private.link_file();
        fs::write(&link, format!("gitdir: {}\n", private.folder.display()))
            .map_err(|source| GitError::Folder { path: link, source })?;
    }
    Ok(starts)
}

impl Git {
    /// Returns `HEAD` and the references that a child gets.
    fn references(&self) -> Result<RepositoryStart, GitError> {
        let (refs, checked_out) = self.refs_and_branch()?;
        let head = match checked_out {
            Some(branch) => head(&format!("ref: {branch}")),
            None => self.unusual_head()?,
        };
        let why = "its HEAD names neither a branch nor a commit";
        let head = head.ok_or_else(|| GitError::Unsupported { path: self.root.clone(), why })?;
        let refs = refs.into_iter();
        let own = |name: &String| OWN_REFS.iter().any(|it| name.starts_with(it));
        let refs = refs.filter(|(name, _)| !own(name)).collect();
        Ok(RepositoryStart { head, refs, index: KeptEntries::default(), index_digest: None })
    }

    /// Returns the value of `HEAD` if no existing branch is checked out: a commit, or a branch that
    /// has no commit yet. Returns `None` if `HEAD` is neither.
    fn unusual_head(&self) -> Result<Option<Head>, GitError> {
        Ok(match self.ask_if_any(Read::SymbolicRef, &["HEAD"], Stdin::Null)? {
            Some(branch) => head(&format!("ref: {}", String::from_utf8_lossy(&branch))),
            None => self.head()?.map(Head::Detached),
        })
    }

    /// Returns the object names of all references, by full name.
    pub(super) fn all_refs(&self) -> Result<BTreeMap<String, String>, GitError> {
        Ok(self.refs_and_branch()?.0)
    }

    /// Returns the object names of all references by full name, and the checked-out branch if it
    /// has a commit.
    fn refs_and_branch(&self) -> Result<(BTreeMap<String, String>, Option<String>), GitError> {
        let all = self.ask(Read::ForEachRef, &["--format=%(HEAD)%(objectname) %(refname)"])?;
        let all = String::from_utf8_lossy(&all).into_owned();
        let (mut refs, mut checked_out) = (BTreeMap::new(), None);
        for line in all.lines() {
            let is_head = line.starts_with('*');
            let Some((object, name)) = line.get(1..).and_then(|line| line.split_once(' ')) else {
                continue;
            };
            if is_head && name.starts_with("refs/heads/") {
                checked_out = Some(name.to_owned());
            }
            refs.insert(name.to_owned(), object.to_owned());
        }
        Ok((refs, checked_out))
    }
}

/// Returns the part of a project's configuration that a child gets. `listing` is git's output for
/// [`Read::ConfigList`]. `below` is the path of a submodule's private directory inside the
/// outermost one, and empty for the outermost repository.
fn carried_config(listing: &str, below: &Path) -> String {
    let mut text = String::new();
    let mut version = 0;
    for entry in listing.split('\0').filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        let Some((section, name)) = key.split_once('.') else { continue };
        let (middle, last) = match name.rsplit_once('.') {
            Some((middle, last)) => (Some(middle), last),
            None => (None, name),
        };
        let format = section == "extensions" && ["objectformat", "partialclone"].contains(&last);
        let worktree = key == "core.worktree";
        let carried = SECTIONS.split_whitespace().any(|it| it == section)
            && !OMITTED.split_whitespace().any(|it| it == key)
            && (section != "remote" || REMOTE.split(' ').any(|it| it == last))
            // `core.worktree` contains the path from a submodule's git folder to its work tree.
            && (!worktree || (!below.as_os_str().is_empty() && value.starts_with("../")));
        if !carried && !format {
            continue;
        }
        version |= u8::from(format);
        let value = if last.ends_with("url") { without_login(value) } else { value.to_owned() };
        let middle = middle.map_or_else(String::new, |it| format!(" {}", quoted(it)));
        text.push_str(&format!("[{section}{middle}]\n\t{last} = {}\n", quoted(&value)));
    }
    format!("[core]\n\trepositoryformatversion = {version}\n{text}{SETTINGS}")
}

/// Quotes a value or the name of a subsection.
fn quoted(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", value.replace('\n', "\\n").replace('\t', "\\t"))
}

/// Removes the user name and the password from an HTTP or HTTPS address.
fn without_login(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or(host);
            format!("{scheme}://{host}/{path}")
        }
        _ => address.to_owned(),
    }
}

fn lay_out(
    one: &Repository,
    folder: &Path,
    start: &RepositoryStart,
    config: &[u8],
    hidden: &[PathBuf],
) -> io::Result<()> {
    for name in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"] {
        fs::create_dir_all(folder.join(name))?;
    }
    for name in ["objects", "lfs/objects"] {
        fs::create_dir_all(folder.join(BORROWED).join(name))?;
    }
    let head = match &start.head {
        Head::Branch(name) => format!("ref: {name}\n"),
        Head::Detached(commit) => format!("{commit}\n"),
    };
    fs::write(folder.join("HEAD"), head)?;
    fs::write(folder.join("config"), config)?;
    let packed = start.refs.iter().map(|(name, object)| format!("{object} {name}\n"));
    fs::write(folder.join("packed-refs"), packed.collect::<String>())?;
    copy_if_there(&one.git_dir.join("index"), &folder.join("index"))?;
    for entry in fs::read_dir(&one.git_dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
            copy_if_there(&entry.path(), &folder.join(entry.file_name()))?;
        }
    }
    copy_if_there(&one.common_dir.join("shallow"), &folder.join("shallow"))?;
    for name in ["info/attributes", "info/sparse-checkout"] {
        copy_if_there(&one.common_dir.join(name), &folder.join(name))?;
    }
    let own = read_no_link(one.common_dir.join("info/exclude"), SMALL).unwrap_or_default();
    let hidden = hidden.iter().filter_map(|path| path.strip_prefix(&one.top).ok()?.to_str());
    let hidden: String = hidden.map(|path| format!("/{path}\n")).collect();
    fs::write(folder.join("info/exclude"), [&own, &b"\n"[..], hidden.as_bytes()].concat())?;
    for entry in fs::read_dir(one.common_dir.join("hooks")).into_iter().flatten().flatten() {
        let (from, to) = (entry.path(), folder.join("hooks").join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            let target = fs::read_link(&from)?;
            std::os::unix::fs::symlink(one.common_dir.join("hooks").join(target), to)?;
        } else if kind.is_file() && from.extension().is_none_or(|it| it != "sample") {
            copy_host(&from, &to)?;
        }
    }
    Ok(())
}

fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match open_no_link(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(mut file) => io::copy(&mut file, &mut fs::File::create(to)?).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(listing: &[&str], below: &str) -> String {
        let config = carried_config(&listing.join("\0"), Path::new(below));
        config.strip_suffix(SETTINGS).unwrap().to_owned()
    }

    #[test]
    fn unsafe_settings_are_omitted() {
        let none = "[core]\n\trepositoryformatversion = 0\n";
        for refused in [
            "credential.helper\nstore",
            "http.extraheader\nAuthorization: secret",
            "include.path\n/secret",
            "core.sshcommand\nevil",
            "core.fsmonitor\nevil",
            "commit.gpgsign\ntrue",
            "remote.origin.proxy\nhttp://me:secret@host",
            "remote.origin.uploadpack\nevil",
            "extensions.worktreeconfig\ntrue",
            "core.worktree\n../elsewhere",
            "nosection",
        ] {
            assert_eq!(carried(&[refused], ""), none, "{refused}");
        }
        let worktree = |value: &str| carried(&[&format!("core.worktree\n{value}")], "modules/a");
        assert_eq!(worktree("/elsewhere"), none);
        assert_eq!(worktree("../../a"), format!("{none}[core]\n\tworktree = \"../../a\"\n"));
    }

    #[test]
    fn child_gets_ordinary_settings() {
        for (entry, line) in [
            ("user.name\nA \"B\" C", "[user]\n\tname = \"A \\\"B\\\" C\"\n"),
            ("core.bigfilethreshold\n1m", "[core]\n\tbigfilethreshold = \"1m\"\n"),
            ("commit.verbose", "[commit]\n\tverbose = \"true\"\n"),
            ("filter.lfs.clean\ngit-lfs clean", "[filter \"lfs\"]\n\tclean = \"git-lfs clean\"\n"),
            ("remote.a.b.url\nhttps://me:pw@h/x", "[remote \"a.b\"]\n\turl = \"https://h/x\"\n"),
            ("remote.o.fetch\n+r:l", "[remote \"o\"]\n\tfetch = \"+r:l\"\n"),
        ] {
            let expected = format!("[core]\n\trepositoryformatversion = 0\n{line}");
            assert_eq!(carried(&[entry], ""), expected);
        }
        let version = "[core]\n\trepositoryformatversion = 1\n";
        let hash = "[extensions]\n\tobjectformat = \"sha256\"\n";
        let found = carried(&["extensions.objectformat\nsha256", "user.name\na"], "");
        assert_eq!(found, format!("{version}{hash}[user]\n\tname = \"a\"\n"));
    }

    #[test]
    fn logins_are_removed_from_addresses() {
        for (address, expected) in [
            ("https://me:secret@example.org/a.git", "https://example.org/a.git"),
            ("https://example.org/a@b", "https://example.org/a@b"),
            ("git@example.org:a.git", "git@example.org:a.git"),
            ("/srv/a.git", "/srv/a.git"),
        ] {
            assert_eq!(without_login(address), expected);
        }
        assert_eq!(quoted("a\\b\"c\nd"), r#""a\\b\"c\nd""#);
    }
}
