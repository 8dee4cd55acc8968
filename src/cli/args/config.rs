//! `runner config`: its commands and flags.

use clap::Subcommand;

use super::Listing;

/// Looks at the settings, or changes one.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print all settings as they are resolved, as TOML
    #[command(after_help = "Example: runner config show --origin --config night.at=23:00")]
    Show {
        /// End each line with where its value is from: layer, file and line
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say "ok", or every mistake in the settings with its place
    #[command(after_help = "Example: runner config check || $EDITOR runner.toml")]
    Check {
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of runner.toml, for editors
    #[command(after_help = "Example: runner config schema > runner.schema.json")]
    Schema,
    /// Print one value; exit code 1 when it is not set
    #[command(after_help = "Example: runner config get jobs.dream.timeout")]
    Get {
        /// Its dotted name
        key: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Change one setting in the project's runner.toml; every other byte of it stays
    #[command(after_help = "Example: runner config set night.at 23:30")]
    Set {
        /// Its dotted name
        key: String,
        /// As TOML, else as text: 3, 23:30, true, '["a", "b"]'
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// In the user's own file, for all projects
        #[arg(long)]
        user: bool,
    },
}
