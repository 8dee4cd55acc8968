//! The rows of messages: what is to be delivered to whom, what was tried, what came of it.
//!
//! A try is written down before it is made and its end after it: whoever dies between loses nothing
//! and sends at most one message twice. Must never know how a channel works.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::columns::{
    FreeText, Query as _, free, free_json, json, millis, time, time_opt, to_json,
};
use super::{Fault, Result, Store};
use crate::alerts::{AlertKind, next_try};
use crate::ids::{AlertId, MessageId, ProjectId, RunId};

/// How often a message is tried at the most, over some fifteen hours.
pub const MOST_TRIES: u32 = 8;

/// The kind of a message about one open alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Raised,
    Repeated,
}

impl MessageKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Repeated => "repeated",
        }
    }
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageState {
    /// To be delivered.
    Waiting,
    /// Its channel took it.
    Delivered,
    /// It was tried as often as it is tried.
    GivenUp,
    /// It was no longer to be delivered.
    Withdrawn,
}

impl MessageState {
    /// Returns the name used in the database and in `--json`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::GivenUp => "given-up",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Returns the state with this name.
    pub(super) fn read(name: &str) -> Option<Self> {
        [Self::Waiting, Self::Delivered, Self::GivenUp, Self::Withdrawn]
            .into_iter()
            .find(|state| state.as_str() == name)
    }
}

/// The state of an alert when its message was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MessageDetail {
    kinds: Vec<AlertKind>,
    raised: Timestamp,
    count: u32,
    run: Option<RunId>,
    why: String,
}

/// A message and where it stands, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// To whom.
    pub channel: String,
    /// `raised`, `repeated` or `recovered`.
    pub what: String,
    /// When it was made.
    pub made: Timestamp,
    /// Where it is.
    pub state: MessageState,
    /// How often it was tried.
    pub tries: u32,
    /// The earliest time of the next try, while the message waits.
    pub next: Timestamp,
    /// When it no longer waited.
    pub over: Option<Timestamp>,
    /// The error of the last try.
    pub said: String,
}

/// A message to be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id: the same when it is sent once more.
    pub id: MessageId,
    /// Its alert.
    pub alert: AlertId,
    /// To whom.
    pub channel: String,
    /// `raised`, `repeated` or `recovered`.
    pub what: String,
    /// When it was made.
    pub made: Timestamp,
    /// The job's project.
    pub project: ProjectId,
    /// The job.
    pub job: String,
    /// The kinds of alert that the message reports; for a recovery, all that are over.
    pub kinds: Vec<AlertKind>,
    /// Since when.
    pub raised: Timestamp,
    /// How often it has happened.
    pub count: u32,
    /// The last run that it is about.
    pub run: Option<RunId>,
    /// Why; redacted.
    pub why: String,
    /// Which try this is, from 1.
    pub tries: u32,
}

/// The result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The channel took it.
    Delivered,
    /// It did not, and why; redacted.
    Failed(String),
    /// There is nobody any more to take it.
    Withdrawn(String),
}

/// Makes a message to each channel.
pub(super) fn make(
    tx: &Transaction<'_>,
    alert: &AlertId,
    what: MessageKind,
    channels: &[String],
    now: Timestamp,
) -> Result<(), Fault> {
    // A waiting message is older and less complete than this one.
    withdraw(tx, alert, Withdraw::All, now)?;
    let detail = free_json(&detail(tx, std::slice::from_ref(alert))?);
    for channel in channels {
        insert(tx, alert, what.as_str(), channel, &detail, now)?;
    }
    Ok(())
}

/// Makes the messages that alerts of one job are over, to those channels that may have heard of them.
pub(super) fn recovered(
    tx: &Transaction<'_>,
    alerts: &[AlertId],
    channels: &[String],
    now: Timestamp,
) -> Result<(), Fault> {
    for channel in channels {
        let mut heard = Vec::new();
        for alert in alerts {
            let tried = tx.exists(
                "SELECT 1 FROM messages WHERE alert = ?1 AND channel = ?2 AND tries > 0",
                params![alert, channel],
            )?;
            if tried {
                heard.push(alert.clone());
            }
        }
        if let Some(first) = heard.first() {
            let detail = free_json(&detail(tx, &heard)?);
            insert(tx, first, "recovered", channel, &detail, now)?;
        }
    }
    Ok(())
}

