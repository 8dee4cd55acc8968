//! The `runner status` command: shows the current state, from one snapshot of the database and a
//! few file lookups.
//!
//! A status of all projects costs one statement for each question and a few `stat` calls for each
//! project; the configuration is parsed only if its files have changed. The command changes
//! nothing.

mod files;
mod gather;
mod model;
mod overview;
mod project_scan;
mod project_status;
mod queue;
mod text;
mod watch;

use runner_engine::outcome::Exit;

use super::Cli;
use crate::ui::show::Tone;
use crate::ui::{Failure, show};

const SCHEMA: &str = include_str!("../../../config/schemas/status.schema.json");

/// Show the current state: last night, next due, failures, and what runs, waits and is paused
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner status --watch")]
pub struct StatusArgs {
    /// Keep watching: redraw on a terminal; elsewhere, print again after a change
    #[arg(long)]
    watch: bool,
    /// Print the JSON schema of what --json prints
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    schema: bool,
}

impl StatusArgs {
    /// Prints the status of the current project, or of all projects outside of one.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if self.schema {
            show::out(SCHEMA);
        } else if self.watch {
            return watch::watch(cli);
        } else {
            cli.ui.show(&gather::gather(cli)?);
        }
        Ok(Exit::Done)
    }
}

/// Returns the lines that the command prints for the current project, or for all projects outside of
/// one, with the tone of each.
pub(super) fn lines(cli: &Cli<'_>) -> Result<Vec<(Tone, String)>, Failure> {
    Ok(text::lines(&gather::gather(cli)?))
}
