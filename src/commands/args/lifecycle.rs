//! The commands and flags of `runner board`.

use clap::{Args, Subcommand, ValueEnum};

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

/// The agent that works in the demo's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoAgent {
    /// A script that replaces a model
    Scripted,
    /// No agent: the built-in backend answers by rule
    Builtin,
}
