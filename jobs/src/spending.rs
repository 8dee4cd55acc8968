//! Describes how requests to one backend are paid for.

use crate::prices::Prices;

/// The payment settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    /// The pool whose limits are remembered; empty if no limits are remembered.
    pub pool: String,
    /// Whether requests may be billed beyond a subscription.
    pub overage: bool,
    /// Prices of tokens, for backends that do not state a cost.
    pub prices: Prices,
}
