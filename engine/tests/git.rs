//! Tests of git operations (such as queries for changes, commits of named files, and pushes) on
//! real repositories, with each git in the usual program folders. `planted.rs` tests that runner's
//! git operations start no program that a project names.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runner_engine::git::changes::{Change, Untracked};
use runner_engine::git::commit::NewFile;
use runner_engine::git::{Git, GitError, HEAD, Read};
use runner_engine::process::Cancel;
use runner_engine::recording::InputRecording;
use runner_engine::sandbox::Sandbox;
use runner_engine::work::{Work, WorkResult};
use tempfile::TempDir;

/// Returns the usual program folders that contain git. If several contain the same executable, only
/// the first is returned.
fn gits() -> Vec<PathBuf> {
    let folders = ["/usr/local/bin", "/usr/bin", "/opt/git/bin"].map(PathBuf::from);
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for folder in folders {
        if let Ok(real) = fs::canonicalize(folder.join("git"))
            && !seen.contains(&real)
        {
            seen.push(real);
            found.push(folder);
        }
    }
    assert!(!found.is_empty(), "these tests need git");
    found
}

struct Place {
    folder: TempDir,
    git: PathBuf,
}

impl Place {
    fn new(git: &Path) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap(), git: git.join("git") };
        fs::create_dir(place.root()).unwrap();
        fs::create_dir(place.folder.path().join("home")).unwrap();
        place.git(&["init", "-q", "-b", "main"]);
        place
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn env(&self) -> BTreeMap<String, String> {
        let path = self.git.parent().unwrap().display().to_string();
        let home = self.folder.path().join("home").display().to_string();
        [("PATH".to_owned(), format!("{path}:/usr/bin:/bin")), ("HOME".to_owned(), home)].into()
    }

    /// Runs git as a user would, with an identity and without this host's configuration.
    fn git(&self, args: &[&str]) -> String {
        let done = Command::new(&self.git)
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(self.root())
            .env_clear()
            .envs(self.env())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "git {args:?}: {error}");
        text
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn ask(&self) -> Git {
        Git::new(&self.root(), &self.env(), "test")
    }

    fn changes(&self) -> Vec<(String, Change)> {
        let changes = self.ask().changes(&[], Untracked::Folders).unwrap();
        changes.into_iter().collect()
    }

    /// Returns the sorted paths that `git status` reports.
    fn status(&self) -> Vec<String> {
        let out = self.git(&["status", "--porcelain", "-z", "--no-renames"]);
        let mut paths: Vec<String> = out
            .split('\0')
            .filter_map(|entry| entry.get(3..).filter(|path| !path.is_empty()))
            .map(str::to_owned)
            .collect();
        paths.sort();
        // A file that is staged as deleted but still exists has two entries.
        paths.dedup();
        paths
    }

    fn agree(&self, what: &str) {
        let found: Vec<String> = self.changes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, self.status(), "{what}, {}", self.git.display());
    }
}

#[test]
fn changes_match_git_status() {
    for git in gits() {
        let place = Place::new(&git);
        place.agree("an empty repository");
        place.write("plain", "one\n");
        place.write("with space/ö \"x\"", "two\n");
        place.write("new\nline", "three\n");
        place.write("run.sh", "#!/bin/sh\n");
        std::os::unix::fs::symlink("plain", place.root().join("link")).unwrap();
        place.write(".gitignore", "ignored/\n");
        place.write("ignored/x", "x");
        place.agree("before the first commit");
        place.git(&["add", "."]);
        place.agree("everything staged");
        place.git(&["commit", "-qm", "one"]);
        place.agree("right after a commit");
        place.write("plain", "eno\n");
        place.agree("different content of the same length");
        place.write("plain", "one\n");
        place.agree("the original content written again");
        place.write("with space/ö \"x\"", "two and more\n");
        fs::remove_file(place.root().join("link")).unwrap();
        std::os::unix::fs::symlink("run.sh", place.root().join("link")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.root().join("run.sh"), mode).unwrap();
        place.agree("a changed link, mode and content");
        place.git(&["add", "."]);
        place.agree("the same changes, staged");
        fs::remove_file(place.root().join("new\nline")).unwrap();
        place.write("new folder/a", "");
        place.write("new folder/b", "");
        place.agree("a deletion and a new folder");
        place.git(&["rm", "-q", "--cached", "plain"]);
        place.agree("a file removed from the index");
        place.git(&["add", "--intent-to-add", "new folder/a"]);
        place.agree("an empty file with intent to add");
        fs::remove_file(place.root().join("run.sh")).unwrap();
        fs::create_dir(place.root().join("run.sh")).unwrap();
        place.write("run.sh/inside", "x");
        let found = place.changes();
        assert!(found.contains(&("run.sh".to_owned(), Change::Staged)), "{found:?}");
    }
}

