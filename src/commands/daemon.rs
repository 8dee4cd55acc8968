//! `runner daemon`: in the foreground, until it is told to end.

use runner_engine::outcome::Exit;

use crate::cli::Failure;
use crate::daemon::{self, setting};
use crate::drive::Manner;
use crate::home::Home;

/// Serves all projects. `drain` overrides `[daemon] drain`.
pub fn run(home: &Home, drain: Option<&str>, manner: Manner) -> Result<Exit, Failure> {
    let drain = match drain {
        Some(text) => {
            setting::duration(text).map_err(|why| Failure::usage(format!("--drain: {why}")))?
        }
        None => setting::drain(&home.user_config)?,
    };
    daemon::run(home, drain, manner)
}
