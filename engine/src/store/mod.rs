//! Stores jobs, runs, budget usage and publications in the database, which is one SQLite file.
//!
//! Writers use [`Store::open`], and readers use [`Store::read`]. Outside migrations and restores,
//! rows are changed only in short `BEGIN IMMEDIATE` transactions without other I/O. Every writer
//! holds a shared `flock` on `database.lock` while the database is open, and an exclusive one while
//! it creates, migrates or restores the database.
//!
//! A damaged database must never be recreated. [`StoreError::Damaged`] stops all work until the
//! user intervenes.

mod admit;
mod alerts;
mod backup;
mod breaker;
mod cancel;
mod changes;
mod check;
mod columns;
mod database_file;
mod degrade;
mod delete_project;
mod dry_run;
mod events;
mod fallback_reservation;
mod file_length;
mod fleet;
mod format;
mod grants;
mod history;
mod jobs;
mod limits;
mod maintenance;
mod messages;
mod missing_projects;
mod nights;
mod occurrences;
mod open;
mod overview;
mod pause;
mod projects;
mod prune;
mod publications;
mod published;
mod queue;
mod replay_store;
mod reserve;
mod restore;
mod restore_loss;
mod retention;
mod rows;
mod run_list;
mod runs;
mod settle;
mod settle_runs;
mod totals;
mod trust;
mod usage;

use crate::failpoint;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub use admit::{Admission, Admitted, Enter};
pub use alerts::{AlertEnd, AlertRow, AlertSelection, FoundProblem, Overdue};
pub use backup::{BackupCopy, inspect_copy};
pub use breaker::Streak;
pub use cancel::{CANCEL_GRACE, Cancelled};
pub use changes::{Change, ChangesAfter};
pub use check::{StoreFinding, StoreHealth};
pub use delete_project::ProjectDeletion;
pub use events::Event;
pub use fallback_reservation::FallbackReservation;
pub use fleet::{FleetNote, FleetRun};
pub use grants::{BudgetStanding, Grant};
pub use history::{GroupBy, ReservedUsage, UsageSum};
pub use jobs::{AHEAD, DueJob, JobRow, NewJob};
pub use limits::ProviderLimit;
pub use maintenance::{LOG_CEILING, Task};
pub use messages::{Delivery, DeliveryResult, MOST_TRIES, MessageRow, MessageState};
pub use nights::{Night, NightId};
pub use occurrences::{MissedReasons, OccurrenceRow, Recorded};
pub use overview::{JobPause, LastNight, MissedStretch, NextDue, NightRunReport};
pub use pause::FOREVER;
pub use projects::{GONE, Node, Project, gone, why_gone};
pub use publications::{CommitGuard, PublicationTimes};
pub use replay_store::ReplayRun;
pub use reserve::DEFAULT as DEFAULT_AMOUNTS;
pub use restore::{RestorePlan, Restored, plan_restore};
pub use restore_loss::RestoreLoss;
pub use retention::{
    FileKind, KeptRows, OldFile, OldRows, PrunableFile, PruneFacts, PrunePlan, Retention,
};
pub use rows::{NewOccurrence, Origin};
pub use run_list::{RunFilter, SHORTEST_TEXT};
pub use runs::{Execution, RunRow, RunState, RunSummary, Spawned};
pub use totals::{DURATION_LIMITS, QueueDepth, RunDurations, RunTotal};
pub use trust::TrustRecord;
pub use usage::{
    Amounts, Budget, BudgetLevel, DAY, JOB, MEASURE, Money, NIGHT, PARENT, POOL_DAY, POOL_WEEK,
    RequestId, RequestUsage, UNITS, WINDOW, budget_seconds,
};

/// A job's row number. Job names are unique only within a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

