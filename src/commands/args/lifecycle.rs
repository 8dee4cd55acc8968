//! The commands and flags of `runner board` and `runner lifecycle`.

use clap::{Args, Subcommand, ValueEnum};
use runner_jobs::lifecycle::spec::StateKind;

use super::Listing;

/// Shows and changes a project's board.
#[derive(Debug, Subcommand)]
pub enum BoardCommand {
    /// Print each task with its keyword, line and heading
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
    /// Apply the newest entry's verdicts, once; a verdict that does not name exactly one task is
    /// reported
    #[command(after_help = "Example: runner board apply --json | jq '.records[].unresolved'")]
    Apply {
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Begin the next task: the first NEXT, or else a task that is DOING already, or else the top
    /// TODO
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
        /// The heading of the task
        heading: String,
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Mark a task as done
    #[command(after_help = "Example: runner board done 'tide tables load without a network'")]
    Done {
        /// The heading of the task
        heading: String,
        #[command(flatten)]
        which: BoardArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// List the moves on the board: task, time, run and entry, the newest first
    #[command(after_help = "Example: runner board history --limit 5")]
    History {
        /// Maximum number of moves; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Selects a board and its agent.
#[derive(Debug, Args)]
pub struct BoardArg {
    /// The path of the board below the project [default: that of the agent's jobs, else plan.org]
    #[arg(long, value_name = "FILE")]
    pub board: Option<String>,
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub agent: String,
}

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

/// The agent that works in the demo's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoAgent {
    /// A script that replaces a model
    Scripted,
    /// No agent: the built-in backend answers by rule
    Builtin,
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
