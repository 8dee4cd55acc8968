//! The expandable rows of the page: the runs, worst first, and the proposals.

use runner_engine::outcome::{Class, Outcome};
use serde::Serialize;

use super::Tone;
use crate::dream::proposal::Confidence;
use crate::failmark;
use crate::log_tail::LogTail;
use crate::report::model::NightReport;
use crate::report::proposals::ReportedProposal;
use crate::report::run_line::RunLine;

/// Maximum number of replies per run on the page.
const REPLIES: usize = 3;

/// The runs of one colour.
#[derive(Serialize)]
pub(super) struct RunGroup<'a> {
    title: &'static str,
    is_bad: bool,
    runs: Vec<RunView<'a>>,
}

/// A run, with the descriptions of its outcome.
#[derive(Serialize)]
struct RunView<'a> {
    line: &'a RunLine,
    state: &'a str,
    tone: Tone,
    message: &'a str,
    why: Option<&'a str>,
    class: Option<&'static str>,
    hint: Option<&'static str>,
    awake: Option<String>,
    /// The last lines of the run's files and the replies from its models, each with its title.
    tails: Vec<(String, Vec<&'a str>)>,
}

/// Groups the runs of the night by colour.
pub(super) fn run_groups(report: &NightReport) -> Vec<RunGroup<'_>> {
    let runs = |tone| {
        let all = report.runs.iter().map(RunView::of);
        all.filter(|run| run.tone == tone).collect()
    };
    [
        (Tone::Bad, "did not succeed"),
        (Tone::Warn, "degraded, deferred or skipped because of another run"),
        (Tone::Good, "succeeded"),
        (Tone::Calm, "did not need to run"),
    ]
    .map(|(tone, title)| RunGroup { title, is_bad: tone == Tone::Bad, runs: runs(tone) })
    .into()
}

impl<'a> RunView<'a> {
    fn of(line: &'a RunLine) -> Self {
        let outcome = line.outcome.as_ref();
        let class = outcome.and_then(Outcome::class);
        Self {
            line,
            state: line.as_str(),
            tone: Tone::of(line),
            message: line.message(),
            // The message of a run without a headline is already the reason.
            why: outcome.and_then(Outcome::why).filter(|why| *why != line.message()),
            class: class.map(Class::as_str),
            hint: outcome.map(failmark::hint),
            awake: line.awake.as_ref().map(ToString::to_string),
            tails: line.files.as_ref().map(tails).unwrap_or_default(),
        }
    }
}

/// Returns the nonempty ends of a run's files, and the first [`REPLIES`] replies, each with a
/// title.
fn tails(files: &LogTail) -> Vec<(String, Vec<&str>)> {
    let parts = [("log", &files.log), ("stdout", &files.stdout), ("stderr", &files.stderr)];
    let ends = parts.into_iter().filter(|(_, lines)| !lines.is_empty()).map(|(name, lines)| {
        (format!("last lines of {name}"), lines.iter().map(String::as_str).collect())
    });
    let replies = files.replies.iter();
    let replies =
        replies.map(|reply| (format!("reply of {}", reply.backend), reply.text.lines().collect()));
    ends.chain(replies.take(REPLIES)).collect()
}

/// The report's proposals: those that need a decision, a check or nothing, and those that are
/// decided.
#[derive(Serialize)]
pub(super) struct Proposals<'a> {
    waiting: Vec<ProposalView<'a>>,
    /// Ideas that are kept even though they may be done or duplicates.
    perhaps: Vec<ProposalView<'a>>,
    kept: Vec<ProposalView<'a>>,
    decided: Vec<ProposalView<'a>>,
}

#[derive(Serialize)]
struct ProposalView<'a> {
    proposal: &'a ReportedProposal,
    confidence: &'static str,
    age: Option<String>,
    commands: Vec<String>,
}

impl<'a> Proposals<'a> {
    pub(super) fn of(report: &'a NightReport) -> Self {
        let mut all = Self {
            waiting: Vec::new(),
            perhaps: Vec::new(),
            kept: Vec::new(),
            decided: Vec::new(),
        };
        for it in &report.proposals {
            let (rows, verbs): (_, &[&str]) = match (&it.decided, it.waits()) {
                (Some(_), _) => (&mut all.decided, &["show", "undo"]),
                (None, true) => (&mut all.waiting, &["accept", "reject", "show"]),
                (None, false) if it.is_perhaps() => (&mut all.perhaps, &["show"]),
                (None, false) => (&mut all.kept, &["show"]),
            };
            rows.push(ProposalView {
                proposal: it,
                confidence: match it.confidence {
                    Confidence::High => "sure",
                    Confidence::Med => "fairly sure",
                    Confidence::Low => "worth a look",
                },
                age: it.age(),
                commands: verbs.iter().map(|verb| it.command(verb)).collect(),
            });
        }
        all
    }
}
