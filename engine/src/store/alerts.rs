//! The rows of news and alerts: written down, digested, silenced, ended, looked at.
//!
//! [`note`] is all that a settlement costs. [`Store::digest`] reads what was noted, decides by
//! [`decide`] and writes alerts and messages, in one transaction, so that news are digested exactly
//! once whoever dies when. Must never deliver anything.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::messages::{self, MessageKind};
use super::{
    Fault, JobId, Result, Store, StoreError, breaker, from_json, id, millis, timestamp,
    timestamp_opt,
};
use crate::admission::stopped;
use crate::alerts::{AlertAction, AlertKind, AlertRules, News, OpenAlert, decide};
use crate::ids::{AlertId, OccurrenceId, ProjectId, RunId};
use crate::outcome::Outcome;

/// How often is looked whether jobs succeed from time to time.
const WATCH: SignedDuration = SignedDuration::from_hours(1);
/// Name of this check among the maintenance tasks of the database.
const WATCHED: &str = "watch";

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    /// Its id.
    pub id: AlertId,
    /// The job's project.
    pub project: ProjectId,
    /// The job.
    pub job: JobId,
    /// Its name.
    pub job_name: String,
    /// The kind of problem.
    pub kind: AlertKind,
    /// When it was raised.
    pub raised: Timestamp,
    /// When it last happened.
    pub last: Timestamp,
    /// How often it has happened.
    pub count: u32,
    /// The last run that it is about.
    pub run: Option<RunId>,
    /// Why, as the last one said; redacted.
    pub why: String,
    /// When the alert was silenced, and by whom.
    pub silenced: Option<(Timestamp, String)>,
    /// When it ended, and how.
    pub ended: Option<(Timestamp, String)>,
}

/// A job with a clock that has not succeeded for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The job.
    pub job: JobId,
    /// Its last success, or since when it is watched.
    pub since: Timestamp,
}

/// Notes an outcome that may be news.
pub(super) fn note(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    run: Option<&RunId>,
    outcome: &Outcome,
) -> Result<(), Fault> {
    if outcome.published() || failed(outcome) || matches!(outcome, Outcome::Missed { .. }) {
        tx.prepare_cached("INSERT INTO news (occurrence, run) VALUES (?1, ?2)")?
            .execute(params![occurrence.as_str(), run.map(RunId::as_str)])?;
    }
    Ok(())
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. })
}

