//! `runner board` and `runner lifecycle`: their commands and flags.

use clap::{Args, Subcommand, ValueEnum};
use runner_jobs::lifecycle::spec::StateKind;

use super::listing::Listing;

/// A project's board.
#[derive(Debug, Subcommand)]
pub enum BoardCommand {
    /// Print the tasks: where each stands, its line, its heading
    #[command(
        after_help = "Example: runner board show --json | jq -r '.tasks[] | select(.keyword == \"NEXT\").heading'"
    )]
    Show {
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// List verdicts that had no effect: duplicate headings, unknown keywords; exit code 1 when
    /// there is any
    #[command(after_help = "Example: runner board lint || $EDITOR plan.org")]
    Lint {
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Apply the newest entry's verdicts, once; what names no one task is reported, never guessed
    #[command(after_help = "Example: runner board apply --json | jq '.records[].unresolved'")]
    Apply {
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Begin the next task: the first NEXT, else what is DOING already, else the top TODO
    #[command(after_help = "Example: runner board pick")]
    Pick {
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Add an open task after all others
    #[command(after_help = "Example: runner board add 'tide tables load without a network'")]
    Add {
        /// Its heading
        heading: String,
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say that a task is done
    #[command(after_help = "Example: runner board done 'tide tables load without a network'")]
    Done {
        /// Its heading
        heading: String,
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// List the moves on the board: task, time, run and entry, the newest first
    #[command(after_help = "Example: runner board history --limit 5")]
    History {
        /// At most so many; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Which board, for which agent.
#[derive(Debug, Args)]
pub struct BoardArg {
    /// The board, below the project [default: that of the agent's jobs, else plan.org]
    #[arg(long, value_name = "FILE")]
    pub board: Option<String>,
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub agent: String,
}

/// An agent's cycle.
#[derive(Debug, Subcommand)]
pub enum LifecycleCommand {
    /// Say "ok", or every mistake in the declared cycle with its line
    #[command(after_help = "Example: runner lifecycle check --file lifecycle.org")]
    Check {
        /// Look at this file instead
        #[arg(long, value_name = "FILE")]
        file: Option<std::path::PathBuf>,
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// The states of the cycle, where the agent stands, and when the next gate opens
    #[command(after_help = "Example: runner lifecycle show --json | jq -r .position.state")]
    Show {
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
    /// Make one step now; a gate that is closed is skipped, as for a clock
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
    /// The steps that were made, and those that were not and why, the newest first
    #[command(after_help = "Example: runner lifecycle history --limit 10")]
    History {
        /// At most so many; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        agent: Agent,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Which agent.
#[derive(Debug, Args)]
pub struct Agent {
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub agent: String,
}

/// The agent that works in the demo's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoAgent {
    /// A script that does what a model would do
    Scripted,
    /// Nobody: the answer by rule
    Builtin,
}

/// The purpose of a waking run.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AgentArg {
    /// Working
    Wake,
    /// Looking at what was claimed
    Audit,
    /// Planning
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
