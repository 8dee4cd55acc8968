//! Tests that programs named by a project in git's configuration, attributes, hooks or links never
//! start when runner queries git, imports commits, commits or pushes.
//!
//! Each `EntryPoint` is a way for git to start a program, set up as an agent might do it. A canary
//! is a program whose file is watched. The kernel must open a program to start it, so the test
//! detects even a start without any effect. As a control, a test also runs git in the same setup
//! as a user would, to show that the canaries work.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

#[path = "planted/doors.rs"]
mod entry_points;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use runner_engine::git::changes::Untracked;
use runner_engine::git::commit::NewFile;
use runner_engine::git::private::{self, ImportRules};
use runner_engine::git::{Git, Read};
use runner_engine::process::{Cancel, Stdin};
use rustix::fs::inotify;
use tempfile::TempDir;

use entry_points::{ENTRY_POINTS, EntryPoint};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            // The sample hooks are not needed.
            false if entry.path().extension().is_some_and(|it| it == "sample") => {}
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

struct Place {
    folder: TempDir,
    git: PathBuf,
    watch: OwnedFd,
}

impl Place {
    fn new(git: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["project", "home", "canary"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC);
        let place = Self { folder, git: git.to_owned(), watch: watch.unwrap() };
        static TEMPLATE: OnceLock<TempDir> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            place.git(&["init", "-q", "-b", "main"]);
            place.git(&["config", "user.name", "a"]);
            place.git(&["config", "user.email", "a@b"]);
            fs::create_dir_all(place.root().join("ideas")).unwrap();
            fs::write(place.root().join("ideas/a.md"), "# A\n").unwrap();
            fs::write(place.root().join("a.rs"), "text\n").unwrap();
            place.git(&["add", "."]);
            place.git(&["commit", "-qm", "one"]);
            let template = tempfile::tempdir().unwrap();
            copy(&place.root(), template.path());
            template
        });
        copy(template.path(), &place.root());
        place
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn dot_git(&self) -> PathBuf {
        self.root().join(".git")
    }

    fn env(&self) -> BTreeMap<String, String> {
        let root = self.root();
        let git = self.git.parent().unwrap();
        // The project's tools come first in `PATH`, as direnv might set it up.
        let path = format!("{}/bin:{}:/usr/bin:/bin", root.display(), git.display());
        let home = self.folder.path().join("home").display().to_string();
        [("PATH".to_owned(), path), ("HOME".to_owned(), home)].into()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.git);
        command
            .args(args)
            .current_dir(self.root())
            .env_clear()
            .env("HOME", self.folder.path().join("home"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.git.parent().unwrap().display()))
            .env("GIT_TERMINAL_PROMPT", "0")
            .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "a")))
            .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "a@b")))
            .stdin(Stdio::null());
        command
    }

    fn git(&self, args: &[&str]) -> String {
        let done = self.command(args).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "git {args:?}: {error}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn input(&self, args: &[&str], text: &str) -> String {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    /// Sets up `entries` and starts watching their canaries.
    fn plant(&self, entries: &[&EntryPoint]) {
        let folder = self.folder.path().join("canary");
        for entry in entries {
            let canary = folder.join(entry.name);
            // The canary succeeds with any arguments.
            fs::write(&canary, "#!/bin/sh\nexit 0\n").unwrap();
            fs::set_permissions(&canary, fs::Permissions::from_mode(0o755)).unwrap();
            let canary = canary.to_str().unwrap();
            (entry.plant)(self, canary);
        }
        // The file is edited after the setups, because they use git, which would compare it.
        fs::write(self.root().join("a.rs"), "texs\n").unwrap();
        let config = fs::read_dir(self.root())
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path().join("config")))
            .find(|path| path.parent().is_some_and(|it| it.join("HEAD").exists()))
            .expect("the repository has a configuration");
        let mut text = fs::read_to_string(&config).unwrap();
        for entry in entries {
            text += &entry.config.replace("{}", folder.join(entry.name).to_str().unwrap());
        }
        fs::write(&config, text).unwrap();
        inotify::add_watch(&self.watch, &folder, inotify::WatchFlags::OPEN).unwrap();
    }

    /// Returns the canaries that were opened since the last call.
    fn started(&self) -> BTreeSet<String> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
        let mut found = BTreeSet::new();
        while let Ok(event) = reader.next() {
            if let Some(name) = event.file_name() {
                found.insert(name.to_string_lossy().into_owned());
            }
        }
        found
    }

    /// Imports a child's commit from a private git directory.
    fn import(&self, git: &Git) {
        let folder = tempfile::tempdir().unwrap();
        let commit =
            self.command(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "x"]).output();
        let commit = String::from_utf8(commit.unwrap().stdout).unwrap();
        // The test's own call to git may have started a canary.
        self.started();
        let at = folder.path().join("git");
        let Ok(Some(private)) = git.private(&at) else { return };
        let Ok(starts) = private::prepare(git, &private, &[]) else { return };
        fs::write(at.join("refs/heads/main"), commit).unwrap();
        let scratch = &folder.path().join("read");
        let rules =
            ImportRules { run: "run", scratch, advance: true, keep: &[], refuse: &|_| None };
        let _ = private::import(git, &private, &starts, &rules);
    }

    /// Runs runner's git queries, an import and a commit in the project and in its worktree. Returns
    /// the number of queries that succeeded.
    fn ask_everything(&self) -> usize {
        let mut done = 0;
        for root in [self.root(), self.root().join("tree")] {
            if !root.exists() {
                continue;
            }
            let git = Git::new(&root, &self.env(), "planted");
            self.import(&git);
            done += usize::from(git.top().is_ok());
            done += usize::from(git.head().is_ok());
            done += usize::from(git.changes(&[], Untracked::Folders).is_ok());
            done += usize::from(git.changes(&["ideas"], Untracked::Files).is_ok());
            done += usize::from(git.log("%H %s", &["--max-count=9", "HEAD", "--"]).is_ok());
            let commits = git.ask(Read::RevList, &["--max-count=9", "HEAD", "--"]);
            let diffs = git.diffs(
                commits.unwrap_or_default(),
                &["--always", "--name-status", "-z", "--format=tformat:%x00%H%x00%s%x00%b"],
            );
            done += usize::from(diffs.is_ok());
            done += usize::from(git.ask(Read::CatFile, &["blob", "HEAD:a.rs"]).is_ok());
            done += usize::from(
                git.ask(Read::ForEachRef, &["--format=%(push:remotename)", "refs/heads"]).is_ok(),
            );
            done += usize::from(git.ask(Read::ConfigValues, &["remote.origin.url"]).is_ok());
            let paths = Stdin::Bytes(b"ideas/a.md\0dreams/x\0".to_vec());
            done +=
                usize::from(git.ask_if_any(Read::CheckIgnore, &["-z", "--stdin"], paths).is_ok());
            done += usize::from(git.leads_to("HEAD~1", "HEAD").is_ok());
            let file = NewFile { path: "rem/1.org".into(), bytes: b"entry".to_vec() };
            done += usize::from(git.commit_files(&[file], "rem: entry").is_ok());
        }
        done
    }
}

