//! Describes a project for another host: the current commit with its history, from a remote or as a
//! pack, and the files in the work tree that differ from the commit or that the job publishes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use runner_engine::digest::Digest;
use runner_engine::files::{SMALL, beneath, read_in, read_text_host};
use runner_engine::git::changes::Untracked;
use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;
use runner_fleet::{LARGEST_CONTENT, Postgres};
use runner_jobs::Kind;
use serde::{Deserialize, Serialize};

use super::membership::failure;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// How a host obtains a project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The current commit.
    pub commit: String,
    /// Where the commit and its history come from.
    pub history: History,
    /// The files that differ from the commit, and the files at the paths that the job publishes.
    pub files: Vec<SourceFile>,
    /// The clone's own list of ignored paths, which no commit contains.
    pub exclude: String,
}

/// Where a host obtains a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    /// A pack in the fleet's database.
    Pack(Digest),
    /// A branch on a remote that both hosts allow.
    Remote { address: String, branch: String },
}

/// A file in the work tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceFile {
    /// The path relative to the project.
    pub path: String,
    /// The content, or the target of a link. `None` if there is no file.
    pub content: Option<Digest>,
    #[serde(default)]
    pub kind: FileKind,
}

/// The type of a path in the work tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    #[default]
    Regular,
    Executable,
    /// A symbolic link to a path inside the project.
    Link,
}

/// Reports whether the target of a link at `path` is inside the project, no matter where other
/// links point. The target may contain `..` only at its beginning, and the first other component
/// must not be `.git`.
pub fn stays_inside(path: &str, target: &str) -> bool {
    let mut depth = path.matches('/').count();
    let mut rest = target;
    while let Some(above) = rest.strip_prefix("../") {
        let Some(less) = depth.checked_sub(1) else { return false };
        (depth, rest) = (less, above);
    }
    let plain = Path::new(rest).components().all(|part| matches!(part, Component::Normal(_)));
    let first = Path::new(rest).components().next();
    let is_git = first.is_some_and(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
    !rest.is_empty() && plain && !is_git
}

/// Reports whether a host's settings allow fetching from an address. An allowed address ending in
/// `/`, or of the form `USER@HOST:`, also allows every address that starts with it.
pub fn allows(remotes: &[String], address: &str) -> bool {
    // With `..` or `%`, an address can point outside its allowed prefix.
    let is_plain = !address.contains("..") && !address.contains('%');
    let is_below = |allowed: &str| {
        let is_short = allowed.ends_with(':') && !allowed.contains('/');
        (allowed.ends_with('/') || is_short) && address.starts_with(allowed)
    };
    is_plain && remotes.iter().any(|allowed| address == allowed || is_below(allowed))
}

/// Returns an allowed remote that had the commit at the last fetch or push, or `None` if there is
/// no such remote.
fn remote_with(git: &Git, remotes: &[String], commit: &str) -> Result<Option<History>, GitError> {
    if remotes.is_empty() {
        return Ok(None);
    }
    let args = ["--format=%(refname)", "--contains", commit, "refs/remotes/"];
    let names = git.ask(Read::ForEachRef, &args)?;
    for name in String::from_utf8_lossy(&names).lines() {
        let name = name.strip_prefix("refs/remotes/").and_then(|name| name.split_once('/'));
        let Some((remote, branch)) = name.filter(|(_, branch)| *branch != "HEAD") else { continue };
        let key = format!("remote.{remote}.url");
        let addresses = git.ask_if_any(Read::ConfigValues, &[&key], Stdin::Null)?;
        let addresses = addresses.unwrap_or_default();
        // Git fetches from the first address.
        let Some(address) = String::from_utf8_lossy(&addresses).lines().next().map(str::to_owned)
        else {
            continue;
        };
        if allows(remotes, &address) {
            return Ok(Some(History::Remote { address, branch: branch.to_owned() }));
        }
    }
    Ok(None)
}

/// Stores the project in the fleet's database, and returns its description. The commit's history is
/// not stored if an allowed remote has the commit.
pub fn store(
    database: &mut Postgres,
    remotes: &[String],
    here: &LoadedProject,
    kind: &dyn Kind,
) -> Result<Source, Failure> {
    let git = Git::new(&here.root, &env::child_environment(), "fleet");
    let refused = |error: GitError| Failure::environment(error.to_string());
    if git.top().map_err(refused)? != here.root {
        return Err(Failure::environment(format!(
            "{} is not the root of its repository, so no other host can get it",
            here.root.display()
        )));
    }
    let commit = git.head().map_err(refused)?;
    let commit = commit.ok_or_else(|| {
        Failure::environment(format!("{} has no commit yet", here.root.display()))
            .hint("git commit")
    })?;
    let history = match remote_with(&git, remotes, &commit).map_err(refused)? {
        Some(remote) => remote,
        None => {
            let args = ["--revs", "--stdout", "--quiet", "--threads=1", "--delta-base-offset"];
            let wanted = Stdin::Bytes(
                format!(
                    "{commit}
"
                )
                .into_bytes(),
            );
            let pack = git.ask_with(Read::PackObjects, &args, wanted).map_err(refused)?;
            History::Pack(database.put_blob(&pack).map_err(failure)?)
        }
    };
    let changes = git.changes(&[], Untracked::Files).map_err(refused)?;
    let mut paths: BTreeSet<String> = changes.into_keys().collect();
    for path in kind.publishes().paths() {
        files_below(&here.root, &path, &mut paths);
    }
    paths.retain(|path| !path.starts_with(".runner/") && !path.starts_with(".git/"));
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let found = read_file(&here.root, &path)?;
        let kind = found.as_ref().map_or(FileKind::Regular, |(kind, _)| *kind);
        let content = found.map(|(_, bytes)| database.put_blob(&bytes)).transpose();
        files.push(SourceFile { path, content: content.map_err(failure)?, kind });
    }
    let exclude = git.path(&["--git-path", "info/exclude"]).map_err(refused)?;
    let exclude = read_text_host(&exclude, SMALL).unwrap_or_default();
    Ok(Source { commit, history, files, exclude })
}

