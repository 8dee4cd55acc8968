//! Calculates the reservation and the final charge for a request.
//!
//! This module must never send, reserve or settle a request.

use runner_backends::{BackendError, Reply, Request, Usage};
use runner_engine::store::{Amounts, Money, RequestUsage};

use crate::prices::Price;
use crate::usage_meter::{self, ObservedUsage};

/// Estimates the number of tokens in a request, at four bytes per token.
pub(crate) fn tokens_of(request: &Request) -> u64 {
    serde_json::to_vec(request).map_or(0, |text| text.len() as u64) / 4
}

/// Returns the maximum usage of one request: one call and an even share of the run's remaining
/// tokens and money.
///
/// The token share covers at least the estimated tokens of the request and its longest answer. The
/// caller sets tokens and money to 0 for a free backend. The result may exceed the remaining
/// budget, in which case the request is refused before it is sent.
pub fn most(request: &Request, left: Amounts, ideas: u64) -> Amounts {
    let needed = tokens_of(request).saturating_add(request.limits.max_output_tokens);
    let share = |left: u64, calls: u64| left / calls.max(1);
    Amounts {
        calls: 1,
        tokens: share(left.tokens, left.calls).max(needed),
        micros: share(left.micros, left.calls).max(1),
        seconds: 0,
        ideas,
    }
}

/// The charge for a request, and the reason for it.
pub(crate) struct RequestCharge {
    /// The amounts added to the budget usage.
    pub(crate) spent: RequestUsage,
    /// How the amount of money was determined, or `None` if no report determined it.
    pub(crate) money: Option<Money>,
    /// The reason for the charge, for the database. It is not redacted yet.
    pub(crate) note: String,
}

/// Returns the charge for a request that reserved `want`: the complete reported usage, or else the
/// reservation. A request that was refused before any work was done is charged as one call, and a
/// request whose program is not installed is not charged. Usage observed during the request is
/// charged if it is higher than the final report.
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
            // An unknown amount of money is charged as reserved.
            None if want.micros == 0 => (0, Money::Stated),
            None => (want.micros, Money::Reserved),
        };
        let tokens = usage_meter::tokens(usage);
        let known = Amounts { calls: 1, tokens, micros, seconds: 0, ideas: want.ideas };
        (known, money)
    };
    let why = |error: &BackendError| match &heard.breach {
        Some(breach) => breach.to_string(),
        None => error.to_string(),
    };
    let unknown = |note: String| match &heard.usage {
        // Usage was observed during the request, so the charge is at least that usage, even beyond
        // the reservation.
        Some(usage) => {
            let (least, money) = amounts(usage);
            let money = usage.cost_micros.is_some().then_some(money);
            RequestCharge { spent: RequestUsage::AtLeast(least), money, note }
        }
        None => RequestCharge { spent: RequestUsage::Unknown, money: None, note },
    };
    match answer {
        Ok(reply) => match reply.usage {
            Some(stated) => {
                let whole = heard.usage.map_or(stated, |heard| usage_meter::most(heard, stated));
                let (known, money) = amounts(&whole);
                let note = match money {
                    Money::Reserved => "answered; its price is not known",
                    Money::Stated | Money::Priced | Money::Limited => "answered",
                };
                RequestCharge {
                    spent: RequestUsage::Known(known),
                    money: Some(money),
                    note: note.to_owned(),
                }
            }
            None => unknown("answered, usage unknown".to_owned()),
        },
        // The program could not be started, so no request was made.
        Err(BackendError::NotInstalled { .. }) => RequestCharge {
            spent: RequestUsage::Known(Amounts::default()),
            money: None,
            note: "not installed".to_owned(),
        },
        // A complete report determines the charge of a failed request. The adapter reports a total
        // only after the provider has finished billing the request, so no further cost can follow.
        // Without a total (an interrupted stream or a killed agent), more may be billed than was
        // observed, so the reservation is charged. Usage that was observed earlier is charged if it
        // is higher, because a child that lowers its figures is not trusted.
        Err(error) if heard.total.is_some_and(used_something) => {
            let total = heard.total.unwrap_or_default();
            let whole = heard.usage.map_or(total, |usage| usage_meter::most(usage, total));
            let (known, money) = amounts(&whole);
            RequestCharge {
                spent: RequestUsage::Known(known),
                money: Some(money),
                note: why(error),
            }
        }
        // The request was refused before any work was done, so only the call is charged.
        Err(error) if !heard.spoke && used_nothing(error, heard) => RequestCharge {
            spent: RequestUsage::Known(Amounts { calls: 1, ..Amounts::default() }),
            money: None,
            note: error.to_string(),
        },
        Err(error) => unknown(why(error)),
    }
}

fn used_something(usage: Usage) -> bool {
    usage_meter::tokens(&usage) > 0 || usage.cost_micros.unwrap_or(0) > 0
}

/// Returns whether a failed request used nothing: either it was refused before any work was done,
/// or its final report shows no usage. An interrupted request has no final report.
fn used_nothing(error: &BackendError, heard: &ObservedUsage) -> bool {
    let stated = heard.usage.map(|usage| !used_something(usage));
    match error {
        _ if heard.not_billed && heard.usage.is_none() => true,
        BackendError::RateLimited { .. }
        | BackendError::NotLoggedIn { .. }
        | BackendError::Auth { .. } => stated.unwrap_or(true),
        BackendError::Unavailable { .. }
        | BackendError::Malformed { .. }
        | BackendError::Truncated { .. }
        | BackendError::Rejected { .. }
        | BackendError::OverBudget { .. } => stated.unwrap_or(false),
        // The meter stops a program that reports a reached limit, before its final report.
        BackendError::Cancelled { .. } => {
            let refused = heard.limit.as_ref().is_some_and(|limit| limit.reached);
            refused && heard.breach.is_none() && stated.unwrap_or(true)
        }
        BackendError::NotInstalled { .. }
        | BackendError::Silent { .. }
        | BackendError::Crash { .. } => false,
    }
}
