//! Replaces the database with a backup copy.
//!
//! ```text
//! plan ──> draft from the copy, migrated, with missed times and ended runs recorded ──synced──>
//!   intent written ──> log and file moved aside together ──> draft renamed into place ──>
//!   intent removed
//! ```
//!
//! If the process dies before the intent is written, the old database remains in use. If the
//! process dies later, the next process that opens the database for writing completes the restore.
//! Until then, readers get an error.
//!
//! The copy does not record what happened after it was made. Scheduled times since then are
//! recorded as missed, requested and ready runs are skipped, and running runs are not retried. If
//! the previous database can be read, its pauses are kept, because a restore must not start a job
//! that the user has paused. This module must never delete the previous database.

use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

use super::backup::{BackupCopy, inspect_copy};
use super::columns::{Query as _, json, millis, time};
use super::database_file::{beside, full_check, lock_file, make_private, remove, sync_folder_of};
use super::maintenance::{self, Task};
use super::occurrences::{MissedCause, MissedRow};
use super::restore_loss::{RestoreLoss, since};
use super::{
    Event, Fault, JobId, NewOccurrence, NightId, Origin, Result, StoreError, cannot_write, changes,
    events, format, occurrences, settle, sql_error,
};
use crate::failpoint;
use crate::files::{SMALL, copy_host, open_host, read_host, write_atomic};
use crate::ids::RunId;
use crate::outcome::{Outcome, SkipReason};
use crate::schedule::Schedule;
use crate::tick::{REPORT_JOB, passed_over};

/// Number added to the copy's last change number if the current database does not exist or cannot
/// be read. It should exceed the number of changes since the backup.
const UNKNOWN: i64 = 1_000_000;

/// The plan for a restore.
#[derive(Clone, Debug, PartialEq)]
pub struct RestorePlan {
    /// The checked copy.
    pub copy: BackupCopy,
    /// The path of the database.
    pub store: PathBuf,
    /// The path to which the current database and its log are moved, or `None` if there is no
    /// current database.
    pub keep: Option<PathBuf>,
    /// The records that only the current database contains, or `None` if that database does not
    /// exist or cannot be read.
    pub since: Option<RestoreLoss>,
    /// Whether an earlier restore was interrupted and must be completed first.
    pub unfinished: bool,
}

/// The changes that a restore made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Number of scheduled times that were recorded as missed.
    pub missed: u64,
    /// Number of runs that are requested or ready in the copy. They are skipped.
    pub skipped: u64,
    /// Number of runs that are running in the copy. They are not retried.
    pub ended: u64,
    /// Number of nights that were closed without a report.
    pub nights: u64,
    /// The path to which the previous database and its log were moved, if there was a previous
    /// database.
    pub kept: Option<PathBuf>,
}

/// A restore that must be completed before the database can be opened.
#[derive(Debug, Serialize, Deserialize)]
struct Intent {
    draft: PathBuf,
    keep: PathBuf,
}

fn intent_of(path: &Path) -> PathBuf {
    path.with_extension("restoring")
}

/// Returns whether a restore has written its intent and has not been completed.
pub(super) fn is_half_done(path: &Path) -> bool {
    intent_of(path).exists()
}

/// Checks `copy` and plans its restore to `store`.
///
/// # Errors
/// Returns the errors of [`inspect_copy`].
pub fn plan_restore(store: &Path, copy: &Path, now: Timestamp) -> Result<RestorePlan> {
    let copy = inspect_copy(copy)?;
    // A log without its database is kept, but it contains nothing that could be read.
    let since = store.exists().then(|| since(store, &copy.path, now).ok()).flatten();
    Ok(RestorePlan {
        store: store.to_owned(),
        keep: there(store).then(|| keep(store, now)),
        since,
        copy,
        unfinished: is_half_done(store),
    })
}

/// Returns whether the database, its write-ahead log or the log's index exists.
fn there(store: &Path) -> bool {
    ["", "-wal", "-shm"].iter().any(|ending| beside(store, ending).symlink_metadata().is_ok())
}

/// Returns an unused path for the previous database and its log.
fn keep(store: &Path, now: Timestamp) -> PathBuf {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let names = (0..).map(|n| match n {
        0 => store.with_extension(format!("damaged-{stamp}")),
        n => store.with_extension(format!("damaged-{stamp}-{n}")),
    });
    names.into_iter().find(|name| !there(name)).expect("the numbers do not run out")
}

