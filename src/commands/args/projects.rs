//! The commands and flags of `runner projects`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Manages the list of projects.
#[derive(Debug, Subcommand)]
pub enum ProjectsCommand {
    /// List the projects with their state, id and path
    #[command(after_help = "Example: runner projects list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Record that a project has moved; its history moves with it
    #[command(after_help = "Example: runner projects move /home/me/old-place /home/me/new-place")]
    Move {
        /// The project's old path, or its id
        old: PathBuf,
        /// The project's new path
        new: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// Remove a project and its history from the database; show what is removed, and remove it with
    /// --yes
    #[command(after_help = "Example: runner projects forget /home/me/finished --yes")]
    Forget {
        /// The project's path, or its id
        project: PathBuf,
        /// Remove the project
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