fn gits() -> Vec<PathBuf> {
    let all = ["/usr/local/bin/git", "/usr/bin/git"].map(PathBuf::from);
    let mut seen = BTreeSet::new();
    let there = all.into_iter().filter(|path| path.is_file());
    let found: Vec<PathBuf> =
        there.filter(|path| seen.insert(fs::canonicalize(path).unwrap())).collect();
    assert!(!found.is_empty(), "these tests need git");
    found
}

/// Runs git as a user would. Across all entry points, this must start at least 20 canaries.
fn as_people_do(place: &Place) {
    let commands: [&[&str]; 12] = [
        &["status"],
        &["add", "-A"],
        &["log", "-p", "--show-signature", "--ext-diff", "--textconv"],
        &["-p", "log"],
        &["diff", "HEAD"],
        &["x"],
        &["commit", "-m", "two"],
        &["commit", "--allow-empty"],
        &["fetch"],
        &["cat-file", "-p", "HEAD^{tree}"],
        &["interpret-trailers", "--trailer", "x=1", "a.rs"],
        &["-C", "tree", "status"],
    ];
    for args in commands {
        let _ = place.command(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

#[test]
fn git_queries_start_no_planted_program() {
    let (mut chains, mut answered) = (0, 0);
    let mut open = BTreeSet::new();
    for git in gits() {
        for entry in ENTRY_POINTS {
            let place = Place::new(&git);
            place.plant(&[entry]);
            answered += place.ask_everything();
            let started = place.started();
            assert_eq!(started, BTreeSet::new(), "{} with {}", entry.name, git.display());
            chains += 1;
            as_people_do(&place);
            open.extend(place.started());
        }
    }
    // Only the queries in a repository that git refuses may fail.
    assert!(answered > 6 * chains, "{answered} queries of {chains} cases succeeded");
    println!(
        "{chains} cases, {answered} queries, {} programs that git itself started: {open:?}",
        open.len()
    );
    assert!(open.len() >= 20, "the canaries do not work: {open:?}");
}

#[test]
fn push_starts_no_project_program() {
    let (mut cases, mut pushed) = (0, 0);
    for git in gits() {
        for entry in ENTRY_POINTS {
            let place = Place::new(&git);
            let there = place.folder.path().join("there.git");
            place.git(&["init", "-q", "--bare", there.to_str().unwrap()]);
            place.git(&["remote", "add", "origin", there.to_str().unwrap()]);
            place.git(&["push", "-q", "-u", "origin", "main"]);
            place.plant(&[entry]);
            let asked = Git::new(&place.root(), &place.env(), "planted");
            let folder = place.folder.path().join("push");
            let done = asked.push(&folder, &place.env(), &Cancel::new().unwrap());
            (cases, pushed) = (cases + 1, pushed + usize::from(done.is_ok()));
            let started = place.started();
            assert_eq!(started, BTreeSet::new(), "{} with {}", entry.name, git.display());
        }
    }
    assert!(2 * pushed > cases, "only {pushed} of {cases} pushes succeeded");
}

/// Checks random combinations of [`ENTRY_POINTS`], with settings that change git's behaviour.
#[test]
fn generated_projects_start_no_planted_program() {
    const SETTINGS: [&str; 14] = [
        "[core]\nautocrlf = true\n",
        "[core]\nsplitIndex = true\n",
        "[core]\nuntrackedCache = true\n",
        "[core]\npreloadIndex = true\n[index]\nthreads = 8\n",
        "[index]\nversion = 4\n",
        "[feature]\nmanyFiles = true\n",
        "[core]\ncommitGraph = true\n[fetch]\nwriteCommitGraph = true\n",
        "[status]\nsubmoduleSummary = true\n",
        "[diff]\nsubmodule = log\nignoreSubmodules = none\n",
        "[submodule]\nrecurse = true\nfetchJobs = 4\n",
        "[core]\nsparseCheckout = true\n[index]\nsparse = true\n",
        "[i18n]\nlogOutputEncoding = UTF-16\ncommitEncoding = x\n",
        "[safe]\nbareRepository = all\n",
        "[trace2]\nnormalTarget = true\n",
    ];
    let scale: f64 =
        std::env::var("RUNNER_TEST_SCALE").ok().and_then(|it| it.parse().ok()).unwrap_or(0.03);
    let cases = ((2000.0 * scale) as u64).max(1);
    let begun = std::time::Instant::now();
    let gits = gits();
    for seed in 0..cases {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |most: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % most as u64) as usize
        };
        let place = Place::new(&gits[draw(gits.len())]);
        // These setups move or break the repository, so they are tested only individually, above.
        let usable: Vec<&EntryPoint> = ENTRY_POINTS
            .iter()
            .filter(|entry| !matches!(entry.name, "git-file" | "common-folder" | "linked-worktree"))
            .collect();
        let mut entries: Vec<&EntryPoint> = Vec::new();
        for _ in 0..=draw(6) {
            let entry = usable[draw(usable.len())];
            if !entries.iter().any(|known| known.name == entry.name) {
                entries.push(entry);
            }
        }
        // The entry point whose commit has no tree comes last, because the setups of the others
        // require the history.
        entries
            .sort_by_key(|entry| (entry.name.starts_with("lazy"), entry.name.starts_with("show")));
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        place.plant(&entries);
        let config = place.dot_git().join("config");
        let mut text = fs::read_to_string(&config).unwrap();
        for _ in 0..draw(4) {
            text += SETTINGS[draw(SETTINGS.len())];
        }
        fs::write(&config, text).unwrap();
        place.ask_everything();
        assert_eq!(place.started(), BTreeSet::new(), "seed {seed}: {names:?}");
    }
    println!("{cases} generated projects in {:.1} s", begun.elapsed().as_secs_f64());
}
