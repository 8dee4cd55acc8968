//! `runner projects`: its commands and flags.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Looks after the list of projects.
#[derive(Debug, Subcommand)]
pub enum ProjectsCommand {
    /// List them: how each stands, its id, its path
    #[command(after_help = "Example: runner projects list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Tell that a project lies elsewhere now; its history goes with it
    #[command(after_help = "Example: runner projects move /home/me/old-place /home/me/new-place")]
    Move {
        /// Where it was: its old path, or its id
        old: PathBuf,
        /// Where it is
        new: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// Take a project and its history out of the database; shows what, and does it with --yes
    #[command(after_help = "Example: runner projects forget /home/me/finished --yes")]
    Forget {
        /// Its path, or its id
        project: PathBuf,
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
