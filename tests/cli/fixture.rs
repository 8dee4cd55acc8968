//! Provides a temporary home, state folder and repository for a test.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[path = "open.rs"]
mod open;
pub use open::is_open;

/// The exit code and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn expect_text(self, words: &str) -> Self {
        assert!(self.out.contains(words) || self.err.contains(words), "no {words:?} in {self:?}");
        self
    }
}

/// An identity for git, and fixed values for settings that may differ between hosts.
const GIT_CONFIG: &str = "[user]\n\tname = a\n\temail = a@example.org\n\
    [commit]\n\tgpgSign = false\n[core]\n\tautocrlf = false\n[init]\n\tdefaultBranch = main\n";

pub struct Fixture {
    folder: tempfile::TempDir,
    /// The user that runs the program, if not the test's own user.
    pub uid: Option<u32>,
    /// The folder below [`Fixture::root`] that contains runner's state folder.
    pub state_home: PathBuf,
}

impl Fixture {
    /// Creates a home folder and a repository with one commit.
    pub fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// Creates the fixture in an existing folder.
    pub fn at(folder: tempfile::TempDir) -> Self {
        let fixture = Self { folder, uid: None, state_home: "state".into() };
        fs::create_dir_all(fixture.project()).unwrap();
        // Runner clears git's variables, so a file in the home folder sets the identity.
        fs::write(fixture.root().join(".gitconfig"), GIT_CONFIG).unwrap();
        // By default, late jobs are spread over a minute and messages are collected before they are
        // sent, so tests would have to wait.
        let config = fixture.root().join("config/runner/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        // Tests edit runner.toml directly. The variable that accepts these changes does not reach a
        // tick in a timer's environment, so this file accepts them too.
        let text =
            "[trust]\npaths = [\"/\"]\n[defaults]\nstagger = \"0s\"\n[notify]\nwindow = \"0s\"\n";
        fs::write(config, text).unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture.write("README.md", "# a project\n");
        fixture.git(&["add", "README.md"]);
        fixture.git(&["commit", "--quiet", "-m", "Begin"]);
        fixture
    }

    /// Creates a project and appends `toml` to its `runner.toml`.
    pub fn with(toml: &str) -> Self {
        let fixture = Self::new();
        fixture.run(&["init"]).ends(0);
        fixture.configure(toml);
        fixture
    }

    /// Appends to `runner.toml`.
    pub fn configure(&self, toml: &str) {
        let path = self.path("runner.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{text}\n{toml}")).unwrap();
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.project().join(below)
    }

    pub fn state(&self) -> PathBuf {
        self.root().join(&self.state_home).join("runner")
    }

    pub fn write(&self, below: &str, text: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    /// Returns a command that inherits only `PATH` from the test's environment.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.root())
            .env("XDG_STATE_HOME", self.root().join(&self.state_home))
            .env("XDG_CONFIG_HOME", self.root().join("config"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // Tests edit runner.toml directly, so their changes are accepted in advance.
            .env("RUNNER_CONFIG__TRUST__PATHS", "[\"/\"]")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    pub fn runner(&self, args: &[&str]) -> Command {
        let program = match self.uid {
            Some(_) => self.open_program(),
            None => PathBuf::from(env!("CARGO_BIN_EXE_runner")),
        };
        self.command(program.to_str().unwrap(), args)
    }

    /// Returns the path of a program that another user can execute: a copy, if the checkout is
    /// below a folder that is closed to other users, such as root's home folder.
    fn open_program(&self) -> PathBuf {
        let program = Path::new(env!("CARGO_BIN_EXE_runner"));
        if is_open(program) {
            return program.to_owned();
        }
        let copy = self.root().join("runner-program");
        if !copy.exists() {
            fs::copy(program, &copy).unwrap();
        }
        copy
    }

    pub fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.runner(args).output().unwrap())
    }

    /// Sets the fixture's clock. The file is replaced atomically, because a process that runs in
    /// the background may read it at any time.
    pub fn set_clock(&self, now: impl Display) {
        let draft = self.root().join("clock.new");
        fs::write(&draft, now.to_string()).unwrap();
        fs::rename(draft, self.root().join("clock")).unwrap();
    }

    /// Returns a command that reads the time from the fixture's clock.
    pub fn runner_with_clock(&self, args: &[&str]) -> Command {
        let mut command = self.runner(args);
        command.env("RUNNER_TEST_CLOCK", self.root().join("clock"));
        command
    }

    pub fn run_with_clock(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.runner_with_clock(args).output().unwrap())
    }

