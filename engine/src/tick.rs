//! One tick: recovers runs, records due occurrences and returns the runs to start.
//!
//! ```text
//! live runs ──recover──> settled, to be started, or to be signalled (asked to end)
//! jobs with next_due <= now ──schedule::due──> occurrences queued, misses recorded, watermark moved
//! queued runs that are ready ──queue::choose──> requested
//! nights whose work is settled ──> report occurrence + run requested
//!                                        └──> Tick { start, end }
//! ```
//!
//! The daemon, host timers and users can all start ticks. An occurrence is recorded only once,
//! regardless of the number of ticks. The cost of a tick grows with the number of due jobs and
//! unsettled runs. This module must never start a process itself.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::ids::{ProjectId, RunId};
use crate::policy::{CatchUp, CatchUpScope, Policy};
use crate::recover::{Driver, Recovered, recover, sweep_all};
use crate::schedule::{Due, Missed, Schedule, UnknownZone, just_before};
use crate::store::{DueJob, JobId, MissedReasons, NewJob, RunRow, Store, StoreError};
use crate::time::ClockReading;
use crate::zones;

/// The name of the report job, which every project has.
pub const REPORT_JOB: &str = "report";

/// The result of a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Runs that the caller must start now. The caller is responsible for them until they are
    /// settled.
    pub start: Vec<RunId>,
    /// Live runs whose cancellation was requested. The caller must send SIGTERM to their owners.
    pub end: Vec<RunId>,
    /// Settled runs that this tick swept, because their own processes died before sweeping them.
    /// Such a process may not have updated the job's failure marker.
    pub swept: Vec<RunId>,
    /// Problems that did not stop the tick.
    pub troubles: Vec<String>,
    /// Runs that recovery settled, each with the name of its outcome.
    pub settled: Vec<(RunId, String)>,
}

/// Returns the report job, which every project has.
pub fn report_job() -> NewJob {
    NewJob {
        name: REPORT_JOB.to_owned(),
        kind: REPORT_JOB.to_owned(),
        schedule: Schedule::manual(),
        policy: Policy::default(),
        enabled: true,
    }
}

/// Performs one tick at `now`, as the module documentation describes.
///
/// # Errors
/// Returns a [`StoreError`]. Changes made before the error are kept.
pub fn tick(store: &mut Store, driver: &Driver<'_>, now: ClockReading) -> Result<Tick, StoreError> {
    let mut tick = Tick::default();
    let live = store.live()?;
    ask_to_end(store, &live, now, &mut tick.end)?;
    for run in live {
        let recovered = match recover(store, driver, &run, now) {
            Err(error) if error.is_about_one_thing() => {
                tick.troubles.push(format!("run {}: {error}", run.id));
                continue;
            }
            recovered => recovered?,
        };
        match recovered {
            Recovered::Alone => {}
            Recovered::Start(run) => tick.start.push(run),
            Recovered::Settled { outcome, retry } => {
                tick.settled.push((run.id.clone(), outcome.as_str().to_owned()));
                tick.start.extend(retry);
            }
        }
    }
    tick.swept = sweep_all(store, driver, now.wall)?;
    for name in store.reset_jobs_ahead(now.wall)? {
        tick.troubles.push(format!(
            "{name}: its schedule was ahead of the clock, which was set back; it restarts from now"
        ));
    }
    if let Some(why) = store.reset_waits_ahead(now.wall)? {
        tick.troubles.push(why);
    }
    if record_due(store, None, (driver.last_tick, now.wall), &mut tick.troubles)? {
        // A run replaced by a later scheduled time is asked to end during the same tick.
        let live = store.live()?;
        ask_to_end(store, &live, now, &mut tick.end)?;
    }
    tick.start.extend(store.start_ready(None, driver.me, now.wall)?);
    tick.start.extend(close_nights(store, driver, now, None)?);
    Ok(tick)
}

/// Maximum age of the previous tick at which a timer is still assumed to be running.
const TICKING: SignedDuration = SignedDuration::from_hours(1);

/// Returns the time since the previous tick in whole seconds, if a timer is assumed to be running.
fn since_tick(last_tick: Option<Timestamp>, now: Timestamp) -> Option<SignedDuration> {
    let since = now.duration_since(last_tick?);
    let ticking = !since.is_negative() && since <= TICKING;
    ticking.then(|| SignedDuration::from_secs(since.as_secs()))
}

