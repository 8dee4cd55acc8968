//! `runner execute RUN`: the process of one run.
//!
//! ```text
//! contract's lock ──> deciding lock ──> recover dead runs ──> facts ──> Store::admit ──> execute
//!      │                   │                                               │               │
//!      └── held: declined ─┘                                               └── declined    └──> failure marker, sweep
//! ```
//!
//! The locks are held until the outcome is committed and the sweep is complete. A run that this
//! process does not admit is *declined*, unless another process has admitted it.

mod admitted;
pub mod dry_run;
mod input;
mod leftovers;
mod locks;
mod resolved_run;

use jiff::SignedDuration;
use runner_engine::admission::DEFERRALS;
use runner_engine::failpoint;
use runner_engine::ids::RunId;
use runner_engine::locks::LockHolder;
use runner_engine::outcome::{Class, Exit, Outcome, SkipReason};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::sweep;
use runner_engine::store::{RunRow, RunState, Store};

use super::Cli;
use crate::env::{self, Env};
use crate::spawn;
use crate::ui::{Failure, log};
use admitted::locked;
use locks::take_locks;
use resolved_run::ResolvedRun;
pub(in crate::commands) use resolved_run::slots_folder;

/// The reason why a run was not admitted, or an error in its execution.
enum NotAdmitted {
    /// The outcome of the run, unless another process executes it.
    Before(Outcome),
    /// An error without an outcome. An admitted run is recovered later.
    Hard(Failure),
}

impl<T: Into<Failure>> From<T> for NotAdmitted {
    fn from(failure: T) -> Self {
        Self::Hard(failure.into())
    }
}

/// Creates a failed outcome for a run that is not admitted.
fn refuse(class: Class, why: impl Into<String>) -> NotAdmitted {
    NotAdmitted::Before(Outcome::Failed { class, why: why.into() })
}

/// The delay before retrying a run whose configuration cannot be read.
const UNREADABLE_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// Execute one run; the other commands start this process
#[derive(Debug, clap::Args)]
pub struct ExecuteArgs {
    /// The run's id
    run: String,
}

impl ExecuteArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let home = cli.env;
        failpoint::arm_acts(env::setting);
        let id: RunId = self.run.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let mut store = home.store()?;
        let row = store.run(&id)?;
        if !matches!(row.state, RunState::Requested { .. }) {
            cli.ui.info(&format!("run {id} is not waiting for a process; nothing was done"));
            return Ok(Exit::Done);
        }
        let setting = match ResolvedRun::of(home, &store, &row) {
            Ok(setting) => setting,
            Err(NotAdmitted::Before(outcome)) => return put_off(&mut store, &row, &outcome, home),
            Err(NotAdmitted::Hard(failure)) => {
                let why = failure.to_string();
                // Somebody may be editing the configuration, so only a manual run fails. Any
                // other run is deferred.
                let outcome = if row.manual() {
                    let class = Class::Environment;
                    Outcome::Failed { class, why }
                } else {
                    let until = home.wall()?.saturating_add(UNREADABLE_WAIT);
                    let until = until.unwrap_or(row.requested);
                    Outcome::Deferred { until, why }
                };
                return put_off(&mut store, &row, &outcome, home);
            }
        };
        let outcome = attempt(cli, &mut store, &setting)?;
        tracing::info!(outcome = outcome.to_string(), "settled");
        #[cfg(feature = "otel")]
        crate::otel::send(&store, &id);
        Ok(outcome.exit(true))
    }
}

/// Records the outcome of a run whose settings cannot be used. After several deferrals in a row for
/// the same reason, the user is notified. A manual run is exempt, because its reason is already
/// visible.
fn put_off(
    store: &mut Store,
    row: &RunRow,
    outcome: &Outcome,
    home: &Env,
) -> Result<Exit, Failure> {
    store.decline(&row.id, outcome, home.wall()?)?;
    if let Outcome::Deferred { why, .. } = outcome
        && !row.manual()
        && store.deferrals_in_a_row(row.job, why)? >= DEFERRALS
    {
        store.note_blocked(&row.id)?;
    }
    Ok(outcome.exit(true))
}

/// Makes one attempt, from opening the log to the cleanup.
fn attempt(
    cli: &Cli<'_>,
    store: &mut Store,
    setting: &ResolvedRun<'_>,
) -> Result<Outcome, Failure> {
    let home = cli.env;
    let row = setting.row;
    let holder =
        LockHolder { owner: ProcessIdentity::me(), run: row.id.clone(), since: home.wall()? };
    // The locks are released when they are dropped, after the outcome is committed.
    let mut locks = None;
    let wanted = env::setting("RUNNER_LOG").and_then(|value| value.into_string().ok());
    let done = log::start(
        &setting.run_dir,
        cli.verbose,
        wanted.as_deref(),
    )
    .map_err(|error| {
        let folder = setting.run_dir.display();
        refuse(
            Class::Environment,
            format!("cannot write the log in {folder}: {error}"),
        )
    })
    .and_then(|()| {
        tracing::info!(job = setting.spec.name, project = %setting.here.root.display(), "the run begins");
        locks = Some(take_locks(home, store, setting, &holder)?);
        locked(cli, store, setting, &holder.owner)
    });
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(NotAdmitted::Before(outcome)) => {
            let outcome = setting.redacted(outcome);
            if !store.decline(&row.id, &outcome, home.wall()?)? {
                // Another process is executing the run or has settled it.
                let row = store.run(&row.id)?;
                return Ok(row.outcome().cloned().unwrap_or(Outcome::skipped(
                    SkipReason::Busy,
                    "another process is executing this run",
                )));
            }
            outcome
        }
        Err(NotAdmitted::Hard(failure)) => {
            // A run that was not admitted is settled with this failure. An admitted run is
            // recovered later.
            let outcome = Outcome::Failed { class: Class::Environment, why: failure.to_string() };
            store.decline(&row.id, &setting.redacted(outcome), home.wall()?)?;
            // If the run has since been cancelled or has timed out, that outcome replaces this
            // failure.
            let stands = store.run(&row.id)?;
            return match stands.outcome() {
                Some(outcome @ (Outcome::Cancelled { .. } | Outcome::TimedOut { .. })) => {
                    Ok(outcome.clone())
                }
                _ => Err(failure),
            };
        }
    };
    spawn::update_failmark(home, store, &setting.here, &setting.spec, (row, &outcome))?;
    if locks.is_some() {
        let row = store.run(&row.id)?;
        sweep(store, &row, home.wall()?)?;
        leftovers::remove(&setting.run_dir);
    }
    drop(locks);
    Ok(outcome)
}
