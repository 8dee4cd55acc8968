//! Every command and flag; their help is the reference documentation.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};
use runner_engine::outcome::Exit;

/// Reads a command line. Help and mistakes are printed here; the error is the exit code.
pub fn parse(line: impl Iterator<Item = OsString>) -> Result<Args, Exit> {
    Args::try_parse_from(line).map_err(|error| {
        // A closed pipe is the reader's choice.
        let _closed = error.print();
        if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Done
        }
    })
}

/// The night shift for coding agents: runs jobs on time, inside limits, and tells the story in the
/// morning.
#[derive(Debug, Parser)]
#[command(
    name = "runner",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 done or skipped with a reason · 1 a run failed · 2 usage · 65 bad input · \
69 not installed, rate-limited · 70 internal, damaged ledger · 73 cannot write · 75 deferred · 77 auth · \
78 configuration · 130 cancelled"
)]
pub struct Args {
    /// The project to work on: any folder inside it [default: the current folder]
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Say more (twice: even more) on standard error and in the run's log
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the folder a project: its runner.toml, its folders, its lines in .git/info/exclude
    #[command(after_help = "Example: cd my-repository && runner init")]
    Init {
        /// The folder, inside a git repository [default: the current folder]
        dir: Option<PathBuf>,
    },
    /// Make a sample project and run a night in it
    #[command(after_help = "Example: runner demo && cat runner-demo/.runner/reports/*/report.md")]
    Demo {
        /// Where to make it; the folder must not exist
        #[arg(default_value = "runner-demo")]
        dir: PathBuf,
    },
    /// Run every enabled job of the project once, under one budget, and write one report
    #[command(after_help = "Example: runner night --json | jq '.runs[] | {job, outcome}'")]
    Night {
        #[command(flatten)]
        listing: Listing,
    },
    /// Run one job now
    #[command(after_help = "Example: runner run dream")]
    Run {
        /// The job's name in runner.toml
        job: String,
        /// Run it once for this key, however often it is asked for
        #[arg(long)]
        key: Option<String>,
        /// Print its log on standard output while it runs
        #[arg(long, conflicts_with = "json")]
        follow: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Do what is due in all projects: what a host timer calls
    #[command(after_help = "Example (crontab): */15 * * * * runner tick --quiet")]
    Tick {
        #[command(flatten)]
        listing: Listing,
    },
    /// Do what is due in all projects, for as long as it runs: instead of a host timer
    ///
    /// One a user; it stays in the foreground. TERM or INT end it: nothing new is started, live runs
    /// may end by themselves, then they are asked to, then they are killed. A further TERM goes on to
    /// the next of these at once. HUP reads all configuration again.
    #[command(after_help = "Example: runner daemon --drain 5m")]
    Daemon {
        /// How long live runs may go on when it is told to end [default: `drain` in the table
        /// [daemon] of the user's configuration file, or 30s]
        #[arg(long, value_name = "DURATION")]
        drain: Option<String>,
    },
    /// The process of one run; started by the other commands
    #[command(hide = true)]
    Perform {
        /// The run
        run: String,
    },
    /// List runs, or look at one
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner runs --job dream --limit 5"
    )]
    Runs {
        /// What to look at [default: the list]
        #[command(subcommand)]
        command: Option<RunsCommand>,
        /// Only this job's
        #[arg(long)]
        job: Option<String>,
        /// Of all projects
        #[arg(long)]
        all: bool,
        /// At most so many; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// What is going on: last night, next due, what failed, what is running
    #[command(after_help = "Example: runner status --json")]
    Status {
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the report of a night
    #[command(after_help = "Example: runner report --night 2026-11-21")]
    Report {
        /// The night's name [default: the last one]
        #[arg(long)]
        night: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// The dream pass over changed ideas
    Dream {
        /// What to do
        #[command(subcommand)]
        command: DreamCommand,
    },
}

/// Looks at runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Everything about one run
    #[command(after_help = "Example: runner runs show 01KA5V7Q4B")]
    Show {
        /// Its id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// The log of one run
    #[command(after_help = "Example: runner runs logs 01KA5V7Q4B")]
    Logs {
        /// Its id, or an unambiguous beginning of it
        run: String,
        /// Print what is added until the run is over
        #[arg(long)]
        follow: bool,
    },
}

/// The dream pass.
#[derive(Debug, Subcommand)]
pub enum DreamCommand {
    /// Run one pass now
    #[command(after_help = "Example: runner dream run --json")]
    Run {
        #[command(flatten)]
        listing: Listing,
    },
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Listing {
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}
