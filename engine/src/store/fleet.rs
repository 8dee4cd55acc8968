//! Records this host's part in the runs that the hosts of a fleet share. The fleet's database
//! decides which host does the work.
//!
//! ```text
//! queued run of a fleet job ──offered──> stays queued until its result is delivered
//!                                          └──start_for_fleet──> requested: applies the result
//! claim ──enter_for_fleet──> requested: does the work
//! ```
//!
//! The facts about a claim are stored as notes on the claim's run: rows of `events` that are never
//! changed. This module must never decide whether a claim is valid.

use jiff::Timestamp;
use rusqlite::params;

use super::columns::{Query as _, json, millis, time, to_json};
use super::events::{self, Event};
use super::rows::{self, NewOccurrence};
use super::{JobId, Result, Store};
use crate::ids::{ProjectId, RunId};
use crate::policy::Policy;
use crate::process_id::ProcessIdentity;

/// A step of a run in a fleet. The callers note each step of a run at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum FleetNote {
    /// The waiting run was offered to the fleet.
    #[strum(serialize = "fleet-offered")]
    Offered,
    /// The run applies a result that another run delivered.
    #[strum(serialize = "fleet-applies")]
    Applies,
    /// The run works on one of this host's claims.
    #[strum(serialize = "fleet-claimed")]
    Claimed,
    /// The end of the run was reported to the fleet.
    #[strum(serialize = "fleet-reported")]
    Reported,
}

/// A waiting run of a fleet job.
#[derive(Clone, Debug)]
pub struct FleetRun {
    pub run: RunId,
    pub project: ProjectId,
    pub job: JobId,
    pub job_name: String,
    pub key: String,
    pub attempt: u32,
    /// The time at which the job was due.
    pub due: Timestamp,
    pub policy: Policy,
    /// Whether the run has been offered to the fleet.
    pub offered: bool,
}

impl Store {
    /// Returns the waiting runs of fleet jobs whose start time has arrived, except runs of paused
    /// jobs. A run is omitted if its job has an unsettled run that was due earlier.
    pub fn fleet_runs(&self, now: Timestamp) -> Result<Vec<FleetRun>> {
        let sql = "SELECT r.id, j.project, r.job, j.name, o.key, r.attempt, o.due, j.policy,
               EXISTS (SELECT 1 FROM events e WHERE e.run = r.id AND e.kind = 'fleet-offered')
             FROM runs r INDEXED BY runs_ready JOIN occurrences o ON o.id = r.occurrence
             JOIN jobs j ON j.id = r.job
             WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at <= ?1
               AND j.policy ->> 'fleet' IS NOT NULL
               AND coalesce(j.paused_until, 0) <= ?1
               AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
               AND NOT EXISTS (SELECT 1 FROM runs e JOIN occurrences f ON f.id = e.occurrence
                 WHERE e.job = r.job AND e.state <> 'settled' AND e.id <> r.id
                   AND (f.due, f.id) < (o.due, o.id))
             ORDER BY r.rowid";
        self.view(|db| {
            db.all(sql, [millis(now)], |row| {
                Ok(FleetRun {
                    run: row.get(0)?,
                    project: row.get(1)?,
                    job: row.get(2)?,
                    job_name: row.get(3)?,
                    key: row.get(4)?,
                    attempt: row.get(5)?,
                    due: time(row, 6)?,
                    policy: json(row, 7)?,
                    offered: row.get(8)?,
                })
            })
        })
    }

    /// Changes a waiting run's state to `requested` and adds a note. The process `starter` must
    /// then spawn the run. Returns `false` and changes nothing if the run is no longer waiting.
    pub fn start_for_fleet(
        &mut self,
        run: &RunId,
        starter: &ProcessIdentity,
        (note, detail): (FleetNote, &str),
        now: Timestamp,
    ) -> Result<bool> {
        self.write(|tx| {
            let started = tx.change(
                "UPDATE runs SET state = 'requested', starter = ?2, ready_at = NULL
                 WHERE id = ?1 AND state = 'queued' AND waits_for IS NULL",
                params![run, to_json(starter)],
            )?;
            if started == 1 {
                events::insert(tx, &event(run, note, detail, now))?;
            }
            Ok(started == 1)
        })
    }

    /// Records a claim of this host as an occurrence, requests its run, and notes the claim, all in
    /// one transaction. Returns `None` if the claim has already been recorded.
    pub fn enter_for_fleet(
        &mut self,
        new: &NewOccurrence,
        starter: &ProcessIdentity,
        detail: &str,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            let Ok(occurrence) = rows::insert(tx, new, now)? else { return Ok(None) };
            let run = rows::request(tx, &occurrence, starter, now)?;
            events::insert(tx, &event(&run, FleetNote::Claimed, detail, now))?;
            Ok(Some(run))
        })
    }

    /// Notes a step of a run in its fleet.
    pub fn note_fleet(
        &mut self,
        run: &RunId,
        note: FleetNote,
        detail: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| events::insert(tx, &event(run, note, detail, now)))
    }

    /// Returns the text of the run's latest note of this kind, if there is one.
    pub fn fleet_note(&self, run: &RunId, note: FleetNote) -> Result<Option<String>> {
        let sql = "SELECT detail FROM events WHERE run = ?1 AND kind = ?2 ORDER BY id DESC";
        let kind = note.into_str();
        self.view(|db| db.first(sql, params![run, kind], |row| row.get(0)))
    }

    /// Returns the runs with a note of this kind that was made after `since`, each with the note's
    /// text. Runs whose end has been reported to the fleet are omitted.
    pub fn unreported_for_fleet(
        &self,
        note: FleetNote,
        since: Timestamp,
    ) -> Result<Vec<(RunId, String)>> {
        let sql = "SELECT e.run, e.detail FROM events e INDEXED BY events_by_time
             WHERE e.at > ?1 AND e.kind = ?2 AND e.run IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM events d
                 WHERE d.run = e.run AND d.kind = 'fleet-reported')
             ORDER BY e.id";
        let kind = note.into_str();
        self.view(|db| {
            db.all(sql, params![millis(since), kind], |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }
}

fn event(run: &RunId, note: FleetNote, detail: &str, now: Timestamp) -> Event {
    let kind = note.into_str();
    Event {
        at: now,
        project: None,
        run: Some(run.clone()),
        kind: kind.to_owned(),
        detail: detail.to_owned(),
    }
}
