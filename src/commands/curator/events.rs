//! Raises, lists, ends and escalates events.

use runner_engine::outcome::Exit;
use runner_jobs::curator::events::{self as book, EventError, EventStatus, NewEvent, Severity};
use runner_text::counted;

use super::{disk, model, worker};
use crate::commands::args::curator::{EventsCommand, SeverityArg};
use crate::commands::run as by_hand;
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui, safe, show};

pub fn severity(level: SeverityArg) -> Severity {
    match level {
        SeverityArg::Info => Severity::Info,
        SeverityArg::Warn => Severity::Warn,
        SeverityArg::High => Severity::High,
        SeverityArg::Critical => Severity::Critical,
    }
}

fn failure(project: &LoadedProject, error: EventError) -> Failure {
    match error {
        EventError::Io(error) => match worker(project) {
            Ok(worker) => disk(&worker, &error),
            Err(failure) => failure,
        },
        EventError::Bad(why) => Failure::usage(why),
        EventError::NoSuch(_) => {
            Failure::data(error.to_string()).hint("runner curator events --all")
        }
        EventError::Spent(_) | EventError::Over(_) => Failure::refused(error.to_string())
            .hint("runner curator event   (a new event has its own budget)"),
    }
}

/// Raises an event.
pub fn raise(home: &Env, project: &LoadedProject, wish: NewEvent, ui: Ui) -> Result<Exit, Failure> {
    let worker = worker(project)?;
    let event = book::raise(&worker, wish, None, home.wall()?);
    let event = event.map_err(|error| failure(project, error))?;
    match ui.json {
        true => show::json(&event),
        false => ui.info(&format!("{} needs review", event.id)),
    }
    Ok(Exit::Done)
}

/// Lists events, shows one, ends one, or hands one to a model.
pub fn run(
    home: &Env,
    project: &LoadedProject,
    command: Option<&EventsCommand>,
    every: bool,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    let worker = worker(project)?;
    let (all, bad) = book::all(&worker).map_err(|error| disk(&worker, &error))?;
    if bad > 0 {
        show::complain(&format!("events: {} could not be read; not shown", counted(bad, "line")));
    }
    let named = |id: &str| book::named(&all, id).map_err(|error| failure(project, error));
    match command {
        None => {
            let shown: Vec<&EventStatus> = all.iter().filter(|it| every || !it.over).collect();
            if manner.ui.json {
                show::json(&shown);
            } else if shown.is_empty() {
                manner.ui.info("no event needs review");
            } else {
                let rows: String = shown.iter().map(|it| row(it)).collect();
                show::out(&rows);
            }
            Ok(Exit::Done)
        }
        Some(EventsCommand::Show { event, .. }) => {
            let it = named(event)?;
            if manner.ui.json {
                show::json(&it);
                return Ok(Exit::Done);
            }
            let mut page = row(&it);
            if let Some(note) = &it.event.note {
                page.push_str(&format!("  note: {}\n", safe::line(note)));
            }
            if let Some((action, outcome)) = &it.last {
                page.push_str(&format!("  last: {action}: {}\n", safe::line(outcome)));
            }
            show::out(&page);
            Ok(Exit::Done)
        }
        Some(EventsCommand::Ack { event, note }) => {
            let it = named(event)?;
            let said = format!("by {}: {}", env::person(), note.as_deref().unwrap_or("seen"));
            book::record_outcome(&worker, &it.event.id, "ack", &said, home.wall()?)
                .map_err(|error| failure(project, error))?;
            manner.ui.info(&format!("{} is over", it.event.id));
            Ok(Exit::Done)
        }
        Some(EventsCommand::Escalate { event, .. }) => {
            let it = named(event)?;
            if it.over {
                return Err(failure(project, EventError::Over(it.event.id)));
            }
            let target = &it.event.escalation_target;
            if !project.config.backends.contains_key(target) {
                let known: Vec<&str> = project.config.backends.keys().map(String::as_str).collect();
                return Err(Failure::data(format!(
                    "{target:?} is not one of the backends ({}): the event waits for a person",
                    known.join(", ")
                ))
                .hint(format!("runner curator events ack {}", it.event.id)));
            }
            let job = model::job_of(project).ok_or_else(super::work::no_job)?;
            if it.left == 0 {
                // The row records that nothing is left, and no run is made.
                let spent = book::spend(&worker, &it.event.id, home.wall()?);
                return Err(match spent {
                    Err(error) => failure(project, error),
                    Ok(_) => Failure::internal("budget was spent from an event that has none left"),
                });
            }
            let how = by_hand::ManualRun {
                manner,
                follow: false,
                deferral_is_normal: false,
                settings: vec![
                    ("event".to_owned(), it.event.id.clone()),
                    ("backend".to_owned(), target.clone()),
                ],
            };
            by_hand::once(home, project, job, None, how)
        }
    }
}

fn row(it: &EventStatus) -> String {
    let word = serde_json::to_value(it.event.severity).unwrap_or_default();
    let state = if it.over { "over" } else { "needs review" };
    format!(
        "{}  {:<8}  {} of {} left  {state}  {} -> {}: {}\n",
        it.event.id,
        word.as_str().unwrap_or_default(),
        it.left,
        counted(it.event.budget, "call"),
        safe::line(&it.event.source),
        safe::line(&it.event.escalation_target),
        safe::line(&it.event.desired_action)
    )
}
