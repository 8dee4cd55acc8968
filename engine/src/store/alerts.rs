//! Reads and writes the news and alert rows.
//!
//! Settling an occurrence only adds a news row with [`note`]. [`Store::digest`] reads these rows,
//! decides with [`decide`], and writes alerts and messages, all in one transaction. Each row is
//! therefore digested exactly once, even if a process dies. This module must never deliver a
//! message.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};

use super::columns::{Query as _, free, json_opt, millis, time, time_opt};
use super::maintenance::{self, Task};
use super::messages::{self, MessageKind, Withdraw};
use super::{Fault, JobId, Result, Store, breaker};
use crate::admission::stopped;
use crate::alerts::{AlertAction, AlertKind, AlertRules, News, OpenAlert, decide};
use crate::ids::{AlertId, OccurrenceId, ProjectId, RunId};
use crate::outcome::{Outcome, SkipReason};

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    pub id: AlertId,
    pub project: ProjectId,
    pub job: JobId,
    /// The name of the job.
    pub job_name: String,
    /// The kind of problem.
    pub kind: AlertKind,
    /// The time at which the alert was raised.
    pub raised: Timestamp,
    /// The time at which the problem last occurred.
    pub last: Timestamp,
    /// The number of times that the problem has occurred.
    pub count: u32,
    /// The last run affected by the problem, if the problem has affected any run.
    pub run: Option<RunId>,
    /// The redacted reason for the most recent occurrence of the problem.
    pub why: String,
    /// When the alert was silenced and by whom. `None` if it has not been silenced.
    pub silenced: Option<(Timestamp, String)>,
    /// When the alert ended, and how. `None` if it is open.
    pub ended: Option<(Timestamp, AlertEnd)>,
}

/// How an alert ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertEnd {
    /// The problem has been resolved.
    Recovered,
    /// Someone acknowledged the alert.
    Acknowledged { by: String },
}

/// The string stored in the database for [`AlertEnd::Recovered`].
const RECOVERED: &str = "recovered";

impl AlertEnd {
    /// Returns `recovered`, or the name of the person who acknowledged the alert.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Recovered => RECOVERED,
            Self::Acknowledged { by } => by,
        }
    }

    fn of(stored: String) -> Self {
        if stored == RECOVERED { Self::Recovered } else { Self::Acknowledged { by: stored } }
    }
}

/// A scheduled job that has not succeeded for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    pub job: JobId,
    /// The time of the job's last success or the time at which watching started, whichever is
    /// later.
    pub since: Timestamp,
}

/// A problem that a tick found and that does not concern a job's runs: silent hosts of a fleet, or
/// critical events of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProblem {
    /// The job that represents the fleet ([`Store::job_of_fleet`]) or the project
    /// ([`Store::job_of_events`]).
    pub job: JobId,
    pub project: ProjectId,
    /// The time at which the most recent part of the problem began, for example the last time at
    /// which a host became silent.
    pub since: Timestamp,
    /// Describes the hosts or the events.
    pub why: String,
}

/// Adds a news row for an outcome that may affect alerts. Other outcomes are ignored.
pub(super) fn note(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    run: Option<&RunId>,
    outcome: &Outcome,
) -> Result<(), Fault> {
    if outcome.published() || failed(outcome) || matches!(outcome, Outcome::Missed { .. }) {
        tx.change("INSERT INTO news (occurrence, run) VALUES (?1, ?2)", params![occurrence, run])?;
    }
    Ok(())
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. })
}

impl Store {
    /// Returns the projects that have news.
    pub fn projects_with_news(&self) -> Result<BTreeSet<ProjectId>> {
        let sql = "SELECT DISTINCT j.project FROM news n JOIN occurrences o ON o.id = n.occurrence
                   JOIN jobs j ON j.id = o.job";
        Ok(self.view(|db| db.values(sql, []))?.into_iter().collect())
    }

