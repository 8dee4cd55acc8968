//! Builds the rule-based entry from facts, so that a dream without a model still has a carry.
//!
//! The facts are the commits, the failures and the next task. The entry contains no ideas and
//! states so. This module must never claim work that no source shows.

use std::collections::BTreeMap;

use runner_text::org::Keyword;

use super::super::entry::{Sections, Verdict, VerdictMove};
use super::gather::Slice;
use crate::steps::ToolStep;

/// Words that identify a command as a check.
const LOOKS: [&str; 6] = ["test", "check", "lint", "build", "verify", "clippy"];
/// Minimum number of tool uses at which a file counts as used repeatedly.
const OFTEN: usize = 4;

/// Builds the sections of the entry.
pub fn sections(slice: &Slice) -> Sections {
    let task = |keyword| slice.board.first(keyword).map(|it| it.heading.clone());
    let doing = task(Keyword::Doing);
    let next = task(Keyword::Next).or_else(|| task(Keyword::Todo));
    let failed: Vec<&ToolStep> = slice.new_steps().filter(|it| it.exit_code != 0).collect();
    Sections {
        tale: tale(slice, &failed),
        goals: goals(slice),
        blue_sky: vec![
            "No model was asked, so there are no ideas here beyond those on the board.".to_owned(),
        ],
        fears: fears(slice, &failed),
        verdicts: vec![Verdict::new(
            VerdictMove::KeepCourse,
            None,
            "no model was asked, and rules alone move no task",
        )],
        unread: Vec::new(),
        carry: carry(slice, doing, next),
    }
}

fn tale(slice: &Slice, failed: &[&ToolStep]) -> String {
    let since = match slice.since() {
        Some(at) => format!("Since {}", at.strftime("%Y-%m-%d %H:%M UTC")),
        None => "Until now".to_owned(),
    };
    let commits: Vec<String> = slice
        .new_commits()
        .map(|it| format!("{} ({})", limit_words(&it.subject, 12), it.short))
        .collect();
    let used = slice.new_steps().count();
    let mut lines = vec![match commits.len() {
        0 => format!("{since} nothing was committed."),
        many => format!("{since} {} landed.", counted(many, "commit")),
    }];
    lines.extend(commits.iter().take(4).map(|it| format!("Committed: {it}.")));
    lines.push(match (used, failed.len()) {
        (0, _) => "No tool was used.".to_owned(),
        (used, 0) => format!("{} used, and none failed.", were(used)),
        (used, failed) => format!("{} used, and {failed} failed.", were(used)),
    });
    let last = failed.iter().rev().take(2);
    lines.extend(last.map(|it| format!("Failed: {}.", limit_words(&it.line(), 12))));
    lines.join("\n")
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

fn fears(slice: &Slice, failed: &[&ToolStep]) -> Vec<String> {
    let mut fears = Vec::new();
    if let Some(last) = failed.last() {
        fears.push(format!("What failed may fail again: {}", last.line()));
    }
    let mut touched = BTreeMap::<&str, usize>::new();
    let paths = slice.new_steps().filter_map(|it| it.args.as_ref()?.path.as_deref());
    paths.for_each(|path| *touched.entry(path).or_default() += 1);
    let most = touched.iter().max_by_key(|(_, times)| **times);
    if let Some((path, times)) = most.filter(|(_, times)| **times >= OFTEN) {
        fears.push(format!("The same file was used again and again: {path}, {times} times"));
    }
    let unsound = slice.previous.iter().filter_map(|it| it.audit.as_ref());
    let unsound = unsound.flat_map(|audit| audit.failed());
    fears.extend(
        unsound
            .take(1)
            .map(|it| format!("The last carry made a claim that does not hold: {}", it.claim)),
    );
    if fears.is_empty() {
        fears.push(
            "No failure was seen; a failure that no tool use and no commit shows is not known here.".to_owned(),
        );
    }
    fears
}

fn carry(slice: &Slice, doing: Option<String>, next: Option<String>) -> Vec<String> {
    let action = match (&doing, &next) {
        (Some(doing), _) => format!("go on with {doing}"),
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
    // Only the last result of each command counts, so that a later failure replaces a success.
    let looked = slice.new_steps().filter_map(|it| {
        let cmd = it.args.as_ref()?.cmd.as_deref()?;
        LOOKS.iter().any(|word| cmd.contains(word)).then_some((cmd, it.exit_code))
    });
    let looked: BTreeMap<&str, i64> = looked.collect();
    let sound = looked.iter().filter(|(_, code)| **code == 0);
    let sound: Vec<String> = sound
        .take(3)
        .map(|(cmd, _)| format!("`{}` ended with 0", limit_words(cmd, 12).replace(';', ",")))
        .collect();
    if !sound.is_empty() {
        carry.push(format!("verified this cycle: {}", sound.join("; ")));
    }
    carry
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("one {what}"),
        many => format!("{many} {what}s"),
    }
}

fn were(used: usize) -> String {
    match used {
        1 => "One tool was".to_owned(),
        many => format!("{many} tools were"),
    }
}

fn limit_words(text: &str, most: usize) -> String {
    let mut words = text.split_whitespace();
    let mut out: Vec<&str> = words.by_ref().take(most).collect();
    if words.next().is_some() {
        out.push("…");
    }
    out.join(" ")
}
