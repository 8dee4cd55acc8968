//! The commands and flags of `runner corpus`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Examines the corpus below `.agents/`, or tidies it manually.
#[derive(Debug, Subcommand)]
pub enum CorpusCommand {
    /// Show how fit the corpus is: each metric with its minimum, and stale, repeated, unconnected
    /// or unreadable nodes
    ///
    /// Exit code 1 when a metric is below its minimum.
    #[command(after_help = "Example: runner corpus health --json | jq .composite")]
    Health {
        #[command(flatten)]
        listing: Listing,
    },
    /// Measure how well the corpus answers a fixed set of questions: precision of the first three,
    /// and mean reciprocal rank
    #[command(after_help = "Example: runner corpus bench --live --json")]
    Bench {
        /// Use the learnings of this project (the default)
        #[arg(long, conflicts_with_all = ["corpus", "global"])]
        live: bool,
        /// Use another corpus: a folder with `learnings/`, and perhaps a `bench.json` of questions
        /// with the ids that answer them
        #[arg(long, value_name = "DIR")]
        corpus: Option<PathBuf>,
        /// Use the learnings in the home folder's .agents
        #[arg(long, conflicts_with = "corpus")]
        global: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Promote learnings that pass their gate
    #[command(after_help = "Example: runner corpus close-loop --threshold 24h --dry-run")]
    CloseLoop {
        /// Minimum age of a learning
        #[arg(long, value_name = "DURATION", default_value = "0h")]
        threshold: String,
        /// Show what would be promoted
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Find repeated, stale and oscillating nodes; without a choice, all of them
    #[command(after_help = "Example: runner corpus defrag --dedup --apply")]
    Defrag {
        /// Set aside nodes that are past their time to live
        #[arg(long)]
        prune: bool,
        /// Handle repeated nodes
        #[arg(long)]
        dedup: bool,
        /// Find what nights add and remove in turns
        #[arg(long)]
        oscillation_sweep: bool,
        /// Make the changes [default: show them]
        #[arg(long)]
        apply: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what the corpus knows of a goal; each line cites the node it comes from
    #[command(after_help = "Example: runner corpus brief --goal 'fewer flaky tests'")]
    Brief {
        /// The goal
        #[arg(long)]
        goal: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Import new learnings from commits, closed work and session notes; refused while a night runs
    #[command(after_help = "Example: runner corpus harvest --dry-run")]
    Harvest {
        /// Show what would be imported
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
