//! Reserves budget for a run's fallbacks, which may spend from pools other than the first
//! backend's.
//!
//! ```text
//! levels of the first backend ──fit──> amounts ──> do a fallback's levels have as much left?
//!                                      yes: reserved there too · no: the fallback is not used
//! ```
//!
//! The amounts for the fallbacks are reserved when the run starts. If they were reserved only when
//! a fallback is needed, other runs might already have taken the remaining amounts. The unused part
//! is released when the run is settled.
//!
//! Every reserved level is charged for the run's whole usage, regardless of the backend that caused
//! it. This may charge too much, but never too little. This module must never reduce a run's
//! amounts because of its fallbacks, or keep a fallback whose levels are not reserved.

use std::time::Duration;

use jiff::Timestamp;

use super::{Budget, BudgetLevel, Result, Store, admit, reserve};
use crate::admission::Shortfall;

/// The budget that a run with fallbacks requests.
#[derive(Clone, Debug)]
pub struct FallbackReservation {
    /// The run's own budget.
    pub want: Budget,
    /// The budget levels of the first backend and of the usable fallbacks.
    pub levels: Vec<BudgetLevel>,
    /// For each fallback, in order, the shortfall in its budget levels, or `None` if the fallback
    /// may be used.
    pub short: Vec<Option<Shortfall>>,
}

impl Store {
    /// Returns the shortfall in these budget levels, or `None` if they have enough left for the
    /// run.
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

    /// Adds each fallback's budget levels to `levels` if they have enough left for the amounts that
    /// the run would reserve without fallbacks. `fallbacks` lists the levels of each fallback.
    /// Nothing is reserved until [`Store::admit`].
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
            for fallback in fallbacks {
                let more: Vec<BudgetLevel> =
                    fallback.into_iter().filter(|one| !chained.levels.contains(one)).collect();
                // If the first backend's levels do not have enough left, the run cannot be
                // admitted, and each fallback with levels of its own gets the same shortfall.
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
                            // A time limit at a fallback's level must not change the time that the
                            // run reserves.
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
