//! How requests to one backend are paid.

use crate::prices::Prices;

/// How a run pays.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    /// The pool whose limits are remembered; empty: nobody remembers them.
    pub pool: String,
    /// Whether it may be billed beyond a subscription.
    pub overage: bool,
    /// Prices of tokens, for backends that do not state a cost.
    pub prices: Prices,
}
