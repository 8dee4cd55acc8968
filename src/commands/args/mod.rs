//! All commands and flags. Their help texts are the reference documentation.

mod awake;
pub mod dream;
pub mod journal;
pub mod lifecycle;
pub mod overnight;
mod projects;
pub mod replay;
pub mod report;
mod runs;
mod schedule;
mod setup;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use runner_engine::outcome::Exit;

pub use crate::ui::Listing;
use crate::ui::Ui;

pub use awake::AwakeFlags;
pub use dream::DreamCommand;
use journal::JournalCommand;
pub use lifecycle::LifecycleCommand;
use overnight::OvernightCommand;
pub use projects::ProjectsCommand;
use replay::ReplayArgs;
pub use runs::RunsCommand;
pub use schedule::{ScheduleCommand, ScheduleTarget};
pub use setup::SetupArgs;

/// Parses a command line. This function prints help and usage errors; the error value is the exit
/// code.
pub fn parse(line: impl Iterator<Item = OsString>) -> Result<Args, Exit> {
    let parsed = Args::command().try_get_matches_from(line).and_then(|matches| {
        let mut args = Args::from_arg_matches(&matches)?;
        args.json = prints_json(&matches);
        Ok(args)
    });
    parsed.map_err(|error| {
        // An error is ignored, because the reader may close the pipe at any time.
        let _closed = error.print();
        if error.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

/// Returns whether `--json` is set for the command or one of its parents.
fn prints_json(matches: &ArgMatches) -> bool {
    let set = matches.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or(false);
    set || matches.subcommand().is_some_and(|(_, below)| prints_json(below))
}

/// The night shift for coding agents: runs jobs on time, within limits, and reports in the morning.
#[derive(Debug, Parser)]
#[command(name = "runner", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Example: runner init && runner night\n\nExit codes: 0 done or skipped with a reason · 1 a run failed · 2 usage · 65 bad input · \
69 not installed, rate-limited · 70 internal, damaged database · 73 cannot write · 75 deferred · 77 auth · \
78 configuration · 130 cancelled"
)]
pub struct Args {
    /// The project to work on: any folder inside it [default: the current folder]
    // The id must differ from all arguments of all commands, because clap looks up a global
    // argument by its id in every command.
    #[arg(id = "project-folder", short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Override a setting of all files for this command and the runs that it starts (may be
    /// repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// Print more (twice: even more) on standard error and in the run's log
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Whether the result is printed as JSON: the flag `--json` of the command.
    #[arg(skip)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `runner`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Init(super::init::InitArgs),
    Demo(super::demo::DemoArgs),
    /// Run every enabled job of the project once, under one budget, and write one report
    #[command(after_help = "Example: runner night --json | jq '.runs[] | {job, outcome}'")]
    Night {
        /// Show what would be asked, which backend would be asked, the maximum cost, and whether it
        /// would start now; ask nothing and write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        awake: AwakeFlags,
        #[command(flatten)]
        listing: Listing,
    },
    /// Run one job now
    #[command(after_help = "Example: runner run dream")]
    Run {
        /// The job's name in runner.toml
        job: String,
        /// Run the job only once for this key, however often it is requested
        #[arg(long)]
        key: Option<String>,
        /// Print the run's log and its program's output on standard output while it runs
        #[arg(long, conflicts_with = "json")]
        follow: bool,
        /// Show what would be asked, which backend would be asked, the maximum cost, and whether it
        /// would start now; ask nothing and write nothing
        #[arg(long, conflicts_with = "follow")]
        dry_run: bool,
        #[command(flatten)]
        awake: AwakeFlags,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put a job into the queue; the daemon or the next tick starts it when its turn comes
    #[command(after_help = "Example: runner enqueue dream --set max_ideas=5 --at 23:00")]
    Enqueue {
        /// The job's name in runner.toml
        job: String,
        /// Override a setting of the job for this run only (may be repeated)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Not before this time: 2026-11-22T02:30:00Z, "2026-11-22 02:30" or 02:30 in the job's
        /// zone, or "2h" from now
        #[arg(long, value_name = "WHEN")]
        at: Option<String>,
        /// The priority; waiting runs with a higher priority start first [default: the job's own]
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i32>,
        /// Start only after this run has succeeded; skip the new run if it does not succeed
        #[arg(long, value_name = "RUN")]
        after: Option<String>,
        /// Run the job only once for this key, however often it is requested
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// End a run, or remove a waiting run from the queue; the run is not retried
    #[command(after_help = "Example: runner cancel 01KA5V7Q4B")]
    Cancel {
        /// The run's id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Queue one more attempt at the work of a settled run
    #[command(after_help = "Example: runner retry 01KA5V7Q4B")]
    Retry {
        /// The run's id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Start nothing of a job, or of anything, for a while; live runs continue, and manual requests
    /// are still run
    #[command(after_help = "Example: runner pause dream --until '2026-11-23 08:00'")]
    Pause {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// Pause everything, in all projects
        #[arg(long, conflicts_with = "job")]
        all: bool,
        /// Until this time, written as for `enqueue --at` [default: until `runner resume`]
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// End a pause; scheduled times during the pause are recorded as missed and not caught up
    #[command(after_help = "Example: runner resume --all")]
    Resume {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// End the pause of everything
        #[arg(long, conflicts_with = "job")]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Do the work that is due in all projects; a host timer calls this command
    #[command(after_help = "Example (crontab): */15 * * * * runner tick --quiet")]
    Tick {
        /// Work in the environment that `runner setup` has saved in this file; a host scheduler
        /// passes this flag
        #[arg(long, value_name = "FILE")]
        environment: Option<PathBuf>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Set up this machine's own scheduler to call `runner tick`, so that the nights run by
    /// themselves
    ///
    /// Shows the files and the steps and changes nothing; --apply makes the changes, and --remove
    /// undoes them byte for byte. There is one timer per user, for all projects: a second project
    /// only adds its times to the timer, and removing a project keeps the timer for the others.
    #[command(
        after_help = "Example: runner setup --at 02:30 --apply && runner doctor --as-scheduler"
    )]
    Setup(SetupArgs),
    Doctor(super::doctor::DoctorArgs),
    Daemon(super::daemon::DaemonArgs),
    #[command(hide = true)]
    Execute(super::execute::ExecuteArgs),
    /// List runs, or show one
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner runs --job dream --limit 5"
    )]
    Runs {
        /// The subcommand [default: the list]
        #[command(subcommand)]
        command: Option<RunsCommand>,
        /// List only the runs of this job
        #[arg(long)]
        job: Option<String>,
        /// List the runs of all projects
        #[arg(long)]
        all: bool,
        /// Maximum number of runs; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the current state: last night, next due, failures, and what runs, waits and is paused
    #[command(after_help = "Example: runner status --watch")]
    Status {
        /// Keep watching: redraw on a terminal; elsewhere, print again after a change
        #[arg(long)]
        watch: bool,
        /// Print the JSON schema of what --json prints
        #[arg(long, conflicts_with_all = ["watch", "json"])]
        schema: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List all projects, record that one moved, or forget one
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner projects --json | jq -r '.[] | select(.standing != \"known\") | .path'"
    )]
    Projects {
        /// The subcommand [default: list]
        #[command(subcommand)]
        command: Option<ProjectsCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the report of a night, or open its page
    ///
    /// The command makes the report again, in any format, from the database and the night's
    /// artifacts.
    #[command(after_help = "Example: runner report --night 2026-11-21 --open")]
    Report(report::ReportArgs),
    Budget(super::budget::BudgetArgs),
    Jobs(super::jobs::JobsArgs),
    /// Show when jobs are due: the next scheduled times, a description in words, or a simulation of
    /// a period
    #[command(after_help = "Example: runner schedule next dream")]
    Schedule {
        #[command(subcommand)]
        command: ScheduleCommand,
    },
    Config(super::config::ConfigArgs),
    Db(super::db::DbArgs),
    /// Run the dream pass over changed ideas, and review its proposals
    #[command(after_help = "Example: runner dream run --dry-run")]
    Dream {
        #[command(subcommand)]
        command: DreamCommand,
    },
    /// Show the journal: the dreams between the runs, what came of them, and the reason for a
    /// missing entry
    #[command(after_help = "Example: runner journal --json | jq '.items[0]'")]
    Journal {
        /// The subcommand [default: show the journal]
        #[command(subcommand)]
        command: Option<JournalCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    Hook(super::hook::HookArgs),
    Board(super::board::BoardArgs),
    /// Show the cycle of an agent, with its states and its position, or make one step manually
    #[command(after_help = "Example: runner lifecycle show")]
    Lifecycle {
        #[command(subcommand)]
        command: LifecycleCommand,
    },
    Backends(super::backends::BackendsArgs),
    Completions(super::manual::CompletionsArgs),
    Man(super::manual::ManArgs),
    Alerts(super::alerts::AlertsArgs),
    #[command(name = "__deliver", hide = true)]
    Deliver(super::alerts::DeliverArgs),
    Curator(super::curator::CuratorArgs),
    /// Replay a recorded run without its project and its model, and compare the results
    Replay(ReplayArgs),
    Guard(super::guard::GuardArgs),
    /// The night over the corpus below .agents: it learns, puts in order, measures, and proposes
    /// what to begin with
    #[command(after_help = "Example: runner overnight start --goal 'fewer flaky tests'")]
    Overnight {
        #[command(subcommand)]
        command: OvernightCommand,
    },
    Corpus(super::corpus::CorpusArgs),
}

impl Args {
    /// Returns the format of the output that the flags request.
    pub fn ui(&self) -> Ui {
        Ui { json: self.json, quiet: self.quiet }
    }
}
