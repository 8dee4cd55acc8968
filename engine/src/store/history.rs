//! Spending, grouped by day, job, backend or pool.
//!
//! This module reads only settled rows of the database; [`super::BudgetStanding`] covers live runs.

use super::usage::row;
use super::{Amounts, Result, Store, id};
use crate::ids::{ProjectId, RunId};

/// The key by which spending is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Civil days of the project.
    Day,
    /// Its nights.
    Night,
    /// Its jobs.
    Job,
    /// The backend that answered.
    Backend,
    /// The project's runs, by the civil day, week or window of a pool: over all projects.
    Pool,
}

/// One sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSum {
    /// The day, night, job, backend or pool.
    pub name: String,
    /// The amounts that were spent.
    pub spent: Amounts,
    /// Calls whose usage nobody stated, charged as they were reserved.
    pub unstated_calls: u64,
}

/// One budget level that a run has or had a reservation in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedUsage {
    /// The kind of budget level.
    pub level: String,
    /// The key of the budget level.
    pub key: String,
    /// The amounts reserved there.
    pub reserved: Amounts,
    /// Whether it is still held.
    pub open: bool,
}

impl Store {
    /// Sums of a project, or of all pools, the last or largest first.
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
            GroupBy::Pool => {
                "SELECT level || ' ' || key, calls, tokens, micros, seconds, ideas, 0
                 FROM budget_usage WHERE level IN ('pool-day', 'pool-week', 'pool-window') AND ?1 <> ''
                 ORDER BY level, key DESC LIMIT ?2"
                    .to_owned()
            }
        };
        let limit = if limit == 0 { -1 } else { i64::from(limit) };
        self.view(|db| {
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(rusqlite::params![project.as_str(), limit], |line| {
                let mut amounts = [0_u64; 5];
                for (unit, amount) in amounts.iter_mut().enumerate() {
                    *amount = line.get::<_, i64>(unit + 1)?.max(0).cast_unsigned();
                }
                Ok(UsageSum {
                    name: line.get(0)?,
                    spent: Amounts::from_array(amounts),
                    unstated_calls: line.get::<_, i64>(6)?.max(0).cast_unsigned(),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Returns the budget levels that a run has or had a reservation in, except its own.
    pub fn held_by(&self, run: &RunId) -> Result<Vec<ReservedUsage>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT calls, tokens, micros, seconds, ideas, level, key, open
                 FROM reservations WHERE run = ?1 AND level <> 'run' ORDER BY level, key",
            )?;
            let rows = statement.query_map([run.as_str()], |line| {
                Ok(ReservedUsage {
                    reserved: row(line)?,
                    level: line.get(5)?,
                    key: line.get(6)?,
                    open: line.get(7)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Requests of a run whose money is charged as it was reserved although its tokens are known.
    pub fn unpriced_calls(&self, run: &RunId) -> Result<u64> {
        self.view(|db| {
            let count: i64 = db
                .prepare_cached(
                    "SELECT count(*) FROM requests WHERE run = ?1 AND money = 'reserved' AND stated",
                )?
                .query_row([run.as_str()], |row| row.get(0))?;
            Ok(count.max(0).cast_unsigned())
        })
    }

    /// Returns the parent run whose reservation the run's reservation came out of.
    pub fn parent_of(&self, run: &RunId) -> Result<Option<RunId>> {
        use rusqlite::OptionalExtension as _;
        self.view(|db| {
            db.prepare_cached("SELECT parent FROM escalations WHERE run = ?1")?
                .query_row([run.as_str()], |row| row.get::<_, String>(0))
                .optional()?
                .map(id)
                .transpose()
        })
    }
}
