//! The commands and flags of `runner journal`.

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
