//! `runner curator events`: lists, shows, ends and escalates events.

use clap::builder::NonEmptyStringValueParser;
use runner_engine::outcome::Exit;
use runner_jobs::curator::events::{self as book, EventError, EventStatus};
use runner_jobs::curator::queue::Worker;
use runner_text::counted;
use serde::Serialize;

use super::{disk, model, worker};
use crate::commands::Cli;
use crate::commands::run as by_hand;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// List events, show one, end one, or hand one to a model [default: list]
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner curator events --json | jq '.[] | {id, left}'"
)]
pub struct EventsArgs {
    #[command(subcommand)]
    command: Option<EventsCommand>,
    /// Also list events that are over
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Subcommand)]
enum EventsCommand {
    /// Show one event and its remaining budget
    #[command(after_help = "Example: runner curator events show 0123abcd")]
    Show {
        /// The event's id, or an unambiguous prefix or suffix of it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        event: String,
    },
    /// Mark an event as over; none of its remaining budget is spent
    #[command(after_help = "Example: runner curator events ack 0123abcd --note 'fixed'")]
    Ack {
        /// The event's id, or an unambiguous prefix or suffix of it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        event: String,
        /// The reason
        #[arg(long)]
        note: Option<String>,
    },
    /// Hand an event to its escalation target, with one run that uses one call of its budget
    #[command(after_help = "Example: runner curator events escalate 0123abcd")]
    Escalate {
        /// The event's id, or an unambiguous prefix or suffix of it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        event: String,
    },
}

#[derive(Serialize)]
#[serde(transparent)]
struct EventList(Vec<EventStatus>);

impl View for EventList {
    fn print(&self, ui: Ui) {
        if self.0.is_empty() {
            return ui.info("no event needs review");
        }
        show::out(&self.0.iter().map(row).collect::<String>());
    }
}

impl View for EventStatus {
    fn print(&self, _ui: Ui) {
        let mut page = row(self);
        if let Some(note) = &self.event.note {
            page.push_str(&format!("  note: {}\n", safe::line(note)));
        }
        if let Some((action, outcome)) = &self.last {
            page.push_str(&format!("  last: {action}: {}\n", safe::line(outcome)));
        }
        show::out(&page);
    }
}

impl EventsArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let worker = worker(project)?;
        let (all, bad) = book::all(&worker).map_err(|error| disk(&worker, &error))?;
        if bad > 0 {
            let lines = counted(bad, "line");
            show::complain(&format!("events: {lines} could not be parsed; skipped"));
        }
        let named = |id: &str| book::named(&all, id).map_err(|error| failure(project, error));
        match &self.command {
            None => {
                let shown = all.into_iter().filter(|it| self.all || !it.over);
                cli.ui.show(&EventList(shown.collect()));
                Ok(Exit::Done)
            }
            Some(EventsCommand::Show { event, .. }) => {
                cli.ui.show(&named(event)?);
                Ok(Exit::Done)
            }
            Some(EventsCommand::Ack { event, note }) => {
                let it = named(event)?;
                let said = format!("by {}: {}", env::person(), note.as_deref().unwrap_or("seen"));
                book::record_outcome(&worker, &it.event.id, "ack", &said, cli.env.wall()?)
                    .map_err(|error| failure(project, error))?;
                cli.ui.info(&format!("{} is over", it.event.id));
                Ok(Exit::Done)
            }
            Some(EventsCommand::Escalate { event, .. }) => {
                escalate(cli, project, &worker, named(event)?)
            }
        }
    }
}

/// Hands an event to its escalation target.
fn escalate(
    cli: &Cli<'_>,
    project: &LoadedProject,
    worker: &Worker,
    it: EventStatus,
) -> Result<Exit, Failure> {
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
        // Spending from an empty budget records the refusal.
        let spent = book::spend(worker, &it.event.id, cli.env.wall()?);
        return Err(match spent {
            Err(error) => failure(project, error),
            Ok(_) => Failure::internal("a call was charged to an event that had no budget left"),
        });
    }
    let settings = [("event", &it.event.id), ("backend", target)];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.clone())).into();
    let how = by_hand::ManualRun::new(cli, settings);
    by_hand::once(cli.env, project, job, None, how)
}

pub(super) fn failure(project: &LoadedProject, error: EventError) -> Failure {
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
            .hint("runner curator event   (a new event has a separate budget)"),
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
