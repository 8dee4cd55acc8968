//! `runner db vacuum`: reclaims the disk space of deleted rows.

use std::fs;

use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::commands::Cli;
use crate::ui::{Failure, Ui, View};

#[derive(Debug, Serialize)]
struct Compacted {
    bytes_before: u64,
    bytes: u64,
}

impl View for Compacted {
    fn print(&self, ui: Ui) {
        ui.info(&format!("{} bytes before, {} now", self.bytes_before, self.bytes));
    }
}

/// Reclaims the disk space of deleted rows.
pub fn vacuum(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let mut store = cli.env.store()?;
    let path = cli.env.store_path();
    // The log is merged into the file before each measurement, so the two sizes are comparable.
    let size = || fs::metadata(&path).map_or(0, |data| data.len());
    store.cut_log(0)?;
    let bytes_before = size();
    store.vacuum()?;
    store.cut_log(0)?;
    let bytes = size();
    cli.ui.show(&Compacted { bytes_before, bytes });
    Ok(Exit::Done)
}
