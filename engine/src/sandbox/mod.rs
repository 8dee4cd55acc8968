//! The sandbox of a child process: the permissions that the kernel enforces, as plain data, and the
//! mechanisms that enforce them.
//!
//! ```text
//! Sandbox ──resolve──> Resolved ┬─ bwrap     mount view: read-only, private /tmp, new pids
//! (requested)         Sandbox   ├─ landlock  rights by path, TCP ports, signals, abstract sockets
//!                               └─ syscalls  calls that neither of them can refuse (seccomp)
//! ```
//!
//! A job names the paths that it may write, and a backend adds the state folders of its program.
//! The launcher (`runner __launch`, [`crate::launch`]) sets up the sandbox before the program
//! starts. The launcher must never weaken the request: if it cannot set up any part of the sandbox,
//! it fails.
//!
//! **Facts behind the design.** Landlock grants rights to a folder and everything below it, and
//! cannot revoke any of them. To protect a path inside a writable folder, each of its siblings must
//! be granted rights separately, in which case no new file can be created next to it. A mount can
//! cover the protected path instead, and even a missing path once a placeholder exists there, so
//! with bubblewrap the folder is usable. Landlock does not control changes to modes, owners,
//! times and attributes, nor, below ABI 9, sockets with a path. A read-only mount refuses such
//! changes. An empty `/run` hides the sockets in it, and a mount over each socket elsewhere hides
//! that socket. The sandbox level is therefore `full` with bubblewrap and `files-only` without it.

pub mod bwrap;
pub mod inert;
pub mod kept;
pub mod landlock;
pub mod placeholders;
pub mod private_git;
pub mod probe;
pub mod resolve;
pub mod sockets;
pub mod syscalls;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use private_git::PrivateGit;

/// The launcher and sandbox used to start a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxedStart {
    /// The program that provides the `__launch` command: `runner` itself, as an absolute path.
    pub launcher: PathBuf,
    pub sandbox: Sandbox,
}

/// The permissions of a child. Every path that is not named here is readable but not writable.
///
/// Every path must be absolute and free of symbolic links. A link is refused because a process that
/// could create the link could choose which file the next child gets access to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Whether `sandbox = "off"` is set in the configuration. The child then runs without a
    /// sandbox, and every report notes this.
    pub off: bool,
    /// Files that the child may write, and folders beneath which it may write. Missing paths are
    /// not created.
    pub write: Vec<PathBuf>,
    /// Paths beneath `write` that must never be written or created.
    pub keep: Vec<PathBuf>,
    /// Kept paths that runner itself writes while a child runs. They are not compared after the
    /// child has exited.
    pub own: Vec<PathBuf>,
    /// The private git directory of a child that may commit.
    pub git: Option<Box<PrivateGit>>,
    /// Paths that must be hidden from the child, which cannot read, write or connect to them. Paths
    /// beneath them that are listed in `write` are exempt.
    pub hide: Vec<PathBuf>,
    /// Paths beneath `hide` that the child may still read. They are read-only.
    pub show: Vec<PathBuf>,
    /// Whether the child may use the network.
    pub network: bool,
    /// The only hosts that the child may reach while `network` is false, as `host:port` in lower
    /// case. It reaches them through the launcher's proxy, which requires a mount view.
    pub hosts: Vec<String>,
    /// A private folder for temporary files, which is created if it does not exist. It becomes the
    /// child's `TMPDIR`, and also its `/tmp` if the child has its own mount view.
    pub temp: Option<PathBuf>,
    /// A folder that is not visible to any child. The placeholders for missing kept paths are
    /// registered in it, so that recovery can remove the placeholders of a dead process. The folder
    /// is required if a kept path is missing.
    pub blockers: Option<PathBuf>,
    /// The limits on the child's resource usage.
    pub caps: ResourceLimits,
    /// A folder's disk quota while the child runs. The process that started the child checks it
    /// periodically.
    pub quota: Option<FolderQuota>,
    /// The mechanisms from which the sandbox is built.
    pub means: SandboxMechanism,
}

/// A folder and its disk quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderQuota {
    pub folder: PathBuf,
    /// Maximum total size of all files beneath the folder, in bytes.
    pub bytes: u64,
}

/// The limits on one child's resource usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Maximum size of a file that the child writes, in bytes. Default: 1 GiB.
    pub file_bytes: u64,
    /// Maximum number of open descriptors for each of the child's processes. Default: 4096. A lower
    /// limit on the host takes precedence.
    pub open_files: u64,
    /// Maximum memory of the child's process tree, in bytes. Default: three quarters of the
    /// machine's memory.
    pub memory: Option<u64>,
    /// Maximum number of processes and threads in the child's process tree. Default: 4096.
    pub processes: u64,
    /// Maximum total CPU time of the child's process tree. `None` sets no limit.
    pub cpu_time: Option<Duration>,
}

