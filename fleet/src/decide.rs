//! Decides which occurrences a worker claims. This module must never do I/O or read a clock.
//!
//! ```text
//! candidate, after its dead claim, if any, is charged in full
//!     ├── cancelled, or too many lost claims ──> ended
//!     ├── group full ──────────────────────────> waits
//!     ├── budget used up ──────────────────────> ended: over budget
//!     ├── budget reserved ─────────────────────> waits
//!     └── otherwise ───────────────────────────> claimed
//! ```

use std::collections::BTreeMap;

use runner_engine::outcome::{Class, Outcome};

use crate::rows::{BudgetRow, Units, minus, plus};

/// Milliseconds to wait before retrying an occurrence whose budget is reserved by other claims.
pub const BUDGET_WAIT: i64 = 30_000;

/// The unit names of an amount, in the order stored in the database.
pub const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

/// A claimable occurrence, locked by the transaction that makes the decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub id: String,
    pub fence: i64,
    /// The amounts reserved by the occurrence's dead claim. `None` if it has no claim.
    pub dead: Option<[i64; 5]>,
    pub group: Option<String>,
    pub slots: Option<u32>,
    pub levels: Vec<String>,
    pub want: [i64; 5],
    pub lease: i64,
    pub lost: u32,
    pub most_lost: u32,
    pub cancel: Option<String>,
}

/// The decision for a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The occurrence is claimed with this fence until `expires`.
    Claim { fence: i64, expires: i64 },
    /// The occurrence becomes claimable again at `wake`.
    Wait { wake: i64, why: String },
    /// The occurrence ends with this outcome. The fence is new, so no earlier claim can
    /// deliver.
    End { fence: i64, outcome: Outcome },
    /// The occurrence does not change.
    Leave { why: String },
}

/// The decision for a candidate, and the charge for its dead claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub id: String,
    /// The fence of the dead claim, if there is one, and the amounts charged for it.
    pub charge: Option<(i64, [i64; 5])>,
    pub step: Step,
}

/// Decides on the candidates in order, and updates `budgets` and `running` accordingly. `budgets`
/// contains the locked rows of all the candidates' levels. `running` contains the number of live
/// claims of each locked group.
pub fn plan(
    candidates: &[Candidate],
    budgets: &mut BTreeMap<String, BudgetRow>,
    running: &mut BTreeMap<String, u32>,
    now: i64,
) -> Vec<Decided> {
    let mut decided = Vec::with_capacity(candidates.len());
    for one in candidates {
        let charge = one.dead.map(|reserved| (one.fence, reserved));
        if let Some((_, reserved)) = charge {
            charge_levels(budgets, &one.levels, reserved, reserved);
        }
        let step = step(one, budgets, running, now);
        decided.push(Decided { id: one.id.clone(), charge, step });
    }
    decided
}

fn step(
    one: &Candidate,
    budgets: &mut BTreeMap<String, BudgetRow>,
    running: &mut BTreeMap<String, u32>,
    now: i64,
) -> Step {
    let fence = one.fence + 1;
    if let Some(why) = &one.cancel {
        return Step::End { fence, outcome: Outcome::Cancelled { why: why.clone() } };
    }
    let lost = one.lost + u32::from(one.dead.is_some());
    if lost >= one.most_lost {
        let why = format!("{lost} claims lost their lease without a result");
        return Step::End { fence, outcome: Outcome::Lost { why } };
    }
    if let (Some(group), Some(slots)) = (&one.group, one.slots)
        && running.get(group).copied().unwrap_or(0) >= slots
    {
        let why = format!("the group {group:?} has reached its limit of {slots}");
        // A dead claim must end, because its amounts have been charged.
        return match one.dead {
            Some(_) => Step::Wait { wake: now, why },
            None => Step::Leave { why },
        };
    }
    if let Some(shortfall) = fit(one.want, &one.levels, budgets) {
        return match shortfall {
            Shortfall::Reserved(why) => Step::Wait { wake: now + BUDGET_WAIT, why },
            Shortfall::Used(why) => {
                Step::End { fence, outcome: Outcome::Failed { class: Class::OverBudget, why } }
            }
        };
    }
    for level in &one.levels {
        if let Some(row) = budgets.get_mut(level) {
            row.held = plus(row.held, one.want);
        }
    }
    if let Some(group) = &one.group {
        *running.entry(group.clone()).or_default() += 1;
    }
    Step::Claim { fence, expires: now + one.lease }
}

enum Shortfall {
    /// The reservation may fit after other claims have ended.
    Reserved(String),
    /// The reservation can no longer fit.
    Used(String),
}

/// Returns the shortfall at the first level whose remaining budget is too small, or else at the
/// first level whose reservations leave too little. Returns `None` if the amounts fit.
fn fit(want: Units, levels: &[String], budgets: &BTreeMap<String, BudgetRow>) -> Option<Shortfall> {
    let mut waits = None;
    for row in levels.iter().filter_map(|level| budgets.get(level)) {
        for unit in 0..UNITS.len() {
            let Some(limit) = row.limits[unit] else { continue };
            let left = limit - row.used[unit];
            let why = |left: i64| {
                format!(
                    "the budget of {} has {} {} left, but this run may need {}",
                    row.level,
                    left.max(0),
                    UNITS[unit],
                    want[unit]
                )
            };
            if want[unit] > left {
                return Some(Shortfall::Used(why(left)));
            }
            if want[unit] > left - row.held[unit] && waits.is_none() {
                waits = Some(Shortfall::Reserved(why(left - row.held[unit])));
            }
        }
    }
    waits
}

/// Converts a reservation into usage at each level.
pub fn charge_levels(
    budgets: &mut BTreeMap<String, BudgetRow>,
    levels: &[String],
    reserved: [i64; 5],
    used: [i64; 5],
) {
    for level in levels {
        if let Some(row) = budgets.get_mut(level) {
            row.held = minus(row.held, reserved);
            row.used = plus(row.used, used);
        }
    }
}

/// Returns why a claim is lost although its worker delivers a result, or `None` if it is not lost.
/// A claim is lost if its lease has ended, or if the run was stopped although the occurrence was
/// not cancelled, because the work then remains to be done. `left` is the time left on the lease,
/// in milliseconds.
pub fn lost_reason(outcome: &Outcome, cancel: Option<&str>, left: i64) -> Option<String> {
    match outcome {
        _ if left <= 0 => Some("the lease ended before the result arrived".to_owned()),
        Outcome::Cancelled { why } if cancel.is_none() => {
            Some(format!("the run was stopped on its host: {why}"))
        }
        _ => None,
    }
}

/// Returns the amounts by which a late result's usage exceeds the amounts charged.
pub fn late_surplus(charged: [i64; 5], used: [i64; 5]) -> [i64; 5] {
    std::array::from_fn(|unit| (used[unit] - charged[unit]).max(0))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
