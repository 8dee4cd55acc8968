//! `ack`: somebody has seen that a job is broken, and mended it: clocks start it again.
//!
//! Must never touch the history of its runs; that it was acknowledged is itself on record.

use std::path::Path;

use runner_engine::admission::stopped;
use runner_engine::outcome::Exit;
use runner_jobs::failmark;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::daemon::client;
use crate::home::{self, Home};
use crate::project::Here;

#[derive(Debug, Serialize)]
struct AckJson {
    job: String,
    /// How many failures in a row count no more.
    failures: u32,
    /// Whether clocks had stopped starting it.
    was_stopped: bool,
    /// Whether a failmark was removed.
    failmark: bool,
    /// How many open alerts of it are over.
    alerts: u32,
}

/// Clears the failmark and the failures of one job, or of all of the project.
pub fn run(
    home: &Home,
    here: &Path,
    job: Option<&str>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let here = Here::load(home, here)?;
    let now = home.wall()?;
    let names: Vec<&str> = match job {
        Some(job) => {
            here.config.job(job)?;
            vec![job]
        }
        None => here.config.jobs.keys().map(String::as_str).collect(),
    };
    let mut ledger = home.ledger()?;
    here.register(&mut ledger, now)?;
    let mut done = Vec::new();
    for name in names {
        let row = ledger.job(&here.id, name)?;
        let was_stopped = stopped(ledger.streak(row.id)?);
        let who = home::person();
        let failures = ledger.acknowledge(&here.id, row.id, name, &who, now)?;
        let alerts = ledger.end_alerts(row.id, &who, now)?;
        let failmark = failmark::remove(&here.root, &here.config.job(name)?.spec)
            .map_err(|error| Failure::cannot_write(format!("the failmark of {name}: {error}")))?;
        if failures > 0 || failmark || alerts > 0 || job.is_some() {
            done.push(AckJson {
                job: name.to_owned(),
                failures,
                was_stopped,
                failmark,
                alerts,
            });
        }
    }
    client::wake(home);
    if listing.json {
        show::json(&done);
        return Ok(Exit::Done);
    }
    if done.is_empty() {
        show::say(quiet, "nothing to acknowledge");
    }
    for ack in &done {
        let text = match (ack.failures, ack.failmark, ack.was_stopped) {
            (0, false, _) if ack.alerts > 0 => "its alerts are over".to_owned(),
            (0, false, _) => "nothing to acknowledge".to_owned(),
            (0, true, _) => "its failmark is removed".to_owned(),
            (n, _, true) => format!(
                "its {} in a row no longer matter; clocks start it again",
                show::count(n.into(), "failure")
            ),
            (n, _, false) => format!(
                "its {} in a row no longer matter",
                show::count(n.into(), "failure")
            ),
        };
        show::say(quiet, &format!("{}: {text}", ack.job));
    }
    Ok(Exit::Done)
}
