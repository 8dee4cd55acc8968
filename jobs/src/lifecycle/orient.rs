//! Builds the orientation that a waking run reads first: the tasks in flight, the newest carry and
//! the next file.
//!
//! [`orient`] uses at most three files: the manifest, the newest entry and the board. [`since`] and
//! [`uncommitted`] add facts from git and the board's history. The orientation has at most [`MOST`]
//! lines. This module must never report content that was not read. A carry or a board that cannot
//! be read is reported and does not fail the run.

use runner_engine::git::Git;
use runner_engine::git::changes::Untracked;
use runner_engine::scope::Scope;
use runner_text::org::{Board, BoardForm, Keyword, Task};
use serde::Serialize;

use super::audit;
use super::board::{self, BoardError, BoardHistory};
use super::entry::Entry;
use super::log;
use super::manifest::{Listed, Newest};
use super::provenance::Provenance;
use super::spec::StateKind;
use crate::JobError;
use crate::reserved::{NEVER, reserved};

/// Maximum number of lines in an orientation.
pub const MOST: usize = 60;
/// Maximum length of a line, in characters.
const WIDEST: usize = 300;
/// Maximum number of tasks to list for each keyword.
const NAMED: usize = 5;
/// Maximum number of commits, of moves and of uncommitted paths to list.
const HAPPENED: usize = 8;
/// Maximum number of lines to show from a carry, and from a checklist.
const CARRIED: usize = 20;

/// The orientation shown to a run when it starts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Orientation {
    /// The paths of the files that were read, relative to the project.
    pub read: Vec<String>,
    /// The headings of the DOING tasks.
    pub doing: Vec<String>,
    /// The headings of the NEXT tasks.
    pub next: Vec<String>,
    /// The path of the newest entry, or `None` if its carry is not shown.
    pub entry: Option<String>,
    /// The origin of the newest entry, or `None` if no entry was read. A carry of unknown origin is
    /// shown without the instruction to trust it.
    pub provenance: Option<Provenance>,
    pub carry: Vec<String>,
    /// The uncommitted paths, then the commits and task moves since the entry. Without an entry,
    /// the commits and moves are the newest ones.
    pub since: Vec<String>,
    /// The first project file mentioned in the carry, if there is one.
    pub file: Option<String>,
    /// The carry's claims, for an audit.
    pub claims: Vec<String>,
    /// Messages about missing or unreadable sources.
    pub troubles: Vec<String>,
}

/// Lists what happened since the newest entry: the commits, and the moves on the board at
/// `board_path`.
///
/// # Errors
/// Returns an error if git or the board's history cannot be read.
pub fn since(
    git: &Git,
    scope: &Scope,
    board_path: &str,
    newest: Option<&Listed>,
) -> Result<Vec<String>, JobError> {
    let commits = log::commits(git)?;
    let newer = log::newer(git, &commits, newest)?;
    let commits = commits.iter().filter(|commit| newer.contains(&commit.hash));
    let mut out: Vec<String> =
        commits.take(HAPPENED).map(|it| format!("committed {}", it.line())).collect();
    let history = scope.inspect(board::PATH, board::LARGEST)?;
    let history = BoardHistory::parse(&history.map(|(bytes, _)| bytes).unwrap_or_default());
    let after = newest.and_then(|newest| newest.ts);
    let records = history.of_board(board_path).rev();
    let records = records.filter(|record| after.is_none_or(|after| record.ts >= after));
    let moves = records.flat_map(|record| record.moves.iter().rev());
    out.extend(moves.take(HAPPENED).map(|it| {
        let from = it.from.map_or("new", |from| from.as_str());
        format!("{from} → {}: {}", it.to.map_or("", |to| to.as_str()), it.task)
    }));
    Ok(out)
}

