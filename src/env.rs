//! Where the program stands: the only reader of the environment.
//!
//! Everything below gets what it needs as arguments. A variable that is set and cannot be used is
//! an error, never a silent fall-back.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the place that reads the environment"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::{SMALL, open_with, read_host, read_text_host, write_atomic};
use runner_engine::git::is_in_a_project;
use runner_engine::ids::{OccurrenceId, ProjectId, RunId};
use runner_engine::store::{CrashPoints, Store, StoreError};
use runner_engine::time::{Clock, ClockReading};
use runner_jobs::recording;
use sd_notify::NotifyState;

use crate::cli::Failure;
use crate::config::{OverrideScope, Overrides, Stack};
use crate::filesystem;
use crate::setup::environment;

/// What a child may see of our environment, besides what its backend names.
const ALLOWED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

/// What a service manager says to a daemon, and to nobody that the daemon starts.
pub const MANAGERS: &[&str] = &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Below the state folder: what is thrown away by the command that makes it.
pub const SCRATCH: &str = "scratch";

/// The surroundings of this process.
#[derive(Clone, Debug)]
pub struct Env {
    /// Database, locks, logs and caches.
    pub state: PathBuf,
    /// The user's own configuration file; it need not exist.
    pub user_config: PathBuf,
    /// Both clocks.
    pub clock: Clock,
    /// Where the command was called.
    pub here: PathBuf,
    /// Settings of this command that are in no file.
    pub overrides: Overrides,
    /// `--config`, as it was given: a run that is started is told the same.
    pub flags: Vec<String>,
}

impl Env {
    /// Reads the environment.
    pub fn read() -> Result<Self, Failure> {
        let here = env::current_dir().map_err(|error| {
            Failure::environment(format!("cannot tell the current folder: {error}"))
        })?;
        let clock =
            env::var_os("RUNNER_TEST_CLOCK").map_or(Clock::Host, |path| Clock::File(path.into()));
        Ok(Self {
            state: folder("XDG_STATE_HOME", ".local/state")?.join("runner"),
            user_config: folder("XDG_CONFIG_HOME", ".config")?.join("runner/config.toml"),
            clock,
            here,
            overrides: Overrides::of_environment(env::vars_os())?,
            flags: Vec::new(),
        })
    }

    /// With the settings of the command line, and with what they and the environment may change.
    pub fn with(mut self, flags: &[String], reach: OverrideScope) -> Result<Self, Failure> {
        self.overrides.add_flags(flags)?;
        self.overrides.reach = reach;
        self.flags = flags.to_vec();
        Ok(self)
    }

    /// Where a configuration is read.
    pub fn stack<'a>(&'a self, project: Option<&'a Path>) -> Stack<'a> {
        Stack {
            user: &self.user_config,
            project,
            overrides: &self.overrides,
        }
    }

    /// Reads both clocks.
    pub fn now(&self) -> Result<ClockReading, Failure> {
        self.clock
            .read()
            .map_err(|error| Failure::environment(error.to_string()))
    }

    /// Wall time.
    pub fn wall(&self) -> Result<Timestamp, Failure> {
        Ok(self.now()?.wall)
    }

    /// Where the database lies.
    pub fn store_path(&self) -> PathBuf {
        self.state.join("database.sqlite")
    }

    /// The database, for writing.
    pub fn store(&self) -> Result<Store, Failure> {
        self.private_state()?;
        self.known_damage()?;
        self.known_loss()?;
        Ok(Store::open(&self.store_path())?)
    }

    /// Where the failmark of the database lies.
    fn damage_mark(&self) -> PathBuf {
        self.state.join("damaged.json")
    }

    /// What is known to be damaged stays so until a check finds it whole, also where ordinary reads do
    /// not meet the damage. A mark of a file that is no longer there says nothing.
    fn known_damage(&self) -> Result<(), StoreError> {
        let Ok(text) = read_host(self.damage_mark(), SMALL) else {
            return Ok(());
        };
        let mark: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if mark["file"].as_str().is_none() || mark["file"].as_str() != self.which().as_deref() {
            return Ok(());
        }
        let said = mark["message"].as_str().unwrap_or_default();
        let said = said.lines().next().unwrap_or_default();
        // The error says the rest itself.
        let said = said
            .strip_prefix(&format!(
                "the database {} is damaged: ",
                self.store_path().display()
            ))
            .unwrap_or(said);
        Err(StoreError::Damaged {
            path: self.store_path(),
            why: format!("it was found damaged, and no check has found it whole since: {said}"),
        })
    }

