//! Defines the command line: the list of commands, the global flags and the program's help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{
    Arg, ArgAction, ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser,
    Subcommand,
};
use runner_engine::outcome::Exit;

use crate::ui::Ui;

/// Parses a command line. If the parser returns requested help or a usage error, prints it and
/// returns its exit code as the error.
pub fn parse(line: impl Iterator<Item = OsString>) -> Result<Args, Exit> {
    read(line).map_err(|error| {
        // A failure to print is ignored, because the reader may close the pipe at any time.
        let _closed = error.print();
        if error.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

/// Parses a command line without printing anything.
///
/// # Errors
/// Returns the parser's error, or the requested help or version.
pub fn read(line: impl Iterator<Item = OsString>) -> Result<Args, clap::Error> {
    let line: Vec<OsString> = line.collect();
    // Only the complete definition reports errors.
    let matches = match frequent(&line).and_then(|it| it.try_get_matches_from(&line).ok()) {
        Some(matches) => matches,
        None => program().try_get_matches_from(line)?,
    };
    let mut args = Args::from_arg_matches(&matches)?;
    args.json = prints_json(&matches);
    Ok(args)
}

/// A function that adds a command's arguments to its definition.
type Augment = fn(clap::Command) -> clap::Command;

/// The commands that other programs call often.
const FREQUENT: [(&str, Augment); 11] = [
    ("run", super::run::RunArgs::augment_args),
    ("enqueue", super::queue::EnqueueArgs::augment_args),
    ("tick", super::tick::TickArgs::augment_args),
    ("execute", super::execute::ExecuteArgs::augment_args),
    ("runs", super::runs::RunsArgs::augment_args),
    ("status", super::status::StatusArgs::augment_args),
    ("hook", super::hook::HookArgs::augment_args),
    ("guard", super::guard::GuardArgs::augment_args),
    ("lifecycle", super::lifecycle::LifecycleArgs::augment_args),
    ("curator", super::curator::CuratorArgs::augment_args),
    ("__deliver", super::alerts::DeliverArgs::augment_args),
];

/// Returns a definition of the command line with only the command that `line` calls, if it is one
/// of [`FREQUENT`]. Building the definition of all commands takes longer than running a short
/// command.
fn frequent(line: &[OsString]) -> Option<clap::Command> {
    let called = command_words(line.iter().skip(1).cloned()).next()?;
    let (name, augment) = FREQUENT.into_iter().find(|(name, _)| *name == called)?;
    let program = clap::Command::new("runner").version(env!("CARGO_PKG_VERSION"));
    let program = GlobalFlags::augment_args(program.propagate_version(true));
    let command = with_json(augment(clap::Command::new(name)), "");
    Some(program.subcommand_required(true).subcommand(command))
}

/// The short global flag whose value may be the next argument.
pub const SHORT_VALUED: char = 'C';
pub const LONG_VALUED: [&str; 2] = ["--dir", "--config"];

/// Returns the arguments that are neither flags nor the values of global flags.
pub fn command_words(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    let mut is_value = false;
    args.filter_map(move |arg| {
        let arg = arg.to_string_lossy().into_owned();
        if std::mem::take(&mut is_value) {
            return None;
        }
        is_value = match arg.starts_with('-') && !arg.starts_with("--") {
            // Several short flags may share a dash. Everything after the first `C` is its value.
            true => arg.find(SHORT_VALUED) == Some(arg.len() - 1),
            false => LONG_VALUED.contains(&arg.as_str()),
        };
        (!arg.starts_with('-')).then_some(arg)
    })
}

/// The commands to which [`program`] does not add `--json`, separated by `|`.
const WITHOUT_JSON: &str = "demo|daemon|serve|execute|config schema|config set|config unset|config edit|db path|\
    dream review|top|metrics|journal export|hook post-tool-use|hook session-start|hook prompt-submit|hook stop|\
    hook session-end|hook pre-compact|memory mcp|guard hook|completions|man|__deliver|\
    curator events ack|curator setup|overnight curator events ack|overnight curator setup|\
    overnight schema";

/// Returns the definition of the command line, with `--json` added to each command that supports
/// it.
pub fn program() -> clap::Command {
    Args::command().mut_subcommands(|command| with_json(command, "")).help_template(help_template())
}

/// The commands for everyday use, each with a short description.
const EVERYDAY: [(&str, &str); 10] = [
    ("init", "Make the current folder a project"),
    ("night", "Run every enabled job once, under one budget, and write one report"),
    ("report", "Print the report of the last night, or open it with --open"),
    ("dream", "Decide on the proposals of a dream pass: dream review"),
    ("status", "Show the last night, the next job, failures and budgets"),
    ("top", "Watch runs and logs, and decide on proposals, in a full-screen interface"),
    ("jobs", "List jobs, or add, run and reset one"),
    ("runs", "List runs, or show one with its reason and its log"),
    ("logs", "Print the log of a run, or of a job's last run"),
    ("setup", "Set up a timer, so that the nights run by themselves"),
];

/// The other commands, by topic.
const TOPICS: [(&str, &[&str]); 6] = [
    ("queue", &["run", "enqueue", "cancel", "retry", "pause", "resume"]),
    #[cfg(not(feature = "fleet"))]
    ("schedule", &["schedule", "tick", "daemon", "serve", "doctor", "alerts", "metrics"]),
    #[cfg(feature = "fleet")]
    ("schedule", &["schedule", "tick", "daemon", "serve", "doctor", "alerts", "metrics", "fleet"]),
    ("settings", &["config", "trust", "budget", "backends"]),
    (
        "agents",
        &[
            "lifecycle",
            "board",
            "journal",
            "overnight",
            "corpus",
            "curator",
            "memory",
            "sessions",
            "hook",
            "guard",
        ],
    ),
    ("data", &["projects", "db", "replay"]),
    ("help", &["demo", "completions", "man", "help"]),
];

/// Returns the layout of the program's help, which fits on one screen.
fn help_template() -> String {
    let mut text =
        "{about-with-newline}\n{usage-heading} {usage}\n\nEveryday commands:\n".to_owned();
    for (name, about) in EVERYDAY {
        text.push_str(&format!("  {name:<9} {about}\n"));
    }
    text.push_str("\nMore commands (each has --help):\n");
    for (topic, names) in TOPICS {
        text.push_str(&format!("  {:<9} {}\n", format!("{topic}:"), names.join(", ")));
    }
    text + "\nOptions:\n{options}{after-help}"
}

fn with_json(command: clap::Command, above: &str) -> clap::Command {
    let path = format!("{above}{}", command.get_name());
    let command = command.mut_subcommands(|inner| with_json(inner, &format!("{path} ")));
    let has_one = command.get_arguments().any(|arg| arg.get_id() == "json");
    if has_one
        || command.is_subcommand_required_set()
        || WITHOUT_JSON.split('|').any(|it| it == path)
    {
        return command;
    }
    let help = "Print JSON on standard output";
    command.arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help(help))
}

/// Returns whether `--json` is set for a command or one of its subcommands.
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
    #[command(flatten)]
    pub flags: GlobalFlags,
    /// Whether the command's `--json` flag is set, in which case the result is printed as JSON.
    #[arg(skip)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

// The flags of all commands. A documentation comment would become the description of the program.
#[derive(Debug, clap::Args)]
pub struct GlobalFlags {
    /// The project to work on: any folder inside it [default: the current folder]
    // The id must differ from the ids of all other arguments, because clap finds a global argument
    // by its id in every command.
    #[arg(id = "project-folder", short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Override a setting from any file for this command and the runs that it starts (may be
    /// repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// Print more (twice: even more) on standard error and in the run's log
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Init(super::init::InitArgs),
    Demo(super::demo::DemoArgs),
    Night(super::night::NightArgs),
    Run(super::run::RunArgs),
    Enqueue(super::queue::EnqueueArgs),
    Cancel(super::queue::CancelArgs),
    Retry(super::queue::RetryArgs),
    Pause(super::pause::PauseArgs),
    Resume(super::pause::ResumeArgs),
    Tick(super::tick::TickArgs),
    Setup(super::setup::SetupArgs),
    Doctor(super::doctor::DoctorArgs),
    Daemon(super::daemon::DaemonArgs),
    #[command(hide = true)]
    Execute(super::execute::ExecuteArgs),
    Runs(super::runs::RunsArgs),
    Logs(super::runs::LogsArgs),
    Status(super::status::StatusArgs),
    Projects(super::projects::ProjectsArgs),
    Report(super::report::ReportArgs),
    Budget(super::budget::BudgetArgs),
    Jobs(super::jobs::JobsArgs),
    Schedule(super::schedule::ScheduleArgs),
    Serve(super::serve::ServeArgs),
    Config(super::config::ConfigArgs),
    Trust(super::trust::TrustArgs),
    Db(super::db::DbArgs),
    Dream(super::dream::DreamArgs),
    Journal(super::journal::JournalArgs),
    Hook(super::hook::HookArgs),
    Board(super::board::BoardArgs),
    Lifecycle(super::lifecycle::LifecycleArgs),
    Backends(super::backends::BackendsArgs),
    Completions(super::manual::CompletionsArgs),
    Man(super::manual::ManArgs),
    Alerts(super::alerts::AlertsArgs),
    #[command(name = "__deliver", hide = true)]
    Deliver(super::alerts::DeliverArgs),
    Curator(super::curator::CuratorArgs),
    Sessions(super::sessions::SessionsArgs),
    Replay(super::replay::ReplayArgs),
    Guard(super::guard::GuardArgs),
    Overnight(super::overnight::OvernightArgs),
    Corpus(super::corpus::CorpusArgs),
    Memory(super::memory::MemoryArgs),
    Top(super::top::TopArgs),
    Metrics(super::metrics::MetricsArgs),
    #[cfg(feature = "fleet")]
    Fleet(super::fleet::FleetArgs),
    /// Not part of this build: share jobs with other machines
    #[cfg(not(feature = "fleet"))]
    #[command(hide = true, disable_help_flag = true)]
    Fleet(super::AbsentArgs),
}

impl Args {
    /// Returns the output options from the flags.
    pub fn ui(&self) -> Ui {
        Ui { json: self.json, quiet: self.flags.quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_definitions_parse_frequent_commands_alike() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in [
            "runner run dream",
            "runner -C /x --config a=b run dream --json",
            "runner enqueue dream --json -v",
            "runner --quiet tick",
            "runner execute 01KT916M80YX66V7MQHZKV3FS1",
            "runner runs show x --json",
            "runner -q status --json",
            "runner hook post-tool-use",
            "runner guard hook",
            "runner lifecycle orient --json",
            "runner curator status --json",
        ] {
            let line = words(line);
            let narrow = frequent(&line).unwrap().try_get_matches_from(&line).unwrap();
            let whole = program().try_get_matches_from(&line).unwrap();
            let args =
                |matches: &ArgMatches| format!("{:?}", Args::from_arg_matches(matches).unwrap());
            assert_eq!(args(&narrow), args(&whole), "{line:?}");
            assert_eq!(prints_json(&narrow), prints_json(&whole), "{line:?}");
        }
        for line in ["runner", "runner --version", "runner init", "runner help status"] {
            assert!(frequent(&words(line)).is_none(), "{line}");
        }
        // The one-command definition rejects these lines, so the complete definition parses them
        // and reports their errors.
        for line in ["runner status --bogus", "runner status --help", "runner --version status"] {
            let line = words(line);
            assert!(frequent(&line).unwrap().try_get_matches_from(&line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn help_names_each_command_once_on_one_screen() {
        let mut named: Vec<&str> = EVERYDAY.iter().map(|(name, _)| *name).collect();
        named.extend(TOPICS.iter().flat_map(|(_, names)| names.iter().copied()));
        named.retain(|name| *name != "help");
        let mut program = program();
        let visible = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut there: Vec<String> = visible.map(|it| it.get_name().to_owned()).collect();
        named.sort_unstable();
        there.sort_unstable();
        assert_eq!(named, there);
        let help = program.render_help().to_string();
        assert!(help.lines().count() <= 42, "{help}");
    }
}
