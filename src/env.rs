//! The program's environment. Only this module reads environment variables.

#![allow(clippy::disallowed_methods, reason = "only this module reads the environment")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::files::{SMALL, read_host, read_text_host, write_atomic};
use runner_engine::git::is_in_a_project;
use runner_engine::ids::{OccurrenceId, ProjectId, RunId};
use runner_engine::recover::RUNS;
use runner_engine::store::{Store, StoreError};
use runner_engine::time::{Clock, ClockReading};
use runner_jobs::{AgentFolders, agent_folders, recording};
use sd_notify::NotifyState;

use crate::config::{OverrideScope, Overrides, Stack};
use crate::filesystem;
use crate::setup::environment;
use crate::ui::Failure;

/// Variables that every child receives if they are set.
const ALLOWED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

/// Variables that a service manager sets for the daemon. The daemon's children must not receive
/// them.
pub const MANAGERS: &[&str] = &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The folder for temporary files, inside the state folder.
pub const SCRATCH: &str = "scratch";

/// The name of the file beside a demo's state folder that contains the path of its sample project.
const DEMO_ROOT: &str = "root";

/// A sample project, with the folder that contains its state folder.
struct Demo {
    root: PathBuf,
    folder: PathBuf,
    state: PathBuf,
}

/// The environment of this process.
#[derive(Clone, Debug)]
pub struct Env {
    /// The state folder, with the database, locks, logs and caches.
    pub state: PathBuf,
    /// The path of the user's configuration file, which need not exist.
    pub user_config: PathBuf,
    pub clock: Clock,
    /// The current folder.
    pub here: PathBuf,
    /// The settings from environment variables and from the command line.
    pub overrides: Overrides,
    /// The `--config` flags, which are passed on to the runs that this command starts.
    pub flags: Vec<String>,
}

/// Defines methods that return the path of a file or a folder in the state folder.
macro_rules! state_paths {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)+) => {
        impl Env {
            $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.state.join($file) })+
        }
    };
}

state_paths! {
    daemon_lock = "daemon.lock";
    daemon_log = "daemon.log";
    /// Returns the path of the file that contains the time of the last tick, and the number of
    /// ticks.
    tick_stamp = "tick.stamp";
    /// Returns the path of the file where a tick records which sandbox is available.
    sandbox_note = "sandbox.json";
    /// Returns the path of the saved environment for a host scheduler's ticks.
    environment_file = "environment";
    /// Returns the path of the log for a host scheduler without its own log.
    timer_log = "timer.log";
    old_timer_log = "timer.log.old";
    /// Returns the path of the file that records the actions of `setup`.
    setup_note = "setup.json";
    setup_lock = "setup.lock";
    /// Returns the default folder for database backups.
    backups = "backups";
    store_path = "database.sqlite";
    /// Returns the path of the file that marks the database as damaged.
    damage_mark = "damaged.json";
}

impl Env {
    /// Reads the environment.
    pub fn read() -> Result<Self, Failure> {
        let here = env::current_dir().map_err(|error| {
            Failure::environment(format!("cannot determine the current folder: {error}"))
        })?;
        let clock =
            setting("RUNNER_TEST_CLOCK").map_or(Clock::Host, |path| Clock::File(path.into()));
        Ok(Self {
            state: folder("XDG_STATE_HOME", ".local/state")?.join("runner"),
            user_config: folder("XDG_CONFIG_HOME", ".config")?.join("runner/config.toml"),
            clock,
            here,
            overrides: Overrides::of_environment(env::vars_os())?,
            flags: Vec::new(),
        })
    }

    /// Uses a demo's state folder if `folder` is in that demo's sample project.
    pub fn for_folder(mut self, folder: &Path) -> Self {
        if let Ok(folder) = fs::canonicalize(folder)
            && let Some(demo) = self.demos().into_iter().find(|demo| folder.starts_with(&demo.root))
        {
            self.state = demo.state;
        }
        self
    }

