//! The rows of the fleet's database, as both implementations of the store return them.

use std::collections::BTreeMap;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Amounts as the database stores them: calls, tokens, micros, seconds, ideas.
pub(crate) type Units = [i64; 5];

/// Limits as the database stores them.
pub(crate) type Limits = [Option<i64>; 5];

pub(crate) fn units(amounts: Amounts) -> Units {
    [amounts.calls, amounts.tokens, amounts.micros, amounts.seconds, amounts.ideas]
        .map(|amount| i64::try_from(amount).unwrap_or(MOST).min(MOST))
}

/// Maximum stored amount. It prevents overflow when amounts are added.
const MOST: i64 = i64::MAX / 1_000_000;

pub(crate) fn amounts(units: Units) -> Amounts {
    let [calls, tokens, micros, seconds, ideas] = units.map(|unit| unit.max(0).cast_unsigned());
    Amounts { calls, tokens, micros, seconds, ideas }
}

pub(crate) fn limits(budget: Budget) -> Limits {
    [budget.calls, budget.tokens, budget.micros, budget.seconds, budget.ideas]
        .map(|limit| limit.map(|limit| i64::try_from(limit).unwrap_or(MOST).min(MOST)))
}

pub(crate) fn plus(a: Units, b: Units) -> Units {
    std::array::from_fn(|unit| a[unit] + b[unit])
}

pub(crate) fn minus(a: Units, b: Units) -> Units {
    std::array::from_fn(|unit| a[unit] - b[unit])
}

/// The state of an occurrence. The diagram is in `schema.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Claimed,
    Delivered,
    Publishing,
    Settled,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The result was accepted.
    Delivered,
    /// The worker gave the claim back.
    Released,
    /// The lease ended, and a later claim request took over the occurrence.
    Lost,
    /// The claim was lost, although its worker delivered a result.
    Late,
}

/// Whether a host accepts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    Active,
    /// The host finishes its claims and makes no new ones.
    Draining,
    Left,
}

impl HostState {
    /// Returns the state's name, as the database stores it and lists show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Left => "left",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    pub host: String,
    pub worker: String,
    pub state: HostState,
    pub tags: Vec<String>,
    pub version: String,
    /// When the host first joined, in database time.
    pub joined: i64,
    /// When the host last joined, checked in, requested claims or worked on one, in database time.
    pub seen: i64,
}

/// An occurrence. `schema.sql` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OccurrenceRow {
    pub id: String,
    pub project: String,
    pub job: String,
    pub key: String,
    pub home: String,
    pub due: i64,
    pub state: State,
    pub wake: Option<i64>,
    pub fence: i64,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub slots: Option<u32>,
    pub tags: Vec<String>,
    pub levels: Vec<String>,
    pub want: [i64; 5],
    pub lease: i64,
    pub lost: u32,
    pub most_lost: u32,
    pub source: Value,
    pub cancel: Option<String>,
    pub why: Option<String>,
    pub outcome: Option<Outcome>,
    pub settled: Option<i64>,
}

/// A claim. `schema.sql` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRow {
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    pub host: String,
    pub claimed: i64,
    pub ended: Option<i64>,
    pub ending: Option<Ending>,
    pub reserved: [i64; 5],
    pub charged: Option<[i64; 5]>,
    pub not_before: Option<i64>,
    pub outcome: Option<Outcome>,
    pub summary: Option<Value>,
    pub manifest: Option<Value>,
}

/// A budget level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRow {
    pub level: String,
    pub limits: [Option<i64>; 5],
    pub used: [i64; 5],
    pub held: [i64; 5],
}

/// All rows except groups and blobs, at a single point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub hosts: Vec<HostRow>,
    pub occurrences: Vec<OccurrenceRow>,
    pub attempts: Vec<AttemptRow>,
    pub budgets: Vec<BudgetRow>,
    /// The database's time in milliseconds since the Unix epoch.
    pub now: i64,
}

/// The fleet state that a host reads at each tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// The hosts that have not left, ordered by name, each with its number of claims.
    pub hosts: Vec<(HostRow, u64)>,
    /// The number of occurrences in each state except `settled`.
    pub open: BTreeMap<State, u64>,
    /// The budget of the current day in UTC, if anything was offered on that day.
    pub day: Option<BudgetRow>,
    /// The database's time in milliseconds since the Unix epoch.
    pub now: i64,
}

impl Snapshot {
    /// Describes the budget levels that differ from the sums of their attempts. The result is empty
    /// unless there is a bug.
    pub fn budget_errors(&self) -> Vec<String> {
        let mut expected: BTreeMap<&str, (Units, Units)> = BTreeMap::new();
        for attempt in &self.attempts {
            let Some(row) = self.occurrences.iter().find(|row| row.id == attempt.occurrence) else {
                continue;
            };
            for level in &row.levels {
                let (used, held) = expected.entry(level).or_default();
                match attempt.charged {
                    Some(charged) => *used = plus(*used, charged),
                    None => *held = plus(*held, attempt.reserved),
                }
            }
        }
        let mut errors = Vec::new();
        for row in &self.budgets {
            let (used, held) = expected.get(row.level.as_str()).copied().unwrap_or_default();
            if (row.used, row.held) != (used, held) {
                errors.push(format!(
                    "level {}: used {:?} and held {:?}, but the claims add up to {used:?} and {held:?}",
                    row.level, row.used, row.held
                ));
            }
        }
        errors
    }
}
