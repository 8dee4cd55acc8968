//! Fuzzes declared cycles: any text is either refused with the lines of its mistakes, or declares a
//! cycle that never ends.
#![no_main]

use runner_jobs::lifecycle::position::Position;
use runner_jobs::lifecycle::spec::{StateKind, parse};
use runner_text::org::BoardForm;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for form in [BoardForm::Org, BoardForm::Markdown] {
        let lines = text.lines().count().max(1);
        match parse(text, form) {
            Err(mistakes) => {
                assert!(!mistakes.is_empty());
                assert!(mistakes.iter().all(|it| (1..=lines).contains(&it.line)));
            }
            Ok(spec) => {
                let mut at = Position::at(&spec.first().name);
                let mut dreams = 0;
                for _ in 0..2_000 {
                    let state = spec.state(&at.state).expect("the next state exists");
                    dreams += u32::from(state.kind == StateKind::Rem);
                    at = at.after(state);
                }
                assert!(dreams > 0 || spec.states.iter().any(|it| it.repeat > 1));
            }
        }
    }
});
