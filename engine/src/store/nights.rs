//! Stores nights. A night is all of a project's work that is due in one window, with one budget and
//! one report.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};

use super::columns::{Query as _, free, millis, time, time_opt};
use super::overview::{LastNight, last_night};
use super::{Fault, Result, RunSummary, Store};
use crate::ids::{OccurrenceId, ProjectId};
use crate::tick::REPORT_JOB;

/// The id of a night's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NightId(pub i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Night {
    pub id: NightId,
    pub project: ProjectId,
    /// The civil date on which the night opened. Later nights on that date have the suffix `-2`,
    /// `-3` and so on.
    pub name: String,
    /// The time at which the night opened.
    pub opens: Timestamp,
    /// The closing time. The night can close earlier (see [`Store::nights_to_close`]).
    pub closes: Timestamp,
    /// The time at which the night closed and its report became due, or `None` while the night is
    /// open.
    pub closed: Option<Timestamp>,
}

impl Night {
    /// Returns the civil date from the night's name, without the suffix.
    pub fn date(&self) -> &str {
        self.name.get(..10).unwrap_or(&self.name)
    }
}

/// The columns for [`night`].
pub(super) const COLUMNS: &str = "n.id, n.project, n.name, n.opens, n.closes, n.closed";

pub(super) fn night(row: &Row<'_>) -> rusqlite::Result<Night> {
    Ok(Night {
        id: row.get(0)?,
        project: row.get(1)?,
        name: row.get(2)?,
        opens: time(row, 3)?,
        closes: time(row, 4)?,
        closed: time_opt(row, 5)?,
    })
}

/// The SQL condition that the occurrence `o` ignores pauses, because the user requested it or
/// started its night. A night that has scheduled runs does not count as started by the user, even
/// if the user requested a run in it.
pub(super) const IGNORES_PAUSES: &str = "(o.origin = 'manual' OR EXISTS (
     SELECT 1 FROM occurrences m WHERE m.night = o.night AND m.origin = 'manual') AND NOT EXISTS (
     SELECT 1 FROM occurrences m WHERE m.night = o.night AND m.origin = 'clock'))";

impl Store {
    /// Opens a night named after `date`. If the project already has a night with that date, a
    /// number is appended to the name.
    pub fn open_night(
        &mut self,
        project: &ProjectId,
        date: &str,
        opens: Timestamp,
        closes: Timestamp,
    ) -> Result<Night> {
        self.write(|tx| open(tx, project, date, opens, closes))
    }

    /// Returns the project's night that is open at `now`, or opens one named after `date`.
    pub fn open_or_join_night(
        &mut self,
        project: &ProjectId,
        date: &str,
        now: Timestamp,
        closes: Timestamp,
    ) -> Result<Night> {
        let id = self.write(|tx| open_or_join(tx, project, date, (now, closes), now))?;
        self.night(id)
    }

    pub fn night(&self, wanted: NightId) -> Result<Night> {
        let sql = format!("SELECT {COLUMNS} FROM nights n WHERE n.id = ?1");
        self.view(|db| {
            let found = db.first(&sql, [wanted], night)?;
            found.ok_or_else(|| Fault::not_found("night", wanted.0))
        })
    }

    /// Returns whether the user requested an occurrence or started its night. Such runs ignore
    /// pauses.
    pub fn ignores_pauses(&self, occurrence: &OccurrenceId) -> Result<bool> {
        let sql = format!("SELECT 1 FROM occurrences o WHERE o.id = ?1 AND {IGNORES_PAUSES}");
        self.view(|db| db.exists(&sql, [occurrence]))
    }

    /// Returns the name of the folder that contains the night's report, or `None` if there is no
    /// report yet.
    pub fn report_folder(&self, night: NightId) -> Result<Option<String>> {
        let sql = "SELECT folder FROM nights WHERE id = ?1";
        Ok(self.view(|db| db.first(sql, [night], |row| row.get(0)))?.flatten())
    }

