//! The tick: recover, record what is due, say what to start.
//!
//! ```text
//! unsettled runs ──recover──> settled, or to be started
//! jobs with next_due <= now ──schedule::due──> occurrence + run requested, watermark moved
//! deferred occurrences whose time has come ──> run requested
//! nights whose work is settled ──> report occurrence + run requested
//!                                        └──> Tick { start }
//! ```
//!
//! The daemon, host timers and people all call this one function; however many do, an occurrence is
//! recorded once. Its cost follows what is due or unsettled. It must never start anything itself.

use jiff::SignedDuration;
use jiff::tz::TimeZone;

use crate::ids::{ProjectId, RunId};
use crate::ledger::{Ledger, LedgerError, NewJob};
use crate::recover::{Driver, Recovered, recover, sweep_all};
use crate::schedule::Schedule;
use crate::time::Moment;

/// How late a moment may be and still be run for: the catch-up window.
pub const WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// The job that every project has: the report of a night.
pub const REPORT_JOB: &str = "report";

/// What a tick did and what the caller must start now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Runs to spawn, oldest first; the caller answers for them until they are settled.
    pub start: Vec<RunId>,
    /// Settled runs that nobody had swept after: their process died before it could bring their
    /// failmark in line.
    pub swept: Vec<RunId>,
    /// What could not be done for one run or one job, while everything else was done.
    pub troubles: Vec<String>,
    /// Runs that were settled for their dead owners, with the word of their outcome.
    pub settled: Vec<(RunId, String)>,
}

/// The job row that every project has for its nights' reports.
pub fn report_job() -> NewJob {
    NewJob {
        name: REPORT_JOB.to_owned(),
        kind: REPORT_JOB.to_owned(),
        schedule: Schedule::manual(),
        enabled: true,
    }
}

/// Does everything that is due at `now`; see the module's picture.
///
/// # Errors
/// [`LedgerError`]: what was recorded before it stays recorded.
pub fn tick(ledger: &mut Ledger, driver: &Driver<'_>, now: Moment) -> Result<Tick, LedgerError> {
    let mut tick = Tick::default();
    for run in ledger.unsettled()? {
        let recovered = match recover(ledger, driver, &run, now) {
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
                tick.settled
                    .push((run.id.clone(), outcome.word().to_owned()));
                tick.start.extend(retry);
            }
        }
    }
    tick.swept = sweep_all(ledger, driver, now.wall)?;
    for name in ledger.reset_jobs_ahead(now.wall)? {
        tick.troubles.push(format!(
            "{name}: its schedule had run ahead of the clock, which was set back; it starts again from now"
        ));
    }
    for due_job in ledger.due_jobs(now.wall)? {
        let schedule = &due_job.job.schedule;
        let due = match schedule.due(
            due_job.watermark,
            now.wall,
            &crate::policy::CatchUp::default(),
        ) {
            Ok(due) => due,
            Err(error) => {
                tick.troubles
                    .push(format!("job {}: {error}", due_job.job.name));
                continue;
            }
        };
        let date = due
            .fire
            .last()
            .map(|&fire| civil_date(fire, &schedule.zone));
        tick.start.extend(ledger.enter_due(
            &due_job,
            &due,
            date.as_deref(),
            driver.me,
            now.wall,
        )?);
    }
    tick.start
        .extend(ledger.resume_deferred(driver.me, now.wall)?);
    tick.start.extend(close_nights(ledger, driver, now, None)?);
    Ok(tick)
}

/// Records the reports of nights that are over, of all projects or of one.
///
/// # Errors
/// [`LedgerError`].
pub fn close_nights(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    now: Moment,
    only: Option<&ProjectId>,
) -> Result<Vec<RunId>, LedgerError> {
    let mut runs = Vec::new();
    for night in ledger.nights_to_close(now.wall)? {
        if only.is_some_and(|project| *project != night.project) {
            continue;
        }
        let report = ledger.job(&night.project, REPORT_JOB)?.id;
        runs.extend(ledger.close_night(night.id, report, driver.me, now.wall)?);
    }
    Ok(runs)
}

/// The civil date of a moment in a zone; UTC's where the zone is unknown.
pub fn civil_date(at: jiff::Timestamp, zone: &str) -> String {
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    at.to_zoned(zone).date().to_string()
}
