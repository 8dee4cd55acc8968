//! The flags of `runner setup`.

use super::Listing;

/// The flags of `runner setup`.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// Which host scheduler; auto: the one that is set up, else the one that fits this machine. The files
    /// of any can be looked at on any machine
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "launchd", "cron", "systemd", "task-scheduler", "manual"])]
    pub scheduler: String,
    /// When the project's night opens: night.at in its runner.toml [default: as it is; 02:30 at first]
    #[arg(long, value_name = "HH:MM")]
    pub at: Option<String>,
    /// The backend that answers the project's jobs (with --job: only that job's)
    #[arg(long, value_name = "NAME")]
    pub runner: Vec<String>,
    /// The job whose backend --runner sets (may be repeated)
    #[arg(long, value_name = "JOB", requires = "runner")]
    pub job: Vec<String>,
    /// Also print the command that wakes a sleeping machine before the night: it needs root, and is
    /// never run
    #[arg(long, conflicts_with_all = ["remove", "status", "verify"])]
    pub wake: bool,
    /// Do it [default: show what would be done]
    #[arg(long, group = "act")]
    pub apply: bool,
    /// Undo it: for the project here, and for the machine when no other project needs it
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub remove: bool,
    /// With --remove: for all projects
    #[arg(long, requires = "remove")]
    pub all: bool,
    /// Show what is set up and when it last ticked
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub status: bool,
    /// Check that what is set up is whole and works; exit code 1 when not
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    pub verify: bool,
    #[command(flatten)]
    pub listing: Listing,
}
