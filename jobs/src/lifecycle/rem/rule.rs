//! Builds the rule-based entry from facts, so that a dream without a model still has a carry.
//!
//! The facts include the commits, the recorded runs, the failures and the next task. The entry
//! contains no ideas, and its blue sky section states this. This module must never claim work that
//! appears in none of the sources.

use std::collections::BTreeMap;

use runner_text::org::Keyword;

use super::super::entry::{Sections, Verdict, VerdictMove};
use super::gather::{STEPS, Slice};
use crate::steps::{self, ToolStep};

/// Words that identify a command as a check.
const CHECKS: [&str; 6] = ["test", "check", "lint", "build", "verify", "clippy"];
/// Characters that indicate a command that does more than run one check, or that is hard to read.
const COMPLEX: [char; 8] = ['\'', '"', '>', '<', '|', ';', '&', '\n'];
/// Maximum number of commits, of distinct failures and of distinct runs that a tale lists.
const LISTED: usize = 4;
/// Minimum number of uses of a file at which a fear mentions the file.
const OFTEN: usize = 4;

/// Minimum number of entries written since a task was begun at which the task is considered stuck.
const STUCK: usize = 2;

/// Builds the sections of the rule-based entry.
pub fn sections(slice: &Slice) -> Sections {
    let task = |keyword| slice.board.first(keyword).map(|it| it.heading.clone());
    let next = task(Keyword::Next).or_else(|| task(Keyword::Todo));
    let failed = failures(slice);
    Sections {
        tale: tale(slice, &failed),
        goals: goals(slice),
        blue_sky: vec!["An entry by rule has no ideas beyond the tasks on the board.".to_owned()],
        fears: fears(slice, &failed),
        verdicts: vec![Verdict::new(
            VerdictMove::KeepCourse,
            None,
            "an entry by rule moves no task",
        )],
        unread: Vec::new(),
        carry: carry(slice, slice.doing.clone(), next),
    }
}

/// Returns what happened since the newest entry, and what may need the user's attention: one
/// statement per item.
pub fn facts(slice: &Slice) -> Vec<String> {
    let failed = failures(slice);
    let mut facts: Vec<String> = tale(slice, &failed).lines().map(str::to_owned).collect();
    facts.extend(stuck(slice));
    facts.extend(
        unsound(slice)
            .map(|claim| format!("The last carry made a claim that does not hold: {claim}")),
    );
    facts
}

/// Returns the claims in the previous carry that an audit found to be false.
fn unsound(slice: &Slice) -> impl Iterator<Item = &str> {
    let audits = slice.previous.iter().filter_map(|it| it.audit.as_ref());
    audits.flat_map(|audit| audit.failed()).map(|it| it.claim.as_str())
}

/// The failed uses of one tool with the same input since the newest entry.
struct Failure<'s> {
    /// The newest use that failed.
    last: &'s ToolStep,
    times: usize,
    /// Whether a later use succeeded.
    passed: bool,
}

impl Failure<'_> {
    /// Describes the tool use: a command in backticks, or the tool and its input.
    fn what(&self) -> String {
        used(self.last)
    }
}

/// Returns the distinct failures since the newest entry: the unresolved ones first and, within each
/// group, those that began later first.
fn failures(slice: &Slice) -> Vec<Failure<'_>> {
    let mut all: Vec<Failure<'_>> = Vec::new();
    for step in slice.new_steps() {
        let known =
            all.iter_mut().find(|it| it.last.args == step.args && it.last.tool == step.tool);
        match (known, step.exit_code) {
            (None, 0) => {}
            (None, _) => all.push(Failure { last: step, times: 1, passed: false }),
            (Some(known), 0) => known.passed = true,
            (Some(known), _) => {
                *known = Failure { last: step, times: known.times + 1, passed: false };
            }
        }
    }
    all.reverse();
    all.sort_by_key(|it| it.passed);
    all
}

/// Describes a tool use in a form that fits into a sentence.
fn used(step: &ToolStep) -> String {
    let args = step.args.as_ref();
    match args.and_then(|args| args.cmd.as_deref()) {
        Some(cmd) => format!("`{}`", limit_words(cmd, 12)),
        None => {
            let line = step.line();
            line.rsplit_once(" (exit").map_or(line.as_str(), |(line, _)| line).to_owned()
        }
    }
}

