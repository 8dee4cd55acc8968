//! Gathers the four factual sources of a dream, which include no transcript and no self-report
//! (contracts/lifecycle.md).
//!
//! ```text
//! git log -12 --oneline ─┐
//! plan.org, 4,000 chars ─┤
//! _steps.jsonl, 25 rows ─┼──> Slice ──> fenced sources, and the rule-based entry
//! newest entry, 2,500 ───┘
//! ```
//!
//! This module must never pass on another source, or more text than these limits allow.

use jiff::Timestamp;
use runner_engine::outcome::Class;
use runner_text::org::{Board, BoardForm};

use super::super::entry::Entry;
use super::super::manifest::{self, Listed, ReadManifest};
use super::super::provenance::Provenance;
use super::super::{audit, audit::Audit};
use super::RemSpec;
use crate::steps::ToolStep;
use crate::{Context, JobError};

/// Git's option for the maximum number of commits.
const COMMITS: &str = "-12";
/// Maximum number of characters of the board that are shown.
const BOARD: usize = 4_000;
/// Maximum number of tool steps that are shown.
const STEPS: usize = 25;
/// Maximum number of characters of the newest entry that are shown.
const ENTRY: usize = 2_500;
/// Maximum size of the board's file, in bytes.
const LARGEST_BOARD: u64 = 8 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The full hash of the commit.
    pub hash: String,
    /// The abbreviated hash, as the log shows it.
    pub short: String,
    /// The commit time, in seconds since the epoch.
    pub at: i64,
    pub subject: String,
}

impl Commit {
    /// Formats the commit as a line of `git log --oneline`.
    pub fn line(&self) -> String {
        format!("{} {}", self.short, self.subject)
    }
}

/// The newest entry with the findings of its audit.
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
    /// The commits, newest first.
    pub commits: Vec<Commit>,
    /// The beginning of the board's text, or `None` if there is no board.
    pub plan: Option<String>,
    /// The complete board, against which verdicts are resolved.
    pub board: Board,
    /// The tool steps, oldest first.
    pub steps: Vec<ToolStep>,
    /// The newest entry, if a readable entry exists.
    pub previous: Option<Previous>,
    /// The manifest that the dream will replace.
    pub listed: ReadManifest,
    /// Messages about unreadable sources, for the report.
    pub reported: Vec<String>,
}

/// Reads the four sources.
///
/// # Errors
/// Returns an error if git fails, or if the manifest or the board cannot be read.
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
    Ok(Slice {
        commits: commits(ctx)?,
        plan: plan.map(|text| beginning(&text, BOARD)),
        board,
        steps,
        previous,
        listed,
        reported,
    })
}

/// Reads the newest entry, unless it is not the one that runner published.
fn previous(
    ctx: &Context<'_>,
    spec: &RemSpec,
    reported: &mut Vec<String>,
) -> Result<Option<Previous>, JobError> {
    let mut hidden = |why: String| {
        reported.push(format!("the newest entry is not shown: {why}"));
        None
    };
    let newest = match manifest::newest_in(&ctx.files, spec.agent.as_deref().unwrap_or_default()) {
        Ok(Some(newest)) => newest,
        Ok(None) => return Ok(None),
        Err(error) => return Ok(hidden(error.whole())),
    };
    let provenance = Provenance::in_run(ctx, &newest)?;
    if let (Provenance::Foreign, Some(why)) = (provenance, provenance.describe(&newest.path)) {
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
    let Some((bytes, _)) = ctx.files.inspect(path, LARGEST_BOARD)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| JobError::failed(Class::Environment, format!("{path} is not UTF-8")))?;
    Ok(Some(text))
}

fn commits(ctx: &Context<'_>) -> Result<Vec<Commit>, JobError> {
    if ctx.git.head()?.is_none() {
        return Ok(Vec::new());
    }
    let lines = ctx.git.log("%H%x00%h%x00%ct%x00%s", &[COMMITS, "HEAD", "--"])?;
    let commits = lines.iter().filter_map(|line| {
        let mut parts = line.splitn(4, '\0');
        Some(Commit {
            hash: parts.next()?.to_owned(),
            short: parts.next()?.to_owned(),
            at: parts.next()?.parse().ok()?,
            subject: parts.next()?.to_owned(),
        })
    });
    Ok(commits.collect())
}

fn beginning(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Whether the newest entry is shown to a dream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousEntry {
    Shown,
    /// The entry is left out, so that the dream does not repeat it.
    LeftOut,
}

impl Slice {
    /// Returns the time at which the newest entry was written.
    pub fn since(&self) -> Option<Timestamp> {
        self.listed.manifest.entries.first()?.ts
    }

    /// Returns the commits that are newer than the newest entry.
    pub fn new_commits(&self) -> impl Iterator<Item = &Commit> {
        let since = self.since().map_or(i64::MIN, Timestamp::as_second);
        self.commits.iter().filter(move |it| it.at > since)
    }

    /// Returns the tool steps that are newer than the newest entry. A step without a time counts as
    /// newer.
    pub fn new_steps(&self) -> impl Iterator<Item = &ToolStep> {
        let since = self.since();
        self.steps.iter().filter(move |it| {
            let at = it.ts.parse::<Timestamp>().ok();
            at.is_none_or(|at| since.is_none_or(|since| at > since))
        })
    }

    /// Returns the sources that are shown, each with its label.
    pub fn sources(&self, previous: PreviousEntry) -> Vec<(String, String)> {
        let lines = |lines: Vec<String>| match lines.is_empty() {
            true => "(none)".to_owned(),
            false => lines.join("\n"),
        };
        let mut sources = vec![
            (
                "git log -12 --oneline".to_owned(),
                lines(self.commits.iter().map(Commit::line).collect()),
            ),
            ("the board".to_owned(), self.plan.clone().unwrap_or_else(|| "(none)".to_owned())),
            (
                "the last 25 tools".to_owned(),
                lines(self.steps.iter().map(ToolStep::line).collect()),
            ),
        ];
        if let Some(previous) = self.previous.as_ref().filter(|_| previous == PreviousEntry::Shown)
        {
            let mut text = previous.text.clone();
            let failed: Vec<String> = (previous.audit.iter().flat_map(Audit::failed))
                .map(|it| format!("- {} ({})", it.claim, it.why))
                .collect();
            if !failed.is_empty() {
                text.push_str("\n\nAn audit found that these claims of its carry do not hold:\n");
                text.push_str(&failed.join("\n"));
            }
            sources.push(("the previous entry".to_owned(), text));
        }
        sources
    }
}
