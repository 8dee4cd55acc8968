//! Starts waiting runs and determines when the next tick has work to do.

use runner_text::counted;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::columns::{Query as _, millis, time, time_opt, to_json};
use super::nights::IGNORES_PAUSES;
use super::{AHEAD, FOREVER, Fault, JobId, NightId, Result, Store, jobs, settle};
use crate::ids::RunId;
use crate::outcome::SkipReason;
use crate::policy::Policy;
use crate::process_id::ProcessIdentity;
use crate::queue::{Choice, LiveRun, QueuedRun, choose};

impl Store {
    /// Requests the runs that may start at `now`, makes `starter` responsible for them, and returns
    /// their ids. Runs whose start deadline has passed are skipped.
    ///
    /// `only` limits the choice to one night. If the user started this night, a pause does not
    /// delay its runs. The runs are chosen and requested in one transaction, so two processes never
    /// start the same run or use the same free slot. The cost grows with the number of ready runs.
    pub fn start_ready(
        &mut self,
        only: Option<NightId>,
        starter: &ProcessIdentity,
        now: Timestamp,
    ) -> Result<Vec<RunId>> {
        // Usually no run is ready, so the first check takes no write lock.
        let ready = "SELECT 1 FROM runs INDEXED BY runs_ready
                     WHERE state = 'queued' AND waits_for IS NULL AND ready_at <= ?1";
        if !self.view(|db| db.exists(ready, [millis(now)]))? {
            return Ok(Vec::new());
        }
        self.write(|tx| {
            let waiting = waiting(tx, only, now)?;
            let Choice { start, expired } = choose(waiting, &live(tx)?, now);
            for (run, start_by) in expired {
                let why = format!("its start deadline passed at {start_by}");
                settle::skip(tx, &run, SkipReason::Late, why, now)?;
            }
            for run in &start {
                tx.change(
                    "UPDATE runs SET state = 'requested', starter = ?2, ready_at = NULL WHERE id = ?1",
                    params![run, to_json(starter)],
                )?;
            }
            Ok(start)
        })
    }

    /// Returns the next time after `now` at which a queued run becomes ready, ignoring runs that
    /// wait for another run. Returns `None` if there is no such run.
    pub fn next_ready(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(ready_at) FROM runs INDEXED BY runs_ready
                   WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1";
        Ok(self.view(|db| db.first(sql, [millis(now)], |row| time_opt(row, 0)))?.flatten())
    }

    /// Resets waiting runs and open nights whose times are more than [`AHEAD`] in the future
    /// because the clock was wrong when they were recorded. Start times chosen by the user are
    /// kept. Returns a description of the changes, or `None` if nothing changed.
    pub fn reset_waits_ahead(&mut self, now: Timestamp) -> Result<Option<String>> {
        let limit = millis(now.saturating_add(AHEAD).unwrap_or(now));
        let ahead = "SELECT 1 WHERE EXISTS (SELECT 1 FROM runs INDEXED BY runs_ready
                       WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1 AND requested > ?1)
                     OR EXISTS (SELECT 1 FROM nights INDEXED BY nights_open
                       WHERE closed IS NULL AND closes > ?1 AND opens > ?1)";
        if !self.view(|db| db.exists(ahead, [limit]))? {
            return Ok(None);
        }
        self.write(|tx| {
            let runs = tx.change(
                "UPDATE runs SET ready_at = ?2, requested = ?2
                 WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1 AND requested > ?1
                   AND (attempt > 1 OR (SELECT origin FROM occurrences WHERE id = occurrence) <> 'queue')",
                [limit, millis(now)],
            )?;
            let nights = tx.change(
                "UPDATE nights SET closes = ?2 + closes - opens, opens = ?2
                 WHERE closed IS NULL AND closes > ?1 AND opens > ?1",
                [limit, millis(now)],
            )?;
            Ok((runs + nights > 0).then(|| {
                format!(
                    "the clock was set back: {} and {} were in the future and restart from now",
                    counted(runs, "waiting run"),
                    counted(nights, "night")
                )
            }))
        })
    }

    /// Returns the name of a job whose next scheduled time is exactly `at`, if there is one.
    pub fn job_due_at(&self, at: Timestamp) -> Result<Option<String>> {
        let sql = "SELECT name FROM jobs
                   WHERE enabled AND next_due IS NOT NULL AND next_due = ?1 LIMIT 1";
        self.view(|db| db.first(sql, [millis(at)], |row| row.get(0)))
    }

    /// Returns the next time at which a tick may have work to do because a job is due, a pause
    /// ends, a run becomes ready or a night closes. The time of a due job or night may have passed.
    pub fn next_moment(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(at) FROM (
                     SELECT at FROM (SELECT next_due AS at FROM jobs
                       WHERE enabled AND next_due IS NOT NULL AND coalesce(paused_until, 0) <= ?1
                         AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                       ORDER BY next_due LIMIT 1)
                     UNION ALL SELECT min(until) FROM pause WHERE until > ?1 AND until < ?2
                     UNION ALL SELECT min(paused_until) FROM jobs
                       WHERE paused_until IS NOT NULL AND paused_until > ?1 AND paused_until < ?2
                     UNION ALL SELECT min(ready_at) FROM runs
                       WHERE state = 'queued' AND waits_for IS NULL AND ready_at > ?1
                     UNION ALL SELECT min(closes) FROM nights WHERE closed IS NULL)";
        let limits = [millis(now), millis(FOREVER)];
        Ok(self.view(|db| db.first(sql, limits, |row| time_opt(row, 0)))?.flatten())
    }
}