    /// Applies the news of these projects to their alerts and deletes the news. Returns the number
    /// of deleted news rows.
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
                    tx.change("DELETE FROM news WHERE id = ?1", [item.id])?;
                    digested += 1;
                }
            }
            Ok(digested)
        })
    }

    /// Adds a news row for a run that was deferred because of a problem that the user must fix. The
    /// caller decides after how many such deferrals in a row this is necessary. Does nothing if the
    /// run's occurrence already has a news row.
    pub fn note_blocked(&mut self, run: &RunId) -> Result<()> {
        let sql = "INSERT INTO news (occurrence, run)
                   SELECT occurrence, id FROM runs r WHERE id = ?1 AND NOT EXISTS
                     (SELECT 1 FROM news WHERE occurrence = r.occurrence)";
        self.write(|tx| tx.change(sql, [run]).map(drop))
    }

    /// Raises alerts for scheduled jobs that have not succeeded within the time allowed by their
    /// project's rules, and returns these jobs. Watching starts when a call finds the job enabled,
    /// scheduled and not paused. Therefore, a job that is enabled again after a year is not
    /// immediately stale.
    pub fn watch(
        &mut self,
        rules: &BTreeMap<ProjectId, AlertRules>,
        now: Timestamp,
    ) -> Result<Vec<Overdue>> {
        self.write(|tx| {
            tx.change(
                "UPDATE jobs SET watched_since = CASE
                   WHEN enabled AND next_due IS NOT NULL AND coalesce(paused_until, 0) <= ?1
                     AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                   THEN min(coalesce(watched_since, ?1), ?1) END
                 WHERE watched_since IS NOT NULL OR (enabled AND next_due IS NOT NULL)",
                [millis(now)],
            )?;
            let watched: Vec<(JobId, ProjectId, String, Timestamp)> = tx.all(
                "SELECT j.id, j.project, j.name,
                   max(j.watched_since, coalesce((SELECT max(finished) FROM runs INDEXED BY runs_published
                     WHERE job = j.id AND outcome ->> 'outcome' IN ('succeeded', 'degraded')), 0))
                 FROM jobs j WHERE j.watched_since IS NOT NULL",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, time(row, 3)?)),
            )?;
            let mut found = Vec::new();
            for (job, project, name, since) in watched {
                let Some(rules) = rules.get(&project) else {
                    continue;
                };
                if rules.stale_after(&name).is_none_or(|limit| now.duration_since(since) <= limit) {
                    continue;
                }
                let why = format!("it has not succeeded since {}", minute(since));
                let event = AlertEvent { job, run: None, why };
                for act in decide(&open(tx, job)?, News::Stale, rules, now) {
                    carry_out(tx, act, &event, rules, now)?;
                }
                found.push(Overdue { job, since });
            }
            maintenance::record(tx, Task::Watch, "", now)?;
            Ok(found)
        })
    }

    /// Raises or continues the alerts for the problems in `found`, which are of the kind `kind` and
    /// do not concern runs. Ends the open alerts of this kind for all other jobs.
    pub fn watch_problems(
        &mut self,
        kind: AlertKind,
        found: &[FoundProblem],
        rules: &BTreeMap<ProjectId, AlertRules>,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            let sql = "SELECT a.job, j.project FROM alerts a JOIN jobs j ON j.id = a.job
                       WHERE a.kind = ?1 AND a.ended IS NULL";
            let known: Vec<(JobId, ProjectId)> = tx.all(sql, [kind], |row| row.try_into())?;
            let usual = AlertRules::default();
            for (job, project) in known {
                if found.iter().any(|one| one.job == job) {
                    continue;
                }
                let rules = rules.get(&project).unwrap_or(&usual);
                let event = AlertEvent { job, run: None, why: String::new() };
                for act in decide(&open(tx, job)?, News::Gone(kind), rules, now) {
                    let over = carry_out(tx, act, &event, rules, now)?;
                    messages::recovered(tx, over.as_slice(), &rules.channels, now)?;
                }
            }
            for one in found {
                let Some(rules) = rules.get(&one.project) else { continue };
                let event = AlertEvent { job: one.job, run: None, why: one.why.clone() };
                let news = News::Found { kind, since: one.since };
                for act in decide(&open(tx, one.job)?, news, rules, now) {
                    carry_out(tx, act, &event, rules, now)?;
                }
            }
            Ok(())
        })
    }

    /// Returns the job that represents a fleet in alerts: the fleet's job on this host with an open
    /// alert about silent hosts, or otherwise its first enabled job. Returns `None` if there is no
    /// such job.
    pub fn job_of_fleet(&self, fleet: &str) -> Result<Option<(JobId, ProjectId)>> {
        let sql = "SELECT j.id, j.project FROM jobs j
                   WHERE j.policy ->> '$.fleet.name' = ?1 AND (j.enabled OR
                     EXISTS (SELECT 1 FROM alerts a
                       WHERE a.job = j.id AND a.kind = ?2 AND a.ended IS NULL)) ORDER BY
                     NOT EXISTS (SELECT 1 FROM alerts a
                       WHERE a.job = j.id AND a.kind = ?2 AND a.ended IS NULL), j.id LIMIT 1";
        self.view(|db| db.first(sql, params![fleet, AlertKind::SilentHost], |row| row.try_into()))
    }

    /// Returns the job that represents a project's critical events in alerts: the job with an open
    /// alert about such events, or otherwise a curator job, or otherwise any other job. Among
    /// equally suitable jobs, enabled jobs come first. Returns `None` if the project has no job.
    pub fn job_of_events(&self, project: &ProjectId) -> Result<Option<JobId>> {
        let sql = "SELECT j.id FROM jobs j WHERE j.project = ?1 ORDER BY
                     NOT EXISTS (SELECT 1 FROM alerts a
                       WHERE a.job = j.id AND a.kind = ?2 AND a.ended IS NULL),
                     j.kind <> 'curator', NOT j.enabled, j.id LIMIT 1";
        self.view(|db| db.first(sql, params![project, AlertKind::CriticalEvent], |row| row.get(0)))
    }

    /// Returns the alerts of one project or of all projects, most recently raised first.
    pub fn alerts(
        &self,
        project: Option<&ProjectId>,
        selection: AlertSelection,
    ) -> Result<Vec<AlertRow>> {
        let open = match selection {
            AlertSelection::All => "",
            AlertSelection::Open => "AND a.ended IS NULL",
        };
        let sql = format!(
            "{ROW} WHERE (?1 IS NULL OR j.project = ?1) {open} ORDER BY a.raised DESC, a.id DESC"
        );
        self.view(|db| db.all(&sql, [project], alert))
    }

    /// Returns the project's alerts that were raised at or before `to`, and that ended, or whose
    /// problem last occurred, at or after `from`. The oldest alerts come first.
    pub fn alerts_between(
        &self,
        project: &ProjectId,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<AlertRow>> {
        let sql = format!(
            "{ROW} WHERE j.project = ?1 AND a.raised <= ?3 AND (a.last >= ?2 OR a.ended >= ?2)
             ORDER BY a.raised, a.id"
        );
        self.view(|db| db.all(&sql, params![project, millis(from), millis(to)], alert))
    }

    pub fn alert(&self, wanted: &AlertId) -> Result<AlertRow> {
        self.view(|db| {
            let found = db.first(&format!("{ROW} WHERE a.id = ?1"), [wanted], alert)?;
            found.ok_or_else(|| Fault::not_found("alert", wanted))
        })
    }

    /// Silences an open alert, so that no more messages about the alert are sent. Returns `false`
    /// if the alert has ended or is already silenced.
    pub fn silence(&mut self, alert: &AlertId, who: &str, now: Timestamp) -> Result<bool> {
        self.write(|tx| silence(tx, alert, who, now))
    }

    /// Ends a job's open alerts after the user has fixed the job. No message is sent, and the next
    /// failure raises a new alert. An alert about a stale job, a silent host or a critical event is
    /// only silenced, because the problem persists. Returns the number of alerts that were ended or
    /// silenced.
    pub fn end_alerts(&mut self, job: JobId, who: &str, now: Timestamp) -> Result<u32> {
        self.write(|tx| {
            // Outcomes that have not been digested yet are acknowledged as well.
            tx.change(
                "DELETE FROM news WHERE occurrence IN (SELECT o.id FROM news n
                   JOIN occurrences o ON o.id = n.occurrence WHERE o.job = ?1)",
                [job],
            )?;
            let mut ended = 0;
            for (alert, kind) in open_ids(tx, job)? {
                if kind == AlertKind::Stale || !kind.is_of_runs() {
                    ended += u32::from(silence(tx, &alert, who, now)?);
                } else {
                    end(tx, &alert, &AlertEnd::Acknowledged { by: who.to_owned() }, now)?;
                    messages::withdraw(tx, &alert, Withdraw::All, now)?;
                    ended += 1;
                }
            }
            Ok(ended)
        })
    }
}

