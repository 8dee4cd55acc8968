//! The commands and flags of `runner budget`.

use clap::Subcommand;

use super::Listing;

/// Shows budgets, or adds to one.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Show each budget: its cap, the amounts used, reserved and left, and when it begins anew
    #[command(after_help = "Example: runner budget show")]
    Show {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what was spent, added up
    #[command(after_help = "Example: runner budget history --by job")]
    History {
        /// The grouping
        #[arg(long, default_value = "day", value_parser = ["day", "night", "job", "backend", "pool"])]
        by: String,
        /// Maximum number of lines; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Add to one budget, once; the extra ends with the budget's period
    #[command(
        after_help = "Example: runner budget grant night money=2.50 calls=10 --reason 'the long audit'"
    )]
    Grant {
        /// The budget: day, night, job:NAME, pool:NAME:day, pool:NAME:week or pool:NAME:window
        account: String,
        /// The amounts to add: calls=N, tokens=N, money=DOLLARS, time=DURATION, ideas=N
        #[arg(required = true, value_name = "UNIT=AMOUNT")]
        amounts: Vec<String>,
        /// Only until this time, written as for `enqueue --at` [default: as long as the budget]
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        /// The reason for the grant
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        listing: Listing,
    },
}
