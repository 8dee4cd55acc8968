//! Records events that need attention, each with a budget.
//!
//! `events/pending.jsonl` contains the raised events and is append-only. `events/ledger.jsonl`
//! contains the steps taken for each event. An event's remaining budget is the smallest of its
//! initial budget and the values of `budget_after` in its rows.
//!
//! ```text
//! raised{budget} ── ask: −1, before the model is asked ──> told{note}
//!    │                 └─ raise: −b; a new event with b, and this one as its parent
//!    ├─ ack, by a person ──> over
//!    └─ no budget left ──> refused, and a row records the refusal
//! ```
//!
//! The budget of a child event is taken from its parent's budget before the child is raised. All
//! model calls that result from one event therefore stay within the event's initial budget, even if
//! processes die. This module must never restore spent budget.

use runner_text::counted;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::digest::Digest;
use runner_engine::files::read_no_link;
use serde::{Deserialize, Serialize};

use super::queue::{Worker, append};
use crate::json::line;

/// The file of the raised events, in the worker's folder.
const PENDING: &str = "events/pending.jsonl";
/// Maximum length of an event's text field, in bytes.
const TEXT: usize = 2_000;
/// Maximum budget of one event, in model calls.
pub const MOST: u32 = 1_000;
/// Maximum size of an events file in bytes. A larger file is not read.
const LARGEST: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No action is needed.
    Info,
    /// The user should know about the event.
    Warn,
    /// The user should act.
    High,
    /// The user should act immediately.
    Critical,
}

impl Severity {
    /// The names of all severities.
    pub const ALL: [&str; 4] = ["info", "warn", "high", "critical"];

    /// Parses the severity from its name.
    pub fn of(word: &str) -> Option<Self> {
        serde_json::from_value(word.into()).ok()
    }
}

/// One line of `events/pending.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Always 1.
    pub schema_version: u32,
    /// The id: `20060102T150405Z-event-8hex`.
    pub id: String,
    /// The time at which the event was raised.
    pub created_at: Timestamp,
    /// The user or program that raised the event.
    pub source: String,
    pub severity: Severity,
    pub desired_action: String,
    /// The name of the backend or user that should act.
    pub escalation_target: String,
    /// The initial budget, in model calls.
    pub budget: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Always `needs-review`.
    pub status: String,
}

/// One line of `events/ledger.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStep {
    pub at: Timestamp,
    pub event: String,
    /// The id of the parent event, in the first step of a child event.
    #[serde(default)]
    pub parent: Option<String>,
    /// The action: `raised`, `ask`, `told`, `raise`, `ack` or `refused`.
    pub action: String,
    /// The event's budget before this step, in model calls.
    pub budget_before: u32,
    /// The event's budget after this step, in model calls.
    pub budget_after: u32,
    pub outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventStatus {
    #[serde(flatten)]
    pub event: Event,
    /// The event's remaining budget, in model calls.
    pub left: u32,
    /// The action and the outcome of the last step.
    pub last: Option<(String, String)>,
    /// Whether the user has acknowledged the event.
    pub over: bool,
}

/// The reason why an event cannot be raised or handled.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The event has too little budget left.
    #[error("event {0} has too little budget left")]
    Spent(String),
    /// There is no event with this id.
    #[error("there is no event {0:?}")]
    NoSuch(String),
    #[error("event {0} was already acknowledged")]
    Over(String),
    /// The given values do not form a valid event.
    #[error("{0}")]
    Bad(String),
    /// A file could not be read or written.
    #[error("the events cannot be used: {0}")]
    Io(#[from] io::Error),
}

#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The user or program that raises the event.
    pub source: String,
    pub severity: Severity,
    pub desired_action: String,
    /// The backend or the user that should act.
    pub escalation_target: String,
    /// The budget, in model calls.
    pub budget: u32,
    pub note: Option<String>,
}

