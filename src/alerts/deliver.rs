//! Runs the process that delivers alerts: `runner __deliver`.
//!
//! Only one such process runs at a time, for about a minute at most: it begins no further message
//! after [`BEGIN_WITHIN`], and each message has its own deadline. A channel that has failed once is
//! skipped until the next delivery process starts, so a hung channel delays the others by only one
//! deadline. This process must never do anything that a run or a tick waits for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use runner_engine::failpoint;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_engine::store::{AlertSelection, Delivery, DeliveryResult, Store};
use runner_engine::time::boot_time;
use runner_text::redact::Redacted;

use super::message::{Message, Templates};
use super::{heartbeat, programs, take_lock, webhook};
use crate::config::addresses::Address;
use crate::config::notify::Channel;
use crate::config::{self, Notify};
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::ui::Failure;

/// How long after its start the process may begin to send a message.
const BEGIN_WITHIN: Duration = Duration::from_secs(45);

/// Sends the heartbeat for a successful tick. A failure is ignored, because the receiver notices a
/// missing heartbeat itself.
pub fn beat(home: &Env) {
    let _unheard = heartbeat::send(home);
}

/// Delivers the messages that are due.
pub fn run(home: &Env) -> Result<Exit, Failure> {
    let began = boot_time();
    let Some(_lock) = take_lock(home)? else {
        return Ok(Exit::Done);
    };
    let mut store = home.store()?;
    let mut projects = BTreeMap::new();
    let mut without = Vec::new();
    let rules = super::rules(home, &store, None)?;
    while boot_time().saturating_sub(began) < BEGIN_WITHIN {
        failpoint::before("begin a try");
        store.hold_messages(&rules, home.wall()?)?;
        let Some(delivery) = store.begin_delivery(&without, home.wall()?)? else {
            break;
        };
        failpoint::before("send");
        let tried = deliver(home, &store, &mut projects, &delivery)?;
        failpoint::before("end a try");
        for one in std::iter::once(&delivery).chain(&delivery.more) {
            store.end_delivery(&one.id, one.tries, &tried, home.wall()?)?;
        }
        if tried != DeliveryResult::Delivered {
            without.push((delivery.project, delivery.channel));
        }
    }
    Ok(Exit::Done)
}

struct KnownProject {
    root: PathBuf,
    notify: Result<Notify, String>,
    /// Why the project's settings cannot be used, in which case `notify` contains only the user's.
    lacking: Option<String>,
}

fn deliver(
    home: &Env,
    store: &Store,
    projects: &mut BTreeMap<ProjectId, KnownProject>,
    delivery: &Delivery,
) -> Result<DeliveryResult, Failure> {
    if !projects.contains_key(&delivery.project) {
        let Some(row) = store.project(&delivery.project)? else {
            return Ok(DeliveryResult::Withdrawn("its project no longer exists".to_owned()));
        };
        // An alert must be delivered even if its project's folder is gone, cannot be read or is not
        // trusted.
        let (notify, lacking) = match LoadedProject::at(home, Some(store), &row.path)
            .and_then(LoadedProject::trusted_outside_jobs)
        {
            Ok(here) => (Ok(here.config.notify), None),
            Err(failure) => {
                let users = config::load(&home.stack(None)).map(|config| config.notify);
                (users.map_err(|failure| failure.to_string()), Some(failure.to_string()))
            }
        };
        let known = KnownProject { root: row.path, notify, lacking };
        projects.insert(delivery.project.clone(), known);
    }
    let known = &projects[&delivery.project];
    let notify = match &known.notify {
        Ok(notify) => notify,
        Err(why) => return Ok(DeliveryResult::Failed(brief(why))),
    };
    let Some(channel) = notify.channels.get(&delivery.channel) else {
        if let Some(why) = &known.lacking {
            return Ok(DeliveryResult::Failed(brief(why)));
        }
        let why = format!("[channels.{}] is no longer configured", delivery.channel);
        return Ok(DeliveryResult::Withdrawn(why));
    };
    let templates = Templates { subject: notify.subject.as_deref(), body: notify.body.as_deref() };
    let open = store.alerts(Some(&delivery.project), AlertSelection::Open)?;
    let message = Message::of(delivery, &open, &known.root, &templates);
    Ok(match send(home, channel, &message) {
        Ok(()) => DeliveryResult::Delivered,
        Err(why) => DeliveryResult::Failed(why),
    })
}

/// Sends one message through one channel, within the channel's deadline.
///
/// # Errors
/// Returns the redacted reason if the message cannot be sent.
pub fn send(home: &Env, channel: &Channel, message: &Message) -> Result<(), String> {
    let sent = match channel {
        Channel::Desktop => programs::desktop(home, message),
        Channel::Webhook { url, secret } => webhook::post(home, url, secret.as_ref(), message),
        Channel::Command(program) => programs::command(home, program, message),
        Channel::Email { recipient, sender, program } => {
            programs::email(home, program, recipient, sender.as_deref(), message)
        }
    };
    sent.map_err(|why| brief(&why))
}

/// Returns the beginning of an error message, redacted for storage.
fn brief(why: &str) -> String {
    Redacted::of(why).head(400).into_string()
}

/// Returns the current value of an address.
pub(super) fn resolved(address: &Address) -> Result<String, String> {
    match address {
        Address::Given(text) => Ok(text.clone()),
        Address::Variable(name) => env::named(std::iter::once(name.as_str()))
            .remove(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("{name} is not set in this environment")),
    }
}
