//! Stores messages with their channels, delivery attempts and results.
//!
//! An attempt is recorded before it starts, and its result afterwards. If a process dies in
//! between, messages with attempts left are sent again. At most one delivery is repeated. This
//! module must never depend on how a channel works.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::columns::{Query as _, free, free_json, json, millis, time, time_opt, to_json};
use super::{Fault, Result, Store};
use crate::alerts::{AlertKind, AlertRules, next_try};
use crate::ids::{AlertId, MessageId, ProjectId, RunId};

/// Maximum number of delivery attempts for a message, over about fifteen hours.
pub const MOST_TRIES: u32 = 8;

/// Selects the waiting messages that are due at `?1`. A message waits for at most half an hour
/// while a run of its job is in progress, because the run may end the alert. It waits for at most
/// five minutes while other runs of its project are in progress, so that everything that a tick
/// found can be reported together. It also waits until all outcomes of its job have been digested.
const DUE: &str = "m.state = 'waiting' AND m.next <= ?1
     AND NOT (m.made > ?1 - 1800000 AND EXISTS (
       SELECT 1 FROM runs r INDEXED BY runs_open_by_job
       WHERE r.job = a.job AND r.state <> 'settled' AND r.state <> 'queued'))
     AND NOT (m.made > ?1 - 300000 AND EXISTS (
       SELECT 1 FROM jobs own JOIN jobs other ON other.project = own.project
       JOIN runs r INDEXED BY runs_open_by_job ON r.job = other.id
       WHERE own.id = a.job AND r.state <> 'settled' AND r.state <> 'queued'))
     AND NOT EXISTS (SELECT 1 FROM news n JOIN occurrences o ON o.id = n.occurrence
       WHERE o.job = a.job)";

/// The kind of an alert message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(super) enum MessageKind {
    Raised,
    Repeated,
    Recovered,
}

/// The delivery state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum MessageState {
    /// The message has not been delivered yet.
    Waiting,
    /// The channel has accepted the message.
    Delivered,
    /// All delivery attempts failed or were interrupted.
    GivenUp,
    /// The message was no longer needed, or its channel no longer exists.
    Withdrawn,
}

/// The state of one or more alerts when a message about them is created.
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
    /// The time at which the message left the state `Waiting`. `None` if it is still waiting.
    pub over: Option<Timestamp>,
    /// The error from the last attempt or the reason for the withdrawal, or an empty string.
    pub said: String,
}

/// A message to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id, which is the same for all attempts.
    pub id: MessageId,
    /// The alert of the message. A recovery names the first of the alerts that have ended.
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
    /// The time at which the alert, or the earliest of several alerts, was raised.
    pub raised: Timestamp,
    /// The number of times that the problem has occurred. For several alerts, the largest number.
    pub count: u32,
    /// The last run affected by the problem, if the problem has affected any run.
    pub run: Option<RunId>,
    /// The redacted reason.
    pub why: String,
    /// The number of this attempt, starting with 1.
    pub tries: u32,
    /// Other messages for the same channel that are sent together with this one.
    pub more: Vec<Delivery>,
}

/// The result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The channel accepted the message.
    Delivered,
    /// The delivery failed. The string is the redacted reason.
    Failed(String),
    /// The channel no longer exists. The string is the reason.
    Withdrawn(String),
}

/// Withdraws the alert's waiting messages, and creates a message for each channel.
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

/// Creates at most one recovery message per channel for a job's alerts that have ended. The message
/// covers only the alerts about which the channel may have received a message.
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
                "SELECT 1 FROM messages WHERE alert = ?1 AND channel = ?2 AND tries > 0
                   AND (state = 'delivered' OR error = '')",
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

/// Combines several alerts of a job. The result has the kinds of all alerts, the earliest time at
/// which one was raised, the largest count, and the run and the reason of the first alert.
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
    whole.ok_or_else(|| Fault::nonsense("a message without an alert"))
}