/// Raises an event with a new budget or, if it has a parent, with part of the parent's budget.
///
/// # Errors
/// Returns an error if a text field is empty or too long, the budget exceeds [`MOST`] (or is 0 for
/// a child event), the parent does not exist, is acknowledged or has too little budget left, or a
/// file operation fails.
pub fn raise(
    worker: &Worker,
    wish: NewEvent,
    parent: Option<&str>,
    now: Timestamp,
) -> Result<Event, EventError> {
    let texts = [
        ("source", &wish.source),
        ("desired-action", &wish.desired_action),
        ("escalation-target", &wish.escalation_target),
    ];
    for (name, text) in texts {
        if text.trim().is_empty() || text.len() > TEXT {
            return Err(EventError::Bad(format!("{name} must have between 1 and {TEXT} bytes")));
        }
    }
    if wish.note.as_ref().is_some_and(|note| note.len() > TEXT) {
        return Err(EventError::Bad(format!("a note must have at most {TEXT} bytes")));
    }
    if wish.budget > MOST {
        return Err(EventError::Bad(format!(
            "a budget of {} calls is more than the limit of {MOST}",
            wish.budget
        )));
    }
    worker.make()?;
    let _held = worker.lock()?;
    let at = now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ");
    let hex = Digest::of(ulid::Ulid::new().to_string().as_bytes()).short();
    let event = Event {
        schema_version: 1,
        id: format!("{at}-event-{}", &hex[..8]),
        created_at: now,
        source: wish.source,
        severity: wish.severity,
        desired_action: wish.desired_action,
        escalation_target: wish.escalation_target,
        budget: wish.budget,
        note: wish.note,
        status: "needs-review".to_owned(),
    };
    if let Some(parent) = parent {
        let standing = find(&load(worker)?, parent)?;
        if standing.over {
            return Err(EventError::Over(parent.to_owned()));
        }
        let before = standing.left;
        let enough = before.checked_sub(event.budget).filter(|_| event.budget > 0);
        let Some(after) = enough else {
            let outcome = format!(
                "refused: the event needs {}, but the remaining budget is {before}",
                counted(event.budget, "call")
            );
            note(worker, &step(now, parent, "refused", (before, before), &outcome))?;
            return Err(EventError::Spent(parent.to_owned()));
        };
        // The budget is taken before the event is raised. If the process dies in between, the
        // budget is without_line, but it is never spent twice.
        let outcome = format!("raises {}", event.id);
        note(worker, &step(now, parent, "raise", (before, after), &outcome))?;
    }
    append(&worker.path(PENDING), &line(&event))?;
    let first = step(now, &event.id, "raised", (0, event.budget), "needs-review");
    note(worker, &EventStep { parent: parent.map(str::to_owned), ..first })?;
    Ok(event)
}

/// Takes one model call from an event's budget, before the call is made, and returns the number of
/// remaining calls.
///
/// # Errors
/// Returns an error if no budget is left, the event has been acknowledged or does not exist, or a
/// file operation fails. A refusal for lack of budget is recorded.
pub fn spend(worker: &Worker, id: &str, now: Timestamp) -> Result<u32, EventError> {
    let _held = worker.lock()?;
    let standing = find(&load(worker)?, id)?;
    if standing.over {
        return Err(EventError::Over(id.to_owned()));
    }
    let Some(after) = standing.left.checked_sub(1) else {
        note(worker, &step(now, id, "refused", (0, 0), "no budget is left for the event"))?;
        return Err(EventError::Spent(id.to_owned()));
    };
    note(worker, &step(now, id, "ask", (standing.left, after), "a model is asked"))?;
    Ok(after)
}

/// Records the outcome of a step without spending budget.
///
/// # Errors
/// Returns an error if the event does not exist or a file operation fails.
pub fn record_outcome(
    worker: &Worker,
    id: &str,
    action: &str,
    outcome: &str,
    now: Timestamp,
) -> Result<(), EventError> {
    let _held = worker.lock()?;
    let left = find(&load(worker)?, id)?.left;
    let outcome: String = outcome.chars().take(TEXT).collect();
    note(worker, &step(now, id, action, (left, left), &outcome))?;
    Ok(())
}

/// Returns all events in the order in which they were raised, each with its current status, and the
/// number of lines that could not be parsed.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn all(worker: &Worker) -> io::Result<(Vec<EventStatus>, u64)> {
    let EventBook { events, bad, .. } = load(worker)?;
    Ok((events, bad))
}

/// Returns the open critical events of the project at `root`. `dir` is the worker's folder. Returns
/// `None` if this is unknown, because the project's `.runner` folder is missing or
/// `dir` cannot be a worker's folder.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn critical(root: &Path, dir: &str) -> io::Result<Option<CriticalEvents>> {
    // Most projects have no events, and no other file is read for them.
    if !root.join(dir).join(PENDING).try_exists()? {
        return Ok(root.join(".runner").try_exists()?.then(CriticalEvents::default));
    }
    let Ok(worker) = Worker::of(root, dir) else { return Ok(None) };
    let EventBook { events, bad: unreadable, without_line } = load(&worker)?;
    let open = events.into_iter();
    let open = open.filter(|it| !it.over && it.event.severity == Severity::Critical);
    Ok(Some(CriticalEvents { open: open.map(|it| it.event).collect(), unreadable, without_line }))
}