#[test]
fn files_behind_links_are_reported_deleted() {
    for git in gits() {
        let place = Place::new(&git);
        for path in ["a/b/one", "a/b/two", "a/three", "ab/four"] {
            place.write(path, path);
        }
        place.git(&["add", "."]);
        place.git(&["commit", "-q", "-m", "files"]);
        place.agree("no change");
        let moved = place.folder.path().join("moved");
        fs::rename(place.root().join("a/b"), &moved).unwrap();
        std::os::unix::fs::symlink(&moved, place.root().join("a/b")).unwrap();
        place.agree("a folder replaced by a link to it");
        let edited = |path: &str| place.changes().contains(&(path.to_owned(), Change::Edited));
        assert!(edited("a/b/one") && edited("a/b/two") && !edited("a/three"));
        fs::remove_file(place.root().join("a/b")).unwrap();
        fs::rename(&moved, place.root().join("a/b")).unwrap();
        fs::rename(place.root().join("a"), &moved).unwrap();
        std::os::unix::fs::symlink(&moved, place.root().join("a")).unwrap();
        place.agree("a link above the folder");
        assert!(edited("a/b/one") && edited("a/three") && !edited("ab/four"));
    }
}

#[test]
fn conflicts_and_subfolders_are_reported() {
    for git in gits() {
        let place = Place::new(&git);
        place.write("sub/a", "1\n");
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "one"]);
        place.git(&["checkout", "-qb", "side"]);
        place.write("sub/a", "2\n");
        place.git(&["commit", "-qam", "two"]);
        place.git(&["checkout", "-q", "main"]);
        place.write("sub/a", "3\n");
        place.git(&["commit", "-qam", "three"]);
        let merge = Command::new(&place.git)
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "side"])
            .current_dir(place.root())
            .env_clear()
            .envs(place.env())
            .output()
            .unwrap();
        assert!(!merge.status.success());
        assert_eq!(place.changes(), [("sub/a".to_owned(), Change::Unmerged)]);
        place.git(&["reset", "-q", "--hard"]);
        place.write("sub/a", "4\n");
        place.write("other", "");
        let below = Git::new(&place.root().join("sub"), &place.env(), "test");
        let changes = below.changes(&[], Untracked::Files).unwrap();
        assert_eq!(changes.into_iter().collect::<Vec<_>>(), [("a".to_owned(), Change::Edited)]);
        let within = place.ask().changes(&["sub"], Untracked::Files).unwrap();
        assert_eq!(within.into_keys().collect::<Vec<_>>(), ["sub/a"]);
    }
}

/// Checks that a file that git converts is reported as changed only after it has been edited.
#[test]
fn converted_files_are_compared_by_stat_data() {
    for git in gits() {
        let place = Place::new(&git);
        place.write(".gitattributes", "*.bin filter=upper\n*.txt text eol=crlf\n");
        place.git(&["config", "filter.upper.clean", "tr a-z A-Z"]);
        place.git(&["config", "filter.upper.smudge", "tr A-Z a-z"]);
        place.git(&["config", "filter.upper.required", "true"]);
        place.write("a.bin", "text\n");
        place.write("a.txt", "one\ntwo\n");
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "one"]);
        for file in ["a.bin", "a.txt"] {
            fs::remove_file(place.root().join(file)).unwrap();
        }
        place.git(&["checkout", "-q", "."]);
        assert_eq!(fs::read_to_string(place.root().join("a.txt")).unwrap(), "one\r\ntwo\r\n");
        assert_eq!(place.changes(), []);
        place.write("a.bin", "other\n");
        assert_eq!(place.changes(), [("a.bin".to_owned(), Change::Edited)]);
    }
}

