//! Finds the commits that added entries and the commits that applied verdicts.

use std::collections::HashMap;

use jiff::Timestamp;
use runner_engine::git::{Git, Read};
use runner_jobs::JobError;
use runner_jobs::lifecycle::entry::{Entry, Verdict, VerdictMove};
use runner_jobs::lifecycle::manifest;
use runner_text::org::{Board, BoardForm, Keyword, Resolved};

use super::model::{AppliedVerdict, Commit};

const COMMITS: &str = "--max-count=400";
/// Maximum number of a board's versions to read.
const VERSIONS: usize = 200;

/// The tags with which an agent's commit subjects may begin.
const TAGS: [&str; 4] = ["add", "blog", "audit", "rem"];

/// Git's log format for a commit, with the fields separated by NUL.
const FORMAT: &str = "%H%x00%h%x00%ct%x00%s";

pub fn commits(git: &Git, more: &[&str]) -> Result<Vec<Commit>, JobError> {
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

/// Maps each journal file to the commit that added it. Examines at most 1000 commits.
pub fn added(git: &Git) -> Result<HashMap<String, Commit>, JobError> {
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

/// The versions of a board, oldest first.
#[derive(Default)]
pub struct Boards {
    path: String,
    versions: Vec<Commit>,
    read: HashMap<String, Option<Board>>,
}

impl Boards {
    pub fn of(git: &Git, path: &str) -> Result<Self, JobError> {
        let mut versions = commits(git, &["--", path])?;
        versions.truncate(VERSIONS);
        versions.reverse();
        Ok(Self { path: path.to_owned(), versions, read: HashMap::new() })
    }

    /// Returns an entry's verdicts, each with the commit that applied it, if there is one.
    pub fn judged(&mut self, git: &Git, entry: &Entry, since: Timestamp) -> Vec<AppliedVerdict> {
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
            // Commit times have a resolution of one second, so a commit from the same second may
            // predate the entry.
            if verdict.act == VerdictMove::KeepCourse || commit.at.as_second() <= since.as_second()
            {
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

/// Returns the URL prefix of commit pages, derived from the URL of the remote `origin`. Returns
/// `None` if there is no such remote, or if its URL has neither the form `https://HOST/PATH` nor
/// the form `git@HOST:PATH`.
pub fn commits_at(git: &Git) -> Option<String> {
    let url = git.ask(Read::ConfigValues, &["remote.origin.url"]).ok()?;
    let url = String::from_utf8(url).ok()?;
    page_of(url.lines().next()?.trim())
}

fn page_of(url: &str) -> Option<String> {
    let (host, path) = match url.strip_prefix("https://") {
        Some(rest) => rest.split_once('/')?,
        None => url.strip_prefix("git@")?.split_once(':')?,
    };
    // A user name and password may precede the host.
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
    fn commit_url_is_derived_from_remote() {
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