/// Selects the alerts to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertSelection {
    /// All alerts, including ended alerts.
    All,
    /// Only open alerts.
    Open,
}

/// A news row with the data needed to digest it.
struct NewsItem {
    id: i64,
    job: JobId,
    run: Option<RunId>,
    manual: bool,
    /// Whether schedules may start the job. Jobs for manual edits are disabled.
    enabled: bool,
    outcome: Outcome,
}

fn items(db: &Connection, project: &ProjectId) -> Result<Vec<NewsItem>, Fault> {
    db.all(
        "SELECT n.id, o.job, n.run, o.origin = 'manual' AND o.night IS NULL, j.enabled,
           coalesce(o.outcome, iif(r.outcome ->> 'outcome' = 'deferred', r.outcome, NULL))
         FROM news n JOIN occurrences o ON o.id = n.occurrence JOIN jobs j ON j.id = o.job
           LEFT JOIN runs r ON r.id = n.run
         WHERE j.project = ?1 ORDER BY n.id",
        [project],
        |row| {
            // A reopened occurrence has no outcome, so this row is ignored. The next outcome of the
            // occurrence adds another row.
            let reopened = Outcome::skipped(SkipReason::Idle, "");
            Ok(NewsItem {
                id: row.get(0)?,
                job: row.get(1)?,
                run: row.get(2)?,
                manual: row.get(3)?,
                enabled: row.get(4)?,
                outcome: json_opt(row, 5)?.unwrap_or(reopened),
            })
        },
    )
}

