//! The `runner runs` commands: list runs, show one run, and print its log.

pub mod logs;
mod spending;

use runner_text::counted;
use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::admission::stopped;
use runner_engine::awake::SleepInhibition;
use runner_engine::ids::RunId;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{RunFilter, RunRow, RunState, Store};
use runner_jobs::dream::review;
use runner_jobs::failmark;
use runner_jobs::lifecycle::board;
use runner_jobs::telemetry::Tally;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::env::Env;
use crate::project::{self, LoadedProject};

/// The JSON form of a run.
#[derive(Debug, Serialize)]
pub struct RunJson {
    id: RunId,
    job: String,
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
    /// The result of the request to keep the machine awake; null if there was no request.
    awake: Option<SleepInhibition>,
}

impl RunJson {
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

/// The JSON form of one run, with its usage.
#[derive(Debug, Serialize)]
struct ShowJson {
    #[serde(flatten)]
    run: RunJson,
    /// The counts that the run's backends reported while they answered.
    #[serde(rename = "told")]
    reported: Option<Tally>,
    #[serde(flatten)]
    spending: spending::RunSpending,
}

/// Lists the runs, newest first.
pub fn list(
    home: &Env,
    here: &Path,
    job: Option<&str>,
    all: bool,
    limit: u32,
    listing: Listing,
) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let store = home.store_to_read()?;
    if store.is_none() && !all {
        // There is nothing to list, but a missing project is still an error.
        LoadedProject::load(home, here)?;
    }
    if let Some(store) = store {
        // The database knows the runs even if the project's files are broken.
        let project = match all {
            true => None,
            false => Some(project::kept(home, &store, here)?),
        };
        if let Some(trouble) = project.as_ref().and_then(|kept| kept.trouble.as_ref()) {
            show::complain(&trouble.to_string());
        }
        let project = project.map(|kept| kept.row);
        let job = match (&project, job) {
            (Some(project), Some(name)) => {
                let acts = [review::JOB, board::JOB, super::lifecycle::GOTO];
                let undecided = acts.contains(&name)
                    && !store.jobs(&project.id)?.iter().any(|job| job.name == name);
                if undecided {
                    if listing.json {
                        show::json(&rows.iter().map(RunJson::of).collect::<Vec<_>>());
                    } else {
                        show::out(match name {
                            review::JOB => {
                                "nothing was decided yet; `runner dream list` has what is proposed\n"
                            }
                            _ => "nothing was done manually yet\n",
                        });
                    }
                    return Ok(Exit::Done);
                }
                Some(project::job_of(&store, &project.id, name)?.id)
            }
            (None, Some(_)) => {
                return Err(Failure::usage("--job needs one project; leave out --all"));
            }
            (_, None) => None,
        };
        let filter = RunFilter {
            project: project.map(|project| project.id),
            job,
            limit,
            // Manual decisions have a separate list; here they appear only if the command names
            // their job.
            but_kind: Some(review::KIND),
            ..RunFilter::default()
        };
        rows = store.runs(&filter)?;
    }
    if listing.json {
        show::json(&rows.iter().map(RunJson::of).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        show::out("no runs yet; `runner night` makes the first\n");
        return Ok(Exit::Done);
    }
    let now = home.wall()?;
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let what = match row.outcome().and_then(Outcome::why) {
                Some(why) => why.to_owned(),
                None if matches!(row.state, RunState::Queued { .. }) => waits(row, now),
                None => row.summary.headline.clone(),
            };
            vec![
                row.id.to_string(),
                row.job_name.clone(),
                state_name(row).to_owned(),
                show::format_time(row.requested),
                what,
            ]
        })
        .collect();
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

/// Returns the name of a run's state.
pub fn state_name(row: &RunRow) -> &'static str {
    match (row.outcome(), &row.state) {
        (Some(outcome), _) => outcome.as_str(),
        (None, RunState::Running { .. }) if row.cancel().is_some() => "ending",
        (None, RunState::Running { .. }) => "running",
        (None, RunState::Queued { .. }) => "queued",
        (None, _) => "requested",
    }
}

/// Describes the reason why a queued run waits, as far as the run's row contains it.
pub fn waits(row: &RunRow, now: Timestamp) -> String {
    let mut text = match (row.waits_for(), row.ready_at()) {
        (Some((run, job)), at) => {
            let at = at.filter(|at| *at > now);
            let not_before = at.map(|at| format!(", not before {}", show::format_time(at)));
            format!("waits for {job} to succeed (run {run}){}", not_before.unwrap_or_default())
        }
        (None, Some(at)) if at > now => format!("waits until {}", show::format_time(at)),
        (None, _) => "ready, waits its turn".to_owned(),
    };
    if row.attempt > 1 {
        text.push_str(&format!("; attempt {}", row.attempt));
    }
    text
}

