//! The commands and flags of `runner guard`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Checks whether something may be written.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// The PreToolUse hook of an agent: its payload on standard input; exit code 2 refuses the tool
    ///
    /// The hook refuses early and states the reason; the sandbox holds whatever gets past it. An
    /// error in the hook refuses the tool too, and so does an unknown tool that names no path.
    /// Without any limits, everything that writes is refused.
    #[command(after_help = "Example: runner guard hook --job licences < payload.json")]
    Hook {
        /// A folder or file that may be written (may be repeated)
        #[arg(long, value_name = "PATH")]
        write: Vec<PathBuf>,
        /// A path beneath those that must not be written (may be repeated)
        #[arg(long, value_name = "PATH")]
        keep: Vec<PathBuf>,
        /// Use the limits of this job
        #[arg(long)]
        job: Option<String>,
        /// A tool, besides the known ones, that writes nothing: its name, or the beginning of it
        /// and * (may be repeated)
        #[arg(long, value_name = "TOOL")]
        reads: Vec<String>,
    },
    /// Check whether a job may write each path; exit code 1 if it may not write one
    #[command(
        after_help = "Example: runner guard write-scope --job dream dreams/state.json .git/config"
    )]
    WriteScope {
        /// The job's name in runner.toml
        #[arg(long)]
        job: String,
        /// The paths, relative to the current folder
        #[arg(required = true)]
        paths: Vec<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Check that what is written to each path stays out of git's history; exit code 1 if one might
    /// not
    #[command(after_help = "Example: runner guard leak dreams/state.json")]
    Leak {
        /// The paths, relative to the project's folder
        #[arg(required = true)]
        paths: Vec<String>,
        #[command(flatten)]
        listing: Listing,
    },
}