/// Describes the project's paths that differ from the last commit. Leaves out runner's files and
/// the board, because runner itself changes the board. Returns `None` if no other path differs.
///
/// # Errors
/// Returns an error if git cannot compare the work tree.
pub fn uncommitted(git: &Git, board_path: &str) -> Result<Option<String>, JobError> {
    let changes = git.changes(&[], Untracked::Folders)?;
    let of_work = |path: &&String| *path != board_path && reserved(path, &NEVER).is_none();
    let paths: Vec<&String> = changes.keys().filter(of_work).collect();
    let listed: Vec<&str> = paths.iter().take(HAPPENED).map(|path| path.as_str()).collect();
    let more = match paths.len().saturating_sub(HAPPENED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Ok((!paths.is_empty()).then(|| format!("not committed: {}{more}", listed.join(", "))))
}

/// Builds an orientation from the carry of an agent's newest entry, and from the board.
pub fn orient(
    scope: &Scope,
    (board_path, agent): (&str, &str),
    newest: &Result<Option<(Newest, Provenance)>, JobError>,
) -> Orientation {
    let mut out = Orientation::default();
    match newest {
        Ok(Some((newest, provenance))) => {
            out.read.extend([newest.list.clone(), newest.path.clone()]);
            out.provenance = Some(*provenance);
            let why = provenance.describe(&newest.path, agent);
            out.troubles.extend(why.map(|why| format!("no verified carry: {why}")));
            if *provenance != Provenance::Foreign {
                out.take_entry(scope, newest.path.clone(), &newest.entry);
            }
        }
        Ok(None) => out.troubles.push("no dream yet: there is no carry".to_owned()),
        Err(error) => out.troubles.push(format!("no carry: {}", error.whole())),
    }
    match board::read_in(scope, board_path) {
        Ok(text) => {
            out.read.push(board_path.to_owned());
            out.take_board(&Board::read(&text, BoardForm::of(board_path)));
        }
        Err(error @ BoardError::Missing(_)) => out.troubles.push(error.to_string()),
        Err(error) => out.troubles.push(format!("no board: {error}")),
    }
    out
}

impl Orientation {
    fn take_entry(&mut self, scope: &Scope, path: String, entry: &Entry) {
        let words = entry.sections.carry.iter();
        let words = words.flat_map(|line| line.split_whitespace());
        self.file = words
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && !"._/-".contains(c)))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.contains(['/', '.']) && !word.contains(".."))
            .find(|word| !word.starts_with('/') && scope.is_file(word))
            .map(str::to_owned);
        self.claims = entry.claims();
        self.carry.clone_from(&entry.sections.carry);
        self.entry = Some(path);
    }

    fn take_board(&mut self, board: &Board) {
        let of = |keyword: Keyword| {
            let stands = |task: &&Task| task.keyword == keyword;
            let tasks = board.tasks.iter().filter(stands);
            tasks.map(|task| task.heading.clone()).collect()
        };
        self.doing = of(Keyword::Doing);
        self.next = of(Keyword::Next);
    }

    /// Formats the orientation for a run of this kind. `picked` is the task that was picked for the
    /// run.
    pub fn lines(&self, kind: StateKind, picked: Option<&str>) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(task) = picked {
            out.push(format!("PICKED  {task}"));
        }
        for (word, tasks) in [("DOING", &self.doing), ("NEXT", &self.next)] {
            let others = tasks.iter().filter(|task| Some(task.as_str()) != picked);
            let others: Vec<_> = others.collect();
            out.extend(others.iter().take(NAMED).map(|task| format!("{word:<6}  {task}")));
            if others.len() > NAMED {
                out.push(format!("{word:<6}  … and {} more", others.len() - NAMED));
            }
        }
        if let Some(entry) = &self.entry {
            out.push(String::new());
            out.push(match (self.provenance, kind) {
                (Some(Provenance::Published), StateKind::Audit) => {
                    format!("Carry of {entry}. Later runs trusted it; check it yourself:")
                }
                (Some(Provenance::Published), _) => {
                    format!("Carry of {entry}. Trust it; do not verify again what it lists:")
                }
                _ => format!("Carry of {entry}, unverified; check what it lists:"),
            });
            let carry = self.carry.iter().take(CARRIED);
            out.extend(carry.map(|line| format!("- {line}")));
        }
        if !self.since.is_empty() {
            out.push(String::new());
            out.push(match self.entry {
                Some(_) => "Changes since that entry, newest first:".to_owned(),
                None => "Changes so far, newest first:".to_owned(),
            });
            out.extend(self.since.iter().map(|what| format!("- {what}")));
        }
        if let Some(file) = &self.file {
            out.push(format!("Next file: {file}"));
        }
        if kind == StateKind::Audit && !self.claims.is_empty() {
            out.push(String::new());
            out.push("Claims of the last dream. Look at each one yourself:".to_owned());
            let claims = audit::checklist(&self.claims);
            out.extend(claims.lines().take(CARRIED).map(str::to_owned));
        }
        out.extend(self.troubles.iter().map(|trouble| format!("({trouble})")));
        out.truncate(MOST);
        out.iter().map(|line| cut(line)).collect()
    }
}