    /// Sets the fixture's clock and runs a command.
    pub fn run_at(&self, now: impl Display, args: &[&str]) -> CommandOutput {
        self.set_clock(now);
        self.run_with_clock(args)
    }

    pub fn git(&self, args: &[&str]) -> String {
        let output = self
            .command("git", args)
            .env("GIT_AUTHOR_DATE", "2026-11-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2026-11-01T00:00:00Z")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn store(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.state().join("database.sqlite")).unwrap()
    }

    pub fn count(&self, sql: &str) -> i64 {
        self.store().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Returns every file in the project's folder `below` with its content, except git's own files.
    pub fn tree(&self, below: &str) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.path(below)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let entry = entry.unwrap();
                let path = entry.path();
                if entry.file_name() == ".git" {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.project()).unwrap().display().to_string();
                    found.push((name, fs::read(&path).unwrap_or_default()));
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the files of the project, of runner's state and of the user that contain a text,
    /// relative to the fixture's folder.
    pub fn files_with(&self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let content = fs::read(&path).unwrap_or_default();
                    if content.windows(text.len()).any(|part| part == text.as_bytes()) {
                        let name = path.strip_prefix(self.root()).unwrap();
                        found.push(name.display().to_string());
                    }
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the live processes whose environment contains the marker of one of this fixture's
    /// runs.
    pub fn survivors(&self) -> Vec<String> {
        let state = self.state().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ).into_owned();
            if environ.contains("RUNNER_RUN=") && environ.contains(&state) {
                let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push(format!("{pid} {}", String::from_utf8_lossy(&words).replace('\0', " ")));
            }
        }
        found
    }
}

/// Prints a line to stderr directly, because the test harness captures `eprintln!`.
pub fn print_line(line: &str) {
    let _closed = writeln!(std::io::stderr(), "{line}");
}

/// Reports that one check was skipped because `program` is missing, and adds a line to the file
/// that `RUNNER_SKIPS` names (`tests/skips.sh` describes that file).
pub fn skip(program: &str, reason: &str) {
    print_line(&format!("skipped 1: {reason}"));
    if let Some(file) = std::env::var_os("RUNNER_SKIPS") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(format!("{program}\t{reason}\n").as_bytes()).unwrap();
    }
}

/// Scales the size of a heavy test by `RUNNER_TEST_SCALE`, which is 1 by default.
pub fn scaled(count: usize) -> usize {
    scaled_from(count, 1.0)
}

/// Scales the size of a test by `RUNNER_TEST_SCALE`, which is `ordinary` by default.
pub fn scaled_from(count: usize, ordinary: f64) -> usize {
    let scale: f64 = std::env::var("RUNNER_TEST_SCALE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let scaled = (count as f64 * scale).ceil() as usize;
    scaled.max(1)
}

/// Waits until a process has ended, up to `limit`. Returns whether it has ended.
pub fn ended_within(pid: u32, limit: Duration) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return true;
    };
    let mut polled = [PollFd::new(&handle, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: limit.as_secs().try_into().unwrap(),
        tv_nsec: limit.subsec_nanos().into(),
    };
    poll(&mut polled, Some(&limit)).unwrap() > 0
}

/// A small random number generator.
pub struct Random(pub u64);

impl Random {
    pub fn roll(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// Creates a generator with the seed in `RUNNER_TEST_SEED`, or with a seed from the process id,
    /// and prints the seed.
    pub fn new(test: &str) -> Self {
        let seed = std::env::var("RUNNER_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| u64::from(std::process::id()) * 1_000_003);
        print_line(&format!("{test}: RUNNER_TEST_SEED={seed}"));
        Self(seed)
    }
}
