//! Gathers a dream's four factual sources, which include neither transcripts nor self-reports.
//!
//! ```text
//! git log -12 --oneline ─┐
//! plan.org, 4,000 chars ─┤
//! _steps.jsonl, 25 rows ─┼──> Slice ──> fenced sources, and the rule-based entry
//! newest entry, 2,500 ───┘
//! ```
//!
//! The newest entry is shown with its audit, and the first paragraph of the README describes the
//! project. This module must never pass on any other source.

use std::collections::BTreeSet;

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::outcome::Class;
use runner_text::org::{Board, BoardForm};

use super::super::board::{self, BoardHistory, HistoryEvent, HistoryRecord};
use super::super::entry::Entry;
use super::super::log::{self, Commit};
use super::super::manifest::{self, Listed, ReadManifest};
use super::super::provenance::Provenance;
use super::super::{audit, audit::Audit};
use super::RemSpec;
use crate::steps::{self, ToolStep};
use crate::{Context, JobError};

/// Maximum number of commits to show.
const COMMITS: usize = 12;
/// Maximum length of the project's description, in characters.
const ABOUT: usize = 600;
/// Maximum size of a README, in bytes.
const LARGEST_README: u64 = 1024 * 1024;
/// Maximum number of characters to show from the board.
const BOARD: usize = 4_000;
/// Maximum number of tool steps to show.
pub(super) const STEPS: usize = 25;
/// Maximum number of characters to show from the newest entry.
const ENTRY: usize = 2_500;

/// The newest entry with its audit.
#[derive(Clone, Debug)]
pub struct Previous {
    pub listed: Listed,
    /// The beginning of the entry's text.
    pub text: String,
    pub entry: Entry,
    /// The audit of the entry's claims, if there was one.
    pub audit: Option<Audit>,
}

/// The input of a dream.
#[derive(Clone, Debug)]
pub struct Slice {
    /// At most 12 commits, newest first, without runner's own.
    pub commits: Vec<Commit>,
    /// The hashes of the commits that are newer than the newest entry.
    pub newer: BTreeSet<String>,
    /// Whether an `audit:` commit is newer than the newest entry.
    pub audited: bool,
    /// The hash of the commit that is checked out, or `None` if there is no commit.
    pub head: Option<String>,
    /// The beginning of the README's first paragraph, or `None` if there is no README.
    pub about: Option<String>,
    /// True if somebody other than runner has changed the board since the newest entry, or if there
    /// is no entry.
    pub board_changed: bool,
    /// The digest of the board.
    pub board_digest: String,
    /// The beginning of the board's text, or `None` if there is no board.
    pub plan: Option<String>,
    /// The complete board, against which verdicts are resolved.
    pub board: Board,
    /// The heading of the task that the agent is working on, if any.
    pub doing: Option<String>,
    /// When the agent began that task, if the board's history shows it.
    pub doing_since: Option<Timestamp>,
    /// The tool steps, oldest first.
    pub steps: Vec<ToolStep>,
    /// The newest entry, or `None` if there is no entry or it is unreadable or
    /// [`Provenance::Foreign`].
    pub previous: Option<Previous>,
    /// The manifest that the dream will replace.
    pub listed: ReadManifest,
    /// Messages about unreadable sources, for the report.
    pub reported: Vec<String>,
}