/// Truncates a line to [`WIDEST`] characters and replaces its control characters.
fn cut(line: &str) -> String {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= WIDEST {
        return line;
    }
    line.chars().take(WIDEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::lifecycle::manifest::newest_in;

    fn orient(root: &Path, board_path: &str, agent: &str) -> Orientation {
        let scope = Scope::open(root, &[], ".runner/staging/look").unwrap();
        let newest = newest_in(&scope, agent);
        let published = |newest| (newest, Provenance::Published);
        super::orient(&scope, (board_path, agent), &newest.map(|found| found.map(published)))
    }

    #[test]
    fn orientation_is_short_and_reads_few_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let empty = orient(root, "plan.org", "");
        assert_eq!((empty.read.len(), empty.troubles.len()), (0, 2));
        let board: String = (0..200)
            .map(|n| format!("* {} task {n}\n", ["TODO", "NEXT", "DOING"][n % 3]))
            .collect();
        fs::write(root.join("plan.org"), board).unwrap();
        fs::create_dir_all(root.join("rem/two")).unwrap();
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/a.rs"), "").unwrap();
        let carry = "- next action: open src/a.rs, then ../../etc/passwd\n\
                     - verified: tests pass; docs build\n";
        let long = format!("- {}\n", "x".repeat(1000)).repeat(80);
        let text = format!(
            "#+TITLE: rem\n#+MODEL: m\n* tale\nx\n* goals\n* blue sky\n* fears\n* verdicts\n* carry\n{carry}{long}"
        );
        fs::write(root.join("rem/two/2026-06-10-1430.org"), text).unwrap();
        for manifest in [
            "{\"entries\":[\"2026-06-10-1430.org\"]}",
            "{\"entries\":[{\"file\":\"2026-06-10-1430.org\"}]}",
        ] {
            fs::write(root.join("rem/two/manifest.json"), manifest).unwrap();
            let reported = orient(root, "plan.org", "two");
            assert_eq!(reported.read.len(), 3, "{reported:?}");
            assert_eq!(reported.file.as_deref(), Some("src/a.rs"));
            let lines = reported.lines(StateKind::Audit, Some("task 1"));
            assert!(lines.len() <= MOST, "{}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= WIDEST));
            assert!(lines.contains(&"claim 2: docs build".to_owned()), "{lines:?}");
        }
        for manifest in [
            "{",
            "{}",
            "{\"entries\":[7]}",
            "{\"entries\":[\"../../x\"]}",
            "{\"entries\":[\"gone\"]}",
        ] {
            fs::write(root.join("rem/two/manifest.json"), manifest).unwrap();
            let reported = orient(root, "plan.org", "two");
            let trouble = reported.troubles.first().is_some_and(|it| it.contains("no carry"));
            assert!(trouble && reported.entry.is_none(), "{manifest}: {reported:?}");
        }
    }
}
