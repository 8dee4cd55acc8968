//! Commits an entry and pushes the commit, each only if the project's settings request it.
//!
//! An entry is published before it is committed, so a failed commit never affects the entry. The
//! next dream commits the entries that were left behind. A commit contains no other staged or
//! changed file. [`runner_engine::git`] describes how git is prevented from running other programs.
//! This module must never change a file, and never push unless configured.

use std::collections::BTreeMap;
use std::path::Path;

use runner_engine::git::Git;
use runner_engine::git::changes::{Change, Untracked};
use runner_engine::git::commit::NewFile;
use runner_engine::process::Cancel;
use runner_engine::scope::Scope;

use super::manifest;

/// Maximum length of a message's first line after the tag, in characters.
const LINE: usize = 60;
/// Maximum size of a file in a commit, in bytes.
const LARGEST: u64 = 16 * 1024 * 1024;
/// The subfolder of the run's folder where git runs for a push.
const PUSH_FOLDER: &str = "push";

/// The files to commit after their publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The paths of the files, relative to the project.
    pub paths: Vec<String>,
    pub message: String,
    /// Whether the commit is pushed to the upstream of its branch.
    pub push: bool,
}

/// Formats `<tag>: <line>`, and truncates a long line.
pub fn message(tag: &str, line: &str) -> String {
    let line: Vec<&str> = line.split_whitespace().collect();
    let line = line.join(" ");
    let mut cut: String = line.chars().take(LINE).collect();
    if cut.len() < line.len() {
        cut = line.chars().take(LINE - 1).chain(['…']).collect();
    }
    format!("{tag}: {cut}")
}

/// The repository and the environment for a commit.
#[derive(Clone, Debug)]
pub struct CommitTarget<'a> {
    pub root: &'a Path,
    /// The run's own folder, outside the project.
    pub run_dir: &'a Path,
    /// The environment variables that git may see.
    pub env: &'a BTreeMap<String, String>,
    /// The id of the run, used to find its processes.
    pub marker: &'a str,
    /// Cancels the push when the run must end.
    pub cancel: &'a Cancel,
}

/// Commits the files, and pushes the commit if `publish.push` is set.
///
/// # Errors
/// Returns the reason why the files were not committed or the commit was not pushed.
pub fn publish(place: &CommitTarget<'_>, publish: &Publish) -> Result<(), String> {
    let git = Git::new(place.root, place.env, place.marker);
    commit(&git, publish).map_err(|why| format!("the entry is not committed: {why}"))?;
    if publish.push {
        let folder = place.run_dir.join(PUSH_FOLDER);
        git.push(&folder, place.env, place.cancel)
            .map_err(|why| format!("the entry is not pushed: {why}"))?;
    }
    Ok(())
}

fn commit(git: &Git, publish: &Publish) -> Result<(), String> {
    let mut paths = left_behind(git, &publish.paths);
    paths.extend(publish.paths.iter().cloned());
    paths.sort();
    paths.dedup();
    let scope = Scope::open(git.root(), &[], ".runner/staging/look");
    let scope = scope.map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    for path in paths {
        let bytes = scope.read(&path, LARGEST);
        let bytes = bytes.map_err(|error| format!("{path}: {error}"))?;
        files.push(NewFile { path, bytes });
    }
    git.commit_files(&files, &publish.message).map(drop).map_err(|error| error.to_string())
}

/// Returns the uncommitted entries in the folder of the first path.
fn left_behind(git: &Git, paths: &[String]) -> Vec<String> {
    let folder = paths.first().and_then(|path| path.rsplit_once('/'));
    let Some((folder, _)) = folder else {
        return Vec::new();
    };
    let changes = git.changes(&[folder], Untracked::Files);
    let entry = |path: &str| {
        let name = path.strip_prefix(folder).and_then(|it| it.strip_prefix('/'));
        name.is_some_and(|name| manifest::id_of(name).is_some())
    };
    changes
        .unwrap_or_default()
        .into_iter()
        .filter(|(path, change)| {
            matches!(change, Change::Added | Change::Untracked)
                && entry(path)
                && git.root().join(path).symlink_metadata().is_ok()
        })
        .map(|(path, _)| path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    fn run(root: &Path, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(root)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", root)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    #[test]
    fn publish_commits_only_entries_and_skips_hooks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        run(root, &["init", "-q", "-b", "main"]);
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let hook = root.join(".git/hooks/pre-commit");
        fs::write(&hook, "#!/bin/sh\ntouch hooked\nexit 1\n").unwrap();
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(root.join("mine.txt"), "a").unwrap();
        run(root, &["add", "mine.txt"]);
        fs::create_dir(root.join("rem")).unwrap();
        for name in ["2026-06-10-1430.org", "2026-06-10-1330.org", "manifest.json", "notes.txt"] {
            fs::write(root.join("rem").join(name), "x").unwrap();
        }
        let cancel = Cancel::new().unwrap();
        let run_dir = tempfile::tempdir().unwrap();
        let env: BTreeMap<String, String> =
            [("PATH".to_owned(), PATH.to_owned()), ("HOME".to_owned(), root.display().to_string())]
                .into();
        let place =
            CommitTarget { root, run_dir: run_dir.path(), env: &env, marker: "r", cancel: &cancel };
        let wanted = Publish {
            paths: vec!["rem/2026-06-10-1430.org".into(), "rem/manifest.json".into()],
            message: message("rem", &format!("Two runs landed.  {}", "x".repeat(99))),
            push: false,
        };
        fs::write(root.join(".gitconfig"), "[user]\nuseConfigOnly = true\n").unwrap();
        let why = publish(&place, &wanted).unwrap_err();
        assert!(why.starts_with("the entry is not committed: git commit-tree ended with"), "{why}");
        fs::write(root.join(".gitconfig"), "[user]\nname=a\nemail=a@b\n").unwrap();
        publish(&place, &wanted).unwrap();
        let subject = run(root, &["log", "-1", "--format=%s"]);
        assert!(subject.starts_with("rem: Two runs landed. xxx"), "{subject}");
        assert_eq!(subject.trim().chars().count(), "rem: ".len() + LINE);
        let files = run(root, &["show", "--name-only", "--format="]);
        // The commit includes the entry that was left behind, but no unrelated or user-staged
        // files.
        assert_eq!(
            files.lines().collect::<Vec<_>>(),
            ["rem/2026-06-10-1330.org", "rem/2026-06-10-1430.org", "rem/manifest.json"]
        );
        assert_eq!(run(root, &["diff", "--cached", "--name-only"]).trim(), "mine.txt");
        assert!(!root.join("hooked").exists());
        fs::write(root.join("rem/manifest.json"), "y").unwrap();
        let why = publish(&place, &Publish { push: true, ..wanted }).unwrap_err();
        assert!(why.starts_with("the entry is not pushed: the branch main has no remote"), "{why}");
    }
}