/// Reads the four sources.
///
/// # Errors
/// Returns an error if git fails, or if the manifest, the board, its history or the database cannot
/// be read.
pub fn gather(ctx: &Context<'_>, spec: &RemSpec) -> Result<Slice, JobError> {
    let mut reported = Vec::new();
    let folder = manifest::folder(spec.agent.as_deref());
    let listed = manifest::read(&ctx.files, &folder)?;
    let previous = previous(ctx, spec, &mut reported)?;
    let plan = plan(ctx, spec)?;
    let board = Board::read(plan.as_deref().unwrap_or_default(), BoardForm::of(&spec.board));
    let steps = ctx.last_steps(&spec.files.steps, spec.agent.as_deref(), STEPS)?;
    let steps = steps.unwrap_or_else(|error| {
        reported.push(format!("{} is not shown: {error}", spec.files.steps));
        Vec::new()
    });
    let mut commits = log::commits(&ctx.git)?;
    let newest = listed.manifest.entries.first();
    let newer = log::newer(&ctx.git, &commits, newest)?;
    let audited =
        commits.iter().any(|it| newer.contains(&it.hash) && it.subject.starts_with("audit:"));
    commits.truncate(COMMITS);
    let whole = plan.as_deref().unwrap_or_default();
    let history = ctx.files.inspect(board::PATH, board::LARGEST)?;
    let history = BoardHistory::parse(&history.map(|(bytes, _)| bytes).unwrap_or_default());
    let board_changed =
        newest.is_none_or(|newest| is_board_changed(&history, newest, (&spec.board, whole)));
    let agent = spec.agent.as_deref().unwrap_or_default();
    let doing = board::current(&board, &history, agent).map(|task| task.heading.clone());
    let doing_since = doing.as_deref().and_then(|task| history.begun(task));
    Ok(Slice {
        commits,
        newer,
        audited,
        head: ctx.git.head()?,
        about: about(ctx),
        board_changed,
        board_digest: Digest::of(whole.as_bytes()).to_string(),
        plan: plan.map(|text| beginning(&text, BOARD)),
        board,
        doing,
        doing_since,
        steps,
        previous,
        listed,
        reported,
    })
}

/// Reads the newest entry. Leaves out a [`Provenance::Foreign`] or unreadable entry, and adds the
/// reason to `reported`.
fn previous(
    ctx: &Context<'_>,
    spec: &RemSpec,
    reported: &mut Vec<String>,
) -> Result<Option<Previous>, JobError> {
    let mut hidden = |why: String| {
        reported.push(format!("the newest entry is not shown: {why}"));
        None
    };
    let agent = spec.agent.as_deref().unwrap_or_default();
    let newest = match manifest::newest_in(&ctx.files, agent) {
        Ok(Some(newest)) => newest,
        Ok(None) => return Ok(None),
        Err(error) => return Ok(hidden(error.whole())),
    };
    let provenance = Provenance::in_run(ctx, &newest)?;
    if let (Provenance::Foreign, Some(why)) = (provenance, provenance.describe(&newest.path, agent))
    {
        return Ok(hidden(why));
    }
    let folder = manifest::folder(spec.agent.as_deref());
    Ok(Some(Previous {
        listed: newest.listed,
        text: beginning(&newest.text, ENTRY),
        audit: audit::read_record(&ctx.files, &folder, &newest.entry.id),
        entry: newest.entry,
    }))
}

fn plan(ctx: &Context<'_>, spec: &RemSpec) -> Result<Option<String>, JobError> {
    let path = &spec.board;
    let Some((bytes, _)) = ctx.files.inspect(path, board::LARGEST)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| JobError::failed(Class::Environment, format!("{path} is not UTF-8")))?;
    Ok(Some(text))
}

/// Reads a description of the project: the first paragraph of its README.
fn about(ctx: &Context<'_>) -> Option<String> {
    let read = |name| ctx.files.inspect(name, LARGEST_README).ok().flatten();
    let (bytes, _) =
        ["README.md", "README.org", "README", "readme.md"].into_iter().find_map(read)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let plain = |line: &&str| !line.starts_with(['#', '<', '!', '*', '=', '[']);
    let lines = text.lines().map(str::trim).skip_while(|line| line.is_empty() || !plain(line));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    Some(beginning(&lines.join(" "), ABOUT)).filter(|about| !about.is_empty())
}

/// Returns whether somebody other than runner has changed the board since the newest entry.
/// Runner's own moves, which apply verdicts and pick tasks, are not evidence of work. `path` and
/// `plan` are the board's path and text.
fn is_board_changed(history: &BoardHistory, newest: &Listed, (path, plan): (&str, &str)) -> bool {
    let mut known = newest.board.clone();
    let newer = |record: &&HistoryRecord| newest.ts.is_none_or(|ts| record.ts >= ts);
    // The history contains the changes to all of the project's boards.
    for record in history.of_board(path).filter(newer) {
        match record.what {
            HistoryEvent::Apply | HistoryEvent::Pick if record.before == known => {
                known.clone_from(&record.after);
            }
            _ => return true,
        }
    }
    known != Some(Digest::of(plan.as_bytes()).to_string())
}