    /// A database that is gone is never made anew by itself: all that was done would be done again, and
    /// after some days no backup would hold any of it.
    fn known_loss(&self) -> Result<(), StoreError> {
        let path = self.store_path();
        let holds = |folder: &Path, fits: fn(&str) -> bool| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .filter_map(|entry| entry.file_name().into_string().ok())
                .any(|name| fits(&name))
        };
        if path.exists() {
            return Ok(());
        }
        let backups = self.backups();
        let runs = self.state.join("runs");
        let mut what = Vec::new();
        let mut left = Vec::new();
        if holds(&backups, |name| {
            name.starts_with("database-") && name.ends_with(".sqlite")
        }) {
            what.push("a backup");
            left.push(backups);
        }
        if holds(&runs, |name| name.parse::<RunId>().is_ok()) {
            what.push("the log of a run");
            left.push(runs);
        }
        // Another process may have made it since, and one that is half restored is finished by opening.
        match Store::read(&path) {
            Err(StoreError::Missing { .. }) if !left.is_empty() => Err(StoreError::Lost {
                path,
                what: what.join(" and "),
                left,
            }),
            _ => Ok(()),
        }
    }

    /// What tells the database's file from another one at its place.
    fn which(&self) -> Option<String> {
        let data = fs::metadata(self.store_path()).ok()?;
        let born = data
            .created()
            .ok()
            .and_then(|at| Timestamp::try_from(at).ok());
        let born = born.map_or_else(String::new, |at| at.to_string());
        Some(format!("{} {} {born}", data.dev(), data.ino()))
    }

    /// Notes that the database was found damaged: nothing uses it from here on.
    pub fn mark_found(&self, what: &str) {
        let mark =
            serde_json::json!({ "class": "internal", "message": what, "file": self.which() });
        let _said_on_stderr_too =
            write_atomic(&self.damage_mark(), format!("{mark}\n").as_bytes(), 0o600);
    }

    /// Notes that the database is whole.
    pub fn unmark_damage(&self) {
        let _mostly_absent = fs::remove_file(self.damage_mark());
    }

    /// Where backups of the database lie unless another place is named.
    pub fn backups(&self) -> PathBuf {
        self.state.join("backups")
    }

    /// Where this process is to die, in tests that look at what it leaves.
    pub fn dying() -> CrashPoints {
        setting("RUNNER_TEST_DIE_AT")
            .and_then(|count| count.into_string().ok()?.parse().ok())
            .map_or_else(CrashPoints::default, CrashPoints::dying_after)
    }

    /// Makes the state folder, or makes it private: what lies below is read by nobody else, and
    /// nobody else can hold its locks.
    fn private_state(&self) -> Result<(), Failure> {
        if let Some(kind) = filesystem::shared(&self.state) {
            return Err(Failure::environment(format!(
                "{} lies on {kind}: its locks and its database hold only between processes of one machine",
                self.state.display()
            ))
            .hint("export XDG_STATE_HOME=/a/folder/on/a/local/disk"));
        }
        let cannot = |error: io::Error| {
            Failure::cannot_write(format!("cannot make {}: {error}", self.state.display()))
        };
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

    /// Leaves a failmark in the state folder when a command met damage, and removes one that is about
    /// a database that is no longer there. Whether the one that is there is whole again, only a whole
    /// look at it can tell: `runner db check`.
    pub fn mark_damage(&self, failure: Option<&Failure>) {
        if let Some(failure) = failure.filter(|failure| failure.is_damage()) {
            if self.known_damage().is_ok() {
                self.mark_found(&failure.to_string());
            }
            return;
        }
        let Ok(text) = read_host(self.damage_mark(), SMALL) else {
            return;
        };
        let mark: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let now = self.which();
        if failure.is_none() && now.is_some() && mark["file"].as_str() != now.as_deref() {
            self.unmark_damage();
        }
    }

    /// The database, for reading; `None` when there is none yet.
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

    /// The database, to look up which project a folder is; `None` when there is none yet. One of an older
    /// format is read in a copy, since the caller may be about to migrate it.
    pub fn store_to_identify(&self) -> Result<Option<Store>, Failure> {
        match self.store_to_read() {
            Err(StoreError::Older { .. }) => self.store_for_dry_run().map(Some),
            found => Ok(found?),
        }
    }

    /// The lock of the one daemon of this user.
    pub fn daemon_lock(&self) -> PathBuf {
        self.state.join("daemon.lock")
    }

    /// What the daemon says.
    pub fn daemon_log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// Where a project's caches lie.
    pub fn cache_folder(&self, project: &ProjectId) -> PathBuf {
        self.state.join("projects").join(project.as_str())
    }

    /// A copy of the database in memory, to go through runs in.
    pub fn store_for_dry_run(&self) -> Result<Store, Failure> {
        self.known_loss()?;
        Ok(Store::dry_run_copy(&self.store_path())?)
    }

    /// When the last tick was made, by whomever: one line, written by each.
    pub fn tick_stamp(&self) -> PathBuf {
        self.state.join("tick.stamp")
    }

    /// What jobs can be confined by, as a tick found it.
    pub fn sandbox_note(&self) -> PathBuf {
        self.state.join("sandbox.json")
    }

    /// Notes that a tick was made. What cannot be written makes a later look say too much, and nothing
    /// worse, so it is no error.
    pub fn note_tick(&self, now: Timestamp) {
        let line = format!("{}\n", now.strftime("%Y-%m-%dT%H:%M:%SZ"));
        let mut options = fs::File::options();
        options.create(true).write(true).truncate(false);
        let _said_by_other_writes = open_with(&mut options, self.tick_stamp())
            // In place and always as long: a reader never finds half of it.
            .and_then(|file| file.write_all_at(line.as_bytes(), 0));
    }

    /// When the last tick was made, if one ever was.
    pub fn last_tick(&self) -> Option<Timestamp> {
        read_text_host(self.tick_stamp(), SMALL)
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Where the user's configuration files of all programs lie.
    pub fn config_home(&self) -> PathBuf {
        let folder = self.config_folder();
        folder.parent().unwrap_or(&folder).to_owned()
    }

    /// Where our own lie.
    pub fn config_folder(&self) -> PathBuf {
        let folder = self.user_config.parent();
        folder.unwrap_or(Path::new("/")).to_owned()
    }

    /// The user's home folder.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let home = setting("HOME").map(PathBuf::from);
        home.filter(|home| home.is_absolute())
            .ok_or_else(|| Failure::environment("HOME is not set, or is no absolute path"))
    }

    /// What a host scheduler's tick works in.
    pub fn environment_file(&self) -> PathBuf {
        self.state.join("environment")
    }

    /// The keys that a person keeps for it.
    pub fn credentials_file(&self) -> PathBuf {
        self.config_folder().join(environment::CREDENTIALS)
    }

    /// What a host scheduler's ticks say, where the host itself does not keep it.
    pub fn timer_log(&self) -> PathBuf {
        self.state.join("timer.log")
    }

    /// The one before it.
    pub fn old_timer_log(&self) -> PathBuf {
        self.state.join("timer.log.old")
    }

    /// What `setup` has done.
    pub fn setup_note(&self) -> PathBuf {
        self.state.join("setup.json")
    }

    /// The lock of the one setup of this user.
    pub fn setup_lock(&self) -> PathBuf {
        self.state.join("setup.lock")
    }

    /// The name that tells our block in a crontab from that of another state folder.
    pub fn owner(&self) -> String {
        self.state.to_string_lossy().into_owned()
    }

    /// Makes the state folder.
    pub fn make_state(&self) -> Result<(), Failure> {
        self.private_state()
    }

    /// This program by a name that stays good: the one in `PATH` where that leads here, for what a
    /// link leads to may carry a version in its name; else its own file.
    pub fn program(&self) -> Result<PathBuf, Failure> {
        let own = env::current_exe()
            .map_err(|error| Failure::environment(format!("cannot find this program: {error}")))?;
        let real = fs::canonicalize(&own).unwrap_or_else(|_| own.clone());
        let named = find_program("runner", &setting("PATH").unwrap_or_default());
        Ok(named
            .filter(|path| fs::canonicalize(path).is_ok_and(|path| path == real))
            .unwrap_or(own))
    }

    /// Where a run is recorded.
    pub fn recording(&self, run: &RunId) -> PathBuf {
        self.state
            .join(recording::FOLDER)
            .join(recording::name_of(run))
    }

    /// A folder that is not there yet, for what is thrown away afterwards.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let own = format!("{name}-{}", std::process::id());
        self.state.join(SCRATCH).join(own)
    }

    /// The private folder of a run, for its log and its children's files.
    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.state.join("runs").join(run)
    }
}

