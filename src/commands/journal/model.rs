//! The journal's data, which is also its JSON output.

use jiff::Timestamp;
use runner_jobs::lifecycle::daydream::Daydream;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Journal {
    pub project: String,
    pub made: Timestamp,
    /// The timeline, newest item first.
    pub items: Vec<TimelineItem>,
    /// The daydreams, newest first.
    pub daydreams: Vec<Daydream>,
    /// The part of a commit page's URL before the hash, or `None` if it cannot be derived from the
    /// remote `origin`.
    pub commits_at: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
pub enum TimelineItem {
    Entry(Box<ShownEntry>),
    /// A missing entry, with the reason.
    Gap(Gap),
    /// A commit with one of the agent's tags.
    Commit(Commit),
}

impl TimelineItem {
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Entry(entry) => entry.at,
            Self::Gap(gap) => gap.last,
            Self::Commit(commit) => commit.at,
        }
    }
}

/// A journal entry.
#[derive(Debug, Serialize)]
pub struct ShownEntry {
    pub id: String,
    /// The agent's name; empty for the default agent.
    pub agent: String,
    pub at: Timestamp,
    pub title: String,
    pub model: String,
    /// The text of the tale. The fields from `goals` to `carry` are the entry's other sections.
    pub tale: String,
    pub goals: Vec<String>,
    pub blue_sky: Vec<String>,
    pub fears: Vec<String>,
    pub verdicts: Vec<AppliedVerdict>,
    pub carry: Vec<String>,
    /// The paths, exit codes, tasks and commits in the tale that no source shows.
    pub unseen: Vec<String>,
    /// The facts that runner read from the sources. Empty in an entry written by rule.
    pub facts: Vec<String>,
    /// The claims that an audit found to be false.
    pub failed_claims: Vec<String>,
    /// The number of claims that an audit checked; `None` without an audit.
    pub audited: Option<usize>,
    /// Whether runner published the entry in its current form, or the user adopted it.
    pub published: bool,
    /// The commit that added the entry, or `None` if none of the recent commits did.
    pub commit: Option<Commit>,
}

/// A verdict, and the commit that applied it, if there is one.
#[derive(Debug, Serialize)]
pub struct AppliedVerdict {
    /// The text of the verdict in the entry.
    pub text: String,
    /// The first commit after the entry in which the board reflects the verdict.
    pub resolved: Option<Commit>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Commit {
    /// The full hash.
    pub hash: String,
    /// The abbreviated hash.
    pub short: String,
    pub at: Timestamp,
    /// The first line of the commit message.
    pub subject: String,
    /// The tag at the beginning of the subject, if any: `add`, `blog`, `audit` or `rem`.
    pub tag: Option<&'static str>,
}

/// Consecutive unsuccessful runs of a job that writes entries, or an entry that cannot be read.
#[derive(Debug, Serialize)]
pub struct Gap {
    /// The time of the first run.
    pub first: Timestamp,
    /// The time of the last run.
    pub last: Timestamp,
    /// The number of consecutive runs with this reason.
    pub count: u32,
    pub job: String,
    pub why: String,
}
