//! The specification of a child, and the checks performed before it is spawned.
//!
//! A child gets the environment in its specification and the variables that this crate adds. The
//! program is looked up in the `PATH` of that environment, so that errors can name the folders that
//! were searched. This module must never read runner's own environment, and never search the
//! current folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::cancel::Cancel;
use crate::sandbox::SandboxedStart;
use crate::sandbox::inert::Inert;

/// The environment variable that marks every process of a run, so that recovery can find the
/// process tree.
pub const MARKER_VARIABLE: &str = "RUNNER_RUN";

/// The specification of one program to run.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// A name to look up in the `PATH` of `env`, or a path. A relative path is resolved from `cwd`.
    pub program: PathBuf,
    /// The program's arguments. They must never contain a secret, because every user of the host
    /// can read them.
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// The program's environment. `RUNNER_RUN` is added to it. The launcher also adds `TMPDIR` and
    /// the proxy's variables, where they apply.
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    /// The limits on the child's time and output.
    pub limits: Limits,
    /// The value of `RUNNER_RUN`. This is the run's id; if a run has several children at the same
    /// time, a `/` and a distinguishing name follow the id.
    pub marker: String,
    /// The restrictions that the kernel enforces on the child.
    pub sandbox: ChildSandbox,
}

/// The restrictions that the kernel enforces on a child.
#[derive(Clone, Debug, Default)]
#[allow(clippy::large_enum_variant, reason = "only a few of them exist at any time")]
pub enum ChildSandbox {
    /// No restrictions apply. Only trusted programs that do not read a project may run this way.
    #[default]
    Off,
    /// The child can read everything but write only to the named folders, and can neither start
    /// another program nor use the network. Git runs this way.
    Inert(Inert),
    /// The launcher enforces the job's sandbox. All programs that a job starts run this way.
    Launched(SandboxedStart),
}

impl From<Option<SandboxedStart>> for ChildSandbox {
    fn from(sandbox_start: Option<SandboxedStart>) -> Self {
        sandbox_start.map_or(Self::Off, Self::Launched)
    }
}

impl ChildSandbox {
    pub(super) fn launched(&self) -> Option<&SandboxedStart> {
        match self {
            Self::Launched(sandbox_start) => Some(sandbox_start),
            Self::Off | Self::Inert(_) => None,
        }
    }
}

/// A child's standard input. The child always reaches end of file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// The child reads from `/dev/null`.
    #[default]
    Null,
    /// The child reads these bytes, and then reaches end of file.
    Bytes(Vec<u8>),
}

/// The limits on a child's output and on its time, which is measured on the boot-time clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time from the start to the first output. Default: no limit.
    pub first_byte: Option<Duration>,
    /// Maximum time between consecutive chunks of output. If `first_byte` is not set, it also
    /// limits the time from the start to the first output. Default: no limit.
    pub idle: Option<Duration>,
    /// Maximum total time until TERM is sent. Default: no limit.
    pub total: Option<Duration>,
    /// Time between TERM and KILL. Default: 10 s.
    pub term_to_kill: Duration,
    /// Time allowed for the child to exit after the observer has seen its result. Default: 10 s.
    pub exit_grace: Duration,
    /// How long to keep reading output after the child exits, if another process holds the pipe
    /// open. Default: 200 ms.
    pub drain: Duration,
    /// Maximum time for KILL to take effect. A child that is still alive afterwards is recorded as
    /// a survivor. Default: 10 s.
    pub kill_wait: Duration,
    /// Maximum number of bytes to keep from each stream. A child that writes more is stopped.
    /// Default: 64 MiB.
    pub output_cap: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_byte: None,
            idle: None,
            total: None,
            term_to_kill: Duration::from_secs(10),
            exit_grace: Duration::from_secs(10),
            drain: Duration::from_millis(200),
            kill_wait: Duration::from_secs(10),
            output_cap: 64 * 1024 * 1024,
        }
    }
}

/// Why a child was not started, or could not be watched and was killed.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program does not exist.
    #[error("no program {} {}", program.display(), ProgramSearch(searched))]
    NotFound {
        /// The program as requested.
        program: PathBuf,
        /// The folders of the child's `PATH`, or the one path that was requested.
        searched: Vec<PathBuf>,
    },
    /// The program exists but cannot be run.
    #[error("cannot run {}: {why}", program.display())]
    NotExecutable { program: PathBuf, why: String },
    /// The working folder cannot be used.
    #[error("cannot start in {}: {why}", cwd.display())]
    Cwd { cwd: PathBuf, why: String },
    /// The program's sandbox could not be set up.
    #[error("cannot sandbox {}: {why}", program.display())]
    Sandbox {
        program: PathBuf,
        /// The reason, with a hint.
        why: String,
    },
    /// The run was cancelled before the child started.
    #[error("cancelled before the start: {why}")]
    Cancelled { why: String },
    /// The operating system refused an operation that is needed to start or watch the program.
    #[error("cannot start {}: cannot {what}", program.display())]
    Io {
        program: PathBuf,
        /// The step that failed.
        what: &'static str,
        source: io::Error,
    },
}