fn insert(
    tx: &Transaction<'_>,
    alert: &AlertId,
    what: &str,
    channel: &str,
    detail: &FreeText,
    now: Timestamp,
) -> Result<(), Fault> {
    tx.change(
        "INSERT INTO messages (id, alert, channel, kind, made, detail, state, next)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'waiting', ?5)",
        params![MessageId::new(now), alert, channel, what, millis(now), detail],
    )?;
    Ok(())
}

/// Combines several alerts of one job: the earliest start, the largest count, and the run and
/// reason of the first alert.
fn detail(tx: &Transaction<'_>, alerts: &[AlertId]) -> Result<MessageDetail, Fault> {
    let mut whole: Option<MessageDetail> = None;
    for alert in alerts {
        let sql = "SELECT kind, raised, count, run, why FROM alerts WHERE id = ?1";
        let one = tx.first(sql, [alert], |row| {
            Ok(MessageDetail {
                kinds: vec![row.get(0)?],
                raised: time(row, 1)?,
                count: row.get(2)?,
                run: row.get(3)?,
                why: row.get(4)?,
            })
        })?;
        let one = one.ok_or_else(|| Fault::not_found("alert", alert))?;
        match &mut whole {
            Some(whole) => {
                whole.kinds.extend(one.kinds);
                whole.raised = whole.raised.min(one.raised);
                whole.count = whole.count.max(one.count);
            }
            None => whole = Some(one),
        }
    }
    whole.ok_or_else(|| Fault::nonsense("a message about no alert"))
}

/// Which waiting messages of an alert are withdrawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Withdraw {
    All,
    AllButRecovery,
}

/// Withdraws waiting messages of an alert.
pub(super) fn withdraw(
    tx: &Transaction<'_>,
    alert: &AlertId,
    which: Withdraw,
    now: Timestamp,
) -> Result<(), Fault> {
    tx.change(
        "UPDATE messages SET state = 'withdrawn', ended = ?2
         WHERE alert = ?1 AND state = 'waiting' AND NOT (?3 AND kind = 'recovered')",
        params![alert, millis(now), which == Withdraw::AllButRecovery],
    )?;
    Ok(())
}

impl Store {
    /// Returns whether a message is to be delivered now. It takes one index look-up.
    pub fn messages_due(&self, now: Timestamp) -> Result<bool> {
        let sql = "SELECT 1 FROM messages INDEXED BY messages_waiting
                   WHERE state = 'waiting' AND next <= ?1";
        self.view(|db| db.exists(sql, [millis(now)]))
    }

    /// Takes the next message that is to be sent, not to one of the channels `without` (a project and
    /// a name), and writes the try down: when its process dies it is tried again after the backoff.
    pub fn begin_delivery(
        &mut self,
        without: &[(ProjectId, String)],
        now: Timestamp,
    ) -> Result<Option<Delivery>> {
        self.write(|tx| {
            loop {
                let Some(found) = due(tx, without, now)? else {
                    return Ok(None);
                };
                if found.tries > MOST_TRIES {
                    // The last try was begun and never ended.
                    let error = "its last try was interrupted";
                    settle(tx, &found.id, MessageState::GivenUp, error, now)?;
                    continue;
                }
                let next = next_try(found.tries, now).unwrap_or(now);
                tx.change(
                    "UPDATE messages SET tries = ?2, next = ?3 WHERE id = ?1",
                    params![found.id, found.tries, millis(next)],
                )?;
                return Ok(Some(found));
            }
        })
    }