/// Returns the last line of a failure's message that contains letters, limited to 16 words.
fn reason(step: &ToolStep) -> Option<String> {
    let lines = step.error.as_deref()?.lines().rev();
    let line = lines.map(str::trim).find(|line| line.contains(char::is_alphabetic))?;
    Some(limit_words(line.trim_end_matches(['.', '…']), 16))
}

fn tale(slice: &Slice, failed: &[Failure<'_>]) -> String {
    let since = match slice.since() {
        Some(at) => format!("Since {}", at.strftime("%Y-%m-%d %H:%M UTC")),
        None => "Until now".to_owned(),
    };
    let commits: Vec<String> = slice
        .new_commits()
        .map(|it| format!("{} ({})", limit_words(&it.subject, 12), it.short))
        .collect();
    let mut lines = vec![match commits.len() {
        0 => format!("{since} nothing was committed."),
        1 => format!("{since} one commit was made."),
        many => format!("{since} {many} commits were made."),
    }];
    lines.extend(commits.iter().take(LISTED).map(|it| format!("Committed: {it}.")));
    if commits.len() > LISTED {
        lines.push(format!("And {} more.", commits.len() - LISTED));
    }
    lines.extend(runs(slice));
    let uses = || slice.new_steps().filter(|it| it.tool != steps::RUN);
    let count: usize = uses().filter(|it| it.exit_code != 0).count();
    lines.push(match (uses().count(), count) {
        (0, _) => "No tool use was recorded.".to_owned(),
        (1, 0) => "One tool was used, and it did not fail.".to_owned(),
        (1, _) => "One tool was used, and it failed.".to_owned(),
        (used, failed) => {
            let failed = if failed == 0 { "None".to_owned() } else { failed.to_string() };
            let last = if used >= STEPS { "last " } else { "" };
            format!("{failed} of the {last}{used} tool uses failed.")
        }
    });
    for it in failed.iter().take(LISTED) {
        let times = if it.times == 1 { String::new() } else { format!(" {} times", it.times) };
        let code = it.last.exit_code;
        let end = match (it.passed, reason(it.last)) {
            (true, _) => "; it passed later".to_owned(),
            (false, None) => String::new(),
            (false, Some(why)) => format!(": {why}"),
        };
        lines.push(format!("Failed{times}: {} (exit {code}){end}.", it.what()));
    }
    lines.join("\n")
}

/// Describes the rows that record an agent's whole run, with a count for each piece of work.
/// Returns `None` if there are no such rows.
fn runs(slice: &Slice) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for step in slice.new_steps().filter(|it| it.tool == steps::RUN) {
        let Some(work) = step.args.as_ref().and_then(|args| args.pipeline.as_deref()) else {
            continue;
        };
        match counts.iter_mut().find(|(known, _)| *known == work) {
            Some((_, times)) => *times += 1,
            None => counts.push((work, 1)),
        }
    }
    let one = |(work, times): &(&str, usize)| match times {
        1 => format!("{work} (once)"),
        _ => format!("{work} ({times} times)"),
    };
    let shown: Vec<String> = counts.iter().take(LISTED).map(one).collect();
    (!shown.is_empty()).then(|| format!("Runs: {}.", shown.join("; ")))
}

fn goals(slice: &Slice) -> Vec<String> {
    let tasks = [Keyword::Doing, Keyword::Next, Keyword::Todo].map(|keyword| {
        let tasks = slice.board.tasks.iter();
        tasks.filter(move |it| it.keyword == keyword)
    });
    let goals = tasks.into_iter().flatten().take(5);
    let goals: Vec<String> = goals.map(|it| format!("{}: {}", it.keyword, it.heading)).collect();
    if goals.is_empty() {
        return vec!["The board has no open task.".to_owned()];
    }
    goals
}

