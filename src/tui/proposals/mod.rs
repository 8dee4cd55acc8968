//! The review of proposals: its state machine, its rendering, and the wording shared with `runner
//! dream list`. This module must never read or change an idea.

mod effect;
mod filter;
mod machine;
mod view;

pub use effect::{Effect, News};
pub use filter::ProposalFilter;
#[cfg(test)]
pub(super) use machine::tests::three;
pub use machine::{Detail, Review};
pub use view::rows;

use runner_jobs::dream::review::ProposalItem;
use serde::Serialize;

use crate::ui::safe;

/// Describes the state of a proposal, or returns an empty string if there is nothing to report.
pub fn status_text(item: &ProposalItem) -> String {
    if let Some(decision) = &item.decision {
        return safe::line(&format!("{} at {}", decision.decision, decision.at));
    }
    match (item.stale, item.superseded) {
        (Some(stale), false) => stale.describe().to_owned(),
        (Some(stale), true) => {
            format!("{}; a newer pass has a different proposal", stale.describe())
        }
        (None, true) => "a newer pass has a different proposal".to_owned(),
        (None, false) => String::new(),
    }
}

/// Returns the contract's name for a value, or an empty string if the value does not serialize to a
/// string.
pub fn contract_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
