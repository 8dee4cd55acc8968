use super::*;
use proptest::prelude::*;

const ENTRY: &str = "\
#+TITLE: rem — 2026-06-10 14:30 UTC
#+MODEL: some/model

* tale
Two runs added the table (src/table.rs, commit a3f91c2).
The gate failed once and was run again.
* goals
- finish the table
- look at the page
- groom old tasks
* blue sky
- a live diagram
- a link from each verdict to its commit
* fears
- the same idea in a new wrapper
- a claim that nobody can check
* verdicts
- pick up: table — of prices — the data is there
- put down: tweet copy for launch
- cancel: old page – nobody reads it
- keep course — the order stands
- think about it
* carry
- DOING: table
- next action: build the partial only
- verified this cycle: the check is clean; the table renders.
";

fn sections(text: &str) -> Result<Sections, Malformed> {
    parse_sections(text)
}

/// Returns [`ENTRY`] with `line` inserted before the line `before`.
fn with(before: &str, line: &str) -> String {
    ENTRY.replacen(&format!("\n{before}\n"), &format!("\n{line}\n{before}\n"), 1)
}

#[test]
fn entry_round_trips_through_parse_and_render() {
    let mut entry = parse("2026-06-10-1430", ENTRY).unwrap();
    assert_eq!(entry.title, "rem — 2026-06-10 14:30 UTC");
    assert_eq!(entry.model, "some/model");
    let marked = Entry {
        unseen: vec!["src/x.rs".into(), "exit 3".into()],
        facts: vec!["One commit was made.".into(), "Failed: `make` (exit 2).".into()],
        ..entry.clone()
    };
    assert!(render(&marked).contains(
        "\n#+UNSEEN: src/x.rs; exit 3\n#+FACT: One commit was made.\n#+FACT: Failed: `make` (exit 2).\n"
    ));
    assert_eq!(parse("2026-06-10-1430", &render(&marked)).unwrap(), marked);
    let said = &entry.sections;
    assert_eq!(said.tale.lines().count(), 2);
    assert_eq!((said.goals.len(), said.blue_sky.len(), said.fears.len()), (3, 2, 2));
    let acts: Vec<VerdictMove> = said.verdicts.iter().map(|it| it.act).collect();
    assert_eq!(acts, VerdictMove::ALL);
    // A heading may contain a dash, so `said` contains the whole text.
    assert_eq!(said.verdicts[0].task.as_deref(), Some("table"));
    assert_eq!(said.verdicts[0].said, "table — of prices — the data is there");
    assert_eq!(said.verdicts[1].why, "");
    assert_eq!(said.verdicts[2].why, "nobody reads it");
    assert_eq!(said.verdicts[3].task, None);
    assert_eq!(said.unread, ["think about it"]);
    assert_eq!(entry.claims(), ["the check is clean", "the table renders"]);
    assert_eq!(said.warnings(), ["not a verdict: think about it"]);
    assert_eq!(render(&entry), ENTRY);
    entry.sections.carry = vec!["verified: `cd x; make` ended with 0; a ` b; c; `d;`".to_owned()];
    let claims = ["`cd x; make` ended with 0", "a ` b; c; `d", "`"];
    assert_eq!(entry.claims(), claims, "each backtick pairs with the next one");
}

#[test]
fn invalid_headings_discard_the_whole_entry() {
    let cases = [
        (with("* carry", "* morals"), "but \"carry\" is expected"),
        (format!("{ENTRY}* carry\n"), "after the sixth"),
        (format!("{ENTRY}* \n"), "after the sixth"),
        (ENTRY.replace("* fears\n", ""), "but \"fears\" is expected"),
        (ENTRY.replace("* carry\n", ""), "before the heading \"carry\""),
        (ENTRY.replace("* goals", "* Goals"), "but \"goals\" is expected"),
        (ENTRY.replace("* goals", "** goals"), "but \"goals\" is expected"),
        (ENTRY.replace("* goals", "* goals :tag:"), "but \"goals\" is expected"),
        (
            ENTRY.replace("* goals", "* fears").replacen("* fears", "* goals", 2),
            "but \"fears\" is expected",
        ),
        (with("* tale", "Here is your entry:"), "text before"),
        (with("* tale", "```org"), "text before"),
        (String::new(), "line 1: the text ends before the heading \"tale\""),
        ("x".repeat(LARGEST + 1), "larger than"),
    ];
    for (text, why) in cases {
        let error = sections(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error} for {why}");
    }
}

#[test]
fn heading_like_text_invalidates_only_free_text() {
    // In free text, the line cannot be distinguished from a heading.
    let text = with("- a live diagram", "* verdicts");
    assert!(sections(&text).unwrap_err().why.contains("but \"fears\" is expected"));
    let text = with("- a live diagram", "*\tverdicts");
    assert!(sections(&text).is_err());
    // A star begins a heading only in the first column and before a blank.
    for line in [" * verdicts", "*verdicts*", "- * verdicts"] {
        assert_eq!(sections(&with("- a live diagram", line)).unwrap().blue_sky.len(), 3);
    }
    // In structured output, hostile text stays on its line.
    let hostile = "a page\n* verdicts\n- cancel: everything\r\n* carry\u{2028}* carry";
    let entry = Entry {
        sections: Sections {
            tale: format!("It was.\n{hostile}\n#+TITLE: other"),
            goals: vec![hostile.into(), "- - * goals".into(), "\n".into()],
            verdicts: vec![Verdict::new(VerdictMove::Cancel, Some(hostile), hostile)],
            ..Sections::default()
        },
        title: format!("rem\n{hostile}"),
        model: "m\n* tale".into(),
        ..Entry::default()
    };
    let read = parse("", &render(&entry)).unwrap();
    assert_eq!(read.sections.goals.len(), 2, "{}", render(&entry));
    assert_eq!(read.sections.goals[1], "* goals");
    assert_eq!(read.sections.verdicts.len(), 1);
    assert!(read.sections.unread.is_empty() && read.sections.carry.is_empty());
    assert_eq!(read.title, "rem a page * verdicts - cancel: everything * carry * carry");
}

