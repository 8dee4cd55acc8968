//! Fuzzes the edits of boards: tasks that are found are moved without a change to any other line.
#![no_main]

use runner_text::org::{Board, BoardForm, Keyword, apply};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for form in [BoardForm::Org, BoardForm::Markdown] {
        let board = Board::read(text, form);
        for task in board.tasks.iter().take(4) {
            let after = apply(text, board.moved(task, Keyword::Done, Some("why"))).expect("no overlap");
            assert!(after.lines().count() + 2 >= text.lines().count());
            let _ = Board::read(&after, form);
        }
        let _ = board.doubles();
    }
});
