//! Gathers the curator's state without a model call.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::spec::KINDS;
use runner_backends::{OllamaHealth, ollama_health};
use runner_engine::process::find_program;
use runner_engine::schedule::Trigger;
use runner_jobs::curator::CuratorSpec;
use runner_jobs::curator::lint::vault;
use runner_jobs::curator::queue::{Depths, Worker};
use runner_jobs::curator::worker_status::WorkerStatus;
use serde::Serialize;
use serde_json::Value;

use crate::config::TriggerSpec;
use crate::env;
use crate::project::LoadedProject;

/// Time limit for an engine check.
pub const DEADLINE: Duration = Duration::from_millis(1_500);
/// The agent programs that can work on an event.
const RUNNERS: [&str; 2] = ["claude", "codex"];
/// Programs that connect to other agents' hosts.
pub const BRIDGES: [&str; 2] = ["openclaw", "oc-ask"];

#[derive(Clone, Debug, Serialize)]
pub struct CuratorStanding {
    pub schema_version: u32,
    /// The time at which the state was read.
    pub at: Timestamp,
    pub configured: Configured,
    pub health: OllamaHealth,
    pub worker: Folder,
    /// The notes folder.
    pub vault: Folder,
    /// The number of files in each folder of the queue.
    pub queue: Depths,
    /// The number of jobs that may still start within the hourly cap; `None` if the worker's folder
    /// is invalid or the record of starts cannot be read.
    pub left_this_hour: Option<u32>,
    /// The worker's status from `logs/status.json`, if it can be read.
    pub status: Option<Value>,
    /// Whether the process that wrote the status is alive.
    pub alive: bool,
    /// The paths of the agent programs that can work on an event, by name; `None` for a program
    /// that was not found.
    pub runners: BTreeMap<&'static str, Option<String>>,
    pub bridge: Bridge,
}

#[derive(Clone, Debug, Serialize)]
pub struct Configured {
    /// The kind or the name of the backend that runs the model.
    pub engine: String,
    pub model: String,
    /// The engine's address.
    pub endpoint: String,
    /// The job that processes the queue; `None` if no job is of kind curator.
    pub job: Option<String>,
    /// Whether the job is enabled.
    pub enabled: bool,
    /// Whether the job runs only manually.
    #[serde(skip)]
    pub manual: bool,
    /// The job's backend, if there is a job.
    pub backend: Option<String>,
    /// Maximum number of jobs that may start within 60 minutes.
    pub hourly_cap: u32,
    pub kinds: Vec<&'static str>,
    /// Whether the engine is a kind that runner supports or the name of a configured backend.
    pub engine_known: bool,
}

/// A configured folder and its state.
#[derive(Clone, Debug, Serialize)]
pub struct Folder {
    /// The path as configured.
    pub path: String,
    pub usable: bool,
    /// The reason why the folder cannot be used; `None` if it is usable.
    pub why: Option<String>,
}

/// The program that connects to other agents' hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Bridge {
    pub supported: bool,
    /// The path of the program, or the names of the missing programs.
    pub why: String,
}

/// Returns the job `curator` if it is of kind curator, else the first job of that kind.
pub fn job_of(here: &LoadedProject) -> Option<&str> {
    let is = |job: &crate::config::Job| job.spec.kind.of::<CuratorSpec>().is_some();
    let jobs = &here.config.jobs;
    if jobs.get("curator").is_some_and(is) {
        return Some("curator");
    }
    jobs.iter().find(|(_, job)| is(job)).map(|(name, _)| name.as_str())
}

pub fn gather(here: &LoadedProject, now: Timestamp) -> CuratorStanding {
    let curator = &here.config.curator;
    let spec = &curator.spec;
    let job = job_of(here);
    let configured_job = job.and_then(|name| here.config.jobs.get(name));
    let engine_known = KINDS.contains(&curator.engine.as_str())
        || here.config.backends.contains_key(&curator.engine);
    let health = match curator.engine.as_str() {
        "ollama" => ollama_health(&curator.endpoint, &curator.model, DEADLINE),
        other => OllamaHealth::NotAsked {
            why: format!("`runner backends check {other}` checks {other}"),
        },
    };
    let worker = Worker::of(&here.root, &spec.worker_dir);
    let there = worker.as_ref().is_ok_and(|worker| worker.folder().is_dir());
    let why = match &worker {
        Err(why) => Some(why.clone()),
        Ok(worker) if !there => Some(format!("{} does not exist", worker.folder().display())),
        Ok(_) => None,
    };
    let notes = vault(&here.root, &spec.vault_dir).err();
    let said = worker.as_ref().ok().and_then(WorkerStatus::read);
    let started = worker.as_ref().ok().and_then(|it| it.started_within_hour(now).ok());
    let path = env::child_environment();
    let path = path.get("PATH").map_or("", String::as_str);
    let find = |name: &str| {
        let found = find_program(Path::new(name), &here.root, path).ok();
        found.map(|found| found.display().to_string())
    };
    let bridge = BRIDGES.iter().find_map(|name| find(name));
    CuratorStanding {
        schema_version: 1,
        at: now,
        configured: Configured {
            engine: curator.engine.clone(),
            model: curator.model.clone(),
            endpoint: curator.endpoint.clone(),
            job: job.map(str::to_owned),
            enabled: configured_job.is_some_and(|job| job.enabled),
            manual: configured_job
                .is_some_and(|job| job.when == TriggerSpec::Clock(Trigger::Manual)),
            backend: configured_job.map(|job| job.spec.backend.clone()),
            hourly_cap: spec.hourly_cap,
            kinds: spec.kinds.iter().map(|kind| kind.as_str()).collect(),
            engine_known,
        },
        health,
        worker: Folder { path: spec.worker_dir.clone(), usable: why.is_none(), why },
        vault: Folder { path: spec.vault_dir.clone(), usable: notes.is_none(), why: notes },
        queue: worker.as_ref().map(Worker::depths).unwrap_or_default(),
        left_this_hour: started.map(|started| spec.hourly_cap.saturating_sub(started)),
        alive: said.as_ref().is_some_and(WorkerStatus::is_alive),
        status: said.and_then(|said| serde_json::to_value(said).ok()),
        runners: RUNNERS.iter().map(|name| (*name, find(name))).collect(),
        bridge: match bridge {
            Some(found) => Bridge { supported: true, why: found },
            None => Bridge {
                supported: false,
                why: format!("neither {} is in PATH", BRIDGES.join(" nor ")),
            },
        },
    }
}
