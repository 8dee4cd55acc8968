use proptest::prelude::*;
use runner_text::org::BoardForm;

use super::*;

fn mistakes(text: &str, form: BoardForm) -> Vec<(usize, String)> {
    let found = parse(text, form).unwrap_err();
    found.into_iter().map(|it| (it.line, it.why)).collect()
}

#[test]
fn default_cycle_is_parsed() {
    let spec = parse(DEFAULT, BoardForm::Org).unwrap();
    let names: Vec<_> = spec.states.iter().map(|it| (&*it.name, it.kind, it.repeat)).collect();
    assert_eq!(
        names,
        [
            ("wake_add", StateKind::Wake, 3),
            ("wake_audit", StateKind::Audit, 1),
            ("rem", StateKind::Rem, 1),
            ("wake_plan", StateKind::Plan, 1)
        ]
    );
    let rem = spec.state("rem").unwrap();
    assert_eq!(rem.min_interval, Some(SignedDuration::from_mins(50)));
    assert!(rem.about.starts_with("Dream:"));
}

#[test]
fn markdown_cycle_parses_with_mixed_whitespace() {
    let text = "# Our cycle\r\n\r\n- a list of prose: yes\r\n\r\n## add\r\n\r\n- KIND: wake\r\n-\tNEXT: rem\r\n\
                - REPEAT: 2\r\n- BACKEND: claude\r\n- BUDGET: calls=3, money=0.50 time=10m\r\n- TIMEOUT: 12m\r\n\
                - PROMPT: prompts/add.md\r\n\r\nWork.\r\n\r\n## rem\r\n* KIND: rem\r\n* NEXT: add\r\n* MIN-INTERVAL: 1h30m";
    let spec = parse(text, BoardForm::Markdown).unwrap();
    let add = &spec.states[0];
    assert_eq!((add.repeat, add.about.as_str(), add.line), (2, "Work.", 5));
    assert_eq!(add.backend.as_deref(), Some("claude"));
    assert_eq!(add.prompt.as_deref(), Some("prompts/add.md"));
    assert_eq!(add.timeout, Some(Duration::from_secs(720)));
    let want =
        Budget { calls: Some(3), micros: Some(500_000), seconds: Some(600), ..Budget::default() };
    assert_eq!(add.budget, want);
    assert_eq!(spec.states[1].min_interval, Some(SignedDuration::from_mins(90)));
    for (given, minutes) in [("", 50), ("* MIN-INTERVAL: 0m", 0)] {
        let spec = parse(&text.replace("* MIN-INTERVAL: 1h30m", given), BoardForm::Markdown);
        let interval = spec.unwrap().states[1].min_interval;
        assert_eq!(interval, Some(SignedDuration::from_mins(minutes)), "{given:?}");
    }
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    let org = |text: &str| mistakes(text, BoardForm::Org);
    let one = |text: &str, line: usize, part: &str| {
        let found = org(text);
        assert!(
            found.iter().any(|(at, why)| *at == line && why.contains(part)),
            "{part}: {found:?}"
        );
    };
    let state = |name: &str, more: &str| format!("* {name}\n:PROPERTIES:\n{more}\n:END:\n");
    let good = state("rem", ":KIND: rem\n:NEXT: a");
    one("", 1, "declares no state");
    one("* only prose\n", 1, "declares no state");
    one(&(state("a", ":NEXT: rme") + &good), 1, "did you mean \"rem\"");
    one(&state("a", ":NEXT: a"), 1, "no state of KIND rem");
    one(&good.replace("a\n", "rem\n"), 1, "no state of KIND wake in the loop rem");
    one(&(state("a", ":NEXT: rem") + &good + &state("b", ":NEXT: a")), 10, "never reached from a");
    let tail = state("a", ":KIND: rem\n:NEXT: b") + &state("b", ":NEXT: b");
    one(&tail, 6, "dream only once");
    one(&(state("a", ":NEXT: rem") + &state("a", ":NEXT: rem") + &good), 5, "declared on line 1");
    one(&state("a", ":KIND: sleep\n:NEXT: a"), 3, "no kind \"sleep\"");
    one(&state("a", ":NXT: a"), 3, "did you mean \"NEXT\"");
    one(&state("a", ":NEXT: a\n:NEXT: b"), 4, "given twice");
    one(&state("a", ":KIND: wake"), 1, "has no NEXT");
    one(&state("a", ":NEXT:"), 3, "is empty");
    one(&state("a", ":NEXT: a\n:REPEAT: 0"), 4, "from 1 to 1000");
    one(&state("a", ":NEXT: a\n:MIN-INTERVAL: often"), 4, "not a duration");
    one(&state("a", ":NEXT: a\n:TIMEOUT: 25h"), 4, "from 1s to 24h");
    one(&state("a", ":NEXT: a\n:BUDGET: lots"), 4, "not part of a budget");
    one(&state("a", ":NEXT: a\nwords"), 4, "is not a property");
    one("* a\n:PROPERTIES:\n:NEXT: a\n", 2, "no :END:");
    one(&state("../up", ":NEXT: a"), 1, "not a valid state name");
    one(&"x".repeat(parse::LARGEST + 1), 1, "bytes");
}

proptest! {
    #[test]
    fn arbitrary_text_is_parsed_or_refused(pieces in prop::collection::vec(prop_oneof![
        Just("* a\n".to_owned()), Just("* rem\n".to_owned()), Just(":PROPERTIES:\n".to_owned()),
        Just(":END:\n".to_owned()), Just(":KIND: rem\n".to_owned()), Just(":NEXT: a\n".to_owned()),
        Just(":NEXT: rem\n".to_owned()), Just("## a\n- NEXT: a\n".to_owned()), Just("- KIND: rem\r\n".to_owned()),
        Just(":BUDGET: money=".to_owned()), Just(":MIN-INTERVAL: 9999999999999h\n".to_owned()),
        any::<char>().prop_map(String::from), "[ -~]{0,12}\n",
    ], 0..20)) {
        let text = pieces.concat();
        for form in [BoardForm::Org, BoardForm::Markdown] {
            match parse(&text, form) {
                Ok(spec) => prop_assert!(spec.states.iter().all(|it| spec.state(&it.next).is_some())),
                Err(found) => prop_assert!(!found.is_empty()),
            }
        }
    }
}

#[test]
fn properties_below_a_blank_line_are_known_names() {
    let text = "## a\n- KIND: wake\n- NEXT: b\n\n- BUDGET: calls=3\n- NOTE: run the tests\n\n\
                ## b\n- KIND: rem\n- NEXT: a\n";
    let state = parse(text, BoardForm::Markdown).unwrap().states.remove(0);
    assert_eq!(state.budget.calls, Some(3));
    assert!(state.about.contains("NOTE: run the tests"), "{}", state.about);
    for late in ["BUDGET: calls=3", "MIN_INTERVAL: 5m"] {
        let text = format!("## a\n- KIND: rem\n- NEXT: a\n\nWork.\n- {late}\n");
        let late = mistakes(&text, BoardForm::Markdown);
        assert!(late.iter().any(|(line, why)| *line == 6 && why.contains("follows")), "{late:?}");
    }
}
