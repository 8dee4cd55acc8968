//! Reads and writes the worker's status (`logs/status.json`), and writes its audit log
//! (`logs/audit.md`).

use std::fs;
use std::io;

use jiff::Timestamp;
use runner_engine::files::write_atomic;
use runner_engine::process_id::ProcessIdentity;
use runner_text::redact::Redacted;
use serde::{Deserialize, Serialize};

use super::queue::{Worker, append, host};
use crate::json::pretty;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    Working,
    /// The worker has ended or is waiting.
    Idle,
}

/// The content of `logs/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub pid: u32,
    /// The process's start time, in clock ticks since boot.
    pub pid_start: u64,
    /// The id of the boot for which the process id is valid.
    #[serde(default)]
    pub boot: String,
    pub host: String,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
    pub state: WorkerState,
    /// The id of the job in progress, if any.
    pub current_job: Option<String>,
    /// The number of jobs that were started in the last 60 minutes.
    pub done_this_hour: u32,
    pub last_error: Option<String>,
}

impl WorkerStatus {
    /// Creates the status of a worker that is starting.
    pub fn new(owner: ProcessIdentity, now: Timestamp) -> Self {
        Self {
            pid: owner.pid,
            pid_start: owner.start,
            boot: owner.boot,
            host: host(),
            started_at: now,
            updated_at: now,
            state: WorkerState::Idle,
            current_job: None,
            done_this_hour: 0,
            last_error: None,
        }
    }

    /// Reads the worker's last status. Returns `None` if there is none or it cannot be read.
    pub fn read(worker: &Worker) -> Option<Self> {
        let text = super::queue::read(&worker.path("logs/status.json")).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// Returns whether the process that wrote the status is alive on this host. Returns `false` if
    /// it ran on another host.
    pub fn is_alive(&self) -> bool {
        let owner =
            ProcessIdentity { pid: self.pid, start: self.pid_start, boot: self.boot.clone() };
        self.host == host() && owner.is_alive()
    }

    pub(super) fn begin(&mut self, worker: &Worker, job: &str, now: Timestamp) {
        self.current_job = Some(job.to_owned());
        self.done_this_hour = worker.started_within_hour(now).unwrap_or_default();
        self.write(worker, WorkerState::Working, now);
    }

    pub(super) fn set(&mut self, worker: &Worker, state: WorkerState, now: Timestamp) {
        self.current_job = None;
        self.write(worker, state, now);
    }

    /// Writes the status. The file is intended only for users, so a failed write does not fail a
    /// job.
    fn write(&mut self, worker: &Worker, state: WorkerState, now: Timestamp) {
        (self.state, self.updated_at) = (state, now);
        let path = worker.path("logs/status.json");
        if let Err(error) = write_atomic(&path, pretty(self).as_bytes(), 0o644) {
            tracing::warn!(%error, "the worker's status could not be written");
        }
    }
}

/// Maximum length of a line in the audit log, in characters.
const LINE: usize = 2_000;

/// Appends lines to the audit log.
pub(super) fn audit(worker: &Worker, now: Timestamp, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let path = worker.path("logs/audit.md");
    let _held = worker.lock()?;
    let mut text = String::new();
    if fs::symlink_metadata(&path).is_err() {
        text.push_str("# What the curator did\n\n");
    }
    for line in lines {
        let line = Redacted::of(&line.replace(['\n', '\r'], " ")).head(LINE);
        text.push_str(&format!("- {now} {line}\n"));
    }
    append(&path, text.as_bytes())
}
