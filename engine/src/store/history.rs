//! Reports past spending, grouped by day, night, job, backend or pool. [`super::BudgetStanding`]
//! describes a level's current state.

use rusqlite::params;

use super::columns::{Count, Query as _};
use super::usage::{amounts, amounts_from};
use super::{Amounts, Result, Store};
use crate::ids::{ProjectId, RunId};

/// The property by which spending is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Civil days of the project.
    Day,
    /// Nights of the project.
    Night,
    /// Jobs of the project.
    Job,
    /// Backends that received requests from the project's runs.
    Backend,
    /// Pools, across all projects.
    Pool,
}

/// A group's spending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSum {
    /// The day, night, job, backend or pool.
    pub name: String,
    /// The spent amounts.
    pub spent: Amounts,
    /// The number of calls without reported usage, which are charged at least their reserved
    /// maximum. Always 0 for days and pools.
    pub unstated_calls: u64,
}

/// A run's reservation at a budget level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedUsage {
    /// The kind of budget level.
    pub level: String,
    /// The key of the budget level.
    pub key: String,
    /// The amounts reserved at this level.
    pub reserved: Amounts,
    /// Whether the reservation is still open.
    pub open: bool,
}

impl Store {
    /// Returns at most `limit` groups of a project's spending or of all pools' spending. Days and
    /// nights are ordered from newest to oldest, and the other groups by descending cost. A `limit`
    /// of 0 returns all groups.
    pub fn spending(&self, project: &ProjectId, by: GroupBy, limit: u32) -> Result<Vec<UsageSum>> {
        let sums = "sum(calls), sum(tokens), sum(micros), sum(seconds), sum(ideas)";
        let sql = match by {
            GroupBy::Day => {
                "SELECT substr(key, length(?1) + 2), calls, tokens, micros, seconds, ideas, 0
                 FROM budget_usage WHERE level = 'day' AND key GLOB ?1 || ' *' ORDER BY key DESC LIMIT ?2"
                    .to_owned()
            }
            GroupBy::Night => {
                "SELECT n.name, a.calls, a.tokens, a.micros, a.seconds, a.ideas,
                   (SELECT count(*) FROM occurrences o JOIN runs r ON r.occurrence = o.id
                      JOIN requests q ON q.run = r.id WHERE o.night = n.id AND NOT q.stated)
                 FROM nights n JOIN budget_usage a ON a.level = 'night' AND a.key = CAST(n.id AS TEXT)
                 WHERE n.project = ?1 ORDER BY n.id DESC LIMIT ?2"
                    .to_owned()
            }
            GroupBy::Job => format!(
                "WITH spent AS (
                   SELECT j.name AS name, 0 AS calls, 0 AS tokens, 0 AS micros, 0 AS ideas,
                     max(0, (r.finished - r.started + 999) / 1000) AS seconds, 0 AS unstated
                   FROM runs r JOIN jobs j ON j.id = r.job
                   WHERE j.project = ?1 AND r.started IS NOT NULL AND r.finished IS NOT NULL
                   UNION ALL
                   SELECT j.name, q.calls, q.tokens, q.micros, q.ideas, 0, NOT q.stated
                   FROM requests q JOIN runs r ON r.id = q.run JOIN jobs j ON j.id = r.job
                   WHERE j.project = ?1)
                 SELECT name, {sums}, sum(unstated) FROM spent GROUP BY name
                 ORDER BY sum(micros) DESC, sum(calls) DESC, sum(seconds) DESC LIMIT ?2"
            ),
            GroupBy::Backend => "SELECT q.backend, sum(q.calls), sum(q.tokens), sum(q.micros), 0, sum(q.ideas),
                   sum(NOT q.stated)
                 FROM requests q JOIN runs r ON r.id = q.run JOIN jobs j ON j.id = r.job
                 WHERE j.project = ?1 GROUP BY q.backend
                 ORDER BY sum(q.micros) DESC, sum(q.calls) DESC LIMIT ?2"
                .to_owned(),
            // A pool's days, weeks and windows each count the same usage, but a limit may have been
            // added later than the others. The name of the pool ends at the last space of a key.
            GroupBy::Pool => {
                "WITH spent AS (
                   SELECT rtrim(rtrim(key, replace(key, ' ', ''))) AS pool, sum(calls) AS calls,
                     sum(tokens) AS tokens, sum(micros) AS micros, sum(seconds) AS seconds, sum(ideas) AS ideas
                   FROM budget_usage WHERE level IN ('pool-day', 'pool-week', 'pool-window') AND ?1 <> ''
                   GROUP BY level, pool)
                 SELECT pool, max(calls), max(tokens), max(micros), max(seconds), max(ideas), 0
                 FROM spent GROUP BY pool ORDER BY max(micros) DESC, max(calls) DESC, pool LIMIT ?2"
                    .to_owned()
            }
        };
        let limit = if limit == 0 { -1 } else { i64::from(limit) };
        self.view(|db| {
            db.all(&sql, params![project, limit], |row| {
                let Count(unstated_calls) = row.get(6)?;
                Ok(UsageSum { name: row.get(0)?, spent: amounts_from(row, 1)?, unstated_calls })
            })
        })
    }

    /// Returns the run's open and closed reservations, except the reservation at the level of the
    /// run itself.
    pub fn held_by(&self, run: &RunId) -> Result<Vec<ReservedUsage>> {
        let sql = "SELECT calls, tokens, micros, seconds, ideas, level, key, open
                   FROM reservations WHERE run = ?1 AND level <> 'run' ORDER BY level, key";
        self.view(|db| {
            db.all(sql, [run], |row| {
                let (level, key, open) = (row.get(5)?, row.get(6)?, row.get(7)?);
                Ok(ReservedUsage { reserved: amounts(row)?, level, key, open })
            })
        })
    }

    /// Counts a run's requests whose tokens are known but which are charged the reserved maximum
    /// cost.
    pub fn unpriced_calls(&self, run: &RunId) -> Result<u64> {
        let sql = "SELECT count(*) FROM requests WHERE run = ?1 AND money = 'reserved' AND stated";
        self.view(|db| db.value(sql, [run]).map(|Count(count)| count))
    }

    /// Counts a run's requests whose reported cost was limited to the amount that the run had left.
    pub fn limited_calls(&self, run: &RunId) -> Result<u64> {
        let sql = "SELECT count(*) FROM requests WHERE run = ?1 AND money = 'limited'";
        self.view(|db| db.value(sql, [run]).map(|Count(count)| count))
    }

    /// Returns the parent run from whose reservation this run's reservation was taken, if there is
    /// one.
    pub fn parent_of(&self, run: &RunId) -> Result<Option<RunId>> {
        let sql = "SELECT parent FROM escalations WHERE run = ?1";
        self.view(|db| db.first(sql, [run], |row| row.get(0)))
    }
}
