//! The limits that providers reported, shared by all runs that spend from the same pool.
//!
//! ```text
//! no limit ──refused──> limited{until, streak 1} ──until──> asked again ──refused──> streak + 1
//!     ^                                                        │
//!     └──────────────────────answered──────────────────────────┘
//! ```
//!
//! A limit must never block a run for longer than [`crate::policy::quota::LONGEST`].

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::columns::{Query as _, free, millis, time};
use super::{Result, Store};
use crate::policy::quota::{self, LONGEST};

/// A provider's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLimit {
    /// The affected pool.
    pub pool: String,
    /// The earliest time of the next request.
    pub until: Timestamp,
    /// Number of consecutive refusals, each after the wait for the previous refusal.
    pub streak: u32,
    /// The provider's message, and a remark if the reported reset time is not used.
    pub why: String,
}

impl Store {
    /// Returns the limit that applies to a pool at `now`.
    pub fn limit(&self, pool: &str, now: Timestamp) -> Result<Option<ProviderLimit>> {
        let found = self.view(|db| db.first(NOTED, [pool], limit))?;
        Ok(found.filter(|limit| limit.holds(now)))
    }

    /// Returns all limits that apply at `now`, ordered by pool.
    pub fn limits(&self, now: Timestamp) -> Result<Vec<ProviderLimit>> {
        let sql = "SELECT pool, until, streak, why FROM limits ORDER BY pool";
        let mut all = self.view(|db| db.all(sql, [], limit))?;
        all.retain(|limit| limit.holds(now));
        Ok(all)
    }

    /// Records that a provider refused a request, and returns the new limit. `said` is the reset
    /// time that the provider reported, if any.
    pub fn note_limit(
        &mut self,
        pool: &str,
        said: Option<Timestamp>,
        why: &str,
        now: Timestamp,
    ) -> Result<ProviderLimit> {
        self.write(|tx| {
            let before = tx.first(NOTED, [pool], limit)?;
            let streak = match &before {
                None => 1,
                // Another request was refused because of the same limit, so the streak stays.
                Some(limit) if now < limit.until => limit.streak,
                Some(limit) => limit.streak.saturating_add(1),
            };
            let wake = quota::wake(said, streak, now);
            let why = match wake.remark {
                Some(remark) => format!("{why} ({remark})"),
                None => why.to_owned(),
            };
            tx.change(
                "INSERT INTO limits (pool, until, streak, noted, why) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (pool) DO UPDATE SET until = ?2, streak = ?3, noted = ?4, why = ?5",
                params![pool, millis(wake.until), streak, millis(now), free(&why)],
            )?;
            Ok(ProviderLimit { pool: pool.to_owned(), until: wake.until, streak, why })
        })
    }

    /// Deletes a pool's limit after an answer to a request that was sent at `asked`. A limit that
    /// was recorded after `asked` may be newer than the answer and stays. A limit that was recorded
    /// after `now` is from before the clock was set back and is deleted.
    pub fn clear_limit(&mut self, pool: &str, asked: Timestamp, now: Timestamp) -> Result<()> {
        if !self.view(|db| db.exists(NOTED, [pool]))? {
            return Ok(());
        }
        let sql = "DELETE FROM limits WHERE pool = ?1 AND (noted < ?2 OR noted > ?3)";
        self.write(|tx| tx.change(sql, params![pool, millis(asked), millis(now)]).map(drop))
    }
}

const NOTED: &str = "SELECT pool, until, streak, why FROM limits WHERE pool = ?1";

fn limit(row: &Row<'_>) -> rusqlite::Result<ProviderLimit> {
    Ok(ProviderLimit {
        pool: row.get(0)?,
        until: time(row, 1)?,
        streak: row.get(2)?,
        why: row.get(3)?,
    })
}

impl ProviderLimit {
    /// Returns whether the limit applies at `now`. Without the upper limit, a limit from before the
    /// clock was set back would apply for too long.
    fn holds(&self, now: Timestamp) -> bool {
        let longest = now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX);
        now < self.until && self.until <= longest
    }
}