/// Formats a time in UTC for users, without seconds.
fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// The event for which an alert is raised or counted.
struct AlertEvent {
    job: JobId,
    run: Option<RunId>,
    why: String,
}

fn digest(
    tx: &Transaction<'_>,
    item: &NewsItem,
    rules: &AlertRules,
    now: Timestamp,
) -> Result<(), Fault> {
    let stopped = item.enabled && stopped(breaker::streak(tx, item.job, None)?);
    let news = match &item.outcome {
        outcome if outcome.published() => News::Placed,
        Outcome::Missed { .. } => News::Missed { stopped },
        outcome if failed(outcome) => News::Failed { manual: item.manual, stopped },
        // The schedule does not start a stopped job, and the alert about the circuit breaker
        // already reports this.
        Outcome::Deferred { .. } if !stopped => News::Blocked,
        _ => return Ok(()),
    };
    let reported = AlertEvent {
        job: item.job,
        run: item.run.clone(),
        why: match &item.outcome {
            Outcome::Missed { first, last, count, why } if *count > 1 => {
                format!("{count} times from {} to {}: {why}", minute(*first), minute(*last))
            }
            Outcome::Missed { first, why, .. } => format!("due {}: {why}", minute(*first)),
            Outcome::Deferred { why, .. } => format!("it waits: {why}"),
            outcome => outcome.to_string(),
        },
    };
    let mut over = Vec::new();
    for act in decide(&open(tx, item.job)?, news, rules, now) {
        over.extend(carry_out(tx, act, &reported, rules, now)?);
    }
    // One message per channel reports all alerts that end with this row.
    messages::recovered(tx, &over, &rules.channels, now)
}

