//! Stores the limits that providers reported. A limit applies to all runs that spend from its pool.
//!
//! ```text
//! no limit ──refused──> limited{until, streak 1} ──until──> asked again ──refused──> streak + 1
//!     ^                                                        │
//!     └──────────────────────answered──────────────────────────┘
//! ```
//!
//! A recorded limit ends after at most [`LONGEST`], but a later refusal can renew it.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::columns::{Query as _, free, millis, time};
use super::{Result, Store};
use crate::policy::quota::{self, LONGEST};

/// A limit on a pool's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLimit {
    pub pool: String,
    /// The time at which the limit ends.
    pub until: Timestamp,
    /// The number of consecutive refusals, each received after the wait that followed the previous
    /// refusal.
    pub streak: u32,
    /// The reason for the limit, with a remark if the provider reported no reset time or the time
    /// was not used.
    pub why: String,
}

impl Store {
    /// Returns the limit that applies to a pool at `now`, if there is one.
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

    /// Records that a pool has reached its limit, and returns the limit. `said` is the reset time
    /// that the provider reported, if any.
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
                // Another request reached the same limit, which does not lengthen the streak.
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

    /// Deletes a pool's limit after the provider answered a request that was sent at `asked`. A
    /// limit recorded since `asked` may be newer than the answer, so it is kept. A limit whose
    /// recorded time is after `now` was recorded before the clock was set back, so it is deleted.
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
    /// Returns whether the limit applies at `now`. A limit that ends more than [`LONGEST`] after
    /// `now` was recorded before the clock was set back, and is ignored.
    fn holds(&self, now: Timestamp) -> bool {
        let longest = now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX);
        now < self.until && self.until <= longest
    }
}
