//! Reserves budget for a run's fallbacks, which may spend from other pools than the first backend.
//!
//! ```text
//! levels of the first backend ──fit──> amounts ──> is as much left at a fallback's levels?
//!                                      yes: reserved there too · no: the fallback is not used
//! ```
//!
//! The amounts for the fallbacks are reserved when the run starts, not when a fallback is needed.
//! By then, the run would have spent time and money, and other runs might have taken the remaining
//! amount. A run that cannot continue is worse than a pool that was reserved without need until the
//! run is settled. When the run is settled, the unused part of the reservation is released.
//!
//! Every reserved budget level is charged for the run's whole usage, regardless of which backend
//! caused it. This sometimes charges too much, but never too little. This module must never reduce
//! the amounts of a run because of its fallbacks, and never leave a fallback in the chain whose
//! budget levels are not reserved.

use std::time::Duration;

use jiff::Timestamp;

use super::{Budget, BudgetLevel, Result, Store, admit, reserve};
use crate::admission::Shortfall;

/// The budget with which a run with fallbacks requests admission.
#[derive(Clone, Debug)]
pub struct FallbackReservation {
    /// The maximum that the run may spend.
    pub want: Budget,
    /// The budget levels of the first backend and of the fallbacks that may be used.
    pub levels: Vec<BudgetLevel>,
    /// For each fallback, in order, the shortfall of its budget levels. `None` for a fallback that
    /// may be used.
    pub short: Vec<Option<Shortfall>>,
}

impl Store {
    /// Returns the shortfall of these budget levels for a run, or `None` if the run would be
    /// admitted.
    pub fn short_of(
        &self,
        want: Budget,
        total: Duration,
        levels: &[BudgetLevel],
        now: Timestamp,
    ) -> Result<Option<Shortfall>> {
        self.view(|db| {
            let levels = reserve::resolve(db, levels, now)?;
            Ok(reserve::fit(db, admit::timed(want, total, &levels), &levels, now)?.err())
        })
    }

    /// Adds the budget levels of each fallback whose levels have enough left for the amounts that
    /// the run reserves without fallbacks. `fallbacks` lists all budget levels of each fallback.
    /// This function reserves nothing; `admit` does.
    pub fn chained(
        &self,
        want: Budget,
        total: Duration,
        levels: Vec<BudgetLevel>,
        fallbacks: Vec<Vec<BudgetLevel>>,
        now: Timestamp,
    ) -> Result<FallbackReservation> {
        self.view(|db| {
            let first = reserve::resolve(db, &levels, now)?;
            let fits = reserve::fit(db, admit::timed(want, total, &first), &first, now)?;
            let mut chained =
                FallbackReservation { want, levels, short: Vec::with_capacity(fallbacks.len()) };
            for accounts in fallbacks {
                let more: Vec<BudgetLevel> =
                    accounts.into_iter().filter(|one| !chained.levels.contains(one)).collect();
                // If the first backend's levels do not have enough left either, admission reports
                // that.
                let short = match (&fits, more.is_empty()) {
                    (_, true) => None,
                    (Err(short), false) => Some(short.clone()),
                    (Ok(amounts), false) => {
                        let all = amounts.array().map(Some);
                        let [calls, tokens, micros, seconds, ideas] = all;
                        let all = Budget { calls, tokens, micros, seconds, ideas };
                        let here = reserve::resolve(db, &more, now)?;
                        let short = reserve::fit(db, all, &here, now)?.err();
                        if short.is_none() {
                            // A budget level that limits time must not change the time that the run
                            // requests.
                            chained.want.seconds = seconds;
                            chained.levels.extend(more);
                        }
                        short
                    }
                };
                chained.short.push(short);
            }
            Ok(chained)
        })
    }
}
