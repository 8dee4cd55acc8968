//! Tests verdicts and edits on boards.

use proptest::prelude::*;
use runner_text::org::{Board, BoardForm, Keyword};

use super::{
    BoardEdit, BoardHistory, HistoryEvent, HistoryRecord, TaskMove, add, apply, done, pick,
};
use crate::lifecycle::entry::{Sections, Verdict, VerdictMove, parse_sections};

/// Parses `lines` as the verdicts of an entry.
fn said(lines: &str) -> Sections {
    let text =
        format!("* tale\nx\n* goals\n* blue sky\n* fears\n* verdicts\n{lines}\n* carry\n- x\n");
    parse_sections(&text).unwrap()
}

/// Applies the verdicts and returns the board's new text and the change.
fn after(board: &str, form: BoardForm, lines: &str) -> (String, BoardEdit) {
    let read = Board::read(board, form);
    let change = apply(&read, board, &said(lines), "");
    (change.text(board, &read).unwrap(), change)
}

#[test]
fn each_verdict_moves_task_as_specified() {
    let stands = |keyword: Keyword| format!("* {keyword} X\n");
    for (line, from, to) in [
        ("pick up: X — y", Keyword::Todo, Some("* NEXT X\n")),
        ("pick up: X — y", Keyword::Next, None),
        ("pick up: X — y", Keyword::Doing, None),
        ("pick up: X — y", Keyword::Done, None),
        ("pick up: X — y", Keyword::Cancelled, None),
        ("put down: X — y", Keyword::Todo, None),
        ("put down: X — y", Keyword::Next, Some("* TODO X\n")),
        ("put down: X — y", Keyword::Doing, Some("* TODO X\n")),
        ("put down: X — y", Keyword::Done, None),
        ("cancel: X — y", Keyword::Todo, Some("* CANCELLED X — y\n")),
        ("cancel: X — y", Keyword::Next, Some("* CANCELLED X — y\n")),
        ("cancel: X — y", Keyword::Doing, Some("* CANCELLED X — y\n")),
        ("cancel: X — y", Keyword::Done, None),
        ("cancel: X — y", Keyword::Cancelled, None),
        ("keep course — y", Keyword::Doing, None),
    ] {
        let board = stands(from);
        let (text, change) = after(&board, BoardForm::Org, &format!("- {line}"));
        match to {
            Some(to) => {
                assert_eq!(text, to, "{line} from {from}");
                assert_eq!(change.moves[0].from, Some(from));
            }
            None => {
                assert_eq!(text, board, "{line} from {from}");
                assert_eq!((change.moves.len(), change.kept.len()), (0, 1), "{line}");
            }
        }
        assert_eq!(change.unresolved, []);
    }
}

#[test]
fn unresolvable_verdicts_are_reported() {
    let board = "* TODO twin\n* NEXT twin\n* WAITING for rain\n* TODO clean the tank\n";
    let (text, change) = after(
        board,
        BoardForm::Org,
        "- pick up: twin — x\n- cancel: for rain — y\n- pick up: clean the tanks — z\n- pick up: nothing like it — z\n- cancel: clean — z",
    );
    assert_eq!(text, board);
    let why: Vec<&str> = change.unresolved.iter().map(|it| it.why.as_str()).collect();
    assert_eq!(why.len(), 5, "{why:?}");
    assert!(why[0].contains("lines 1, 2"), "{why:?}");
    assert!(why[1].contains("\"WAITING\""), "{why:?}");
}

#[test]
fn headings_match_across_typographic_forms() {
    let board = "* TODO tables — offline\n* TODO tables\n* TODO re\u{2011}read the “log”\n";
    let (text, change) = after(
        board,
        BoardForm::Org,
        "- pick up: tables — offline — the data is there\n- cancel: tables — too old — really\n- pick up: re-read the \"log\" – now",
    );
    assert_eq!(
        text,
        "* NEXT tables — offline\n* CANCELLED tables — too old — really\n* NEXT re\u{2011}read the “log”\n"
    );
    assert_eq!(change.unresolved, []);
}

#[test]
fn second_verdict_on_a_task_is_unresolved() {
    let (text, change) = after("* TODO X\n", BoardForm::Org, "- pick up: X — a\n- cancel: X — b");
    assert_eq!(text, "* NEXT X\n");
    assert_eq!(change.unresolved.len(), 1);
}

#[test]
fn outdated_entry_moves_only_open_tasks() {
    let (text, change) = after(
        "- [x] was done since\n- [ ] still open\n",
        BoardForm::Markdown,
        "- pick up: was done since — a\n- pick up: still open — b\n- pick up: was removed since — c",
    );
    assert_eq!(text, "- [x] was done since\n- [ ] NEXT still open\n");
    assert_eq!((change.kept.len(), change.unresolved.len()), (1, 1));
}

