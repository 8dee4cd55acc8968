//! Reads the commits that are evidence of work, and finds those that are newer than an entry.
//!
//! Runner's own commits of entries are not evidence of work. If the commit at which the entry was
//! written is recorded and still exists, this module must never derive the order of commits from
//! their times.

use std::collections::BTreeSet;

use runner_engine::git::Git;

use super::manifest::{FOLDER, Listed};
use crate::JobError;

/// The subject prefix of runner's own commits.
const OWN: &str = "rem: ";
/// The option that limits the number of commits to read. Runner's own commits, which are left out
/// afterwards, are included in that number.
const READ: &str = "--max-count=100";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The full hash of the commit.
    pub hash: String,
    /// The abbreviated hash, as shown in the log.
    pub short: String,
    /// The commit time, in seconds since the Unix epoch.
    pub at: i64,
    pub subject: String,
}

impl Commit {
    /// Formats the commit as a line of `git log --oneline`.
    pub fn line(&self) -> String {
        format!("{} {}", self.short, self.subject)
    }
}

/// Returns the branch's latest commits, newest first, without runner's own.
///
/// # Errors
/// Returns an error if git fails.
pub fn commits(git: &Git) -> Result<Vec<Commit>, JobError> {
    if git.head()?.is_none() {
        return Ok(Vec::new());
    }
    let lines = git.log("%H%x00%h%x00%ct%x00%s", &[READ, "HEAD", "--"])?;
    let commits = lines.iter().filter_map(|line| {
        let mut parts = line.splitn(4, '\0');
        Some(Commit {
            hash: parts.next()?.to_owned(),
            short: parts.next()?.to_owned(),
            at: parts.next()?.parse().ok()?,
            subject: parts.next()?.to_owned(),
        })
    });
    let mut commits: Vec<Commit> = commits.collect();
    if commits.iter().any(|commit| commit.subject.starts_with(OWN)) {
        let entries = git.log("%H", &[READ, "HEAD", "--", FOLDER])?;
        let own =
            |commit: &Commit| commit.subject.starts_with(OWN) && entries.contains(&commit.hash);
        commits.retain(|commit| !own(commit));
    }
    Ok(commits)
}

/// Returns the hashes of the `commits` that are newer than the newest entry. Without an entry, all
/// of them are new.
///
/// # Errors
/// Returns an error if git fails.
pub fn newer(
    git: &Git,
    commits: &[Commit],
    newest: Option<&Listed>,
) -> Result<BTreeSet<String>, JobError> {
    let all = || commits.iter().map(|commit| commit.hash.clone());
    let Some(newest) = newest else { return Ok(all().collect()) };
    let seen = match &newest.head {
        // The commit may be gone if history was rewritten.
        Some(head) => git.commit(head)?,
        None => None,
    };
    if let Some(seen) = seen {
        let range = format!("{seen}..HEAD");
        let since: BTreeSet<String> = git.log("%H", &[READ, &range, "--"])?.into_iter().collect();
        return Ok(all().filter(|hash| since.contains(hash)).collect());
    }
    let since = newest.ts.map_or(i64::MIN, jiff::Timestamp::as_second);
    let newer = commits.iter().filter(|commit| commit.at > since);
    Ok(newer.map(|commit| commit.hash.clone()).collect())
}
