//! The commands and flags of `runner config`.

use clap::Subcommand;

use super::Listing;

/// Shows, checks and changes the settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print all resolved settings as TOML
    #[command(after_help = "Example: runner config show --origin --config night.at=23:00")]
    Show {
        /// Add the source of the value to each line: layer, file and line
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print "ok", or every mistake in the settings with its location
    #[command(after_help = "Example: runner config check || $EDITOR runner.toml")]
    Check {
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of runner.toml, for editors
    #[command(after_help = "Example: runner config schema > runner.schema.json")]
    Schema,
    /// Print one value; exit code 1 if it is not set
    #[command(after_help = "Example: runner config get jobs.dream.timeout")]
    Get {
        /// The dotted name of the setting
        key: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Change one setting in the project's runner.toml and keep every other byte of the file
    #[command(after_help = "Example: runner config set night.at 23:30")]
    Set {
        /// The dotted name of the setting
        key: String,
        /// The value, as TOML or else as text: 3, 23:30, true, '["a", "b"]'
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Change the user's own file, which applies to all projects
        #[arg(long)]
        user: bool,
    },
}