/// Records the scheduled times that are due, for all jobs or for the job `only`. `last_tick` is the
/// time of the previous tick. Returns whether any job was due. Problems with individual jobs are
/// added to `troubles`.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn record_due(
    store: &mut Store,
    only: Option<JobId>,
    (last_tick, now): (Option<Timestamp>, Timestamp),
    troubles: &mut Vec<String>,
) -> Result<bool, StoreError> {
    let mut due_jobs = store.due_jobs(now)?;
    due_jobs.retain(|due| only.is_none_or(|only| due.job.id == only));
    let absent = match due_jobs.is_empty() {
        true => BTreeMap::new(),
        false => store.absent()?,
    };
    for due_job in &due_jobs {
        let job = &due_job.job;
        if let Some(why) = absent.get(&job.project) {
            match all_missed(due_job, now) {
                Ok((due, Some(stretch))) => {
                    store.miss_due(due_job, &due, &stretch, why, now)?;
                }
                // No scheduled time was missed, so only the next scheduled time changes.
                Ok((due, None)) => {
                    store.enter_due(due_job, &due, MissedReasons::default(), None, now)?;
                }
                Err(error) => troubles.push(format!("job {}: {error}", job.name)),
            }
            continue;
        }
        let (paused, due) = match due_of(due_job, now) {
            Ok(due) => due,
            Err(error) => {
                troubles.push(format!("job {}: {error}", job.name));
                continue;
            }
        };
        let date = due.fire.last();
        let date = date.map(|&fire| civil_date(fire, &job.schedule.zone));
        let reasons =
            MissedReasons { paused: paused.as_ref(), since_tick: since_tick(last_tick, now) };
        store.enter_due(due_job, &due, reasons, date.as_deref(), now)?;
    }
    Ok(!due_jobs.is_empty())
}

/// Adds to `end` the live runs whose cancellation was requested, and shortens their deadlines.
fn ask_to_end(
    store: &mut Store,
    live: &[RunRow],
    now: ClockReading,
    end: &mut Vec<RunId>,
) -> Result<(), StoreError> {
    for run in live {
        if run.cancel().is_some() && !end.contains(&run.id) {
            store.hasten(run, now.boot)?;
            end.push(run.id.clone());
        }
    }
    Ok(())
}

/// Returns a job's scheduled times during a pause, for which the job does not run, and the
/// scheduled times that have become due since.
fn due_of(due_job: &DueJob, now: Timestamp) -> Result<(Option<Missed>, Due), UnknownZone> {
    let job = &due_job.job;
    let mut watermark = due_job.watermark;
    let mut paused = None;
    if let Some(until) = job.paused_until.filter(|until| *until > watermark) {
        let (stretch, during) = passed_over(&job.schedule, watermark, just_before(until).min(now))?;
        watermark = during.watermark;
        paused = stretch;
    }
    let due = job.schedule.due(watermark, now, &job.policy.catch_up)?;
    Ok((paused, due))
}

/// Returns all of a job's scheduled times up to `now` as one missed stretch.
fn all_missed(due_job: &DueJob, now: Timestamp) -> Result<(Due, Option<Missed>), UnknownZone> {
    let (missed, due) = passed_over(&due_job.job.schedule, due_job.watermark, now)?;
    Ok((due, missed))
}

/// Returns all scheduled times up to `until` as one missed stretch. The returned [`Due`] contains
/// the new watermark and the next scheduled time, but no scheduled time for which the job runs.
pub(crate) fn passed_over(
    schedule: &Schedule,
    watermark: Timestamp,
    until: Timestamp,
) -> Result<(Option<Missed>, Due), UnknownZone> {
    let none = CatchUp { which: CatchUpScope::None, ..CatchUp::default() };
    let mut due = schedule.due(watermark, until, &none)?;
    let mut passed = due.missed.take();
    for at in due.fire.drain(..) {
        match &mut passed {
            Some(stretch) => (stretch.last, stretch.count) = (at, stretch.count + 1),
            None => {
                passed = Some(Missed { first: at, last: at, count: 1 });
            }
        }
    }
    Ok((passed, due))
}

/// Requests the reports for nights that can close, for all projects or for one project.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn close_nights(
    store: &mut Store,
    driver: &Driver<'_>,
    now: ClockReading,
    only: Option<&ProjectId>,
) -> Result<Vec<RunId>, StoreError> {
    let mut runs = Vec::new();
    for night in store.nights_to_close(now.wall)? {
        if only.is_some_and(|project| *project != night.project) {
            continue;
        }
        let report = store.job(&night.project, REPORT_JOB)?.id;
        runs.extend(store.close_night(night.id, report, driver.me, now.wall)?);
    }
    Ok(runs)
}

/// Returns the civil date of a timestamp in a zone, or in UTC if the zone is unknown.
pub fn civil_date(at: jiff::Timestamp, zone: &str) -> String {
    let zone = zones::get(zone).unwrap_or(TimeZone::UTC);
    at.to_zoned(zone).date().to_string()
}
