//! The next steps for a person in the morning: a short list, the most urgent first, each with its
//! command.
//!
//! The module is pure and uses the report alone. Every command is a runner command, except the
//! command of a packet, which comes from the night's configuration. The list is short enough for an
//! overview.

use runner_engine::outcome::{Class, Outcome};
use runner_text::counted;

use super::model::{NextStep, NightReport};
use super::proposals::shell_word;
use crate::dream::proposal::clean;
use crate::failmark;

/// Maximum number of steps of one kind that are listed one by one.
const EACH: usize = 3;

/// Returns the next steps for a person after a night.
pub(super) fn moves(report: &NightReport) -> Vec<NextStep> {
    let mut all = Vec::new();
    let mut push = |what: String, why: String, command: String| {
        all.push(NextStep { what, why, command });
    };
    let broken: Vec<_> = report
        .last_attempts()
        .filter_map(|run| run.outcome.as_ref().map(|outcome| (run, outcome)))
        .filter(|(_, outcome)| {
            matches!(
                outcome,
                Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. }
            )
        })
        .collect();
    for (run, outcome) in broken.iter().take(EACH) {
        let class = outcome.class().map_or_else(String::new, |class| format!(" ({class})"));
        let command = match outcome.class() {
            Some(Class::OverBudget) => "runner budget".to_owned(),
            _ => format!("runner runs show {}", shell_word(&run.run)),
        };
        let hint = failmark::hint(outcome);
        push(
            format!("Look at {}: {}{class}", run.job, outcome.as_str()),
            format!("{} — {hint}", outcome.why().unwrap_or_default()),
            command,
        );
    }
    if broken.len() > EACH {
        push(
            format!("{} more did not succeed", broken.len() - EACH),
            "each is listed with its reason".to_owned(),
            "runner runs".to_owned(),
        );
    }
    if report.undelivered > 0 {
        push(
            "Fix an alert channel".to_owned(),
            "an alert was not delivered".to_owned(),
            "runner alerts list".to_owned(),
        );
    }
    if !report.open.is_empty() {
        push(
            format!("{} unfinished", report.open.len()),
            "they had no outcome yet when the report was made".to_owned(),
            "runner status".to_owned(),
        );
    }
    if let Some(event) = report.waiting.iter().find(|it| it.sort == "event") {
        push(
            "Look at the event that was raised".to_owned(),
            event.why.clone(),
            event.command.clone(),
        );
    }
    for scape in &report.dreamscapes {
        if let Some(packet) = scape.packets.iter().find(|it| !it.command.is_empty()) {
            push(
                format!("Begin with: {}", packet.title),
                packet.why.clone(),
                packet.command.clone(),
            );
        }
    }
    for one in
        report.dreamscapes.iter().filter_map(|it| it.council.as_ref()).flat_map(|it| &it.unheard)
    {
        // Only a failure that a person can fix is a next step; slow and malformed answers are
        // reported with the council.
        let name = &one.backend;
        let command = match (one.class, one.was_asked) {
            (None | Some(Class::RateLimited), _) => continue,
            (Some(Class::OverBudget), false) => "runner budget".to_owned(),
            (Some(Class::Auth | Class::NotInstalled), true) | (Some(_), false) => {
                format!("runner backends check {}", shell_word(name))
            }
            (Some(_), true) => continue,
        };
        push(
            format!("Fix the councillor {name}"),
            format!("it was not heard — {}", clean(&one.action, 160)),
            command,
        );
    }
    let waiting = report.proposals.iter().filter(|it| it.waits()).count();
    if waiting > 0 {
        let flag = report.proposals.iter().find(|it| it.waits()).map_or("", |it| it.flag.as_str());
        push(
            format!("Decide on {}", counted(waiting, "proposal")),
            "one key each; every decision can be undone".to_owned(),
            format!("runner dream review{flag}"),
        );
    }
    let mut known = std::collections::BTreeSet::new();
    all.retain(|it| known.insert((it.what.clone(), it.command.clone())));
    all
}
