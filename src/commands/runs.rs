//! `runner runs`: the list, one run, its log.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::ledger::{Filter, Ledger, RunRow, RunState};
use runner_engine::outcome::{Exit, Outcome};
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::{log, show};
use crate::daemon::client::{Client, Stream};
use crate::follow::{self, Followed};
use crate::home::Home;
use crate::project::Here;

/// A run as scripts see it.
#[derive(Debug, Serialize)]
pub struct RunJson {
    id: RunId,
    job: String,
    kind: String,
    project: String,
    state: RunState,
    attempt: u32,
    by_hand: bool,
    origin: &'static str,
    priority: i32,
    due: Timestamp,
    ready_at: Option<Timestamp>,
    waits_for: Option<OccurrenceId>,
    requested: Timestamp,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    #[serde(flatten)]
    outcome: Option<Outcome>,
    model_calls: u32,
    headline: String,
    lines: Vec<String>,
    facts: serde_json::Map<String, serde_json::Value>,
    artifacts: Vec<String>,
    backend: String,
    containment: String,
}

impl RunJson {
    /// Of a row.
    pub fn of(row: &RunRow) -> Self {
        Self {
            id: row.id.clone(),
            job: row.job_name.clone(),
            kind: row.kind.clone(),
            project: row.project.to_string(),
            state: row.state,
            attempt: row.attempt,
            by_hand: row.by_hand,
            origin: row.origin.word(),
            priority: row.priority,
            due: row.due,
            ready_at: row.ready_at,
            waits_for: row.waits_for.clone(),
            requested: row.requested,
            started: row.started,
            finished: row.finished,
            outcome: row.outcome.clone(),
            model_calls: row.model_calls,
            headline: row.summary.headline.clone(),
            lines: row.summary.lines.clone(),
            facts: row.summary.facts.clone(),
            artifacts: row.summary.artifacts.clone(),
            backend: row.summary.backend.clone(),
            containment: row.summary.containment.clone(),
        }
    }
}

/// The list, newest first.
pub fn list(
    home: &Home,
    here: &Path,
    job: Option<&str>,
    all: bool,
    limit: u32,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = if all {
        None
    } else {
        Some(Here::load(home, here)?)
    };
    let mut rows = Vec::new();
    if let Some(ledger) = home.ledger_to_read()? {
        let job = match (&project, job) {
            (Some(project), Some(name)) => {
                project.config.job(name).map(|_| ()).or_else(|failure| {
                    if name == runner_engine::tick::REPORT_JOB {
                        Ok(())
                    } else {
                        Err(failure)
                    }
                })?;
                Some(ledger.job(&project.id, name)?.id)
            }
            (None, Some(_)) => {
                return Err(Failure::usage("--job needs one project; leave out --all"));
            }
            (_, None) => None,
        };
        let filter = Filter {
            project: project.map(|project| project.id),
            job,
            limit,
            ..Filter::default()
        };
        rows = ledger.runs(&filter)?;
    }
    if listing.json {
        show::json(&rows.iter().map(RunJson::of).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        show::out("no runs yet; `runner night` makes the first\n");
        return Ok(Exit::Done);
    }
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.id.to_string(),
                row.job_name.clone(),
                word(row).to_owned(),
                show::moment(row.requested),
                row.outcome
                    .as_ref()
                    .and_then(Outcome::why)
                    .unwrap_or(&row.summary.headline)
                    .to_owned(),
            ]
        })
        .collect();
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

/// The word for where a run stands.
pub fn word(row: &RunRow) -> &'static str {
    match (&row.outcome, row.state) {
        (Some(outcome), _) => outcome.word(),
        (None, RunState::Running) if row.cancel.is_some() => "ending",
        (None, RunState::Running) => "running",
        (None, RunState::Queued) => "queued",
        (None, _) => "requested",
    }
}

