//! The commands and flags of `runner db`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Maintains the database.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Print the path of the database
    #[command(after_help = "Example: ls -l \"$(runner db path)\"")]
    Path,
    /// Check every page and row of the database; exit code 70 if something is wrong
    #[command(after_help = "Example: runner db check || runner db restore")]
    Check {
        #[command(flatten)]
        listing: Listing,
    },
    /// Write a complete copy of the database while it is in use, and check the copy
    #[command(after_help = "Example: runner db backup /mnt/disk/database.sqlite")]
    Backup {
        /// The copy, which must not exist [default: a dated file in the state folder's backups/]
        file: Option<PathBuf>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Replace the database with a copy; the current database is kept beside it
    #[command(after_help = "Example: runner db restore --yes")]
    Restore {
        /// The copy [default: the newest intact one in the state folder's backups/]
        file: Option<PathBuf>,
        /// Restore the copy; without this flag, show the plan and ask on the terminal
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Return the space of deleted rows to the disk
    #[command(after_help = "Example: runner db vacuum")]
    Vacuum {
        #[command(flatten)]
        listing: Listing,
    },
    /// Remove data that is older than `[retention]` keeps; a tick does so once a day
    #[command(after_help = "Example: runner db prune --dry-run")]
    Prune {
        /// Show what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