    /// Creates a state folder for a new demo with its sample project in `root`. Removes the state
    /// folders of demos whose sample projects no longer exist.
    pub fn for_demo(&self, root: &Path) -> Result<Self, Failure> {
        for demo in self.demos().iter().filter(|demo| !demo.root.exists()) {
            fs::remove_dir_all(&demo.folder)
                .map_err(|error| Failure::not_written(&demo.folder, error))?;
        }
        let folder = self.demo_folder().join(OccurrenceId::new(self.wall()?).to_string());
        let made = Self { state: folder.join("runner"), ..self.clone() };
        made.make_state()?;
        let mark = folder.join(DEMO_ROOT);
        write_atomic(&mark, root.as_os_str().as_bytes(), 0o600)
            .map_err(|error| Failure::not_written(&mark, whole(&error)))?;
        Ok(made)
    }

    /// Reports whether this is a demo environment.
    pub fn is_demo(&self) -> bool {
        self.state.with_file_name(DEMO_ROOT).is_file()
    }

    /// Returns the folder that contains the state folders of all demos.
    fn demo_folder(&self) -> PathBuf {
        self.state.with_file_name("runner-demo")
    }

    fn demos(&self) -> Vec<Demo> {
        let entries = fs::read_dir(self.demo_folder()).into_iter().flatten().flatten();
        let demo = |folder: PathBuf| {
            let root = PathBuf::from(read_text_host(folder.join(DEMO_ROOT), SMALL).ok()?);
            Some(Demo { root, state: folder.join("runner"), folder })
        };
        entries.filter_map(|entry| demo(entry.path())).collect()
    }

    /// Returns the variable that makes a child process of runner use the same state folder.
    pub fn state_variable(&self) -> (&'static str, PathBuf) {
        ("XDG_STATE_HOME", self.state.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// Adds the `--config` flags, and limits overrides to the settings in `reach`.
    pub fn with(mut self, flags: &[String], reach: OverrideScope) -> Result<Self, Failure> {
        self.overrides.add_flags(flags)?;
        self.overrides.reach = reach;
        self.flags = flags.to_vec();
        Ok(self)
    }

    /// Returns the layers of the configuration.
    pub fn stack<'a>(&'a self, project: Option<&'a Path>) -> Stack<'a> {
        Stack { user: &self.user_config, project, overrides: &self.overrides }
    }

    /// Expands a leading `~/` in a path from a setting.
    pub fn expanded(&self, path: &Path) -> Result<PathBuf, Failure> {
        match path.strip_prefix("~") {
            Ok(below) => self.folder().map(|folder| folder.join(below)),
            Err(_) => Ok(path.to_owned()),
        }
    }

    /// Reads the wall clock and the boot clock.
    pub fn now(&self) -> Result<ClockReading, Failure> {
        self.clock.read().map_err(|error| Failure::environment(error.to_string()))
    }

    pub fn wall(&self) -> Result<Timestamp, Failure> {
        Ok(self.now()?.wall)
    }

    /// Opens the database for writing. Creates the database and the state folder if necessary.
    pub fn store(&self) -> Result<Store, Failure> {
        self.make_state()?;
        self.known_damage()?;
        self.known_loss()?;
        Ok(Store::open(&self.store_path())?)
    }

    /// Returns an error if the database is marked as damaged. The mark remains until a full check
    /// finds the database intact or a restore replaces it, because ordinary reads might not touch
    /// the damaged part. A mark for a different file is ignored.
    fn known_damage(&self) -> Result<(), StoreError> {
        let Ok(text) = read_host(self.damage_mark(), SMALL) else { return Ok(()) };
        let mark: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if mark["file"].as_str().is_none() || mark["file"].as_str() != self.file_id().as_deref() {
            return Ok(());
        }
        let said = mark["message"].as_str().unwrap_or_default();
        let said = said.lines().next().unwrap_or_default();
        // `StoreError::Damaged` adds this prefix itself.
        let said = said
            .strip_prefix(&format!("the database {} is damaged: ", self.store_path().display()))
            .unwrap_or(said);
        Err(StoreError::Damaged {
            path: self.store_path(),
            why: format!("it was found damaged, and no check has found it intact since: {said}"),
        })
    }

    /// Returns an error if the database is missing but backups or run logs remain. A lost database
    /// is never recreated automatically, because runner would then repeat all finished work.
    fn known_loss(&self) -> Result<(), StoreError> {
        let path = self.store_path();
        let holds = |folder: &Path, fits: fn(&str) -> bool| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| fits(&name))
        };
        if path.exists() {
            return Ok(());
        }
        let backups = self.backups();
        let runs = self.state.join("runs");
        let mut what = Vec::new();
        let mut left = Vec::new();
        if holds(&backups, |name| name.starts_with("database-") && name.ends_with(".sqlite")) {
            what.push("a backup");
            left.push(backups);
        }
        if holds(&runs, |name| name.parse::<RunId>().is_ok()) {
            what.push("the log of a run");
            left.push(runs);
        }
        // Another process may have created the database since the check above, and a half-restored
        // database is not lost.
        match Store::read(&path) {
            Err(StoreError::Missing { .. }) if !left.is_empty() => {
                Err(StoreError::Lost { path, what: what.join(" and "), left })
            }
            _ => Ok(()),
        }
    }

