//! The sandbox of a child: the permissions that the kernel enforces, as plain data, and the
//! mechanisms that enforce them.
//!
//! ```text
//! Sandbox ──resolve──> Real ──┬─ bwrap     a view of the files: read-only, private /tmp, own pids
//!  (asked for)       (facts)├─ landlock  rights by path, TCP ports, signals, abstract sockets
//!                           └─ syscalls  what neither of them can refuse (seccomp)
//! ```
//!
//! A job names the paths that it may write, a backend adds the state folders of its own program,
//! and the launcher (`runner __launch`, [`crate::launch`]) sets up the sandbox before the program
//! starts. The launcher must never weaken the request: a part of the sandbox that cannot be set up
//! is an error of the launcher, not a weaker sandbox.
//!
//! **Facts that decided the design.** Landlock gives rights to a folder and all below it, and
//! cannot take any back: a path to be kept inside a writable folder is protected by giving the
//! rights to its neighbours one by one, and then nothing new can be made beside it. A mount can be
//! laid over that path instead, and over a missing path once something exists there; so with
//! bubblewrap the folder stays usable. Landlock does not cover changed modes, owners, times and
//! attributes, and, below ABI 9, sockets with a path; a read-only mount refuses the former, an
//! empty `/run` hides the latter. Hence the levels: with bubblewrap `full`, without it
//! `files-only`.

pub mod bwrap;
pub mod inert;
pub mod landlock;
pub mod placeholders;
pub mod probe;
pub mod resolve;
pub mod syscalls;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// How a child is started inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxedStart {
    /// The program that has the `__launch` command: `runner` itself, by absolute path.
    pub launcher: PathBuf,
    /// The sandbox of the program.
    pub sandbox: Sandbox,
}

/// The permissions of a child. It may read, but not write, every path that is not named.
///
/// Every path is absolute and real: a symbolic link anywhere in one is refused, because a process
/// that could put it there would choose what is opened to the next child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// `sandbox = "off"` is in the configuration: there is no sandbox at all, and every report
    /// states that.
    pub off: bool,
    /// Files that the child may write, and folders beneath which it may write. A missing path is
    /// not made.
    pub write: Vec<PathBuf>,
    /// Beneath `write`, and yet never to be written or made.
    pub keep: Vec<PathBuf>,
    /// Never to be seen: neither read nor written nor connected to, but for what `write` names
    /// beneath.
    pub hide: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
    /// A private folder for temporary files: its `TMPDIR`, and its `/tmp` where it has a view of its
    /// own. It is made if it is not there.
    pub temp: Option<PathBuf>,
    /// A folder that no child sees, where it is registered what stands in the place of kept paths
    /// that are not there; recovery clears that away after a death. Needed where one is missing.
    pub blockers: Option<PathBuf>,
    /// How much of the machine it may use.
    pub caps: ResourceLimits,
    /// How much may lie in a folder while the child runs; whoever started it looks now and then.
    pub quota: Option<FolderQuota>,
    /// The mechanisms of the sandbox.
    pub means: SandboxMechanism,
}

/// A folder, and how much may be in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderQuota {
    /// The folder.
    pub folder: PathBuf,
    /// The most, in bytes, of all that is beneath.
    pub bytes: u64,
}

/// How much of the machine one child may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The largest file that it can write, in bytes. Default: 1 GiB.
    pub file_bytes: u64,
    /// How many descriptors each of its processes may have. Default: 4096, or the host's own limit.
    pub open_files: u64,
    /// How many processes its user may have, if that is bounded here. Root is not held by it.
    pub processes: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { file_bytes: 1 << 30, open_files: 4096, processes: None }
    }
}

/// The mechanisms from which a sandbox is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxMechanism {
    /// All mechanisms that this host has.
    #[default]
    All,
    /// Landlock and seccomp only, as on a host without bubblewrap.
    Landlock,
    /// Bubblewrap and seccomp only, as on a kernel without Landlock.
    Bubblewrap,
}

impl Sandbox {
    /// Returns this sandbox with further places that may be written: a program's own state.
    #[must_use]
    pub fn and_write(mut self, places: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(places);
        self
    }
}

/// How surely all of a child's processes end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeControl {
    /// It has a control group of its own, which is killed as one.
    Cgroup,
    /// It has a process namespace of its own, which ends with its first process.
    Namespace,
    /// A process that loses its parent comes to the launcher, which kills it.
    Subreaper,
}

/// How much the sandbox covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Files, their attributes, sockets and processes.
    Full,
    /// The contents and names of files; see [`AppliedSandbox::gaps`].
    FilesOnly,
    /// Nothing: switched off in the configuration.
    Off,
}