impl RestorePlan {
    /// Executes the plan.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] while any process has the database open for writing, or
    /// another [`StoreError`] if the copy is not intact or a file cannot be read or written. An
    /// interrupted restore can be repeated.
    pub fn carry_out(&self, now: Timestamp) -> Result<Restored> {
        let path = &self.store;
        let lock = lock_file(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: path.clone() });
            }
            Err(TryLockError::Error(error)) => return Err(cannot_write(path)(error)),
        }
        let mut lost = self.since.clone();
        if is_half_done(path) {
            finish(path)?;
            lost = since(path, &self.copy.path, now).ok();
        }
        let draft = path.with_extension("restored");
        failpoint::before("remove an old draft");
        for ending in ["", "-wal", "-shm", "-journal"] {
            remove(&beside(&draft, ending)).map_err(cannot_write(&draft))?;
        }
        failpoint::before("copy the backup");
        copy_host(&self.copy.path, &draft).map_err(cannot_write(&draft))?;
        let log = beside(&self.copy.path, "-wal");
        if log.exists() {
            copy_host(&log, &beside(&draft, "-wal")).map_err(cannot_write(&draft))?;
        }
        failpoint::before("prepare the draft");
        let mut reported = self.prepare(&draft, lost.as_ref(), now)?;
        failpoint::before("write the intent");
        // A file may have appeared at the planned path, so the path is checked again under the
        // lock.
        let keep = match &self.keep {
            Some(planned) if !there(planned) => planned.clone(),
            _ => keep(path, now),
        };
        reported.kept = there(path).then(|| keep.clone());
        let intent = Intent { draft, keep };
        let text = serde_json::to_vec(&intent)
            .map_err(|_| StoreError::NotText { path: path.to_owned() })?;
        write_atomic(&intent_of(path), &text, 0o600)
            .map_err(|error| cannot_write(&error.path)(error.source))?;
        finish(path)?;
        Ok(reported)
    }

    /// Turns the draft into a complete database in the current format and records the restore in
    /// it.
    fn prepare(
        &self,
        draft: &Path,
        lost: Option<&RestoreLoss>,
        now: Timestamp,
    ) -> Result<Restored> {
        let sql = sql_error(draft);
        make_private(draft).map_err(cannot_write(draft))?;
        let mut db = Connection::open(draft).map_err(&sql)?;
        full_check(&db, draft)?;
        if format::read(&db, draft, format::STEPS)? < format::PRESENT {
            format::migrate(&mut db, draft, format::STEPS)?;
        }
        db.pragma_update(None, "foreign_keys", true).map_err(&sql)?;
        let reported = (|| -> Result<Restored, Fault> {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let reported = self.apply_events(&tx, lost, now)?;
            tx.commit()?;
            Ok(reported)
        })()
        .map_err(|fault| fault.at(draft))?;
        // The draft becomes a single file, regardless of the copy's journal mode.
        db.query_row("PRAGMA journal_mode = delete", [], |_| Ok(())).map_err(&sql)?;
        full_check(&db, draft)?;
        db.close().map_err(|(_, error)| sql(error))?;
        open_host(draft)
            .and_then(|file| file.sync_all())
            .and_then(|()| sync_folder_of(draft))
            .map_err(cannot_write(draft))?;
        Ok(reported)
    }

    fn apply_events(
        &self,
        tx: &Transaction<'_>,
        lost: Option<&RestoreLoss>,
        now: Timestamp,
    ) -> Result<Restored, Fault> {
        let of = match self.copy.made {
            Some(made) => format!("a backup of {}", made.strftime("%Y-%m-%dT%H:%M:%SZ")),
            None => "a backup made at an unknown time".to_owned(),
        };
        let restored = format!("the database was restored from {of}");
        let seen = lost.map_or(changes::last(tx)? + UNKNOWN, |it| it.last_change);
        changes::interrupt(tx, seen)?;
        let mut reported = Restored::default();
        let waited: Vec<RunId> = tx.values(
            "SELECT id FROM runs WHERE state = 'requested'
               OR (state = 'queued' AND waits_for IS NULL AND ready_at <= ?1) ORDER BY rowid",
            [millis(now)],
        )?;
        for run in waited {
            let why = format!(
                "{restored}: the run was waiting then, and it is not known whether it has run since"
            );
            settle::skip(tx, &run, SkipReason::Restored, why, now)?;
            reported.skipped += 1;
        }
        // Recovery completes the publications that these runs recorded. A cancelled run is never
        // retried.
        let why = format!("{restored}: the run was in progress then, and its outcome is not known");
        reported.ended = tx.change(
            "UPDATE runs SET cancel = coalesce(cancel, ?1) WHERE state = 'running'",
            [why],
        )? as u64;
        reported.missed = pass_over(tx, &restored, now)?;
        if let Some(lost) = lost {
            lost.apply_pauses(tx)?;
        }
        reported.nights = close_nights(tx, &restored, now)?;
        maintenance::record(tx, Task::Restore, &self.copy.path.to_string_lossy(), now)?;
        let detail = format!(
            "{restored} ({}): {} scheduled times since then missed, {} waiting runs skipped, {} live runs ended, {} nights \
             closed; spending since then is unknown and not counted",
            self.copy.path.display(),
            reported.missed,
            reported.skipped,
            reported.ended,
            reported.nights
        );
        events::insert(
            tx,
            &Event { at: now, project: None, run: None, kind: "restored".to_owned(), detail },
        )?;
        Ok(reported)
    }
}