    /// Returns the database file's device, inode and creation time, or `None` if the file does not
    /// exist.
    fn file_id(&self) -> Option<String> {
        let data = fs::metadata(self.store_path()).ok()?;
        let born = data.created().ok().and_then(|at| Timestamp::try_from(at).ok());
        let born = born.map_or_else(String::new, |at| at.to_string());
        Some(format!("{} {} {born}", data.dev(), data.ino()))
    }

    /// Marks the database as damaged, so that commands refuse to use it.
    pub fn mark_found(&self, what: &str) {
        let mark =
            serde_json::json!({ "class": "internal", "message": what, "file": self.file_id() });
        let _said_on_stderr_too =
            write_atomic(&self.damage_mark(), format!("{mark}\n").as_bytes(), 0o600);
    }

    pub fn unmark_damage(&self) {
        let _mostly_absent = fs::remove_file(self.damage_mark());
    }

    /// Creates the state folder, or makes an existing one private, so that other users cannot read
    /// its files or take its locks. Refuses a file system that is shared between machines.
    pub fn make_state(&self) -> Result<(), Failure> {
        if let Some(kind) = filesystem::shared(&self.state) {
            return Err(Failure::environment(format!(
                "{} is on {kind}: its locks and its database work only between processes of one machine",
                self.state.display()
            ))
            .hint("export XDG_STATE_HOME=/a/folder/on/a/local/disk"));
        }
        let cannot = |error: io::Error| Failure::not_made(&self.state, error);
        match fs::metadata(&self.state) {
            Ok(data) if data.permissions().mode() & 0o077 == 0 => Ok(()),
            Ok(_) => {
                fs::set_permissions(&self.state, fs::Permissions::from_mode(0o700)).map_err(cannot)
            }
            Err(_) => fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.state)
                .map_err(cannot),
        }
    }

    /// Marks the database as damaged if `failure` reports damage. After a success, removes a mark
    /// for a different file.
    pub fn mark_damage(&self, failure: Option<&Failure>) {
        if let Some(failure) = failure.filter(|failure| failure.is_damage()) {
            if self.known_damage().is_ok() {
                self.mark_found(&failure.to_string());
            }
            return;
        }
        let Ok(text) = read_host(self.damage_mark(), SMALL) else { return };
        let mark: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let now = self.file_id();
        if failure.is_none() && now.is_some() && mark["file"].as_str() != now.as_deref() {
            self.unmark_damage();
        }
    }

    /// Opens the database for reading, or returns `None` if it does not exist.
    pub fn store_to_read(&self) -> Result<Option<Store>, StoreError> {
        self.known_damage()?;
        match Store::read(&self.store_path()) {
            Ok(store) => Ok(Some(store)),
            Err(StoreError::Missing { .. }) => {
                self.known_loss()?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the database to identify a project, or returns `None` if it does not exist. A database
    /// in an older format is copied into memory and migrated there.
    pub fn store_to_identify(&self) -> Result<Option<Store>, Failure> {
        match self.store_to_read() {
            Err(StoreError::Older { .. }) => self.store_for_dry_run().map(Some),
            found => Ok(found?),
        }
    }

    pub fn cache_folder(&self, project: &ProjectId) -> PathBuf {
        self.state.join("projects").join(project.as_str())
    }

    pub fn store_for_dry_run(&self) -> Result<Store, Failure> {
        self.known_loss()?;
        Ok(Store::dry_run_copy(&self.store_path())?)
    }

    /// Returns the folder that contains the user's configuration for all programs, such as
    /// `~/.config`.
    pub fn config_home(&self) -> PathBuf {
        let folder = self.config_folder();
        folder.parent().unwrap_or(&folder).to_owned()
    }

    /// Returns the folder that contains the user's configuration for runner.
    pub fn config_folder(&self) -> PathBuf {
        let folder = self.user_config.parent();
        folder.unwrap_or(Path::new("/")).to_owned()
    }

    /// Returns the user's home folder, or an error if `HOME` is not an absolute path.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let home = setting("HOME").map(PathBuf::from);
        home.filter(|home| home.is_absolute())
            .ok_or_else(|| Failure::environment("HOME is not set, or is not an absolute path"))
    }

    /// Returns the path of the file that contains the user's keys for a host scheduler's ticks.
    pub fn credentials_file(&self) -> PathBuf {
        self.config_folder().join(environment::CREDENTIALS)
    }

    /// Returns the name that identifies this state folder's block in a crontab.
    pub fn owner(&self) -> String {
        self.state.to_string_lossy().into_owned()
    }

    /// Returns a stable path to this program. A `runner` in `PATH` that resolves to this program is
    /// preferred, because the resolved path may contain a version.
    pub fn program(&self) -> Result<PathBuf, Failure> {
        let own = env::current_exe()
            .map_err(|error| Failure::environment(format!("cannot find this program: {error}")))?;
        let real = fs::canonicalize(&own).unwrap_or_else(|_| own.clone());
        let named = find_program("runner", &setting("PATH").unwrap_or_default());
        Ok(named
            .filter(|path| fs::canonicalize(path).is_ok_and(|path| path == real))
            .unwrap_or(own))
    }

    pub fn recording(&self, run: &RunId) -> PathBuf {
        self.state.join(recording::FOLDER).join(recording::name_of(run))
    }

    /// Returns the path of a temporary folder for this process, without creating it.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let own = format!("{name}-{}", std::process::id());
        self.state.join(SCRATCH).join(own)
    }

    /// Returns the private folder of a run, for its log and its children's files.
    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.state.join(RUNS).join(run)
    }
}

