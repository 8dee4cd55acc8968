//! The part of a project's configuration needed for an overview of the project: limits, time zone,
//! paths of failure markers. It is stored in the project's database row so that an overview does
//! not need to parse TOML.
//!
//! The projection is written with the jobs, from the same files and in the same transaction, and is
//! therefore as fresh as the row's stamp. It is a cache: if it is missing or cannot be read, the
//! configuration itself is read. It must never contain settings that only a run needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_engine::alerts::AlertRules;
use runner_engine::policy::Overlap;
use runner_engine::store::Budget;
use runner_jobs::curator::CuratorSpec;
use runner_jobs::dream::DreamSpec;
use runner_jobs::failmark;
use runner_jobs::report::proposals::DreamJobs;
use runner_jobs::sessions::SessionsSpec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::LoadedProject;

/// The configuration values that the database stores for a project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Projection {
    /// Time zone for the project's nights and days.
    pub zone: String,
    /// Time zones of the jobs that use a different one, by job name.
    zones: BTreeMap<String, String>,
    /// The limits of a day.
    pub day: Budget,
    /// The limits of a night.
    pub night: Budget,
    /// Names of the jobs whose later scheduled times replace earlier ones.
    pub replacing: Vec<String>,
    /// The alert rules; absent in a projection written by an earlier build.
    #[serde(default)]
    pub alerts: Option<AlertRules>,
    /// Settings of the dream jobs, by job; absent in a projection written by an earlier build.
    #[serde(default)]
    pub dreams: DreamJobs,
    /// The `stat` data that the jobs' instruction files had when the user last accepted them, by
    /// path relative to the project; absent in a projection written by an earlier build.
    #[serde(default)]
    instructions: BTreeMap<String, String>,
    /// Settings of the enabled jobs that analyze sessions, by job; absent in a projection written
    /// by an earlier build.
    #[serde(default)]
    pub sessions: BTreeMap<String, SessionsSpec>,
    /// The curator's folder; the default folder in a projection written by an earlier build.
    #[serde(default = "curator_folder")]
    pub worker_dir: String,
    /// The folders for failure markers, relative to the project.
    folders: Vec<PathBuf>,
    /// Path of each job's failure marker, relative to the project, ordered by job name. The list is
    /// parsed only if one of the folders exists.
    marks: Box<RawValue>,
}

impl Projection {
    pub fn of(project: &LoadedProject) -> Self {
        let config = &project.config;
        let jobs = || config.jobs.iter();
        let marks: Vec<PathBuf> = jobs().map(|(_, job)| failmark::path(&job.spec)).collect();
        let mut folders: Vec<PathBuf> = marks.iter().map(|mark| folder(mark).into()).collect();
        folders.sort();
        folders.dedup();
        Self {
            zone: config.night.zone.clone(),
            zones: jobs()
                .filter(|(_, job)| job.zone != config.night.zone)
                .map(|(name, job)| (name.clone(), job.zone.clone()))
                .collect(),
            day: config.day,
            night: config.night.budget,
            replacing: jobs()
                .filter(|(_, job)| job.policy.overlap == Overlap::Replace)
                .map(|(name, _)| name.clone())
                .collect(),
            alerts: Some(config.notify.rules(&config.jobs, &config.night.zone)),
            dreams: jobs()
                .filter_map(|(name, job)| {
                    Some((name.clone(), job.spec.kind.of::<DreamSpec>()?.clone()))
                })
                .collect(),
            instructions: project.trust.instructions.clone(),
            sessions: jobs()
                .filter(|(_, job)| job.enabled)
                .filter_map(|(name, job)| {
                    Some((name.clone(), job.spec.kind.of::<SessionsSpec>()?.clone()))
                })
                .collect(),
            worker_dir: config.curator.spec.worker_dir.clone(),
            folders,
            marks: serde_json::value::to_raw_value(&marks).expect("paths of jobs are UTF-8"),
        }
    }

    /// Returns the form that the database stores.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a projection has string keys only")
    }

    /// Parses the form that the database stores. Returns `None` if it cannot be read, for example
    /// because another build wrote it.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Reads only the curator's folder, which is much cheaper than reading the whole projection.
    /// Returns `None` for a projection that cannot be read.
    pub fn read_curator_folder(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct CuratorFolder {
            #[serde(default = "curator_folder")]
            worker_dir: String,
        }
        serde_json::from_str(text).ok().map(|CuratorFolder { worker_dir }| worker_dir)
    }

    pub fn zone_of(&self, job: &str) -> &str {
        self.zones.get(job).unwrap_or(&self.zone)
    }

    /// Returns whether the instruction files have not changed since the user last accepted them.
    pub fn is_current(&self, root: &Path) -> bool {
        self.instructions.iter().all(|(path, known)| super::stat(&root.join(path)) == *known)
    }

    /// Returns the failure markers that exist.
    pub fn marks(&self, root: &Path) -> Vec<failmark::Failmark> {
        let there = |folder: &&PathBuf| folder.as_os_str().is_empty() || root.join(folder).is_dir();
        let there: Vec<&PathBuf> = self.folders.iter().filter(there).collect();
        if there.is_empty() {
            return Vec::new();
        }
        let marks: Vec<PathBuf> = serde_json::from_str(self.marks.get()).unwrap_or_default();
        marks
            .iter()
            .filter(|mark| there.iter().any(|it| **it == folder(mark)))
            .filter_map(|mark| failmark::read_at(root, mark))
            .collect()
    }
}

fn curator_folder() -> String {
    CuratorSpec::default().worker_dir
}

fn folder(mark: &Path) -> &Path {
    mark.parent().unwrap_or(Path::new(""))
}
