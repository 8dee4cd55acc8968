//! Inserts occurrences and runs. This module must never settle a run or an occurrence.

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::columns::{Query as _, millis, to_json};
use super::{Fault, JobId, NightId};
use crate::digest::Digest;
use crate::ids::{OccurrenceId, RunId};
use crate::process_id::ProcessIdentity;

/// The cause of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Origin {
    /// One of the job's scheduled times.
    Clock,
    /// The end of another job's run or of a night, or a session that is due for analysis.
    Event,
    /// A user or script that does not wait for the run.
    Queue,
    /// A user who waits for the run, or a claim from a fleet.
    Manual,
}

impl Origin {
    /// Returns the origin's name in the database and in listings.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// An occurrence to record.
#[derive(Clone, Debug)]
pub struct NewOccurrence {
    pub job: JobId,
    /// The key that identifies the occurrence, regardless of which process records it. For a
    /// schedule, the key is the due time. For an event, it names the event, such as the run or the
    /// night that ended. For a manual request, it is the caller's key or a new id.
    pub key: String,
    /// The time at which the job was due.
    pub due: Timestamp,
    /// The night to which the occurrence belongs, if any.
    pub night: Option<NightId>,
    pub origin: Origin,
    /// Runs with a higher priority start first. `None` means the job's priority.
    pub priority: Option<i32>,
    /// The settings that override the job's settings for this occurrence.
    pub settings: Vec<(String, String)>,
}

impl NewOccurrence {
    /// Creates an occurrence that the user requested and that is due at `now`.
    pub fn manual(job: JobId, key: String, now: Timestamp) -> Self {
        Self {
            job,
            key,
            due: now,
            night: None,
            origin: Origin::Manual,
            priority: None,
            settings: Vec::new(),
        }
    }
}

/// Adds an occurrence. If its key is already in use, the inner error is the id of the existing
/// occurrence.
pub(super) fn insert(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    now: Timestamp,
) -> Result<Result<OccurrenceId, OccurrenceId>, Fault> {
    release_key(tx, new)?;
    let known = "SELECT id FROM occurrences WHERE job = ?1 AND key = ?2";
    if let Some(known) = tx.first(known, params![new.job, new.key], |row| row.get(0))? {
        return Ok(Err(known));
    }
    let id = OccurrenceId::new(now);
    let (due, recorded) = (millis(new.due), millis(now));
    let settings = (!new.settings.is_empty()).then(|| to_json(&new.settings));
    tx.change(
        "INSERT INTO occurrences (id, job, key, due, recorded, night, origin, settings, priority)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
                 coalesce(?9, (SELECT policy ->> 'priority' FROM jobs WHERE id = ?2), 0))",
        params![id, new.job, new.key, due, recorded, new.night, new.origin, settings, new.priority],
    )?;
    Ok(Ok(id))
}

/// Frees the key of a settled occurrence for a request by a user or script if none of the
/// occurrence's runs was admitted, for example because the lock was held. The settled occurrence
/// keeps its history under another key.
fn release_key(tx: &Transaction<'_>, new: &NewOccurrence) -> Result<(), Fault> {
    tx.change(
        "UPDATE occurrences SET key = 'not admitted ' || id
         WHERE job = ?1 AND key = ?2 AND ?3 IN ('manual', 'queue') AND outcome IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM runs
                           WHERE occurrence = occurrences.id AND started IS NOT NULL)",
        params![new.job, new.key, new.origin],
    )?;
    Ok(())
}

/// Adds an occurrence and queues its first run. Returns `None` if the occurrence has already been
/// recorded.
pub(super) fn line_up(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    ready_at: Timestamp,
    now: Timestamp,
) -> Result<Option<RunId>, Fault> {
    match insert(tx, new, now)? {
        Ok(occurrence) => queue(tx, &occurrence, ready_at, None, now).map(Some),
        Err(_known) => Ok(None),
    }
}

/// Returns a new run id and the seed derived from it. The id sorts after all existing run ids,
/// unless the clock has been set back.
fn fresh(tx: &Transaction<'_>, now: Timestamp) -> Result<(RunId, i64), Fault> {
    let last: Option<RunId> = tx.value("SELECT max(id) FROM runs", [])?;
    let run = RunId::new_after(last.as_ref(), now);
    let digest = Digest::of(run.as_str().as_bytes()).short();
    let seed = u64::from_str_radix(&digest, 16).expect("a short digest is 16 hex digits");
    Ok((run, seed.cast_signed()))
}

/// Adds a requested run to an occurrence. The process `starter` must then spawn the run.
pub(super) fn request(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    starter: &ProcessIdentity,
    now: Timestamp,
) -> Result<RunId, Fault> {
    let (run, seed) = fresh(tx, now)?;
    tx.change(
        "INSERT INTO runs (id, occurrence, job, attempt, state, requested, starter, seed)
         SELECT ?1, id, job, 1 + (SELECT coalesce(max(attempt), 0) FROM runs WHERE occurrence = ?2),
           'requested', ?3, ?4, ?5 FROM occurrences WHERE id = ?2",
        params![run, occurrence, millis(now), to_json(starter), seed],
    )?;
    Ok(run)
}

/// Adds a queued run to an occurrence. The first tick at or after `ready_at` can start the run. If
/// `waits_for` is set, that occurrence must succeed first.
pub(super) fn queue(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    ready_at: Timestamp,
    waits_for: Option<&OccurrenceId>,
    now: Timestamp,
) -> Result<RunId, Fault> {
    let (run, seed) = fresh(tx, now)?;
    tx.change(
        "INSERT INTO runs (id, occurrence, job, attempt, state, requested, ready_at, waits_for, seed)
         SELECT ?1, id, job, 1 + (SELECT coalesce(max(attempt), 0) FROM runs WHERE occurrence = ?2),
           'queued', ?3, ?4, ?5, ?6 FROM occurrences WHERE id = ?2",
        params![run, occurrence, millis(now), millis(ready_at), waits_for, seed],
    )?;
    Ok(run)
}