/// Returns the variables that every child receives.
pub fn child_environment() -> BTreeMap<String, String> {
    named(ALLOWED.iter().copied())
}

/// Returns the values of those variables that are set and valid UTF-8.
pub fn named<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    names.filter_map(|name| Some((name.to_owned(), env::var(name).ok()?))).collect()
}

/// Returns the folders of the agents' programs.
pub fn agent_folders() -> AgentFolders {
    AgentFolders::of(&named(agent_folders::VARIABLES.into_iter()))
}

/// Returns the user's login name, or "somebody" if no variable contains one.
pub fn person() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| setting(name)?.into_string().ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "somebody".to_owned())
}

/// Returns the value of an environment variable, or `None` if it is unset or empty.
pub fn setting(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the shell command of the user's editor.
pub fn editor() -> String {
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(|name| setting(name)?.into_string().ok());
    named.unwrap_or_else(|| "vi".to_owned())
}

/// Creates a unique marker for the children of a command that is not a run. All processes with the
/// same marker are killed together.
pub fn marker() -> Result<String, Failure> {
    Ok(OccurrenceId::new(
        Clock::Host.read().map_err(|error| Failure::internal(error.to_string()))?.wall,
    )
    .to_string())
}

pub fn notify_manager(states: &[NotifyState<'_>]) -> io::Result<()> {
    sd_notify::notify(states)
}

/// Returns the service manager's watchdog timeout, if it set one.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Returns a path for starting this program again. On Linux, it refers to the running program even
/// after its file has been replaced.
pub fn executable() -> Result<PathBuf, Failure> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        return Ok(own);
    }
    program()
}

