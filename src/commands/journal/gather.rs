//! Assembles a journal: entries, the commits between them, and the reason for each missing entry.
//!
//! ```text
//! rem/**/manifest.json ──> entries ─┐
//! git log ──> tagged commits ───────┼──> one timeline, newest first
//! database ──> runs without an entry ─┘
//! ```
//!
//! A verdict is resolved by the first commit after its entry in which the board reflects the
//! verdict. This module must never read entries in a folder whose name is not a valid agent name.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::git::Git;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Outcome;
use runner_engine::scope::Scope;
use runner_engine::store::{RunRow, Store};
use runner_jobs::JobError;
use runner_jobs::lifecycle::entry::Entry;
use runner_jobs::lifecycle::{BOARD, Files, audit, daydream, manifest};

use super::history::{Boards, added, commits, commits_at};
use super::model::{Commit, Gap, Journal, ShownEntry, TimelineItem};

pub struct JournalSource<'a> {
    pub root: &'a Path,
    pub project: String,
    pub files: &'a Files,
    /// Each job's agent and board. An agent uses the board of its first job.
    pub boards: &'a [(String, String)],
    pub git: &'a Git,
    pub runs: &'a [RunRow],
    /// The database, which records the published entries, and the project's id; `None` if there is
    /// no database yet.
    pub store: Option<(&'a Store, &'a ProjectId)>,
    pub now: Timestamp,
}

/// The project's recent commits.
struct History<'a> {
    git: &'a Git,
    log: Vec<Commit>,
    /// The journal files, each with the commit that added it.
    added: HashMap<String, Commit>,
}

impl JournalSource<'_> {
    /// Assembles the journal, newest item first.
    ///
    /// # Errors
    /// Returns an error if the project cannot be opened, a list of entries cannot be read or is
    /// damaged, a git command fails, or the database cannot be read.
    pub fn journal(self) -> Result<Journal, JobError> {
        let Self { root, git, .. } = self;
        let scope = Scope::open(root, &[], ".runner/staging/look")?;
        let log = match git.head()? {
            Some(_) => commits(git, &[])?,
            None => Vec::new(),
        };
        let added = if log.is_empty() { HashMap::new() } else { added(git)? };
        let history = History { git, log, added };
        let mut items = Vec::new();
        for agent in agents(root) {
            items.extend(self.entries(&scope, &history, &agent)?);
        }
        items.extend(gaps(self.runs).into_iter().map(TimelineItem::Gap));
        // Commits before the earliest entry or gap are not part of the journal.
        let begin = items.iter().map(TimelineItem::at).min();
        let rem: Vec<String> = (items.iter())
            .filter_map(|item| match item {
                TimelineItem::Entry(entry) => Some(entry.commit.as_ref()?.hash.clone()),
                _ => None,
            })
            .collect();
        let tagged = history.log.into_iter().filter(|it| it.tag.is_some());
        items.extend(
            tagged
                .filter(|it| begin.is_some_and(|begin| it.at >= begin) && !rem.contains(&it.hash))
                .map(TimelineItem::Commit),
        );
        items.sort_by_key(|item| std::cmp::Reverse(item.at()));
        Ok(Journal {
            project: self.project,
            made: self.now,
            items,
            daydreams: daydream::read(&scope, &self.files.daydreams).0.daydreams,
            commits_at: commits_at(git),
        })
    }

    /// Returns one agent's listed entries, with a gap for each entry that cannot be read.
    fn entries(
        &self,
        scope: &Scope,
        history: &History<'_>,
        agent: &str,
    ) -> Result<Vec<TimelineItem>, JobError> {
        let name = Some(agent).filter(|it| !it.is_empty());
        let folder = manifest::folder(name);
        let list = manifest::read(scope, &folder)?.manifest;
        let board = self.boards.iter().find(|(of, _)| *of == agent);
        let board = board.map_or(BOARD, |(_, board)| board.as_str());
        let mut boards = if list.entries.is_empty() || history.log.is_empty() {
            Boards::default()
        } else {
            Boards::of(history.git, board)?
        };
        let paths: Vec<String> =
            list.entries.iter().map(|listed| format!("{folder}/{}", listed.file)).collect();
        let published = match self.store {
            Some((store, project)) => store.published_files(project, &paths)?,
            None => BTreeMap::new(),
        };
        let mut items = Vec::new();
        for listed in &list.entries {
            let at = listed.ts.unwrap_or(Timestamp::UNIX_EPOCH);
            let read = manifest::entry_of(scope, &folder, listed);
            let Ok((entry, text)) = read else {
                items.push(TimelineItem::Gap(Gap {
                    first: at,
                    last: at,
                    count: 1,
                    job: "rem".to_owned(),
                    why: read.err().map_or_else(String::new, |error| error.whole()),
                }));
                continue;
            };
            let audit = audit::read_record(scope, &folder, &entry.id);
            let path = format!("{folder}/{}", listed.file);
            items.push(TimelineItem::Entry(Box::new(ShownEntry {
                agent: agent.to_owned(),
                at,
                failed_claims: (audit.iter().flat_map(|it| it.failed()))
                    .map(|it| format!("{} ({})", it.claim, it.why))
                    .collect(),
                audited: audit.as_ref().map(|it| it.claims.len()),
                published: published.get(&path) == Some(&Digest::of(text.as_bytes())),
                commit: history.added.get(&path).cloned(),
                verdicts: boards.judged(history.git, &entry, at),
                ..shown(entry)
            })));
        }
        Ok(items)
    }
}

