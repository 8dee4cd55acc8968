//! `runner budget`: its commands and flags.

use clap::Subcommand;

use super::Listing;

/// Looks at accounts, or adds to one.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Each account: its cap, what is used, reserved and left, and when it begins anew
    #[command(after_help = "Example: runner budget show")]
    Show {
        #[command(flatten)]
        listing: Listing,
    },
    /// What was spent, added up
    #[command(after_help = "Example: runner budget history --by job")]
    History {
        /// By what
        #[arg(long, default_value = "day", value_parser = ["day", "night", "job", "backend", "pool"])]
        by: String,
        /// At most so many; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Add to one account, once; it ends with the account's period
    #[command(
        after_help = "Example: runner budget grant night money=2.50 calls=10 --reason 'the long audit'"
    )]
    Grant {
        /// day, night, job:NAME, pool:NAME:day, pool:NAME:week or pool:NAME:window
        account: String,
        /// How much more: calls=N, tokens=N, money=DOLLARS, time=DURATION, ideas=N
        #[arg(required = true, value_name = "UNIT=AMOUNT")]
        amounts: Vec<String>,
        /// Only until this moment, written as for `enqueue --at` [default: as long as the account]
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        /// What it is for
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        listing: Listing,
    },
}
