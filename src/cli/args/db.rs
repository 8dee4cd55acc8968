//! `runner db`: its commands and flags.

use std::path::PathBuf;

use clap::Subcommand;

use super::Listing;

/// Maintains the database.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Print where the database lies
    #[command(after_help = "Example: ls -l \"$(runner db path)\"")]
    Path,
    /// Look at every page and row of it; exit code 70 when something is wrong
    #[command(after_help = "Example: runner db check || runner db restore")]
    Check {
        #[command(flatten)]
        listing: Listing,
    },
    /// Write a whole copy of it while it is used, and look at the copy
    #[command(after_help = "Example: runner db backup /mnt/disk/database.sqlite")]
    Backup {
        /// The copy, which must not be there yet [default: a dated file in the state folder's backups/]
        file: Option<PathBuf>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put a copy in its place; what is there now is kept beside it
    #[command(after_help = "Example: runner db restore --yes")]
    Restore {
        /// The copy [default: the newest in the state folder's backups/ that is whole]
        file: Option<PathBuf>,
        /// Do it; without this the plan is shown, and a terminal is asked
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Give the space of rows that are gone back to the disk
    #[command(after_help = "Example: runner db vacuum")]
    Vacuum {
        #[command(flatten)]
        listing: Listing,
    },
    /// Remove what is older than `[retention]` keeps; a tick does so once a day
    #[command(after_help = "Example: runner db prune --dry-run")]
    Prune {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
