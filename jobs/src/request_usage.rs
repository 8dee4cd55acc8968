//! What a request may cost at most, and what it is charged in the end.
//!
//! Pure: nothing here asks, reserves or settles. What nobody states is charged as it was reserved,
//! never as nothing.

use runner_backends::{BackendError, Reply, Request, Usage};
use runner_engine::store::{Amounts, Money, RequestUsage};

use crate::prices::Price;
use crate::usage_meter::{self, ObservedUsage};

/// About how many tokens a request has: four bytes a token.
pub(crate) fn tokens_of(request: &Request) -> u64 {
    serde_json::to_vec(request).map_or(0, |text| text.len() as u64) / 4
}

/// The most that one request may use, and is charged where nobody says what it used: the call, and
/// of tokens and money an even share of what the run has left, which is never nothing; of tokens at
/// least its text and its longest answer (four bytes a token). A backend that is `free` asks nobody.
/// Nothing is clamped to what is left: a request that may need more is refused before it is made.
pub fn most(request: &Request, left: Amounts, ideas: u64, free: bool) -> Amounts {
    let needed = tokens_of(request).saturating_add(request.limits.max_output_tokens);
    let share = |left: u64, calls: u64| left / calls.max(1);
    Amounts {
        calls: 1,
        tokens: if free {
            0
        } else {
            share(left.tokens, left.calls).max(needed)
        },
        micros: if free {
            0
        } else {
            share(left.micros, left.calls).max(1)
        },
        seconds: 0,
        ideas,
    }
}

/// What a request is charged, and why so.
pub(crate) struct RequestCharge {
    /// What is taken from the budget usage.
    pub(crate) spent: RequestUsage,
    /// Where the sum of money comes from.
    pub(crate) money: Option<Money>,
    /// Why, for the database; not redacted yet.
    pub(crate) note: String,
}

/// What a request is charged for which `want` was reserved: what was stated of it, where that is its
/// whole cost, and else the reservation. What was heard on the way counts where it is more than what
/// was said in the end.
pub(crate) fn charge(
    answer: &Result<Reply, BackendError>,
    heard: &ObservedUsage,
    want: Amounts,
    price: Option<Price>,
) -> RequestCharge {
    let amounts = |usage: &Usage| {
        let (micros, money) = match usage_meter::micros(usage, price) {
            Some((micros, true)) => (micros, Money::Stated),
            Some((micros, false)) => (micros, Money::Priced),
            // Money that nobody knows is charged as it was reserved.
            None if want.micros == 0 => (0, Money::Stated),
            None => (want.micros, Money::Reserved),
        };
        let tokens = usage_meter::tokens(usage);
        let known = Amounts {
            calls: 1,
            tokens,
            micros,
            seconds: 0,
            ideas: want.ideas,
        };
        (known, money)
    };
    let why = |error: &BackendError| match &heard.breach {
        Some(breach) => breach.to_string(),
        None => error.to_string(),
    };
    let unknown = |note: String| match &heard.usage {
        // More than was reserved was heard of: no less than that.
        Some(usage) => RequestCharge {
            spent: RequestUsage::AtLeast(amounts(usage).0),
            money: None,
            note,
        },
        None => RequestCharge {
            spent: RequestUsage::Unknown,
            money: None,
            note,
        },
    };
    match answer {
        Ok(reply) => match reply.usage {
            Some(stated) => {
                let whole = heard
                    .usage
                    .map_or(stated, |heard| usage_meter::most(heard, stated));
                let (known, money) = amounts(&whole);
                let note = match money {
                    Money::Reserved => "answered, its price is not known",
                    Money::Stated | Money::Priced => "answered",
                };
                RequestCharge {
                    spent: RequestUsage::Known(known),
                    money: Some(money),
                    note: note.to_owned(),
                }
            }
            None => unknown("answered, usage unknown".to_owned()),
        },
        // Nothing was asked of anyone: the program was not there to be started.
        Err(BackendError::NotInstalled { .. }) => RequestCharge {
            spent: RequestUsage::Known(Amounts::default()),
            money: None,
            note: "not installed".to_owned(),
        },
        // What failed is charged as it was stated where the statement is whole: the adapter tells of a
        // sum only when whoever bills it has closed the account, so there is nothing left for the
        // reservation to stand for, and to charge it would take from the night what nobody spent.
        // Anything less than that (a stream that was cut, an agent that was killed) may be billed for
        // more than was heard, and is charged as reserved. What was heard before counts where it is
        // more, for a child that takes back what it said is not believed.
        Err(error) if heard.total.is_some_and(used_something) => {
            let total = heard.total.unwrap_or_default();
            let whole = heard
                .usage
                .map_or(total, |usage| usage_meter::most(usage, total));
            let (known, money) = amounts(&whole);
            RequestCharge {
                spent: RequestUsage::Known(known),
                money: Some(money),
                note: why(error),
            }
        }
        // Refused at the door: a call, and nothing was read or written.
        Err(error) if !heard.spoke && used_nothing(error, heard) => RequestCharge {
            spent: RequestUsage::Known(Amounts {
                calls: 1,
                ..Amounts::default()
            }),
            money: None,
            note: error.to_string(),
        },
        Err(error) => unknown(why(error)),
    }
}

fn used_something(usage: Usage) -> bool {
    usage_meter::tokens(&usage) > 0 || usage.cost_micros.unwrap_or(0) > 0
}

/// Whether a request that failed used nothing: it was refused before anything was done, or whoever
/// failed said so in the end. One that was cut off while it went on has said nothing for good.
fn used_nothing(error: &BackendError, heard: &ObservedUsage) -> bool {
    let stated = heard.usage.map(|usage| !used_something(usage));
    match error {
        _ if heard.not_billed && heard.usage.is_none() => true,
        BackendError::RateLimited { .. } | BackendError::Auth { .. } => stated.unwrap_or(true),
        BackendError::Unavailable { .. }
        | BackendError::Malformed { .. }
        | BackendError::Rejected { .. }
        | BackendError::OverBudget { .. } => stated.unwrap_or(false),
        BackendError::NotInstalled { .. }
        | BackendError::Silent { .. }
        | BackendError::Cancelled { .. }
        | BackendError::Crash { .. } => false,
    }
}