#[test]
fn line_ending_conversion_is_no_change() {
    for git in gits() {
        let place = Place::new(&git);
        place.write("a", "one\ntwo\n");
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "one"]);
        place.git(&["config", "core.autocrlf", "true"]);
        place.write("a", "one\r\ntwo\r\n");
        assert_eq!(place.changes(), []);
        place.write("a", "one\r\nother\r\n");
        assert_eq!(place.changes().len(), 1);
    }
}

#[test]
fn every_index_format_is_read() {
    for git in gits() {
        for setting in [
            ["index.version", "4"],
            ["core.splitIndex", "true"],
            ["core.untrackedCache", "true"],
            ["feature.manyFiles", "true"],
            ["core.trustctime", "false"],
            ["core.checkStat", "minimal"],
        ] {
            let place = Place::new(&git);
            place.git(&["config", setting[0], setting[1]]);
            for number in 0..40 {
                place.write(&format!("folder/{number}"), "text\n");
            }
            place.git(&["add", "."]);
            place.git(&["commit", "-qm", "one"]);
            place.write("folder/7", "other\n");
            place.write("folder/new", "");
            place.git(&["add", "folder/7"]);
            place.write("folder/8", "other\n");
            place.agree(setting[0]);
        }
        let place = Place::new(&git);
        fs::remove_dir_all(place.root().join(".git")).unwrap();
        place.git(&["init", "-q", "--object-format=sha256", "-b", "main"]);
        place.write("a", "text\n");
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "one"]);
        place.write("a", "texs\n");
        place.agree("SHA-256 hashes");
        let file = NewFile { path: "b/c".into(), bytes: b"new".to_vec() };
        place.git(&["config", "user.name", "a"]);
        place.git(&["config", "user.email", "a@b"]);
        place.write("b/c", "new");
        place.ask().commit_files(&[file], "two").unwrap();
        place.agree("a commit with SHA-256 hashes");
    }
}

#[test]
fn commit_contains_only_the_named_files() {
    for git in gits() {
        let place = Place::new(&git);
        place.git(&["config", "user.name", "a"]);
        place.git(&["config", "user.email", "a@b"]);
        let file = |path: &str, text: &str| NewFile { path: path.into(), bytes: text.into() };
        place.write("rem/1.org", "one");
        let first = place.ask().commit_files(&[file("rem/1.org", "one")], "rem: first\n\nbody");
        assert!(first.unwrap().is_some(), "the first commit was not created");
        assert_eq!(place.git(&["log", "-1", "--format=%B"]).trim(), "rem: first\n\nbody");
        place.agree("after the first commit");
        place.write("staged", "mine");
        place.write("rem-x", "a name that sorts between a folder and what is in it");
        place.write("rem/deep/er/2.org", "two");
        place.git(&["add", "staged", "rem-x"]);
        place.git(&["commit", "-qm", "between", "--", "rem-x"]);
        let files = [file("rem/deep/er/2.org", "two"), file("rem/1.org", "changed")];
        place.write("rem/1.org", "changed");
        place.ask().commit_files(&files, "rem: second").unwrap();
        place.git(&["fsck", "--strict"]);
        let shown = place.git(&["show", "--name-only", "--format="]);
        assert_eq!(shown.lines().collect::<Vec<_>>(), ["rem/1.org", "rem/deep/er/2.org"]);
        assert_eq!(place.changes(), [("staged".to_owned(), Change::Added)]);
        place.agree("a file that the user staged remains staged");
        let again = place.ask().commit_files(&files, "rem: again").unwrap();
        assert_eq!(again, None, "unchanged files were committed");
        // In a subfolder of the repository, paths are relative to that folder.
        let below = Git::new(&place.root().join("rem"), &place.env(), "test");
        place.write("rem/3.org", "three");
        below.commit_files(&[file("3.org", "three")], "rem: third").unwrap();
        assert_eq!(place.git(&["show", "--name-only", "--format="]).trim(), "rem/3.org");
    }
}

