//! What a look at a project needs of its configuration, kept beside the ledger so that looking reads no
//! TOML: caps, zone, where failmarks lie.
//!
//! One file a project in the state folder, made with the stamp of the files that it was read from. It
//! is a cache: where it is missing or of another stamp, the configuration itself is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::files::write_atomic;
use runner_engine::ids::ProjectId;
use runner_engine::ledger::Budget;
use runner_engine::policy::Overlap;
use runner_jobs::failmark;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projection {
    /// Of the files that it was read from.
    pub stamp: String,
    /// The zone of the project's nights and days.
    pub zone: String,
    /// The caps of a day.
    pub day: Budget,
    /// The caps of a night.
    pub night: Budget,
    /// Where the failmark of each job lies, below the project.
    pub marks: BTreeMap<String, PathBuf>,
    /// Jobs whose later moments replace earlier ones.
    pub replacing: Vec<String>,
}

impl Projection {
    /// Of a configuration that was read from files with this stamp.
    pub fn of(config: &Config, stamp: &str) -> Self {
        let jobs = || config.jobs.iter();
        Self {
            stamp: stamp.to_owned(),
            zone: config.night.zone.clone(),
            day: config.day,
            night: config.night.budget,
            marks: jobs()
                .map(|(name, job)| (name.clone(), failmark::path(&job.spec)))
                .collect(),
            replacing: jobs()
                .filter(|(_, job)| job.policy.overlap == Overlap::Replace)
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }

    /// The one that is kept, of whatever stamp.
    pub fn read(state: &Path, project: &ProjectId) -> Option<Self> {
        serde_json::from_slice(&fs::read(path(state, project)).ok()?).ok()
    }

    /// Keeps it; where that fails, looking is only slower.
    pub fn keep(&self, state: &Path, project: &ProjectId) {
        let path = path(state, project);
        let Some(folder) = path.parent() else { return };
        let text = serde_json::to_vec(self).expect("a projection has string keys only");
        let _only_slower = fs::create_dir_all(folder)
            .ok()
            .and_then(|()| write_atomic(&path, &text, 0o600).ok());
    }

    /// The failmarks that are there.
    pub fn marks(&self, root: &Path) -> Vec<failmark::Failmark> {
        // Most lie in one folder, and mostly that is not there.
        let mut folders: BTreeMap<&Path, bool> = BTreeMap::new();
        let mut found = Vec::new();
        for below in self.marks.values() {
            let folder = below.parent().unwrap_or(Path::new(""));
            let there = *folders
                .entry(folder)
                .or_insert_with(|| folder.as_os_str().is_empty() || root.join(folder).is_dir());
            if there {
                found.extend(failmark::read_at(&root.join(below)));
            }
        }
        found
    }
}

/// Where it lies.
pub fn path(state: &Path, project: &ProjectId) -> PathBuf {
    state.join("projections").join(format!("{project}.json"))
}
