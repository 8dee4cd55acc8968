//! The commands and flags of `runner overnight`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Listing;

/// Runs, sets up and reports nights over the corpus.
#[derive(Debug, Subcommand)]
pub enum OvernightCommand {
    /// Write an overnight job into runner.toml and set up the host's scheduler to tick; without
    /// --apply, show the changes
    #[command(after_help = "Example: runner overnight setup --at 02:30 --apply")]
    Setup {
        /// Make the changes [default: show them]
        #[arg(long)]
        apply: bool,
        /// The host scheduler
        #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["manual", "launchd", "cron", "systemd", "task-scheduler", "auto"])]
        scheduler: String,
        /// The time of day at which the job is due [default: with the project's night]
        #[arg(long, value_name = "HH:MM")]
        at: Option<String>,
        /// A backend that is asked for a bounded report (may be repeated)
        #[arg(long, value_name = "NAME")]
        runner: Vec<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Run a night now
    ///
    /// Exit code 75 while another night, or a manual change of the corpus, holds the lock.
    #[command(
        visible_alias = "run",
        after_help = "Example: runner overnight start --goal 'fewer flaky tests' --max-iterations 5"
    )]
    Start(StartArgs),
    /// Print the report of the last night, or of another night
    #[command(after_help = "Example: runner overnight report --validate")]
    Report {
        /// The output folder of a night, or its summary.json [default: the job's output folder]
        #[arg(long, value_name = "DIR|FILE")]
        from: Option<PathBuf>,
        /// Print the report as markdown
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
        /// Check every artifact of the night against the published schemas instead; exit code 65 if
        /// one does not fit
        #[arg(long, conflicts_with = "markdown")]
        validate: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of an artifact, or the names of all artifacts
    #[command(after_help = "Example: runner overnight schema summary > summary.schema.json")]
    Schema {
        /// The name of the artifact
        name: Option<String>,
    },
}

/// Settings of one night that differ from runner.toml.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Goal of the night
    #[arg(long, value_name = "TEXT")]
    pub goal: Option<String>,
    /// The folder for the night's artifacts, below the project
    #[arg(long, value_name = "P")]
    pub output_dir: Option<String>,
    /// Total time limit of the night
    #[arg(long, value_name = "D")]
    pub run_timeout: Option<String>,
    /// Keep the host awake where the host supports it
    #[arg(long, overrides_with = "no_keep_awake")]
    pub keep_awake: bool,
    /// Do not keep the host awake
    #[arg(long)]
    pub no_keep_awake: bool,
    /// A backend that is asked for a bounded report (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub runner: Vec<String>,
    /// Allow those backends to propose unrequested ideas
    #[arg(long)]
    pub creative_lane: bool,
    /// A markdown list of the work that comes first in the morning
    #[arg(long, value_name = "FILE")]
    pub queue: Option<String>,
    /// Maximum number of iterations; 0: as many as the time allows
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u64>,
    /// A smaller change of fitness counts as no change
    #[arg(long, value_name = "F")]
    pub plateau_epsilon: Option<f64>,
    /// The number of such changes in a row that make a plateau; at least 2
    #[arg(long, value_name = "K")]
    pub plateau_window: Option<u64>,
    /// Spend a rescue where a strict night would halt [default: the job's setting]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub warn_only: Option<bool>,
    /// Maximum size of a staged copy of the corpus, in MB
    #[arg(long, value_name = "N")]
    pub checkpoint_max_mb: Option<u64>,
    /// Show what the night would import, tidy and propose; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The overnight job, if the project has several
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    #[command(flatten)]
    pub listing: Listing,
}
