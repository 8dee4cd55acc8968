//! Checks boards with fixtures, generated text and a folder of real files.

// The output shows how many real files were read.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

const ORG: &str = "\
#+TITLE: plan
#+TODO: TODO NEXT DOING WAITING(w@) | DONE CANCELLED

* Backlog
** TODO [#A] comparison table — landscape   :site:data:
   :PROPERTIES:
   :EFFORT: 2h
   :END:
   Body, with * TODO no heading
** NEXT render the blog post
** WAITING reply from the archive
** DONE first draft
** CANCELLED tweet copy — blocked until the social lane exists
*** DOING nested one\t:deep:
** TODO
* Notes
#+begin_src org
,** TODO not a heading
#+end_src
";

const MARKDOWN: &str = "\
# Plan

- [ ] comparison table — landscape
  some words
* [ ] NEXT render the blog post
  1. [ ] DOING nested one
- [x] first draft
- [X] CANCELLED tweet copy — blocked
- [ ] TODO spelled out
- [x] NEXT contradicts itself
- [ ]no blank
- [ ] NEXT
```
- [ ] code
```
<!--
- [ ] comment
-->
";

fn seen(board: &Board) -> Vec<(Keyword, usize, &str, usize)> {
    let one = |task: &'_ Task| (task.keyword, task.level, task.line);
    board
        .tasks
        .iter()
        .map(|task| {
            let (keyword, level, line) = one(task);
            (keyword, level, task.heading.as_str(), line)
        })
        .collect()
}

#[test]
fn org_tasks_are_headings_with_keywords() {
    use Keyword::*;
    let board = Board::read(ORG, BoardForm::Org);
    assert_eq!(
        seen(&board),
        [
            (Todo, 2, "comparison table — landscape", 5),
            (Next, 2, "render the blog post", 10),
            (Done, 2, "first draft", 12),
            (Cancelled, 2, "tweet copy — blocked until the social lane exists", 13),
            (Doing, 3, "nested one", 14),
            (Todo, 2, "", 15),
        ]
    );
    assert_eq!(board.odd.len(), 1);
    assert_eq!((board.odd[0].line, &*board.odd[0].keyword), (11, "WAITING"));
}

#[test]
fn markdown_tasks_are_checklist_items() {
    use Keyword::*;
    let board = Board::read(MARKDOWN, BoardForm::Markdown);
    assert_eq!(
        seen(&board),
        [
            (Todo, 1, "comparison table — landscape", 3),
            (Next, 1, "render the blog post", 5),
            (Doing, 2, "nested one", 6),
            (Done, 1, "first draft", 7),
            (Cancelled, 1, "tweet copy — blocked", 8),
            (Todo, 1, "spelled out", 9),
            (Next, 1, "", 12),
        ]
    );
    assert_eq!((board.odd[0].line, &*board.odd[0].keyword), (10, "[x] NEXT"));
}

/// Moves the only task that `said` refers to, and returns the lines that differ.
fn moved(text: &str, form: BoardForm, said: &str, to: Keyword, why: Option<&str>) -> Vec<String> {
    let board = Board::read(text, form);
    let Resolved::One { task, .. } = board.resolve(said) else {
        panic!("{said:?} does not refer to one task");
    };
    let after = apply(text, board.moved(task, to, why)).unwrap();
    let new = Board::read(&after, form);
    assert_eq!(new.tasks.len(), board.tasks.len(), "{after}");
    assert_eq!(after.split_inclusive('\n').count(), text.split_inclusive('\n').count());
    let pairs = text.split_inclusive('\n').zip(after.split_inclusive('\n'));
    pairs.filter(|(before, after)| before != after).map(|(_, after)| after.to_owned()).collect()
}

#[test]
fn move_changes_one_line_keeping_spacing() {
    use Keyword::*;
    let org = |said, to, why| moved(ORG, BoardForm::Org, said, to, why);
    assert_eq!(
        org("comparison table — landscape", Next, None),
        ["** NEXT [#A] comparison table — landscape   :site:data:\n"]
    );
    assert_eq!(
        org("nested one", Cancelled, Some("no\n* room :x:")),
        ["*** CANCELLED nested one — no * room :x:.\t:deep:\n"]
    );
    let markdown = |said, to, why| moved(MARKDOWN, BoardForm::Markdown, said, to, why);
    assert_eq!(markdown("nested one", Todo, None), ["  1. [ ] nested one\n"]);
    assert_eq!(markdown("render the blog post", Done, None), ["* [x] render the blog post\n"]);
    assert_eq!(
        markdown("spelled out", Cancelled, Some("why")),
        ["- [x] CANCELLED spelled out — why\n"]
    );
    assert_eq!(
        markdown("comparison table — landscape", Doing, None),
        ["- [ ] DOING comparison table — landscape\n"]
    );
}

#[test]
fn line_endings_and_tabs_are_kept() {
    use Keyword::*;
    let text = "\u{feff}* TODO\tone\t:t:\r\n\r\n**\tTODO no space behind stars\r\n* TODO last";
    assert_eq!(moved(text, BoardForm::Org, "one", Doing, None), ["\u{feff}* DOING\tone\t:t:\r\n"]);
    assert_eq!(moved(text, BoardForm::Org, "last", Cancelled, Some("y")), ["* CANCELLED last — y"]);
    let added = apply(text, vec![Board::read(text, BoardForm::Org).added(text, "new")]).unwrap();
    assert_eq!(added, format!("{text}\r\n* TODO new\r\n"));
    let text = "\t- [ ] tabbed\r\n- [ ] last\r";
    assert_eq!(moved(text, BoardForm::Markdown, "tabbed", Next, None), ["\t- [ ] NEXT tabbed\r\n"]);
}

#[test]
fn resolve_prefers_exact_then_longest_prefix() {
    let text = "* TODO a\n* TODO a — b\n* TODO up\u{2011}to\u{2011}date “docs”\n* TODO twin\n* DONE twin\n\
                * CANCELLED gone — for good\n* TODO Fix login\n* TODO up-to-date\n* TODO up\u{2011}to-date\n";
    let board = Board::read(text, BoardForm::Org);
    let line = |said: &str| match board.resolve(said) {
        Resolved::One { task, rest } => Ok((task.line, rest)),
        Resolved::Ambiguous { lines, .. } => Err(lines),
        Resolved::Unknown => Err(Vec::new()),
    };
    let one = |number: usize, rest: &str| Ok((number, rest.to_owned()));
    assert_eq!(line("a"), one(1, ""));
    assert_eq!(line("a — because"), one(1, "because"));
    assert_eq!(line("a — b"), one(2, ""));
    assert_eq!(line("a — b — because — of"), one(2, "because - of"));
    assert_eq!(line("a (because)"), one(1, "(because)"));
    assert_eq!(line("a."), one(1, ""));
    assert_eq!(line("  up-to-date   \"docs\" "), one(3, ""));
    assert_eq!(line("up-to-date “docs” – now"), one(3, "now"));
    assert_eq!(line("twin"), Err(vec![4, 5]));
    assert_eq!(line("twin — x"), Err(vec![4, 5]));
    assert_eq!(line("gone"), one(6, ""));
    // An exact match takes precedence among headings that are equal after folding.
    assert_eq!(line("up-to-date"), one(8, ""));
    assert_eq!(line("up\u{2010}to\u{2010}date"), Err(vec![8, 9]));
    for unknown in ["", "—", "Fix", "Fix login page", "Fix login-page", "fix login", "b"] {
        assert_eq!(line(unknown), Err(Vec::new()), "{unknown}");
    }
    assert_eq!(board.doubles().len(), 2);
}

#[test]
fn added_task_follows_the_last_task() {
    for (text, form, want) in [
        ("", BoardForm::Org, "* TODO new\n"),
        ("* Backlog\n", BoardForm::Org, "* Backlog\n** TODO new\n"),
        (ORG, BoardForm::Org, "** TODO\n** TODO new\n* Notes\n"),
        ("* TODO a\n  body", BoardForm::Org, "* TODO a\n  body\n* TODO new\n"),
        ("", BoardForm::Markdown, "- [ ] new\n"),
        ("- [ ] a\nend\n", BoardForm::Markdown, "- [ ] a\n- [ ] new\nend\n"),
        (
            "- [ ] a\n  - AGENT: two\n  note\n\nend\n",
            BoardForm::Markdown,
            "- [ ] a\n  - AGENT: two\n  note\n- [ ] new\n\nend\n",
        ),
        (
            "- [ ] a\n\n  details\n\nend\n",
            BoardForm::Markdown,
            "- [ ] a\n\n  details\n- [ ] new\n\nend\n",
        ),
    ] {
        let board = Board::read(text, form);
        let after = apply(text, vec![board.added(text, "new")]).unwrap();
        assert!(after.contains(want), "{after}");
        assert_eq!(Board::read(&after, form).tasks.len(), board.tasks.len() + 1);
    }
}

#[test]
fn overlapping_or_misplaced_edits_are_refused() {
    let edit = |range, with: &str| Edit { range, with: with.to_owned() };
    assert_eq!(apply("añb", vec![edit(0..1, "x"), edit(3..4, "y")]).unwrap(), "xñy");
    assert!(apply("añb", vec![edit(0..2, "x")]).is_err());
    assert!(apply("ab", vec![edit(0..2, "x"), edit(1..2, "y")]).is_err());
    assert!(apply("ab", vec![edit(2..3, "x")]).is_err());
}

/// Checks the properties that must hold for any text.
fn holds(text: &str, form: BoardForm) {
    assert_eq!(apply(text, Vec::new()).unwrap(), text);
    let rejoined: String =
        lines(text).map(|line| format!("{}{}", &text[line.range.clone()], line.ending())).collect();
    assert_eq!(rejoined, text.strip_prefix('\u{feff}').unwrap_or(text));
    let board = Board::read(text, form);
    for (at, task) in board.tasks.iter().enumerate() {
        assert_eq!(&text[task.words.clone()], task.heading);
        for to in Keyword::ALL {
            let after = apply(text, board.moved(task, to, Some("why"))).unwrap();
            let new = Board::read(&after, form);
            assert_eq!(new.tasks.len(), board.tasks.len(), "{text:?} {task:?} {to}");
            assert_eq!(new.tasks[at].keyword, to);
            let back = apply(&after, new.moved(&new.tasks[at], task.keyword, None)).unwrap();
            assert_eq!(Board::read(&back, form).tasks[at].keyword, task.keyword);
            let others = |text: &str| -> Vec<String> {
                let kept = text.split_inclusive('\n').enumerate();
                kept.filter(|(number, _)| number + 1 != task.line)
                    .map(|(_, line)| line.to_owned())
                    .collect()
            };
            assert_eq!(others(&after), others(text));
        }
        if !fold(&task.heading).is_empty() {
            assert_ne!(board.resolve(&task.heading), Resolved::Unknown, "{task:?}");
        }
    }
    let added = apply(text, vec![board.added(text, "a new task")]).unwrap();
    let hidden =
        form == BoardForm::Markdown && Board::read(&added, form).tasks.len() == board.tasks.len();
    assert!(hidden || Board::read(&added, form).tasks.len() == board.tasks.len() + 1);
    assert_eq!(added.replacen("a new task", "", 1).len() + 10, added.len());
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("* ".to_owned()),
        Just("** TODO ".to_owned()),
        Just("*** DOING [#A] ".to_owned()),
        Just("- [ ] ".to_owned()),
        Just("- [x] CANCELLED ".to_owned()),
        Just("  2) [X] DONE ".to_owned()),
        Just("NEXT".to_owned()),
        Just(" :a:b:".to_owned()),
        Just(" — ".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\t".to_owned()),
        Just("```\n".to_owned()),
        Just("<!-- ".to_owned()),
        Just("#+TODO: WAITING | X\n".to_owned()),
        Just("\u{feff}".to_owned()),
        Just("\u{a0}".to_owned()),
        "[a-zñ\u{2011}\u{300}]{1,4}",
        any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #[test]
    fn arbitrary_text_is_read_and_edited(pieces in prop::collection::vec(piece(), 0..24)) {
        let text = pieces.concat();
        holds(&text, BoardForm::Org);
        holds(&text, BoardForm::Markdown);
    }
}

/// Reads the folder of real files that `RUNNER_ORG_FOLDER` named at compile time, if any.
#[test]
fn real_files_round_trip() {
    let Some(folder) = option_env!("RUNNER_ORG_FOLDER") else {
        println!("skipped 1: RUNNER_ORG_FOLDER was not set when this test was compiled");
        return;
    };
    let (mut files, mut tasks, mut odd) = (0, 0, 0);
    for entry in fs::read_dir(Path::new(folder)).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let form = BoardForm::of(path.to_str().unwrap());
        holds(&text, form);
        let board = Board::read(&text, form);
        (files, tasks, odd) = (files + 1, tasks + board.tasks.len(), odd + board.odd.len());
    }
    println!("{files} files, {tasks} tasks, {odd} odd");
    assert!(files > 0);
}
