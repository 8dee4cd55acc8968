//! Records budget usage. Amounts are reserved before they are spent, and settled afterwards.
//! Unknown usage is charged at the reserved maximum.
//!
//! ```text
//! limits + grants ──fit──> reservation of a run, at all its levels       (BEGIN IMMEDIATE)
//!                            └──request──> reported usage | reserved maximum
//!                            └──escalation──> reservation of a child, from the remaining amount
//!                        settle ──> usage at each level; the rest is released
//! ```
//!
//! A run reserves its maximum at every level until it is settled. The levels are its job's day, its
//! night, its project's day and the pools it spends from. Each model request uses a part of that
//! reservation. A request is charged at least its reserved maximum if its usage is not reported or
//! exceeds [`MEASURE`]. A cost reported by a backend is charged up to the amount that the run has
//! left, because a program that reports an arbitrary cost must not use up the budget of other runs.
//! If neither the run nor a level limits a unit, the run reserves the unit's `DEFAULT` from
//! `reserve.rs` or, for time, its timeout. Therefore, no amount is unlimited. Stored amounts are
//! limited so that their sums do not overflow a column.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::columns::{Count, Query as _, free, millis};
use super::{Fault, Result, Store};
use crate::admission::Shortfall;
use crate::ids::RunId;

/// An amount of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Model calls.
    pub calls: u64,
    /// Input and output tokens.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub micros: u64,
    /// Wall-clock seconds.
    pub seconds: u64,
    /// Ideas, or another unit in which a job counts its work.
    pub ideas: u64,
}

/// A limit for each unit. `None` means that the unit has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Model calls.
    pub calls: Option<u64>,
    /// Input and output tokens.
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub micros: Option<u64>,
    /// Wall-clock seconds.
    pub seconds: Option<u64>,
    /// Ideas, or another unit in which a job counts its work.
    pub ideas: Option<u64>,
}

/// A budget level that a run spends from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLevel {
    /// The kind of level: [`DAY`], [`NIGHT`], [`JOB`], [`POOL_DAY`], [`POOL_WEEK`], [`WINDOW`] or
    /// [`PARENT`].
    pub level: &'static str,
    /// The key of the level within its kind. For a window, it is the pool's name until the window
    /// is resolved. For a parent, it is the parent run's id.
    pub key: String,
    /// The human-readable name, such as `night 2026-11-21`.
    pub label: String,
    /// The maximum that all runs together may reserve and spend at this level.
    pub cap: Budget,
    /// The length of the level's window, if it has one. The first run that reserves from the window
    /// opens it.
    pub window: Option<SignedDuration>,
}

/// The kind of level for a civil day of a project.
pub const DAY: &str = "day";
/// The kind of level for a night.
pub const NIGHT: &str = "night";
/// The kind of level for a civil day of one job.
pub const JOB: &str = "job";
/// The kind of level for a civil day of a pool, across all projects.
pub const POOL_DAY: &str = "pool-day";
/// The kind of level for an ISO week of a pool, across all projects.
pub const POOL_WEEK: &str = "pool-week";
/// The kind of level for a pool's window, such as a provider's five-hour window.
pub const WINDOW: &str = "pool-window";
/// The kind of level for a parent run's remaining amounts. A child's reservation is taken from its
/// parent's reservation at each of the parent's levels.
pub const PARENT: &str = "parent";
/// The kind of level for a single run.
pub(super) const RUN: &str = "run";

impl BudgetLevel {
    /// Creates a budget level without a window.
    pub fn new(level: &'static str, key: String, label: String, cap: Budget) -> Self {
        Self { level, key, label, cap, window: None }
    }

    /// Creates the level of a parent run, for a run that the parent starts.
    pub fn of_parent(parent: &RunId) -> Self {
        let label = format!("run {parent}");
        Self::new(PARENT, parent.to_string(), label, Budget::default())
    }
}

