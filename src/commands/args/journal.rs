//! The commands and flags of `runner journal` and `runner hook`.

use std::path::PathBuf;

use clap::Subcommand;

/// The subcommands of `runner journal`.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Write the journal as one static page that needs no script and no network
    #[command(after_help = "Example: runner journal export public/rem")]
    Export {
        /// The folder for index.html; it is created if it does not exist
        dir: PathBuf,
    },
}

/// The subcommands that an agent's program calls through its hooks.
#[derive(Debug, Subcommand)]
pub enum HookCommand {
    /// Record one tool use: reads the PostToolUse hook's payload from standard input and adds one
    /// row to _steps.jsonl
    ///
    /// This hook is for sessions that a person has with an agent; runner itself records the runs
    /// that it starts. The hook never stops or disturbs a session: an error ends with exit code 1,
    /// which the agent's program only notes.
    #[command(after_help = "Example: runner hook post-tool-use < payload.json")]
    PostToolUse {
        /// The named agent of the session
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
}
