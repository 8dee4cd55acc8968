//! The row of a job's failures since its last success, and what a person has seen of it.
//!
//! An acknowledgement deletes nothing: failures up to the last run that is over are not counted any
//! more, and who said so is on record. The run that it names is never pruned.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{Query as _, json, millis};
use super::{Event, Fault, JobId, Result, Store, events};
use crate::ids::ProjectId;
use crate::outcome::{Class, Outcome};

/// Failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Streak {
    /// Number of occurrences that ended as failed, timed-out or lost since the last run that
    /// published something or the last acknowledgement. Several attempts at one occurrence count
    /// once.
    pub failures: u32,
    /// The class of the last of them, where it has one.
    pub last: Option<Class>,
    /// Whether the last was refused before it began.
    pub refused: bool,
}

impl Store {
    /// Returns the failures of a job since its last success or acknowledgement.
    pub fn streak(&self, job: JobId) -> Result<Streak> {
        self.view(|db| streak(db, job))
    }

    /// Notes that somebody has seen the failures of a job: clocks start it again. How many there
    /// were; with none nothing is noted.
    pub fn acknowledge(
        &mut self,
        project: &ProjectId,
        job: JobId,
        name: &str,
        who: &str,
        now: Timestamp,
    ) -> Result<u32> {
        self.write(|tx| {
            let failures = streak(tx, job)?.failures;
            if failures == 0 {
                return Ok(0);
            }
            // The run is named by its id because a copy of the database may number its rows anew. It
            // is the last one that was counted: nobody has seen the end of a run that goes on.
            tx.change(
                "INSERT INTO breaker_resets (job, run, at, who)
                 SELECT ?1, id, ?2, ?3 FROM runs INDEXED BY runs_tried
                 WHERE job = ?1 AND state = 'settled'
                   AND outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
                 ORDER BY rowid DESC LIMIT 1",
                params![job, millis(now), who],
            )?;
            let event = Event {
                at: now,
                project: Some(project.clone()),
                run: None,
                kind: "acknowledged".to_owned(),
                detail: format!("{name}: {failures} failures in a row, by {who}"),
            };
            events::insert(tx, &event)?;
            Ok(failures)
        })
    }
}

pub(super) fn streak(db: &Connection, job: JobId) -> Result<Streak, Fault> {
    // Skipped runs since then, however many, do not end the streak.
    let tried: Vec<(Outcome, String, bool)> = db.all(
        "SELECT outcome, occurrence, started IS NULL FROM runs INDEXED BY runs_tried
         WHERE job = ?1
           AND outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
           AND rowid > (SELECT coalesce(max(seen.rowid), 0) FROM breaker_resets a
                        JOIN runs seen ON seen.id = a.run WHERE a.job = ?1)
         ORDER BY rowid DESC LIMIT 50",
        [job],
        |row| Ok((json(row, 0)?, row.get(1)?, row.get(2)?)),
    )?;
    let mut failed = BTreeSet::new();
    let mut streak = Streak::default();
    for (outcome, occurrence, refused) in tried {
        if outcome.published() {
            break;
        }
        if failed.is_empty() {
            streak.last = outcome.class();
            streak.refused = refused;
        }
        failed.insert(occurrence);
    }
    streak.failures = u32::try_from(failed.len()).unwrap_or(u32::MAX);
    Ok(streak)
}
