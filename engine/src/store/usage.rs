//! Budget usage: reserve before, settle after, fail closed.
//!
//! ```text
//! caps + grants ──fit──> reservation of a run, at all levels at once      (BEGIN IMMEDIATE)
//!                            └──request──> stated | charged at its reserved maximum
//!                            └──escalation──> reservation of a child, out of what is left
//!                        settle ──> used, at each level; the rest is free again
//! ```
//!
//! A run reserves its maximum at every level (its job's day, its night, its day, the pool it spends
//! from) and holds it until it is settled; each model request draws on that reservation. A request
//! whose usage was never stated, or was stated beyond [`MEASURE`], is charged at its reserved
//! maximum. A unit that neither the run nor any level limits is reserved at [`DEFAULT`]: no amount
//! is ever unlimited. Amounts only ever saturate; no sum of them can overflow a row.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use super::columns::{Count, Query as _, free, millis};
use super::{Fault, Result, Store};
use crate::admission::Shortfall;
use crate::ids::RunId;

/// An amount of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Model calls.
    pub calls: u64,
    /// Tokens, in and out.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub micros: u64,
    /// Wall-clock seconds.
    pub seconds: u64,
    /// Ideas, or whatever a job counts its work in.
    pub ideas: u64,
}

/// A cap for each unit; none means that this level does not bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Model calls.
    pub calls: Option<u64>,
    /// Tokens, in and out.
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub micros: Option<u64>,
    /// Wall-clock seconds.
    pub seconds: Option<u64>,
    /// Ideas, or whatever a job counts its work in.
    pub ideas: Option<u64>,
}

/// A budget level that a run spends from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLevel {
    /// One of [`DAY`], [`NIGHT`], [`JOB`], [`POOL_DAY`], [`POOL_WEEK`], [`WINDOW`], [`PARENT`].
    pub level: &'static str,
    /// Which day or night; of a window the pool's name, of a parent its run's id.
    pub key: String,
    /// The name shown to people: `night 2026-11-21`.
    pub label: String,
    /// The maximum that runs may reserve or spend at this level in total.
    pub cap: Budget,
    /// How long a window lasts, from the first run that is admitted in it.
    pub window: Option<SignedDuration>,
}

/// A civil day of a project.
pub const DAY: &str = "day";
/// A night.
pub const NIGHT: &str = "night";
/// A civil day of one job.
pub const JOB: &str = "job";
/// A civil day of a pool, over all projects.
pub const POOL_DAY: &str = "pool-day";
/// An ISO week of a pool, over all projects.
pub const POOL_WEEK: &str = "pool-week";
/// A window of a pool, like a provider's five hours: it opens with the first use.
pub const WINDOW: &str = "pool-window";
/// The run whose remainder is spent: the reservation comes out of that run's, at all its levels.
pub const PARENT: &str = "parent";
/// The run itself: the bound of its requests.
pub(super) const RUN: &str = "run";

impl BudgetLevel {
    /// Creates a budget level without a window.
    pub fn new(level: &'static str, key: String, label: String, cap: Budget) -> Self {
        Self { level, key, label, cap, window: None }
    }

    /// Creates the budget level of a parent run's remaining amounts, for a run that it starts.
    pub fn of_parent(parent: &RunId) -> Self {
        let label = format!("run {parent}");
        Self::new(PARENT, parent.to_string(), label, Budget::default())
    }
}

/// The actual usage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestUsage {
    /// The backend said.
    Known(Amounts),
    /// It did not: the reserved maximum is charged.
    Unknown,
    /// It did not, but this much was heard of: the reserved maximum, or this where it is more.
    AtLeast(Amounts),
}

/// How the money of a request is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Money {
    /// The backend stated it.
    Stated,
    /// Its tokens were stated, and the list of prices has its model.
    Priced,
    /// Its tokens were stated, its price is not known: the reserved maximum.
    Reserved,
}

impl Money {
    /// Returns the name used in the database and in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Priced => "priced",
            Self::Reserved => "reserved",
        }
    }
}

/// One reserved model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(i64);

/// The names of the units, in the order of their amounts.
pub const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

impl Amounts {
    /// Returns the amounts in the order of [`UNITS`].
    pub fn array(self) -> [u64; 5] {
        [self.calls, self.tokens, self.micros, self.seconds, self.ideas]
    }

    /// Builds the amounts from an array in the order of [`UNITS`].
    pub fn from_array([calls, tokens, micros, seconds, ideas]: [u64; 5]) -> Self {
        Self { calls, tokens, micros, seconds, ideas }
    }