impl Store {
    /// Returns the projects with outcomes that were not digested yet.
    pub fn projects_with_news(&self) -> Result<BTreeSet<ProjectId>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT DISTINCT j.project FROM news n JOIN occurrences o ON o.id = n.occurrence
                 JOIN jobs j ON j.id = o.job",
            )?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            rows.map(|row| id(row?)).collect()
        })
    }

    /// Decides what the news of these projects mean, and forgets the news. How many there were.
    pub fn digest(
        &mut self,
        rules: &BTreeMap<ProjectId, AlertRules>,
        now: Timestamp,
    ) -> Result<u32> {
        self.write(|tx| {
            let mut digested = 0;
            for (project, rules) in rules {
                for item in items(tx, project)? {
                    digest(tx, &item, rules, now)?;
                    tx.prepare_cached("DELETE FROM news WHERE id = ?1")?.execute([item.id])?;
                    digested += 1;
                }
            }
            Ok(digested)
        })
    }

    /// Returns whether the check for jobs that have not succeeded for long is due. It reads one row
    /// by key.
    pub fn watch_due(&self, now: Timestamp) -> Result<bool> {
        let done = self.last_maintenance(WATCHED)?;
        Ok(done.is_none_or(|done| now.duration_since(done).abs() >= WATCH))
    }

    /// Looks which jobs with a clock have not succeeded for longer than their project's rules think
    /// good, and raises alerts of them. A job is watched from when this first finds it with a clock,
    /// enabled and not paused: what was off for a year is not stale when it is switched on.
    pub fn watch(
        &mut self,
        rules: &BTreeMap<ProjectId, AlertRules>,
        now: Timestamp,
    ) -> Result<Vec<Overdue>> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE jobs SET watched_since = CASE
                   WHEN enabled AND next_due IS NOT NULL AND coalesce(paused_until, 0) <= ?1
                     AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                   THEN min(coalesce(watched_since, ?1), ?1) END
                 WHERE watched_since IS NOT NULL OR (enabled AND next_due IS NOT NULL)",
            )?
            .execute([millis(now)])?;
            let mut found = Vec::new();
            let mut statement = tx.prepare_cached(
                "SELECT j.id, j.project, j.name,
                   max(j.watched_since, coalesce((SELECT max(finished) FROM runs INDEXED BY runs_published
                     WHERE job = j.id AND outcome ->> 'outcome' IN ('succeeded', 'degraded')), 0))
                 FROM jobs j WHERE j.watched_since IS NOT NULL",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (job, project, name) =
                    (JobId(row.get(0)?), row.get::<_, String>(1)?, row.get::<_, String>(2)?);
                let since = timestamp(row.get(3)?)?;
                let Some(rules) = rules.get(&id::<ProjectId>(project)?) else {
                    continue;
                };
                let Some(limit) = rules.stale_after(&name) else {
                    continue;
                };
                if now.duration_since(since) <= limit {
                    continue;
                }
                let reported = AlertEvent {
                    run: None,
                    why: format!(
                        "it has not succeeded since {}",
                        since.strftime("%Y-%m-%d %H:%M UTC")
                    ),
                };
                for act in decide(&open(tx, job)?, News::Stale, rules, now) {
                    carry_out(tx, job, act, &reported, rules, now)?;
                }
                found.push(Overdue { job, since });
            }
            tx.prepare_cached(
                "INSERT OR REPLACE INTO maintenance (task, done, detail) VALUES (?1, ?2, '')",
            )?
            .execute(params![WATCHED, millis(now)])?;
            Ok(found)
        })
    }

    /// Alerts, those raised last first: of one project or all, also those that are over or only open
    /// ones.
    pub fn alerts(&self, project: Option<&ProjectId>, over: bool) -> Result<Vec<AlertRow>> {
        self.view(|db| {
            let open = if over { "" } else { "AND a.ended IS NULL" };
            let mut statement = db.prepare_cached(&format!(
                "{ROW} WHERE (?1 IS NULL OR j.project = ?1) {open} ORDER BY a.raised DESC, a.id DESC"
            ))?;
            let rows = statement.query_map([project.map(ProjectId::as_str)], raw)?;
            rows.map(|row| alert(row?)).collect()
        })
    }

    /// Alerts of a project that were raised, happened again or ended in a stretch of time, the oldest
    /// first.
    pub fn alerts_between(
        &self,
        project: &ProjectId,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<AlertRow>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(&format!(
                "{ROW} WHERE j.project = ?1 AND a.raised <= ?3
                   AND (a.last >= ?2 OR a.ended >= ?2) ORDER BY a.raised, a.id"
            ))?;
            let wanted = params![project.as_str(), millis(from), millis(to)];
            let rows = statement.query_map(wanted, raw)?;
            rows.map(|row| alert(row?)).collect()
        })
    }

    /// Returns one alert.
    pub fn alert(&self, wanted: &AlertId) -> Result<AlertRow> {
        self.view(|db| {
            let found = db
                .prepare_cached(&format!("{ROW} WHERE a.id = ?1"))?
                .query_row([wanted.as_str()], raw)
                .optional()?;
            match found {
                Some(found) => alert(found),
                None => Err(Fault::Known(StoreError::NotFound {
                    what: "alert",
                    name: wanted.to_string(),
                })),
            }
        })
    }

    /// Silences an open alert until it has recovered and is raised again. Returns false when the
    /// alert was already over or silenced.
    pub fn silence(&mut self, alert: &AlertId, who: &str, now: Timestamp) -> Result<bool> {
        self.write(|tx| silence(tx, alert, who, now))
    }

    /// Ends the open alerts of a job because a person has fixed it, and returns how many there
    /// were. No message is sent for them, and the next failure raises a new alert. An alert for a
    /// job that has not succeeded for long does not end; it is only silenced.
    pub fn end_alerts(&mut self, job: JobId, who: &str, now: Timestamp) -> Result<u32> {
        self.write(|tx| {
            // The person has seen the outcomes that are not digested yet together with the rest.
            tx.prepare_cached(
                "DELETE FROM news WHERE occurrence IN (SELECT o.id FROM news n
                   JOIN occurrences o ON o.id = n.occurrence WHERE o.job = ?1)",
            )?
            .execute([job.0])?;
            let mut ended = 0;
            for (alert, kind) in open_ids(tx, job)? {
                if kind == AlertKind::Stale {
                    ended += u32::from(silence(tx, &alert, who, now)?);
                } else {
                    end(tx, &alert, who, now)?;
                    messages::withdraw(tx, &alert, false, now)?;
                    ended += 1;
                }
            }
            Ok(ended)
        })
    }

    /// Deletes alerts that ended before a given time, and their messages.
    pub fn forget_alerts(&mut self, before: Timestamp) -> Result<usize> {
        self.write(|tx| {
            Ok(tx
                .prepare_cached("DELETE FROM alerts WHERE ended IS NOT NULL AND ended < ?1")?
                .execute([millis(before)])?)
        })
    }
}

