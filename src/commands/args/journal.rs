//! The commands and flags of `runner hook`.

use clap::Subcommand;

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