impl ResourceLimits {
    /// Returns the limits on the process tree that differ from the defaults, each with its value
    /// and the mechanism that enforces it. `kernel` indicates whether the kernel enforces the
    /// memory and process limits.
    pub(crate) fn stated(&self, kernel: (bool, bool)) -> Vec<AppliedLimit> {
        let by = |kernel| if kernel { LimitControl::Cgroup } else { LimitControl::Sampled };
        let memory =
            self.memory.map(|bytes| (format!("memory {} MB", bytes / 1_000_000), kernel.0));
        let processes = (self.processes != Self::default().processes)
            .then(|| (format!("processes {}", self.processes), kernel.1));
        let cpu_time =
            self.cpu_time.map(|limit| (format!("cpu time {} s", limit.as_secs()), false));
        let all = [memory, processes, cpu_time].into_iter().flatten();
        all.map(|(limit, kernel)| AppliedLimit { limit, by: by(kernel) }).collect()
    }
}

/// A configured limit on a child's process tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedLimit {
    /// The resource and the limit's value, for example `memory 200 MB`.
    pub limit: String,
    pub by: LimitControl,
}

/// The resource whose limit a process tree exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overuse {
    /// Memory, in bytes.
    Memory {
        limit: u64,
        /// The observed use.
        seen: u64,
    },
    /// Processes and threads.
    Processes {
        limit: u64,
        /// The observed number.
        seen: u64,
    },
    /// Processor time.
    CpuTime {
        limit: Duration,
        /// The observed time.
        seen: Duration,
    },
}

impl fmt::Display for Overuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit, seen } => write!(
                f,
                "it used {} MB of memory; max_memory allows {} MB",
                seen / 1_000_000,
                limit / 1_000_000
            ),
            Self::Processes { limit, seen } => {
                write!(f, "it had {seen} processes and threads; max_processes allows {limit}")
            }
            Self::CpuTime { limit, seen } => write!(
                f,
                "it used {:.1} s of processor time; max_cpu_time allows {} s",
                seen.as_secs_f64(),
                limit.as_secs()
            ),
        }
    }
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            file_bytes: 1 << 30,
            open_files: 4096,
            memory: None,
            processes: 4096,
            cpu_time: None,
        }
    }
}

/// The mechanisms from which a sandbox is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxMechanism {
    /// All mechanisms available on this host.
    #[default]
    All,
    /// Landlock and seccomp only, as on a host without bubblewrap.
    Landlock,
    /// Bubblewrap and seccomp only, as on a kernel without Landlock.
    Bubblewrap,
}

impl SandboxMechanism {
    /// Returns the mechanism that a test chooses with `RUNNER_TEST_SANDBOX`. Without the feature
    /// `fault-injection`, all mechanisms are always used.
    pub fn chosen(setting: impl Fn(&str) -> Option<OsString>) -> Self {
        let chosen = setting("RUNNER_TEST_SANDBOX").filter(|_| cfg!(feature = "fault-injection"));
        match chosen.is_some_and(|name| name == "landlock") {
            true => Self::Landlock,
            false => Self::All,
        }
    }
}

impl Sandbox {
    /// Returns the kept paths whose identity must be the same after the child has exited.
    pub fn watched(&self) -> Vec<PathBuf> {
        let git = self.git.iter().flat_map(|git| git.links.iter().chain([&git.at]));
        let own: Vec<&PathBuf> = self.own.iter().chain(git).collect();
        let within = |path: &&PathBuf| self.write.iter().any(|write| path.starts_with(write));
        let all = self.keep.iter().filter(within);
        all.filter(|path| !own.iter().any(|own| path.starts_with(own))).cloned().collect()
    }

    /// Returns whether the child may create internet sockets. A child with a list of hosts has its
    /// own network, whose only way out is the proxy.
    pub fn has_sockets(&self) -> bool {
        self.network || !self.hosts.is_empty()
    }
}

/// The mechanism that kills all of a child's processes. It determines how reliably they are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum TreeControl {
    /// The child has its own control group, which is killed as a whole.
    Cgroup,
    /// The child has its own PID namespace, which ends with its first process.
    Namespace,
    /// A process whose parent dies is reparented to the launcher, which kills it.
    Subreaper,
}

