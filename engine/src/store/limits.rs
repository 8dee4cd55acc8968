//! Limits that a provider reported, remembered for all runs that spend from the same pool.
//!
//! ```text
//! no limit ──refused──> limited{until, streak 1} ──until──> asked again ──refused──> streak + 1
//!     ^                                                        │
//!     └──────────────────────answered──────────────────────────┘
//! ```
//!
//! A limit must never block a run for longer than [`crate::policy::quota::LONGEST`], whatever the
//! provider reported.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Fault, Result, Store, millis, timestamp};
use crate::policy::quota::{self, LONGEST};

/// A limit that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLimit {
    /// The pool.
    pub pool: String,
    /// No request is made before this time.
    pub until: Timestamp,
    /// How often in a row it was refused, each time after the wait for the time before.
    pub streak: u32,
    /// The provider's words, and ours on its time.
    pub why: String,
}

impl Store {
    /// Returns the limit that applies to a pool at `now`.
    pub fn limit(&self, pool: &str, now: Timestamp) -> Result<Option<ProviderLimit>> {
        let found = self.view(|db| noted(db, pool))?;
        // Said before the clock was set far back, it would hold for as long.
        let longest = now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX);
        Ok(found.filter(|limit| now < limit.until && limit.until <= longest))
    }

    /// Returns all limits that apply at `now`, by pool.
    pub fn limits(&self, now: Timestamp) -> Result<Vec<ProviderLimit>> {
        let pools: Vec<String> = self.view(|db| {
            let mut statement = db.prepare_cached("SELECT pool FROM limits ORDER BY pool")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        let mut all = Vec::new();
        for pool in pools {
            all.extend(self.limit(&pool, now)?);
        }
        Ok(all)
    }

    /// Records that a provider refused a request, until the time `said` if it stated one. Returns
    /// the limit that applies now.
    pub fn note_limit(
        &mut self,
        pool: &str,
        said: Option<Timestamp>,
        why: &str,
        now: Timestamp,
    ) -> Result<ProviderLimit> {
        self.write(|tx| {
            let before = noted(tx, pool)?;
            let streak = match &before {
                None => 1,
                // Others met the same limit at the same time.
                Some(limit) if now < limit.until => limit.streak,
                Some(limit) => limit.streak.saturating_add(1),
            };
            let wake = quota::wake(said, streak, now);
            let why = match wake.remark {
                Some(remark) => format!("{why} ({remark})"),
                None => why.to_owned(),
            };
            tx.prepare_cached(
                "INSERT INTO limits (pool, until, streak, noted, why) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (pool) DO UPDATE SET until = ?2, streak = ?3, noted = ?4, why = ?5",
            )?
            .execute(params![pool, millis(wake.until), streak, millis(now), why])?;
            Ok(ProviderLimit { pool: pool.to_owned(), until: wake.until, streak, why })
        })
    }

    /// Deletes the limit of a pool that answered a request made at `asked`. A refusal noted since
    /// then may be newer than that answer and stays. A limit noted later than `now` was noted
    /// before the clock was set back, and is deleted. Writes nothing where no limit is noted.
    pub fn clear_limit(&mut self, pool: &str, asked: Timestamp, now: Timestamp) -> Result<()> {
        if self.view(|db| noted(db, pool))?.is_none() {
            return Ok(());
        }
        self.write(|tx| {
            tx.prepare_cached("DELETE FROM limits WHERE pool = ?1 AND (noted < ?2 OR noted > ?3)")?
                .execute(params![pool, millis(asked), millis(now)])?;
            Ok(())
        })
    }
}

fn noted(db: &Connection, pool: &str) -> Result<Option<ProviderLimit>, Fault> {
    db.prepare_cached("SELECT until, streak, why FROM limits WHERE pool = ?1")?
        .query_row([pool], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .map(|(until, streak, why)| {
            Ok(ProviderLimit { pool: pool.to_owned(), until: timestamp(until)?, streak, why })
        })
        .transpose()
}
