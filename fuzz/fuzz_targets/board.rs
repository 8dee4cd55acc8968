//! Fuzzes boards: any text can be read as a board, and a change affects only the intended tasks.
#![no_main]

use runner_jobs::lifecycle::board::{BoardHistory, add, apply, pick};
use runner_jobs::lifecycle::entry::{Sections, Verdict, VerdictMove};
use runner_text::org::{Board, BoardForm, Keyword};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for form in [BoardForm::Org, BoardForm::Markdown] {
        let board = Board::read(text, form);
        let first = text.lines().next().unwrap_or_default();
        let named = board.tasks.iter().take(8).map(|task| task.heading.as_str());
        let verdicts: Vec<Verdict> = named
            .chain([first])
            .zip(VerdictMove::ALL.into_iter().cycle())
            .map(|(task, act)| Verdict::new(act, Some(task), first))
            .collect();
        let entry = Sections { verdicts, ..Sections::default() };
        let change = apply(&board, text, &entry, "one");
        let after = change.text(text, &board).expect("only the intended tasks move");
        assert_eq!(after.matches('\n').count(), text.matches('\n').count());
        if let Some((_, change)) = pick(&board, text, &BoardHistory::default(), "one") {
            change.text(text, &board).expect("only one task moves");
        }
        if let Ok(change) = add(&board, text, "a task that is new") {
            let after = change.text(text, &board).expect("exactly one task is added");
            let new = Board::read(&after, form);
            assert!(new.tasks.iter().any(|task| task.keyword == Keyword::Todo));
        }
    }
});
