//! Compares realistic notes with edited copies and with other notes on the same subject.

use super::*;
use crate::markdown::word_count;
use proptest::prelude::*;

const RETRY: &str = "\
# Honour Retry-After in the upload client

The upload client retries at once when the server answers 429, and three of those in a row make
the account wait an hour. We should read the Retry-After header, wait as long as it says, and give
up when that is past the deadline of the run.

The header comes in two forms, seconds and a date. Both have to be read. When neither is there,
fall back to a doubling delay with jitter, from two seconds up to a minute.

- log what was waited for, and why
- count the waits in the report
";

const RETRY_REWORDED: &str = "\
# Honor Retry-After in our upload client

The upload client retries immediately when the server answers 429, and three of those in a row
make the account wait one hour. We should read the Retry-After header, wait as long as it says,
and give up if that is past the deadline of the run.

The header comes in two forms, seconds and a date. Both must be read. When neither is there, fall
back to an exponential delay with jitter, from two seconds up to one minute.
";

const RETRY_OTHER: [&str; 3] = [
    "\
# Retry budget across jobs

Every job retries on its own today, so ten jobs against one server that answers 429 make ten times
the traffic. A shared budget for retries would help: a token bucket a host, filled once a second,
and a job that finds it empty waits or gives up. The client should report how often it was empty.
",
    "\
# Circuit breaker for the upload server

When the server has answered with errors for a minute, stop asking. After a pause let a single
request through; if it succeeds, close the circuit. Unlike a retry with delay this protects the
server and not only the client. Needs a place to keep the state between runs, and a line in the
report when the circuit is open.
",
    "\
# Test the retry code with a fake server

The code that reads the Retry-After header and waits has no test, because it needs a server that
answers 429. Write a small fake that answers from a script, with seconds, with a date, with
nonsense, and check what the client waits for with a clock of our own. No sleeping in tests.
",
];

fn edited() -> String {
    RETRY.replace(
        "The header comes in two forms, seconds and a date. Both have to be read.",
        "There are two shapes of it (a number, or an HTTP date), so the parser must know both.",
    )
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{i:05}")).collect()
}

fn docs<'a>(texts: &[&'a str], keys: &'a [String]) -> Vec<Doc<'a>> {
    let pairs = keys.iter().zip(texts);
    pairs.map(|(key, text)| Doc { key, text }).collect()
}

fn names<'a>(pairs: &[Pair<'a>]) -> Vec<(&'a str, &'a str)> {
    pairs.iter().map(|pair| (pair.a, pair.b)).collect()
}

fn only(a: &str, b: &str) -> Option<(f64, f64)> {
    let both = [Doc { key: "b", text: b }, Doc { key: "a", text: a }];
    let found = neighbours(&both, NEAR);
    assert!(found.len() <= 1);
    let pair = found.first()?;
    assert_eq!((pair.a, pair.b), ("a", "b"));
    Some((pair.similarity, pair.containment))
}

#[test]
fn edited_and_reworded_copies_are_found() {
    let (similarity, containment) = only(RETRY, &edited()).unwrap();
    assert!(similarity > 0.6 && containment > similarity, "{similarity}");
    let (similarity, _) = only(RETRY, RETRY_REWORDED).unwrap();
    assert!(similarity > NEAR, "{similarity}");
    assert_eq!(only(RETRY, &RETRY.replace('\n', "\r\n")), Some((1.0, 1.0)));
}

#[test]
fn front_matter_does_not_hide_duplicates() {
    let renamed = RETRY.replace("# Honour", "# Idea: honour");
    let other = format!("---\ntitle: x\nstatus: draft\n---\n{renamed}");
    assert!(only(RETRY, &other).unwrap().0 > 0.9);
}

#[test]
fn embedded_note_has_high_containment() {
    let longer = format!("{RETRY}\n{}\n", RETRY_OTHER[0]);
    let (similarity, containment) = only(RETRY, &longer).unwrap();
    assert!(containment > 0.95 && similarity < 0.75, "{similarity}");
}

#[test]
fn different_notes_on_one_subject_differ() {
    let keys = keys(4);
    let texts = [RETRY, RETRY_OTHER[0], RETRY_OTHER[1], RETRY_OTHER[2]];
    assert_eq!(neighbours(&docs(&texts, &keys), NEAR), []);
    for (i, a) in texts.iter().enumerate() {
        for b in &texts[i + 1..] {
            let similarity = jaccard(&Sets::of(a), &Sets::of(b));
            assert!(similarity < NEAR / 4.0, "{similarity}");
        }
    }
}

