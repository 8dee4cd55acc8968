//! Records occurrences. An occurrence is one scheduled time, event or request for which a job is
//! due, and it is recorded only once.
//!
//! ```text
//! manual, report ─────────> requested immediately by the process that records it
//! clock, event ──overlap──> queued | skipped | queued to replace earlier runs
//! queue (enqueue) ────────> queued
//! ```

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};

use super::columns::{Query as _, free_json, json_opt, millis, time};
use super::rows::{self, NewOccurrence, Origin};
use super::{DueJob, Fault, JobId, NightId, Result, Store, alerts, jobs, nights, settle};
use crate::ids::{OccurrenceId, ProjectId, RunId};
use crate::outcome::{Outcome, SkipReason};
use crate::process_id::ProcessIdentity;
use crate::schedule::{Due, Missed, ON_TIME};

/// The result of recording an occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The occurrence is new. The value is the id of its run.
    New(RunId),
    /// This process or another one has already recorded the occurrence.
    Known(OccurrenceId),
}

/// An occurrence in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccurrenceRow {
    pub id: OccurrenceId,
    pub job: JobId,
    /// The key that identifies the occurrence (see [`NewOccurrence::key`]).
    pub key: String,
    /// The time at which the job was due.
    pub due: Timestamp,
    /// The night to which the occurrence belongs, if any.
    pub night: Option<NightId>,
    pub origin: Origin,
    /// The outcome, or `None` while the occurrence is open.
    pub outcome: Option<Outcome>,
}

/// The facts that explain why a job's scheduled times were missed.
#[derive(Clone, Debug, Default)]
pub struct MissedReasons<'a> {
    /// The scheduled times that passed during a pause, if there are any.
    pub paused: Option<&'a Missed>,
    /// The time since the previous tick. `None` if there was no recent tick, which means that
    /// nothing was running.
    pub since_tick: Option<SignedDuration>,
}

impl Store {
    /// Records an occurrence and requests its run in one transaction, so no run starts without a
    /// record.
    pub fn enter(
        &mut self,
        new: &NewOccurrence,
        starter: &ProcessIdentity,
        now: Timestamp,
    ) -> Result<Recorded> {
        self.write(|tx| enter(tx, new, starter, now))
    }

    /// Records an occurrence and queues its run, which waits for `ready_at` and a free slot. If
    /// `after` is given, the run also waits for that occurrence to succeed, and is skipped if that
    /// occurrence does not succeed.
    pub fn enqueue(
        &mut self,
        new: &NewOccurrence,
        ready_at: Timestamp,
        after: Option<&OccurrenceId>,
        now: Timestamp,
    ) -> Result<Recorded> {
        self.write(|tx| {
            let occurrence = match rows::insert(tx, new, now)? {
                Ok(occurrence) => occurrence,
                Err(known) => return Ok(Recorded::Known(known)),
            };
            let Some(after) = after else {
                let run = rows::queue(tx, &occurrence, ready_at, None, now)?;
                return Ok(Recorded::New(run));
            };
            let first = by_id(tx, after)?.outcome;
            let waits_for = first.is_none().then_some(after);
            let run = rows::queue(tx, &occurrence, ready_at, waits_for, now)?;
            if let Some(outcome) = first.filter(|outcome| !outcome.published()) {
                let why = settle::not_followed(&outcome);
                settle::skip(tx, &run, SkipReason::Unfollowed, why, now)?;
            }
            Ok(Recorded::New(run))
        })
    }