/// Lets a test of the whole program kill this process at a chosen act (`RUNNER_TEST_KILL`).
pub fn arm_for_tests() {
    let acts = setting("RUNNER_TEST_KILL").and_then(|text| text.to_str()?.parse().ok());
    if let Some(acts) = acts {
        runner_engine::failpoint::arm(acts);
    }
}

/// The home folder.
pub fn folder_of_user() -> Result<PathBuf, Failure> {
    setting("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| Failure::environment("there is no home folder: HOME is not set"))
}

/// The environment that every child may have.
pub fn child_environment() -> BTreeMap<String, String> {
    named(ALLOWED.iter().copied())
}

/// The variables of these names that are set and are text.
pub fn named<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    names
        .filter_map(|name| Some((name.to_owned(), env::var(name).ok()?)))
        .collect()
}

/// Who is at the keyboard, by the name that they logged in with.
pub fn person() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| setting(name)?.into_string().ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "somebody".to_owned())
}

/// One of our own settings from the environment.
pub fn setting(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// A marker for children of a command that is no run: no other process may ever share it, for all
/// that carry it are ended together.
pub fn marker() -> Result<String, Failure> {
    Ok(OccurrenceId::new(
        Clock::Host
            .read()
            .map_err(|error| Failure::internal(error.to_string()))?
            .wall,
    )
    .to_string())
}

/// Tells the service manager that started us, if there is one.
pub fn tell_manager(words: &[NotifyState<'_>]) -> io::Result<()> {
    sd_notify::notify(words)
}

/// How often the service manager wants a sign of life, if it does.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Our own executable, to start `perform` with: this very program, also after its file was replaced
/// by another version.
pub fn executable() -> Result<PathBuf, Failure> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        return Ok(own);
    }
    env::current_exe()
        .map_err(|error| Failure::environment(format!("cannot find this program: {error}")))
}

