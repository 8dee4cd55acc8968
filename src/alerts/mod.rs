//! Decides on alerts after each tick, and starts a separate process that delivers them.
//!
//! ```text
//! tick ──> news digested, jobs watched (database rows) ─────if there is news─────> runner __deliver
//!   │                                                                              │ one at a time,
//!   └──waits for nothing                                                           │ each with a deadline
//!                              database <──attempt recorded── send ──its result recorded───┘
//! ```
//!
//! The module `runner_engine::alerts` describes what alerts are and when they are sent. No run,
//! tick or night ever waits for a delivery: it happens in a separate process, and a receiver that
//! hangs blocks only that process. If the process is killed at any time, at most one message is
//! sent twice, with the same id. A message that was not sent keeps its remaining attempts.

pub mod deliver;
mod heartbeat;
mod mail;
pub mod message;
mod programs;
mod text;
pub mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;

use runner_engine::alerts::{AlertKind, AlertRules};
use runner_engine::file_lock::{FileLock, FileLockError, LockMode};
use runner_engine::ids::ProjectId;
use runner_engine::store::{AlertRow, AlertSelection, FoundProblem, Store, Task};
use runner_jobs::curator::events::{self, CriticalEvents, Event};
use runner_text::some_of;

use crate::config;
use crate::env::{self, Env};
use crate::fleet::SilentFleet;
use crate::project::LoadedProject;
use crate::project::projection::Projection;
use crate::ui::Failure;

/// Whether a tick did everything that it had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickHealth {
    Sound,
    Troubled,
}

/// Queues messages about the news since the last tick, and starts their delivery. If this fails,
/// returns a line that describes the failure. Only damage to the database is returned as an error,
/// because other failures must not fail the tick.
pub fn after_tick(home: &Env, store: &mut Store, tick: TickHealth) -> Result<Vec<String>, Failure> {
    match queue_messages(home, store, tick) {
        Ok(()) => Ok(Vec::new()),
        Err(failure) if failure.is_damage() => Err(failure),
        Err(failure) => Ok(vec![format!("alerts: {failure}")]),
    }
}

fn queue_messages(home: &Env, store: &mut Store, tick: TickHealth) -> Result<(), Failure> {
    watch_events(home, store)?;
    // A message about an event is due now.
    let now = home.wall()?;
    let news = store.projects_with_news()?;
    if !news.is_empty() {
        store.digest(&rules(home, store, Some(&news))?, now)?;
    }
    if store.maintenance_due(Task::Watch, now)? {
        store.watch(&rules(home, store, None)?, now)?;
    }
    if store.messages_due(now)? {
        store.hold_messages(&rules(home, store, None)?, now)?;
    }
    let beat = tick == TickHealth::Sound && heartbeat::claim(home, now);
    if beat || (store.messages_due(now)? && !is_delivering(home)) {
        start(home, if beat { &["--beat"] } else { &[] })?;
    }
    Ok(())
}

/// Raises and resolves the alerts about silent hosts of fleets. Does nothing on a machine that has
/// never joined a fleet. If this fails, returns a line that describes the failure. Only damage to
/// the database is returned as an error, because other failures must not fail the tick.
pub fn watch_hosts(
    home: &Env,
    store: &mut Store,
    silent: Option<Vec<SilentFleet>>,
) -> Result<Vec<String>, Failure> {
    let Some(silent) = silent else { return Ok(Vec::new()) };
    match watch_silent(home, store, silent) {
        Ok(()) => Ok(Vec::new()),
        Err(failure) if failure.is_damage() => Err(failure),
        Err(failure) => Ok(vec![format!("alerts: {failure}")]),
    }
}

fn watch_silent(home: &Env, store: &mut Store, silent: Vec<SilentFleet>) -> Result<(), Failure> {
    let mut found = Vec::new();
    for SilentFleet { fleet, since, why } in silent {
        // The alert is recorded for a job of the fleet. A host without such a job leaves the alert
        // to the hosts that have one.
        let job = store.job_of_fleet(&fleet)?;
        found.extend(job.map(|(job, project)| FoundProblem { job, project, since, why }));
    }
    let open = open_alerts(store, AlertKind::SilentHost)?;
    watch(home, store, (AlertKind::SilentHost, &open), &found)
}

