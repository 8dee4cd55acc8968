//! The filter for proposals, and its flags.

use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};
use runner_jobs::dream::review::ProposalItem;

use crate::ui::contract_words;

/// The filter for proposals, and the flags that set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ProposalFilter {
    /// Only proposals for ideas with this status
    #[arg(long, value_parser = contract_words::<IdeaStatus>(IdeaStatus::ALL.map(IdeaStatus::as_str)))]
    pub status: Option<IdeaStatus>,
    /// Only proposals with this action
    #[arg(long, value_parser = contract_words::<Action>(Action::ALL.map(Action::as_str)))]
    pub action: Option<Action>,
    /// Only proposals with this confidence
    #[arg(long, value_parser = contract_words::<Confidence>(["high", "med", "low"]))]
    pub confidence: Option<Confidence>,
    /// Only proposals whose id, path, evidence or rationale contains this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub text: String,
}

impl ProposalFilter {
    /// Reports whether a proposal passes the filter.
    pub fn accepts(&self, item: &ProposalItem) -> bool {
        let it = &item.proposal;
        self.status.is_none_or(|status| it.status == status)
            && self.action.is_none_or(|action| it.action == action)
            && self.confidence.is_none_or(|sure| it.confidence == sure)
            && (self.text.is_empty() || contains_text(item, &self.text))
    }

    /// Reports whether the filter may hide a proposal.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

/// Reports whether a proposal contains a string, ignoring case.
fn contains_text(item: &ProposalItem, text: &str) -> bool {
    let text = text.to_lowercase();
    let proposal = &item.proposal;
    let words = [&proposal.id, &proposal.evidence, &proposal.rationale];
    let mut all = proposal.targets.iter().chain(words);
    all.any(|words| words.to_lowercase().contains(&text))
}
