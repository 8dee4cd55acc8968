//! Occurrences: each moment or event at which a job was due, recorded once.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{
    DueJob, Fault, JobId, Ledger, NightId, Result, from_json, id, millis, moment, nights, runs,
    to_json,
};
use crate::ids::{OccurrenceId, ProjectId, RunId};
use crate::outcome::Outcome;
use crate::owner::Owner;
use crate::schedule::Due;

/// An occurrence to record.
#[derive(Clone, Debug)]
pub struct NewOccurrence {
    /// The job that is due.
    pub job: JobId,
    /// What makes it the same occurrence whoever records it: the due instant for clocks, the
    /// parent's id for events, the caller's key or a fresh id by hand.
    pub key: String,
    /// When it was due.
    pub due: Timestamp,
    /// The night it belongs to.
    pub night: Option<NightId>,
    /// A person asked for it.
    pub by_hand: bool,
}

/// What recording an occurrence found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is new, and this run is to be started.
    New(RunId),
    /// It was recorded before, by us or by another driver.
    Known(OccurrenceId),
}

/// An occurrence as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccurrenceRow {
    /// Its id.
    pub id: OccurrenceId,
    /// Its job.
    pub job: JobId,
    /// See [`NewOccurrence::key`].
    pub key: String,
    /// When it was due.
    pub due: Timestamp,
    /// The night it belongs to.
    pub night: Option<NightId>,
    /// A person asked for it.
    pub by_hand: bool,
    /// How it ended; absent while open.
    pub outcome: Option<Outcome>,
}

impl Ledger {
    /// Records an occurrence and the intent to run it, in one step: what is not recorded is not
    /// started, and what is recorded is settled by somebody.
    pub fn enter(
        &mut self,
        new: &NewOccurrence,
        starter: &Owner,
        now: Timestamp,
    ) -> Result<Recorded> {
        self.write(|tx| insert(tx, new, starter, now))
    }

