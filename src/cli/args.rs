//! Every command and flag; their help is the reference documentation.

mod awake;
mod budget;
mod config;
mod db;
mod guard;
mod jobs;
mod projects;
mod runs;
mod schedule;
mod setup;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};
use clap_complete::Shell;
use runner_engine::outcome::Exit;

pub use super::alerts::AlertsCommand;
use super::corpus::CorpusCommand;
pub use super::curator::CuratorCommand;
pub use super::dream::DreamCommand;
use super::journal::{HookCommand, JournalCommand};
pub use super::lifecycle::{BoardCommand, LifecycleCommand};
pub use super::listing::Listing;
use super::overnight::OvernightCommand;
use super::replay::ReplayArgs;
pub use awake::AwakeFlags;
pub use budget::BudgetCommand;
pub use config::ConfigCommand;
pub use db::DbCommand;
pub use guard::GuardCommand;
pub use jobs::JobsCommand;
pub use projects::ProjectsCommand;
pub use runs::RunsCommand;
pub use schedule::{ScheduleCommand, ScheduleTarget};
pub use setup::SetupArgs;

/// Reads a command line. Help and mistakes are printed here; the error is the exit code.
pub fn parse(line: impl Iterator<Item = OsString>) -> Result<Args, Exit> {
    Args::try_parse_from(line).map_err(|error| {
        // A closed pipe is the reader's choice.
        let _closed = error.print();
        if error.use_stderr() { Exit::Usage } else { Exit::Done }
    })
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
    // A name that no command's own argument has: a global one is looked up in all of them.
    #[arg(id = "project-folder", short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// A setting for this command and the runs that it starts, over all files (may be repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// Say more (twice: even more) on standard error and in the run's log
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `runner`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the folder a project: its runner.toml, its folders, its lines in .git/info/exclude
    #[command(after_help = "Example: cd my-repository && runner init")]
    Init {
        /// The folder, inside a git repository [default: the current folder]
        dir: Option<PathBuf>,
        /// Make it a project of its own: for a copy that carries the id of another one
        #[arg(long)]
        new_id: bool,
    },
    /// Make a sample project and run a night in it
    #[command(after_help = "Example: runner demo && cat runner-demo/.runner/reports/*/report.md")]
    Demo {
        /// Where to make it; the folder must not exist
        #[arg(default_value = "runner-demo")]
        dir: PathBuf,
        /// The agent that works in the cycle
        #[arg(long, value_enum, default_value = "scripted")]
        agent: super::lifecycle::DemoAgent,
    },
    /// Run every enabled job of the project once, under one budget, and write one report
    #[command(after_help = "Example: runner night --json | jq '.runs[] | {job, outcome}'")]
    Night {
        /// Say what would be asked, of whom, at most for how much, and whether it would start now; ask
        /// nothing and write nothing
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
        /// Run it once for this key, however often it is asked for
        #[arg(long)]
        key: Option<String>,
        /// Print the run's log and its program's output on standard output while it runs
        #[arg(long, conflicts_with = "json")]
        follow: bool,
        /// Say what would be asked, of whom, at most for how much, and whether it would start now; ask
        /// nothing and write nothing
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
        /// A setting of the job that holds for this run only; may be given several times
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Not before this time: 2026-11-22T02:30:00Z, "2026-11-22 02:30" or 02:30 in the job's
        /// zone, or "2h" from now
        #[arg(long, value_name = "WHEN")]
        at: Option<String>,
        /// Higher goes first among those that wait [default: the job's own]
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i32>,
        /// Only after this run has succeeded; skipped when it does not
        #[arg(long, value_name = "RUN")]
        after: Option<String>,
        /// Run it once for this key, however often it is asked for
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// End a run, or take a waiting one out of the queue; it is not tried again
    #[command(after_help = "Example: runner cancel 01KA5V7Q4B")]
    Cancel {
        /// Its id, or an unambiguous beginning of it
        run: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put one more attempt at what a settled run was for into the queue
    #[command(after_help = "Example: runner retry 01KA5V7Q4B")]
    Retry {
        /// Its id, or an unambiguous beginning of it
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
        /// Everything, in all projects
        #[arg(long, conflicts_with = "job")]
        all: bool,
        /// Until this time, written as for `enqueue --at` [default: until `runner resume`]
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// End a pause; scheduled times that it swallowed are recorded as missed and not caught up
    #[command(after_help = "Example: runner resume --all")]
    Resume {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// The pause of everything
        #[arg(long, conflicts_with = "job")]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Do what is due in all projects: what a host timer calls
    #[command(after_help = "Example (crontab): */15 * * * * runner tick --quiet")]
    Tick {
        /// Work in the environment that `runner setup` has frozen: what a host scheduler passes
        #[arg(long, value_name = "FILE")]
        environment: Option<PathBuf>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Let this machine's own scheduler tick: once, and the nights happen
    ///
    /// Shows the files and the steps and does nothing; --apply does it, --remove undoes it to the byte.
    /// There is one timer a user, for all projects: a second project adds only its minutes, and removing
    /// one leaves the timer to the others.
    #[command(
        after_help = "Example: runner setup --at 02:30 --apply && runner doctor --as-scheduler"
    )]
    Setup(SetupArgs),
    /// Check what keeps the nights from happening; each finding comes with the command that fixes
    /// it
    ///
    /// Exit code 1 when something is wrong.
    #[command(after_help = "Example: runner doctor --json | jq -r '.findings[].hint'")]
    Doctor {
        /// Look from where the host's scheduler stands: in its own near-empty environment and what was
        /// frozen
        #[arg(long)]
        as_scheduler: bool,
        /// We are there already
        #[arg(long, hide = true)]
        there: bool,
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
        /// How long live runs may continue when the daemon is asked to end [default: `drain` in the
        /// table `[daemon]` of the user's configuration file, or 30s]
        #[arg(long, value_name = "DURATION")]
        drain: Option<String>,
    },
    /// The process of one run; started by the other commands
    #[command(hide = true)]
    Execute {
        /// The run
        run: String,
    },
    /// List runs, or look at one
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner runs --job dream --limit 5"
    )]
    Runs {
        /// The subcommand [default: the list]
        #[command(subcommand)]
        command: Option<RunsCommand>,
        /// Only this job's
        #[arg(long)]
        job: Option<String>,
        /// List the runs of all projects
        #[arg(long)]
        all: bool,
        /// At most so many; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the current state: last night, next due, failures, and what runs, waits and is paused
    #[command(after_help = "Example: runner status --watch")]
    Status {
        /// Keep looking: drawn anew on a terminal, elsewhere printed again when something changed
        #[arg(long)]
        watch: bool,
        /// Print the JSON schema of what --json prints
        #[arg(long, conflicts_with_all = ["watch", "json"])]
        schema: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// All projects, or one that moved or is to be forgotten
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
    /// It is made again from the database and the night's artifacts, in whichever form.
    #[command(after_help = "Example: runner report --night 2026-11-21 --open")]
    Report(super::report::ReportArgs),
    /// Show what may still be spent and what was spent, or grant an extra once [default: show]
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner budget --json | jq '.budgets[] | {label, left}'"
    )]
    Budget {
        #[command(subcommand)]
        command: Option<BudgetCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    /// List jobs, show one, or reset one whose cause of failure is fixed [default: list]
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner jobs --json | jq -r '.[] | select(.failures > 0) | .job'"
    )]
    Jobs {
        #[command(subcommand)]
        command: Option<JobsCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    /// When jobs are due: the next scheduled times, in words, or what a stretch of time would bring
    #[command(after_help = "Example: runner schedule next dream")]
    Schedule {
        #[command(subcommand)]
        command: ScheduleCommand,
    },
    /// The settings: look at them with their sources, check them, change one
    #[command(after_help = "Example: runner config show --origin")]
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// The database: check it, copy it, put a copy in its place, prune what is old
    #[command(after_help = "Example: runner db check")]
    Db {
        #[command(subcommand)]
        command: DbCommand,
    },
    /// The dream pass over changed ideas, and the review of what it proposes
    #[command(after_help = "Example: runner dream run --dry-run")]
    Dream {
        #[command(subcommand)]
        command: DreamCommand,
    },
    /// The journal: what was dreamt between the runs, what came of it, and why an entry is missing
    #[command(after_help = "Example: runner journal --json | jq '.items[0]'")]
    Journal {
        /// The subcommand [default: show the journal]
        #[command(subcommand)]
        command: Option<JournalCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    /// The hooks that an agent's program calls by itself
    #[command(after_help = "Example: runner hook post-tool-use < payload.json")]
    Hook {
        /// Which hook
        #[command(subcommand)]
        command: HookCommand,
    },
    /// The board of tasks: look at it, apply the newest dream's verdicts, pick, add, finish
    #[command(after_help = "Example: runner board show")]
    Board {
        #[command(subcommand)]
        command: BoardCommand,
    },
    /// The cycle of an agent: its states, where it stands, one manual step
    #[command(after_help = "Example: runner lifecycle show")]
    Lifecycle {
        #[command(subcommand)]
        command: LifecycleCommand,
    },
    /// List the backends, or check whether one is ready
    #[command(after_help = "Example: runner backends check claude")]
    Backends {
        #[command(subcommand)]
        command: BackendsCommand,
    },
    /// Print a script that completes command lines, to be loaded by a shell
    #[command(
        after_help = "Example: runner completions bash > ~/.local/share/bash-completion/completions/runner"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual, one page a command, into a folder
    ///
    /// A page that is there already is replaced when this command wrote it; any other file is left
    /// alone, and then nothing is written at all.
    #[command(after_help = "Example: runner man ~/.local/share/man/man1 && man runner-night")]
    Man {
        /// The folder; it is made when it is not there
        #[arg(value_name = "DIR")]
        into: PathBuf,
    },
    /// List the alerts that were sent and whether they arrived; try a channel, silence one alert
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner alerts --json | jq -r '.[].why'"
    )]
    Alerts {
        /// The subcommand [default: list]
        #[command(subcommand)]
        command: Option<AlertsCommand>,
        #[command(flatten)]
        listing: Listing,
    },
    /// The process that delivers alerts; started by ticks
    #[command(name = "__deliver", hide = true)]
    Deliver {
        /// Also tell of a good tick
        #[arg(long)]
        beat: bool,
    },
    /// The local curator: a model that tidies notes by day, from a queue of files
    #[command(
        after_help = "Example: runner curator enqueue --kind lint-wiki && runner curator work"
    )]
    Curator {
        #[command(subcommand)]
        command: CuratorCommand,
    },
    /// Go through a recorded run again, without its project and its model, and compare what it makes
    Replay(ReplayArgs),
    /// Whether something may be written: an agent's hook, and questions about paths
    #[command(after_help = "Example: runner guard leak dreams/state.json")]
    Guard {
        #[command(subcommand)]
        command: GuardCommand,
    },
    /// The night over the corpus below .agents: it learns, puts in order, measures, and proposes
    /// what to begin with
    #[command(after_help = "Example: runner overnight start --goal 'fewer flaky tests'")]
    Overnight {
        #[command(subcommand)]
        command: OvernightCommand,
    },
    /// The corpus below .agents, step by step: health, bench, promotion, order, brief, harvest
    #[command(after_help = "Example: runner corpus health")]
    Corpus {
        #[command(subcommand)]
        command: CorpusCommand,
    },
}

/// Looks at backends; asks no model.
#[derive(Debug, Subcommand)]
pub enum BackendsCommand {
    /// All of the project with their program, model and fallbacks
    #[command(after_help = "Example: runner backends list --json | jq -r '.[].name'")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Whether one could answer: program, version, login, folders; exit code 69, 77 or 78 if not
    #[command(after_help = "Example: runner backends check claude-haiku")]
    Check {
        /// Its name in runner.toml
        name: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what the tokens of each backend's model cost, and where each price comes from
    ///
    /// The prices come from runner's own dated list. The file `prices.json` beside your config.toml
    /// overrides it and is read as LiteLLM writes it (model_prices_and_context_window.json). The
    /// prices that config.toml sets override both. A model that is in none of them has no price:
    /// each request is charged the money reserved for it.
    #[command(after_help = "Example: runner backends prices --json | jq '.backends'")]
    Prices {
        #[command(flatten)]
        listing: Listing,
    },
}
