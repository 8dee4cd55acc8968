//! `runner curator`: its commands and flags.

use clap::{Args, Subcommand, ValueEnum};

use super::listing::Listing;

/// The local curator.
#[derive(Debug, Subcommand)]
pub enum CuratorCommand {
    /// How it stands: worker, queue, notes, engine and model; answers within two seconds
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
        /// lint-wiki, dream-seed or ingest-claude-session
        #[arg(long)]
        kind: String,
        /// The file that the job is about: a note, a transcript
        #[arg(long, value_name = "PATH")]
        source: Option<std::path::PathBuf>,
        /// The first line, from 1
        #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
        chunk_start: Option<u64>,
        /// The last line
        #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
        chunk_end: Option<u64>,
        /// Higher goes first
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Work off the queue: runs of the job of kind curator, until it is empty or the hour is full
    #[command(after_help = "Example: runner curator work --once")]
    Work {
        /// One run
        #[arg(long, conflicts_with = "watch")]
        once: bool,
        /// Keep working: look again whenever a file comes, and every half minute
        #[arg(long)]
        watch: bool,
        /// The job of kind curator that does it, where there are several [default: curator, or the first]
        #[arg(long, value_name = "JOB")]
        job: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Fold pending log entries into the audit log, and forget what is older than curator.keep
    #[command(after_help = "Example: runner curator compact --dry-run")]
    Compact {
        #[command(flatten)]
        how: ShowOrApply,
        #[command(flatten)]
        listing: Listing,
    },
    /// Raise an event that somebody should look at
    #[command(
        after_help = "Example: runner curator event --source ci --severity warn --desired-action 'look at the flaky test' --escalation-target claude --budget 2"
    )]
    Event {
        /// The source that raises the event
        #[arg(long)]
        source: String,
        /// How bad it is
        #[arg(long)]
        severity: SeverityArg,
        /// The action that should be taken
        #[arg(long, value_name = "WORDS")]
        desired_action: String,
        /// The name of the backend, or the person, that should take the action
        #[arg(long, value_name = "WHO")]
        escalation_target: String,
        /// The most model calls that may ever come of it
        #[arg(long, value_name = "N")]
        budget: u32,
        /// More words
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Look at events, end one, hand one to a model [default: the list]
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner curator events --json | jq '.[] | {id, left}'"
    )]
    Events {
        #[command(subcommand)]
        command: Option<EventsCommand>,
        /// Also those that are over
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the settings that make the curator run; --apply writes them into runner.toml
    #[command(after_help = "Example: runner curator setup --apply && runner curator diagnose")]
    Setup {
        /// Write them
        #[arg(long)]
        apply: bool,
    },
}

/// Shown or done: the same plan.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ShowOrApply {
    /// Show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Do it
    #[arg(long)]
    pub apply: bool,
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the words say it")]
pub enum SeverityArg {
    Info,
    Warn,
    High,
    Critical,
}

/// Works on one event.
#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// Show one with what is left of its budget
    #[command(after_help = "Example: runner curator events show 0123abcd")]
    Show {
        /// Its id, or an unambiguous beginning or end of it
        event: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say that it is over: nothing of its budget is spent any more
    #[command(after_help = "Example: runner curator events ack 0123abcd --note 'fixed'")]
    Ack {
        /// Its id, or an unambiguous beginning or end of it
        event: String,
        /// Why
        #[arg(long)]
        note: Option<String>,
    },
    /// Hand it to its escalation target: one run, one call of its budget
    #[command(after_help = "Example: runner curator events escalate 0123abcd")]
    Escalate {
        /// Its id, or an unambiguous beginning or end of it
        event: String,
        #[command(flatten)]
        listing: Listing,
    },
}
