//! The flags that select proposals.

use clap::ValueEnum;
use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};
use runner_jobs::dream::review::ProposalItem;

/// The filter for proposals.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Filter {
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

impl Filter {
    /// Reports whether a proposal passes the self.
    pub(super) fn accepts(&self, item: &ProposalItem) -> bool {
        let proposal = &item.proposal;
        self.status.is_none_or(|it| proposal.status == it.into())
            && self.action.is_none_or(|it| proposal.action == it.into())
            && self.confidence.is_none_or(|it| proposal.confidence == it.into())
            && self.text.as_deref().is_none_or(|text| holds(item, text))
    }
}

/// Reports whether a proposal contains a text, ignoring case.
pub(super) fn holds(item: &ProposalItem, text: &str) -> bool {
    let text = text.to_lowercase();
    let proposal = &item.proposal;
    let words = [&proposal.id, &proposal.evidence, &proposal.rationale];
    let mut all = proposal.targets.iter().chain(words);
    all.any(|words| words.to_lowercase().contains(&text))
}
