//! Tests the lint rules on small vaults with faulty and correct notes, and the search for notes.

use jiff::civil::date;

use super::*;

fn note(path: &str, text: &str) -> LintNote {
    LintNote { path: path.to_owned(), text: text.to_owned() }
}

fn reported(notes: &[LintNote], files: &[&str]) -> Vec<String> {
    let exists = |path: &str| files.contains(&path) || notes.iter().any(|note| note.path == path);
    check(notes, &exists, &exists, date(2026, 11, 22))
        .iter()
        .map(|it| format!("{}:{} {} {}", it.file, it.line, it.rule, it.message))
        .collect()
}

#[test]
fn each_lint_fault_is_reported_at_its_line() {
    let notes = [
        note(
            "index.md",
            "# Index\n\n[a](guide/a.md) [b](b.md#second-part) [[Plan]] [[plan#First step|x]]\n\
             [web](https://example.org/x.md) [mail](mailto:a@b.c) ![p](img/p.png)\n\
             `[code](none.md)`\n\n```\n[[Nowhere]]\n```\n[up](../outside.md) [here](#index)\n",
        ),
        note(
            "guide/a.md",
            "# Alpha\n\nSee [gone](gone.md),\nand [b](../b.md#thrid-part).\n\n[[Plam]] and [[c]]\n\
             [[d]]\n",
        ),
        note(
            "b.md",
            "---\ntags: x\n---\n# Beta\n\n## Second part\n## Third `part`\n## Second part\n[dup](#second-part-1)\n[b](b%2Emd)\n",
        ),
        note("Plan.md", "# Plan\n\n## First step\n[c](c.md) [d](x/d.md) [e](y/d.md)\n"),
        note("c.md", "# Alpha\n\nAs of 2026-01-02 all is well. `src/gone.rs:3`, `src/here.rs`\n"),
        note("x/d.md", "---\nexpires: 2026-01-01\n---\n# D one\n"),
        note("y/d.md", "# D two\n"),
        note("lonely.md", "# Lonely\n"),
    ];
    let reported = reported(&notes, &["img/p.png", "src", "src/here.rs"]);
    let expected = [
        "c.md:1 duplicate-title the title is the same as in guide/a.md",
        "c.md:3 stale-claim as of 2026-01-02 was 324 days ago",
        "c.md:3 stale-claim src/gone.rs does not exist",
        "guide/a.md:1 duplicate-title the title is the same as in c.md",
        "guide/a.md:3 broken-link gone.md does not exist",
        "guide/a.md:4 broken-anchor ../b.md#thrid-part: b.md has no #thrid-part; did you mean #third-part?",
        "guide/a.md:6 broken-link [[Plam]] does not exist; did you mean Plan.md?",
        "guide/a.md:7 ambiguous-link [[d]] may be x/d.md or y/d.md",
        "lonely.md:1 orphan no other note links to it",
        "x/d.md:1 stale-claim the date in expires, 2026-01-01, has passed",
    ];
    assert_eq!(reported, expected);
}

#[test]
fn missing_front_matter_is_reported_if_half_have_it() {
    let with = |name: &str| note(name, "---\ntitle: x\n---\n[r](README.md)");
    let bare = note("README.md", "# Read me\n");
    let many = [with("a.md"), bare.clone()];
    let reported_many = reported(&many, &[]);
    assert!(
        reported_many.iter().any(|it| it.starts_with("README.md:1 missing-front-matter")),
        "{reported_many:?}"
    );
    let few = [with("a.md"), bare, note("b.md", "# B\n"), note("c.md", "# C\n")];
    assert!(!reported(&few, &[]).iter().any(|it| it.contains("missing")));
}

#[test]
fn one_line_strips_control_characters_and_truncates() {
    assert_eq!(one_line("a\n\n# b\u{1b}[31m  c"), "a # b[31m c");
    assert_eq!(one_line(&"x".repeat(900)).len(), 300);
}

proptest::proptest! {
    #[test]
    fn check_survives_random_link_syntax(text in "(\\[\\[|\\]\\]|#|\\(|\\)|`|\\||%|[a-c./ \n:é-])*") {
        let notes = [note("a.md", &text), note("b/c.md", &text)];
        let lines = text.lines().count().max(1);
        for finding in check(&notes, &|_| false, &|_| true, date(2026, 1, 1)) {
            proptest::prop_assert!(finding.line >= 1 && finding.line <= lines + 1);
        }
    }
}

#[test]
fn invalid_ignore_file_excludes_only_its_folder() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for folder in ["open", "shut"] {
        std::fs::create_dir(root.join(folder)).unwrap();
        std::fs::write(root.join(folder).join("note.md"), "# A\n").unwrap();
    }
    let fifo = |path: &str| mknodat(CWD, root.join(path), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fifo("shut/.gitignore");
    fifo("open/pipe.md");
    let (found, left) = notes(root, root, &[], None, IgnoredNotes::LeftOut);
    let found: Vec<_> = found.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(found, ["open/note.md"]);
    assert!(left.len() == 1 && left[0].contains(".gitignore is not a regular file"), "{left:?}");
    fifo(".ignore");
    let (found, left) = notes(root, root, &[], None, IgnoredNotes::LeftOut);
    assert!(found.is_empty() && left.len() == 1, "{left:?}");
}