    /// Records what a clock made due: the occurrence to run, the missed stretch, the watermark.
    /// Nothing is recorded when another driver moved the watermark first.
    pub fn enter_due(
        &mut self,
        due_job: &DueJob,
        due: &Due,
        night_date: Option<&str>,
        starter: &Owner,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            let moved = tx.execute(
                "UPDATE jobs SET watermark = ?3, next_due = ?4 WHERE id = ?1 AND watermark = ?2",
                params![
                    due_job.job.id.0,
                    millis(due_job.watermark),
                    millis(due.watermark),
                    due.next.map(millis)
                ],
            )?;
            if moved == 0 {
                return Ok(None);
            }
            let night = match (due.fire.last().copied(), due_job.job.schedule.night, night_date) {
                (Some(fire), Some(length), Some(date)) => {
                    // A night that is caught up has its whole length before it.
                    let closes = fire.max(now).saturating_add(length).unwrap_or(now);
                    let project = &due_job.job.project;
                    Some(nights::open_or_join(tx, project, date, fire, closes)?)
                }
                _ => None,
            };
            if let Some(missed) = &due.missed {
                let outcome = Outcome::Missed {
                    first: missed.first,
                    last: missed.last,
                    count: missed.count,
                    why: "nothing was running to start it".to_owned(),
                };
                tx.execute(
                    "INSERT INTO occurrences (id, job, key, due, recorded, night, by_hand, outcome, settled)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?5) ON CONFLICT (job, key) DO NOTHING",
                    params![
                        OccurrenceId::new(now).as_str(),
                        due_job.job.id.0,
                        missed.first.to_string(),
                        millis(missed.first),
                        millis(now),
                        night.map(|night| night.0),
                        to_json(&outcome)
                    ],
                )?;
            }
            let Some(&fire) = due.fire.last() else { return Ok(None) };
            let new = NewOccurrence {
                job: due_job.job.id,
                key: fire.to_string(),
                due: fire,
                night,
                by_hand: false,
            };
            match insert(tx, &new, starter, now)? {
                Recorded::New(run) => Ok(Some(run)),
                Recorded::Known(_) => Ok(None),
            }
        })
    }

    /// Closes a night and records its report as due, once; `None` when another driver did.
    pub fn close_night(
        &mut self,
        night: NightId,
        report_job: JobId,
        starter: &Owner,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            let closed = tx.execute(
                "UPDATE nights SET closed = ?2 WHERE id = ?1 AND closed IS NULL",
                params![night.0, millis(now)],
            )?;
            if closed == 0 {
                return Ok(None);
            }
            let new = NewOccurrence {
                job: report_job,
                key: format!("night-{}", night.0),
                due: now,
                night: Some(night),
                by_hand: false,
            };
            match insert(tx, &new, starter, now)? {
                Recorded::New(run) => Ok(Some(run)),
                Recorded::Known(_) => Ok(None),
            }
        })
    }

    /// Deferred occurrences whose time has come, each with a fresh run to be started.
    pub fn resume_deferred(&mut self, starter: &Owner, now: Timestamp) -> Result<Vec<RunId>> {
        let ready: Vec<String> = self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT id FROM occurrences WHERE settled IS NULL AND again_at IS NOT NULL AND again_at <= ?1
                 ORDER BY again_at",
            )?;
            let rows = statement.query_map([millis(now)], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        let mut runs = Vec::new();
        for occurrence in ready {
            let run = self.write(|tx| {
                let taken = tx.execute(
                    "UPDATE occurrences SET again_at = NULL
                     WHERE id = ?1 AND again_at IS NOT NULL AND settled IS NULL",
                    [&occurrence],
                )?;
                match taken {
                    0 => Ok(None),
                    _ => runs::request(tx, &id(occurrence.clone())?, starter, now).map(Some),
                }
            })?;
            runs.extend(run);
        }
        Ok(runs)
    }

    /// One occurrence.
    pub fn occurrence(&self, wanted: &OccurrenceId) -> Result<OccurrenceRow> {
        self.view(|db| by_id(db, wanted))
    }

    /// Stretches of missed moments of a project, recorded since a moment, newest first.
    pub fn missed_since(
        &self,
        project: &ProjectId,
        since: Timestamp,
    ) -> Result<Vec<(String, Outcome)>> {
        self.view(|db| {
            let mut statement = db.prepare(
                "SELECT j.name, o.outcome FROM occurrences o INDEXED BY occurrences_missed JOIN jobs j ON j.id = o.job
                 WHERE o.missed AND o.recorded >= ?2 AND j.project = ?1 ORDER BY o.recorded DESC",
            )?;
            let rows = statement.query_map(params![project.as_str(), millis(since)], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            rows.map(|row| {
                let (name, outcome) = row?;
                Ok((name, from_json(&outcome)?))
            })
            .collect()
        })
    }

    /// The occurrences of a night, in the order in which they were recorded.
    pub fn occurrences_of(&self, night: NightId) -> Result<Vec<OccurrenceRow>> {
        self.view(|db| {
            let mut statement =
                db.prepare("SELECT id FROM occurrences WHERE night = ?1 ORDER BY recorded, rowid")?;
            let rows = statement.query_map([night.0], |row| row.get::<_, String>(0))?;
            rows.map(|row| by_id(db, &id(row?)?)).collect()
        })
    }
}

fn insert(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    starter: &Owner,
    now: Timestamp,
) -> Result<Recorded, Fault> {
    let known: Option<String> = tx
        .query_row(
            "SELECT id FROM occurrences WHERE job = ?1 AND key = ?2",
            params![new.job.0, new.key],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(known) = known {
        return Ok(Recorded::Known(id(known)?));
    }
    let occurrence = OccurrenceId::new(now);
    tx.execute(
        "INSERT INTO occurrences (id, job, key, due, recorded, night, by_hand)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            occurrence.as_str(),
            new.job.0,
            new.key,
            millis(new.due),
            millis(now),
            new.night.map(|night| night.0),
            new.by_hand
        ],
    )?;
    Ok(Recorded::New(runs::request(tx, &occurrence, starter, now)?))
}

pub(super) fn by_id(db: &Connection, wanted: &OccurrenceId) -> Result<OccurrenceRow, Fault> {
    let (job, key, due, night, by_hand, outcome) = db.query_row(
        "SELECT job, key, due, night, by_hand, outcome FROM occurrences WHERE id = ?1",
        [wanted.as_str()],
        |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get::<_, Option<i64>>(3)?,
                row.get(4)?,
                row.get::<_, Option<String>>(5)?,
            ))
        },
    )?;
    Ok(OccurrenceRow {
        id: wanted.clone(),
        job: JobId(job),
        key,
        due: moment(due)?,
        night: night.map(NightId),
        by_hand,
        outcome: outcome.as_deref().map(from_json).transpose()?,
    })
}
