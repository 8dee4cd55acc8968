//! `runner db backup`: writes a copy of the database.

use std::path::PathBuf;

use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::commands::Cli;
use crate::maintenance;
use crate::ui::{Failure, Ui, View, show};

/// Write a complete copy of the database while it is in use, and check the copy
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner db backup /mnt/disk/database.sqlite")]
pub struct BackupArgs {
    /// The copy, which must not exist yet [default: a dated file in the state folder's backups/]
    file: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Backup {
    file: String,
    format: i64,
    bytes: u64,
}

impl View for Backup {
    fn print(&self, ui: Ui) {
        show::out(&format!("{}\n", self.file));
        ui.info(&format!("{} bytes, format {}, checked and intact", self.bytes, self.format));
    }
}

impl BackupArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let mut store = cli.env.store()?;
        let target = match &self.file {
            Some(file) => cli.env.here.join(file),
            None => maintenance::new_backup(cli.env, now)?,
        };
        if target.symlink_metadata().is_ok() {
            return Err(Failure::cannot_write(format!(
                "{} already exists, and a backup never replaces a file",
                target.display()
            ))
            .hint("runner db backup ANOTHER-NAME"));
        }
        let copy = store.backup(&target, now)?;
        let file = copy.path.display().to_string();
        cli.ui.show(&Backup { file, format: copy.format, bytes: copy.bytes });
        Ok(Exit::Done)
    }
}