#[test]
fn whitespace_variants_parse_to_the_same_entry() {
    let plain = sections(ENTRY).unwrap();
    assert_eq!(sections(&ENTRY.replace('\n', "\r\n")).unwrap(), plain);
    assert_eq!(sections(ENTRY.trim_end()).unwrap(), plain);
    assert_eq!(sections(&ENTRY.replace("\n- ", "\n\t-\t")).unwrap().goals.len(), 3);
    let wrapped = ENTRY.replace("build the partial only", "build\n  the\n\tpartial only");
    assert_eq!(sections(&wrapped).unwrap(), plain);
    let folded = ENTRY.replace("tweet copy", "tweet\u{2011}copy");
    assert_eq!(sections(&folded).unwrap().verdicts[1].said, "tweet\u{2011}copy for launch");
}

#[test]
fn only_known_moves_are_verdicts() {
    for line in [
        "pick up",
        "pick up:",
        "pick up table",
        "keep coursebook",
        "cancelled: x",
        "PICKUP: x",
        "**pick up**: x",
        "pick up：x",
        "é",
        "put dow",
    ] {
        let said = sections(&with("* carry", &format!("- {line}"))).unwrap();
        assert_eq!((said.verdicts.len(), said.unread.len()), (4, 2), "{line}");
    }
    for line in ["Pick up: x", "KEEP COURSE", "keep course: why", "keep course -- why", "cancel :x"]
    {
        let said = sections(&with("* carry", &format!("- {line}"))).unwrap();
        assert_eq!((said.verdicts.len(), said.unread.len()), (5, 1), "{line}");
    }
}

#[test]
fn section_sizes_out_of_range_cause_warnings() {
    let long = "word ".repeat(121);
    let said = Sections { tale: long, goals: vec!["one".into()], ..Sections::default() };
    let reported = said.warnings().join("\n");
    for word in [
        "121 words",
        "goals has 1",
        "blue sky has 0",
        "fears has 0",
        "no verdict",
        "carry is empty",
    ] {
        assert!(reported.contains(word), "{reported}");
    }
}

/// Generates pieces of an entry, or of text that imitates an entry.
fn piece() -> impl Strategy<Value = String> {
    let made = [
        "* tale\n",
        "* goals\n",
        "* blue sky\n",
        "* fears\n",
        "* verdicts\n",
        "* carry\n",
        "** carry\n",
        "- ",
        "+ ",
        "-",
        "*",
        "* ",
        "\n",
        "\r\n",
        "\t",
        "  ",
        "#+TITLE: a\n",
        "#+MODEL:",
        ":",
        " — ",
        " – ",
        " -- ",
        "pick up: ",
        "put down: ",
        "cancel: ",
        "keep course",
        "verified: ",
        ";",
        "\u{2028}",
        "\u{202e}",
        "\u{2011}",
        "\0",
        "é",
        "word",
    ];
    prop_oneof![
        6 => proptest::sample::select(made.to_vec()).prop_map(str::to_owned),
        1 => ".{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_text_is_parsed_or_refused(pieces in proptest::collection::vec(piece(), 0..80)) {
        let text = pieces.concat();
        if let Ok(entry) = parse("x", &text) {
            settles(&entry)?;
        }
    }

    #[test]
    fn complete_entry_with_arbitrary_words_round_trips(bodies in proptest::collection::vec(
        proptest::collection::vec(piece(), 0..12), 6))
    {
        let mut text = String::new();
        for (name, body) in HEADINGS.iter().zip(bodies) {
            let body = body.concat();
            let body = body.lines().filter(|line| parse::heading(line).is_none());
            let body: Vec<&str> = body.collect();
            text += &format!("* {name}\n{}\n", body.join("\n"));
        }
        settles(&parse("x", &text).unwrap())?;
    }

    #[test]
    fn rendered_entry_always_parses(texts in proptest::collection::vec(
        proptest::collection::vec(piece(), 0..8).prop_map(|it| it.concat()), 8))
    {
        let entry = Entry {
            id: "x".into(),
            title: texts[0].clone(),
            model: texts[1].clone(),
            unseen: vec![texts[3].clone(), texts[0].clone()],
            facts: vec![texts[4].clone(), texts[1].clone()],
            sections: Sections {
                tale: texts[2].clone(),
                goals: vec![texts[3].clone()],
                blue_sky: vec![texts[4].clone(), texts[5].clone()],
                verdicts: vec![Verdict::new(VerdictMove::PickUp, Some(&texts[6]), &texts[7])],
                carry: vec![texts[7].clone()],
                ..Sections::default()
            },
        };
        let text = render(&entry);
        let read = parse("x", &text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(render(&read), text);
        prop_assert!(read.sections.goals.len() <= 1 && read.sections.blue_sky.len() <= 2);
        settles(&read)?;
    }
}

/// Checks that a parsed entry survives rendering and parsing unchanged.
fn settles(entry: &Entry) -> Result<(), TestCaseError> {
    let _ = (entry.claims(), entry.sections.warnings());
    let text = render(entry);
    let again = parse(&entry.id, &text);
    prop_assert_eq!(again.as_ref(), Ok(entry), "{}", text);
    Ok(())
}
