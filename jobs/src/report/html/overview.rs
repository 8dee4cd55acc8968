//! The first screen: the result, the cost, the refusals and the items awaiting attention.

use jiff::Timestamp;
use runner_engine::outcome::Outcome;
use runner_text::counted;
use serde::Serialize;

use super::{Tone, details};
use crate::dream::proposal::clean;
use crate::report::budget_usage::format_amount;
use crate::report::model::NightReport;
use crate::report::run_line::RunLine;

/// Maximum length of a reason on the first screen, in characters.
const REASON: usize = 140;

/// The data for the first screen.
#[derive(Serialize)]
pub(super) struct Overview<'a> {
    verdict: Verdict,
    opened: String,
    closed: String,
    /// The outcomes of the jobs' last attempts, ordered by tone.
    outcomes: Vec<Tally<'a>>,
    /// A job that did not run, or else the worst run, with the reason; `None` if everything went
    /// well or the run has no reason.
    worst: Option<Worst<'a>>,
    /// Number of calls that did not report their usage.
    unstated_calls: u64,
    /// The remaining money, calls and tokens, in this order. A unit without a limit is left out.
    left: Option<String>,
    /// The refusals by source.
    refused: Vec<Tally<'a>>,
    is_unconfined: bool,
    /// Number of runs for which the requested sleep inhibition was not obtained, or was lost before
    /// the run finished.
    not_kept_awake: usize,
    /// Number of morning packets.
    packets: usize,
    /// The age of the oldest proposal awaiting a decision, if it is from an earlier night.
    oldest: Option<String>,
}

/// One sentence about the whole night.
#[derive(Serialize)]
struct Verdict {
    tone: Tone,
    text: String,
}

impl Verdict {
    fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }
}

/// A name, and how often it occurs.
#[derive(Serialize)]
struct Tally<'a> {
    name: &'a str,
    tone: Tone,
    count: usize,
}

#[derive(Serialize)]
struct Worst<'a> {
    job: &'a str,
    why: String,
}

impl<'a> Overview<'a> {
    pub(super) fn of(report: &'a NightReport) -> Self {
        let outcomes = report.last_attempts().map(|run| (run.as_str(), Tone::of(run)));
        let mut outcomes = tally(outcomes);
        outcomes.sort_by_key(|it| it.tone);
        Self {
            verdict: verdict(report),
            opened: minute(report.opened),
            closed: minute(report.closed),
            outcomes,
            worst: worst(report),
            unstated_calls: report.runs.iter().map(|run| run.unstated_calls).sum(),
            left: left(report),
            refused: tally(report.refused.iter().map(|it| (it.by.describe(), Tone::Warn))),
            is_unconfined: report.runs.iter().any(details::is_unconfined),
            not_kept_awake: report.not_kept_awake(),
            oldest: oldest(report),
            packets: report.dreamscapes.iter().map(|it| it.packets.len()).sum(),
        }
    }
}

fn oldest(report: &NightReport) -> Option<String> {
    let waiting = report.proposals.iter().filter(|it| it.waits());
    waiting.max_by_key(|it| it.days)?.age()
}

fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Counts equal names, in order of first occurrence.
fn tally<'a>(all: impl Iterator<Item = (&'a str, Tone)>) -> Vec<Tally<'a>> {
    let mut found: Vec<Tally<'a>> = Vec::new();
    for (name, tone) in all {
        match found.iter_mut().find(|it| it.name == name) {
            Some(it) => it.count += 1,
            None => found.push(Tally { name, tone, count: 1 }),
        }
    }
    found
}

/// Returns the verdict. It first names the jobs that did not run, and then judges the others.
fn verdict(report: &NightReport) -> Verdict {
    let began = |run: &&RunLine| report.not_run.iter().all(|it| it.job != run.job);
    let rest: Vec<Tone> = report.last_attempts().filter(began).map(Tone::of).collect();
    let Some(not_run) = report.describe_not_run() else {
        return verdict_on(report, &rest);
    };
    let others = verdict_on(report, &rest);
    let others = match others.tone {
        _ if rest.is_empty() => String::new(),
        Tone::Calm => String::new(),
        Tone::Good => " Everything else succeeded.".to_owned(),
        _ if rest.iter().all(|tone| *tone == Tone::Bad) => " Everything else failed.".to_owned(),
        Tone::Bad | Tone::Warn => format!(" The other jobs: {}", lowercase_first(&others.text)),
    };
    Verdict::new(Tone::Bad, format!("{not_run}.{others}"))
}

/// Returns a sentence with a lowercase first letter.
fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Returns the verdict on the runs with these tones.
fn verdict_on(report: &NightReport, tones: &[Tone]) -> Verdict {
    let count = |tone| tones.iter().filter(|it| **it == tone).count();
    let (bad, all, open) = (count(Tone::Bad), tones.len(), report.open.len());
    let is_missed = !report.missed.is_empty();
    let (tone, text) = match (bad, count(Tone::Warn), count(Tone::Good)) {
        _ if all + open == 0 && is_missed => (Tone::Warn, "Nothing ran, and something was missed."),
        _ if all + open == 0 => (Tone::Calm, "Nothing was due."),
        (1, ..) if all == 1 => (Tone::Bad, "It failed."),
        (1.., ..) if bad == all => (Tone::Bad, "Everything failed."),
        (1.., ..) => return Verdict::new(Tone::Bad, format!("{bad} of {all} did not succeed.")),
        _ if open > 0 => {
            let jobs = counted(open, "job");
            let text = format!("{jobs} had no outcome yet when this report was made.");
            return Verdict::new(Tone::Warn, text);
        }
        (0, 0, 0) => (Tone::Calm, "Nothing had to be done."),
        (0, 0, _) if is_missed => (Tone::Warn, "All runs succeeded, but something was missed."),
        (0, 0, _) => (Tone::Good, "All runs succeeded."),
        (0, _, 0) => (Tone::Warn, "No run succeeded completely."),
        (0, some, _) => {
            let jobs = counted(some, "job");
            let text =
                format!("All runs succeeded, except for {jobs} that ended degraded or deferred.");
            return Verdict::new(Tone::Warn, text);
        }
    };
    Verdict::new(tone, text)
}

fn worst(report: &NightReport) -> Option<Worst<'_>> {
    let of = |tone| report.last_attempts().find(|run| Tone::of(run) == tone);
    if let Some(first) = report.not_run.first() {
        return Some(Worst { job: &first.job, why: clean(&first.why, REASON) });
    }
    let run = of(Tone::Bad).or_else(|| of(Tone::Warn))?;
    let why = run.outcome.as_ref().and_then(Outcome::why)?;
    Some(Worst { job: &run.job, why: clean(why, REASON) })
}

fn left(report: &NightReport) -> Option<String> {
    let of = |unit: &str| {
        let usage = report.budgets.iter().find(|it| it.unit == unit)?;
        let text = format_amount(unit, usage.left?);
        Some(if unit == "money" { text } else { format!("{text} {unit}") })
    };
    let all: Vec<String> = ["money", "calls", "tokens"].into_iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
