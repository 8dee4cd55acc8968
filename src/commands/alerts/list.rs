//! `runner alerts list` and `runner alerts show`: show alerts and the delivery of their messages.

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_engine::store::{AlertEnd, AlertRow, AlertSelection, MessageRow, MessageState};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// List the open alerts, with the delivery state of their messages (the default)
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Example: runner alerts list --over --json | jq '.[0]'")]
pub struct ListArgs {
    /// Also list alerts that are over
    #[arg(long)]
    over: bool,
    /// List the alerts of all projects
    #[arg(long)]
    all: bool,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct Alert {
    id: String,
    project: String,
    pub job: String,
    pub kind: &'static str,
    raised: Timestamp,
    last: Timestamp,
    count: u32,
    run: Option<String>,
    why: String,
    silenced: Option<EndedBy>,
    ended: Option<EndedBy>,
    messages: Vec<AlertMessage>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct EndedBy {
    at: Timestamp,
    /// `recovered`, or the name of the person who silenced or acknowledged the alert.
    by: String,
    /// Whether the alert ended because the job recovered.
    #[serde(skip)]
    recovered: bool,
}

#[derive(Debug, JsonSchema, Serialize)]
struct AlertMessage {
    id: String,
    channel: String,
    what: String,
    made: Timestamp,
    state: MessageState,
    tries: u32,
    /// The time of the next attempt, while the message is waiting.
    next: Option<Timestamp>,
    over: Option<Timestamp>,
    /// The error from the last attempt.
    said: String,
}

impl Alert {
    pub fn new(alert: AlertRow, messages: Vec<MessageRow>) -> Self {
        Self {
            id: alert.id.to_string(),
            project: alert.project.to_string(),
            job: alert.job_name,
            kind: alert.kind.as_str(),
            raised: alert.raised,
            last: alert.last,
            count: alert.count,
            run: alert.run.map(|run| run.to_string()),
            why: alert.why,
            silenced: alert.silenced.map(|(at, by)| EndedBy { at, by, recovered: false }),
            ended: alert.ended.map(|(at, how)| EndedBy {
                at,
                by: how.as_str().to_owned(),
                recovered: how == AlertEnd::Recovered,
            }),
            messages: messages
                .into_iter()
                .map(|message| AlertMessage {
                    id: message.id.to_string(),
                    channel: message.channel,
                    what: message.what,
                    made: message.made,
                    next: (message.state == MessageState::Waiting).then_some(message.next),
                    state: message.state,
                    tries: message.tries,
                    over: message.over,
                    said: message.said,
                })
                .collect(),
        }
    }

    fn describe_state(&self) -> String {
        if let Some(end) = &self.ended {
            return match end.recovered {
                true => end.by.clone(),
                false => format!("acknowledged by {}", end.by),
            };
        }
        let mut parts = Vec::new();
        if let Some(silenced) = &self.silenced {
            parts.push(format!("silenced by {}", silenced.by));
        }
        for (state, word) in [
            (MessageState::Delivered, "delivered"),
            (MessageState::Waiting, "waiting"),
            (MessageState::GivenUp, "GIVEN UP"),
        ] {
            let count = self.messages.iter().filter(|one| one.state == state).count();
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        if parts.is_empty() { "no messages".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct Alerts(Vec<Alert>);

impl View for Alerts {
    fn print(&self, _ui: Ui) {
        if self.0.is_empty() {
            return show::out("no alerts\n");
        }
        let mut rows = vec![show::row(["alert", "job", "kind", "since", "count", "state"])];
        rows.extend(self.0.iter().map(|alert| {
            show::row([
                &alert.id,
                &alert.job,
                alert.kind,
                &show::format_time(alert.raised),
                &alert.count.to_string(),
                &alert.describe_state(),
            ])
        }));
        show::out(&show::table(&rows));
    }
}

impl View for Alert {
    fn print(&self, _ui: Ui) {
        let mut rows = [
            ["alert", &self.id],
            ["job", &self.job],
            ["kind", self.kind],
            ["raised", &show::format_time(self.raised)],
            ["last", &show::format_time(self.last)],
            ["count", &self.count.to_string()],
            ["why", &safe::line(&self.why)],
            ["state", &self.describe_state()],
        ]
        .map(show::row)
        .to_vec();
        rows.extend(
            self.messages.iter().map(|one| show::row([&one.channel, &one.describe_delivery()])),
        );
        show::out(&show::table(&rows));
    }
}

impl AlertMessage {
    fn describe_delivery(&self) -> String {
        let tries = show::count(u64::from(self.tries), "time");
        let state = match self.state {
            MessageState::Waiting if self.tries == 0 => "not sent yet".to_owned(),
            MessageState::Waiting => format!(
                "tried {tries}, next attempt at {}: {}",
                self.next.map(show::format_time).unwrap_or_default(),
                safe::line(&self.said)
            ),
            MessageState::Delivered => "delivered".to_owned(),
            MessageState::GivenUp => {
                format!("GIVEN UP, tried {tries}: {}", safe::line(&self.said))
            }
            MessageState::Withdrawn => "withdrawn".to_owned(),
        };
        format!("{} ({}): {state}", self.what, self.id)
    }
}

impl ListArgs {
    /// Lists the alerts of one project, or of all projects.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let selection = if self.over { AlertSelection::All } else { AlertSelection::Open };
        let mut found = Vec::new();
        match cli.env.store_to_read()? {
            Some(store) => {
                let project = match self.all {
                    true => None,
                    false => Some(super::project(cli, &store)?),
                };
                for alert in store.alerts(project.as_ref(), selection)? {
                    let messages = store.messages_of(&alert.id)?;
                    found.push(Alert::new(alert, messages));
                }
            }
            // Without a database there are no alerts, but a missing project is still an error.
            None if !self.all => drop(LoadedProject::load(cli.env, cli.here)?),
            None => {}
        }
        cli.ui.show(&Alerts(found));
        Ok(Exit::Done)
    }
}

pub fn show(cli: &Cli<'_>, wanted: &str) -> Result<Exit, Failure> {
    let Some(store) = cli.env.store_to_read()? else { return Err(super::none(wanted)) };
    let alert = super::find(&store, wanted)?;
    let messages = store.messages_of(&alert.id)?;
    cli.ui.show(&Alert::new(alert, messages));
    Ok(Exit::Done)
}
