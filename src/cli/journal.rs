//! `runner journal` and `runner hook`: their commands and flags.

use std::path::PathBuf;

use clap::Subcommand;

/// The subcommands of `runner journal`.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Write it as one static page, which needs no script and no network
    #[command(after_help = "Example: runner journal export public/rem")]
    Export {
        /// The folder that gets index.html; made if it is not there
        dir: PathBuf,
    },
}

/// The subcommands that an agent's program calls through its hooks.
#[derive(Debug, Subcommand)]
pub enum HookCommand {
    /// Record one tool: the PostToolUse hook's payload on standard input, one row in _steps.jsonl
    ///
    /// For sessions that a person has with an agent; runs that runner starts are recorded by runner
    /// itself. It never stops or disturbs a session: what goes wrong ends with exit code 1, which the
    /// program only notes.
    #[command(after_help = "Example: runner hook post-tool-use < payload.json")]
    PostToolUse {
        /// The named agent that works here
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
}