/// The mechanism that enforces a limit on a child's process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum LimitControl {
    /// The kernel enforces the limit on the child's control group.
    Cgroup,
    /// The launcher samples the process tree, and kills it if it exceeds the limit. Between two
    /// samples, the tree can exceed the limit.
    Sampled,
}

/// The extent of the sandbox's protection, strongest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum SandboxLevel {
    /// Files, their attributes, sockets and processes are protected.
    Full,
    /// The contents and names of files are protected; see [`AppliedSandbox::gaps`].
    FilesOnly,
    /// Nothing is protected: the sandbox is switched off in the configuration.
    Off,
}

/// The mechanisms on this host from which a sandbox can be built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Available {
    /// The protection that a sandbox would provide; `None` if the host has no mechanism for one.
    pub level: Option<SandboxLevel>,
    /// The mechanisms that a sandbox would use.
    pub parts: Vec<String>,
    /// Why an installed bubblewrap cannot be used.
    pub refused: Option<String>,
}

/// Returns the protection that a sandbox would provide on this host, and the mechanisms it would
/// use. The first call in a process runs bubblewrap to test it, because this answer must match the
/// sandbox that a run reports later.
pub fn available() -> &'static Available {
    static FOUND: OnceLock<Available> = OnceLock::new();
    FOUND.get_or_init(probe_now)
}

/// Probes again, ignoring the saved result of [`available`].
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

/// The sandbox that was actually applied to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSandbox {
    pub tree: TreeControl,
    pub sandbox: SandboxLevel,
    /// The mechanisms of the sandbox, such as `bubblewrap`, `landlock 7` and `seccomp`.
    pub made_of: Vec<String>,
    pub network: bool,
    /// The only hosts that the child could reach while `network` is false, as `host:port`.
    pub hosts: Vec<String>,
    /// The hosts that the child requested, available once it has exited.
    pub requested: Vec<RequestedHost>,
    /// The configured limits on the process tree.
    pub limits: Vec<AppliedLimit>,
}

/// A host that a child requested from the launcher's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedHost {
    /// The host and port as `host:port`.
    pub host: String,
    /// Whether the job lists the host.
    pub allowed: bool,
    pub count: u64,
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
        let landlock = self.made_of.iter().find_map(|part| part.strip_prefix("landlock "));
        let abi = landlock.and_then(|abi| abi.parse::<u32>().ok()).unwrap_or(0);
        if self.sandbox == SandboxLevel::Full && abi < landlock::SCOPES && self.network {
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

impl AppliedSandbox {
    fn describe_requested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (allowed, what) in [(true, "requested"), (false, "refused")] {
            let hosts = self.requested.iter().filter(|it| it.allowed == allowed);
            let hosts = hosts.map(|it| format!("{} {}×", without_port(&it.host), it.count));
            let hosts: Vec<String> = hosts.collect();
            if !hosts.is_empty() {
                write!(f, "; {what} {}", hosts.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Returns a host, without its port if the port is the default one.
fn without_port(host: &str) -> &str {
    host.strip_suffix(":443").unwrap_or(host)
}

impl fmt::Display for AppliedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sandbox)?;
        if !self.made_of.is_empty() {
            write!(f, " ({})", self.made_of.join(", "))?;
        }
        match (self.network, self.hosts.as_slice()) {
            (true, _) => f.write_str(", network open")?,
            (false, []) => f.write_str(", network closed")?,
            (false, hosts) => {
                let hosts: Vec<&str> = hosts.iter().map(|host| without_port(host)).collect();
                write!(f, ", network only {}", hosts.join(" "))?;
                self.describe_requested(f)?;
            }
        }
        write!(f, ", tree {}", self.tree)?;
        for (at, limit) in self.limits.iter().enumerate() {
            let separator = if at == 0 { ", limits: " } else { ", " };
            write!(f, "{separator}{} {}", limit.limit, limit.by)?;
        }
        Ok(())
    }
}

/// Why the sandbox cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// One of the sandbox's paths is invalid.
    #[error("{}: {why}", path.display())]
    Path { path: PathBuf, why: String },
    /// The host has no usable sandbox mechanism.
    #[error(
        "this host has no usable sandbox: {why}; install bubblewrap, use a kernel with Landlock (6.2 or later), or set sandbox = \"off\""
    )]
    Nothing {
        /// The mechanisms that are missing.
        why: String,
    },
    /// The kernel refused the sandbox.
    #[error("cannot set up the sandbox: {0}")]
    Kernel(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_level_depends_on_working_mechanisms() {
        // `/bin/true` acts as a working bubblewrap, and `/bin/false` as one that fails.
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
