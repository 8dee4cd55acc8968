//! `runner jobs reset`: resets a job's failures.
//!
//! This module must never change the history of a job's runs.

use runner_engine::admission::stopped;
use runner_jobs::failmark;
use schemars::JsonSchema;
use serde::Serialize;

use crate::daemon::client;
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct Resets(Vec<ResetJob>);

#[derive(Debug, JsonSchema, Serialize)]
struct ResetJob {
    job: String,
    /// The number of consecutive failures that were reset.
    failures: u32,
    /// Whether the circuit breaker kept schedules from starting the job.
    was_stopped: bool,
    /// Whether a failure marker was removed.
    failmark: bool,
    /// The number of the job's alerts that the reset ended.
    alerts: u32,
}

impl View for Resets {
    fn print(&self, ui: Ui) {
        if self.0.is_empty() {
            ui.info("nothing to acknowledge");
        }
        for one in &self.0 {
            let failures = show::count(one.failures.into(), "consecutive failure");
            let text = match (one.failures, one.failmark, one.was_stopped) {
                (0, false, _) if one.alerts > 0 => "open alerts closed".to_owned(),
                (0, false, _) => "nothing to acknowledge".to_owned(),
                (0, true, _) => "failure marker removed".to_owned(),
                (_, _, true) => {
                    format!("acknowledged {failures}; the schedule starts the job again")
                }
                (_, _, false) => format!("acknowledged {failures}"),
            };
            ui.info(&format!("{}: {text}", one.job));
        }
    }
}

/// Removes the failure marker, resets the failures and ends the alerts of `job`, or of all the
/// project's jobs if `job` is `None`.
///
/// # Errors
/// Returns an error and changes nothing if a job is unknown, or if the user has not accepted its
/// settings, which name the failure marker's file. Also returns an error if the database cannot be
/// opened or written, or if a failure marker cannot be removed.
pub(super) fn reset(
    home: &Env,
    here: &LoadedProject,
    job: Option<&str>,
) -> Result<Resets, Failure> {
    let now = home.wall()?;
    let names: Vec<&str> = match job {
        Some(job) => vec![job],
        None => here.config.jobs.keys().map(String::as_str).collect(),
    };
    for name in &names {
        here.check_trusted(name)?;
        here.config.job(name)?;
    }
    let mut store = home.store()?;
    here.register(&mut store, now)?;
    let mut done = Vec::new();
    for name in names {
        let row = store.job(&here.id, name)?;
        let was_stopped = stopped(store.streak(row.id)?);
        let who = env::person();
        let failures = store.acknowledge(&here.id, row.id, name, &who, now)?;
        let alerts = store.end_alerts(row.id, &who, now)?;
        let failmark =
            failmark::remove(&here.root, &here.config.job(name)?.spec).map_err(|error| {
                Failure::cannot_write(format!("the failure marker of {name}: {error}"))
            })?;
        if failures > 0 || failmark || alerts > 0 || job.is_some() {
            done.push(ResetJob { job: name.to_owned(), failures, was_stopped, failmark, alerts });
        }
    }
    client::wake(home);
    Ok(Resets(done))
}
