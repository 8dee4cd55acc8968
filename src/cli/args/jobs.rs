//! The commands and flags of `runner jobs`.

use clap::Subcommand;

use super::Listing;

/// Manages the jobs of a project.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List the jobs of the project
    #[command(after_help = "Example: runner jobs list --json | jq -r '.[].job'")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one job: its kind, its schedule and its failures
    #[command(after_help = "Example: runner jobs show dream")]
    Show {
        /// The job's name in runner.toml
        job: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Reset the failures of a job, so that its schedule starts it again
    ///
    /// The failure marker is removed, the circuit breaker is closed and open alerts of the job end. The
    /// database records who did so.
    #[command(after_help = "Example: runner jobs reset dream")]
    Reset {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// All jobs of the project
        #[arg(long, conflicts_with = "job")]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
