//! The flags of `runner setup`.

use super::Listing;

/// The flags of `runner setup`.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// The host scheduler; auto: the one that is set up, or else the one that fits this machine.
    /// The files of any scheduler can be shown on any machine
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "launchd", "cron", "systemd", "task-scheduler", "manual"])]
    pub scheduler: String,
    /// The time at which the project's night opens, night.at in its runner.toml [default:
    /// unchanged; 02:30 at first]
    #[arg(long, value_name = "HH:MM")]
    pub at: Option<String>,
    /// The backend that answers the project's jobs (with --job: only that job's)
    #[arg(long, value_name = "NAME")]
    pub runner: Vec<String>,
    /// The job whose backend --runner sets (may be repeated)
    #[arg(long, value_name = "JOB", requires = "runner")]
    pub job: Vec<String>,
    /// Also print the command that wakes a sleeping machine before the night; the command needs
    /// root and is never run
    #[arg(long, conflicts_with_all = ["remove", "status", "verify"])]
    pub wake: bool,
    /// Make the changes [default: show them]
    #[arg(long, group = "act")]
    pub apply: bool,
    /// Undo the setup for the current project, and for the machine if no other project needs it
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub remove: bool,
    /// With --remove: undo the setup for all projects
    #[arg(long, requires = "remove")]
    pub all: bool,
    /// Show the current setup and its last tick
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub status: bool,
    /// Check that the setup is complete and works; exit code 1 if not
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub verify: bool,
    #[command(flatten)]
    pub listing: Listing,
}
