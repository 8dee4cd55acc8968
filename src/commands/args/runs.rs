//! The commands and flags of `runner runs`.

use clap::Subcommand;

use super::Listing;

/// Shows one run or prints its log.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Show all data of one run
    #[command(after_help = "Example: runner runs show 01KA5V7Q4B")]
    Show {
        /// The run's id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the log of one run
    #[command(after_help = "Example: runner runs logs 01KA5V7Q4B")]
    Logs {
        /// The run's id, or an unambiguous beginning of it
        run: String,
        /// Print new lines of the log and the program's output until the run is over
        #[arg(long)]
        follow: bool,
    },
}