fn waiting(
    tx: &Transaction<'_>,
    only: Option<NightId>,
    now: Timestamp,
) -> Result<Vec<QueuedRun>, Fault> {
    // A scheduled run waits until all runs for the older scheduled times of its job are settled,
    // including retries.
    let sql = format!(
        "SELECT r.id, r.job, o.priority, o.due, o.origin IN ('clock', 'event') AND NOT EXISTS (
                 SELECT 1 FROM runs e WHERE e.occurrence = r.occurrence AND e.started IS NOT NULL)
         FROM runs r INDEXED BY runs_ready JOIN occurrences o ON o.id = r.occurrence
         JOIN jobs j ON j.id = r.job
         WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at <= ?1
           AND (?2 IS NULL OR o.night = ?2)
           AND (coalesce(j.paused_until, 0) <= ?1
                AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                OR ?2 IS NOT NULL AND {IGNORES_PAUSES})
           AND (o.origin <> 'clock' OR NOT EXISTS (
                SELECT 1 FROM runs e JOIN occurrences f ON f.id = e.occurrence
                WHERE e.job = r.job AND e.state <> 'settled' AND f.origin = 'clock' AND f.due < o.due))
         ORDER BY r.rowid"
    );
    type Ready = (RunId, JobId, i32, Timestamp, bool);
    let ready: Vec<Ready> = tx.all(&sql, params![millis(now), only], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, time(row, 3)?, row.get(4)?))
    })?;
    let mut policies: BTreeMap<JobId, Policy> = BTreeMap::new();
    let mut waiting = Vec::with_capacity(ready.len());
    for (run, job, priority, due, beginning) in ready {
        let policy = match policies.entry(job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(jobs::policy(tx, job)?),
        };
        // The runs of a job that the hosts of a fleet share are offered to the fleet, and are not
        // started from this queue.
        if policy.fleet.is_some() {
            continue;
        }
        waiting.push(QueuedRun {
            run,
            job,
            group: policy.group.name.clone(),
            slots: policy.group.slots,
            priority,
            due,
            // Runs queued by the user have no start deadline. Neither do runs of occurrences with
            // an earlier attempt that started.
            start_by: policy
                .start_within
                .filter(|_| beginning)
                .and_then(|within| due.checked_add(within).ok()),
        });
    }
    Ok(waiting)
}

/// Returns the live runs. A live run whose job has no slot count occupies a slot, but does not
/// limit the number of slots in its group.
fn live(tx: &Transaction<'_>) -> Result<Vec<LiveRun>, Fault> {
    // The process of a manual night requests all runs at once, but spawns them one by one.
    let sql = "SELECT r.job, j.slot_group, j.policy -> '$.group' ->> 'slots',
           NOT (r.owner IS NULL AND o.origin = 'manual' AND o.night IS NOT NULL)
         FROM runs r INDEXED BY runs_live JOIN occurrences o ON o.id = r.occurrence
         JOIN jobs j ON j.id = r.job WHERE r.state IN ('requested', 'running')";
    tx.all(sql, [], |row| {
        let slots: Option<u32> = row.get(2)?;
        Ok(LiveRun {
            job: row.get(0)?,
            group: row.get(1)?,
            slots: slots.unwrap_or(u32::MAX),
            occupied: row.get(3)?,
        })
    })
}
