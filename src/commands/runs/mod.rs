//! `runner runs`: lists runs, shows one run, and prints its log.

pub(super) mod details;
pub(super) mod list;
mod logs;
mod spending;
mod tail;

pub use logs::LogsArgs;

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_engine::awake::SleepInhibition;
use runner_engine::ids::RunId;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{RunFilter, RunRow, RunState, Store};
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::env::Env;
use crate::project;
use crate::ui::show::List;
use crate::ui::{Failure, show};

/// List runs, or show one
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner runs --job dream --limit 5"
)]
pub struct RunsArgs {
    /// The subcommand; without one, runs are listed.
    #[command(subcommand)]
    command: Option<RunsCommand>,
    #[command(flatten)]
    list: list::ListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum RunsCommand {
    Show(details::ShowArgs),
    #[command(after_help = "Example: runner runs logs 01KA5V7Q4B")]
    Logs(LogsArgs),
}

impl RunsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            None => self.list.run(cli),
            Some(RunsCommand::Show(args)) => args.run(cli),
            Some(RunsCommand::Logs(args)) => args.run(cli),
        }
    }
}

/// A run's data, as every command prints it with `--json`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RunRecord {
    pub(super) id: RunId,
    pub(super) job: String,
    kind: String,
    project: String,
    state: &'static str,
    attempt: u32,
    manual: bool,
    origin: &'static str,
    priority: i32,
    settings: BTreeMap<String, String>,
    due: Timestamp,
    ready_at: Option<Timestamp>,
    waits_for: Option<RunId>,
    requested: Timestamp,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    asked_to_end: Option<String>,
    #[serde(flatten)]
    outcome: Option<Outcome>,
    model_calls: u32,
    headline: String,
    lines: Vec<String>,
    facts: serde_json::Map<String, serde_json::Value>,
    artifacts: Vec<String>,
    backend: String,
    containment: String,
    /// The result of the request to keep the machine awake; null if no request was made.
    awake: Option<SleepInhibition>,
}

impl RunRecord {
    pub fn of(row: &RunRow) -> Self {
        Self {
            id: row.id.clone(),
            job: row.job_name.clone(),
            kind: row.kind.clone(),
            project: row.project.to_string(),
            state: row.state.name(),
            attempt: row.attempt,
            manual: row.manual(),
            origin: row.origin.as_str(),
            priority: row.priority,
            settings: row.settings.iter().cloned().collect(),
            due: row.due,
            ready_at: row.ready_at(),
            waits_for: row.waits_for().map(|(run, _)| run.clone()),
            requested: row.requested,
            started: row.started(),
            finished: row.finished(),
            asked_to_end: row.cancel().map(str::to_owned),
            outcome: row.outcome().cloned(),
            model_calls: row.model_calls,
            headline: row.summary.headline.clone(),
            lines: row.summary.lines.clone(),
            facts: row.summary.facts.clone(),
            artifacts: row.summary.artifacts.clone(),
            backend: row.summary.backend.clone(),
            containment: row.summary.containment.clone(),
            awake: row.summary.awake.clone(),
        }
    }
}

/// Returns the name of a run's state, or of its outcome if the run is over.
pub fn state_name(row: &RunRow) -> &'static str {
    match (row.outcome(), &row.state) {
        (Some(outcome), _) => outcome.as_str(),
        (None, RunState::Running { .. }) if row.cancel().is_some() => "ending",
        (None, RunState::Running { .. }) => "running",
        (None, RunState::Queued { .. }) => "queued",
        (None, _) => "requested",
    }
}

/// Describes why a queued run is waiting.
pub fn waits(row: &RunRow, now: Timestamp) -> String {
    let mut text = match (row.waits_for(), row.ready_at()) {
        (Some((run, job)), at) => {
            let at = at.filter(|at| *at > now);
            let not_before = at.map(|at| format!(", not before {}", show::format_time(at)));
            format!("waits for {job} to succeed (run {run}){}", not_before.unwrap_or_default())
        }
        (None, Some(at)) if at > now => format!("waits until {}", show::format_time(at)),
        (None, _) => "ready, waiting its turn".to_owned(),
    };
    if row.attempt > 1 {
        text.push_str(&format!("; attempt {}", row.attempt));
    }
    text
}

/// The rows of `runner runs`, and the message to print if there are none.
pub(super) struct RunRows {
    pub(super) list: List<'static>,
    pub(super) nothing: &'static str,
}

/// Returns the rows for the last `limit` runs of the current project, or of all projects if the
/// current folder is not in one.
pub(super) fn latest(cli: &Cli<'_>, limit: u32) -> Result<RunRows, Failure> {
    let all = !cli.folder_is_named && project::find(cli.here).is_err();
    let listed = list::ListArgs::latest(all, limit).collect(cli)?;
    Ok(RunRows { list: listed.list(), nothing: listed.nothing })
}

/// Returns the output of `runner runs show`, with one line for each row.
pub(super) fn details(cli: &Cli<'_>, run: &str) -> Result<String, Failure> {
    Ok(details::RunDetails::collect(cli, run)?.text(show::unwrapped_table))
}

/// Opens the database for reading and returns it with the run whose id begins with `run`.
fn open(home: &Env, run: &str) -> Result<(Store, RunRow), Failure> {
    let nothing = || Failure::data(format!("there is no run {run}")).hint("runner runs");
    let store = home.store_to_read()?.ok_or_else(nothing)?;
    let row = find(&store, run)?;
    Ok((store, row))
}

/// Returns the run whose id begins with `run`, or an error if there is not exactly one.
pub fn find(store: &Store, run: &str) -> Result<RunRow, Failure> {
    let nothing = || Failure::data(format!("there is no run {run}")).hint("runner runs");
    if let Ok(id) = run.parse::<RunId>() {
        return Ok(store.run(&id)?);
    }
    let wanted = run.trim().to_ascii_uppercase();
    if wanted.is_empty() {
        // An empty id often comes from an empty variable in a script, so it matches no run.
        return Err(
            Failure::usage("expected a run id or the beginning of a run id").hint("runner runs")
        );
    }
    let filter = RunFilter { prefix: Some(wanted), limit: 9, ..RunFilter::default() };
    let mut matches = store.runs(&filter)?;
    match matches.len() {
        1 => Ok(matches.remove(0)),
        0 => Err(nothing()),
        n => {
            let many = if n == 9 { "9 or more runs" } else { &format!("{n} runs") };
            let ids: Vec<String> =
                matches.iter().map(|row| format!("{} ({})", row.id, row.job_name)).collect();
            let ids = runner_text::some_of(ids.iter().map(String::as_str));
            Err(Failure::data(format!("the ids of {many} begin with {run}: {ids}"))
                .hint("give more characters of the id"))
        }
    }
}