    /// Records a job's due scheduled times in one transaction: the occurrences to run, the missed
    /// scheduled times, the scheduled times that passed during a pause (`reasons.paused`) and the
    /// new watermark. Returns the new runs, including those that the overlap rule skipped. Records
    /// nothing if another process has moved the watermark.
    pub fn enter_due(
        &mut self,
        due_job: &DueJob,
        due: &Due,
        reasons: MissedReasons<'_>,
        night_date: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<RunId>> {
        self.write(|tx| {
            let job = &due_job.job;
            if !jobs::advance(tx, due_job, due, now)? {
                return Ok(Vec::new());
            }
            let night = match (due.fire.last(), job.schedule.night, night_date) {
                (Some(&fire), Some(length), Some(date)) => {
                    // A night that is opened late still gets its full length.
                    let closes = fire.max(now).saturating_add(length).unwrap_or(now);
                    Some(nights::open_or_join(tx, &job.project, date, (fire, closes), now)?)
                }
                _ => None,
            };
            if let Some(paused) = reasons.paused {
                let cause = MissedCause::Paused;
                missed(tx, &MissedRow { job: job.id, night: None, cause, stretch: paused }, now)?;
            }
            if let Some(lost) = &due.missed {
                let cause = match reasons.since_tick {
                    None => MissedCause::Problem(NOTHING_RAN),
                    Some(since) if due.fire.is_empty() => MissedCause::Late(since),
                    Some(since) => MissedCause::Frequent(since),
                };
                missed(tx, &MissedRow { job: job.id, night, cause, stretch: lost }, now)?;
            }
            // The runs of scheduled times that are found together also wait together. Otherwise,
            // the run of a late scheduled time could start after the run of a newer one.
            let late = due.fire.first().is_some_and(|first| now.duration_since(*first) > ON_TIME);
            let wait = if late {
                let salt = format!("{} {}", job.project, job.name);
                job.policy.catch_up.stagger_of(&salt)
            } else {
                SignedDuration::ZERO
            };
            let ready_at = now.saturating_add(wait).unwrap_or(now);
            let mut runs = Vec::new();
            for &fire in &due.fire {
                let new = NewOccurrence {
                    night,
                    origin: Origin::Clock,
                    due: fire,
                    ..NewOccurrence::manual(job.id, fire.to_string(), now)
                };
                // If several scheduled times are caught up, their runs start one after another,
                // regardless of the overlap rule.
                let recorded = match due.fire.len() {
                    1 => settle::await_turn(tx, &new, ready_at, now)?,
                    _ => rows::line_up(tx, &new, ready_at, now)?,
                };
                runs.extend(recorded);
            }
            Ok(runs)
        })
    }

    /// Closes a night and requests the run for its report. Returns `None` if another process has
    /// already closed the night or recorded its report.
    pub fn close_night(
        &mut self,
        night: NightId,
        report_job: JobId,
        starter: &ProcessIdentity,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            let sql = "UPDATE nights SET closed = ?2 WHERE id = ?1 AND closed IS NULL";
            if tx.change(sql, params![night, millis(now)])? == 0 {
                return Ok(None);
            }
            let new = NewOccurrence {
                night: Some(night),
                origin: Origin::Event,
                ..NewOccurrence::manual(report_job, format!("night-{}", night.0), now)
            };
            match enter(tx, &new, starter, now)? {
                Recorded::New(run) => Ok(Some(run)),
                Recorded::Known(_) => Ok(None),
            }
        })
    }

    pub fn occurrence(&self, wanted: &OccurrenceId) -> Result<OccurrenceRow> {
        self.view(|db| by_id(db, wanted))
    }

    /// Returns a night's occurrences in the order in which they were recorded.
    pub fn occurrences_of(&self, night: NightId) -> Result<Vec<OccurrenceRow>> {
        let sql =
            format!("SELECT {COLUMNS} FROM occurrences WHERE night = ?1 ORDER BY recorded, rowid");
        self.view(|db| db.all(&sql, [night], occurrence))
    }

    /// Returns the missed occurrences of a project's night jobs whose last time is in `[from, to)`
    /// and that belong to no night, because no run of the job started then. Times at which a job
    /// was paused are omitted.
    pub fn missed_in(
        &self,
        project: &ProjectId,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<OccurrenceRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM occurrences WHERE missed AND night IS NULL
               AND recorded >= ?2 AND outcome ->> '$.why' <> '{PAUSED}'
               AND unixepoch(outcome ->> '$.last') * 1000 >= ?2
               AND unixepoch(outcome ->> '$.last') * 1000 < ?3
               AND job IN (SELECT id FROM jobs
                 WHERE project = ?1 AND schedule ->> 'night' IS NOT NULL)
             ORDER BY recorded, rowid"
        );
        self.view(|db| db.all(&sql, params![project, millis(from), millis(to)], occurrence))
    }
}