#[test]
fn pick_prefers_next_then_doing_then_todo() {
    let picked = |text: &str| {
        let board = Board::read(text, BoardForm::Org);
        let (task, change) = pick(&board, text, &BoardHistory::default(), "")?;
        let after = change.text(text, &board).unwrap();
        Some((task.heading.clone(), after))
    };
    let some = |heading: &str, text: &str| Some((heading.to_owned(), text.to_owned()));
    assert_eq!(
        picked("* TODO a\n* DOING b\n* NEXT c\n* NEXT d\n"),
        some("c", "* TODO a\n* DOING b\n* DOING c\n* NEXT d\n")
    );
    assert_eq!(picked("* TODO a\n* DOING b\n"), some("b", "* TODO a\n* DOING b\n"));
    assert_eq!(picked("* DONE a\n* TODO b\n"), some("b", "* DONE a\n* DOING b\n"));
    assert_eq!(picked("* DONE a\nwords\n"), None);
    assert_eq!(picked(""), None);
}

#[test]
fn agent_continues_its_last_picked_task() {
    let text = "* DOING old\n* DOING promoted\n* TODO b\n";
    let board = Board::read(text, BoardForm::Org);
    let line = |agent: &str, task: &str| {
        format!(
            "{{\"ts\":\"2026-06-10T00:00:00Z\",\"run\":\"r\",\"agent\":\"{agent}\",\"board\":\"plan.org\",\
             \"what\":\"pick\",\"moves\":[{{\"task\":\"{task}\",\"line\":1,\"to\":\"DOING\"}}]}}\n"
        )
    };
    for (history, expected) in [
        (String::new(), "old"),
        (line("", "old") + &line("", "promoted"), "promoted"),
        (line("", "promoted") + &line("", "old"), "old"),
        // Picks of missing tasks and picks by other agents are ignored.
        (line("", "promoted") + &line("", "gone") + &line("two", "old"), "promoted"),
    ] {
        let history = BoardHistory::parse(history.as_bytes());
        let (task, change) = pick(&board, text, &history, "").unwrap();
        assert_eq!((task.heading.as_str(), change.moves.len()), (expected, 0), "{history:?}");
    }
}

#[test]
fn agents_hold_their_own_tasks() {
    let mut text = "* DOING mine\n* NEXT c\n* TODO d\n".to_owned();
    let picks = |text: &mut String, agent: &str| {
        let board = Board::read(text, BoardForm::Org);
        let (task, change) = pick(&board, text, &BoardHistory::default(), agent)?;
        let heading = task.heading.clone();
        *text = change.text(text, &board).unwrap();
        Some(heading)
    };
    assert_eq!(picks(&mut text, "two").as_deref(), Some("c"));
    assert_eq!(picks(&mut text, "two").as_deref(), Some("c"));
    // The default agent, or the user, holds the task that is not assigned to an agent.
    assert_eq!(picks(&mut text, "").as_deref(), Some("mine"));
    assert_eq!(picks(&mut text, "three").as_deref(), Some("d"));
    assert_eq!(picks(&mut text, "four"), None);
    assert!(text.contains("* DOING d\n:PROPERTIES:\n:AGENT: three\n:END:\n"), "{text}");
    // A verdict moves a DOING task only if the entry's own agent holds the task.
    let board = Board::read(&text, BoardForm::Org);
    let entry = said("- put down: c — x\n- cancel: d — y\n- put down: mine — z\n- a musing");
    let change = apply(&board, &text, &entry, "two");
    assert_eq!((change.moves.len(), change.kept.len(), change.unresolved.len()), (1, 2, 1));
    assert!(change.kept[0].why.contains("\"three\""), "{change:?}");
    assert!(change.unresolved[0].said == "a musing", "{change:?}");
    let text = change.text(&text, &board).unwrap();
    assert!(text.contains("* TODO c\n* DOING d\n:PROP"), "{text}");
}

#[test]
fn tasks_are_added_and_finished_by_name() {
    let text = "* Work\n** DOING X\n";
    let board = Board::read(text, BoardForm::Org);
    let finished = done(&board, "X").unwrap();
    assert_eq!(finished.text(text, &board).unwrap(), "* Work\n** DONE X\n");
    assert!(done(&board, "Y").is_err());
    let added = add(&board, text, "a\nb").unwrap();
    assert_eq!(added.text(text, &board).unwrap(), "* Work\n** DOING X\n** TODO a b\n");
    assert!(add(&board, text, "X").is_err());
    let why = done(&board, "X — and more").unwrap_err();
    assert!(why.contains("did you mean \"X\""), "{why}");
    assert!(add(&board, text, "X — and more").is_ok());
    assert!(add(&board, text, " \n").is_err());
    let list = Board::read("- [ ] X\n", BoardForm::Markdown);
    assert!(add(&list, "- [ ] X\n", "DONE already").is_err());
}

