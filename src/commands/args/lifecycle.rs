//! The commands and flags of `runner lifecycle`.

use clap::{Args, Subcommand, ValueEnum};
use runner_jobs::lifecycle::spec::StateKind;

use super::Listing;
use crate::commands::board::BoardArg;

/// Shows and controls an agent's cycle.
#[derive(Debug, Subcommand)]
pub enum LifecycleCommand {
    /// Print "ok", or every mistake in the declared cycle with its line
    #[command(after_help = "Example: runner lifecycle check --file lifecycle.org")]
    Check {
        /// Check this file instead
        #[arg(long, value_name = "FILE")]
        file: Option<std::path::PathBuf>,
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the states of the cycle, the agent's current state, and when the next gate opens
    #[command(after_help = "Example: runner lifecycle show --json | jq -r .position.state")]
    Show {
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// Make one step now; a closed gate is skipped, as on the schedule
    #[command(after_help = "Example: runner lifecycle tick && runner lifecycle show")]
    Tick {
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// Set the agent to the beginning of a state
    #[command(after_help = "Example: runner lifecycle goto rem")]
    Goto {
        /// The state
        state: String,
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the text that a waking run reads first, in 60 lines at most
    #[command(after_help = "Example: runner lifecycle orient --kind audit")]
    Orient {
        /// Purpose of the run
        #[arg(long, value_enum, default_value = "wake")]
        kind: AgentArg,
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// List the steps, and those that were not made with the reason, the newest first
    #[command(after_help = "Example: runner lifecycle history --limit 10")]
    History {
        /// Maximum number of steps; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Selects an agent.
#[derive(Debug, Args)]
pub struct Agent {
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub agent: String,
}

/// The purpose of a waking run.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AgentArg {
    /// A run that works
    Wake,
    /// A run that audits claims
    Audit,
    /// A run that plans
    Plan,
}

impl From<AgentArg> for StateKind {
    fn from(it: AgentArg) -> Self {
        match it {
            AgentArg::Wake => Self::Wake,
            AgentArg::Audit => Self::Audit,
            AgentArg::Plan => Self::Plan,
        }
    }
}
