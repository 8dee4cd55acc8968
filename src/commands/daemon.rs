//! `runner daemon`: runs the daemon in the foreground until a signal stops it.

use std::path::PathBuf;

use runner_engine::outcome::Exit;

use super::Cli;
use crate::daemon::{self, settings};
use crate::ui::Failure;

/// Do the work that is due in all projects while the daemon runs, in place of a host timer
///
/// There is one daemon per user; it stays in the foreground. TERM or INT stops it: it starts
/// nothing new and lets live runs finish, then asks them to stop, then kills them. Each further
/// TERM proceeds to the next of these steps at once. HUP makes it reread all configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner daemon --drain 5m")]
pub struct DaemonArgs {
    /// How long live runs may continue after the daemon is asked to stop [default: `drain` in the
    /// table `[daemon]` of the user's configuration file, or 30s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<String>,
    /// Use the environment saved in this file by `runner setup`; a service passes this flag
    #[arg(long, value_name = "FILE")]
    pub(super) environment: Option<PathBuf>,
}

impl DaemonArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let drain = match &self.drain {
            Some(text) => {
                settings::duration(text).map_err(|why| Failure::usage(format!("--drain: {why}")))?
            }
            None => settings::drain(&cli.env.user_config)?,
        };
        daemon::run(cli.env, drain, cli.spawn_mode(), super::COMMANDS)
    }
}