/// Returns the event with this id, or the only event whose id begins or ends with `id`.
///
/// # Errors
/// Returns an error if no event or more than one event matches.
pub fn named(events: &[EventStatus], id: &str) -> Result<EventStatus, EventError> {
    let fits = |it: &&EventStatus| it.event.id.starts_with(id) || it.event.id.ends_with(id);
    let found: Vec<&EventStatus> = events.iter().filter(fits).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(EventError::NoSuch(id.to_owned())),
        several => {
            let exact = several.iter().find(|it| it.event.id == id);
            exact
                .map(|it| (**it).clone())
                .ok_or_else(|| EventError::Bad(format!("{id:?} matches {} events", several.len())))
        }
    }
}

/// The critical events that nobody has acknowledged, oldest first.
#[derive(Debug, Default)]
pub struct CriticalEvents {
    pub open: Vec<Event>,
    /// The number of lines that could not be parsed, each of which may be a critical event.
    pub unreadable: u64,
    /// The number of events of any severity that nobody has acknowledged and whose lines could not
    /// be parsed.
    pub without_line: usize,
}

struct EventBook {
    events: Vec<EventStatus>,
    bad: u64,
    /// The number of events that the ledger mentions, that nobody has acknowledged, and whose line
    /// could not be parsed. Events that the ledger does not mention are not counted.
    without_line: usize,
}

fn find(book: &EventBook, id: &str) -> Result<EventStatus, EventError> {
    let found = book.events.iter().find(|it| it.event.id == id);
    found.cloned().ok_or_else(|| EventError::NoSuch(id.to_owned()))
}

fn load(worker: &Worker) -> io::Result<EventBook> {
    let (raised, mut bad) = lines::<Event>(worker, PENDING)?;
    let (steps, worse) = lines::<EventStep>(worker, "events/ledger.jsonl")?;
    let torn = bad > 0;
    bad += worse;
    let mut order = Vec::new();
    // The ids of the ledger's events that have no line, each with whether it was acknowledged.
    let mut absent: BTreeMap<String, bool> = BTreeMap::new();
    let mut events: BTreeMap<String, EventStatus> = BTreeMap::new();
    for mut event in raised {
        event.budget = event.budget.min(MOST);
        let standing = EventStatus { left: event.budget, event, last: None, over: false };
        let id = standing.event.id.clone();
        // If an id appears more than once, the first event is used.
        if let std::collections::btree_map::Entry::Vacant(free) = events.entry(id) {
            order.push(free.key().clone());
            free.insert(standing);
        }
    }
    for step in steps {
        let Some(standing) = events.get_mut(&step.event) else {
            *absent.entry(step.event).or_default() |= step.action == "ack";
            continue;
        };
        // A row never increases a budget, even if it contains a larger one.
        standing.left = standing.left.min(step.budget_after);
        standing.over |= step.action == "ack";
        standing.last = Some((step.action, step.outcome));
    }
    let events = order.iter().filter_map(|id| events.remove(id)).collect();
    // If every line could be parsed, a person has removed the lines of these events.
    let without_line = if torn { absent.values().filter(|over| !**over).count() } else { 0 };
    Ok(EventBook { events, bad, without_line })
}

fn lines<T: serde::de::DeserializeOwned>(worker: &Worker, part: &str) -> io::Result<(Vec<T>, u64)> {
    let path = worker.path(part);
    let text = match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error),
        Ok(data) if !data.is_file() || data.len() > LARGEST => {
            let why = format!(
                "{} is not a regular file, or is larger than {LARGEST} bytes",
                path.display()
            );
            return Err(io::Error::other(why));
        }
        Ok(_) => read_no_link(&path, LARGEST)?,
    };
    let (mut found, mut bad) = (Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(one) => found.push(one),
            Err(_) => bad += 1,
        }
    }
    Ok((found, bad))
}

fn step(
    at: Timestamp,
    event: &str,
    action: &str,
    (budget_before, budget_after): (u32, u32),
    outcome: &str,
) -> EventStep {
    EventStep {
        at,
        event: event.to_owned(),
        parent: None,
        action: action.to_owned(),
        budget_before,
        budget_after,
        outcome: outcome.to_owned(),
    }
}

fn note(worker: &Worker, step: &EventStep) -> io::Result<()> {
    append(&worker.path("events/ledger.jsonl"), &line(step))
}
