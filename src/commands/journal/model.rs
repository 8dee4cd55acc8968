//! The content of a journal: entries, the commits between them, and the reason for each entry that
//! is missing.
//!
//! ```text
//! rem/**/manifest.json ──> entries ─┐
//! git log ──> tagged commits ───────┼──> one timeline, the newest first
//! database ──> runs without an entry ─┘
//! ```
//!
//! A verdict is resolved by the first commit after its entry in which the board reflects the
//! verdict. The module must never list a folder whose name cannot be an agent's name.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::Timestamp;
use runner_engine::git::{Git, Read};
use runner_engine::outcome::Outcome;
use runner_engine::scope::Scope;
use runner_engine::store::RunRow;
use runner_jobs::JobError;
use runner_jobs::lifecycle::audit;
use runner_jobs::lifecycle::daydream::{self, Daydream};
use runner_jobs::lifecycle::entry::{Entry, Verdict, VerdictMove};
use runner_jobs::lifecycle::{BOARD, Files, manifest};
use runner_text::org::{Board, BoardForm, Keyword, Resolved};
use serde::Serialize;

/// The git option that limits the number of commits to read.
const COMMITS: &str = "--max-count=400";
/// Maximum number of versions of a board to read.
const VERSIONS: usize = 200;

/// The content of the journal.
#[derive(Debug, Serialize)]
pub struct Journal {
    pub project: String,
    /// The time at which the journal was assembled.
    pub made: Timestamp,
    /// The timeline, the newest item first.
    pub items: Vec<TimelineItem>,
    /// The daydreams, the newest first.
    pub daydreams: Vec<Daydream>,
    /// The URL prefix of a commit's page, to which the hash is appended; `None` if the project has
    /// no such page.
    pub commits_at: Option<String>,
}

/// An item of the timeline.
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

/// An entry in the form in which it is shown.
#[derive(Debug, Serialize)]
pub struct ShownEntry {
    pub id: String,
    /// The agent that the entry belongs to; empty for the default agent.
    pub agent: String,
    pub at: Timestamp,
    pub title: String,
    pub model: String,
    /// The text of the tale. The following fields are the other sections of the entry.
    pub tale: String,
    pub goals: Vec<String>,
    pub blue_sky: Vec<String>,
    pub fears: Vec<String>,
    pub verdicts: Vec<AppliedVerdict>,
    pub carry: Vec<String>,
    /// The claims of the entry that an audit found to be false.
    pub failed_claims: Vec<String>,
    /// The number of claims that an audit checked; `None` without an audit.
    pub audited: Option<usize>,
    /// The commit that added it.
    pub commit: Option<Commit>,
}

/// A verdict and the commit that applied it.
#[derive(Debug, Serialize)]
pub struct AppliedVerdict {
    /// The text of the verdict in the entry.
    pub text: String,
    /// The first commit after which the board reflects the verdict.
    pub resolved: Option<Commit>,
}

/// A git commit.
#[derive(Clone, Debug, Serialize)]
pub struct Commit {
    /// The full hash.
    pub hash: String,
    /// The abbreviated hash.
    pub short: String,
    pub at: Timestamp,
    /// The first line of the commit message.
    pub subject: String,
    /// The tag with which the subject begins, if any: `add`, `blog`, `audit` or `rem`.
    pub tag: Option<&'static str>,
}

/// A sequence of dreams that left no entry.
#[derive(Debug, Serialize)]
pub struct Gap {
    /// The time of the first dream.
    pub first: Timestamp,
    /// The time of the last dream.
    pub last: Timestamp,
    /// The number of consecutive dreams with this reason.
    pub count: u32,
    pub job: String,
    /// The reason why there is no entry.
    pub why: String,
}

/// The tags that an agent's commits carry.
const TAGS: [&str; 4] = ["add", "blog", "audit", "rem"];

