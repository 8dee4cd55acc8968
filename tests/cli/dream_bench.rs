//! Tests `runner dream bench`, which compares the rule-based answer with labels.

use crate::fixture::Fixture;

const DONE: &str = "# Retry policy with jitter\n\n## Problem\n\nCalls in `src/net/retry.rs` fail at night, and a \
                    person has to start them again manually in the morning.\n\n## Proposal\n\n- Add jitter to each \
                    wait\n- Cap the wait at an hour\n";
const OPEN: &str = "# Zebra crossing\n\n## Problem\n\nThe zebra crossing in `src/zebra.rs` has lost its paint.\n\n\
                    ## Proposal\n\n- Paint it again before the winter comes\n- Tell the neighbours about it\n";

/// Creates a project with two ideas, and returns the commit that implemented one of them.
fn fixture() -> (Fixture, String) {
    let fixture = Fixture::with("");
    for (path, subject) in [
        ("Cargo.toml", "chore: newer tools"),
        ("src/parse.rs", "fix: off by one in parser"),
        ("src/term.rs", "feat: coloured output"),
        ("src/net/retry.rs", "feat(net): retry policy with jitter"),
        ("README.md", "docs: tidy the readme"),
    ] {
        fixture.write(path, subject);
        fixture.git(&["add", path]);
        fixture.git(&["commit", "-qm", subject]);
    }
    let hash = fixture.git(&["log", "-1", "--format=%H", "--", "src/net/retry.rs"]);
    fixture.write("ideas/retry.md", DONE);
    fixture.write("ideas/zebra.md", OPEN);
    (fixture, hash.trim().to_owned())
}

#[test]
fn bench_computes_rates_from_labels() {
    let (fixture, hash) = fixture();
    let labels = format!(
        r#"[{{"idea": "ideas/retry.md", "commits": ["{hash}"]}}, {{"idea": "ideas/zebra.md", "open": true}}]"#
    );
    fixture.write("labels.json", labels);
    let labels = fixture.path("labels.json");
    let before = fixture.tree("");
    let bench = ["dream", "bench", "--past", "--truth", labels.to_str().unwrap()];
    let said = fixture.run(&bench).ends(0);
    for words in ["0 of 1 live ideas, 0.0 %", "1 of 1, 100.0 %", "0 of 1, 0.0 %"] {
        assert!(said.out.contains(words), "{words}: {said:?}");
    }
    let found = fixture.run(&[&bench[..], &["--json"]].concat()).ends(0).json();
    assert_eq!(found["classes"]["confusion"]["implemented"]["implemented"], 1);
    assert_eq!(found["classes"]["macro_f1"], 1.0);
    assert_eq!(found["false_archive_rate"], 0.0);
    assert_eq!(found["hits"]["precision"], 1.0);
    assert_eq!(found["done"]["recall"], 1.0);
    assert_eq!(found["past"]["rate"], 0.0);
    assert!(found["peak_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
    assert_eq!(fixture.tree(""), before, "the benchmark wrote files");
}

#[test]
fn invalid_labels_are_explained() {
    let (fixture, _) = fixture();
    fixture.write("labels.json", r#"[{"idea": "ideas/retry.md", "commits": ["main"]}]"#);
    let labels = fixture.path("labels.json");
    let said = fixture.run(&["dream", "bench", "--truth", labels.to_str().unwrap()]).ends(2);
    assert!(said.err.contains("element 0") && said.err.contains("is not a hash"), "{said:?}");
    let said = fixture.run(&["dream", "bench", "--truth", "/nowhere.json"]).ends(2);
    assert!(said.err.contains("/nowhere.json"), "{said:?}");
}
