//! The record of what `setup` has done to this machine, and for which projects: `setup.json` in the
//! state folder.
//!
//! The record is written before anything else is changed, and again at the end. After a crash, it
//! therefore lists all items that may exist. A file is considered part of the setup if its contents
//! match one of the recorded versions. Removal deletes the record last.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SchedulerKind;
use crate::ui::Failure;
use runner_engine::files::{DOCUMENT, read_host};

/// Name of the systemd timer.
pub const TIMER: &str = "runner-tick.timer";
/// Name of the systemd service that keeps the daemon running.
pub const DAEMON: &str = "runner-daemon.service";

/// The whole record of a setup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetupRecord {
    /// Whether a setup was started and not completed, in which case items may be in their old or
    /// new state.
    pub pending: bool,
    /// Whether `setup` was run outside any project, for all projects.
    pub everywhere: bool,
    /// Whether the host keeps the daemon running instead of using a timer.
    #[serde(skip_serializing_if = "is_false")]
    pub service: bool,
    /// The projects in which `setup` was run, keyed by root.
    pub projects: BTreeMap<String, ServedProject>,
    /// The installed items, by host scheduler. It contains several schedulers only while one is
    /// replacing another.
    pub hosts: BTreeMap<SchedulerKind, InstalledHost>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The ticks triggered by a host scheduler.
#[derive(Clone, Debug, Default)]
pub struct HostTicks {
    /// The minutes past each hour at which a tick is triggered.
    pub minutes: BTreeSet<i8>,
    /// Whether the host instead keeps the daemon running, which does its own ticking.
    pub service: bool,
}

impl HostTicks {
    /// Returns the arguments of the command that the host runs.
    pub fn command(&self) -> Vec<String> {
        let words: &[&str] = if self.service { &["daemon"] } else { &["tick", "--quiet"] };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Returns the systemd unit that must be active.
    pub fn unit(&self) -> &'static str {
        if self.service { DAEMON } else { TIMER }
    }
}

/// A project in which `setup` was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServedProject {
    /// The minutes of the hour at which the project needs a tick.
    pub minutes: BTreeSet<i8>,
    /// The contents of its configuration file before and after `setup` changed it; `None` if
    /// `setup` did not change it.
    pub changed: Option<ChangedFile>,
}

/// A user's file that `setup` changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChangedFile {
    /// The contents before the change.
    pub before: String,
    /// Every version of the contents that the file may have after the change, unless another
    /// program changed it.
    pub after: BTreeSet<String>,
}

/// The items that were installed for one host scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstalledHost {
    /// The files, each with every version of its contents that runner may have written.
    pub files: BTreeMap<PathBuf, BTreeSet<String>>,
    /// The symbolic links, each with its target.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The folders that `setup` created, outermost first.
    pub folders: Vec<PathBuf>,
    /// Whether the user had no crontab before the setup.
    pub no_crontab_before: bool,
    /// Whether `setup` enabled lingering. Before that, the user's services stopped when the user's
    /// last session ended.
    pub lingers_for_us: bool,
}

impl SetupRecord {
    /// Reads the record at `path`. Returns an empty one if nothing was set up.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        match read_host(path, DOCUMENT) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Failure::configuration(format!("{}: {error}", path.display())).hint(
                    "undo the listed changes manually, rename the file, then run: runner setup --apply",
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::unreadable(path, error)),
        }
    }

    /// Returns whether anything needs a timer.
    pub fn is_wanted(&self) -> bool {
        self.everywhere || !self.projects.is_empty()
    }

    /// Returns the ticks that the host scheduler triggers.
    pub fn ticks(&self) -> HostTicks {
        HostTicks { minutes: self.minutes(), service: self.service }
    }

    /// Returns the minutes of each hour at which to tick: each quarter, and the minutes requested
    /// by projects.
    pub fn minutes(&self) -> BTreeSet<i8> {
        let asked = self.projects.values().flat_map(|it| it.minutes.iter());
        [0, 15, 30, 45].iter().chain(asked).copied().collect()
    }
}
