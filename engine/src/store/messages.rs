//! The rows of messages, with their channels, delivery attempts and results.
//!
//! An attempt is recorded before it starts, and its result afterwards. If a process dies in
//! between, no message is lost and at most one is sent twice. This module must never depend on how
//! a channel works.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::columns::{Query as _, free, free_json, json, millis, time, time_opt, to_json};
use super::{Fault, Result, Store};
use crate::alerts::{AlertKind, next_try};
use crate::ids::{AlertId, MessageId, ProjectId, RunId};

/// Maximum number of delivery attempts for a message, over about fifteen hours.
pub const MOST_TRIES: u32 = 8;

/// The kind of message about an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(super) enum MessageKind {
    Raised,
    Repeated,
    Recovered,
}

/// The delivery state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum MessageState {
    /// The message has not been delivered yet.
    Waiting,
    /// The channel has accepted the message.
    Delivered,
    /// All delivery attempts failed.
    GivenUp,
    /// The message was no longer needed.
    Withdrawn,
}

/// The state of one or more alerts when the message is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MessageDetail {
    kinds: Vec<AlertKind>,
    raised: Timestamp,
    count: u32,
    run: Option<RunId>,
    why: String,
}

/// A message and its delivery state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub id: MessageId,
    /// The channel's name.
    pub channel: String,
    /// `raised`, `repeated` or `recovered`.
    pub what: String,
    /// The creation time of the message.
    pub made: Timestamp,
    pub state: MessageState,
    /// The number of delivery attempts.
    pub tries: u32,
    /// The earliest time of the next attempt. Meaningful only while the message is waiting.
    pub next: Timestamp,
    /// The time at which the message left the state `Waiting`.
    pub over: Option<Timestamp>,
    /// The error of the last attempt.
    pub said: String,
}

/// A message to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id, which is the same for all attempts.
    pub id: MessageId,
    /// The alert, or the first of several alerts that have ended.
    pub alert: AlertId,
    /// The channel's name.
    pub channel: String,
    /// `raised`, `repeated` or `recovered`.
    pub what: String,
    /// The creation time of the message.
    pub made: Timestamp,
    pub project: ProjectId,
    /// The name of the job.
    pub job: String,
    /// The kinds of alert in the message. A recovery lists all alerts that have ended.
    pub kinds: Vec<AlertKind>,
    /// The time at which the alert was raised.
    pub raised: Timestamp,
    /// Number of times that the problem has occurred.
    pub count: u32,
    /// The last run that had the problem.
    pub run: Option<RunId>,
    /// The redacted reason.
    pub why: String,
    /// The number of this attempt, starting with 1.
    pub tries: u32,
}

/// The result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The channel accepted the message.
    Delivered,
    /// The delivery failed. The text is the redacted reason.
    Failed(String),
    /// The channel no longer exists. The text is the reason.
    Withdrawn(String),
}

/// Creates a message for each channel, and withdraws the alert's waiting messages.
pub(super) fn make(
    tx: &Transaction<'_>,
    alert: &AlertId,
    what: MessageKind,
    channels: &[String],
    now: Timestamp,
) -> Result<(), Fault> {
    // A waiting message is older and less complete than the new one.
    withdraw(tx, alert, Withdraw::All, now)?;
    for channel in channels {
        insert(tx, std::slice::from_ref(alert), what, channel, now)?;
    }
    Ok(())
}

/// Creates the recovery messages of a job's alerts, for the channels that may have received a
/// message about them.
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
        if !heard.is_empty() {
            insert(tx, &heard, MessageKind::Recovered, channel, now)?;
        }
    }
    Ok(())
}

/// Creates a message about one or more alerts of a job.
fn insert(
    tx: &Transaction<'_>,
    alerts: &[AlertId],
    what: MessageKind,
    channel: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let detail = free_json(&detail(tx, alerts)?);
    tx.change(
        "INSERT INTO messages (id, alert, channel, kind, made, detail, state, next)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'waiting', ?5)",
        params![MessageId::new(now), alerts[0], channel, what.into_str(), millis(now), detail],
    )?;
    Ok(())
}

/// Combines several alerts of a job. The result has the earliest start, the largest count, and the
/// run and the reason of the first alert.
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

/// Selects waiting messages to withdraw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Withdraw {
    All,
    AllButRecovery,
}

/// Withdraws an alert's selected waiting messages.
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
    /// Returns whether a message is due for delivery.
    pub fn messages_due(&self, now: Timestamp) -> Result<bool> {
        let sql = "SELECT 1 FROM messages INDEXED BY messages_waiting
                   WHERE state = 'waiting' AND next <= ?1";
        self.view(|db| db.exists(sql, [millis(now)]))
    }

    /// Returns the next message to send and records the attempt. Messages to the channels in
    /// `without`, each a project and a channel's name, are omitted. If the process dies, the
    /// message is sent again after the backoff.
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
                    // The last attempt started, but its result was never recorded.
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

    /// Records the result of an attempt. If a message was withdrawn during its delivery, it still
    /// counts as delivered.
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

    /// Returns an alert's messages, oldest first.
    pub fn messages_of(&self, alert: &AlertId) -> Result<Vec<MessageRow>> {
        let sql = "SELECT id, channel, kind, made, state, tries, next, ended, error FROM messages
                   WHERE alert = ?1 ORDER BY rowid";
        self.view(|db| db.all(sql, [alert], message))
    }

    /// Returns the undelivered messages that still matter: waiting messages with a failed attempt,
    /// and abandoned messages of open alerts. Each entry has a project, a channel, the number of
    /// messages and the last error.
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

/// Returns the next message to send. Its attempt number includes the coming attempt.
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
