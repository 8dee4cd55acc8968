//! `runner daemon`: runs the daemon in the foreground until it is asked to end.

use runner_engine::outcome::Exit;

use crate::daemon::{self, settings};
use crate::env::Env;
use crate::spawn::SpawnMode;
use crate::ui::Failure;

/// Runs the daemon for all projects. `drain` overrides `[daemon] drain`.
pub fn run(home: &Env, drain: Option<&str>, manner: SpawnMode) -> Result<Exit, Failure> {
    let drain = match drain {
        Some(text) => {
            settings::duration(text).map_err(|why| Failure::usage(format!("--drain: {why}")))?
        }
        None => settings::drain(&home.user_config)?,
    };
    daemon::run(home, drain, manner)
}