struct ProgramSearch<'a>(&'a [PathBuf]);

impl std::fmt::Display for ProgramSearch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("(the child's PATH is empty)"),
            many if many.len() > 3 => write!(f, "(searched the {} folders of PATH)", many.len()),
            folders => {
                let folders: Vec<_> = folders.iter().map(|path| path.to_string_lossy()).collect();
                write!(f, "(searched {})", folders.join(", "))
            }
        }
    }
}

impl ChildSpec {
    /// Finds the program file for a preflight check, without starting it.
    ///
    /// # Errors
    /// Returns [`SpawnError::NotFound`] or [`SpawnError::NotExecutable`].
    pub fn find_program(&self) -> Result<PathBuf, SpawnError> {
        find_program(&self.program, &self.cwd, self.env.get("PATH").map_or("", String::as_str))
    }

    /// Performs all checks that are possible before a process exists.
    pub(super) fn check(&self, cancel: &Cancel) -> Result<PathBuf, SpawnError> {
        if let Some(why) = cancel.why() {
            return Err(SpawnError::Cancelled { why });
        }
        let cwd = |why: String| SpawnError::Cwd { cwd: self.cwd.clone(), why };
        match fs::metadata(&self.cwd) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(cwd("it is not a folder".to_owned())),
            Err(error) => return Err(cwd(error.to_string())),
        }
        self.find_program()
    }
}

/// Finds the file that `program` refers to for a child whose `PATH` is `path`. Relative and empty
/// entries in `path` are skipped, because they would refer to the child's current folder.
pub fn find_program(program: &Path, cwd: &Path, path: &str) -> Result<PathBuf, SpawnError> {
    if program.components().count() != 1 || program.is_absolute() {
        let file = cwd.join(program);
        return match runnable(&file) {
            ProgramCheck::Runnable => Ok(file),
            ProgramCheck::Not(why) => Err(SpawnError::NotExecutable { program: file, why }),
            ProgramCheck::Absent => {
                Err(SpawnError::NotFound { program: program.to_owned(), searched: vec![file] })
            }
        };
    }
    let folders: Vec<PathBuf> =
        path.split(':').map(PathBuf::from).filter(|folder| folder.is_absolute()).collect();
    let mut unfit = None;
    for folder in &folders {
        let file = folder.join(program);
        match runnable(&file) {
            ProgramCheck::Runnable => return Ok(file),
            ProgramCheck::Not(why) => {
                unfit.get_or_insert(SpawnError::NotExecutable { program: file, why });
            }
            ProgramCheck::Absent => {}
        }
    }
    Err(unfit.unwrap_or(SpawnError::NotFound { program: program.to_owned(), searched: folders }))
}

enum ProgramCheck {
    Runnable,
    Absent,
    Not(String),
}

fn runnable(file: &Path) -> ProgramCheck {
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return ProgramCheck::Absent,
            _ => return ProgramCheck::Not(error.to_string()),
        },
    };
    if !metadata.is_file() {
        return ProgramCheck::Not("it is not a file".to_owned());
    }
    match accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => ProgramCheck::Runnable,
        Err(_) => ProgramCheck::Not(format!("no permission (mode {:o})", metadata.mode() & 0o7777)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_only_in_child_path() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for (place, mode) in [(&a, 0o644), (&b, 0o755)] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("agent"), "#!/bin/sh\n").unwrap();
            fs::set_permissions(place.join("agent"), fs::Permissions::from_mode(mode)).unwrap();
        }
        let find = |program: &str, path: &str| find_program(program.as_ref(), folder.path(), path);
        let both = format!("{}:{}", a.display(), b.display());
        assert_eq!(find("agent", &both).unwrap(), b.join("agent"));
        assert_eq!(find("b/agent", "").unwrap(), b.join("agent"));
        let unfit = find("agent", a.to_str().unwrap()).unwrap_err();
        assert!(unfit.to_string().contains("no permission (mode 644)"), "{unfit}");
        let missing = find("nobody", &both).unwrap_err().to_string();
        assert!(missing.contains("no program nobody") && missing.contains("/b)"), "{missing}");
        let relative = find("agent", ":b:.").unwrap_err().to_string();
        assert!(relative.contains("PATH is empty"), "{relative}");
        assert!(matches!(find("./b", ""), Err(SpawnError::NotExecutable { .. })));
    }
}