/// Everything about one run.
pub fn show(home: &Home, run: &str, listing: Listing) -> Result<Exit, Failure> {
    let (ledger, row) = open(home, run)?;
    if listing.json {
        show::json(&RunJson::of(&row));
        return Ok(Exit::Done);
    }
    let mut lines = vec![
        pair("run", row.id.as_str()),
        pair("job", &format!("{} ({})", row.job_name, row.kind)),
        pair(
            "state",
            &row.outcome
                .as_ref()
                .map_or_else(|| word(&row).to_owned(), Outcome::to_string),
        ),
        pair("attempt", &row.attempt.to_string()),
        pair("due", &show::moment(row.due)),
        pair("asked by", row.origin.word()),
    ];
    if let Some(at) = row.ready_at {
        lines.push(pair("ready", &show::moment(at)));
    }
    for (key, value) in &row.settings {
        lines.push(pair("set", &format!("{key} = {value}")));
    }
    if let Some(why) = row.cancel.as_ref().filter(|_| row.outcome.is_none()) {
        lines.push(pair("asked to end", why));
    }
    if let Some(at) = row.started {
        lines.push(pair("started", &show::moment(at)));
    }
    if let Some(at) = row.finished {
        lines.push(pair("finished", &show::moment(at)));
    }
    if let Some(owner) = &row.owner {
        lines.push(pair("process", &owner.to_string()));
    }
    lines.push(pair("model calls", &row.model_calls.to_string()));
    for (name, value) in [
        ("backend", &row.summary.backend),
        ("confinement", &row.summary.containment),
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
    for path in &row.summary.artifacts {
        lines.push(pair("placed", path));
    }
    for event in ledger.events_of(&row.id)? {
        lines.push(pair(&event.kind, &event.detail));
    }
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

fn pair(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), value.to_owned()]
}

/// The log of one run, and what its program said; all of it, or as it grows.
pub fn logs(home: &Home, run: &str, follow: bool) -> Result<Exit, Failure> {
    let (_, row) = open(home, run)?;
    let log = home.run_folder(row.id.as_str()).join(log::FILE);
    let mut found = log.exists();
    let outcome = if follow {
        match follow_log(home, &row.id)? {
            Some(outcome) => Some(outcome),
            None => return Ok(Exit::Done),
        }
    } else {
        if let Ok(bytes) = fs::read(&log) {
            show::out(&String::from_utf8_lossy(&bytes));
        }
        None
    };
    found |= log.exists();
    for name in ["stdout", "stderr"] {
        let Ok(bytes) = fs::read(log.with_file_name(name)) else {
            continue;
        };
        if !bytes.is_empty() {
            show::out(&format!("--- {name}\n"));
        }
        show::out(&String::from_utf8_lossy(&bytes));
        found = true;
    }
    if !found {
        show::complain(&format!("run {} has no log: it never began", row.id));
    }
    if let Some(outcome) = outcome {
        show::out(&format!("{outcome}\n"));
    }
    Ok(Exit::Done)
}

/// Prints the log of a run until it is over, through the daemon where there is one; how it ended, or
/// `None` when nobody reads any more.
fn follow_log(home: &Home, run: &RunId) -> Result<Option<String>, Failure> {
    let stdout = std::io::stdout();
    let mut known = 0;
    if let Some(daemon) = Client::connect(home) {
        let mut print = |text: &str| {
            show::out(text);
            !follow::is_closed(stdout.as_fd())
        };
        match daemon.follow(run, 0, &mut print)? {
            Stream::Over(outcome) => return Ok(Some(outcome)),
            Stream::Lost(at) => known = at,
        }
    }
    let followed = follow::follow(home, run, known, &[stdout.as_fd()], &mut |text, _| {
        show::out(text);
        Ok(())
    })?;
    Ok(match followed {
        Followed::Settled(row) => Some(follow::outcome(&row)),
        Followed::Abandoned => None,
    })
}

/// A run by the beginning of its id, with the ledger for reading.
fn open(home: &Home, run: &str) -> Result<(Ledger, RunRow), Failure> {
    let nothing = || Failure::data(format!("no run {run}")).mend("runner runs");
    let ledger = home.ledger_to_read()?.ok_or_else(nothing)?;
    let row = find(&ledger, run)?;
    Ok((ledger, row))
}

/// A run by the beginning of its id.
pub fn find(ledger: &Ledger, run: &str) -> Result<RunRow, Failure> {
    let nothing = || Failure::data(format!("no run {run}")).mend("runner runs");
    if let Ok(id) = run.parse::<RunId>() {
        return Ok(ledger.run(&id)?);
    }
    let wanted = run.to_ascii_uppercase();
    let filter = Filter {
        prefix: Some(wanted),
        limit: 9,
        ..Filter::default()
    };
    let mut matches = ledger.runs(&filter)?;
    match matches.len() {
        1 => Ok(matches.remove(0)),
        0 => Err(nothing()),
        n => {
            Err(Failure::data(format!("{n} runs or more begin with {run}"))
                .mend("give more of the id"))
        }
    }
}