    /// Returns at most `limit` of a project's nights, newest first.
    pub fn nights(&self, project: &ProjectId, limit: u32) -> Result<Vec<Night>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM nights n WHERE n.project = ?1
             ORDER BY n.opens DESC, n.id DESC LIMIT ?2"
        );
        self.view(|db| db.all(&sql, params![project, limit], night))
    }

    /// Returns the opening time of the project's next night, or `None` if `night` is the newest.
    pub fn next_opening(&self, night: &Night) -> Result<Option<Timestamp>> {
        let sql = "SELECT opens FROM nights WHERE project = ?1 AND opens > ?2 ORDER BY opens";
        let after = params![night.project, millis(night.opens)];
        self.view(|db| db.first(sql, after, |row| time(row, 0)))
    }

    /// Returns when the project's previous night closed, or `None` if `night` is the first.
    pub fn previous_closing(&self, night: &Night) -> Result<Option<Timestamp>> {
        let sql = "SELECT closes FROM nights WHERE project = ?1 AND opens < ?2 ORDER BY opens DESC";
        let before = params![night.project, millis(night.opens)];
        self.view(|db| db.first(sql, before, |row| time(row, 0)))
    }

    /// Returns all of a project's nights, newest first. Each night includes the data from its
    /// report, if there is one.
    pub fn reported_nights(&self, project: &ProjectId) -> Result<Vec<LastNight>> {
        let sql = format!(
            "SELECT {COLUMNS}, n.headline, n.worst, n.folder FROM nights n WHERE n.project = ?1
             ORDER BY n.opens DESC, n.id DESC"
        );
        self.view(|db| db.all(&sql, [project], last_night))
    }

    /// Returns the nights that can close.
    ///
    /// A night can close once its closing time has passed. It can close earlier if it has
    /// occurrences and all of them are settled. If any of them came from the clock, the night first
    /// waits for the project's night jobs that are due before the closing time, except jobs whose
    /// own pause ends after they are due.
    pub fn nights_to_close(&self, now: Timestamp) -> Result<Vec<Night>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM nights n INDEXED BY nights_open
             WHERE n.closed IS NULL AND (n.closes <= ?1 OR
               (EXISTS (SELECT 1 FROM occurrences WHERE night = n.id) AND
                NOT EXISTS (SELECT 1 FROM occurrences WHERE night = n.id AND settled IS NULL) AND
                NOT (EXISTS (SELECT 1 FROM occurrences WHERE night = n.id AND origin = 'clock') AND
                     EXISTS (SELECT 1 FROM jobs j WHERE j.project = n.project AND j.enabled
                               AND j.next_due < n.closes AND j.schedule ->> 'night' IS NOT NULL
                               AND coalesce(j.paused_until, 0) <= j.next_due))))
             ORDER BY n.id"
        );
        self.view(|db| db.all(&sql, [millis(now)], night))
    }
}

/// Stores the data from a night's report for the overview: the headline, and the facts `worst` and
/// `folder`. Does nothing if a fact is missing or if the occurrence's job is not the report job.
pub(super) fn reported(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    summary: &RunSummary,
) -> Result<(), Fault> {
    let fact = |name: &str| summary.facts.get(name).and_then(|it| it.as_str());
    let (Some(worst), Some(folder)) = (fact("worst"), fact("folder")) else {
        return Ok(());
    };
    tx.change(
        "UPDATE nights SET headline = ?2, worst = ?3, folder = ?4 WHERE id =
           (SELECT o.night FROM occurrences o JOIN jobs j ON j.id = o.job
            WHERE o.id = ?1 AND j.name = ?5)",
        params![occurrence, free(&summary.headline), worst, folder, REPORT_JOB],
    )?;
    Ok(())
}

fn open(
    tx: &Transaction<'_>,
    project: &ProjectId,
    date: &str,
    opens: Timestamp,
    closes: Timestamp,
) -> Result<Night, Fault> {
    // Earlier nights of the date may have been pruned, so the number continues after the highest.
    let taken: Option<i64> = tx.value(
        "SELECT max(CASE name WHEN ?2 THEN 1 ELSE cast(substr(name, length(?2) + 2) AS INTEGER) END)
         FROM nights WHERE project = ?1 AND (name = ?2 OR name GLOB ?2 || '-[0-9]*')",
        params![project, date],
    )?;
    let name = match taken {
        None => date.to_owned(),
        Some(highest) => format!("{date}-{}", highest.saturating_add(1)),
    };
    tx.change(
        "INSERT INTO nights (project, name, opens, closes) VALUES (?1, ?2, ?3, ?4)",
        params![project, name, millis(opens), millis(closes)],
    )?;
    let id = NightId(tx.last_insert_rowid());
    // Any existing grant belongs to a deleted night whose id is being reused.
    tx.change("DELETE FROM grants WHERE level = 'night' AND key = ?1", [id.0.to_string()])?;
    Ok(Night { id, project: project.clone(), name, opens, closes, closed: None })
}

/// Returns the id of the project's night that is open at `now`, or opens a night that lasts from
/// `opens` to `closes`. Jobs that are caught up together share a night, although they were due at
/// different times.
pub(super) fn open_or_join(
    tx: &Transaction<'_>,
    project: &ProjectId,
    date: &str,
    (opens, closes): (Timestamp, Timestamp),
    now: Timestamp,
) -> Result<NightId, Fault> {
    let sql = "SELECT id FROM nights WHERE project = ?1 AND closed IS NULL
                 AND opens <= ?2 AND closes > ?2 ORDER BY id DESC LIMIT 1";
    match tx.first(sql, params![project, millis(now)], |row| row.get(0))? {
        Some(night) => Ok(night),
        None => Ok(open(tx, project, date, opens, closes)?.id),
    }
}