pub struct Store {
    db: Connection,
    path: PathBuf,
    /// The lock file with a shared `flock`. `None` for readers and in-memory databases.
    _open: Option<File>,
    /// The check that precedes each commit of a publication.
    guard: Option<Box<dyn CommitGuard>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file exists, but is not an intact runner database.
    #[error("the database {path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    /// A later version of runner created or migrated the database.
    #[error(
        "the database {path} has format {found}, but this version of runner supports at most {known}"
    )]
    Newer {
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The latest format that this program supports.
        known: i64,
    },
    /// The database has an older format, and a reader cannot migrate it.
    #[error(
        "the database {path} has format {found}, but this version of runner writes format {known}"
    )]
    Older {
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The format that this program writes.
        known: i64,
    },
    /// A development build created the database, and its tables differ from this version's.
    #[error(
        "the database {path} was created by a development build of runner: its tables differ from those of format {format}"
    )]
    Stranger {
        path: PathBuf,
        /// The format in the file.
        format: i64,
    },
    /// The database does not exist, and a reader does not create it.
    #[error("there is no database at {path}")]
    Missing { path: PathBuf },
    /// A file or its folder cannot be written, or SQLite cannot open the file or reports an I/O
    /// error.
    #[error("cannot write the database {path}: {why}")]
    CannotWrite {
        path: PathBuf,
        /// The reason, which is usually the operating system's error.
        why: String,
    },
    /// The file or its folder cannot be examined, so it is not known whether there is a database.
    #[error("cannot read the database {path}: {why}")]
    CannotRead {
        path: PathBuf,
        /// The operating system's error.
        why: String,
    },
    /// The path of a project or of the database is not UTF-8, so it cannot be stored as text.
    #[error("the path {path} is not UTF-8")]
    NotText { path: PathBuf },
    /// The database must be migrated or restored, but another process is using it.
    #[error(
        "the database {path} must be migrated or restored, but another runner process has it open"
    )]
    InUse { path: PathBuf },
    /// The database changed during each attempt to copy it for a dry run.
    #[error("the database {path} changed during each attempt to copy it")]
    Unsteady { path: PathBuf },
    /// The run that tried to commit has been taken over or settled.
    #[error("run {run} was taken over: its fence {fence} is outdated")]
    StaleFence {
        run: String,
        /// The run's outdated fence.
        fence: i64,
    },
    /// A restore was interrupted. The next writer finishes it.
    #[error("a restore of the database {path} was interrupted")]
    HalfRestored { path: PathBuf },
    /// The database does not exist, but other files indicate that it once existed.
    #[error("the database {path} is missing, but runner still has {what}")]
    Lost {
        path: PathBuf,
        /// A description of these files.
        what: String,
        /// The folders that contain these files.
        left: Vec<PathBuf>,
    },
    /// The backup cannot be read.
    #[error("cannot read the backup {path}: {why}")]
    NoBackup {
        path: PathBuf,
        /// The reason, which is usually the operating system's error.
        why: String,
    },
    /// The deciding lock of a run's job could not be opened or locked.
    #[error("{why}")]
    Lock {
        /// The lock file and the operating system's error.
        why: String,
    },
    /// The requested row does not exist.
    #[error("no {what} {name}")]
    NotFound {
        /// The kind of row.
        what: &'static str,
        /// The requested name or id.
        name: String,
    },
    /// The requested change conflicts with the current state of the database.
    #[error("{what} was not changed: {why}")]
    Changed {
        /// The item that was to be changed.
        what: String,
        /// The reason for the refusal.
        why: String,
    },
    /// A row contains an invalid value.
    #[error("the database {path} contains an invalid row: {why}")]
    Nonsense {
        path: PathBuf,
        /// The row and the reason why it is invalid.
        why: String,
    },
    /// Any other error from SQLite.
    #[error("the database {path} could not be used")]
    Sql { path: PathBuf, source: rusqlite::Error },
}

impl StoreError {
    /// Returns whether the error may concern only one row, so that other rows can still be
    /// processed.
    pub fn is_about_one_thing(&self) -> bool {
        matches!(
            self,
            Self::Nonsense { .. }
                | Self::NotText { .. }
                | Self::NotFound { .. }
                | Self::StaleFence { .. }
                | Self::Lock { .. }
                | Self::Sql { .. }
        )
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl Store {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in an immediate transaction, which is committed if `work` succeeds.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T> {
        let path = self.path.clone();
        if failpoint::commit_fails() {
            let why = "an injected fault refused the commit".to_owned();
            return Err(StoreError::CannotWrite { path, why });
        }
        let run = || -> Result<T, Fault> {
            let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run().map_err(|fault| fault.at(&path))
    }

    /// Runs `work` on the connection without starting a transaction.
    fn view<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T> {
        work(&self.db).map_err(|fault| fault.at(&self.path))
    }
}

/// An error to which the path of the database has not been added yet.
enum Fault {
    Sql(rusqlite::Error),
    Nonsense(String),
    Known(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::Known(StoreError::NotFound { what, name: name.to_string() })
    }

    fn nonsense(why: impl ToString) -> Self {
        Self::Nonsense(why.to_string())
    }

    fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Known(error) => error,
            Self::Nonsense(why) => StoreError::Nonsense { path, why },
            Self::Sql(source) => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    StoreError::Damaged { path, why: source.to_string() }
                }
                Some(
                    ErrorCode::ReadOnly
                    | ErrorCode::DiskFull
                    | ErrorCode::CannotOpen
                    | ErrorCode::PermissionDenied
                    | ErrorCode::SystemIoFailure,
                ) => StoreError::CannotWrite { path, why: source.to_string() },
                Some(ErrorCode::Unknown) if other_tables(&source) => {
                    StoreError::Stranger { path, format: format::PRESENT }
                }
                _ => StoreError::Sql { path, source },
            },
        }
    }
}

/// Returns a function that converts an I/O error to [`StoreError::CannotWrite`].
fn cannot_write(path: &Path) -> impl Fn(std::io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |error| StoreError::CannotWrite { path: path.clone(), why: error.to_string() }
}

/// Returns a function that converts an SQLite error to a [`StoreError`].
fn sql_error(path: &Path) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |error| Fault::from(error).at(&path)
}

/// Returns whether the error reports a missing table, column or index.
fn other_tables(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    ["no such table", "no such column", "no such index", "has no column named"]
        .iter()
        .any(|what| text.contains(what))
}

#[cfg(test)]
mod tests;
