//! Nights: all that is due in one window of a project, under one budget, ending in one report.

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::{Fault, Result, RunSummary, Store, id, millis, timestamp, timestamp_opt};
use crate::ids::ProjectId;
use crate::tick::REPORT_JOB;

/// The row number of a night.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NightId(pub i64);

/// A night.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Night {
    /// Its row.
    pub id: NightId,
    /// Its project.
    pub project: ProjectId,
    /// The civil date on which it opened, with `-2`, `-3` … for further ones.
    pub name: String,
    /// When it opened.
    pub opens: Timestamp,
    /// When it closes at the latest.
    pub closes: Timestamp,
    /// When its report became due, if it did.
    pub closed: Option<Timestamp>,
}

const COLUMNS: &str = "id, project, name, opens, closes, closed";

impl Store {
    /// Opens a night named after `date`; the name gets a number when that date has one already.
    pub fn open_night(
        &mut self,
        project: &ProjectId,
        date: &str,
        opens: Timestamp,
        closes: Timestamp,
    ) -> Result<Night> {
        self.write(|tx| open(tx, project, date, opens, closes))
    }

    /// Returns one night.
    pub fn night(&self, wanted: NightId) -> Result<Night> {
        self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM nights WHERE id = ?1");
            night(db.prepare_cached(&sql)?.query_row([wanted.0], raw)?)
        })
    }

    /// Returns the folder of the night's report, as the run that made the report stated it. Returns
    /// `None` while there is no report, and for reports from before this was recorded, which lie in
    /// the folder named after the night.
    pub fn report_folder(&self, night: NightId) -> Result<Option<String>> {
        self.view(|db| {
            Ok(db
                .prepare_cached("SELECT folder FROM nights WHERE id = ?1")?
                .query_row([night.0], |row| row.get(0))
                .optional()?
                .flatten())
        })
    }

    /// Returns the nights of a project, newest first.
    pub fn nights(&self, project: &ProjectId, limit: u32) -> Result<Vec<Night>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM nights WHERE project = ?1 ORDER BY opens DESC, id DESC LIMIT ?2"
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params![project.as_str(), limit], raw)?;
            rows.map(|row| night(row?)).collect()
        })
    }

    /// Nights whose report is not due yet although everything of theirs is settled or their time is
    /// over.
    pub fn nights_to_close(&self, now: Timestamp) -> Result<Vec<Night>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM nights INDEXED BY nights_open WHERE closed IS NULL AND (closes <= ?1 OR
                   (EXISTS (SELECT 1 FROM occurrences WHERE night = nights.id) AND
                    NOT EXISTS (SELECT 1 FROM occurrences WHERE night = nights.id AND settled IS NULL)))
                 ORDER BY id"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([millis(now)], raw)?;
            rows.map(|row| night(row?)).collect()
        })
    }
}

/// Stores in the night's row what an overview of the night shows of its report: the headline, and
/// the facts `worst` and `folder` of the run that made it. Does nothing for a run that made no
/// report.
pub(super) fn reported(
    tx: &Transaction<'_>,
    occurrence: &str,
    summary: &RunSummary,
) -> Result<(), Fault> {
    let fact = |name: &str| summary.facts.get(name).and_then(|it| it.as_str());
    let (Some(worst), Some(folder)) = (fact("worst"), fact("folder")) else {
        return Ok(());
    };
    tx.prepare_cached(
        "UPDATE nights SET headline = ?2, worst = ?3, folder = ?4 WHERE id =
           (SELECT o.night FROM occurrences o JOIN jobs j ON j.id = o.job
            WHERE o.id = ?1 AND j.name = ?5)",
    )?
    .execute(params![occurrence, summary.headline, worst, folder, REPORT_JOB])?;
    Ok(())
}

pub(super) fn open(
    tx: &Transaction<'_>,
    project: &ProjectId,
    date: &str,
    opens: Timestamp,
    closes: Timestamp,
) -> Result<Night, Fault> {
    let taken: i64 = tx.prepare_cached("SELECT count(*) FROM nights WHERE project = ?1 AND (name = ?2 OR name GLOB ?2 || '-[0-9]*')")?.query_row(params![project.as_str(), date],
        |row| row.get(0),
    )?;
    let name = if taken == 0 { date.to_owned() } else { format!("{date}-{}", taken + 1) };
    tx.prepare_cached("INSERT INTO nights (project, name, opens, closes) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![project.as_str(), name, millis(opens), millis(closes)])?;
    let id = NightId(tx.last_insert_rowid());
    // Nothing can be granted to a night before it opens: what is there was for one that is forgotten,
    // whose number this one has been given.
    tx.prepare_cached("DELETE FROM grants WHERE level = 'night' AND key = ?1")?
        .execute([id.0.to_string()])?;
    Ok(Night { id, project: project.clone(), name, opens, closes, closed: None })
}

/// Returns the night of `project` that is open at `opens`, or opens a new one.
pub(super) fn open_or_join(
    tx: &Transaction<'_>,
    project: &ProjectId,
    date: &str,
    opens: Timestamp,
    closes: Timestamp,
) -> Result<NightId, Fault> {
    let open_one = tx.prepare_cached("SELECT id FROM nights WHERE project = ?1 AND closed IS NULL AND opens <= ?2 AND closes > ?2
             ORDER BY id DESC LIMIT 1")?.query_row(params![project.as_str(), millis(opens)],
            |row| row.get(0),
        )
        .optional()?;
    match open_one {
        Some(id) => Ok(NightId(id)),
        None => Ok(open(tx, project, date, opens, closes)?.id),
    }
}

type NightColumns = (i64, String, String, i64, i64, Option<i64>);

fn raw(row: &Row<'_>) -> rusqlite::Result<NightColumns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

fn night((row, project, name, opens, closes, closed): NightColumns) -> Result<Night, Fault> {
    Ok(Night {
        id: NightId(row),
        project: id(project)?,
        name,
        opens: timestamp(opens)?,
        closes: timestamp(closes)?,
        closed: timestamp_opt(closed)?,
    })
}
