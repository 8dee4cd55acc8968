//! `alerts`: shows the alerts and the delivery of their messages, and acknowledges an alert so that
//! its messages end.

use std::path::Path;

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_engine::store::{AlertEnd, AlertRow, AlertSelection, MessageRow, MessageState, Store};
use serde::Serialize;

use crate::alerts::deliver;
use crate::alerts::message::{Message, Templates};
use crate::commands::args::alerts::AlertsCommand;
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::ui::Failure;
use crate::ui::{Ui, safe, show};

#[derive(Debug, Serialize)]
struct AlertJson {
    id: String,
    project: String,
    job: String,
    kind: &'static str,
    raised: Timestamp,
    last: Timestamp,
    count: u32,
    run: Option<String>,
    why: String,
    silenced: Option<EndJson>,
    ended: Option<EndJson>,
    messages: Vec<MessageJson>,
}

#[derive(Debug, Serialize)]
struct EndJson {
    at: Timestamp,
    /// `recovered`, or the name of the person who ended the alert.
    by: String,
}

#[derive(Debug, Serialize)]
struct MessageJson {
    id: String,
    channel: String,
    what: String,
    made: Timestamp,
    state: MessageState,
    tries: u32,
    /// The time of the next try; only set while the message waits.
    next: Option<Timestamp>,
    over: Option<Timestamp>,
    /// The error of the last try.
    said: String,
}

#[derive(Debug, Serialize)]
struct TestJson {
    channel: String,
    delivered: bool,
    said: String,
}

/// Carries out one of the `alerts` commands.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&AlertsCommand>,
    ui: Ui,
) -> Result<Exit, Failure> {
    match command {
        None => list(home, here, AlertSelection::Open, false, ui),
        Some(AlertsCommand::List { over, all, .. }) => {
            let selection = if *over { AlertSelection::All } else { AlertSelection::Open };
            list(home, here, selection, *all, ui)
        }
        Some(AlertsCommand::Show { alert, .. }) => one(home, alert, ui),
        Some(AlertsCommand::Test { channel, .. }) => test(home, here, channel.as_deref(), ui),
        Some(AlertsCommand::Ack { alert, .. }) => ack(home, here, alert, ui),
    }
}