#[test]
fn similar_short_notes_are_found() {
    for (a, b) in [
        ("Colour the night report by outcome", "colour night reports by outcome"),
        ("Add a flag to skip the council", "Add flag for skipping the council."),
        (
            "Let the dream pass skip ideas that were changed in the last five minutes, please",
            "Let the dream pass skip all ideas that were changed during the last five minutes",
        ),
    ] {
        assert!(only(a, b).is_some(), "{a}");
    }
    for (a, b) in [
        ("Add a retry to the login form", "Add a spinner to the login form"),
        ("Colour the night report by outcome", "Sort the night report by outcome and age"),
        ("retry", "report"),
        ("", ""),
        ("```\ncode\n```", "```\ncode\n```"),
    ] {
        assert_eq!(only(a, b), None, "{a}");
    }
}

#[test]
fn short_and_long_notes_are_compared() {
    let short = "Make the report of the night list each failed job with the class of its failure \
                 and next step";
    let long = format!("{short} to take");
    assert!(word_count(short) < SHORT && word_count(&long) >= SHORT);
    assert!(only(short, &long).is_some());
}

#[test]
fn copies_are_paired_with_the_first() {
    let (keys, edited) = (keys(4), edited());
    let found = docs(&[RETRY, RETRY, &edited, RETRY], &keys);
    let expected = [("00000", "00001"), ("00000", "00003"), ("00000", "00002")];
    assert_eq!(names(&neighbours(&found, NEAR)), expected);
}

/// Generates the words of note `i` from a fixed vocabulary.
fn filler(i: usize) -> String {
    let vocabulary: Vec<&str> = RETRY.split_whitespace().collect();
    let word = |at: usize| {
        let pick = sets::mix((i * 1000 + at) as u64) as usize % vocabulary.len();
        vocabulary[pick]
    };
    (0..40).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn duplicates_are_found_among_thousands() {
    let keys = keys(3000);
    let mut texts: Vec<String> = (0..3000).map(filler).collect();
    texts[17] = RETRY.into();
    texts[2999] = edited();
    texts[1234] = texts[77].replacen(' ', " also ", 1);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = neighbours(&docs(&texts, &keys), NEAR);
    assert_eq!(names(&found), [("00077", "01234"), ("00017", "02999")]);
}

/// Returns a copy of the note with one of four kinds of damage.
fn damaged(kind: usize, at: usize) -> String {
    let base: Vec<&str> = RETRY.split_whitespace().collect();
    let at = at.min(base.len());
    let words = match kind {
        0 => base[at..].to_vec(),
        1 => base[..at].to_vec(),
        2 => [&base[at..], &base[..at]].concat(),
        _ => {
            let other = |(i, word)| if i % 9 == at % 9 { "other" } else { word };
            base.iter().copied().enumerate().map(other).collect()
        }
    };
    words.join(" ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn order_and_case_do_not_matter(
        order in Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle(), upper: bool,
    ) {
        let (keys, edited, shouted) = (keys(6), edited(), RETRY.to_uppercase());
        let first = if upper { shouted.as_str() } else { RETRY };
        let texts = [first, &edited, RETRY_OTHER[0], RETRY_REWORDED, "short note", "Short notes"];
        let straight = docs(&texts, &keys);
        let mixed: Vec<Doc> = order.iter().map(|i| straight[*i]).collect();
        let found = neighbours(&mixed, NEAR);
        prop_assert_eq!(found.len(), 3);
        prop_assert_eq!(found, neighbours(&straight, NEAR));
    }

    #[test]
    fn results_approximate_an_exhaustive_comparison(
        edits in prop::collection::btree_set((0..4_usize, 0..70_usize), 2..10),
    ) {
        let texts: Vec<String> = edits.iter().map(|(kind, at)| damaged(*kind, *at)).collect();
        let keys = keys(texts.len());
        let views: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = names(&neighbours(&docs(&views, &keys), NEAR));
        let mut sets: Vec<(usize, Sets)> = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let of = Sets::of(text);
            if !of.is_short() && sets.iter().all(|(_, other)| *other != of) {
                sets.push((at, of));
            }
        }
        for (i, (a, a_sets)) in sets.iter().enumerate() {
            for (b, b_sets) in &sets[i + 1..] {
                let near = jaccard(a_sets, b_sets);
                let has = found.contains(&(keys[*a].as_str(), keys[*b].as_str()));
                // A pair just above the threshold may be missed, but not a pair well above it.
                prop_assert!(near < NEAR + 0.15 || has, "{} missed", near);
                prop_assert!(near >= NEAR || !has, "{} found", near);
            }
        }
    }
}
