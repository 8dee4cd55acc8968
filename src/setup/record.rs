//! What `setup` has done to this machine, and for which projects: `setup.json` in the state folder.
//!
//! It is written before anything else is touched and again at the end, so that whoever comes after a
//! crash knows what may be there: a file is ours when its text is one that stands here. Removing takes it
//! away last.

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
    /// What was put where, by host scheduler; more than one only while one takes the other's place.
    pub hosts: BTreeMap<SchedulerKind, InstalledHost>,
}

/// A project that it was set up in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServedProject {
    /// The minutes of the hour that its clocks ask for.
    pub minutes: BTreeSet<i8>,
    /// What its configuration file was before it was changed, and what it was changed to.
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

/// What was put in place for one host scheduler.
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
    /// The one of this state folder; an empty one where nothing was set up.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        match read_host(path, DOCUMENT) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Failure::configuration(format!("{}: {error}", path.display())).hint(
                    "take back manually what it names, move it away, then runner setup --apply",
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::environment(format!("{}: {error}", path.display()))),
        }
    }

    /// Whether anything needs a timer.
    pub fn is_wanted(&self) -> bool {
        self.everywhere || !self.projects.is_empty()
    }

    /// The minutes of each hour at which to tick: each quarter, and what projects ask for. Zones differ
    /// by whole quarters of an hour, so the same minutes do for all of them.
    pub fn minutes(&self) -> BTreeSet<i8> {
        let asked = self.projects.values().flat_map(|it| it.minutes.iter());
        [0, 15, 30, 45].iter().chain(asked).copied().collect()
    }
}
