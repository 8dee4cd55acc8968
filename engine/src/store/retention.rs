//! The plan of a pruning: it decides from facts alone what is deleted and what is kept.
//!
//! ```text
//! facts, retention, now ──plan──> PrunePlan ──shown (dry run) or carried out, the same──>
//! ```
//!
//! The plan must never delete open rows, rows that later queries need (the newest run of a job, the
//! runs that the breaker counts, the night that `status` shows, today's budget usage), or files
//! that do not certainly belong to runner.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::NightId;
use crate::ids::{OccurrenceId, RunId};

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Rows of the database, and with them what makes a caller's key known.
    pub rows: SignedDuration,
    /// Folders of runs: logs and what their children left.
    pub logs: SignedDuration,
    /// Reports of nights; absent: for ever.
    pub reports: Option<SignedDuration>,
    /// How many of the daily backups.
    pub backups: u32,
    /// Recordings of runs; absent: nothing is recorded, and what is there goes.
    pub recordings: Option<SignedDuration>,
}

/// How long the deferrals between the first and the last of an occurrence are kept.
pub const FOLDED_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// How long a left-over staging folder is left alone.
pub const STAGING_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// An occurrence that was settled before the limit for rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldOccurrence {
    /// Which.
    pub id: OccurrenceId,
    /// Its runs.
    pub runs: Vec<RunId>,
    /// Why it must stay all the same.
    pub needed: Option<&'static str>,
}

/// A deferral that is neither the first nor the last of its occurrence, and was never admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The run.
    pub run: RunId,
    /// When it was put off.
    pub finished: Timestamp,
}

/// A closed night.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldNight {
    /// Which.
    pub id: NightId,
    /// Its occurrences.
    pub occurrences: Vec<OccurrenceId>,
    /// It is its project's newest.
    pub newest: bool,
}

/// The key of one row of budget usage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UsageKey {
    /// The kind of budget level: a day of a project, of a job or of a pool, or a week or a window
    /// of a pool.
    pub level: String,
    /// Which of them.
    pub key: String,
}

/// A row of budget usage whose key contains its date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldUsage {
    /// Which.
    pub usage: UsageKey,
    /// The last day of its period, in its own zone.
    pub date: Date,
    /// The occurrences whose runs drew on it and are known.
    pub occurrences: Vec<OccurrenceId>,
}

/// The category of a file or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// The folder of a run below the state folder.
    Log,
    /// A staging folder that nobody swept.
    Staging,
    /// The folder of a night's report.
    Report,
    /// The state before a decision on a proposal, with which the decision can be undone.
    Undo,
    /// A daily backup.
    Backup,
    /// A temporary file of a process that died while writing.
    Draft,
    /// A recording of the inputs, requests and results of a run.
    Recording,
}

/// A file or a folder that pruning may remove: `below` has no symbolic link in it, beneath `root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunableFile {
    /// The category of the file.
    pub kind: FileKind,
    /// The state folder, or a project.
    pub root: PathBuf,
    /// Its place below that.
    pub below: PathBuf,
    /// When it was over, by the database or else by its name or its last change.
    pub at: Timestamp,
    /// Why it must stay all the same.
    pub needed: Option<&'static str>,
}

/// Everything that the plan is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneFacts {
    /// Occurrences that are older than the limit.
    pub occurrences: Vec<OldOccurrence>,
    /// Deferrals in the middle of their chains.
    pub deferrals: Vec<Deferral>,
    /// Nights that closed before the limit.
    pub nights: Vec<OldNight>,
    /// Events before the limit.
    pub events: u64,
    /// Budget usage of days, weeks and windows.
    pub budget_usage: Vec<OldUsage>,
    /// Files and folders.
    pub files: Vec<PrunableFile>,
}

/// Rows that go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OldRows {
    /// Occurrences, with their runs, requests, reservations and publications.
    pub occurrences: Vec<OccurrenceId>,
    /// Runs of those.
    pub runs: u64,
    /// Deferrals that are folded into the first and the last of their occurrence.
    pub deferrals: Vec<RunId>,
    /// Nights, with their budget usage.
    pub nights: Vec<i64>,
    /// Events before [`PrunePlan::limit`].
    pub events: u64,
    /// Budget usage of days, weeks and windows, with their grants.
    pub budget_usage: Vec<UsageKey>,
}

/// Old rows that are kept, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptRows {
    /// How many.
    pub count: u64,
    /// Why.
    pub why: &'static str,
}

/// A file or a folder that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OldFile {
    /// The category of the file.
    pub kind: FileKind,
    /// The state folder, or a project.
    pub root: PathBuf,
    /// Its place below that.
    pub below: PathBuf,
}

/// The rows and files that a pruning deletes, and the old rows that it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// Rows that ended before this time are old.
    pub limit: Timestamp,
    /// Rows.
    pub rows: OldRows,
    /// Files and folders.
    pub files: Vec<OldFile>,
    /// Old rows that are kept.
    pub kept: Vec<KeptRows>,
}

impl Retention {
    /// Returns the time before which a row must have ended to be old.
    pub fn limit(&self, now: Timestamp) -> Timestamp {
        before(now, self.rows)
    }

    /// Decides what goes.
    pub fn plan(&self, facts: PruneFacts, now: Timestamp) -> PrunePlan {
        let mut kept: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut rows = OldRows { events: facts.events, ..OldRows::default() };
        for old in facts.occurrences {
            if let Some(why) = old.needed {
                *kept.entry(why).or_default() += 1;
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
        // Budget usage is kept as long as an occurrence that drew on it.
        let gone = |one: &OccurrenceId| old.binary_search(one).is_ok();
        for night in facts.nights {
            if night.newest {
                *kept.entry("the newest night of its project").or_default() += 1;
            } else if night.occurrences.iter().all(gone) {
                rows.nights.push(night.id.0);
            }
        }
        let limit = self.limit(now);
        // A day's date is that of its project's zone: two days of grace cover all of them.
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
        kept: &mut BTreeMap<&'static str, u64>,
        now: Timestamp,
    ) -> Vec<OldFile> {
        // The newest first, so that those that are counted are counted from there.
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
                Some(why) => *kept.entry(why).or_default() += 1,
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
            && self.files.is_empty()
    }
}

fn before(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}
