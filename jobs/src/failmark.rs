//! Writes failmarks: files in a project that mark a job as broken.
//!
//! A run that fails, times out, is lost or is deferred too often writes its job's failmark. The
//! next run that succeeds or is degraded removes it. A dream's failmark is at the path that its
//! contract defines (`dreams/.failed`). The failmark of any other job is under `.runner/failed/`. A
//! failmark must never contain a secret. Its text comes from redacted outcomes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::admission::DEFERRALS;
use runner_engine::files::{SMALL, beneath, read_in, write_atomic};
use runner_engine::ids::RunId;
use runner_engine::outcome::{Class, Outcome};
use serde::{Deserialize, Serialize};

use crate::JobSpec;
use crate::json::pretty;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failmark {
    pub at: Timestamp,
    pub job: String,
    /// The class of the failure, or the name of the outcome if it has no class.
    pub class: String,
    /// The error, with its context and its cause.
    pub message: String,
    /// Advice on how to fix the failure.
    pub hint: String,
    pub run_id: RunId,
}

/// How and when a run ended.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd<'a> {
    pub run: &'a RunId,
    pub outcome: &'a Outcome,
    /// The number of consecutive runs, up to and including this one, that were deferred because of
    /// unfinished work.
    pub deferrals: u32,
    pub at: Timestamp,
}

/// Returns the path of a job's failmark, relative to the project.
pub fn path(spec: &JobSpec) -> PathBuf {
    spec.kind.failure_marker().unwrap_or_else(|| of_job(&spec.name))
}

/// Returns the failmark path for a job whose kind's contract defines no other path.
pub fn of_job(name: &str) -> PathBuf {
    Path::new(".runner/failed").join(format!("{name}.json"))
}

/// Updates the failmark after a run.
///
/// A failed, timed-out or lost run writes the failmark. A succeeded or degraded run removes it. A
/// deferred run writes it if at least [`DEFERRALS`] consecutive runs were deferred because of
/// unfinished work, unless the failmark already describes a failure. Every other outcome leaves the
/// failmark unchanged.
///
/// # Errors
/// Returns an error if the file cannot be written or removed.
pub fn update(root: &Path, spec: &JobSpec, end: &RunEnd<'_>) -> io::Result<()> {
    let RunEnd { run, outcome, deferrals, at } = *end;
    let path = beneath(root, &path(spec))?;
    let mut message = outcome.why().unwrap_or_default().to_owned();
    let class = match outcome {
        Outcome::Deferred { .. } if deferrals >= DEFERRALS => {
            if read(root, spec).is_some_and(|mark| mark.class != outcome.as_str()) {
                return Ok(());
            }
            message = format!("deferred {deferrals} times in a row: {message}");
            outcome.as_str()
        }
        Outcome::Succeeded | Outcome::Degraded { .. } => {
            return remove(root, spec).map(|_| ());
        }
        Outcome::Failed { class, .. } => class.as_str(),
        Outcome::TimedOut { .. } | Outcome::Lost { .. } => outcome.as_str(),
        _ => return Ok(()),
    };
    let mark = Failmark {
        at,
        job: spec.name.clone(),
        class: class.to_owned(),
        message,
        hint: hint(outcome).to_owned(),
        run_id: run.clone(),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    write_atomic(&path, pretty(&mark).as_bytes(), 0o644).map_err(io::Error::other)
}

/// Removes a job's failmark, and returns whether it existed.
///
/// # Errors
/// Returns an error if the file cannot be removed.
pub fn remove(root: &Path, spec: &JobSpec) -> io::Result<bool> {
    match fs::remove_file(beneath(root, &path(spec))?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a job's failmark. Returns `None` if there is none or it is invalid.
pub fn read(root: &Path, spec: &JobSpec) -> Option<Failmark> {
    read_at(root, &path(spec))
}

/// Reads the failmark at `path` below `root`. Returns `None` if there is none or it is invalid.
pub fn read_at(root: &Path, path: &Path) -> Option<Failmark> {
    serde_json::from_slice(&read_in(root, path, SMALL).ok()?).ok()
}

/// Returns one line of advice for an outcome.
pub fn hint(outcome: &Outcome) -> &'static str {
    match outcome.class() {
        Some(Class::Auth) => {
            "log in or renew the key that the message names; if `runner status` shows the job as stopped, `runner jobs reset` starts it again"
        }
        Some(Class::NotInstalled) => "install the program or correct its path in runner.toml",
        Some(Class::Environment) => {
            "fix the cause that the message names, then run the job manually"
        }
        Some(Class::RateLimited) => {
            "wait until the backend's server or provider answers, or give the job another backend"
        }
        Some(Class::OverBudget) => {
            "if the message names a budget, wait for its next period, raise it, or grant more once with `runner budget grant`; otherwise, the provider's account has no credit left"
        }
        Some(Class::Silent) => "the backend may hang or be unreachable; the run's log has details",
        Some(Class::Malformed) => {
            "no part of the reply was used; the message names what was wrong with it"
        }
        Some(Class::ArtifactMissing) => {
            "the program ended without its declared artifacts; the run's log has its output"
        }
        Some(Class::Guard) => {
            "something else changed the same files, or a write was refused; check the files first"
        }
        Some(Class::Exit | Class::Crash) => "the run's log has the program's output",
        Some(Class::Internal) => "please report this with the output of `runner runs show`",
        None if matches!(outcome, Outcome::Deferred { .. }) => {
            "finish, commit or stash what the message names; the next run that succeeds removes this file"
        }
        None => "the run's log has details",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_engine::outcome::SkipReason;
    use runner_engine::store::Budget;
    use std::time::Duration;

    #[test]
    fn failure_writes_and_success_removes_failmark() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let spec = JobSpec {
            name: "tidy".into(),
            kind: Box::new(crate::command::CommandSpec::default()),
            backend: "builtin".into(),
            budget: Budget::default(),
            total: Duration::from_secs(1),
        };
        let now = Timestamp::UNIX_EPOCH;
        let run = RunId::new(now);
        let end = |outcome: &Outcome, deferrals| {
            update(root, &spec, &RunEnd { run: &run, outcome, deferrals, at: now }).unwrap();
        };
        let failed = Outcome::Failed { class: Class::Crash, why: "exit 3".into() };
        end(&failed, 0);
        let mark = read(root, &spec).unwrap();
        assert_eq!((mark.class.as_str(), mark.message.as_str()), ("crash", "exit 3"));
        end(&Outcome::skipped(SkipReason::Idle, "busy"), 0);
        assert!(read(root, &spec).is_some(), "a skip keeps the failmark");
        let deferred = Outcome::Deferred { until: now, why: "work is in progress: a.md".into() };
        end(&deferred, 3);
        assert_eq!(
            read(root, &spec).unwrap().class,
            "crash",
            "a deferral does not replace the failure"
        );
        end(&Outcome::Succeeded, 0);
        assert!(read(root, &spec).is_none());
        end(&deferred, 2);
        assert!(read(root, &spec).is_none(), "two deferrals write no failmark");
        end(&deferred, 3);
        let mark = read(root, &spec).unwrap();
        assert_eq!(mark.message, "deferred 3 times in a row: work is in progress: a.md");
    }
}
