//! The next steps for the user in the morning: a short list, most urgent first, each with its
//! command.
//!
//! The module is pure and uses only the report. Every command is a runner command, except a
//! packet's command, which comes from the night's configuration.

use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_text::{counted, shell_word};

use super::dreamscape::CouncillorView;
use super::model::{NextStep, NightReport, NotRunReason};
use super::pending::PendingSort;
use crate::dream::proposal::clean;
use crate::failmark;

/// Maximum number of failed runs, of stopped jobs and of critical events to list one by one.
const EACH: usize = 3;

/// Returns the next steps for the user after a night.
pub(super) fn moves(report: &NightReport) -> Vec<NextStep> {
    let mut all = broken_runs(report);
    all.extend(stopped_jobs(report));
    let mut push = |what: String, why: &str, command: &str| {
        all.push(NextStep { what, why: why.to_owned(), command: command.to_owned() });
    };
    if report.undelivered > 0 {
        let what = "Fix an alert channel".to_owned();
        push(what, "an alert was not delivered", "runner alerts list");
    }
    if !report.open.is_empty() {
        let what = format!("{} unfinished", counted(report.open.len(), "run"));
        push(what, "no outcome when the report was made", "runner status");
    }
    for event in report.waiting.iter().filter(|it| it.sort == PendingSort::Event).take(EACH) {
        push(format!("Look at {}", event.what), &event.why, &event.command);
    }
    for scape in &report.dreamscapes {
        if let Some(why) = &scape.regression {
            push("Look at the regression".to_owned(), why, "runner overnight report");
        }
        if let (spent @ 1.., left) = scape.rescues {
            let what = format!("Check what {} let through", counted(spent, "rescue"));
            let why = format!("a measure fell and the night continued; rescues left: {left}");
            push(what, &why, "runner overnight warn-budget show");
        }
        if !scape.changes.is_empty() {
            let each: Vec<String> =
                scape.changes.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let what = format!("See what {} changed in the corpus", scape.job);
            push(what, &each.join(", "), "runner overnight report");
        }
        if let Some(packet) = scape.packets.iter().find(|it| !it.command.is_empty()) {
            push(format!("Begin with: {}", packet.title), &packet.why, &packet.command);
        }
    }
    let councils = report.dreamscapes.iter().filter_map(|it| it.council.as_ref());
    all.extend(councils.flat_map(|it| &it.unheard).filter_map(councillor));
    all.extend(report.unread_proposals.iter().map(|why| NextStep {
        what: "Find out why proposals cannot be read".to_owned(),
        why: why.clone(),
        command: "runner dream list".to_owned(),
    }));
    all.extend(review(report));
    let mut known = std::collections::BTreeSet::new();
    all.retain(|it| known.insert((it.what.clone(), it.command.clone())));
    all
}

/// Returns the step for the proposals awaiting a decision, with the age of the oldest.
fn review(report: &NightReport) -> Option<NextStep> {
    let waiting: Vec<_> = report.proposals.iter().filter(|it| it.waits()).collect();
    let oldest = waiting.iter().max_by_key(|it| it.days)?.age();
    let age = oldest.map_or_else(String::new, |age| format!("the oldest has waited for {age}; "));
    Some(NextStep {
        what: format!("Decide on {}", counted(waiting.len(), "proposal")),
        why: format!("{age}one key per proposal; every decision can be undone"),
        command: format!("runner dream review{}", waiting[0].flag),
    })
}

/// Returns a step for each of the first runs that failed, timed out or were lost, and one step for
/// the rest.
fn broken_runs(report: &NightReport) -> Vec<NextStep> {
    let outcomes = report.last_attempts().filter_map(|run| Some((run, run.outcome.as_ref()?)));
    let broken = outcomes.filter(|(_, outcome)| {
        matches!(outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. })
    });
    let mut steps: Vec<NextStep> = broken
        .map(|(run, outcome)| {
            let class = outcome.class().map_or_else(String::new, |class| format!(" ({class})"));
            let (why, hint) = (outcome.why().unwrap_or_default(), failmark::hint(outcome));
            NextStep {
                what: format!("Look at {}: {}{class}", run.job, outcome.as_str()),
                why: format!("{why} — {hint}"),
                command: match outcome.class() {
                    Some(Class::OverBudget) => "runner budget".to_owned(),
                    _ => format!("runner runs show {}", shell_word(&run.run)),
                },
            }
        })
        .collect();
    let more = steps.len().saturating_sub(EACH);
    if more > 0 {
        steps.truncate(EACH);
        steps.push(NextStep {
            what: format!("{} did not succeed", counted(more, "more run")),
            why: "each is listed with its reason".to_owned(),
            command: "runner runs".to_owned(),
        });
    }
    steps
}

/// Returns the steps for the first jobs that were skipped or missed even though work was due.
fn stopped_jobs(report: &NightReport) -> Vec<NextStep> {
    let skipped = report.not_run.iter().filter(|it| match it.because {
        // A follower needs no step of its own: the step for the job that it follows is enough.
        NotRunReason::Skipped(reason) => reason != SkipReason::Unfollowed,
        NotRunReason::Missed => true,
        _ => false,
    });
    let mut steps: Vec<NextStep> = skipped
        .map(|it| NextStep {
            what: format!("{} did not run: {}", it.job, it.because.as_str()),
            why: it.why.clone(),
            command: match it.because {
                NotRunReason::Missed => "runner doctor".to_owned(),
                _ => format!("runner run {}", shell_word(&it.job)),
            },
        })
        .collect();
    steps.truncate(EACH);
    steps
}

/// Returns the step for a councillor who did not answer, if the user can fix the cause. Slow and
/// malformed answers are reported with the council.
fn councillor(one: &CouncillorView) -> Option<NextStep> {
    let command = match (one.class?, one.was_asked) {
        (Class::RateLimited, _) => return None,
        (Class::OverBudget, false) => "runner budget".to_owned(),
        (Class::Auth | Class::NotInstalled, true) | (_, false) => {
            format!("runner backends check {}", shell_word(&one.backend))
        }
        (_, true) => return None,
    };
    Some(NextStep {
        what: format!("Fix the councillor {}", one.backend),
        why: format!("it did not answer — {}", clean(&one.action, 160)),
        command,
    })
}
