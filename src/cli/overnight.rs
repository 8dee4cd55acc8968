//! `runner overnight`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::listing::Listing;

/// The night over the corpus.
#[derive(Debug, Subcommand)]
pub enum OvernightCommand {
    /// Write a job for it into runner.toml and let the host's scheduler tick; shows it without --apply
    #[command(after_help = "Example: runner overnight setup --at 02:30 --apply")]
    Setup {
        /// Do it [default: show it]
        #[arg(long)]
        apply: bool,
        /// Which host scheduler
        #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["manual", "launchd", "cron", "systemd", "task-scheduler", "auto"])]
        scheduler: String,
        /// When it is due each day [default: with the project's night]
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
    /// Exit code 75 while another night, or a change of the corpus manually, holds the lock.
    #[command(
        visible_alias = "run",
        after_help = "Example: runner overnight start --goal 'fewer flaky tests' --max-iterations 5"
    )]
    Start(StartArgs),
    /// Print the report of the last night, or of another
    #[command(after_help = "Example: runner overnight report --validate")]
    Report {
        /// The output folder of a night, or its summary.json [default: the job's output folder]
        #[arg(long, value_name = "DIR|FILE")]
        from: Option<PathBuf>,
        /// As markdown
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
        /// Check every artifact of the night by the published schemas instead; exit code 65 when one
        /// does not fit
        #[arg(long, conflicts_with = "markdown")]
        validate: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of an artifact, or their names
    #[command(after_help = "Example: runner overnight schema summary > summary.schema.json")]
    Schema {
        /// Which
        name: Option<String>,
    },
}

/// Settings of one night that differ from runner.toml.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Goal of the night
    #[arg(long, value_name = "TEXT")]
    pub goal: Option<String>,
    /// Where its artifacts go, below the project
    #[arg(long, value_name = "P")]
    pub output_dir: Option<String>,
    /// How long it may take in all
    #[arg(long, value_name = "D")]
    pub run_timeout: Option<String>,
    /// Keep the host awake where that can be done
    #[arg(long, overrides_with = "no_keep_awake")]
    pub keep_awake: bool,
    /// Do not
    #[arg(long)]
    pub no_keep_awake: bool,
    /// A backend that is asked for a bounded report (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub runner: Vec<String>,
    /// Those may propose what nobody asked for
    #[arg(long)]
    pub creative_lane: bool,
    /// A markdown list of what comes first in the morning
    #[arg(long, value_name = "FILE")]
    pub queue: Option<String>,
    /// The most iterations; 0: as many as the time allows
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u64>,
    /// A change of fitness below this is as good as none
    #[arg(long, value_name = "F")]
    pub plateau_epsilon: Option<f64>,
    /// So many of those in a row are a plateau; 2 at the least
    #[arg(long, value_name = "K")]
    pub plateau_window: Option<u64>,
    /// Spend a rescue where a strict night would halt [default: the job's setting]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub warn_only: Option<bool>,
    /// The most that a staged copy of the corpus may take
    #[arg(long, value_name = "N")]
    pub checkpoint_max_mb: Option<u64>,
    /// Go through it without a trace: what would come in, be put in order and be proposed
    #[arg(long)]
    pub dry_run: bool,
    /// The overnight job, where the project has several
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    #[command(flatten)]
    pub listing: Listing,
}