fn beginning(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Whether the newest entry is shown to a dream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousEntry {
    Shown,
    /// The entry is left out so that the dream does not repeat it.
    LeftOut,
}

impl Slice {
    /// Returns the time at which the newest entry was written, or `None` if there is no entry or
    /// its time is unknown.
    pub fn since(&self) -> Option<Timestamp> {
        self.listed.manifest.entries.first()?.ts
    }

    /// Returns the number of listed entries that were written since the agent began its task, or 0
    /// if the start time is unknown.
    pub fn entries_since_begun(&self) -> usize {
        let entries = self.listed.manifest.entries.iter();
        entries.filter(|entry| self.doing_since.is_some_and(|begun| entry.ts > Some(begun))).count()
    }

    /// Returns the commits that are newer than the newest entry.
    pub fn new_commits(&self) -> impl Iterator<Item = &Commit> {
        self.commits.iter().filter(|it| self.newer.contains(&it.hash))
    }

    /// Returns the tool steps that are newer than the newest entry. A step without a valid time is
    /// treated as newer.
    pub fn new_steps(&self) -> impl Iterator<Item = &ToolStep> {
        let since = self.since();
        self.steps.iter().filter(move |it| {
            let at = it.ts.parse::<Timestamp>().ok();
            at.is_none_or(|at| since.is_none_or(|since| at > since))
        })
    }

    /// Returns whether nothing has happened since the newest entry: no commit, no tool use and no
    /// change to the board. Without an entry, returns false. A row that records an agent's whole
    /// run is not evidence of work.
    pub fn is_idle(&self) -> bool {
        let worked = |step: &ToolStep| step.tool != steps::RUN;
        !self.listed.manifest.entries.is_empty()
            && !self.board_changed
            && self.newer.is_empty()
            && !self.new_steps().any(worked)
    }

    /// Formats the commits. The new ones are marked if there is a previous entry.
    fn log(&self) -> Vec<String> {
        let marks = !self.listed.manifest.entries.is_empty();
        let none_is_new = marks && self.newer.is_empty() && !self.commits.is_empty();
        let mark = |it: &Commit| match marks && self.newer.contains(&it.hash) {
            true => format!("{}  [new since the previous entry]", it.line()),
            false => it.line(),
        };
        let note = none_is_new.then(|| "(no commit is new since the previous entry)".to_owned());
        note.into_iter().chain(self.commits.iter().map(mark)).collect()
    }

    /// Returns the sources to show, each with its label.
    pub fn sources(&self, previous: PreviousEntry) -> Vec<(String, String)> {
        let lines = |lines: Vec<String>| match lines.is_empty() {
            true => "(none)".to_owned(),
            false => lines.join("\n"),
        };
        let about = self.about.clone().map(|about| ("what the project is".to_owned(), about));
        let mut sources: Vec<(String, String)> = about.into_iter().collect();
        sources.extend([
            ("git log -12 --oneline".to_owned(), lines(self.log())),
            ("the board".to_owned(), self.plan.clone().unwrap_or_else(|| "(none)".to_owned())),
            (
                "the last 25 tools".to_owned(),
                lines(self.steps.iter().map(ToolStep::line).collect()),
            ),
        ]);
        if let Some(previous) = self.previous.as_ref().filter(|_| previous == PreviousEntry::Shown)
        {
            let mut text = previous.text.clone();
            let checked: Vec<String> = (previous.audit.iter().flat_map(|audit| &audit.claims))
                .map(|it| format!("- {}: {} ({})", it.claim, it.finding, it.why))
                .collect();
            if !checked.is_empty() {
                text.push_str("\n\nAn audit checked the claims of its carry:\n");
                text.push_str(&checked.join("\n"));
            }
            sources.push(("the previous entry".to_owned(), text));
        }
        sources
    }
}
