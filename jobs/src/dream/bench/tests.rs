use super::*;
use crate::dream::compare::NotePaths;
use crate::dream::proposal::IdeaStatus;
use crate::dream::walk::Stat;
use crate::evidence::Commit;
use crate::evidence::neighbours::{Note, neighbours};
use runner_engine::digest::Digest;

const DONE: &str =
    "# Retry policy with jitter\n\nAdd a retry policy with jitter to `src/net/retry.rs`.\n";
const OPEN: &str =
    "# Zebra crossing\n\nPaint the zebra crossing again, in `src/zebra.rs`, before the winter.\n";

fn history() -> Vec<Commit> {
    let all = [
        ("chore: newer tools", "Cargo.toml"),
        ("feat(net): retry policy with jitter", "src/net/retry.rs"),
        ("fix: off by one in parser", "src/parse.rs"),
        ("feat: coloured output", "src/term.rs"),
        ("docs: tidy the readme", "README.md"),
        ("refactor: split the main module", "src/main.rs"),
    ];
    let commit = |(at, (subject, path)): (usize, &(&str, &str))| Commit {
        hash: format!("{at:x}").repeat(40),
        at: 1_700_000_000 - at as i64,
        subject: (*subject).to_owned(),
        body: String::new(),
        paths: vec![(*path).to_owned()],
        touched: 1,
        created: vec![0],
        ..Commit::default()
    };
    all.iter().enumerate().map(commit).collect()
}

fn one(room: &ProjectEvidence, path: &str, text: &str) -> ClassifiedIdea {
    let features = Features::of(text, places::stem(path));
    let grounds = room.about(path, text, None);
    ClassifiedIdea {
        path: path.into(),
        text: text.into(),
        stat: Stat { size: 0, mtime: 0, ctime: 0, inode: 0 },
        digest: Digest::of(text.as_bytes()),
        verdict: rule::judge(room, &features, &grounds, None),
        grounds,
        near: Vec::new(),
        notes: Vec::new(),
        merit: 0.0,
    }
}

fn measured(labels: &str, past: bool) -> Figures {
    let room = ProjectEvidence::of(history(), Vec::new());
    let mut shown = [
        one(&room, "ideas/retry.md", DONE),
        one(&room, "ideas/zebra.md", OPEN),
        one(&room, "ideas/again.md", DONE),
    ];
    let texts = shown.each_ref().map(|one| (one.path.clone(), one.text.clone()));
    let notes = texts.each_ref().map(|(path, text)| Note { path, text, at: 0 });
    let mut near = neighbours(&notes, notes.len());
    for one in &mut shown {
        one.near = near.remove(&one.path).unwrap_or_default();
    }
    let others = || OtherNotes::new(&|| Ok(NotePaths::default()), &|_| Ok(String::new()));
    measure(&room, &shown, &truth::parse(labels).unwrap(), past.then_some(&others as _))
}

#[test]
fn correct_answers_give_perfect_scores() {
    let found = measured(
        r#"[{"idea": "ideas/retry.md", "commits": ["1111111"]}, {"idea": "ideas/zebra.md", "open": true},
            {"idea": "ideas/gone.md", "open": true}]"#,
        true,
    );
    assert_eq!((found.ideas, found.labelled, found.missing.len()), (3, 2, 1));
    let hits = &found.hits;
    assert_eq!((hits.known, hits.at_1, hits.at_3, hits.right), (1, 1, 1, 1), "{found:?}");
    assert_eq!((hits.precision, found.done.recall), (Some(1.0), Some(1.0)));
    assert_eq!((found.live, found.false_archives.len()), (1, 0));
    assert_eq!(found.classes.macro_f1, Some(1.0));
    assert_eq!(found.classes.confusion["implemented"]["implemented"], 1);
    let past = found.past.unwrap();
    assert_eq!((past.ideas, past.archived.len()), (1, 0), "the idea was not done at that time");
}