#[test]
fn edits_change_only_the_named_lines() {
    let board: String = (0..10_000)
        .map(|n| format!("** TODO task {n} — of many  :t{n}:\r\n   body {n}\r\n"))
        .collect();
    let lines: String =
        (0..40).map(|n| format!("- pick up: task {} — of many — reason\n", n * 250)).collect();
    let (text, change) = after(&board, BoardForm::Org, &lines);
    assert_eq!((change.moves.len(), change.unresolved.len()), (40, 0));
    let pairs = board.split_inclusive('\n').zip(text.split_inclusive('\n'));
    assert_eq!(pairs.filter(|(old, new)| old != new).count(), 40);
    assert_eq!(board.len(), text.len());
}

#[test]
fn history_keeps_applied_entries_and_unreadable_lines() {
    let record = |agent: &str, entry: &str| HistoryRecord {
        ts: "2026-06-10T14:30:00Z".parse().unwrap(),
        run: "01".to_owned(),
        agent: agent.to_owned(),
        board: "plan.org".to_owned(),
        what: HistoryEvent::Apply,
        entry: Some(entry.to_owned()),
        moves: vec![TaskMove {
            task: "X".to_owned(),
            line: 1,
            from: Some(Keyword::Todo),
            to: Some(Keyword::Next),
            why: String::new(),
        }],
        kept: Vec::new(),
        unresolved: Vec::new(),
        before: None,
        after: None,
    };
    let first = BoardHistory::parse(b"what is this?\n\n").with(&[record("", "a")]);
    let read = BoardHistory::parse(first.as_bytes());
    assert_eq!((read.records.len(), read.unreadable), (1, 1));
    assert_eq!(read.records[0], record("", "a"));
    assert!(read.applied("", "a").is_some());
    assert!(read.applied("two", "a").is_none() && read.applied("", "b").is_none());
    let many: Vec<HistoryRecord> = (0..6000).map(|n| record("two", &n.to_string())).collect();
    let read = BoardHistory::parse(read.with(&many).as_bytes());
    assert_eq!(read.records.len(), 5000);
    assert!(read.applied("two", "5999").is_some());
}

#[test]
fn parsed_verdict_keeps_its_move() {
    assert_eq!(said("- put down: X — y").verdicts[0].act, VerdictMove::PutDown);
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("* TODO ".to_owned()),
        Just("** NEXT a — b".to_owned()),
        Just("* DOING [#A] a :t:".to_owned()),
        Just("- [ ] ".to_owned()),
        Just("- [x] CANCELLED a".to_owned()),
        Just("- [ ] DOING TODO".to_owned()),
        Just("* WAITING c".to_owned()),
        Just("\n:PROPERTIES:\n:AGENT: two\n:END:\n".to_owned()),
        Just("\n  - AGENT: two\n".to_owned()),
        Just(" — ".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("```\n".to_owned()),
        Just("<!--".to_owned()),
        "[abc\u{2011}]{1,3}",
        any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #[test]
    fn random_verdicts_are_all_accounted_for(
        pieces in prop::collection::vec(piece(), 0..20),
        said in prop::collection::vec(("[abc —:\u{2011}-]{0,8}", 0..4_usize), 0..6),
    ) {
        let text = pieces.concat();
        for form in [BoardForm::Org, BoardForm::Markdown] {
            let board = Board::read(&text, form);
            let named = board.tasks.iter().map(|task| task.heading.clone());
            let verdicts: Vec<Verdict> = named
                .chain(said.iter().map(|(words, _)| words.clone()))
                .zip(said.iter().map(|(_, act)| VerdictMove::ALL[*act]).cycle())
                .map(|(task, act)| Verdict::new(act, Some(&task), &text))
                .collect();
            let entry = Sections { verdicts, ..Sections::default() };
            let agent = if text.len() % 2 == 0 { "" } else { "two" };
            let change = apply(&board, &text, &entry, agent);
            let after = change.text(&text, &board).unwrap();
            let released = change.moves.iter().any(|it| it.from == Some(Keyword::Doing));
            if !released {
                prop_assert_eq!(after.matches('\n').count(), text.matches('\n').count());
            }
            prop_assert_eq!(
                change.moves.len() + change.kept.len() + change.unresolved.len(),
                entry.verdicts.len()
            );
            if let Some((_, change)) = pick(&board, &text, &BoardHistory::default(), agent) {
                change.text(&text, &board).unwrap();
            }
            if let Ok(change) = add(&board, &text, "a task that is new") {
                change.text(&text, &board).unwrap();
            }
        }
    }
}