impl Journal {
    /// Assembles the journal. `boards` maps the names of agents to the boards that their jobs name.
    ///
    /// # Errors
    /// Returns an error if a list of entries is damaged or git gives no answer.
    pub fn of(
        root: &Path,
        project: String,
        files: &Files,
        boards: &[(String, String)],
        git: &Git,
        runs: &[RunRow],
        made: Timestamp,
    ) -> Result<Self, JobError> {
        let scope = Scope::open(root, &[], ".runner/staging/look")?;
        let log = match git.head()? {
            Some(_) => commits(git, &[])?,
            None => Vec::new(),
        };
        let added = match log.is_empty() {
            true => HashMap::new(),
            false => added(git)?,
        };
        let mut items = Vec::new();
        for agent in agents(root) {
            let name = Some(agent.as_str()).filter(|it| !it.is_empty());
            let folder = manifest::folder(name);
            let list = manifest::read(&scope, &folder)?.manifest;
            let board = boards.iter().find(|(of, _)| *of == agent);
            let board = board.map_or(BOARD, |(_, board)| board.as_str());
            let mut boards = if list.entries.is_empty() || log.is_empty() {
                Boards::default()
            } else {
                Boards::of(git, board)?
            };
            for listed in &list.entries {
                let at = listed.ts.unwrap_or(Timestamp::UNIX_EPOCH);
                let read = manifest::entry_of(&scope, &folder, listed);
                let Ok((entry, _)) = read else {
                    items.push(TimelineItem::Gap(Gap {
                        first: at,
                        last: at,
                        count: 1,
                        job: "rem".to_owned(),
                        why: read.err().map_or_else(String::new, |error| error.whole()),
                    }));
                    continue;
                };
                let audit = audit::read_record(&scope, &folder, &entry.id);
                let path = format!("{folder}/{}", listed.file);
                items.push(TimelineItem::Entry(Box::new(ShownEntry {
                    agent: agent.clone(),
                    at,
                    failed_claims: (audit.iter().flat_map(|it| it.failed()))
                        .map(|it| format!("{} ({})", it.claim, it.why))
                        .collect(),
                    audited: audit.as_ref().map(|it| it.claims.len()),
                    commit: added.get(&path).cloned(),
                    verdicts: boards.judged(git, &entry, at),
                    ..shown(entry)
                })));
            }
        }
        items.extend(gaps(runs).into_iter().map(TimelineItem::Gap));
        // Commits before the first entry are not part of the journal.
        let begin = items.iter().map(TimelineItem::at).min();
        let rem: Vec<String> = (items.iter())
            .filter_map(|item| match item {
                TimelineItem::Entry(entry) => Some(entry.commit.as_ref()?.hash.clone()),
                _ => None,
            })
            .collect();
        let tagged = log.into_iter().filter(|it| it.tag.is_some());
        items.extend(
            tagged
                .filter(|it| begin.is_some_and(|begin| it.at >= begin) && !rem.contains(&it.hash))
                .map(TimelineItem::Commit),
        );
        items.sort_by_key(|item| std::cmp::Reverse(item.at()));
        Ok(Self {
            project,
            made,
            items,
            daydreams: daydream::read(&scope, &files.daydreams).0.daydreams,
            commits_at: commits_at(git),
        })
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
        commit: None,
    }
}

/// The git format of a commit: its fields, separated by NUL.
const FORMAT: &str = "%H%x00%h%x00%ct%x00%s";

fn commits(git: &Git, more: &[&str]) -> Result<Vec<Commit>, JobError> {
    let mut args = vec![COMMITS, "HEAD"];
    args.extend(more);
    let lines = git.log(FORMAT, &args)?;
    Ok(lines.iter().filter_map(|line| commit(line)).collect())
}

fn commit(line: &str) -> Option<Commit> {
    let mut parts = line.splitn(4, '\0').map(str::to_owned);
    let (hash, short) = (parts.next()?, parts.next()?);
    let at = Timestamp::from_second(parts.next()?.parse().ok()?).ok()?;
    let subject = parts.next()?;
    let tag = subject.split_once(':').map(|(tag, _)| tag);
    Some(Commit { hash, short, at, tag: TAGS.into_iter().find(|it| Some(*it) == tag), subject })
}

/// Maps the journals' files to the commits that added them, in one walk through the history.
fn added(git: &Git) -> Result<HashMap<String, Commit>, JobError> {
    let format = format!("--format=tformat:%x01{FORMAT}");
    let within = ["--", manifest::FOLDER];
    let mut args = vec!["--max-count=1000", "HEAD"];
    args.extend(within);
    let commits = git.ask(Read::RevList, &args)?;
    let mut args = vec!["--relative", "--diff-filter=A", "--name-only", &format];
    args.extend(within);
    let out = git.diffs(commits, &args)?;
    let out = String::from_utf8_lossy(&out);
    let mut added = HashMap::new();
    let mut of: Option<Commit> = None;
    for line in out.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix('\u{1}'), &of) {
            (Some(fields), _) => of = commit(fields),
            (None, Some(commit)) => {
                added.insert(line.to_owned(), commit.clone());
            }
            (None, None) => {}
        }
    }
    Ok(added)
}

