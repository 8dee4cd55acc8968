//! `runner alerts`: its commands and flags.

use clap::Subcommand;

use super::listing::Listing;

/// Looks at alerts, tries channels, silences.
#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// List what is open; what did not arrive is said (the default)
    #[command(after_help = "Example: runner alerts list --over --json | jq '.[0]'")]
    List {
        /// Also what is over
        #[arg(long)]
        over: bool,
        /// List the alerts of all projects
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one alert and what became of each of its messages
    #[command(after_help = "Example: runner alerts show 01KA5V7Q4B")]
    Show {
        /// Its id, or an unambiguous beginning of it
        alert: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Send a message now, through one channel or all of the project; exit code 69 when one did not
    /// take it
    #[command(after_help = "Example: runner alerts test screen")]
    Test {
        /// Its name in runner.toml or the user's config.toml
        channel: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Silence an alert: no message is sent about it again before it is over; `runner jobs reset`
    /// records that a job is fixed
    #[command(after_help = "Example: runner alerts ack dream")]
    Ack {
        /// Its id, an unambiguous beginning of it, or a job of the project: all its open alerts
        alert: String,
        #[command(flatten)]
        listing: Listing,
    },
}