/// A piece of news.
struct NewsItem {
    id: i64,
    job: JobId,
    run: Option<RunId>,
    manual: bool,
    outcome: Outcome,
}

fn items(db: &Connection, project: &ProjectId) -> Result<Vec<NewsItem>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT n.id, o.job, n.run, o.origin = 'manual' AND o.night IS NULL, o.outcome
         FROM news n JOIN occurrences o ON o.id = n.occurrence JOIN jobs j ON j.id = o.job
         WHERE j.project = ?1 ORDER BY n.id",
    )?;
    let rows = statement.query_map([project.as_str()], |row| {
        Ok((
            row.get(0)?,
            row.get(1)?,
            row.get::<_, Option<String>>(2)?,
            row.get(3)?,
            row.get::<_, Option<String>>(4)?,
        ))
    })?;
    let mut items = Vec::new();
    for row in rows {
        let (number, job, run, manual, outcome) = row?;
        // One that was opened again meanwhile will be news again.
        let outcome = outcome.unwrap_or_else(|| r#"{"outcome":"skipped","why":""}"#.to_owned());
        items.push(NewsItem {
            id: number,
            job: JobId(job),
            run: run.map(id).transpose()?,
            manual,
            outcome: from_json(&outcome)?,
        });
    }
    Ok(items)
}

/// The last event of an alert.
struct AlertEvent {
    run: Option<RunId>,
    why: String,
}

fn digest(
    tx: &Transaction<'_>,
    item: &NewsItem,
    rules: &AlertRules,
    now: Timestamp,
) -> Result<(), Fault> {
    let news = match &item.outcome {
        outcome if outcome.published() => News::Placed,
        Outcome::Missed { .. } => News::Missed,
        outcome if failed(outcome) => {
            News::Failed { manual: item.manual, stopped: stopped(breaker::streak(tx, item.job)?) }
        }
        _ => return Ok(()),
    };
    let reported = AlertEvent {
        run: item.run.clone(),
        why: match &item.outcome {
            Outcome::Missed { first, last, count, why } if *count > 1 => {
                format!("{count} times from {first} to {last}: {why}")
            }
            Outcome::Missed { first, why, .. } => format!("{first}: {why}"),
            outcome => outcome.to_string(),
        },
    };
    let mut over = Vec::new();
    for act in decide(&open(tx, item.job)?, news, rules, now) {
        over.extend(carry_out(tx, item.job, act, &reported, rules, now)?);
    }
    // One message reports all alerts that are over.
    messages::recovered(tx, &over, &rules.channels, now)
}

/// Writes a decided action to the database. Returns the alert that is over and is to be reported,
/// if there is one.
fn carry_out(
    tx: &Transaction<'_>,
    job: JobId,
    act: AlertAction,
    reported: &AlertEvent,
    rules: &AlertRules,
    now: Timestamp,
) -> Result<Option<AlertId>, Fault> {
    let run = reported.run.as_ref().map(RunId::as_str);
    match act {
        AlertAction::Raise(kind) => {
            let alert = AlertId::new(now);
            tx.prepare_cached(
                "INSERT INTO alerts (id, job, kind, raised, last, notified, count, run, why)
                 VALUES (?1, ?2, ?3, ?4, ?4, ?4, 1, ?5, ?6)",
            )?
            .execute(params![
                alert.as_str(),
                job.0,
                kind.as_str(),
                millis(now),
                run,
                reported.why
            ])?;
            messages::make(tx, &alert, MessageKind::Raised, &rules.channels, now)?;
        }
        AlertAction::Count { kind, tell } => {
            let alert: String = tx
                .prepare_cached(
                    "UPDATE alerts SET count = count + 1, last = ?3, run = coalesce(?4, run), why = ?5,
                       notified = CASE WHEN ?6 THEN ?3 ELSE notified END
                     WHERE job = ?1 AND kind = ?2 AND ended IS NULL RETURNING id",
                )?
                .query_row(
                    params![job.0, kind.as_str(), millis(now), run, reported.why, tell],
                    |row| row.get(0),
                )?;
            if tell {
                let alert: AlertId = id(alert)?;
                messages::make(tx, &alert, MessageKind::Repeated, &rules.channels, now)?;
            }
        }
        AlertAction::End { kind, tell } => {
            for (alert, open) in open_ids(tx, job)? {
                if open == kind {
                    end(tx, &alert, "recovered", now)?;
                    messages::withdraw(tx, &alert, tell, now)?;
                    return Ok(tell.then_some(alert));
                }
            }
        }
    }
    Ok(None)
}

