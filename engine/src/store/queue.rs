//! The queue: runs that wait, and the step from waiting to being started.

use runner_text::counted;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, params};

use super::{
    AHEAD, FOREVER, Fault, JobId, NightId, Result, Store, from_json, id, millis, settle, timestamp,
    timestamp_opt, to_json,
};
use crate::ids::RunId;
use crate::policy::Policy;
use crate::process_id::ProcessIdentity;
use crate::queue::{Choice, LiveRun, QueuedRun, choose};

impl Store {
    /// Lets those of the waiting begin whose turn it is at `now`, all or those of one night, and
    /// makes `starter` answer for them. One transaction: two drivers never start the same run, and
    /// never more of a group than it has slots. The cost follows the number of those that are ready.
    pub fn start_ready(
        &mut self,
        only: Option<NightId>,
        starter: &ProcessIdentity,
        now: Timestamp,
    ) -> Result<Vec<RunId>> {
        // A look without a write lock first: mostly nothing is ready.
        let some = self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_ready
                     WHERE state = 'queued' AND waits_for IS NULL AND ready_at <= ?1)",
                )?
                .query_row([millis(now)], |row| row.get::<_, bool>(0))?)
        })?;
        if !some {
            return Ok(Vec::new());
        }
        self.write(|tx| {
            let waiting = waiting(tx, only, now)?;
            let Choice { start, expired } = choose(waiting, &live(tx)?, now);
            for (run, start_by) in expired {
                let why = format!("its start deadline passed at {start_by}");
                settle::skip(tx, &run, why, now)?;
            }
            for run in &start {
                tx.prepare_cached(
                    "UPDATE runs SET state = 'requested', starter = ?2, ready_at = NULL WHERE id = ?1",
                )?
                .execute(params![run.as_str(), to_json(starter)])?;
            }
            Ok(start)
        })
    }

    /// Returns the next time after `now` at which a waiting run is ready, whether or not it may
    /// begin then.
    pub fn next_ready(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        self.view(|db| {
            let next: Option<i64> = db
                .prepare_cached(
                    "SELECT min(ready_at) FROM runs INDEXED BY runs_ready
                     WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1",
                )?
                .query_row([millis(now)], |row| row.get(0))?;
            timestamp_opt(next)
        })
    }

    /// Resets runs that wait for a time more than an hour in the future only because the clock was
    /// wrong when they were queued, and the nights that opened then. Returns a description of the
    /// changes. A time that a person chose stays.
    pub fn reset_waits_ahead(&mut self, now: Timestamp) -> Result<Option<String>> {
        let limit = millis(now.saturating_add(AHEAD).unwrap_or(now));
        let ahead = self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_ready
                       WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1 AND requested > ?1)
                     OR EXISTS (SELECT 1 FROM nights INDEXED BY nights_open
                       WHERE closed IS NULL AND closes > ?1 AND opens > ?1)",
                )?
                .query_row([limit], |row| row.get::<_, bool>(0))?)
        })?;
        if !ahead {
            return Ok(None);
        }
        self.write(|tx| {
            let runs = tx.execute(
                "UPDATE runs SET ready_at = ?2, requested = ?2
                 WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1 AND requested > ?1
                   AND (attempt > 1 OR (SELECT origin FROM occurrences WHERE id = occurrence) <> 'queue')",
                [limit, millis(now)],
            )?;
            let nights = tx.execute(
                "UPDATE nights SET closes = ?2 + closes - opens, opens = ?2
                 WHERE closed IS NULL AND closes > ?1 AND opens > ?1",
                [limit, millis(now)],
            )?;
            Ok((runs + nights > 0).then(|| {
                format!(
                    "the clock was set back: {} and {} lay ahead of it and begin again from now",
                    counted(runs, "waiting run"),
                    counted(nights, "night")
                )
            }))
        })
    }

    /// Returns the name of a job that a clock makes due at exactly `at`, if there is one.
    pub fn job_due_at(&self, at: Timestamp) -> Result<Option<String>> {
        self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT name FROM jobs WHERE enabled AND next_due IS NOT NULL AND next_due = ?1 LIMIT 1",
                )?
                .query_row([millis(at)], |row| row.get(0))
                .optional()?)
        })
    }

    /// Returns the next time at which a tick may have work of its own: a job is due, a run is
    /// ready, or a night closes. Runs that wait for another run's end do not count.
    pub fn next_moment(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        self.view(|db| {
            let next: Option<i64> = db
                .prepare_cached(
                    "SELECT min(at) FROM (
                       SELECT at FROM (SELECT next_due AS at FROM jobs
                         WHERE enabled AND next_due IS NOT NULL AND coalesce(paused_until, 0) <= ?1
                           AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                         ORDER BY next_due LIMIT 1)
                       UNION ALL SELECT min(until) FROM pause WHERE until > ?1 AND until < ?2
                       UNION ALL SELECT min(paused_until) FROM jobs
                         WHERE paused_until IS NOT NULL AND paused_until > ?1 AND paused_until < ?2
                       UNION ALL SELECT min(ready_at) FROM runs
                         WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1
                       UNION ALL SELECT min(closes) FROM nights WHERE closed IS NULL)",
                )?
                .query_row([millis(now), millis(FOREVER)], |row| row.get(0))?;
            timestamp_opt(next)
        })
    }
}

