//! `runner dream`: its commands and flags.

use clap::{Args, Subcommand, ValueEnum};
use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};

use runner_jobs::dream::review::IfChanged;

use super::listing::Listing;

/// The dream pass and its review.
#[derive(Debug, Subcommand)]
pub enum DreamCommand {
    /// Run one pass now
    #[command(after_help = "Example: runner dream run --max 5 --json")]
    Run {
        /// Show at most so many ideas [default: the job's max_ideas]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        max: Option<u32>,
        /// Show ideas again that are set aside because three answers about them could not be used
        #[arg(long)]
        retry_parked: bool,
        /// Say what would be asked, of whom, at most for how much, and whether it would start now; ask
        /// nothing and write nothing
        #[arg(long, conflicts_with = "retry_parked")]
        dry_run: bool,
        #[command(flatten)]
        which: DreamJobArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Measure the answer by rule on ideas of which the answer is known; proposes nothing
    #[command(
        after_help = "FILE is a JSON array. Each element has `idea`, a path, and what is known about it: \
                            `commits`, the hashes of the commits that implemented it; or `status`, one of the \
                            five; or `open`, true if the idea is still open.\n\nExample: runner dream bench --truth labels.json --past"
    )]
    Bench {
        /// The labels
        #[arg(long, value_name = "FILE")]
        truth: std::path::PathBuf,
        /// Judge each idea that was done on the history before that too: an open idea each
        #[arg(long)]
        past: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List what is proposed and not decided, of all passes, the newest first
    #[command(after_help = "Example: runner dream list --action archive --json | jq -r '.[].id'")]
    List {
        /// Also what is decided
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        which: DreamJobArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one proposal: evidence, the idea's text, and what accepting it would do
    #[command(after_help = "Example: runner dream show 3f2a")]
    Show {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Do what is proposed
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
    /// Record that a proposal is wrong; nothing else is done
    #[command(after_help = "Example: runner dream reject 3f2a --note 'still wanted'")]
    Reject {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        listing: Listing,
    },
    /// Do something else with the idea than what is proposed
    #[command(
        after_help = "Example: runner dream amend 3f2a --action merge --into ideas/offline.md"
    )]
    Amend {
        #[command(flatten)]
        one: ProposalArg,
        /// Action to take
        #[arg(long, value_enum)]
        action: ActionWord,
        /// The idea to merge into [default: the proposal's]
        #[arg(long, value_name = "PATH")]
        into: Option<String>,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        listing: Listing,
    },
    /// Leave an idea as it is and do not ask again until it changes
    #[command(after_help = "Example: runner dream skip 3f2a")]
    Skip {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        note: DecisionNote,
        #[command(flatten)]
        listing: Listing,
    },
    /// Take a decision back: every file is again what it was, and the proposal is undecided
    #[command(after_help = "Example: runner dream undo 3f2a")]
    Undo {
        #[command(flatten)]
        one: ProposalArg,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        listing: Listing,
    },
    /// Go through what is undecided, one proposal at a time, on a terminal
    #[command(after_help = "Example: runner dream review --confidence high")]
    Review {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        which: DreamJobArg,
    },
}

/// One dream job of several.
#[derive(Clone, Debug, Default, Args)]
pub struct DreamJobArg {
    /// The dream job, where the project has several
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
}

/// One proposal.
#[derive(Clone, Debug, Args)]
pub struct ProposalArg {
    /// Its id, or an unambiguous beginning of it
    pub id: String,
    #[command(flatten)]
    pub which: DreamJobArg,
}

/// The person's note on a decision.
#[derive(Clone, Debug, Args)]
pub struct DecisionNote {
    /// Why; it is kept with the decision
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// Against a caution.
#[derive(Clone, Copy, Debug, Args)]
pub struct Force {
    /// Also when a file was changed since; what it held then is kept in the backup
    #[arg(long)]
    pub force: bool,
}

impl From<&Force> for IfChanged {
    fn from(flag: &Force) -> Self {
        if flag.force { Self::Proceed } else { Self::Refuse }
    }
}

/// Which proposals.
#[derive(Clone, Debug, Default, Args)]
pub struct Filter {
    /// Only what was found to be this
    #[arg(long, value_enum)]
    pub status: Option<StatusWord>,
    /// Only where this is proposed
    #[arg(long, value_enum)]
    pub action: Option<ActionWord>,
    /// Only this confidence
    #[arg(long, value_enum)]
    pub confidence: Option<ConfidenceWord>,
    /// Only where path, evidence or rationale hold this text
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
}

/// Words of the contract, for the command line.
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
    /// How sure a proposal is.
    ConfidenceWord for Confidence { High, Med, Low }
);