fn end(tx: &Transaction<'_>, alert: &AlertId, how: &str, now: Timestamp) -> Result<(), Fault> {
    tx.prepare_cached("UPDATE alerts SET ended = ?2, ending = ?3 WHERE id = ?1")?
        .execute(params![alert.as_str(), millis(now), how])?;
    Ok(())
}

fn silence(
    tx: &Transaction<'_>,
    alert: &AlertId,
    who: &str,
    now: Timestamp,
) -> Result<bool, Fault> {
    let done = tx
        .prepare_cached(
            "UPDATE alerts SET silenced = ?2, silenced_by = ?3
             WHERE id = ?1 AND silenced IS NULL AND ended IS NULL",
        )?
        .execute(params![alert.as_str(), millis(now), who])?;
    if done > 0 {
        messages::withdraw(tx, alert, false, now)?;
    }
    Ok(done > 0)
}

fn open(db: &Connection, job: JobId) -> Result<Vec<OpenAlert>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT kind, notified, silenced IS NOT NULL FROM alerts
         WHERE job = ?1 AND ended IS NULL ORDER BY raised, id",
    )?;
    let rows = statement
        .query_map([job.0], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))?;
    rows.map(|row| {
        let (word, reported, silenced) = row?;
        Ok(OpenAlert { kind: kind(&word)?, reported: timestamp(reported)?, silenced })
    })
    .collect()
}

fn open_ids(db: &Connection, job: JobId) -> Result<Vec<(AlertId, AlertKind)>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT id, kind FROM alerts WHERE job = ?1 AND ended IS NULL ORDER BY raised, id",
    )?;
    let rows = statement
        .query_map([job.0], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (alert, word) = row?;
        Ok((id(alert)?, kind(&word)?))
    })
    .collect()
}

pub(super) fn kind(word: &str) -> Result<AlertKind, Fault> {
    AlertKind::read(word).ok_or_else(|| Fault::Nonsense(format!("an alert of kind {word:?}")))
}

const ROW: &str = "SELECT a.id, j.project, a.job, j.name, a.kind, a.raised, a.last, a.count, a.run,
    a.why, a.silenced, a.silenced_by, a.ended, a.ending FROM alerts a JOIN jobs j ON j.id = a.job";

/// The columns of [`ROW`].
type AlertColumns = (
    (String, String, i64, String, String),
    (i64, i64, i64, Option<String>, String),
    (Option<i64>, Option<String>, Option<i64>, Option<String>),
);

fn raw(row: &Row<'_>) -> rusqlite::Result<AlertColumns> {
    Ok((
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?),
        (row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?),
        (row.get(10)?, row.get(11)?, row.get(12)?, row.get(13)?),
    ))
}

fn alert(raw: AlertColumns) -> Result<AlertRow, Fault> {
    let ((alert, project, job, job_name, word), (raised, last, count, run, why), ends) = raw;
    let (silenced, silenced_by, ended, ending) = ends;
    Ok(AlertRow {
        id: id(alert)?,
        project: id(project)?,
        job: JobId(job),
        job_name,
        kind: kind(&word)?,
        raised: timestamp(raised)?,
        last: timestamp(last)?,
        count: u32::try_from(count).unwrap_or(u32::MAX),
        run: run.map(id).transpose()?,
        why,
        silenced: timestamp_opt(silenced)?.zip(silenced_by),
        ended: timestamp_opt(ended)?.zip(ending),
    })
}