#[test]
fn wrong_answers_lower_the_scores() {
    let found = measured(
        r#"[{"idea": "ideas/retry.md", "open": true}, {"idea": "ideas/again.md", "commits": ["2222222", "fffffff"]},
            {"idea": "ideas/zebra.md", "commits": ["3333333"]}]"#,
        false,
    );
    assert_eq!(found.false_archives, ["ideas/retry.md"]);
    assert_eq!(found.false_archive_rate, Some(1.0));
    assert_eq!((found.hits.known, found.hits.archived, found.hits.right), (2, 1, 0), "{found:?}");
    assert_eq!((found.done.ideas, found.done.archived, found.unknown_commits), (2, 1, 1));
    assert_eq!(found.hits.wrong, ["ideas/again.md"]);
    assert_eq!(found.done.missed, ["ideas/zebra.md"]);
    // One of the two implemented ideas and one open idea are classified as implemented, so
    // precision and recall are both one half.
    assert_eq!(found.classes.f1["implemented"], 0.5);
    assert_eq!(found.past, None);
}

#[test]
fn unlabelled_ideas_have_no_rates() {
    let found = measured(r#"[{"idea": "ideas/retry.md"}, {"idea": "ideas/zebra.md"}]"#, true);
    assert_eq!(found.unlabelled_archived, ["ideas/retry.md"]);
    assert_eq!((found.hits.precision, found.false_archive_rate), (None, None));
    assert_eq!(found.classes.macro_f1, None);
    assert_eq!(found.past.unwrap().rate, None);
    assert_eq!(measured("[]", true).labelled, 0);
    let status = measured(r#"[{"idea": "ideas/zebra.md", "status": "sidenote"}]"#, false);
    assert_eq!(status.classes.confusion["sidenote"].values().sum::<usize>(), 1);
    assert!(status.classes.f1.contains_key(IdeaStatus::Sidenote.as_str()));
}

#[test]
fn duplicates_are_counted_among_the_neighbours() {
    let found = measured(
        r#"[{"idea": "ideas/retry.md", "duplicates": ["ideas/again.md"]},
            {"idea": "ideas/zebra.md", "duplicates": ["ideas/nowhere.md"]}]"#,
        false,
    );
    assert_eq!((found.duplicates.known, found.duplicates.at_10), (2, 1));
    assert_eq!(found.duplicates.recall, Some(0.5));
}

const SILENT: &str = "# Silent hooks in projects without set-up\n\nThe resource hook creates folders in a \
                      project that nobody has set up. Each hook should stay silent until the project \
                      is initialised, and say so once when asked for its state.\n";
const SIBLING: &str = "# Resource hook until the project is initialised\n\nKeep the hook silent.\n";

#[test]
fn past_is_also_compared_with_the_other_notes() {
    let subjects = [
        "split the main module",
        "keep resource hook silent until the project is initialised",
        "show the state of a project",
        "colour the output",
        "fix the parser",
        "list the depots",
    ];
    let room = ProjectEvidence::of_subjects(&subjects);
    let label =
        r#"[{"idea": "ideas/silent.md", "commits": ["0000000000000000000000000000000000000000"]}]"#;
    let labels = truth::parse(label).unwrap();
    let shown = [one(&room, "ideas/silent.md", SILENT)];
    let archived_early = |zebras: usize, other: &str| {
        let zebras = (0..zebras).map(|at| format!("ideas/zebra{at}.md"));
        let asked = zebras.chain(["ideas/silent.md".to_owned(), "ideas/other.md".to_owned()]);
        let asked: std::collections::BTreeSet<String> = asked.collect();
        let list = || Ok(NotePaths { asked: asked.clone(), ..NotePaths::default() });
        let read = |path: &str| match path {
            "ideas/silent.md" => Ok(SILENT.to_owned()),
            "ideas/other.md" => Ok(other.to_owned()),
            _ => Ok(OPEN.to_owned()),
        };
        let others = || OtherNotes::new(&list, &read);
        let figures = measure(&room, &shown, &labels, Some(&others as _));
        figures.past.unwrap().archived.len()
    };
    assert_eq!(archived_early(28, OPEN), 1);
    assert_eq!(archived_early(27, OPEN), 0, "too few notes to compare with");
    assert_eq!(archived_early(28, SIBLING), 0, "the commit fits its sibling better");
}