    /// Writes down what became of a try. One that was withdrawn meanwhile and was delivered is
    /// delivered.
    pub fn end_delivery(
        &mut self,
        message: &MessageId,
        tries: u32,
        tried: &DeliveryResult,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            let waits = |tx: &Transaction<'_>| {
                let sql = "SELECT 1 FROM messages WHERE id = ?1 AND state = 'waiting'";
                tx.exists(sql, [message])
            };
            match (tried, next_try(tries, now)) {
                (DeliveryResult::Delivered, _) => {
                    settle(tx, message, MessageState::Delivered, "", now)
                }
                _ if !waits(tx)? => Ok(()),
                (DeliveryResult::Withdrawn(error), _) => {
                    settle(tx, message, MessageState::Withdrawn, error, now)
                }
                (DeliveryResult::Failed(error), None) => {
                    settle(tx, message, MessageState::GivenUp, error, now)
                }
                (DeliveryResult::Failed(error), Some(next)) => {
                    let sql = "UPDATE messages SET error = ?2, next = ?3 WHERE id = ?1";
                    tx.change(sql, params![message, free(error), millis(next)]).map(drop)
                }
            }
        })
    }

    /// Returns the messages of an alert, oldest first.
    pub fn messages_of(&self, alert: &AlertId) -> Result<Vec<MessageRow>> {
        let sql = "SELECT id, channel, kind, made, state, tries, next, ended, error FROM messages
                   WHERE alert = ?1 ORDER BY rowid";
        self.view(|db| db.all(sql, [alert], message))
    }

    /// Returns the undelivered messages that still matter, by project: those that wait after a
    /// failed try, and those of open alerts that were given up. Each comes with its channel and its
    /// last error.
    pub fn undelivered(&self) -> Result<Vec<(ProjectId, String, u32, String)>> {
        let sql = "SELECT j.project, m.channel, m.error, m.id
                   FROM messages m INDEXED BY messages_waiting JOIN alerts a ON a.id = m.alert
                   JOIN jobs j ON j.id = a.job
                   WHERE m.state = 'waiting' AND m.error <> ''
                   UNION ALL
                   SELECT j.project, m.channel, m.error, m.id
                   FROM messages m INDEXED BY messages_given_up JOIN alerts a ON a.id = m.alert
                   JOIN jobs j ON j.id = a.job
                   WHERE m.state = 'given-up' AND a.ended IS NULL AND a.silenced IS NULL
                   ORDER BY 1, 2, 4";
        let messages: Vec<(ProjectId, String, String)> =
            self.view(|db| db.all(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))))?;
        let mut found: Vec<(ProjectId, String, u32, String)> = Vec::new();
        for (project, channel, error) in messages {
            match found.last_mut() {
                Some(last) if last.0 == project && last.1 == channel => {
                    last.2 += 1;
                    last.3 = error;
                }
                _ => found.push((project, channel, 1, error)),
            }
        }
        Ok(found)
    }
}

/// Returns the next message to send, with the coming try already counted.
fn due(
    tx: &Transaction<'_>,
    without: &[(ProjectId, String)],
    now: Timestamp,
) -> Result<Option<Delivery>, Fault> {
    let not: Vec<String> =
        without.iter().map(|(project, channel)| format!("{project} {channel}")).collect();
    tx.first(
        "SELECT m.id, m.alert, m.channel, m.kind, m.made, j.project, j.name, m.detail, m.tries
         FROM messages m INDEXED BY messages_waiting JOIN alerts a ON a.id = m.alert
         JOIN jobs j ON j.id = a.job
         WHERE m.state = 'waiting' AND m.next <= ?1
           AND j.project || ' ' || m.channel NOT IN (SELECT value FROM json_each(?2))
         ORDER BY m.rowid LIMIT 1",
        params![millis(now), to_json(&not)],
        |row| {
            let detail: MessageDetail = json(row, 7)?;
            Ok(Delivery {
                id: row.get(0)?,
                alert: row.get(1)?,
                channel: row.get(2)?,
                what: row.get(3)?,
                made: time(row, 4)?,
                project: row.get(5)?,
                job: row.get(6)?,
                kinds: detail.kinds,
                raised: detail.raised,
                count: detail.count,
                run: detail.run,
                why: detail.why,
                tries: row.get::<_, u32>(8)? + 1,
            })
        },
    )
}

fn settle(
    tx: &Transaction<'_>,
    message: &MessageId,
    state: MessageState,
    error: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let sql = "UPDATE messages SET state = ?2, error = ?3, ended = ?4 WHERE id = ?1";
    tx.change(sql, params![message, state, free(error), millis(now)]).map(drop)
}

fn message(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    Ok(MessageRow {
        id: row.get(0)?,
        channel: row.get(1)?,
        what: row.get(2)?,
        made: time(row, 3)?,
        state: row.get(4)?,
        tries: row.get(5)?,
        next: time(row, 6)?,
        over: time_opt(row, 7)?,
        said: row.get(8)?,
    })
}