/// Selects the waiting messages to withdraw.
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
        let sql = format!(
            "SELECT 1 FROM messages m INDEXED BY messages_waiting
             JOIN alerts a ON a.id = m.alert WHERE {DUE}"
        );
        self.view(|db| db.exists(&sql, [millis(now)]))
    }

    /// Postpones the due messages of channels that may not receive a message yet under their
    /// project's rules. Messages that are postponed together become due together.
    pub fn hold_messages(
        &mut self,
        rules: &BTreeMap<ProjectId, AlertRules>,
        now: Timestamp,
    ) -> Result<()> {
        if !self.messages_due(now)? {
            return Ok(());
        }
        self.write(|tx| {
            let due: Vec<(ProjectId, String)> = tx.all(
                &format!(
                    "SELECT DISTINCT j.project, m.channel FROM messages m INDEXED BY messages_waiting
                     JOIN alerts a ON a.id = m.alert JOIN jobs j ON j.id = a.job WHERE {DUE}"
                ),
                [millis(now)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            for (project, channel) in due {
                let last: Option<Timestamp> = tx
                    .first(
                        "SELECT max(m.ended) FROM messages m JOIN alerts a ON a.id = m.alert
                         JOIN jobs j ON j.id = a.job
                         WHERE j.project = ?1 AND m.channel = ?2 AND m.state = 'delivered'",
                        params![project, channel],
                        |row| time_opt(row, 0),
                    )?
                    .flatten();
                let Some(until) = rules.get(&project).and_then(|it| it.held_until(last, now)) else {
                    continue;
                };
                tx.change(
                    "UPDATE messages SET next = ?4 WHERE state = 'waiting' AND next <= ?3
                       AND channel = ?2 AND alert IN (SELECT a.id FROM alerts a
                         JOIN jobs j ON j.id = a.job WHERE j.project = ?1)",
                    params![project, channel, millis(now), millis(until)],
                )?;
            }
            Ok(())
        })
    }

    /// Returns the next message to send, with all others that are due for its channel, and records
    /// an attempt for each of them. Messages to the channels in `without`, each given as a project
    /// and a name, are omitted. If the process dies, messages with attempts left are sent again
    /// after a backoff.
    pub fn begin_delivery(
        &mut self,
        without: &[(ProjectId, String)],
        now: Timestamp,
    ) -> Result<Option<Delivery>> {
        self.write(|tx| {
            loop {
                let mut found = due(tx, without, now)?.into_iter();
                let Some(mut first) = found.next() else {
                    return Ok(None);
                };
                if !begin(tx, &first, now)? {
                    continue;
                }
                for other in found {
                    if begin(tx, &other, now)? {
                        first.more.push(other);
                    }
                }
                return Ok(Some(first));
            }
        })
    }

    /// Records the result of an attempt. A message that was withdrawn during its delivery is still
    /// recorded as delivered if the channel accepted it.
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

    /// Returns the undelivered messages that the user should know about: waiting messages with a
    /// failed attempt, and given-up messages of open alerts that are not silenced. Each entry has a
    /// project, a channel, the number of messages and the last error.
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

/// Records the start of an attempt. If all attempts have been used, gives the message up and
/// returns `false`.
fn begin(tx: &Transaction<'_>, found: &Delivery, now: Timestamp) -> Result<bool, Fault> {
    if found.tries > MOST_TRIES {
        // The last attempt was started, but its result was never recorded.
        let error = "the last attempt was interrupted";
        settle(tx, &found.id, MessageState::GivenUp, error, now)?;
        return Ok(false);
    }
    let next = next_try(found.tries, now).unwrap_or(now);
    tx.change(
        "UPDATE messages SET tries = ?2, next = ?3 WHERE id = ?1",
        params![found.id, found.tries, millis(next)],
    )?;
    Ok(true)
}

/// Returns all due messages for the channel of the oldest due message, in the order in which they
/// are listed. The attempt counts already include the upcoming attempt.
fn due(
    tx: &Transaction<'_>,
    without: &[(ProjectId, String)],
    now: Timestamp,
) -> Result<Vec<Delivery>, Fault> {
    let not: Vec<String> =
        without.iter().map(|(project, channel)| format!("{project} {channel}")).collect();
    let mut found: Vec<Delivery> = tx.all(
        &format!(
            "SELECT m.id, m.alert, m.channel, m.kind, m.made, j.project, j.name, m.detail, m.tries
             FROM messages m INDEXED BY messages_waiting JOIN alerts a ON a.id = m.alert
             JOIN jobs j ON j.id = a.job
             WHERE {DUE}
               AND j.project || ' ' || m.channel NOT IN (SELECT value FROM json_each(?2))
             ORDER BY m.rowid"
        ),
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
                more: Vec::new(),
            })
        },
    )?;
    if let Some(first) = found.first() {
        let served = (first.project.clone(), first.channel.clone());
        found.retain(|one| (&one.project, &one.channel) == (&served.0, &served.1));
        // Failures are listed before missed scheduled times, and recoveries are listed last.
        found.sort_by_key(|one| {
            let recovered = one.what == <&str>::from(MessageKind::Recovered);
            (recovered, one.kinds.first().copied(), one.job.clone())
        });
    }
    Ok(found)
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
