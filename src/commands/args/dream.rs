//! The commands and flags of `runner dream`.

use clap::{Args, Subcommand, ValueEnum};
use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};

use runner_jobs::dream::review::IfChanged;

use super::Listing;

/// Runs the dream pass and reviews its proposals.
#[derive(Debug, Subcommand)]
pub enum DreamCommand {
    /// Run one pass now
    #[command(after_help = "Example: runner dream run --max 5 --json")]
    Run {
        /// Maximum number of ideas to show [default: the job's max_ideas]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        max: Option<u32>,
        /// Show ideas again that were set aside after three unusable answers
        #[arg(long)]
        retry_parked: bool,
        /// Show what would be asked, which backend would be asked, the maximum cost, and whether it
        /// would start now; ask nothing and write nothing
        #[arg(long, conflicts_with = "retry_parked")]
        dry_run: bool,
        #[command(flatten)]
        which: DreamJobArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Measure the answer by rule on ideas with a known answer; proposes nothing
    #[command(
        after_help = "FILE is a JSON array. Each element has `idea`, a path, and what is known about it: \
                            `commits`, the hashes of the commits that implemented it; or `status`, one of the \
                            five; or `open`, true if the idea is still open.\n\nExample: runner dream bench --truth labels.json --past"
    )]
    Bench {
        /// The file of labels
        #[arg(long, value_name = "FILE")]
        truth: std::path::PathBuf,
        /// Also judge each finished idea on the history before it was finished, as an open idea
        #[arg(long)]
        past: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List the undecided proposals of all passes, the newest first
    #[command(after_help = "Example: runner dream list --action archive --json | jq -r '.[].id'")]
    List {
        /// Also list decided proposals
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        which: DreamJobArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one proposal: its evidence, the idea's text, and the effect of accepting it
    #[command(after_help = "Example: runner dream show 3f2a")]
    Show {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Carry out a proposal
    #[command(after_help = "Example: runner dream accept 3f2a --note 'done in May'")]
    Accept {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        listing: Listing,
    },
    /// Record that a proposal is wrong, and change nothing else
    #[command(after_help = "Example: runner dream reject 3f2a --note 'still wanted'")]
    Reject {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        listing: Listing,
    },
    /// Take another action on the idea than the proposed one
    #[command(
        after_help = "Example: runner dream amend 3f2a --action merge --into ideas/offline.md"
    )]
    Amend {
        #[command(flatten)]
        one: ProposalArg,
        /// Action to take
        #[arg(long, value_enum)]
        action: ActionWord,
        /// The idea to merge into [default: the proposed one]
        #[arg(long, value_name = "PATH")]
        into: Option<String>,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        listing: Listing,
    },
    /// Leave an idea as it is and do not ask again until the idea changes
    #[command(after_help = "Example: runner dream skip 3f2a")]
    Skip {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        listing: Listing,
    },
    /// Take a decision back: restore every file, and make the proposal undecided again
    #[command(after_help = "Example: runner dream undo 3f2a")]
    Undo {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        listing: Listing,
    },
    /// Review the undecided proposals one at a time on a terminal
    #[command(after_help = "Example: runner dream review --confidence high")]
    Review {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        which: DreamJobArg,
    },
}

/// Selects a dream job of the project.
#[derive(Clone, Debug, Default, Args)]
pub struct DreamJobArg {
    /// The dream job, if the project has several
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
}

/// Selects a proposal.
#[derive(Clone, Debug, Args)]
pub struct ProposalArg {
    /// The proposal's id, or an unambiguous beginning of it
    pub id: String,
    #[command(flatten)]
    pub which: DreamJobArg,
}

/// The person's note on a decision.
#[derive(Clone, Debug, Args)]
pub struct DecisionNote {
    /// The reason, which is kept with the decision
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// The flag that overrides the refusal for a changed file.
#[derive(Clone, Copy, Debug, Args)]
pub struct Force {
    /// Proceed even if a file was changed since; the backup keeps its changed content
    #[arg(long)]
    pub force: bool,
}

impl From<&Force> for IfChanged {
    fn from(flag: &Force) -> Self {
        if flag.force { Self::Proceed } else { Self::Refuse }
    }
}

/// The filter for proposals.
#[derive(Clone, Debug, Default, Args)]
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