#[test]
fn push_requires_one_safe_upstream() {
    for git in gits() {
        let place = Place::new(&git);
        place.write("a", "1");
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "one"]);
        let there = place.folder.path().join("there.git");
        let there = there.to_str().unwrap();
        place.git(&["init", "-q", "--bare", there]);
        let folder = place.folder.path().join("push");
        let cancel = Cancel::new().unwrap();
        let push = || place.ask().push(&folder, &place.env(), &cancel);
        let why = push().unwrap_err().to_string();
        assert!(why.starts_with("the branch main has no remote to push to"), "{why}");
        place.git(&["remote", "add", "origin", "../there.git"]);
        place.git(&["push", "-q", "-u", "origin", "main"]);
        place.write("a", "2");
        place.git(&["commit", "-qam", "two"]);
        push().unwrap();
        assert!(!folder.exists());
        let head = place.git(&["rev-parse", "HEAD"]);
        // A recording finds the commit that a run read by this question.
        let recording = InputRecording::recording(1 << 20);
        let read = place.ask().with_recording(recording.clone()).head().unwrap();
        assert_eq!(read.as_deref(), Some(head.trim()));
        assert_eq!(recording.data().reads[0].question, HEAD);
        assert_eq!(place.git(&["--git-dir", there, "rev-parse", "main"]), head);
        assert_eq!(place.git(&["rev-parse", "origin/main"]), head);
        // Git pushes to all addresses of a remote, or only to its push address if it has one.
        place.git(&["remote", "set-url", "--add", "origin", "../elsewhere.git"]);
        let why = push().unwrap_err().to_string();
        assert!(why.contains("it has several addresses"), "{why}");
        place.git(&["remote", "set-url", "--push", "origin", "../there.git"]);
        push().unwrap();
        place.git(&["config", "--unset-all", "remote.origin.pushurl"]);
        place.git(&["remote", "set-url", "--delete", "origin", "elsewhere"]);
        // An agent may have configured these addresses, in any form that git accepts.
        place.git(&["init", "-q", "--bare", "inside.git"]);
        let inside = place.root().join("inside.git").display().to_string();
        let other = place.folder.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("runner.toml"), "").unwrap();
        place.git(&["init", "-q", "--bare", other.join("x.git").to_str().unwrap()]);
        let other = other.join("x.git").display().to_string();
        for address in [
            "inside.git".to_owned(),
            inside.clone(),
            format!("file://{inside}"),
            format!("file://host{inside}"),
            format!("file://{}", inside.replace(".git", "%2egit")),
            format!("file:{inside}"),
            other,
        ] {
            place.git(&["remote", "set-url", "origin", &address]);
            let why = push().unwrap_err().to_string();
            assert!(why.contains("is inside a project or"), "{address}: {why}");
        }
        place.git(&["remote", "set-url", "origin", "ext::touch ran"]);
        let why = push().unwrap_err().to_string();
        assert!(why.contains("not allowed"), "{why}");
        place.git(&["checkout", "-q", "--detach"]);
        assert_eq!(push().unwrap_err().to_string(), "no branch is checked out");
    }
}

#[test]
fn git_inside_the_project_is_never_used() {
    for git in gits() {
        let place = Place::new(&git);
        let tools = place.root().join("tools");
        fs::create_dir(&tools).unwrap();
        let planted = tools.join("git");
        fs::write(&planted, format!("#!/bin/sh\ntouch {}/ran\n", place.root().display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&planted, mode).unwrap();
        let beside = place.folder.path().join("beside");
        std::os::unix::fs::symlink(&tools, &beside).unwrap();
        let linked = place.folder.path().join("linked");
        fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&planted, linked.join("git")).unwrap();
        let mut env = place.env();
        let path = format!(
            "{}:{}:{}:tools:.::{}",
            tools.display(),
            beside.display(),
            linked.display(),
            env["PATH"]
        );
        env.insert("PATH".into(), path);
        let ask = Git::new(&place.root(), &env, "test");
        assert_eq!(ask.head().unwrap(), None);
        assert!(!place.root().join("ran").exists());
        assert_eq!(ask.program().unwrap(), place.git);
        env.insert("PATH".into(), tools.display().to_string());
        let none = Git::new(&place.root(), &env, "test").head();
        assert!(matches!(none, Err(GitError::Spawn(_))), "{none:?}");
    }
}