fn waiting(
    tx: &Transaction<'_>,
    only: Option<NightId>,
    now: Timestamp,
) -> Result<Vec<QueuedRun>, Fault> {
    // A clock's scheduled time waits for the older ones of its job, even while those wait for
    // another try.
    let mut statement = tx.prepare_cached(
        "SELECT r.id, r.job, o.priority, o.due, o.origin IN ('clock', 'event') AND NOT EXISTS (
                  SELECT 1 FROM runs e WHERE e.occurrence = r.occurrence AND e.started IS NOT NULL)
         FROM runs r INDEXED BY runs_ready JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = r.job
         WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at <= ?1
           AND (?2 IS NULL OR o.night = ?2)
           AND (?2 IS NOT NULL OR (coalesce(j.paused_until, 0) <= ?1
                AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)))
           AND (o.origin <> 'clock' OR NOT EXISTS (
                SELECT 1 FROM runs e JOIN occurrences f ON f.id = e.occurrence
                WHERE e.job = r.job AND e.state <> 'settled' AND f.origin = 'clock' AND f.due < o.due))
         ORDER BY r.rowid",
    )?;
    let mut rows = statement.query(params![millis(now), only.map(|night| night.0)])?;
    let mut policies: BTreeMap<i64, Policy> = BTreeMap::new();
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        let job: i64 = row.get(1)?;
        let policy = match policies.entry(job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(policy_of(tx, job)?),
        };
        let due = timestamp(row.get(3)?)?;
        // A run that a person queued is wanted whenever its turn comes, and an attempt that follows
        // another is not the beginning.
        let beginning: bool = row.get(4)?;
        waiting.push(QueuedRun {
            run: id(row.get::<_, String>(0)?)?,
            job: JobId(job),
            group: policy.group.name.clone(),
            slots: policy.group.slots,
            priority: row.get(2)?,
            due,
            start_by: policy
                .start_within
                .filter(|_| beginning)
                .and_then(|within| due.checked_add(within).ok()),
        });
    }
    Ok(waiting)
}

fn policy_of(tx: &Transaction<'_>, job: i64) -> Result<Policy, Fault> {
    let policy: String = tx
        .prepare_cached("SELECT policy FROM jobs WHERE id = ?1")?
        .query_row([job], |row| row.get(0))?;
    from_json(&policy)
}

/// Returns the live runs; a run whose policy cannot be read counts only for its job and group.
fn live(tx: &Transaction<'_>) -> Result<Vec<LiveRun>, Fault> {
    let mut statement = tx.prepare_cached(
        "SELECT r.job, j.slot_group, j.policy -> '$.group' ->> 'slots' FROM runs r INDEXED BY runs_live
         JOIN jobs j ON j.id = r.job WHERE r.state IN ('requested', 'running')",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(LiveRun {
            job: JobId(row.get(0)?),
            group: row.get(1)?,
            slots: row.get::<_, Option<u32>>(2)?.unwrap_or(u32::MAX),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