/// Raises the alerts about critical events of the curator, and resolves those whose events are
/// over.
fn watch_events(home: &Env, store: &mut Store) -> Result<(), Failure> {
    let open = open_alerts(store, AlertKind::CriticalEvent)?;
    let kept = store.projections(None)?;
    let mut found = Vec::new();
    for project in store.projects()? {
        let own = || open.iter().filter(|alert| alert.project == project.id);
        let folder = kept.get(&project.id).and_then(|text| Projection::read_curator_folder(text));
        let events = folder.and_then(|folder| events::critical(&project.path, &folder).ok());
        match events.flatten() {
            Some(CriticalEvents { open, .. }) if !open.is_empty() => {
                found.extend(problem_of(store, project.id, &open)?);
            }
            Some(CriticalEvents { without_line: 0, .. }) => {}
            // It is not known whether the events are over, so an open alert remains open.
            _ => found.extend(own().map(|alert| {
                let (project, why) = (project.id.clone(), alert.why.clone());
                FoundProblem { job: alert.job, project, since: alert.raised, why }
            })),
        }
    }
    watch(home, store, (AlertKind::CriticalEvent, &open), &found)
}

/// Returns the problem to report about a project's critical events, or `None` if the project has no
/// job for which an alert could be recorded.
fn problem_of(
    store: &Store,
    project: ProjectId,
    events: &[Event],
) -> Result<Option<FoundProblem>, Failure> {
    let Some(job) = store.job_of_events(&project)? else { return Ok(None) };
    let since = events.iter().map(|event| event.created_at).max().unwrap_or_default();
    let described: Vec<String> = (events.iter().rev())
        .map(|event| format!("{}: {} ({})", event.source, event.desired_action, event.id))
        .collect();
    let why = some_of(described.iter().map(String::as_str));
    Ok(Some(FoundProblem { job, project, since, why }))
}

fn open_alerts(store: &Store, kind: AlertKind) -> Result<Vec<AlertRow>, Failure> {
    let open = store.alerts(None, AlertSelection::Open)?;
    Ok(open.into_iter().filter(|alert| alert.kind == kind).collect())
}

/// Updates the alerts of a kind that does not concern runs. `open` lists the open alerts of that
/// kind.
fn watch(
    home: &Env,
    store: &mut Store,
    (kind, open): (AlertKind, &[AlertRow]),
    found: &[FoundProblem],
) -> Result<(), Failure> {
    if found.is_empty() && open.is_empty() {
        return Ok(());
    }
    let rules = rules(home, store, None)?;
    Ok(store.watch_problems(kind, found, &rules, home.wall()?)?)
}

/// Returns the alert rules from the projects' configurations as last read.
fn rules(
    home: &Env,
    store: &Store,
    only: Option<&BTreeSet<ProjectId>>,
) -> Result<BTreeMap<ProjectId, AlertRules>, Failure> {
    let kept = store.projections(None)?;
    let mut found = BTreeMap::new();
    for project in store.projects()? {
        if only.is_some_and(|only| !only.contains(&project.id)) {
            continue;
        }
        let kept = kept.get(&project.id).and_then(|text| Projection::read(text));
        let rules = match kept.and_then(|kept| kept.alerts) {
            Some(rules) => rules,
            // If a project's configuration cannot be read or is not trusted, the user's own
            // settings apply.
            None => LoadedProject::at(home, Some(store), &project.path)
                .and_then(LoadedProject::trusted_outside_jobs)
                .map(|here| here.config)
                .or_else(|_| config::load(&home.stack(None)))
                .map(|config| config.notify.rules(&config.jobs, &config.night.zone))
                .unwrap_or_default(),
        };
        found.insert(project.id, rules);
    }
    Ok(found)
}

/// Starts the delivery process with these options, and does not wait for it.
fn start(home: &Env, options: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new(env::executable()?);
    let (name, folder) = home.state_variable();
    command.env(name, folder);
    command
        .arg0("runner")
        .arg("__deliver")
        .args(options)
        .current_dir(&home.state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Keeps signals from a terminal away from the process.
        .process_group(0);
    for name in env::MANAGERS {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|error| {
        Failure::environment(format!(
            "cannot start another runner process to deliver alerts: {error}"
        ))
    })?;
    // Reaps the child, so that a daemon accumulates no zombies. If this process exits first, the
    // system reaps the child.
    let _detached = thread::Builder::new().spawn(move || child.wait());
    Ok(())
}

/// Takes the lock of the delivery process, or returns `None` while another process holds it.
fn take_lock(home: &Env) -> Result<Option<FileLock>, Failure> {
    let path = home.state.join("deliver.lock");
    let taken = FileLock::open(&path)
        .map_err(FileLockError::from)
        .and_then(|file| FileLock::take(file, LockMode::Exclusive));
    match taken {
        Ok(lock) => Ok(Some(lock)),
        Err(FileLockError::Held { .. }) => Ok(None),
        Err(FileLockError::Io(error)) => {
            Err(Failure::cannot_write(format!("cannot lock {}: {error}", path.display())))
        }
    }
}

/// Returns true if another process is delivering.
fn is_delivering(home: &Env) -> bool {
    matches!(take_lock(home), Ok(None))
}
