//! Fuzzes the edits of boards: every task that is found can be moved without losing other lines.
#![no_main]

use runner_text::org::{Board, BoardForm, Keyword, apply};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for form in [BoardForm::Org, BoardForm::Markdown] {
        let board = Board::read(text, form);
        for task in board.tasks.iter().take(4) {
            let after = apply(text, board.moved(task, Keyword::Done, Some("why")))
                .expect("the edits are valid");
            assert!(after.lines().count() + 2 >= text.lines().count());
            let _ = Board::read(&after, form);
        }
        let _ = board.doubles();
    }
});
