//! Plans which rows and files pruning deletes, and which it keeps.
//!
//! ```text
//! facts, retention, now ──plan──> PrunePlan ──> shown (dry run) or carried out
//! ```
//!
//! A plan must never delete open rows, rows that later queries need, or files that may not belong
//! to runner. Later queries need a job's newest run, the runs counted by the breaker, the night
//! shown by `status` and recent budget usage.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::NightId;
use crate::ids::{AlertId, OccurrenceId, RunId};

/// The retention periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Retention period for database rows and for the files needed to undo decisions. After an
    /// occurrence is deleted, its key can be reused.
    pub rows: SignedDuration,
    /// Retention period for run folders, which contain logs and files from child processes.
    pub logs: SignedDuration,
    /// Retention period for night reports. `None` keeps them forever.
    pub reports: Option<SignedDuration>,
    /// Number of daily backups to keep.
    pub backups: u32,
    /// Retention period for recordings. `None` means that runs are not recorded and all recordings
    /// are deleted.
    pub recordings: Option<SignedDuration>,
}

/// Age at which a deferred run is deleted if it was never admitted and is between the first run and
/// the last deferred run of its occurrence.
pub const FOLDED_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Age at which a leftover staging folder or temporary file is deleted.
pub const STAGING_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// An occurrence that was settled before [`Retention::limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldOccurrence {
    pub id: OccurrenceId,
    pub runs: Vec<RunId>,
    /// The reason the occurrence must be kept, if any.
    pub needed: Option<String>,
}

/// A deferred run that was never admitted and is between the first run and the last deferred run of
/// its occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    pub run: RunId,
    /// The time at which the run was deferred.
    pub finished: Timestamp,
}

/// A night that closed before [`Retention::limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldNight {
    pub id: NightId,
    pub occurrences: Vec<OccurrenceId>,
    /// Whether this is the newest night of its project or the night with the highest id.
    pub newest: bool,
}

/// The level and key of a budget usage row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UsageKey {
    /// The kind of budget level: a day, a week or a window.
    pub level: String,
    /// The key of the budget level.
    pub key: String,
}

/// Budget usage or grants of a level whose key contains a date, a week or the opening time of a
/// window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldUsage {
    pub usage: UsageKey,
    /// The last day of the level's period, in the level's time zone. For a window, the day in UTC
    /// on which the window opened.
    pub date: Date,
    /// The occurrences whose runs used the budget level and whose rows still exist.
    pub occurrences: Vec<OccurrenceId>,
}

/// The kind of a prunable file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A run's folder inside the state folder.
    Log,
    /// A staging folder that was not swept.
    Staging,
    /// A night report's folder.
    Report,
    /// The files needed to undo a decision on a proposal.
    Undo,
    /// A daily backup.
    Backup,
    /// A temporary file of a process that died while writing.
    Draft,
    /// A recording of a run's inputs, requests and results.
    Recording,
}

/// A file or folder that may be deleted. No component of `below` is a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunableFile {
    pub kind: FileKind,
    /// The state folder or a project.
    pub root: PathBuf,
    /// The path relative to `root`.
    pub below: PathBuf,
    /// The time at which the file's run or night ended, according to the database. If that time is
    /// unknown, this is the time in the file's name or the file's modification time.
    pub at: Timestamp,
    /// The reason the file must be kept, if any.
    pub needed: Option<&'static str>,
}

/// The data on which a plan is based.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneFacts {
    pub occurrences: Vec<OldOccurrence>,
    pub deferrals: Vec<Deferral>,
    pub nights: Vec<OldNight>,
    /// The number of events before [`Retention::limit`].
    pub events: u64,
    /// The alerts that ended before [`Retention::limit`].
    pub alerts: Vec<AlertId>,
    /// The budget usage and grants of days, weeks and windows.
    pub budget_usage: Vec<OldUsage>,
    pub files: Vec<PrunableFile>,
}

/// The rows to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OldRows {
    /// Occurrences, including their runs, requests, reservations and publications.
    pub occurrences: Vec<OccurrenceId>,
    /// The number of runs of these occurrences.
    pub runs: u64,
    /// Deferred runs between the first run and the last deferred run of their occurrence.
    pub deferrals: Vec<RunId>,
    /// Nights, including their budget usage and grants.
    pub nights: Vec<i64>,
    /// The number of events before [`PrunePlan::limit`].
    pub events: u64,
    /// Alerts that have ended, including their messages.
    pub alerts: Vec<AlertId>,
    /// Budget usage of days, weeks and windows, including grants.
    pub budget_usage: Vec<UsageKey>,
}