/// Reads a file, or a link's target, in the work tree. Returns `None` if the path does not exist.
fn read_file(root: &Path, path: &str) -> Result<Option<(FileKind, Vec<u8>)>, Failure> {
    let at = root.join(path);
    let unreadable = |error: std::io::Error| Failure::unreadable(&at, error);
    // A link in place of a folder is refused, because the path would point elsewhere.
    let parent = Path::new(path).parent().unwrap_or(Path::new(""));
    match beneath(root, parent) {
        Err(error) if is_absent(&error) => return Ok(None),
        found => found.map_err(unreadable)?,
    };
    let data = match fs::symlink_metadata(&at) {
        Ok(data) => data,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if data.is_symlink() {
        let target = fs::read_link(&at).map_err(unreadable)?;
        return match target.to_str().filter(|target| stays_inside(path, target)) {
            Some(target) => Ok(Some((FileKind::Link, target.as_bytes().to_vec()))),
            None => Err(Failure::environment(format!(
                "{} leads outside the project, so no other host can get it",
                at.display()
            ))),
        };
    }
    let executable = data.permissions().mode() & 0o100 != 0;
    let kind = if executable { FileKind::Executable } else { FileKind::Regular };
    Ok(Some((kind, read_in(root, path, LARGEST_CONTENT).map_err(unreadable)?)))
}

/// Reports whether a path does not exist, or one of its parent folders is a file instead.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Adds the regular files at or below a path. Links are not followed.
fn files_below(root: &Path, path: &str, found: &mut BTreeSet<String>) {
    let Ok(data) = fs::symlink_metadata(root.join(path)) else { return };
    if data.is_file() {
        found.insert(path.to_owned());
    }
    if !data.is_dir() {
        return;
    }
    let Ok(entries) = fs::read_dir(root.join(path)) else { return };
    for entry in entries.flatten() {
        if let Some(name) = entry.file_name().to_str() {
            files_below(root, &format!("{}/{name}", path.trim_end_matches('/')), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_inside_the_project_are_allowed() {
        for (path, target) in [
            ("a", "b"),
            ("a", "b/c"),
            ("d/a", "../b"),
            ("d/e/a", "../../b/c"),
            ("d/a", "e/f"),
            ("a", ".gitignore"),
        ] {
            assert!(stays_inside(path, target), "{path} -> {target}");
        }
    }

    #[test]
    fn only_listed_addresses_are_allowed() {
        let remotes = [
            "https://example.org/me/",
            "git@example.org:",
            "ssh://git@example.org/one.git",
            "ssh://example.org:",
        ]
        .map(str::to_owned);
        for address in [
            "https://example.org/me/a.git",
            "git@example.org:me/a",
            "ssh://git@example.org/one.git",
        ] {
            assert!(allows(&remotes, address), "{address}");
        }
        for address in [
            "https://example.org/me",
            "https://example.org/other/a.git",
            "https://example.org/me/../other/a.git",
            "https://example.org/me/%2e%2e/other/a.git",
            "https://user:key@example.org/me/a.git",
            "https://example.org.evil/me/a.git",
            "ssh://example.org:key@evil/a.git",
            "ssh://git@example.org/one.git/more",
            "ext::sh -c true",
            "--upload-pack=true",
            "/srv/a.git",
            "",
        ] {
            assert!(!allows(&remotes, address), "{address}");
        }
    }

    #[test]
    fn replaced_folders_contain_no_files() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/c"), "x").unwrap();
        assert_eq!(read_file(&root, "a/b/c").unwrap(), Some((FileKind::Regular, b"x".to_vec())));
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a"), "file").unwrap();
        assert_eq!(read_file(&root, "a/b/c").unwrap(), None);
        assert_eq!(read_file(&root, "a/b").unwrap(), None);
        assert_eq!(read_file(&root, "z/b").unwrap(), None);
        fs::remove_file(root.join("a")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("a")).unwrap();
        assert!(read_file(&root, "a/passwd").is_err());
    }

    #[test]
    fn links_outside_the_project_are_refused() {
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("d/a", ".."),
            ("a", "b/../../c"),
            ("d/a", "../b/../../c"),
            ("a", ""),
            ("a", ".git/hooks"),
            ("d/a", "../.GIT/config"),
            ("d/a", "..//etc"),
        ] {
            assert!(!stays_inside(path, target), "{path} -> {target}");
        }
    }
}