/// Returns the path of this program, for files that other programs read.
pub fn program() -> Result<PathBuf, Failure> {
    env::current_exe()
        .map_err(|error| Failure::environment(format!("cannot find this program: {error}")))
}

/// Finds a program in `PATH` that may be started outside the sandbox. A program inside a project is
/// skipped, because an agent may have written it.
pub fn host_program(name: &str) -> Option<PathBuf> {
    let path = setting("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter_map(|folder| find_program(name, folder.as_os_str()))
        .find(|found| fs::canonicalize(found).is_ok_and(|real| !is_in_a_project(&real)))
}

/// Creates a command for the program found by [`host_program`].
///
/// # Errors
/// Returns an error if there is no such program.
pub fn host_command(name: &str) -> io::Result<Command> {
    let found = host_program(name).map(Command::new);
    found.ok_or_else(|| {
        let why = format!("there is no {name} in the folders of PATH that are outside projects");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

/// Finds the first executable file called `name` in the absolute folders of `path`. A name that
/// contains a slash is checked as a path.
pub fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

/// Restarts this program with the environment saved in `file` and the user's keys. The arguments
/// are kept, except that `--environment` is removed. Returns only if the restart fails.
pub fn restart_in(file: &Path) -> Failure {
    restart(file).map_or_else(|failure| failure, |never| match never {})
}

fn restart(file: &Path) -> Result<Infallible, Failure> {
    let frozen = environment::read(file)?;
    let config = match (frozen.get("XDG_CONFIG_HOME"), frozen.get("HOME")) {
        (Some(folder), _) => PathBuf::from(folder),
        (None, Some(home)) => Path::new(home).join(".config"),
        (None, None) => {
            return Err(Failure::environment(format!(
                "{} has neither HOME nor XDG_CONFIG_HOME",
                file.display()
            ))
            .hint("runner setup --apply"));
        }
    };
    let keys = environment::credentials(&config.join("runner").join(environment::CREDENTIALS))?;
    let mut arguments = Vec::new();
    let mut given = env::args_os().skip(1);
    while let Some(argument) = given.next() {
        if argument == "--environment" {
            given.next();
        } else if !argument.as_bytes().starts_with(b"--environment=") {
            arguments.push(argument);
        }
    }
    trim(&file.with_file_name("timer.log"));
    // The host's other variables are kept, because a systemd drop-in may pass a key.
    let error =
        Command::new(executable()?).arg0("runner").args(arguments).envs(keys).envs(frozen).exec();
    Err(Failure::environment(format!("cannot restart runner: {error}")))
}

/// Rotates a log larger than 1 MiB to `timer.log.old`.
fn trim(log: &Path) {
    const MOST: u64 = 1 << 20;
    if fs::metadata(log).is_ok_and(|data| data.len() > MOST) {
        let _another_tick_did = fs::rename(log, log.with_file_name("timer.log.old"));
    }
}

/// Restarts this program with these arguments and only these variables. Returns only if the restart
/// fails.
pub fn become_in(arguments: &[&str], variables: &BTreeMap<String, String>) -> Failure {
    let start = || {
        let error = Command::new(executable()?)
            .arg0("runner")
            .args(arguments)
            .env_clear()
            .envs(variables)
            .exec();
        Err::<Infallible, _>(Failure::environment(format!("cannot restart runner: {error}")))
    };
    start().map_or_else(|failure| failure, |never| match never {})
}

fn folder(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = setting(variable) {
        let path = PathBuf::from(path);
        if path.is_absolute() {
            return Ok(path);
        }
        let what = format!("{variable} must be an absolute path, but is {}", path.display());
        return Err(Failure::environment(what));
    }
    let home = setting("HOME").ok_or_else(|| {
        Failure::environment(format!(
            "neither {variable} nor HOME is set, so there is no place for runner's files"
        ))
    })?;
    Ok(Path::new(&home).join(below_home))
}
