//! What a run holds for those whom it may yet ask: the budget usage of a fallback that spends from
//! another pool than the first.
//!
//! ```text
//! accounts of the first ──fit──> amounts ──> room for as much in a fallback's own accounts?
//!                                              yes: they are held too · no: it is not asked
//! ```
//!
//! They are held when the run begins and not when a fallback's turn comes: then the run has spent time
//! and money already, other runs have taken the room in between, and a run that cannot go on is a worse
//! end than a pool that was held for nothing until it was settled. What is held in vain is given back
//! with the run, but for what was spent.
//!
//! All accounts that are held are charged all that the run used, whoever used it: too much is
//! charged at times, too little never. Must never make the run smaller than it would be without its
//! fallbacks, and never leave one in the chain whose accounts are not held.

use std::time::Duration;

use jiff::Timestamp;

use super::{Budget, BudgetLevel, Result, Store, admit, reserve};
use crate::admission::Shortfall;

/// What a run with fallbacks asks to be admitted with.
#[derive(Clone, Debug)]
pub struct FallbackReservation {
    /// The most it may spend.
    pub want: Budget,
    /// The accounts of the first and of those fallbacks that may be asked.
    pub levels: Vec<BudgetLevel>,
    /// Of each fallback, in order, what its accounts have too little of; none where it may be asked.
    pub short: Vec<Option<Shortfall>>,
}

impl Store {
    /// What these accounts have too little of for a run; none where it would be admitted.
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

    /// Adds to the budget usage of a run those of its fallbacks that have as much room as the run will
    /// hold without them. `fallbacks` are all accounts of each. Holds nothing yet: `admit` does.
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
            let mut chained = FallbackReservation {
                want,
                levels,
                short: Vec::with_capacity(fallbacks.len()),
            };
            for accounts in fallbacks {
                let more: Vec<BudgetLevel> = accounts
                    .into_iter()
                    .filter(|one| !chained.levels.contains(one))
                    .collect();
                // Where the first has no room either, the admission says so.
                let short = match (&fits, more.is_empty()) {
                    (_, true) => None,
                    (Err(short), false) => Some(short.clone()),
                    (Ok(amounts), false) => {
                        let all = amounts.array().map(Some);
                        let [calls, tokens, micros, seconds, ideas] = all;
                        let all = Budget {
                            calls,
                            tokens,
                            micros,
                            seconds,
                            ideas,
                        };
                        let here = reserve::resolve(db, &more, now)?;
                        let short = reserve::fit(db, all, &here, now)?.err();
                        if short.is_none() {
                            // An account that bounds time must not change how much of it is meant.
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
