//! Reports the state of budget levels, and stores one-off grants that raise their limits.
//!
//! A grant ends with the period of its budget level, such as a day, night or window, or at an
//! earlier time. A grant can only raise the limit, and takes effect with the next reservation.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use super::columns::{Query as _, free, millis, time, time_opt, to_json};
use super::usage::{amounts, amounts_from, held_at, in_use, stored};
use super::{Amounts, BudgetLevel, Result, Store, reserve};
use crate::ids::RunId;

/// A one-off addition to the limit of a budget level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind of budget level.
    pub level: String,
    /// The key of the budget level.
    pub key: String,
    /// The time at which the grant was made.
    pub made: Timestamp,
    /// The end of the grant. `None` if it ends with the level's period.
    pub until: Option<Timestamp>,
    /// The granted amounts.
    pub amounts: Amounts,
    pub reason: String,
    /// The person who made the grant.
    pub who: String,
}

/// The state of a budget level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStanding {
    /// The budget level. The key of a window refers to the open window, or to a window that opens
    /// now.
    pub level: BudgetLevel,
    /// The start and end of the window, if the level is a window and the window is open.
    pub window: Option<(Timestamp, Timestamp)>,
    /// The sum of the grants that have not ended.
    pub granted: Amounts,
    /// The amounts spent.
    pub used: Amounts,
    /// The amounts reserved by live runs.
    pub reserved: Amounts,
}

impl BudgetStanding {
    /// Returns the amount of each unit that can still be reserved. `None` means that the unit has
    /// no limit.
    pub fn left(&self) -> [Option<u64>; 5] {
        let (limit, used) = (self.limit(), self.used.plus(self.reserved).array());
        std::array::from_fn(|unit| limit[unit].map(|limit| limit.saturating_sub(used[unit])))
    }

    /// Returns the limit of each unit, including the grants. `None` means that the unit has no
    /// limit.
    pub fn limit(&self) -> [Option<u64>; 5] {
        let (cap, more) = (self.level.cap.array(), self.granted.array());
        std::array::from_fn(|unit| cap[unit].map(|cap| cap.saturating_add(more[unit])))
    }
}

impl Store {
    /// Returns the state of a budget level at `now`. The cost does not depend on the length of the
    /// history.
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

    /// Adds a grant to a budget level.
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

    /// Returns, by key, the amounts granted at budget levels of one kind. Grants that have ended at
    /// `now` are not included. Levels without grants are omitted.
    pub fn granted(
        &self,
        level: &str,
        keys: &[String],
        now: Timestamp,
    ) -> Result<BTreeMap<String, Amounts>> {
        let sql = "SELECT k.value, g.calls, g.tokens, g.micros, g.seconds, g.ideas
                   FROM json_each(?2) k JOIN grants g ON g.level = ?1 AND g.key = k.value
                   WHERE g.until IS NULL OR g.until > ?3";
        let rows: Vec<(String, Amounts)> = self.view(|db| {
            let params = params![level, to_json(&keys), millis(now)];
            db.all(sql, params, |row| Ok((row.get(0)?, amounts_from(row, 1)?)))
        })?;
        let mut found: BTreeMap<String, Amounts> = BTreeMap::new();
        for (key, amounts) in rows {
            let sum = found.entry(key).or_default();
            *sum = sum.plus(amounts);
        }
        Ok(found)
    }

    /// Returns all grants for a budget level, oldest first, including grants that have ended.
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

    /// Returns the runs that have an open reservation.
    pub fn holders(&self) -> Result<Vec<RunId>> {
        let sql = "SELECT DISTINCT run FROM reservations WHERE open ORDER BY run";
        self.view(|db| db.values(sql, []))
    }

    /// Returns the start and end of the pool's window of this length, if the window is open at
    /// `now`.
    pub fn window(
        &self,
        pool: &str,
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        self.view(|db| reserve::open_window(db, pool, length, now))
    }
}
