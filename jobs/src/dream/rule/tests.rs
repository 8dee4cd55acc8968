use super::*;
use crate::evidence::{Commit, criteria::Criterion, overlap::Overlap};

const SPEC: &str = "# Retry policy with jitter\n\n## Problem\n\nCalls fail at night, and a person has to start \
                    them again manually in the morning, which nobody likes to do.\n\n## Proposal\n\n- Add jitter \
                    to each wait\n- Cap the wait at an hour\n- Write every retry to the report\n";

fn room(subjects: &[(&str, &[&str])]) -> ProjectEvidence {
    let filler = [
        ("chore: newer tools", &["Cargo.toml"][..]),
        ("docs: tidy the readme", &["README.md"]),
        ("fix: off by one in parser", &["src/parse.rs"]),
        ("feat: coloured output", &["src/term.rs"]),
        ("refactor: split the main module", &["src/main.rs"]),
    ];
    let all = subjects.iter().chain(&filler).enumerate().map(|(at, (subject, paths))| Commit {
        hash: format!("{at:x}").repeat(40),
        at: 1_700_000_000 - at as i64,
        subject: (*subject).to_owned(),
        body: String::new(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        touched: paths.len(),
        ..Commit::default()
    });
    ProjectEvidence::of(all.collect(), Vec::new())
}

fn judged(room: &ProjectEvidence, path: &str, text: &str) -> RuleVerdict {
    let features = Features::of(text, path);
    judge(room, &features, &room.about(path, text, None), None)
}

#[test]
fn implemented_requires_a_matching_commit() {
    let path = "ideas/retry-policy.md";
    let open = judged(&room(&[]), path, SPEC);
    assert_eq!((open.status, open.action), (IdeaStatus::Meritorious, Action::Promote), "{open:?}");
    let done = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let found = judged(&done, path, SPEC);
    assert_eq!(
        (found.status, found.action),
        (IdeaStatus::Implemented, Action::Archive),
        "{found:?}"
    );
    assert!(found.evidence.starts_with("000000000000 2023-11-14 feat: retry policy"), "{found:?}");
    assert_eq!(found.bare, "000000000000", "bare evidence contains no commit subject");
    for weaker in [
        ("spec: retry policy with jitter", &["docs/retry.md"][..]),
        ("idea: retry policy with jitter", &["ideas/retry-policy.md"]),
        ("fix: policy link in the footer", &["src/footer.rs"]),
        ("feat: retry the upload", &["src/upload.rs"]),
        ("feat: retry policy", &["src/retry.rs"]),
        ("docs: explain the retry policy with jitter", &["docs/retry.md"]),
        ("feat: add a retry policy to the client", &["src/retry.rs"]),
    ] {
        let found = judged(&room(&[weaker]), path, SPEC);
        assert_ne!(found.action, Action::Archive, "{weaker:?} {found:?}");
    }
}

/// Judges the retry policy with two candidates: a commit that `base` and then `change` modified,
/// and a commit of strength 0.45.
fn changed_fit(base: &dyn Fn(&mut Candidate), change: &dyn Fn(&mut Candidate)) -> Option<Fit> {
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let mut grounds = room.about("ideas/retry-policy.md", SPEC, None);
    let best = &mut grounds.candidates[0];
    base(best);
    change(best);
    let next = Candidate { at: 4, strength: 0.45, ..grounds.candidates[0].clone() };
    grounds.candidates.truncate(1);
    grounds.candidates.push(next);
    let features = Features::of(SPEC, "ideas/retry-policy.md");
    implemented(&features, &grounds).map(|(_, fit)| fit)
}

#[test]
fn commit_that_stands_out_needs_no_perfect_fit() {
    let path = "ideas/retry-policy.md";
    let base = |best: &mut Candidate| (best.strength, best.about, best.content) = (0.7, 0.8, 0.4);
    let judge = |change: &dyn Fn(&mut Candidate)| changed_fit(&base, change);
    assert_eq!(judge(&|_| ()), Some(Fit::Well));
    assert_eq!(
        judge(&|best| best.strength = 0.64),
        Some(Fit::Perhaps),
        "it is too weak to stand out"
    );
    assert_eq!(judge(&|best| best.about = 0.6), Some(Fit::Perhaps), "its subject uses other words");
    assert_eq!(
        judge(&|best| best.content = 0.2),
        Some(Fit::Perhaps),
        "it contains little of the idea"
    );
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let mut alone = room.about(path, SPEC, None);
    alone.candidates.truncate(1);
    alone.candidates[0].strength = 0.7;
    let verdict = implemented(&Features::of(SPEC, path), &alone).unwrap();
    assert_eq!(verdict.1, Fit::Perhaps, "there is no other commit to compare it with");
}

/// Returns items of an idea, of which the first `unmet` are missing from the commit.
fn criteria(items: usize, unmet: usize) -> Vec<Criterion> {
    (0..items).map(|at| Criterion { text: format!("item {at}"), met: at >= unmet }).collect()
}

#[test]
fn commit_in_the_places_of_the_idea_needs_no_similar_title() {
    let base = |best: &mut Candidate| {
        (best.strength, best.named, best.about, best.content) = (0.6, 0.5, 1.0, 0.4);
        best.criteria = criteria(6, 2);
        best.overlap = Overlap { weight: 1.0, share: 0.8, places: 3 };
    };
    let judge = |change: &dyn Fn(&mut Candidate)| changed_fit(&base, change);
    assert_eq!(judge(&|_| ()), Some(Fit::Well));
    assert_eq!(judge(&|best| best.strength = 0.54), None, "it is too weak");
    assert_eq!(judge(&|best| best.about = 0.9), None, "its subject is about more");
    assert_eq!(judge(&|best| best.overlap.share = 0.6), None, "it changed only some of the places");
    assert_eq!(judge(&|best| best.overlap.places = 1), None, "one file proves nothing");
    assert_eq!(judge(&|best| best.named = 0.3), None, "it may be a sibling in the same places");
    assert_eq!(judge(&|best| best.criteria = criteria(6, 3)), None, "it lacks half of the items");
}

#[test]
fn commit_that_fits_only_this_idea_needs_less() {
    let path = "ideas/retry-policy.md";
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let judge = |text: &str, next: f64, change: &dyn Fn(&mut Candidate)| {
        let mut grounds = room.about(path, text, None);
        let mut best = grounds.candidates[0].clone();
        (best.strength, best.about) = (ONLY_HERE.strength, ONLY_HERE.about);
        (best.named, best.content) = (ONLY_HERE.named, ONLY_HERE.content);
        best.best_other_note = Some(0.0);
        change(&mut best);
        let next = Candidate { at: 4, strength: best.strength - next, ..best.clone() };
        grounds.candidates = vec![best, next];
        fit(&Features::of(text, path), &grounds, &grounds.candidates[0])
    };
    let one = |change: &dyn Fn(&mut Candidate)| judge(SPEC, 0.13, change);
    assert_eq!(one(&|_| ()), Some(Fit::OnlyHere));
    let near = ONLY_HERE.strength - ONLY_HERE.notes;
    assert_eq!(one(&|best| best.best_other_note = Some(near - 0.01)), Some(Fit::OnlyHere));
    assert_eq!(one(&|best| best.best_other_note = Some(near + 0.01)), None, "it fits another note");
    assert_eq!(one(&|best| best.best_other_note = None), None, "the notes were not compared");
    assert_eq!(one(&|best| best.about -= 0.01), None, "its subject is about more");
    assert_eq!(one(&|best| best.named -= 0.01), None, "its name lacks part of the title");
    assert_eq!(one(&|best| best.content -= 0.01), None, "it contains too little of the idea");
    assert_eq!(one(&|best| best.strength -= 0.01), None, "it has too little in common");
    assert_eq!(one(&|best| best.criteria = criteria(4, 3)), None, "most items are missing");
    assert_eq!(judge(SPEC, 0.11, &|_| ()), None, "another commit fits nearly as well");
    let draft = SPEC.replacen("\n\n", "\n\nStatus: draft\n\n", 1);
    assert_eq!(judge(&draft, 0.13, &|_| ()), None, "the idea calls itself a draft");
}

#[test]
fn notes_are_compared_only_if_the_verdict_may_change() {
    let path = "ideas/retry-policy.md";
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let compared = |text: &str, change: &dyn Fn(&mut Candidate)| {
        let mut grounds = room.about(path, text, None);
        let mut best = grounds.candidates[0].clone();
        (best.strength, best.about) = (ONLY_HERE.strength, ONLY_HERE.about);
        (best.named, best.content) = (ONLY_HERE.named, ONLY_HERE.content);
        change(&mut best);
        let next = Candidate { at: 4, strength: 0.2, ..best.clone() };
        grounds.candidates = vec![best, next];
        to_compare(&Features::of(text, path), &grounds)
    };
    assert!(compared(SPEC, &|_| ()));
    assert!(!compared(SPEC, &|best| best.strength = 0.9), "it is done in either case");
    assert!(!compared(SPEC, &|best| best.about = 0.1), "it is not done in either case");
    let phases = format!("{SPEC}\n## Phase 1\n\n## Phase 2\n\n## Phase 3\n");
    assert!(!compared(&phases, &|_| ()), "a single commit rarely completes it");
}

#[test]
fn rivalled_commit_needs_a_better_fit() {
    let path = "ideas/retry-policy.md";
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let judge = |best: f64, next: f64| {
        let mut grounds = room.about(path, SPEC, None);
        let first = Candidate { strength: best, about: 0.6, ..grounds.candidates[0].clone() };
        let second = Candidate { at: 4, strength: next, ..first.clone() };
        grounds.candidates = vec![first, second];
        implemented(&Features::of(SPEC, path), &grounds).map(|(_, fit)| fit)
    };
    assert_eq!(judge(0.76, 0.6), Some(Fit::Well));
    assert_eq!(judge(0.76, 0.7), Some(Fit::Perhaps), "the other commit may have done the work");
    assert_eq!(judge(0.81, 0.8), Some(Fit::Well), "both fit very well");
}

#[test]
fn same_subject_needs_little_content() {
    let path = "ideas/retry-policy.md";
    let room = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let judge = |text: &str, change: &dyn Fn(&mut Candidate)| {
        let mut grounds = room.about(path, text, None);
        let best = &mut grounds.candidates[0];
        (best.strength, best.named, best.about, best.content) = (0.7, 0.9, 1.0, 0.1);
        change(best);
        let next = Candidate { at: 4, strength: 0.5, ..grounds.candidates[0].clone() };
        grounds.candidates.truncate(1);
        grounds.candidates.push(next);
        implemented(&Features::of(text, path), &grounds).map(|(_, fit)| fit)
    };
    assert_eq!(judge(SPEC, &|_| ()), Some(Fit::Well));
    assert_eq!(
        judge(SPEC, &|best| best.named = 0.7),
        Some(Fit::Perhaps),
        "it lacks part of the title"
    );
    assert_eq!(
        judge(SPEC, &|best| best.about = 0.9),
        Some(Fit::Perhaps),
        "it may concern another surface"
    );
    assert_eq!(
        judge(SPEC, &|best| best.strength = 0.64),
        Some(Fit::Perhaps),
        "the next commit fits nearly as well"
    );
    let short = |best: &mut Candidate| best.matched.truncate(2);
    assert_eq!(judge(SPEC, &short), Some(Fit::Perhaps), "two matching words are too few");
    let draft = SPEC.replacen("\n\n", "\n\nStatus: draft\n\n", 1);
    assert_eq!(judge(&draft, &|_| ()), Some(Fit::Perhaps), "the idea calls itself a draft");
}

#[test]
fn parts_templates_and_posts_are_not_archived() {
    let done = room(&[("feat: retry policy with jitter", &["src/retry.rs"])]);
    let part = SPEC.replacen("\n\n", "\n\n**Spec:** specs/retry.md\n\n", 1);
    let form = SPEC.replacen("jitter", "{jitter}", 1);
    let post = SPEC.replacen("# ", "# Blog: ", 1);
    for (text, status) in [
        (part, IdeaStatus::Sidenote),
        (form, IdeaStatus::Sidenote),
        (post, IdeaStatus::BlogCandidate),
    ] {
        let found = judged(&done, "ideas/retry-policy.md", &text);
        assert_eq!(found.status, status, "{text} {found:?}");
        assert_ne!(found.action, Action::Archive);
    }
}

#[test]
fn notes_stories_and_duplicates_are_recognized() {
    let room = room(&[]);
    let note = judged(&room, "ideas/n.md", "Coffee is better in the morning.\n");
    assert_eq!((note.status, note.confidence), (IdeaStatus::Sidenote, Confidence::Low));
    assert!(!note.evidence.is_empty());
    let story = format!(
        "# The night it broke\n\n{}",
        "I was asleep when we lost the database and my phone rang for an hour. ".repeat(20)
    );
    assert_eq!(judged(&room, "ideas/s.md", &story).action, Action::MarkBlog);
    let marked = story + "<!-- ctx-dream: blog-candidate -->\n";
    assert_eq!(judged(&room, "ideas/s.md", &marked).action, Action::Keep);
    let mut twin = Neighbour {
        path: "ideas/b.md".into(),
        score: 0.9,
        similarity: 0.9,
        containment: 1.0,
        same: true,
    };
    let features = Features::of(SPEC, "a");
    let grounds = room.about("ideas/a.md", SPEC, None);
    let found = judge(&room, &features, &grounds, Some(&twin));
    assert_eq!((found.status, found.into.as_deref()), (IdeaStatus::Duplicate, Some("ideas/b.md")));
    assert!(found.evidence.contains("ideas/b.md: similarity 0.90"), "{found:?}");
    twin.same = false;
    let found = judge(&room, &features, &grounds, Some(&twin));
    assert_eq!((found.status, found.action), (IdeaStatus::Duplicate, Action::Keep));
    assert!(found.into.is_none() && found.evidence.contains("ideas/b.md"), "{found:?}");
}

/// Returns a commit of a small project, made `seconds` after a fixed time.
fn at(seconds: i64, subject: &str, paths: &[&str]) -> Commit {
    Commit {
        hash: format!("{seconds:040x}"),
        at: 1_700_000_000 + seconds,
        subject: subject.to_owned(),
        body: String::new(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        touched: paths.len(),
        ..Commit::default()
    }
}

const FILLER: [(&str, &str); 6] = [
    ("chore: newer tools", "Cargo.toml"),
    ("docs: tidy the readme", "README.md"),
    ("fix: off by one in parser", "src/parse.rs"),
    ("feat: coloured output", "src/term.rs"),
    ("refactor: split the main module", "src/main.rs"),
    ("test: cover the lexer", "src/lexer.rs"),
];

fn with_filler(mut commits: Vec<Commit>) -> ProjectEvidence {
    let filler = FILLER.iter().enumerate();
    commits.extend(filler.map(|(n, (subject, path))| at(-1 - n as i64, subject, &[path])));
    ProjectEvidence::of(commits, Vec::new())
}

const PLACED: &str = "# Retry policy with jitter\n\n## Problem\n\nCalls in `src/net/retry.rs` fail at night, and \
                      `src/net/wait.rs` waits too long; somebody has to start them again.\n\n## Proposal\n\n- Add \
                      jitter to each wait\n- Cap the wait at an hour\n- Write every retry to the report\n";

#[test]
fn commits_with_other_words_are_found_by_their_places() {
    let subject = "feat(net): wait a random while before the next call";
    let path = "ideas/retry-policy.md";
    let there = with_filler(vec![at(9, subject, &["src/net/retry.rs", "src/net/wait.rs"])]);
    let elsewhere = with_filler(vec![at(9, subject, &["src/other/a.rs", "src/other/b.rs"])]);
    let found = |room: &ProjectEvidence| room.about(path, PLACED, None).candidates.remove(0);
    assert!(found(&there).strength > found(&elsewhere).strength);
    assert!(found(&there).overlap.share > 0.9);
    assert_eq!(judged(&elsewhere, path, PLACED).status, IdeaStatus::Meritorious);
}

#[test]
fn earlier_commit_must_cite_the_idea() {
    let path = "ideas/retry-policy.md";
    let (subject, paths) =
        ("feat: retry policy with jitter", ["src/net/retry.rs", "src/net/wait.rs"]);
    // All commits but the newest are dated 2023-11-14. The newest is years later, because dates in
    // an idea after the newest commit are ignored.
    let later = at(100_000_000, "chore: release", &["CHANGELOG.md"]);
    let room = with_filler(vec![later, at(9, subject, &paths)]);
    let dated = |date: &str| format!("---\ndate: {date}\n---\n{PLACED}");
    for (text, status) in [
        (dated("2023-11-10"), IdeaStatus::Implemented),
        (dated("2023-11-14"), IdeaStatus::Implemented),
        (dated("2023-12-24"), IdeaStatus::Meritorious),
        (format!("{PLACED}\nDue by 2023-12-24.\n"), IdeaStatus::Implemented),
        (PLACED.to_owned(), IdeaStatus::Implemented),
    ] {
        assert_eq!(judged(&room, path, &text).status, status, "{text}");
    }
    let mut named = at(9, subject, &paths);
    named.body = format!("Closes: {path}");
    let room = with_filler(vec![at(100_000_000, "chore: release", &["CHANGELOG.md"]), named]);
    let found = judged(&room, path, &dated("2023-12-24"));
    assert_eq!(found.status, IdeaStatus::Implemented, "the commit cites the idea");
}

#[test]
fn partly_ticked_list_prevents_archiving() {
    let room = with_filler(vec![at(
        9,
        "feat: retry policy with jitter",
        &["src/net/retry.rs", "src/net/wait.rs"],
    )]);
    let with =
        |boxes: &str| judged(&room, "ideas/retry-policy.md", &format!("{PLACED}\n{boxes}")).action;
    assert_eq!(with("- [x] jitter\n- [x] cap\n- [x] report\n"), Action::Archive);
    assert_ne!(with("- [x] jitter\n- [x] cap\n- [ ] report\n"), Action::Archive);
    assert_eq!(with("- [ ] jitter\n- [ ] cap\n"), Action::Archive, "no box is ticked");
}

#[test]
fn confidence_falls_with_uncertainty() {
    let path = "ideas/retry-policy.md";
    let subject = "feat: retry policy with jitter";
    let room = with_filler(vec![at(9, subject, &["src/net/retry.rs", "src/net/wait.rs"])]);
    let verdict = |text: &str| {
        let found = judged(&room, path, text);
        (found.status, found.action, found.confidence)
    };
    let sure = (IdeaStatus::Implemented, Action::Archive, Confidence::High);
    let perhaps = (IdeaStatus::Implemented, Action::Keep, Confidence::Med);
    assert_eq!(verdict(PLACED), sure);
    assert_eq!(verdict(&format!("{PLACED}\n## Phase 1\n\n## Phase 2\n\n## Phase 3\n")), perhaps);
    let found = judged(&room, path, &format!("{PLACED}\n- [x] one\n- [ ] two\n"));
    assert_eq!((found.status, found.action), (IdeaStatus::Implemented, Action::Keep), "{found:?}");
    assert!(!found.commits.is_empty() && found.evidence.contains(subject));
}

#[test]
fn unmet_items_lower_the_confidence_and_are_named() {
    let text = "# Retry policy with jitter\n\nThe client should retry.\n\n- add a retry policy with jitter\n\
                - paint the zebra crossing white\n- feed the hungry octopus daily\n- polish the marble staircase\n";
    let code = "retry policy jitter client wait backoff attempt limit random sleep until instant clock seed";
    let mut commit = at(9, "feat: retry policy with jitter", &["src/net/retry.rs"]);
    let terms = runner_text::terms::terms(code);
    let terms = terms.iter().map(|term| crate::evidence::index::term_id(term)).collect();
    commit.added = Some(crate::evidence::commit::AddedText { terms, whole: true, prose: false });
    let found = judged(&with_filler(vec![commit]), "ideas/retry-policy.md", text);
    assert_eq!(found.action, Action::Keep, "{found:?}");
    assert_eq!(found.unmet.len(), 3, "{found:?}");
    assert!(found.unmet[0].contains("zebra") && !found.bare.contains("zebra"));
}

#[test]
fn short_notes_are_judged_by_what_they_ask_for() {
    let room = room(&[]);
    for wish in [
        "Dark mode for the report page, please.",
        "# Shell completions\n\nWe should offer completions for fish.\n",
        "Pause a job until tomorrow from the status page",
        "- [ ] retry uploads\n",
        "there's no way to see why a run was skipped",
        "The report needs a link to the log of each run.",
    ] {
        let found = judged(&room, "ideas/n.md", wish);
        assert_eq!(found.status, IdeaStatus::Meritorious, "{wish}: {found:?}");
        assert_eq!(found.action, Action::Promote);
    }
    for note in ["Coffee is better in the morning.", "https://example.org/a-link", "Ann's birthday"]
    {
        let found = judged(&room, "ideas/n.md", note);
        assert_eq!((found.status, found.confidence), (IdeaStatus::Sidenote, Confidence::Low));
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::references;

    const WORDS: [&str; 14] = [
        "retry", "jitter", "policy", "cache", "index", "night", "report", "budget", "lock",
        "queue", "parser", "colour", "spec", "plan",
    ];
    const PATHS: [&str; 8] = [
        "src/retry.rs",
        "src/cache.rs",
        "docs/night.md",
        "src/net/lock.rs",
        "src/queue.rs",
        "specs/plan.md",
        "a b/odd name.md",
        "src/made up/x.rs",
    ];
    /// Words that appear in none of the ideas. They have the same length, so each can replace
    /// another.
    const OTHERS: [[&str; 3]; 3] =
        [["zebra", "maple", "tulip"], ["orbit", "comet", "lunar"], ["velum", "cedar", "birch"]];

    fn words(most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(&WORDS[..]), 1..most)
            .prop_map(|all| all.join(" "))
    }

    fn commits() -> impl Strategy<Value = Vec<Commit>> {
        let paths = prop::collection::vec(prop::sample::select(&PATHS[..]), 0..4);
        let one = (words(5), words(4), paths);
        prop::collection::vec(one, 0..9).prop_map(|all| {
            let all = all.into_iter().enumerate();
            all.map(|(n, (subject, body, paths))| Commit {
                body,
                ..at(n as i64 * 50_000, &subject, &paths)
            })
            .collect()
        })
    }

    /// Generates an idea's name and text, with some of the features that the rule checks.
    fn idea() -> impl Strategy<Value = (String, String)> {
        let line = prop_oneof![
            words(12),
            words(4).prop_map(|all| format!("## Problem\n\n{all}")),
            words(4).prop_map(|all| format!("- [ ] {all}")),
            words(4).prop_map(|all| format!("- [x] {all}")),
            prop::sample::select(&PATHS[..]).prop_map(|path| format!("in `{path}:12`")),
            Just("2023-11-15".to_owned()),
            Just("**Status:** draft".to_owned()),
            Just("commit deadbeefcafe did src/made/up.rs".to_owned()),
        ];
        (words(4), prop::collection::vec(line, 0..9)).prop_map(|(title, lines)| {
            let name = format!("ideas/{}.md", title.replace(' ', "-"));
            (name, format!("# {title}\n\n{}\n", lines.join("\n\n")))
        })
    }

    fn room(commits: Vec<Commit>, others: usize) -> ProjectEvidence {
        let mut all = commits;
        for (n, name) in OTHERS.iter().enumerate() {
            let path = format!("other/{}.x", name[others]);
            all.push(at(-1 - n as i64, &format!("{} {}", name[others], name[others]), &[&path]));
        }
        let mut tracked: Vec<String> = PATHS.iter().map(|path| (*path).to_owned()).collect();
        tracked.sort_unstable();
        ProjectEvidence::of(all, tracked)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn archived_ideas_cite_existing_commits((path, text) in idea(), commits in commits()) {
            let room = room(commits, 0);
            let found = judged(&room, &path, &text);
            if found.action == Action::Archive {
                prop_assert!(!found.commits.is_empty() && found.commits.len() <= CITED);
                for hash in &found.commits {
                    prop_assert!(room.commit_named(hash).is_some(), "{hash}");
                    prop_assert!(found.bare.contains(hash.as_str()) && found.evidence.contains(hash.as_str()));
                }
                for evidence in [&found.bare, &found.evidence] {
                    prop_assert!(references::check(&room, evidence, |_| false).resolves(), "{evidence}");
                }
            } else {
                let perhaps = found.status == IdeaStatus::Implemented;
                prop_assert!(found.commits.is_empty() || perhaps && found.action == Action::Keep);
            }
        }

        #[test]
        fn partly_ticked_idea_is_never_archived((path, text) in idea(), commits in commits()) {
            let text = format!("{text}\n- [x] one\n- [ ] two\n");
            prop_assert_ne!(judged(&room(commits, 0), &path, &text).action, Action::Archive);
        }

        #[test]
        fn equal_evidence_gives_equal_verdicts((path, text) in idea(), commits in commits()) {
            let (one, other) = (room(commits.clone(), 0), room(commits, 0));
            prop_assert_eq!(judged(&one, &path, &text), judged(&other, &path, &text));
        }

        #[test]
        fn unrelated_commit_names_change_no_verdict((path, text) in idea(), commits in commits()) {
            let (one, other) = (room(commits.clone(), 1), room(commits, 2));
            prop_assert_eq!(judged(&one, &path, &text), judged(&other, &path, &text));
        }

        #[test]
        fn strengths_and_shares_lie_in_unit_interval((path, text) in idea(), commits in commits()) {
            for one in room(commits, 0).about(&path, &text, None).candidates {
                prop_assert!((0.0..=1.0).contains(&one.strength), "{one:?}");
                prop_assert!((0.0..=1.0 + 1e-9).contains(&one.overlap.share), "{one:?}");
            }
        }
    }
}