/// The host's program of this name, to be started outside the sandbox: never one that lies in a
/// project, where an agent can have written it.
pub fn host_program(name: &str) -> Option<PathBuf> {
    let path = setting("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter_map(|folder| find_program(name, folder.as_os_str()))
        .find(|found| fs::canonicalize(found).is_ok_and(|real| !is_in_a_project(&real)))
}

/// A command that starts the host's program of this name; see [`host_program`].
///
/// # Errors
/// There is none.
pub fn host_command(name: &str) -> io::Result<Command> {
    let found = host_program(name).map(Command::new);
    found.ok_or_else(|| {
        let why = format!("there is no {name} in the folders of PATH that lie outside of projects");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

/// The first executable file of this name in a `PATH`; a path is looked up as it stands.
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

/// Becomes this program again with the same arguments but for `--environment FILE`, in the environment of
/// that file and the keys beside the configuration. Returns only why it could not.
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
    // What the host gives besides stays: a drop-in may hand over a key.
    let error = Command::new(executable()?)
        .arg0("runner")
        .args(arguments)
        .envs(keys)
        .envs(frozen)
        .exec();
    Err(Failure::environment(format!("cannot start again: {error}")))
}

/// A log that nobody reads does not grow for ever: at a megabyte it takes the place of the one before.
fn trim(log: &Path) {
    const MOST: u64 = 1 << 20;
    if fs::metadata(log).is_ok_and(|data| data.len() > MOST) {
        let _another_tick_did = fs::rename(log, log.with_file_name("timer.log.old"));
    }
}

/// Becomes this program with these arguments in nothing but this environment. Returns only why not.
pub fn become_in(arguments: &[&str], variables: &BTreeMap<String, String>) -> Failure {
    let start = || {
        let error = Command::new(executable()?)
            .arg0("runner")
            .args(arguments)
            .env_clear()
            .envs(variables)
            .exec();
        Err::<Infallible, _>(Failure::environment(format!("cannot start again: {error}")))
    };
    start().map_or_else(|failure| failure, |never| match never {})
}

fn folder(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = setting(variable) {
        let path = PathBuf::from(path);
        if path.is_absolute() {
            return Ok(path);
        }
        return Err(Failure::environment(format!(
            "{variable} must be an absolute path, it is {}",
            path.display()
        )));
    }
    let home = setting("HOME").ok_or_else(|| {
        Failure::environment(format!(
            "neither {variable} nor HOME is set, so there is no place for runner's files"
        ))
    })?;
    Ok(Path::new(&home).join(below_home))
}