/// Old rows or files that are kept for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptRows {
    pub count: u64,
    pub why: Cow<'static, str>,
}

/// A file or folder to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OldFile {
    pub kind: FileKind,
    /// The state folder or a project.
    pub root: PathBuf,
    /// The path relative to `root`.
    pub below: PathBuf,
}

/// The rows and files to delete, and the old rows and files to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// The time before which rows are old.
    pub limit: Timestamp,
    pub rows: OldRows,
    pub files: Vec<OldFile>,
    pub kept: Vec<KeptRows>,
}

impl Retention {
    /// Returns the time before which rows are old.
    pub fn limit(&self, now: Timestamp) -> Timestamp {
        before(now, self.rows)
    }

    /// Decides which rows and files to delete.
    pub fn plan(&self, facts: PruneFacts, now: Timestamp) -> PrunePlan {
        let mut kept: BTreeMap<Cow<'static, str>, u64> = BTreeMap::new();
        let mut rows = OldRows { events: facts.events, alerts: facts.alerts, ..OldRows::default() };
        for old in facts.occurrences {
            if let Some(why) = old.needed {
                *kept.entry(why.into()).or_default() += 1;
                continue;
            }
            rows.runs += old.runs.len() as u64;
            rows.occurrences.push(old.id);
        }
        rows.occurrences.sort();
        let fold = before(now, FOLDED_AFTER);
        rows.deferrals.extend(
            facts.deferrals.into_iter().filter(|one| one.finished < fold).map(|one| one.run),
        );
        let old = rows.occurrences.clone();
        // Nights and budget usage are kept while any of their occurrences is kept.
        let gone = |one: &OccurrenceId| old.binary_search(one).is_ok();
        for night in facts.nights {
            if night.newest {
                *kept.entry("the newest night of its project".into()).or_default() += 1;
            } else if night.occurrences.iter().all(gone) {
                rows.nights.push(night.id.0);
            }
        }
        let limit = self.limit(now);
        // A day's date is in its project's time zone. Two additional days cover all time zones.
        let oldest =
            before(limit, SignedDuration::from_hours(48)).to_zoned(jiff::tz::TimeZone::UTC).date();
        rows.budget_usage.extend(
            facts
                .budget_usage
                .into_iter()
                .filter(|old| old.date < oldest && old.occurrences.iter().all(gone))
                .map(|old| old.usage),
        );
        let files = self.files(facts.files, &mut kept, now);
        PrunePlan {
            limit,
            rows,
            files,
            kept: kept.into_iter().map(|(why, count)| KeptRows { count, why }).collect(),
        }
    }

    fn files(
        &self,
        mut found: Vec<PrunableFile>,
        kept: &mut BTreeMap<Cow<'static, str>, u64>,
        now: Timestamp,
    ) -> Vec<OldFile> {
        // The newest files of each kind come first, so the newest backups are counted first.
        found.sort_by(|a, b| (a.kind, b.at, &b.below).cmp(&(b.kind, a.at, &a.below)));
        let mut backups = 0;
        let mut files = Vec::new();
        for one in found {
            let old = match one.kind {
                FileKind::Log => one.at < before(now, self.logs),
                FileKind::Undo => one.at < before(now, self.rows),
                FileKind::Staging | FileKind::Draft => one.at < before(now, STAGING_AFTER),
                FileKind::Report => {
                    self.reports.is_some_and(|reports| one.at < before(now, reports))
                }
                FileKind::Recording => {
                    self.recordings.is_none_or(|recordings| one.at < before(now, recordings))
                }
                FileKind::Backup => {
                    backups += 1;
                    backups > self.backups
                }
            };
            match one.needed {
                _ if !old => {}
                Some(why) => *kept.entry(why.into()).or_default() += 1,
                None => files.push(OldFile { kind: one.kind, root: one.root, below: one.below }),
            }
        }
        files
    }
}

impl PrunePlan {
    /// Returns whether the plan deletes nothing.
    pub fn is_empty(&self) -> bool {
        let rows = &self.rows;
        rows.occurrences.is_empty()
            && rows.deferrals.is_empty()
            && rows.nights.is_empty()
            && rows.budget_usage.is_empty()
            && rows.events == 0
            && rows.alerts.is_empty()
            && self.files.is_empty()
    }
}

fn before(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}