/// Prints all details of one run.
pub fn show(home: &Env, run: &str, listing: Listing) -> Result<Exit, Failure> {
    let (store, row) = open(home, run)?;
    if listing.json {
        show::json(&ShowJson {
            run: RunJson::of(&row),
            reported: Tally::of(&home.run_folder(row.id.as_str())),
            spending: spending::RunSpending::of(&store, &row)?,
        });
        return Ok(Exit::Done);
    }
    let mut lines = vec![
        pair("run", row.id.as_str()),
        pair("job", &format!("{} ({})", row.job_name, row.kind)),
        pair(
            "state",
            &row.outcome().map_or_else(|| state_name(&row).to_owned(), Outcome::to_string),
        ),
        pair("attempt", &row.attempt.to_string()),
        pair("due", &show::format_time(row.due)),
        pair("origin", row.origin.as_str()),
    ];
    if matches!(row.state, RunState::Queued { .. }) {
        lines.push(pair("queued", &waits(&row, home.wall()?)));
    }
    if row.priority != 0 {
        lines.push(pair("priority", &row.priority.to_string()));
    }
    for (key, value) in &row.settings {
        lines.push(pair("set", &format!("{key} = {value}")));
    }
    if let Some(why) = row.cancel().filter(|_| row.outcome().is_none()) {
        lines.push(pair("asked to end", why));
    }
    if let Some(at) = row.started() {
        lines.push(pair("started", &show::format_time(at)));
    }
    if let Some(at) = row.finished() {
        lines.push(pair("finished", &show::format_time(at)));
    }
    if let Some(owner) = row.owner() {
        lines.push(pair("process", &owner.to_string()));
    }
    lines.push(pair("model calls", &row.model_calls.to_string()));
    if row.started().is_some() {
        lines.extend(spending::RunSpending::of(&store, &row)?.lines());
    }
    let awake = row.summary.awake.as_ref().map(SleepInhibition::to_string);
    for (name, value) in [
        ("backend", &row.summary.backend),
        ("sandbox", &row.summary.containment),
        ("sleep", &awake.unwrap_or_default()),
    ] {
        if !value.is_empty() {
            lines.push(pair(name, value));
        }
    }
    if !row.summary.headline.is_empty() {
        lines.push(pair("headline", &row.summary.headline));
    }
    for line in &row.summary.lines {
        lines.push(pair("", line));
    }
    if let Some(tally) = Tally::of(&home.run_folder(row.id.as_str())) {
        lines.extend(tool_counts(&tally).iter().map(|(name, value)| pair(name, value)));
    }
    for path in &row.summary.artifacts {
        lines.push(pair("published", path));
    }
    if let (Some(job), Some(outcome)) = (&stopped_job(&store, &row)?, row.outcome())
        && outcome.class().is_some()
    {
        lines.push(pair(
            "to do",
            &format!("{}; then `runner jobs reset {job}`", failmark::hint(outcome)),
        ));
    }
    for event in store.events_of(&row.id)? {
        lines.push(pair(&event.kind, &event.detail));
    }
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

/// Formats the counts that the backends reported while they answered.
fn tool_counts(tally: &Tally) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let usage = &tally.usage;
    let mut used = format!(
        "{} in ({} cached), {} out",
        counted(usage.input_tokens, "token"),
        usage.cached_input_tokens,
        usage.output_tokens
    );
    if let Some(cost) = usage.cost_micros {
        used.push_str(&format!(", ${}.{:06}", cost / 1_000_000, cost % 1_000_000));
    }
    if tally.unstated > 0 {
        used.push_str(&format!("; {} of {} reported no usage", tally.unstated, tally.asked));
    }
    lines.push(("stated use", used));
    if !tally.tools.is_empty() {
        let tools = tally.tools.iter().map(|(name, count)| format!("{name} ×{count}"));
        let mut tools = tools.collect::<Vec<_>>().join(", ");
        if tally.tools_failed > 0 {
            tools.push_str(&format!("; {} failed", tally.tools_failed));
        }
        lines.push(("tools", tools));
    }
    lines
}

/// Returns the name of the run's job if the circuit breaker prevents its triggers from starting it.
fn stopped_job(store: &Store, row: &RunRow) -> Result<Option<String>, Failure> {
    Ok(stopped(store.streak(row.job)?).then(|| row.job_name.clone()))
}

fn pair(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), value.to_owned()]
}

/// Opens the database for reading and returns the run whose id begins with `run`.
fn open(home: &Env, run: &str) -> Result<(Store, RunRow), Failure> {
    let nothing = || Failure::data(format!("no run {run}")).hint("runner runs");
    let store = home.store_to_read()?.ok_or_else(nothing)?;
    let row = find(&store, run)?;
    Ok((store, row))
}

/// Returns the run whose id begins with `run`.
pub fn find(store: &Store, run: &str) -> Result<RunRow, Failure> {
    let nothing = || Failure::data(format!("no run {run}")).hint("runner runs");
    if let Ok(id) = run.parse::<RunId>() {
        return Ok(store.run(&id)?);
    }
    let wanted = run.trim().to_ascii_uppercase();
    if wanted.is_empty() {
        // An empty id often comes from an empty variable in a script, so it must not match the only
        // run.
        return Err(
            Failure::usage("expected the id of a run, or the beginning of one").hint("runner runs")
        );
    }
    let filter = RunFilter { prefix: Some(wanted), limit: 9, ..RunFilter::default() };
    let mut matches = store.runs(&filter)?;
    match matches.len() {
        1 => Ok(matches.remove(0)),
        0 => Err(nothing()),
        n => {
            let many = if n == 9 { "9 runs or more" } else { &format!("{n} runs") };
            let ids: Vec<String> =
                matches.iter().map(|row| format!("{} ({})", row.id, row.job_name)).collect();
            let ids = runner_text::some_of(ids.iter().map(String::as_str));
            Err(Failure::data(format!("{many} begin with {run}: {ids}"))
                .hint("give more characters of the id"))
        }
    }
}
