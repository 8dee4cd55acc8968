//! `runner status`: what is going on, from one look at the database and a few at files.
//!
//! The cost of looking at all projects is one statement a question and some stats a project: no
//! configuration is parsed whose files are as they were. Changes nothing.

mod files;
mod gather;
mod model;
mod project_scan;
mod queue;
mod text;
mod watch;

use std::path::Path;

use runner_engine::outcome::Exit;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::env::Env;

const SCHEMA: &str = include_str!("../../config/schemas/status.schema.json");

/// The options of `status`.
#[derive(Clone, Copy, Debug)]
pub struct StatusRequest {
    /// The folder was named: it must be a project.
    pub asked_for_here: bool,
    /// Again and again.
    pub watch: bool,
    /// Only what a look would be like.
    pub schema: bool,
}

/// Prints the status of the project here, or of all when here is none.
pub fn run(
    home: &Env,
    here: &Path,
    look: StatusRequest,
    listing: Listing,
) -> Result<Exit, Failure> {
    if look.schema {
        show::out(SCHEMA);
        return Ok(Exit::Done);
    }
    let mut one = || -> Result<String, Failure> {
        let status = gather::gather(home, here, look.asked_for_here)?;
        Ok(match listing.json {
            true => show::json_line(&status, look.watch),
            false => text::text(&status),
        })
    };
    if look.watch {
        return watch::watch(home, !listing.json, &mut one);
    }
    show::out(&one()?);
    Ok(Exit::Done)
}