fn enter(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    starter: &ProcessIdentity,
    now: Timestamp,
) -> Result<Recorded, Fault> {
    match rows::insert(tx, new, now)? {
        Ok(occurrence) => Ok(Recorded::New(rows::request(tx, &occurrence, starter, now)?)),
        Err(known) => Ok(Recorded::Known(known)),
    }
}

/// The reason recorded for scheduled times that passed while no ticks occurred.
const NOTHING_RAN: &str = "nothing was running to start it";

/// The reason recorded for scheduled times at which the job was paused.
const PAUSED: &str = "paused";

/// The cause of missed scheduled times.
#[derive(Clone, Copy)]
pub(super) enum MissedCause<'a> {
    /// The job was paused, so it was not supposed to run.
    Paused,
    /// The job was due several times between two ticks, and it does not run for all of those times.
    /// The value is the time since the previous tick.
    Frequent(SignedDuration),
    /// Ticks occurred, but none came soon enough after the scheduled times, and the job does not
    /// catch up on missed scheduled times. The value is the time since the previous tick.
    Late(SignedDuration),
    /// Any other reason, described by the value. The user is notified of it.
    Problem(&'a str),
}

impl MissedCause<'_> {
    /// Returns whether the user is notified of the missed scheduled times. A job that is due more
    /// often than ticks occur still runs, so only `config check`, `setup` and `doctor` report the
    /// problem.
    fn is_news(self) -> bool {
        matches!(self, Self::Late(_) | Self::Problem(_))
    }
}

impl fmt::Display for MissedCause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str(PAUSED),
            Self::Frequent(since) => write!(
                f,
                "the previous tick was {since:#} earlier, and the job is due more often than that"
            ),
            Self::Late(since) => write!(
                f,
                "the previous tick was {since:#} earlier, and the job does not catch up on missed scheduled times"
            ),
            Self::Problem(why) => f.write_str(why),
        }
    }
}

/// Scheduled times of a job that were missed for the same reason.
pub(super) struct MissedRow<'a> {
    pub job: JobId,
    pub night: Option<NightId>,
    pub cause: MissedCause<'a>,
    pub stretch: &'a Missed,
}

/// Records missed scheduled times in one row, and notes them for an alert if the user must be
/// notified.
pub(super) fn missed(
    tx: &Transaction<'_>,
    row: &MissedRow<'_>,
    now: Timestamp,
) -> Result<(), Fault> {
    let MissedRow { job, night, cause, stretch } = *row;
    let outcome = Outcome::Missed {
        first: stretch.first,
        last: stretch.last,
        count: stretch.count,
        why: cause.to_string(),
    };
    let id = OccurrenceId::new(now);
    // The key contains the id, because the same scheduled times can be missed again after the clock
    // is set back.
    let key = format!("missed {} {id}", stretch.first);
    tx.change(
        "INSERT INTO occurrences (id, job, key, due, recorded, night, origin, outcome, settled)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'clock', ?7, ?5)",
        params![id, job, key, millis(stretch.first), millis(now), night, free_json(&outcome)],
    )?;
    if cause.is_news() {
        alerts::note(tx, &id, None, &outcome)?;
    }
    Ok(())
}

/// The columns for [`occurrence`].
const COLUMNS: &str = "id, job, key, due, night, origin, outcome";

fn occurrence(row: &Row<'_>) -> rusqlite::Result<OccurrenceRow> {
    Ok(OccurrenceRow {
        id: row.get(0)?,
        job: row.get(1)?,
        key: row.get(2)?,
        due: time(row, 3)?,
        night: row.get(4)?,
        origin: row.get(5)?,
        outcome: json_opt(row, 6)?,
    })
}

pub(super) fn by_id(db: &Connection, wanted: &OccurrenceId) -> Result<OccurrenceRow, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM occurrences WHERE id = ?1");
    let found = db.first(&sql, [wanted], occurrence)?;
    found.ok_or_else(|| Fault::not_found("occurrence", wanted))
}