/// The usage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestUsage {
    /// The backend reported the usage.
    Known(Amounts),
    /// The backend did not report the usage. The reserved maximum is charged.
    Unknown,
    /// The backend did not report the usage, but at least this much was observed. For each unit,
    /// the larger of the reserved maximum and this amount is charged.
    AtLeast(Amounts),
}

/// The source of a request's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Money {
    /// The backend reported the cost.
    Stated,
    /// The cost was computed from the reported tokens and the price list.
    Priced,
    /// The price is unknown, so the reserved maximum is charged.
    Reserved,
    /// The backend reported more than the run had left. The remaining amount is charged.
    Limited,
}

impl Money {
    /// Returns the source's name in the database and in `--json` output.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Returns a run's duration as counted against its budget, in seconds, rounded up.
pub fn budget_seconds(started: Timestamp, finished: Timestamp) -> u64 {
    let elapsed = finished.as_millisecond() - started.as_millisecond();
    elapsed.max(0).unsigned_abs().div_ceil(1000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(i64);

/// The names of the units, in column order.
pub const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

impl Amounts {
    /// Returns the amounts as an array in the order of [`UNITS`].
    pub fn array(self) -> [u64; 5] {
        [self.calls, self.tokens, self.micros, self.seconds, self.ideas]
    }

    /// Creates amounts from an array in the order of [`UNITS`].
    pub fn from_array([calls, tokens, micros, seconds, ideas]: [u64; 5]) -> Self {
        Self { calls, tokens, micros, seconds, ideas }
    }

    /// Adds the amounts of each unit. The sums saturate.
    pub fn plus(self, other: Self) -> Self {
        let (a, b) = (self.array(), other.array());
        Self::from_array(std::array::from_fn(|unit| a[unit].saturating_add(b[unit])))
    }

    /// Subtracts the amounts of each unit. The differences are never negative.
    pub fn less(self, other: Self) -> Self {
        let (a, b) = (self.array(), other.array());
        Self::from_array(std::array::from_fn(|unit| a[unit].saturating_sub(b[unit])))
    }

    /// Returns whether any unit exceeds [`MEASURE`].
    pub fn beyond_measure(self) -> bool {
        self.array().into_iter().any(|amount| amount > MEASURE)
    }
}

/// The largest plausible amount of any unit, 10¹⁵. If a backend reports a larger amount, the usage
/// is treated as unknown.
pub const MEASURE: u64 = 1_000_000_000_000_000;

impl Budget {
    /// Returns the limits as an array in the order of [`UNITS`].
    pub fn array(self) -> [Option<u64>; 5] {
        [self.calls, self.tokens, self.micros, self.seconds, self.ideas]
    }
}

impl Store {
    /// Returns the sum of the amounts spent and reserved at a budget level. The key of a window must
    /// be resolved.
    pub fn account(&self, level: &str, key: &str) -> Result<Amounts> {
        self.view(|db| in_use(db, level, key))
    }

    /// Returns the amounts that a run's requests have used or reserved, excluding time.
    pub fn spent_by(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| used_by(db, run))
    }

    /// Reserves a model request within the run's reservation.
    ///
    /// # Errors
    /// Returns the shortfall as the inner error if the run's reservation has too little left.
    /// Returns [`StoreError::NotFound`](super::StoreError::NotFound) if the run has no open
    /// reservation.
    pub fn reserve_request(
        &mut self,
        run: &RunId,
        backend: &str,
        want: Amounts,
        now: Timestamp,
    ) -> Result<Result<RequestId, Shortfall>> {
        self.write(|tx| {
            let reserved = reserved_by(tx, run)?
                .ok_or_else(|| Fault::not_found("open reservation of run", run))?;
            let left = reserved.less(used_by(tx, run)?).array();
            for (unit, name) in UNITS.iter().enumerate().filter(|(_, name)| **name != "seconds") {
                let (wanted, left) = (want.array()[unit], left[unit]);
                if wanted > left {
                    let level = format!("run {run}");
                    return Ok(Err(Shortfall { level, unit: name, wanted, left }));
                }
            }
            let [calls, tokens, micros, _, ideas] = stored(want);
            tx.change(
                "INSERT INTO requests (run, made, backend, calls, tokens, micros, ideas)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![run, millis(now), backend, calls, tokens, micros, ideas],
            )?;
            let request = RequestId(tx.last_insert_rowid());
            tx.change("UPDATE runs SET model_calls = model_calls + 1 WHERE id = ?1", [run])?;
            Ok(Ok(request))
        })
    }

    /// Records the usage of a request. `money` is the source of its cost. If the run has already
    /// been settled, the request has been charged its maximum, and this call changes nothing.
    pub fn settle_request(
        &mut self,
        request: RequestId,
        spent: RequestUsage,
        money: Option<Money>,
        note: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            let open = tx.exists(
                "SELECT 1 FROM requests q JOIN reservations r ON r.run = q.run
                 WHERE q.id = ?1 AND r.open",
                [request.0],
            )?;
            if !open {
                return Ok(());
            }
            let plausible = |amounts: &Amounts| !amounts.beyond_measure();
            let (known, least, note) = match spent {
                RequestUsage::Known(amounts) if plausible(&amounts) => {
                    (true, amounts, note.to_owned())
                }
                RequestUsage::AtLeast(amounts) if plausible(&amounts) => {
                    (false, amounts, note.to_owned())
                }
                RequestUsage::Known(_) | RequestUsage::AtLeast(_) => {
                    (false, Amounts::default(), format!("{note}, implausible usage"))
                }
                RequestUsage::Unknown => (false, Amounts::default(), note.to_owned()),
            };
            let (least, money) = limit_stated(tx, request, least, money)?;
            // A cost that was observed before an interruption is not the whole cost, so its source
            // is recorded only if the cost was limited.
            let money = money.filter(|money| known || *money == Money::Limited);
            let [calls, tokens, micros, _, ideas] = stored(least);
            let (id, money) = (request.0, money.map(Money::as_str));
            // A request with unknown usage is charged its reserved maximum or, if larger, the
            // observed amounts.
            tx.change(
                "UPDATE requests SET settled = ?2, note = ?3, money = ?4, stated = ?5,
                   calls = iif(?5, ?6, max(calls, ?6)), tokens = iif(?5, ?7, max(tokens, ?7)),
                   micros = iif(?5, ?8, max(micros, ?8)), ideas = iif(?5, ?9, max(ideas, ?9))
                 WHERE id = ?1 AND settled IS NULL",
                params![id, millis(now), free(&note), money, known, calls, tokens, micros, ideas],
            )?;
            reserve_excess(tx, request)
        })
    }

