//! Reservations of a run for its fallbacks: the budget usage of a fallback that spends from another
//! pool than the first backend.
//!
//! ```text
//! accounts of the first ──fit──> amounts ──> room for as much in a fallback's own accounts?
//!                                              yes: they are held too · no: it is not asked
//! ```
//!
//! The fallbacks' amounts are reserved when the run begins and not when a fallback's turn comes. By
//! then the run has spent time and money, other runs may have taken what was left, and a run that
//! cannot continue is worse than a pool that was reserved in vain until the run was settled. A
//! reservation that was not needed is given back with the run, except for what was spent.
//!
//! Every reserved budget level is charged everything that the run used, whichever backend used it:
//! this sometimes charges too much, never too little. This module must never make the run smaller
//! than it would be without its fallbacks, and never leave a fallback in the chain whose budget
//! levels are not reserved.

use std::time::Duration;

use jiff::Timestamp;

use super::{Budget, BudgetLevel, Result, Store, admit, reserve};
use crate::admission::Shortfall;

/// The budget that a run with fallbacks asks to be admitted with.
#[derive(Clone, Debug)]
pub struct FallbackReservation {
    /// The most it may spend.
    pub want: Budget,
    /// The budget levels of the first backend and of the fallbacks that may be asked.
    pub levels: Vec<BudgetLevel>,
    /// The shortfall of each fallback's budget levels, in order; `None` for a fallback that may be
    /// asked.
    pub short: Vec<Option<Shortfall>>,
}

impl Store {
    /// Returns the shortfall of these budget levels for a run; `None` if the run would be admitted.
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

    /// Adds to the run's budget levels those of each fallback that has as much left as the run
    /// reserves without fallbacks. `fallbacks` lists all budget levels of each fallback. Reserves
    /// nothing yet; `admit` does.
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
                // If the first backend has too little left as well, the admission reports it.
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
                            // A budget level that limits time must not change how much time the run
                            // wants.
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