/// Writes one action to the database. Returns the alert if the action has ended the alert and users
/// must be notified of the recovery.
fn carry_out(
    tx: &Transaction<'_>,
    act: AlertAction,
    reported: &AlertEvent,
    rules: &AlertRules,
    now: Timestamp,
) -> Result<Option<AlertId>, Fault> {
    let job = reported.job;
    match act {
        AlertAction::Raise(kind) => {
            let alert = AlertId::new(now);
            tx.change(
                "INSERT INTO alerts (id, job, kind, raised, last, notified, count, run, why)
                 VALUES (?1, ?2, ?3, ?4, ?4, ?4, 1, ?5, ?6)",
                params![alert, job, kind, millis(now), reported.run, free(&reported.why)],
            )?;
            messages::make(tx, &alert, MessageKind::Raised, &rules.channels, now)?;
        }
        AlertAction::Count { kind, tell } => {
            let alert: AlertId = tx.value(
                "UPDATE alerts SET count = count + 1, last = ?3, run = coalesce(?4, run), why = ?5,
                   notified = CASE WHEN ?6 THEN ?3 ELSE notified END
                 WHERE job = ?1 AND kind = ?2 AND ended IS NULL RETURNING id",
                params![job, kind, millis(now), reported.run, free(&reported.why), tell],
            )?;
            if tell {
                messages::make(tx, &alert, MessageKind::Repeated, &rules.channels, now)?;
            }
        }
        AlertAction::End { kind, tell } => {
            for (alert, open) in open_ids(tx, job)? {
                if open == kind {
                    end(tx, &alert, &AlertEnd::Recovered, now)?;
                    let which = if tell { Withdraw::AllButRecovery } else { Withdraw::All };
                    messages::withdraw(tx, &alert, which, now)?;
                    return Ok(tell.then_some(alert));
                }
            }
        }
    }
    Ok(None)
}

fn end(tx: &Transaction<'_>, alert: &AlertId, how: &AlertEnd, now: Timestamp) -> Result<(), Fault> {
    let sql = "UPDATE alerts SET ended = ?2, ending = ?3 WHERE id = ?1";
    tx.change(sql, params![alert, millis(now), how.as_str()])?;
    Ok(())
}

fn silence(
    tx: &Transaction<'_>,
    alert: &AlertId,
    who: &str,
    now: Timestamp,
) -> Result<bool, Fault> {
    let done = tx.change(
        "UPDATE alerts SET silenced = ?2, silenced_by = ?3
         WHERE id = ?1 AND silenced IS NULL AND ended IS NULL",
        params![alert, millis(now), who],
    )?;
    if done > 0 {
        messages::withdraw(tx, alert, Withdraw::All, now)?;
    }
    Ok(done > 0)
}

fn open(db: &Connection, job: JobId) -> Result<Vec<OpenAlert>, Fault> {
    let sql = "SELECT kind, notified, silenced IS NOT NULL FROM alerts
               WHERE job = ?1 AND ended IS NULL ORDER BY raised, id";
    db.all(sql, [job], |row| {
        Ok(OpenAlert { kind: row.get(0)?, reported: time(row, 1)?, silenced: row.get(2)? })
    })
}

fn open_ids(db: &Connection, job: JobId) -> Result<Vec<(AlertId, AlertKind)>, Fault> {
    let sql = "SELECT id, kind FROM alerts WHERE job = ?1 AND ended IS NULL ORDER BY raised, id";
    db.all(sql, [job], |row| row.try_into())
}

/// The query for [`alert`].
const ROW: &str = "SELECT a.id, j.project, a.job, j.name, a.kind, a.raised, a.last, a.count, a.run,
    a.why, a.silenced, a.silenced_by, a.ended, a.ending FROM alerts a JOIN jobs j ON j.id = a.job";

fn alert(row: &Row<'_>) -> rusqlite::Result<AlertRow> {
    Ok(AlertRow {
        id: row.get(0)?,
        project: row.get(1)?,
        job: row.get(2)?,
        job_name: row.get(3)?,
        kind: row.get(4)?,
        raised: time(row, 5)?,
        last: time(row, 6)?,
        count: row.get(7)?,
        run: row.get(8)?,
        why: row.get(9)?,
        silenced: time_opt(row, 10)?.zip(row.get(11)?),
        ended: time_opt(row, 12)?.zip(row.get::<_, Option<String>>(13)?.map(AlertEnd::of)),
    })
}
