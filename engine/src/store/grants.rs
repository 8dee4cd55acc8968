//! The state of a budget level, and one-off grants that raise its limit.
//!
//! A grant applies to one budget level, so it ends with that level's day, night or window, or at an
//! earlier time. A grant can only add to the limit, and the next reservation includes it. A grant
//! must never be created without a reason.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use super::columns::{Query as _, free, millis, time, time_opt};
use super::usage::{amounts, held_at, in_use, stored};
use super::{Amounts, BudgetLevel, Result, Store, reserve};
use crate::ids::RunId;

/// A one-off addition to the limit of a budget level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind of budget level.
    pub level: String,
    /// The key of the budget level.
    pub key: String,
    /// The time at which it was granted.
    pub made: Timestamp,
    /// When the grant ends, if it ends before the period of its budget level.
    pub until: Option<Timestamp>,
    /// The granted amounts.
    pub amounts: Amounts,
    pub reason: String,
    /// The person who granted it.
    pub who: String,
}

/// The state of a budget level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStanding {
    /// The budget level. The key of a window is resolved.
    pub level: BudgetLevel,
    /// The start and end of the window, if the level is a window that is open.
    pub window: Option<(Timestamp, Timestamp)>,
    /// The granted amounts that have not ended.
    pub granted: Amounts,
    /// The amounts spent so far.
    pub used: Amounts,
    /// The amounts that live runs have reserved.
    pub reserved: Amounts,
}

impl BudgetStanding {
    /// Returns the amount of each unit that can still be reserved. `None` means that the level does
    /// not limit the unit.
    pub fn left(&self) -> [Option<u64>; 5] {
        let (cap, more) = (self.level.cap.array(), self.granted.array());
        let (used, held) = (self.used.array(), self.reserved.array());
        std::array::from_fn(|unit| {
            cap[unit].map(|cap| {
                cap.saturating_add(more[unit]).saturating_sub(used[unit]).saturating_sub(held[unit])
            })
        })
    }
}

impl Store {
    /// Returns the state of a budget level at `now`. The cost is a few lookups by key, regardless
    /// of the length of the history.
    pub fn standing(&self, level: &BudgetLevel, now: Timestamp) -> Result<BudgetStanding> {
        self.view(|db| {
            let mut level = level.clone();
            let mut window = None;
            if let Some(length) = level.window {
                window = reserve::open_window(db, &level.key, length, now)?;
                let opened = window.map_or(now, |(opened, _)| opened);
                level.key = reserve::window_key(&level.key, opened);
            }
            let both = in_use(db, level.level, &level.key)?;
            let reserved = held_at(db, level.level, &level.key)?;
            Ok(BudgetStanding {
                granted: reserve::granted(db, level.level, &level.key, now)?,
                used: both.less(reserved),
                level,
                window,
                reserved,
            })
        })
    }

    /// Adds a grant to a budget level. If the level is a window, the window must be open.
    pub fn grant(&mut self, grant: &Grant) -> Result<()> {
        let [calls, tokens, micros, seconds, ideas] = stored(grant.amounts);
        let (level, key, reason, who) = (&grant.level, &grant.key, &grant.reason, &grant.who);
        let (made, until) = (millis(grant.made), grant.until.map(millis));
        self.write(|tx| {
            tx.change(
                "INSERT INTO grants
                   (level, key, made, until, calls, tokens, micros, seconds, ideas, reason, who)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    level,
                    key,
                    made,
                    until,
                    calls,
                    tokens,
                    micros,
                    seconds,
                    ideas,
                    free(reason),
                    who
                ],
            )?;
            Ok(())
        })
    }

    /// Returns all grants for a budget level, oldest first. Grants that have ended are included.
    pub fn grants(&self, level: &str, key: &str) -> Result<Vec<Grant>> {
        let sql =
            "SELECT calls, tokens, micros, seconds, ideas, level, key, made, until, reason, who
                   FROM grants WHERE level = ?1 AND key = ?2 ORDER BY id";
        self.view(|db| {
            db.all(sql, [level, key], |row| {
                Ok(Grant {
                    level: row.get(5)?,
                    key: row.get(6)?,
                    made: time(row, 7)?,
                    until: time_opt(row, 8)?,
                    amounts: amounts(row)?,
                    reason: row.get(9)?,
                    who: row.get(10)?,
                })
            })
        })
    }

    /// Returns the runs that still hold a reservation.
    pub fn holders(&self) -> Result<Vec<RunId>> {
        let sql = "SELECT DISTINCT run FROM reservations WHERE open ORDER BY run";
        self.view(|db| db.values(sql, []))
    }

    /// Returns the start and end of the pool's window of this length, if it is open.
    pub fn window(
        &self,
        pool: &str,
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        self.view(|db| reserve::open_window(db, pool, length, now))
    }
}
