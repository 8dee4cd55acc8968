//! Observes the usage of a request while it runs, and stops the request if it exceeds its
//! reservation.
//!
//! ```text
//! usage so far ──within──> continue
//!              └──over───> LimitExceeded::Over           cancel at once
//! limit ──overage not allowed──> LimitExceeded::Overage  cancel at once
//!       └──reached─────────────> cancel                  no further answer would come
//! ```
//!
//! A child process reports the events and may send false values, repeated events or events out of
//! order. The highest value of each figure is used, so no order of events can lower the usage. The
//! meter passes every event on to the next sink.

use runner_backends::{Event, Limit, Sink, Usage};
use runner_engine::process::Cancel;
use runner_engine::store::Amounts;

use crate::denied::DeniedAccess;
use crate::prices::Price;

/// The reason why a request was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// The request used more of a unit than its reservation allows.
    Over {
        /// The unit: `tokens`, `micros` or `seconds`.
        unit: &'static str,
        used: u64,
        reserved: u64,
    },
    /// The provider charges for usage beyond the subscription.
    Overage,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Over {
                unit: "seconds",
                reserved,
                ..
            } => write!(f, "stopped: the run's time budget of {reserved} s is used up"),
            Self::Over {
                unit,
                used,
                reserved,
            } => write!(
                f,
                "stopped in the middle of an answer: the request used {used} {unit}, but reserved only {reserved}"
            ),
            Self::Overage => f.write_str(
                "stopped: the provider bills the request beyond the subscription, and the pool does not set overage = true",
            ),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ObservedUsage {
    /// The highest value of each reported figure, or `None` if no usage was reported.
    pub usage: Option<Usage>,
    /// The last report of the total usage, if one was received.
    pub total: Option<Usage>,
    /// Whether the model wrote text or used a tool.
    pub spoke: bool,
    /// The number of tool uses that failed, including those that the sandbox refused.
    pub failed_tools: u64,
    /// The first path to which a failed tool was denied access.
    pub(crate) denied: Option<DeniedAccess>,
    /// The exceeded limit that stopped the request, if any.
    pub breach: Option<LimitExceeded>,
    /// The limits last reported by the provider.
    pub limit: Option<Limit>,
    /// The provider's report on the most heavily used window.
    pub fullest: Option<Limit>,
    /// Whether the request was rejected or did not arrive, and is therefore not billed.
    pub not_billed: bool,
}

/// A sink that adds up the usage of a request and stops the request at its limits.
pub struct UsageMeter<'a> {
    reserved: Amounts,
    price: Option<Price>,
    overage: bool,
    cancel: Cancel,
    heard: ObservedUsage,
    behind: &'a mut dyn Sink,
}

impl<'a> UsageMeter<'a> {
    /// Creates a meter for a request that reserved `reserved`. `cancel` is the request's own cancel
    /// token. `overage` allows usage that incurs charges beyond a subscription.
    pub fn new(
        reserved: Amounts,
        price: Option<Price>,
        overage: bool,
        cancel: Cancel,
        behind: &'a mut dyn Sink,
    ) -> Self {
        Self { reserved, price, overage, cancel, heard: ObservedUsage::default(), behind }
    }

    /// Stops the request for this reason, unless the meter has already stopped it.
    pub fn stop(&mut self, breach: LimitExceeded) {
        if self.heard.breach.is_none() {
            self.cancel.cancel_at_once(breach.to_string());
            self.heard.breach = Some(breach);
        }
    }

    pub fn observed(self) -> ObservedUsage {
        self.heard
    }

    fn usage(&mut self, usage: Usage) {
        let most = match self.heard.usage {
            Some(before) => most(before, usage),
            None => usage,
        };
        self.heard.usage = Some(most);
        let over = |unit, used, reserved| {
            (used > reserved).then_some(LimitExceeded::Over { unit, used, reserved })
        };
        let tokens = over("tokens", tokens(&most), self.reserved.tokens);
        let money = micros(&most, self.price).map(|(micros, _)| micros);
        let money = money.and_then(|micros| over("micros", micros, self.reserved.micros));
        if let Some(breach) = tokens.or(money) {
            self.stop(breach);
        }
    }
}

impl Sink for UsageMeter<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.behind.event(event);
        match event {
            Event::Usage(usage) => self.usage(usage),
            Event::Total(usage) => {
                self.heard.total = Some(usage);
                self.usage(usage);
            }
            Event::Text(_) | Event::ToolUse { .. } => self.heard.spoke = true,
            Event::ToolResult(result) => {
                self.heard.spoke = true;
                self.heard.failed_tools += u64::from(result.failed);
                if let Some(error) = result.error.filter(|_| self.heard.denied.is_none()) {
                    self.heard.denied = DeniedAccess::find_path(error);
                }
            }
            Event::Limit(limit) => {
                self.heard.limit = Some(limit);
                if limit.used > self.heard.fullest.and_then(|fullest| fullest.used) {
                    self.heard.fullest = Some(limit);
                }
                if limit.overage && !self.overage {
                    self.stop(LimitExceeded::Overage);
                } else if limit.reached {
                    self.cancel.cancel_at_once("the provider's limit is reached");
                }
            }
            Event::NotBilled => self.heard.not_billed = true,
            Event::Note(_) => {}
        }
    }
}

/// Returns the sum of the input and output tokens.
pub fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

/// Returns the cost of the given usage, and whether the backend reported that cost. Returns `None`
/// if neither the cost nor a price is known.
pub fn micros(usage: &Usage, price: Option<Price>) -> Option<(u64, bool)> {
    match (usage.cost_micros, price) {
        (Some(stated), _) => Some((stated, true)),
        (None, Some(price)) => Some((price.cost(usage), false)),
        (None, None) => None,
    }
}

/// Returns the higher value of each figure. The cached tokens come from the usage with more input
/// tokens, or are the lower of the two if the input tokens are equal.
pub fn most(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.max(b.input_tokens),
        output_tokens: a.output_tokens.max(b.output_tokens),
        cached_input_tokens: if a.input_tokens > b.input_tokens {
            a.cached_input_tokens
        } else if a.input_tokens < b.input_tokens {
            b.cached_input_tokens
        } else {
            a.cached_input_tokens.min(b.cached_input_tokens)
        },
        cost_micros: match (a.cost_micros, b.cost_micros) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        },
    }
}

#[cfg(test)]
#[path = "usage_meter_tests.rs"]
mod tests;
