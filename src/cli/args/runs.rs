//! `runner runs`: its commands and flags.

use clap::Subcommand;

use super::Listing;

/// Looks at runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Everything about one run
    #[command(after_help = "Example: runner runs show 01KA5V7Q4B")]
    Show {
        /// Its id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// The log of one run
    #[command(after_help = "Example: runner runs logs 01KA5V7Q4B")]
    Logs {
        /// Its id, or an unambiguous beginning of it
        run: String,
        /// Print new lines of the log and the program's output until the run is over
        #[arg(long)]
        follow: bool,
    },
}
