//! `runner db`: maintains the database.

mod backup;
mod check;
mod prune;
mod restore;
mod vacuum;

use runner_engine::outcome::Exit;

use super::Cli;
use crate::ui::{Failure, show};

/// Check the database, copy it, restore a copy, or prune old data
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner db check")]
pub struct DbArgs {
    #[command(subcommand)]
    command: DbCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DbCommand {
    /// Print the path of the database
    #[command(after_help = "Example: ls -l \"$(runner db path)\"")]
    Path,
    /// Check every page and row of the database; exit code 70 if something is wrong
    #[command(after_help = "Example: runner db check || runner db restore")]
    Check,
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    /// Reclaim the disk space of deleted rows
    #[command(after_help = "Example: runner db vacuum")]
    Vacuum,
    Prune(prune::PruneArgs),
}

impl DbArgs {
    pub fn is_dry(&self) -> bool {
        matches!(&self.command, DbCommand::Prune(prune) if prune.dry_run)
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        dispatch!(&self.command, DbCommand: Backup Restore Prune => run(cli);
            DbCommand::Path => {
                show::out(&format!("{}\n", cli.env.store_path().display()));
                Ok(Exit::Done)
            }
            DbCommand::Check => check::check(cli),
            DbCommand::Vacuum => vacuum::vacuum(cli),
        )
    }
}