    /// Counts a run's model requests whose usage the backend did not report or has not reported
    /// yet. Implausible usage is treated as not reported.
    pub fn unstated_calls(&self, run: &RunId) -> Result<u64> {
        let sql = "SELECT count(*) FROM requests WHERE run = ?1 AND NOT stated";
        self.view(|db| db.value(sql, [run]).map(|Count(count)| count))
    }

    /// Returns a run's reservation, even after the run is settled. Returns zero if the run was not
    /// admitted.
    pub fn reserved_for(&self, run: &RunId) -> Result<Amounts> {
        let sql = "SELECT calls, tokens, micros, seconds, ideas FROM reservations
                   WHERE run = ?1 AND level = 'run'";
        Ok(self.view(|db| db.first(sql, [run], amounts))?.unwrap_or_default())
    }

    /// Returns the amounts that a run can still use: its open reservation minus the amounts that
    /// its requests have used or reserved. Time is not subtracted.
    pub fn left_of(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| Ok(reserved_by(db, run)?.unwrap_or_default().less(used_by(db, run)?)))
    }
}

/// Limits a cost reported by the backend to the amount that the request has reserved plus the
/// amount that its run has left.
fn limit_stated(
    db: &Connection,
    request: RequestId,
    spent: Amounts,
    money: Option<Money>,
) -> Result<(Amounts, Option<Money>), Fault> {
    if money != Some(Money::Stated) {
        return Ok((spent, money));
    }
    let run: RunId = db.value("SELECT run FROM requests WHERE id = ?1", [request.0])?;
    let Count(held) = db.value("SELECT micros FROM requests WHERE id = ?1", [request.0])?;
    let left = reserved_by(db, &run)?.unwrap_or_default().less(used_by(db, &run)?);
    let most = held.saturating_add(left.micros);
    Ok(match spent.micros > most {
        true => (Amounts { micros: most, ..spent }, Some(Money::Limited)),
        false => (spent, money),
    })
}