    /// Adds two amounts unit by unit.
    pub fn plus(self, other: Self) -> Self {
        let (a, b) = (self.array(), other.array());
        Self::from_array(std::array::from_fn(|unit| a[unit].saturating_add(b[unit])))
    }

    /// Subtracts `other` unit by unit, and never goes below zero.
    pub fn less(self, other: Self) -> Self {
        let (a, b) = (self.array(), other.array());
        Self::from_array(std::array::from_fn(|unit| a[unit].saturating_sub(b[unit])))
    }

    /// Returns whether any unit exceeds [`MEASURE`] and is therefore implausible.
    pub fn beyond_measure(self) -> bool {
        self.array().into_iter().any(|amount| amount > MEASURE)
    }
}

/// More than this of any unit is a mistake of whoever said it: a thousand million million.
pub const MEASURE: u64 = 1_000_000_000_000_000;

impl Budget {
    /// Returns the limits in the order of [`UNITS`].
    pub fn array(self) -> [Option<u64>; 5] {
        [self.calls, self.tokens, self.micros, self.seconds, self.ideas]
    }
}

impl Store {
    /// Returns the amounts spent or reserved at a budget level; for a window, at the one with this
    /// key.
    pub fn account(&self, level: &str, key: &str) -> Result<Amounts> {
        self.view(|db| in_use(db, level, key))
    }

    /// Returns the amounts that a run has spent so far.
    pub fn spent_by(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| used_by(db, run))
    }

    /// Reserves one model call out of the run's reservation.
    ///
    /// # Errors
    /// The inner error is the unit that the run's reservation has too little of.
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

    /// Records the usage of a request. In a run that is already settled the request was charged at
    /// its maximum, and a later report changes nothing. `money` states how the cost is known.
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
                    (false, Amounts::default(), format!("{note}, usage beyond all measure"))
                }
                RequestUsage::Unknown => (false, Amounts::default(), note.to_owned()),
            };
            let [calls, tokens, micros, _, ideas] = stored(least);
            let (id, money) = (request.0, money.map(Money::as_str));
            // A usage that is not known is charged at the reserved maximum, or at what was observed
            // where that is more.
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

    /// Counts the model calls of a run whose backend did not state the usage, so that they are
    /// charged as reserved.
    pub fn unstated_calls(&self, run: &RunId) -> Result<u64> {
        let sql = "SELECT count(*) FROM requests WHERE run = ?1 AND NOT stated";
        self.view(|db| db.value(sql, [run]).map(|Count(count)| count))
    }

    /// Returns the amounts that a run reserved at its admission, also after it is settled; zero if
    /// it was not admitted.
    pub fn reserved_for(&self, run: &RunId) -> Result<Amounts> {
        let sql = "SELECT calls, tokens, micros, seconds, ideas FROM reservations
                   WHERE run = ?1 AND level = 'run'";
        Ok(self.view(|db| db.first(sql, [run], amounts))?.unwrap_or_default())
    }

    /// Returns the amounts that a run may still draw: its reservation minus what its requests
    /// reserve or used.
    pub fn left_of(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| Ok(reserved_by(db, run)?.unwrap_or_default().less(used_by(db, run)?)))
    }
}

/// Reserves usage beyond a run's reservation at all its levels at once, not only when the run is
/// settled, because other runs would otherwise count on it until then.
fn reserve_excess(db: &Connection, request: RequestId) -> Result<(), Fault> {
    let run: RunId = db.value("SELECT run FROM requests WHERE id = ?1", [request.0])?;
    // A sum of a thousand rows must still fit.
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

/// Returns the amounts spent or reserved at a budget level.
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

/// The sums of the amounts of some rows, which [`amounts`] maps.
pub(super) const SUMS: &str = "coalesce(sum(calls), 0), coalesce(sum(tokens), 0),
    coalesce(sum(micros), 0), coalesce(sum(seconds), 0), coalesce(sum(ideas), 0)";

/// Maps the first five columns to amounts.
pub(super) fn amounts(row: &Row<'_>) -> rusqlite::Result<Amounts> {
    amounts_from(row, 0)
}

/// Maps five columns, beginning with `first`, to amounts.
pub(super) fn amounts_from(row: &Row<'_>, first: usize) -> rusqlite::Result<Amounts> {
    let mut amounts = [0_u64; 5];
    for (unit, amount) in amounts.iter_mut().enumerate() {
        Count(*amount) = row.get(first + unit)?;
    }
    Ok(Amounts::from_array(amounts))
}

/// Converts amounts to the form stored in a row, in which a sum of a thousand amounts still fits.
pub(super) fn stored(amounts: Amounts) -> [i64; 5] {
    amounts.array().map(|amount| i64::try_from(amount.min(MEASURE)).unwrap_or(i64::MAX))
}
