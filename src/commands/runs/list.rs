//! `runner runs`: lists the runs of a project, or of all projects, newest first.

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{JobId, Project, RunFilter, RunRow, RunState, SHORTEST_TEXT, Store};
use runner_engine::zones;
use runner_jobs::dream::review;
use runner_jobs::lifecycle::board;
use schemars::JsonSchema;
use serde::Serialize;

use super::{RunRecord, state_name, waits};
use crate::commands::{Cli, lifecycle};
use crate::project::{self, LoadedProject};
use crate::ui::show::{List, Tone};
use crate::ui::when::parse_past_time;
use crate::ui::{Failure, Ui, View, show};

/// The outcomes and states that `--outcome` accepts.
const OUTCOMES: [&str; 11] = [
    "queued",
    "requested",
    "running",
    "succeeded",
    "degraded",
    "failed",
    "timed-out",
    "cancelled",
    "lost",
    "skipped",
    "deferred",
];

/// Returns the string if the database can search for it: the string must have at least
/// [`SHORTEST_TEXT`] characters and contain no null bytes.
fn searched_text(text: &str) -> Result<String, &'static str> {
    if text.contains('\0') {
        return Err("the text must not contain null bytes");
    }
    match text.chars().count() >= SHORTEST_TEXT {
        true => Ok(text.to_owned()),
        false => Err("the text must have at least 3 characters"),
    }
}

/// Selects the runs that are listed.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ListArgs {
    /// List only the runs of this job
    #[arg(long)]
    job: Option<String>,
    /// List only the runs that failed, timed out or were lost
    #[arg(long)]
    failed: bool,
    /// List only the runs with this outcome, such as timed-out, or in this state, such as running
    #[arg(long, conflicts_with = "failed", value_parser = OUTCOMES)]
    outcome: Option<String>,
    /// List only the finished runs whose job, headline or reason contains this string of at least 3
    /// characters
    #[arg(long, value_name = "TEXT", value_parser = searched_text)]
    search: Option<String>,
    /// List only the runs recorded before this run, to continue a long list
    #[arg(long, value_name = "RUN")]
    before: Option<RunId>,
    /// List only the runs requested since this time: 7d, 12h, 2026-11-22 or "2026-11-22 02:30"
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List the runs of all projects
    #[arg(long)]
    all: bool,
    /// Maximum number of runs; 0 means all
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct RunList {
    runs: Vec<ListedRun>,
    /// The message to print if there are no runs.
    #[serde(skip)]
    pub(super) nothing: &'static str,
    /// The problem with the project's files, if there is one.
    #[serde(skip)]
    trouble: Option<String>,
}

/// A run, with the texts for its table row.
#[derive(Debug, JsonSchema, Serialize)]
struct ListedRun {
    #[serde(flatten)]
    run: RunRecord,
    #[serde(skip)]
    state: &'static str,
    #[serde(skip)]
    text: String,
}

impl View for RunList {
    fn print(&self, _ui: Ui) {
        match self.runs.is_empty() {
            true => show::out(self.nothing),
            false => self.list().print(),
        }
    }
}

impl RunList {
    /// Returns the runs as a table.
    pub(super) fn list(&self) -> List<'static> {
        let rows = self.runs.iter().map(|ListedRun { run, state, text }| {
            let requested = show::format_minute(run.requested);
            let cells = show::row([run.id.as_str(), &run.job, state, &requested, text]);
            (Tone::of(run.outcome.as_ref()), cells)
        });
        let header = &["RUN", "JOB", "STATE", "REQUESTED", "RESULT"];
        List { header, toned: 2, rows: rows.collect() }
    }
}

impl ListArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let list = self.collect(cli)?;
        if let Some(trouble) = &list.trouble {
            show::complain(trouble);
        }
        cli.ui.show(&list);
        Ok(Exit::Done)
    }

    /// Selects the last `limit` runs of the current project, or of all projects if `all` is set.
    pub(super) fn latest(all: bool, limit: u32) -> Self {
        Self { all, limit, ..Self::default() }
    }

    /// Reads the runs selected by the arguments.
    pub(super) fn collect(&self, cli: &Cli<'_>) -> Result<RunList, Failure> {
        let store = cli.env.store_to_read()?;
        if store.is_none() && !self.all {
            // There is nothing to list, but a missing project is still an error.
            LoadedProject::load(cli.env, cli.here)?;
        }
        let nothing = "no runs yet; `runner night` starts the first\n";
        let mut list = RunList { runs: Vec::new(), nothing, trouble: None };
        if self.failed || self.since.is_some() || self.outcome.is_some() || self.search.is_some() {
            list.nothing = "no such runs\n";
        }
        if let Some(store) = store {
            // Invalid project files are allowed here, because the runs are in the database.
            let kept = match self.all {
                true => None,
                false => Some(project::kept(cli.env, &store, cli.here)?),
            };
            list.trouble = kept.as_ref().and_then(|kept| Some(kept.trouble.as_ref()?.to_string()));
            let project = kept.map(|kept| kept.row);
            match self.job_id(&store, project.as_ref())? {
                ListedJob::Unused(nothing) => list.nothing = nothing,
                ListedJob::Known(job) => {
                    let now = cli.env.wall()?;
                    let filter = RunFilter {
                        failed: self.failed,
                        outcome: self.outcome.clone(),
                        text: self.search.clone(),
                        before: self.before.clone(),
                        since: self.since(now)?,
                        project: project.map(|project| project.id),
                        job,
                        limit: self.limit,
                        // Decisions on proposals have a separate list. They appear here only if
                        // the command names their job.
                        but_kind: Some(review::KIND),
                        ..RunFilter::default()
                    };
                    list.runs =
                        store.runs(&filter)?.iter().map(|row| ListedRun::of(row, now)).collect();
                }
            }
        }
        Ok(list)
    }

    /// Returns the time given by `--since`.
    fn since(&self, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        let zone = zones::system();
        let parse = |text: &String| {
            parse_past_time(text, &zone, now)
                .map_err(|why| Failure::usage(format!("--since {why}")))
        };
        self.since.as_ref().map(parse).transpose()
    }

    fn job_id(&self, store: &Store, project: Option<&Project>) -> Result<ListedJob, Failure> {
        let Some(name) = self.job.as_deref() else { return Ok(ListedJob::Known(None)) };
        let Some(project) = project else {
            return Err(Failure::usage("--job needs one project; leave out --all"));
        };
        let manual = [review::JOB, board::JOB, lifecycle::GOTO].contains(&name);
        if manual && !store.jobs(&project.id)?.iter().any(|job| job.name == name) {
            return Ok(ListedJob::Unused(match name {
                review::JOB => "no decisions yet; `runner dream list` lists the proposals\n",
                _ => "nothing has been done manually yet\n",
            }));
        }
        Ok(ListedJob::Known(Some(project::job_of(store, &project.id, name)?.id)))
    }
}

/// The job whose runs are listed.
enum ListedJob {
    /// The job of a manual command that has never been used, with the message to print.
    Unused(&'static str),
    /// A job in the database, or `None` for all jobs.
    Known(Option<JobId>),
}

impl ListedRun {
    fn of(row: &RunRow, now: Timestamp) -> Self {
        let text = match row.outcome().and_then(Outcome::why) {
            Some(why) => why.to_owned(),
            None if matches!(row.state, RunState::Queued { .. }) => waits(row, now),
            None => row.summary.headline.clone(),
        };
        Self { run: RunRecord::of(row), state: state_name(row), text }
    }
}