/// The mechanisms on this host from which a sandbox can be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Available {
    /// How much they would cover; nothing where there is nothing to make them of.
    pub level: Option<SandboxLevel>,
    /// The mechanisms that a sandbox would use.
    pub parts: Vec<String>,
    /// Why bubblewrap, which lies there, is not among that.
    pub refused: Option<String>,
}

/// Returns how much a sandbox would cover on this host, and its mechanisms. Bubblewrap is tried for
/// this, once per process: a run reports what it really got, and the two must be the same.
pub fn available() -> &'static Available {
    static FOUND: OnceLock<Available> = OnceLock::new();
    FOUND.get_or_init(probe_now)
}

/// Probes the same now, without the earlier result.
pub fn probe_now() -> Available {
    level_of(bwrap::find().as_deref(), landlock::is_there())
}

fn level_of(bubblewrap: Option<&Path>, landlock: bool) -> Available {
    let refused = bubblewrap.and_then(|program| probe::probe(program).err());
    let bubblewrap = bubblewrap.is_some() && refused.is_none();
    let parts = [(bubblewrap, "bubblewrap"), (landlock, "landlock")];
    Available {
        level: match (bubblewrap, landlock) {
            (true, _) => Some(SandboxLevel::Full),
            (false, true) => Some(SandboxLevel::FilesOnly),
            (false, false) => None,
        },
        parts: parts
            .into_iter()
            .filter(|(there, _)| *there)
            .map(|(_, name)| name.to_owned())
            .collect(),
        refused,
    }
}

/// The sandbox that a child really got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSandbox {
    /// How its processes are held together.
    pub tree: TreeControl,
    /// How much its sandbox covers.
    pub sandbox: SandboxLevel,
    /// The mechanisms of the sandbox, with versions: `landlock 7`, `bubblewrap`, `seccomp`.
    pub made_of: Vec<String>,
    /// Whether it can reach the network.
    pub network: bool,
}

impl AppliedSandbox {
    /// Describes what the sandbox does not cover.
    pub fn gaps(&self) -> Vec<&'static str> {
        let mut gaps = Vec::new();
        match self.sandbox {
            SandboxLevel::Off => gaps.push("it can access everything that its user can access"),
            SandboxLevel::FilesOnly => gaps.extend([
                "modes, owners, times and attributes of its user's files can be changed anywhere",
                "no new files can be created next to a protected path, not even allowed ones",
                "Unix sockets with a path cannot be used at all",
                "it can see the names of hidden files and of other processes",
            ]),
            SandboxLevel::Full => {}
        }
        let landlock = self.made_of.iter().any(|part| part.starts_with("landlock"));
        if self.sandbox == SandboxLevel::Full && !landlock && self.network {
            gaps.push("it can connect to abstract sockets of the host");
        }
        if self.tree == TreeControl::Subreaper {
            gaps.push(
                "when runner and its launcher are killed together, a process that cleared its environment keeps running",
            );
        }
        gaps
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::FilesOnly => "files-only",
            Self::Off => "off",
        })
    }
}

impl fmt::Display for TreeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Namespace => "namespace",
            Self::Subreaper => "subreaper",
        })
    }
}

impl fmt::Display for AppliedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox {}", self.sandbox)?;
        if !self.made_of.is_empty() {
            write!(f, " ({})", self.made_of.join(", "))?;
        }
        let network = if self.network { "open" } else { "closed" };
        write!(f, ", network {network}, tree {}", self.tree)
    }
}

/// Why the sandbox cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A path that is no answer.
    #[error("{}: {why}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// The defect of the path.
        why: String,
    },
    /// There is nothing to make them of.
    #[error(
        "this host has no usable sandbox: {why}; install bubblewrap, use a kernel with Landlock (6.2 or later), or set sandbox = \"off\""
    )]
    Nothing {
        /// The mechanisms that were looked for.
        why: String,
    },
    /// The kernel refused.
    #[error("cannot set up the sandbox: {0}")]
    Kernel(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_at_hand_is_what_works_here() {
        // The first program does nothing and reports success, the second reports failure.
        let (works, fails) = (Path::new("/bin/true"), Path::new("/bin/false"));
        let full = |parts: &[&str]| Available {
            level: Some(SandboxLevel::Full),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            refused: None,
        };
        assert_eq!(level_of(Some(works), true), full(&["bubblewrap", "landlock"]));
        assert_eq!(level_of(Some(works), false), full(&["bubblewrap"]));
        let files_only = Available { level: Some(SandboxLevel::FilesOnly), ..full(&["landlock"]) };
        assert_eq!(level_of(None, true), files_only);
        let forbidden = level_of(Some(fails), true);
        assert!(forbidden.refused.is_some());
        let refused = None;
        assert_eq!(Available { refused, ..forbidden }, files_only);
        let nothing = level_of(Some(fails), false);
        assert_eq!((nothing.level, nothing.parts.len()), (None, 0));
        assert_eq!(level_of(None, false).level, None);
    }
}
