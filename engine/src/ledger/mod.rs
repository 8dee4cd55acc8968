//! The ledger: one SQLite file that knows what was due, what ran, what it spent and what it is
//! placing.
//!
//! Writers open it with [`Ledger::open`], readers with [`Ledger::read`]. Every write is one
//! `BEGIN IMMEDIATE` transaction that does no other IO, so a wait is short and bounded. It must
//! never be made anew over a damaged one: [`LedgerError::Damaged`] stops everything until a person
//! acts. Every process that has it open holds a shared `flock` on `ledger.lock`; a migration needs
//! that lock alone.

mod absent;
mod accounts;
mod acks;
mod admit;
mod again;
mod alerts;
mod backup;
mod cancel;
mod chained;
mod check;
mod degrade;
mod ends;
mod events;
mod forget;
mod format;
mod glance;
mod grants;
mod header;
mod history;
mod jobs;
mod limits;
mod messages;
mod nights;
mod occurrences;
mod open;
mod pause;
mod placements;
mod projects;
mod prune;
mod queue;
mod rehearsal;
mod reserve;
mod restore;
mod retention;
mod rows;
mod runs;
mod settle;
mod since;
mod steps;
mod upkeep;

use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub use accounts::{
    Amounts, Budget, DAY, JOB, Level, MEASURE, Money, NIGHT, PARENT, POOL_DAY, POOL_WEEK,
    RequestId, Spent, UNITS, WINDOW,
};
pub use acks::Streak;
pub use admit::{Admission, Admitted, Enter};
pub use again::Again;
pub use alerts::{AlertRow, Overdue};
pub use backup::{Copy, look_at};
pub use cancel::{CANCEL_GRACE, Cancelled};
pub use chained::Chained;
pub use check::{Finding, Health};
pub use events::Event;
pub use forget::Forgetting;
pub use glance::{LastNight, MissedStretch, NextDue, OwnPause, Reported};
pub use grants::{Grant, Standing};
pub use history::{By, Held, Told};
pub use jobs::{AHEAD, DueJob, JobRow, NewJob};
pub use limits::Limited;
pub use messages::{Delivery, MOST_TRIES, MessageRow, MessageState, Tried};
pub use nights::{Night, NightId};
pub use occurrences::{OccurrenceRow, Recorded};
pub use pause::FOREVER;
pub use projects::{GONE, Node, Project, gone, why_gone};
pub use restore::{RestorePlan, Restored, plan_restore};
pub use retention::{
    Facts as PruneFacts, Found, Kept, Kind, OldFile, OldRows, PrunePlan, Retention,
};
pub use rows::{NewOccurrence, Origin};
pub use runs::{Filter, RunRow, RunState, Summary};
pub use since::Since;
pub use steps::Steps;
pub use upkeep::{LOG_CEILING, beside};

/// The row number of a job; names are unique only within a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

/// The open ledger.
pub struct Ledger {
    db: Connection,
    path: PathBuf,
    /// Shared `flock`, held for as long as the ledger is open; absent for readers.
    _open: Option<File>,
    /// In memory only: how many transactions may still be committed before this process is "dead".
    fuse: Option<u32>,
}