fn list(
    home: &Env,
    here: &Path,
    selection: AlertSelection,
    all: bool,
    ui: Ui,
) -> Result<Exit, Failure> {
    let project = match all {
        true => None,
        false => Some(LoadedProject::load(home, here)?.id),
    };
    let mut found = Vec::new();
    if let Some(store) = home.store_to_read()? {
        for alert in store.alerts(project.as_ref(), selection)? {
            let messages = store.messages_of(&alert.id)?;
            found.push((alert, messages));
        }
    }
    if ui.json {
        let found: Vec<AlertJson> = found.into_iter().map(json).collect();
        show::json(&found);
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        show::out("no alert is open\n");
        return Ok(Exit::Done);
    }
    let mut rows =
        vec![["alert", "job", "kind", "since", "times", "stands"].map(str::to_owned).to_vec()];
    for (alert, messages) in &found {
        rows.push(vec![
            alert.id.to_string(),
            alert.job_name.clone(),
            alert.kind.as_str().to_owned(),
            show::format_time(alert.raised),
            alert.count.to_string(),
            stands(alert, messages),
        ]);
    }
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

/// Describes the state of an alert.
fn stands(alert: &AlertRow, messages: &[MessageRow]) -> String {
    if let Some((_, how)) = &alert.ended {
        return match how {
            AlertEnd::Recovered => how.as_str().to_owned(),
            AlertEnd::Acknowledged { by } => format!("acknowledged by {by}"),
        };
    }
    let mut parts = Vec::new();
    if let Some((_, who)) = &alert.silenced {
        parts.push(format!("silenced by {who}"));
    }
    let count = |state: MessageState| messages.iter().filter(|one| one.state == state).count();
    for (state, word) in [
        (MessageState::Delivered, "delivered"),
        (MessageState::Waiting, "waiting"),
        (MessageState::GivenUp, "GIVEN UP"),
    ] {
        if count(state) > 0 {
            parts.push(format!("{} {word}", count(state)));
        }
    }
    match parts.is_empty() {
        true => "nobody to tell".to_owned(),
        false => parts.join(", "),
    }
}

fn one(home: &Env, wanted: &str, ui: Ui) -> Result<Exit, Failure> {
    let Some(store) = home.store_to_read()? else {
        return Err(none(wanted));
    };
    let alert = find(&store, wanted)?;
    let messages = store.messages_of(&alert.id)?;
    if ui.json {
        show::json(&json((alert, messages)));
        return Ok(Exit::Done);
    }
    let mut rows: Vec<Vec<String>> = [
        ("alert", alert.id.to_string()),
        ("job", alert.job_name.clone()),
        ("kind", alert.kind.as_str().to_owned()),
        ("raised", show::format_time(alert.raised)),
        ("last", show::format_time(alert.last)),
        ("times", alert.count.to_string()),
        ("why", safe::line(&alert.why)),
        ("stands", stands(&alert, &messages)),
    ]
    .map(|(name, value)| vec![name.to_owned(), value])
    .to_vec();
    for message in &messages {
        rows.push(vec![message.channel.clone(), delivery_text(message)]);
    }
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

fn delivery_text(message: &MessageRow) -> String {
    let tries = show::count(u64::from(message.tries), "time");
    let stands = match message.state {
        MessageState::Waiting if message.tries == 0 => "is about to be sent".to_owned(),
        MessageState::Waiting => format!(
            "tried {tries}, again at {}: {}",
            show::format_time(message.next),
            safe::line(&message.said)
        ),
        MessageState::Delivered => "delivered".to_owned(),
        MessageState::GivenUp => {
            format!("GIVEN UP, tried {tries}: {}", safe::line(&message.said))
        }
        MessageState::Withdrawn => "withdrawn".to_owned(),
    };
    format!("{} ({}): {stands}", message.what, message.id)
}

fn test(home: &Env, here: &Path, only: Option<&str>, ui: Ui) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
    home.make_state()?;
    let notify = &here.config.notify;
    let names = || notify.channels.keys().map(String::as_str);
    if let Some(only) = only
        && !notify.channels.contains_key(only)
    {
        let near = runner_text::nearest::nearest(only, names())
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Err(Failure::configuration(format!("there is no [channels.{only}]{near}"))
            .hint("runner config show"));
    }
    if notify.channels.is_empty() {
        return Err(Failure::configuration("no channel is configured, so no alert can be sent")
            .hint("runner config set --user channels.screen.type desktop"));
    }
    let templates = Templates { subject: notify.subject.as_deref(), body: notify.body.as_deref() };
    let message = Message::test(&here.root, home.wall()?, &templates);
    let mut done = Vec::new();
    for (name, channel) in &notify.channels {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let sent = deliver::send(home, channel, &message);
        if !ui.json {
            match &sent {
                Ok(()) => ui.info(&format!("{name}: delivered")),
                Err(why) => show::complain(&format!("{name}: {why}")),
            }
        }
        done.push(TestJson {
            channel: name.clone(),
            delivered: sent.is_ok(),
            said: sent.err().unwrap_or_default(),
        });
    }
    if ui.json {
        show::json(&done);
    }
    Ok(match done.iter().all(|one| one.delivered) {
        true => Exit::Done,
        false => Exit::Unavailable,
    })
}

fn ack(home: &Env, here: &Path, wanted: &str, ui: Ui) -> Result<Exit, Failure> {
    let mut store = home.store()?;
    let who = env::person();
    let now = home.wall()?;
    // A job's name identifies a job only within its project.
    let of_job = match LoadedProject::load(home, here) {
        Ok(here) if here.config.jobs.contains_key(wanted) => store
            .alerts(Some(&here.id), AlertSelection::Open)?
            .into_iter()
            .filter(|alert| alert.job_name == wanted)
            .collect(),
        _ => vec![find(&store, wanted)?],
    };
    let mut done = Vec::new();
    for alert in of_job {
        if store.silence(&alert.id, &who, now)? {
            done.push(store.alert(&alert.id)?);
        }
    }
    if ui.json {
        let done: Vec<AlertJson> =
            done.into_iter().map(|alert| json((alert, Vec::new()))).collect();
        show::json(&done);
        return Ok(Exit::Done);
    }
    if done.is_empty() {
        ui.info(&format!("{wanted}: nothing to silence"));
    }
    for alert in done {
        ui.info(&format!(
            "{} ({}): no further message is sent before it is over",
            alert.job_name,
            alert.kind.as_str()
        ));
    }
    Ok(Exit::Done)
}

/// Returns the only alert whose id begins with `wanted`.
fn find(store: &Store, wanted: &str) -> Result<AlertRow, Failure> {
    let start = wanted.to_ascii_uppercase();
    let mut found: Vec<AlertRow> = store
        .alerts(None, AlertSelection::All)?
        .into_iter()
        .filter(|alert| alert.id.as_str().starts_with(&start))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(alert), true) => Ok(alert),
        (Some(_), false) => Err(Failure::usage(format!("several alerts begin with {wanted:?}"))
            .hint("runner alerts list --over --all")),
        (None, _) => Err(none(wanted)),
    }
}

fn none(wanted: &str) -> Failure {
    Failure::usage(format!("no alert begins with {wanted:?}"))
        .hint("runner alerts list --over --all")
}

fn json((alert, messages): (AlertRow, Vec<MessageRow>)) -> AlertJson {
    AlertJson {
        id: alert.id.to_string(),
        project: alert.project.to_string(),
        job: alert.job_name,
        kind: alert.kind.as_str(),
        raised: alert.raised,
        last: alert.last,
        count: alert.count,
        run: alert.run.map(|run| run.to_string()),
        why: alert.why,
        silenced: alert.silenced.map(|(at, by)| EndJson { at, by }),
        ended: alert.ended.map(|(at, how)| EndJson { at, by: how.as_str().to_owned() }),
        messages: messages
            .into_iter()
            .map(|message| MessageJson {
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