fn fears(slice: &Slice, failed: &[Failure<'_>]) -> Vec<String> {
    let mut fears: Vec<String> = stuck(slice).into_iter().collect();
    if let Some(last) = failed.iter().find(|it| !it.passed) {
        let since = if last.times == 1 { "since it failed" } else { "since it last failed" };
        fears.push(format!("{} has not been seen to pass {since}.", last.what()));
    }
    let mut touched = BTreeMap::<&str, usize>::new();
    let paths = slice.new_steps().filter_map(|it| it.args.as_ref()?.path.as_deref());
    paths.for_each(|path| *touched.entry(path).or_default() += 1);
    let most = touched.iter().max_by_key(|(_, times)| **times);
    if let Some((path, times)) = most.filter(|(_, times)| **times >= OFTEN) {
        fears.push(format!("{path} was used {times} times."));
    }
    fears.extend(
        unsound(slice)
            .take(1)
            .map(|claim| format!("The last carry made a claim that does not hold: {claim}")),
    );
    if fears.is_empty() {
        fears.push("No failure was seen in the tool uses.".to_owned());
    }
    fears
}

/// Describes the task in progress if it was begun at least [`STUCK`] entries ago, because the user
/// may have to decide about it.
fn stuck(slice: &Slice) -> Option<String> {
    let (task, since) = (slice.doing.as_deref()?, slice.doing_since?);
    let entries = slice.entries_since_begun();
    let since = since.strftime("%Y-%m-%d %H:%M UTC");
    (entries >= STUCK).then(|| {
        format!(
            "\"{task}\" was begun on {since}, {entries} entries ago, and is not done; a person may have to \
             decide whether to continue it."
        )
    })
}

fn carry(slice: &Slice, doing: Option<String>, next: Option<String>) -> Vec<String> {
    let action = match (&doing, &next) {
        (Some(doing), _) => format!("continue with {doing}"),
        (None, Some(next)) => format!("begin {next}"),
        (None, None) => "add a task to the board".to_owned(),
    };
    let mut carry = vec![
        format!("DOING: {}", doing.as_deref().unwrap_or("nothing")),
        format!("next action: {action}"),
    ];
    let changes = |it: &&ToolStep| {
        let reads = ["Read", "Glob", "Grep", "LS", "read"];
        !reads.contains(&it.tool.as_str())
    };
    let steps = || slice.steps.iter().rev().filter(changes);
    let file = steps().find_map(|it| it.args.as_ref()?.path.as_deref());
    carry.extend(file.map(|file| format!("file: {file}")));
    // Only the last result of each command is used, so a later failure replaces a success.
    let checked = slice.new_steps().filter_map(|it| {
        let cmd = it.args.as_ref()?.cmd.as_deref()?;
        let plain = !cmd.contains(COMPLEX) && cmd.split_whitespace().count() <= 12;
        let is_check = CHECKS.iter().any(|word| cmd.contains(word));
        (plain && is_check).then_some((cmd, it.exit_code))
    });
    let checked: BTreeMap<&str, i64> = checked.collect();
    let sound = checked.iter().filter(|(_, code)| **code == 0);
    let sound: Vec<String> =
        sound.take(3).map(|(cmd, _)| format!("`{cmd}` ended with 0")).collect();
    if !sound.is_empty() {
        carry.push(format!("verified this cycle: {}", sound.join("; ")));
    }
    carry
}

fn limit_words(text: &str, most: usize) -> String {
    let mut words = text.split_whitespace();
    let mut out: Vec<&str> = words.by_ref().take(most).collect();
    if words.next().is_some() {
        out.push("…");
    }
    out.join(" ")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::super::manifest::Listed;
    use super::super::mentions::tests::slice;
    use super::*;

    #[test]
    fn runs_are_counted_apart_from_tool_uses() {
        let mut slice = slice();
        let row = |work: &str| ToolStep {
            tool: steps::RUN.to_owned(),
            args: Some(steps::Args { pipeline: Some(work.to_owned()), ..steps::Args::default() }),
            ..ToolStep::default()
        };
        slice.steps =
            ["wake: fix the roof", "wake: fix the roof", "audit: fix the roof"].map(row).into();
        let text = tale(&slice, &[]);
        assert!(
            text.contains("Runs: wake: fix the roof (2 times); audit: fix the roof (once).\n"),
            "{text}"
        );
        assert!(text.ends_with("No tool use was recorded."), "{text}");
    }

    #[test]
    fn task_begun_two_entries_ago_needs_decision() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut slice = slice();
        slice.doing = Some("fix the roof".to_owned());
        let begun =
            |slice: &Slice| fears(slice, &[]).iter().any(|fear| fear.contains("fix the roof"));
        for ts in [400, 300, 200] {
            slice.listed.manifest.entries.push(Listed { ts: Some(at(ts)), ..Listed::default() });
        }
        assert!(!begun(&slice), "the time at which the task was begun is unknown");
        slice.doing_since = Some(at(350));
        assert!(!begun(&slice), "one entry does not make a task stuck");
        slice.doing_since = Some(at(250));
        assert_eq!(
            fears(&slice, &[])[0],
            "\"fix the roof\" was begun on 1970-01-01 00:04 UTC, 2 entries ago, and is not done; a \
             person may have to decide whether to continue it."
        );
    }
}
