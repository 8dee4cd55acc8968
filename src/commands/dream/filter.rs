//! The filter for proposals, and its flags.

use clap::ValueEnum;
use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};
use runner_jobs::dream::review::ProposalItem;

/// The flags that select proposals.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FilterArgs {
    /// Only proposals for ideas of this status
    #[arg(long, value_enum)]
    pub status: Option<StatusWord>,
    /// Only proposals of this action
    #[arg(long, value_enum)]
    pub action: Option<ActionWord>,
    /// Only proposals of this confidence
    #[arg(long, value_enum)]
    pub confidence: Option<ConfidenceWord>,
    /// Only proposals whose path, evidence or rationale contains this text
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
}

/// Defines command-line values for the terms of the contract.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident for $of:ty { $($word:ident),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[allow(missing_docs, reason = "the words are the contract's")]
        pub enum $name { $($word),* }

        impl From<$name> for $of {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word),* }
            }
        }
    };
}

words!(
    /// An action on an idea.
    ActionWord for Action { Archive, Merge, Promote, MarkBlog, Keep }
);
words!(
    /// The status that an assessment gave an idea.
    StatusWord for IdeaStatus { Implemented, Duplicate, Meritorious, Sidenote, BlogCandidate }
);
words!(
    /// The confidence of a proposal.
    ConfidenceWord for Confidence { High, Med, Low }
);

/// The filter for proposals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProposalFilter {
    /// The status that the idea must have.
    pub status: Option<IdeaStatus>,
    /// The proposed action.
    pub action: Option<Action>,
    /// The confidence of the proposal.
    pub confidence: Option<Confidence>,
    /// A text that the proposal must contain; empty for any proposal.
    pub text: String,
}

impl ProposalFilter {
    /// Reports whether a proposal passes the filter.
    pub(super) fn accepts(&self, item: &ProposalItem) -> bool {
        let it = &item.proposal;
        self.status.is_none_or(|status| it.status == status)
            && self.action.is_none_or(|action| it.action == action)
            && self.confidence.is_none_or(|sure| it.confidence == sure)
            && (self.text.is_empty() || holds(item, &self.text))
    }

    /// Reports whether the filter may hide a proposal.
    pub(super) fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

impl From<&FilterArgs> for ProposalFilter {
    fn from(args: &FilterArgs) -> Self {
        Self {
            status: args.status.map(Into::into),
            action: args.action.map(Into::into),
            confidence: args.confidence.map(Into::into),
            text: args.text.clone().unwrap_or_default(),
        }
    }
}

/// Reports whether a proposal contains a text, ignoring case.
fn holds(item: &ProposalItem, text: &str) -> bool {
    let text = text.to_lowercase();
    let proposal = &item.proposal;
    let words = [&proposal.id, &proposal.evidence, &proposal.rationale];
    let mut all = proposal.targets.iter().chain(words);
    all.any(|words| words.to_lowercase().contains(&text))
}
