//! The commands and flags of `runner curator`.

use clap::{Args, Subcommand, ValueEnum};

use super::Listing;

/// Controls the local curator.
#[derive(Debug, Subcommand)]
pub enum CuratorCommand {
    /// Show the state of the worker, queue, notes, engine and model; answers within two seconds
    #[command(after_help = "Example: runner curator status --json | jq '.health.state'")]
    Status {
        /// Print the JSON schema of what --json prints
        #[arg(long, conflicts_with = "json")]
        schema: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Check what keeps the curator from working; each finding comes with the command that fixes it
    ///
    /// Exit code 1 when something is wrong.
    #[command(after_help = "Example: runner curator diagnose --json | jq -r '.[].hint'")]
    Diagnose {
        #[command(flatten)]
        listing: Listing,
    },
    /// Put a job file into the queue
    #[command(
        after_help = "Example: runner curator enqueue --kind ingest-claude-session --source ~/.claude/projects/-p/s.jsonl"
    )]
    Enqueue {
        /// The kind of the job: lint-wiki, dream-seed or ingest-claude-session
        #[arg(long)]
        kind: String,
        /// The file that the job is about: a note, a transcript
        #[arg(long, value_name = "PATH")]
        source: Option<std::path::PathBuf>,
        /// The first line of the source, from 1
        #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
        chunk_start: Option<u64>,
        /// The last line of the source
        #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
        chunk_end: Option<u64>,
        /// The priority; jobs with a higher priority start first
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Process the queue with runs of the job of kind curator, until it is empty or the hourly cap
    /// is reached
    #[command(after_help = "Example: runner curator work --once")]
    Work {
        /// Make only one run
        #[arg(long, conflicts_with = "watch")]
        once: bool,
        /// Keep working: check the queue when a file arrives, and every half minute
        #[arg(long)]
        watch: bool,
        /// The job of kind curator to run, if there are several [default: curator, or the first]
        #[arg(long, value_name = "JOB")]
        job: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Fold pending log entries into the audit log, and remove what is older than curator.keep
    #[command(after_help = "Example: runner curator compact --dry-run")]
    Compact {
        #[command(flatten)]
        how: ShowOrApply,
        #[command(flatten)]
        listing: Listing,
    },
    /// Raise an event that needs attention
    #[command(
        after_help = "Example: runner curator event --source ci --severity warn --desired-action 'look at the flaky test' --escalation-target claude --budget 2"
    )]
    Event {
        /// The source that raises the event
        #[arg(long)]
        source: String,
        /// The severity of the event
        #[arg(long)]
        severity: SeverityArg,
        /// The action that should be taken
        #[arg(long, value_name = "WORDS")]
        desired_action: String,
        /// The name of the backend, or the person, that should take the action
        #[arg(long, value_name = "WHO")]
        escalation_target: String,
        /// Maximum number of model calls that the event may ever cause
        #[arg(long, value_name = "N")]
        budget: u32,
        /// A note on the event
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// List events, show one, end one, or hand one to a model [default: the list]
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner curator events --json | jq '.[] | {id, left}'"
    )]
    Events {
        #[command(subcommand)]
        command: Option<EventsCommand>,
        /// Also list events that are over
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the settings that make the curator run; --apply writes them into runner.toml
    #[command(after_help = "Example: runner curator setup --apply && runner curator diagnose")]
    Setup {
        /// Write the settings
        #[arg(long)]
        apply: bool,
    },
}

/// Selects whether a plan is shown or carried out.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ShowOrApply {
    /// Show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Make the changes
    #[arg(long)]
    pub apply: bool,
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the words say it")]
pub enum SeverityArg {
    Info,
    Warn,
    High,
    Critical,
}

/// Shows, ends or escalates one event.
#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// Show one event and the rest of its budget
    #[command(after_help = "Example: runner curator events show 0123abcd")]
    Show {
        /// The event's id, or an unambiguous beginning or end of it
        event: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Mark an event as over; nothing more of its budget is spent
    #[command(after_help = "Example: runner curator events ack 0123abcd --note 'fixed'")]
    Ack {
        /// The event's id, or an unambiguous beginning or end of it
        event: String,
        /// Why
        #[arg(long)]
        note: Option<String>,
    },
    /// Hand an event to its escalation target, with one run that uses one call of its budget
    #[command(after_help = "Example: runner curator events escalate 0123abcd")]
    Escalate {
        /// The event's id, or an unambiguous beginning or end of it
        event: String,
        #[command(flatten)]
        listing: Listing,
    },
}