/// Records all scheduled times up to `now` as missed, because their runs may already have taken
/// place. Returns the number of these scheduled times.
fn pass_over(tx: &Transaction<'_>, why: &str, now: Timestamp) -> Result<u64, Fault> {
    let jobs: Vec<(JobId, Schedule, Timestamp)> = tx.all(
        "SELECT id, schedule, watermark FROM jobs WHERE enabled AND next_due IS NOT NULL",
        [],
        |row| Ok((row.get(0)?, json(row, 1)?, time(row, 2)?)),
    )?;
    let mut count = 0;
    for (job, schedule, watermark) in jobs {
        // An unknown time zone is ignored here, because every tick reports it.
        let Ok((missed, due)) = passed_over(&schedule, watermark, now) else {
            continue;
        };
        if let Some(missed) = missed {
            count += missed.count;
            let row =
                MissedRow { job, night: None, cause: MissedCause::Problem(why), stretch: &missed };
            occurrences::missed(tx, &row, now)?;
        }
        tx.change(
            "UPDATE jobs SET watermark = ?2, next_due = ?3 WHERE id = ?1",
            params![job, millis(due.watermark), due.next.map(millis)],
        )?;
    }
    Ok(count)
}

/// Closes the nights whose closing time has passed. Their reports are not created again, because
/// any existing reports contain more data than the copy.
fn close_nights(tx: &Transaction<'_>, why: &str, now: Timestamp) -> Result<u64, Fault> {
    let sql = "SELECT id, project FROM nights WHERE closed IS NULL AND closes <= ?1";
    let over: Vec<(NightId, String)> = tx.all(sql, [millis(now)], |row| row.try_into())?;
    for (night, project) in &over {
        tx.change("UPDATE nights SET closed = ?2 WHERE id = ?1", params![night, millis(now)])?;
        let sql = "SELECT id FROM jobs WHERE project = ?1 AND name = ?2";
        let report: Option<JobId> =
            tx.first(sql, params![project, REPORT_JOB], |row| row.get(0))?;
        if let Some(report) = report {
            let new = NewOccurrence {
                night: Some(*night),
                origin: Origin::Event,
                ..NewOccurrence::manual(report, format!("night-{}", night.0), now)
            };
            let why = format!("{why}: the night had ended by then");
            settle::skipped(tx, &new, Outcome::skipped(SkipReason::Restored, why), now)?;
        }
    }
    Ok(over.len() as u64)
}

/// Moves the files of a restore whose draft is complete. The caller must hold the database's lock
/// exclusively. An interrupted call can be repeated.
pub(super) fn finish(path: &Path) -> Result<()> {
    let intent = intent_of(path);
    let text = read_host(&intent, SMALL).map_err(cannot_write(&intent))?;
    let Intent { draft, keep } = serde_json::from_slice(&text)
        .map_err(|error| cannot_write(&intent)(io::Error::other(error.to_string())))?;
    if draft.exists() {
        for ending in ["-wal", "-shm", ""] {
            failpoint::before("move a file of the old database aside");
            match fs::rename(beside(path, ending), beside(&keep, ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot_write(path)(error));
                }
                _ => {}
            }
        }
        failpoint::before("put the draft in place");
        fs::rename(&draft, path).map_err(cannot_write(path))?;
        sync_folder_of(path).map_err(cannot_write(path))?;
    }
    failpoint::before("remove the intent");
    remove(&intent).map_err(cannot_write(&intent))?;
    sync_folder_of(path).map_err(cannot_write(path))
}