#[test]
fn log_returns_one_line_per_commit() {
    for git in gits() {
        let place = Place::new(&git);
        for subject in ["one", "commit 0000000000000000000000000000000000000000", "three"] {
            place.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        }
        let ask = place.ask();
        let lines = ask.log("%s", &["HEAD", "--"]).unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!((&*lines[0], &*lines[2]), ("three", "one"));
        let head = ask.head().unwrap().unwrap();
        assert!(ask.leads_to("HEAD~2", &head).unwrap());
        assert!(!ask.leads_to(&head, "HEAD~1").unwrap());
        let blob = ask.ask(Read::CatFile, &["blob", "HEAD:none"]);
        assert!(matches!(blob, Err(GitError::Failed { .. })));
    }
}

/// Git follows a link when it appends to a log, and could write into a hook.
#[test]
fn linked_log_or_index_prevents_commit() {
    for git in gits() {
        let place = Place::new(&git);
        place.git(&["config", "user.name", "a"]);
        place.git(&["config", "user.email", "a@b"]);
        place.git(&["commit", "-q", "--allow-empty", "-m", "one"]);
        let dot_git = place.root().join(".git");
        fs::write(dot_git.join("hooks/pre-commit"), "#!/bin/sh\n").unwrap();
        let file = || NewFile { path: "a".into(), bytes: b"x".to_vec() };
        for (name, hard) in [
            ("logs/HEAD", false),
            ("logs/refs/heads/main", false),
            ("logs/HEAD", true),
            ("index", false),
        ] {
            let path = dot_git.join(name);
            let aside = dot_git.join("aside");
            let there = fs::rename(&path, &aside).is_ok();
            let hook = dot_git.join("hooks/pre-commit");
            match hard {
                true => fs::hard_link(&hook, &path).unwrap(),
                false => std::os::unix::fs::symlink(&hook, &path).unwrap(),
            }
            let head = place.git(&["rev-parse", "HEAD"]);
            let done = place.ask().commit_files(&[file()], "; touch owned;");
            assert!(matches!(done, Err(GitError::Linked { .. })), "{name}: {done:?}");
            assert_eq!(fs::read(&hook).unwrap(), b"#!/bin/sh\n", "{name}");
            assert_eq!(place.git(&["rev-parse", "HEAD"]), head);
            fs::remove_file(&path).unwrap();
            if there {
                fs::rename(&aside, &path).unwrap();
            }
        }
        place.ask().commit_files(&[file()], "; touch owned;").unwrap();
        let log = fs::read_to_string(dot_git.join("logs/HEAD")).unwrap();
        assert!(!log.contains("owned"), "{log}");
    }
}

/// Runner's own commit creates index entries without stat data.
#[test]
fn index_entry_without_stat_data_is_compared() {
    for git in gits() {
        let place = Place::new(&git);
        place.git(&["config", "user.name", "a"]);
        place.git(&["config", "user.email", "a@b"]);
        place.write(".gitattributes", "* text=auto\n");
        place.write("entry", "text\n");
        let file = NewFile { path: "entry".into(), bytes: b"text\n".to_vec() };
        place.ask().commit_files(&[file], "one").unwrap();
        let changed = |place: &Place| place.ask().changes(&["entry"], Untracked::No).unwrap();
        assert_eq!(changed(&place).len(), 0, "the committed file is reported as changed");
        place.write("entry", "");
        // The index is now newer than the file.
        place.git(&["add", ".gitattributes"]);
        assert_eq!(changed(&place).len(), 1, "the emptied file is not reported as changed");
    }
}