/// Increases a run's reservation at all its levels if the run's usage exceeds the reservation.
/// Without the increase, other runs could reserve the excess before the run is settled.
fn reserve_excess(db: &Connection, request: RequestId) -> Result<(), Fault> {
    let run: RunId = db.value("SELECT run FROM requests WHERE id = ?1", [request.0])?;
    // The sum of a thousand such amounts must still fit in a column.
    let held = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX).min(i64::MAX / 1024);
    let [calls, tokens, micros, _, ideas] = used_by(db, &run)?.array().map(held);
    db.change(
        "UPDATE reservations SET calls = max(calls, ?2), tokens = max(tokens, ?3),
           micros = max(micros, ?4), ideas = max(ideas, ?5)
         WHERE run = ?1 AND open AND (calls < ?2 OR tokens < ?3 OR micros < ?4 OR ideas < ?5)",
        params![run, calls, tokens, micros, ideas],
    )?;
    Ok(())
}

/// Returns the sum of the amounts spent and reserved at a budget level.
pub(super) fn in_use(db: &Connection, level: &str, key: &str) -> Result<Amounts, Fault> {
    let sql = "SELECT calls, tokens, micros, seconds, ideas FROM budget_usage
               WHERE level = ?1 AND key = ?2";
    let spent = db.first(sql, [level, key], amounts)?.unwrap_or_default();
    Ok(spent.plus(held_at(db, level, key)?))
}

/// Returns the amounts that live runs have reserved at a budget level.
pub(super) fn held_at(db: &Connection, level: &str, key: &str) -> Result<Amounts, Fault> {
    let sql = format!("SELECT {SUMS} FROM reservations WHERE level = ?1 AND key = ?2 AND open");
    Ok(db.first(&sql, [level, key], amounts)?.unwrap_or_default())
}

pub(super) fn reserved_by(db: &Connection, run: &RunId) -> Result<Option<Amounts>, Fault> {
    let sql = "SELECT calls, tokens, micros, seconds, ideas FROM reservations
               WHERE run = ?1 AND level = 'run' AND open";
    db.first(sql, [run], amounts)
}

pub(super) fn used_by(db: &Connection, run: &RunId) -> Result<Amounts, Fault> {
    let sql =
        "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0), coalesce(sum(micros), 0), 0,
                 coalesce(sum(ideas), 0) FROM requests WHERE run = ?1";
    Ok(db.first(sql, [run], amounts)?.unwrap_or_default())
}

/// The columns that contain the sums of amounts, for [`amounts`].
pub(super) const SUMS: &str = "coalesce(sum(calls), 0), coalesce(sum(tokens), 0),
    coalesce(sum(micros), 0), coalesce(sum(seconds), 0), coalesce(sum(ideas), 0)";

/// Maps the first five columns to amounts.
pub(super) fn amounts(row: &Row<'_>) -> rusqlite::Result<Amounts> {
    amounts_from(row, 0)
}

/// Maps five columns, starting with `first`, to amounts.
pub(super) fn amounts_from(row: &Row<'_>, first: usize) -> rusqlite::Result<Amounts> {
    let mut amounts = [0_u64; 5];
    for (unit, amount) in amounts.iter_mut().enumerate() {
        Count(*amount) = row.get(first + unit)?;
    }
    Ok(Amounts::from_array(amounts))
}

/// Converts amounts to columns. The sum of a thousand converted amounts still fits in a column.
pub(super) fn stored(amounts: Amounts) -> [i64; 5] {
    amounts.array().map(|amount| i64::try_from(amount.min(MEASURE)).unwrap_or(i64::MAX))
}