/// Lists the default agent and every named agent that has a folder.
fn agents(root: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root.join(manifest::FOLDER));
    let mut named: Vec<String> = folders
        .into_iter()
        .flatten()
        .flatten()
        .filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|it| it.file_name().into_string().ok())
        .filter(|name| manifest::is_agent_name(name))
        .collect();
    named.sort();
    named.insert(0, String::new());
    named
}

fn shown(entry: Entry) -> ShownEntry {
    let said = entry.sections;
    ShownEntry {
        id: entry.id,
        agent: String::new(),
        at: Timestamp::UNIX_EPOCH,
        unseen: entry.unseen,
        facts: entry.facts,
        title: entry.title,
        model: entry.model,
        tale: said.tale,
        goals: said.goals,
        blue_sky: said.blue_sky,
        fears: said.fears,
        verdicts: Vec::new(),
        carry: said.carry,
        failed_claims: Vec::new(),
        audited: None,
        published: false,
        commit: None,
    }
}

/// Groups the failed, timed-out, lost and cancelled runs of the jobs that write entries.
/// Consecutive runs of a job with the same reason form one gap. Skipped and deferred runs are
/// ignored.
fn gaps(runs: &[RunRow]) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let mut last = BTreeMap::<String, usize>::new();
    for run in runs.iter().rev() {
        if !matches!(run.kind.as_str(), "rem" | "lifecycle") {
            continue;
        }
        let Some(at) = run.finished() else { continue };
        let why = match run.outcome() {
            Some(
                outcome @ (Outcome::Failed { .. }
                | Outcome::TimedOut { .. }
                | Outcome::Lost { .. }
                | Outcome::Cancelled { .. }),
            ) => outcome.to_string(),
            // A successful or degraded run ends a gap.
            Some(Outcome::Succeeded | Outcome::Degraded { .. }) => {
                last.remove(&run.job_name);
                continue;
            }
            _ => continue,
        };
        match last.get(&run.job_name).map(|slot| &mut gaps[*slot]) {
            Some(gap) if gap.why == why => {
                gap.last = at;
                gap.count += 1;
            }
            _ => {
                last.insert(run.job_name.clone(), gaps.len());
                gaps.push(Gap { first: at, last: at, count: 1, job: run.job_name.clone(), why });
            }
        }
    }
    gaps
}