#[test]
fn shallow_clone_can_be_pushed() {
    for git in gits() {
        let place = Place::new(&git);
        for subject in ["one", "two", "three"] {
            place.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        }
        let there = place.folder.path().join("there.git");
        let there = there.to_str().unwrap();
        place.git(&["clone", "-q", "--bare", ".", there]);
        fs::remove_dir_all(place.root()).unwrap();
        let url = format!("file://{there}");
        let clone = place.root();
        let cloned = Command::new(&place.git)
            .args(["clone", "-q", "--depth", "1", &url, clone.to_str().unwrap()])
            .env_clear()
            .envs(place.env())
            .status()
            .unwrap();
        assert!(cloned.success());
        place.git(&["commit", "-q", "--allow-empty", "-m", "four"]);
        let folder = place.folder.path().join("push");
        let cancel = Cancel::new().unwrap();
        place.ask().push(&folder, &place.env(), &cancel).unwrap();
        let head = place.git(&["rev-parse", "HEAD"]);
        assert_eq!(place.git(&["--git-dir", there, "rev-parse", "main"]), head);
    }
}

#[test]
fn later_edit_of_a_kept_file_is_not_blamed_on_the_run() {
    let place = Place::new(&gits()[0]);
    let kept = place.root().join("runner.toml");
    place.write("runner.toml", "old");
    let at = Git::new(&place.root(), &place.env(), "run");
    for name in ["with-git", "without-git"] {
        let run_dir = place.folder.path().join(name);
        fs::create_dir(&run_dir).unwrap();
        let private = (name == "with-git").then(|| at.private(&run_dir.join("git")).unwrap());
        let private = private.flatten().map(Box::new);
        let write = vec![place.root()];
        let keep = vec![kept.clone()];
        let sandbox = Sandbox { git: private, write, keep, ..Sandbox::default() };
        let mut work = Work::open(&sandbox, &run_dir, &at, "run").unwrap();
        assert_eq!(work.close(&run_dir).unwrap(), WorkResult::default(), "{name}");
        // The process dies before the run is settled, and then the user edits the file.
        place.write("runner.toml", &format!("edited after {name}"));
        let mut again = Work::of_run(&run_dir).unwrap().unwrap();
        assert_eq!(again.close(&run_dir).unwrap(), WorkResult::default(), "{name}");
        place.write("runner.toml", "old");
    }
}

#[test]
fn unchanged_work_can_be_closed_twice() {
    for git in gits() {
        let place = Place::new(&git);
        fs::write(place.root().join("a"), "a").unwrap();
        place.git(&["add", "a"]);
        place.git(&["commit", "-q", "-m", "a"]);
        let run_dir = place.folder.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let at = Git::new(&place.root(), &place.env(), "run");
        let private = at.private(&run_dir.join("git")).unwrap().map(Box::new);
        let sandbox = Sandbox { git: private, ..Sandbox::default() };
        let mut work = Work::open(&sandbox, &run_dir, &at, "run").unwrap();
        assert_eq!(work.head(), Some(place.git(&["rev-parse", "HEAD"]).trim()));
        // Another process reads the start record, as after the death of this one.
        let mut again = Work::of_run(&run_dir).unwrap().unwrap();
        assert_eq!(work.close(&run_dir).unwrap(), WorkResult::default());
        assert!(!run_dir.join("git").exists());
        assert_eq!(again.close(&run_dir).unwrap(), WorkResult::default());
        // Without the renamed directory, a missing git directory is an error, because it may have
        // contained commits.
        let mut lost = Work::of_run(&run_dir).unwrap().unwrap();
        fs::remove_dir(run_dir.join("git-unchanged")).unwrap();
        assert!(lost.close(&run_dir).is_err());
        fs::write(run_dir.join("work.json"), "{").unwrap();
        assert!(Work::of_run(&run_dir).is_err());
        fs::remove_file(run_dir.join("work.json")).unwrap();
        assert!(Work::of_run(&run_dir).unwrap().is_none());
    }
}
