//! The commands and flags of `runner alerts`.

use clap::Subcommand;

use super::Listing;

/// Lists alerts, tests channels and silences alerts.
#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// List the open alerts, with the messages that did not arrive (the default)
    #[command(after_help = "Example: runner alerts list --over --json | jq '.[0]'")]
    List {
        /// Also list alerts that are over
        #[arg(long)]
        over: bool,
        /// List the alerts of all projects
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one alert and the state of each of its messages
    #[command(after_help = "Example: runner alerts show 01KA5V7Q4B")]
    Show {
        /// The alert's id, or an unambiguous beginning of it
        alert: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Send a message now, through one channel or all channels of the project; exit code 69 if a
    /// channel did not accept it
    #[command(after_help = "Example: runner alerts test screen")]
    Test {
        /// The channel's name in runner.toml or the user's config.toml
        channel: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Silence an alert: no message is sent about it again before it is over; `runner jobs reset`
    /// records that a job is fixed
    #[command(after_help = "Example: runner alerts ack dream")]
    Ack {
        /// The alert's id, an unambiguous beginning of it, or a job of the project for all its open
        /// alerts
        alert: String,
        #[command(flatten)]
        listing: Listing,
    },
}