/// What can go wrong between us and the file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file is there and is not a whole ledger.
    #[error("the ledger {path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// A later version of runner has written it.
    #[error("the ledger {path} has format {found}, this program knows {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// It has an older format, which only a writer brings to the present one.
    #[error("the ledger {path} has format {found} and this program writes {known}")]
    Older {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// A build between releases has made it, with other tables.
    #[error(
        "the ledger {path} was made by a development build of runner: its tables are not those of format {format}"
    )]
    Stranger {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        format: i64,
    },
    /// There is none yet, and a reader does not make one.
    #[error("there is no ledger at {path}")]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// The folder or the file cannot be written.
    #[error("cannot write the ledger {path}: {why}")]
    CannotWrite {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// It must be brought to a new format, and another process has it open.
    #[error("the ledger {path} needs a new format while another runner has it open")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A commit came from a run that was taken over.
    #[error("run {run} was taken over: its fence {fence} is no longer the job's")]
    StaleFence {
        /// The run.
        run: String,
        /// Its fence.
        fence: i64,
    },
    /// A restore was interrupted while it moved files; the next writer finishes it.
    #[error("the ledger {path} is half restored: what did it was interrupted")]
    HalfRestored {
        /// The file.
        path: PathBuf,
    },
    /// There is no ledger, and what lies beside says that there was one.
    #[error("the ledger {path} is gone, and {what} of it is still there")]
    Lost {
        /// The file.
        path: PathBuf,
        /// What is still there, in words.
        what: String,
        /// The folders that hold it.
        left: Vec<PathBuf>,
    },
    /// There is no copy to restore from.
    #[error("cannot read the backup {path}: {why}")]
    NoBackup {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The deciding lock of a run's job could not be looked at.
    #[error("{why}")]
    Lock {
        /// The file and the system's reason.
        why: String,
    },
    /// Nothing has this name.
    #[error("no {what} {name}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// What was planned does not fit what is there now.
    #[error("{what} stays as it is: {why}")]
    Changed {
        /// What was to be changed.
        what: String,
        /// What stands against it.
        why: String,
    },
    /// A row that cannot be what this program wrote.
    #[error("the ledger {path} holds a row that makes no sense: {why}")]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// The row and its flaw.
        why: String,
    },
    /// Any other answer of SQLite.
    #[error("the ledger {path} could not be used")]
    Sql {
        /// The file.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
}

impl LedgerError {
    /// Whether only one row is the matter, so that others can still be served.
    pub fn is_about_one_thing(&self) -> bool {
        matches!(
            self,
            Self::Nonsense { .. }
                | Self::NotFound { .. }
                | Self::StaleFence { .. }
                | Self::Lock { .. }
                | Self::Sql { .. }
        )
    }
}

/// The result of a ledger call.
pub type Result<T, E = LedgerError> = std::result::Result<T, E>;

impl Ledger {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one immediate transaction and commits it.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T> {
        let path = self.path.clone();
        match &mut self.fuse {
            Some(0) => {
                let why = "the fuse has blown".to_owned();
                return Err(LedgerError::CannotWrite { path, why });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let run = || -> Result<T, Fault> {
            let tx = self
                .db
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run().map_err(|fault| fault.at(&path))
    }

    /// Runs `work` on a consistent view.
    fn view<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T> {
        work(&self.db).map_err(|fault| fault.at(&self.path))
    }
}

/// What a transaction may end with, before it knows which file it was about.
enum Fault {
    Sql(rusqlite::Error),
    Nonsense(String),
    Known(LedgerError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    fn at(self, path: &Path) -> LedgerError {
        let path = path.to_owned();
        match self {
            Self::Known(error) => error,
            Self::Nonsense(why) => LedgerError::Nonsense { path, why },
            Self::Sql(source) => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    LedgerError::Damaged {
                        path,
                        why: source.to_string(),
                    }
                }
                Some(
                    ErrorCode::ReadOnly
                    | ErrorCode::DiskFull
                    | ErrorCode::CannotOpen
                    | ErrorCode::PermissionDenied
                    | ErrorCode::SystemIoFailure,
                ) => LedgerError::CannotWrite {
                    path,
                    why: source.to_string(),
                },
                Some(ErrorCode::Unknown) if other_tables(&source) => LedgerError::Stranger {
                    path,
                    format: format::PRESENT,
                },
                _ => LedgerError::Sql { path, source },
            },
        }
    }
}

/// Whether a statement of ours does not fit the tables that are there.
fn other_tables(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    [
        "no such table",
        "no such column",
        "no such index",
        "has no column named",
    ]
    .iter()
    .any(|what| text.contains(what))
}

/// Milliseconds since the epoch, as the tables hold them.
fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// A moment from a table.
fn moment(millis: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_millisecond(millis).map_err(|error| Fault::Nonsense(error.to_string()))
}

/// A moment from a table, where there may be none.
fn moment_opt(millis: Option<i64>) -> Result<Option<Timestamp>, Fault> {
    millis.map(moment).transpose()
}

/// Something stored as JSON.
fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::Nonsense(format!("{error} in {text:?}")))
}

/// Something to store as JSON.
fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("the ledger's own types have string keys only")
}

/// An id from a table.
fn id<T: std::str::FromStr>(text: String) -> Result<T, Fault>
where
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error: T::Err| Fault::Nonsense(error.to_string()))
}

#[cfg(test)]
mod tests;
