//! The `runner status` command: shows the current state, from one snapshot of the database and a
//! few file lookups.
//!
//! A status of all projects costs one statement for each question and a few `stat` calls for each
//! project; the configuration is parsed only if its files have changed. The command changes
//! nothing.

mod files;
mod gather;
mod model;
mod project_scan;
mod queue;
mod text;
mod watch;

use std::path::Path;

use runner_engine::outcome::Exit;

use crate::env::Env;
use crate::ui::Failure;
use crate::ui::{Ui, show};

const SCHEMA: &str = include_str!("../../config/schemas/status.schema.json");

/// The options of `status`.
#[derive(Clone, Copy, Debug)]
pub struct StatusRequest {
    /// Whether the command named the folder, which must then be a project.
    pub asked_for_here: bool,
    /// Whether to repeat the status until interrupted.
    pub watch: bool,
    /// Whether to print only the schema of the output.
    pub schema: bool,
}

/// Prints the status of the current project, or of all projects outside of one.
pub fn run(home: &Env, here: &Path, look: StatusRequest, ui: Ui) -> Result<Exit, Failure> {
    if look.schema {
        show::out(SCHEMA);
        return Ok(Exit::Done);
    }
    let mut one = || -> Result<String, Failure> {
        let status = gather::gather(home, here, look.asked_for_here)?;
        Ok(match ui.json {
            true => show::json_line(&status, look.watch),
            false => text::text(&status),
        })
    };
    if look.watch {
        return watch::watch(home, !ui.json, &mut one);
    }
    show::out(&one()?);
    Ok(Exit::Done)
}