/// The versions of a board, the oldest first.
#[derive(Default)]
struct Boards {
    path: String,
    versions: Vec<Commit>,
    read: HashMap<String, Option<Board>>,
}

impl Boards {
    fn of(git: &Git, path: &str) -> Result<Self, JobError> {
        let mut versions = commits(git, &["--", path])?;
        versions.truncate(VERSIONS);
        versions.reverse();
        Ok(Self { path: path.to_owned(), versions, read: HashMap::new() })
    }

    /// Returns an entry's verdicts with the commits that applied them.
    fn judged(&mut self, git: &Git, entry: &Entry, since: Timestamp) -> Vec<AppliedVerdict> {
        let verdicts = entry.sections.verdicts.iter();
        verdicts
            .map(|verdict| AppliedVerdict {
                text: text(verdict),
                resolved: self.resolved(git, verdict, since),
            })
            .collect()
    }

    fn resolved(&mut self, git: &Git, verdict: &Verdict, since: Timestamp) -> Option<Commit> {
        let done = |keyword: Keyword| match verdict.act {
            VerdictMove::PickUp => keyword == Keyword::Done,
            VerdictMove::PutDown => keyword == Keyword::Todo,
            VerdictMove::Cancel => keyword == Keyword::Cancelled,
            VerdictMove::KeepCourse => false,
        };
        for commit in self.versions.clone() {
            // A commit's time has a resolution of one second.
            if verdict.act == VerdictMove::KeepCourse || commit.at.as_second() < since.as_second() {
                continue;
            }
            let board = self.board(git, &commit.hash);
            if let Some(Resolved::One { task, .. }) = board.map(|it| it.resolve(&verdict.said))
                && done(task.keyword)
            {
                return Some(commit);
            }
        }
        None
    }

    fn board(&mut self, git: &Git, hash: &str) -> Option<&Board> {
        let Self { path, read, .. } = self;
        let board = read.entry(hash.to_owned()).or_insert_with(|| {
            let bytes = git.ask(Read::CatFile, &["blob", &format!("{hash}:./{path}")]).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            Some(Board::read(&text, BoardForm::of(path)))
        });
        board.as_ref()
    }
}

fn text(verdict: &Verdict) -> String {
    match (verdict.act, verdict.said.as_str()) {
        (act @ VerdictMove::KeepCourse, "") => act.describe().to_owned(),
        (act @ VerdictMove::KeepCourse, why) => format!("{} — {why}", act.describe()),
        (act, said) => format!("{}: {said}", act.describe()),
    }
}

/// Returns the dreams that left no entry. Successive dreams with the same reason form one gap.
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
            // A successful dream ends a sequence of missing entries.
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

/// Returns the web address of the commits, derived from the remote's URL.
fn commits_at(git: &Git) -> Option<String> {
    let url = git.ask(Read::ConfigValue, &["remote.origin.url"]).ok()?;
    let url = String::from_utf8(url).ok()?;
    page_of(url.trim())
}

fn page_of(url: &str) -> Option<String> {
    let (host, path) = match url.strip_prefix("https://") {
        Some(rest) => rest.split_once('/')?,
        None => url.strip_prefix("git@")?.split_once(':')?,
    };
    // The host may be preceded by a user name or a key.
    let host = host.rsplit('@').next()?;
    let path = path.strip_suffix(".git").unwrap_or(path);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let good = !host.is_empty() && !path.is_empty() && host.chars().chain(path.chars()).all(plain);
    good.then(|| format!("https://{host}/{path}/commit/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remotes_page_shows_no_key_and_only_plain_names() {
        let page = |url: &str| page_of(url).unwrap_or_default();
        assert_eq!(page("https://example.org/a/b.git"), "https://example.org/a/b/commit/");
        assert_eq!(page("git@example.org:a/b.git"), "https://example.org/a/b/commit/");
        assert_eq!(page("https://user:key@example.org/a/b"), "https://example.org/a/b/commit/");
        for bad in
            ["/srv/git/a.git", "file:///x", "https://", "javascript:alert(1)", "https://x/\"><b>"]
        {
            assert_eq!(page(bad), "", "{bad}");
        }
    }
}
