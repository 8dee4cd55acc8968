//! The record of what `setup` has done to this machine, and for which projects: `setup.json` in the
//! state folder.
//!
//! It is written before anything else is changed and again at the end, so that after a crash the
//! next setup knows which items may exist: a file is ours if its text is one of those in the
//! record. Removal deletes the record last.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SchedulerKind;
use crate::cli::Failure;
use runner_engine::files::{DOCUMENT, read_host};

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetupRecord {
    /// Something was begun and not ended: what is there may be old or new.
    pub pending: bool,
    /// It was set up outside of any project, for all that there are.
    pub everywhere: bool,
    /// The projects that it was set up in, by their root.
    pub projects: BTreeMap<String, ServedProject>,
    /// The installed items, by host scheduler. There is more than one only while one replaces
    /// another.
    pub hosts: BTreeMap<SchedulerKind, InstalledHost>,
}

/// A project that it was set up in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServedProject {
    /// The minutes of the hour that its clocks ask for.
    pub minutes: BTreeSet<i8>,
    /// The texts of its configuration file before and after the change.
    pub changed: Option<ChangedFile>,
}

/// A file of somebody else's that was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChangedFile {
    /// Its text before.
    pub before: String,
    /// Each text that it may have since, if nobody else touched it.
    pub after: BTreeSet<String>,
}

/// The items that were installed for one host scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstalledHost {
    /// Files, each with every text of ours that it may have.
    pub files: BTreeMap<PathBuf, BTreeSet<String>>,
    /// Links, each with what it leads to.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Folders that were not there before, outermost first.
    pub folders: Vec<PathBuf>,
    /// The user had no crontab at all.
    pub no_crontab_before: bool,
    /// The user's services ended with their last session before.
    pub lingers_for_us: bool,
}

impl SetupRecord {
    /// Reads the record of this state folder. Returns an empty one if nothing was set up.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        match read_host(path, DOCUMENT) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Failure::configuration(format!("{}: {error}", path.display())).hint(
                    "undo manually what it lists, move it away, then run: runner setup --apply",
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::environment(format!("{}: {error}", path.display()))),
        }
    }

    /// Checks whether anything needs a timer.
    pub fn is_wanted(&self) -> bool {
        self.everywhere || !self.projects.is_empty()
    }

    /// Returns the minutes of each hour at which to tick: each quarter, and the minutes that
    /// projects ask for. Time zones differ by whole quarters of an hour, so the same minutes serve
    /// all of them.
    pub fn minutes(&self) -> BTreeSet<i8> {
        let asked = self.projects.values().flat_map(|it| it.minutes.iter());
        [0, 15, 30, 45].iter().chain(asked).copied().collect()
    }
}
