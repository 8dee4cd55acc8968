//! Decides whether a tale repeats the previous one, or a daydream its instructions.
//!
//! A repeated tale often has new dates, hashes and numbers, one more sentence, or a few missing
//! words. Dates, hashes and numbers are therefore masked, and the sets of adjacent word pairs are
//! compared. Pairs tolerate a missing word better than longer shingles do. This module must never
//! base its decision on a list of known phrases.

use std::collections::BTreeSet;

use runner_text::MONTHS;

/// Minimum similarity at which a text is considered a repetition.
pub const REPEATED: f64 = 0.5;

/// Minimum number of consecutive shared words that are considered copied and not a coincidence.
const RUN: usize = 8;

/// The placeholder for a date, a hash or a number.
const MASK: &str = "#";

/// English words for days of the week and small numbers, which are masked like the months.
const MASKED: [&str; 19] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
];

/// Returns the similarity of two tales, from 0 to 1: the number of pairs of adjacent masked words
/// that both tales contain, divided by the number that at least one of them contains. The
/// similarity of two empty tales is 0.
pub fn likeness(tale: &str, previous: &str) -> f64 {
    let (tale, previous) = (masked(tale), masked(previous));
    let (a, b) = (pairs(&tale), pairs(&previous));
    let shared = a.intersection(&b).count();
    let all = a.len() + b.len() - shared;
    if all == 0 { 0.0 } else { shared as f64 / all as f64 }
}

/// Returns whether `text` repeats `source`: at least half of its pairs of adjacent masked words
/// occur in the source, or [`RUN`] consecutive masked words do.
pub fn repeats(text: &str, source: &str) -> bool {
    let (text, source) = (masked(text), masked(source));
    let (own, other) = (pairs(&text), pairs(&source));
    let runs: BTreeSet<&[String]> = source.windows(RUN).collect();
    let shared = own.intersection(&other).count() as f64;
    (!own.is_empty() && shared >= REPEATED * own.len() as f64)
        || text.windows(RUN).any(|run| runs.contains(run))
}

fn pairs(words: &[String]) -> BTreeSet<(&str, &str)> {
    words.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect()
}

/// Returns the lowercase words of a string. One placeholder replaces consecutive masked words, as
/// in `2026-06-10`.
fn masked(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        let is_hash = word.len() >= 7 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let masks = is_hash
            || word.contains(|c: char| c.is_numeric())
            || MASKED.contains(&word.as_str())
            || MONTHS.contains(&word.as_str());
        match (masks, out.last()) {
            (true, Some(last)) if last == MASK => {}
            (true, _) => out.push(MASK.to_owned()),
            (false, _) => out.push(word),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use runner_text::near::mix;

    use super::*;

    /// Sentence templates for a tale. `{f}` is a file, `{t}` a topic, `{h}` a hash, `{n}` a number.
    const FORMS: [&str; 18] = [
        "On 2026-06-{n} the audit in {h} found the claim about {t} unverified and cut it.",
        "Commit {h} added {t} to {f}.",
        "Two add runs shipped {t} ({f}, commit {h}).",
        "The gate failed once on {t} with {n} findings and was clean after the change.",
        "The plan run split {t} into {n} tasks.",
        "The tests in {f} ended with exit 1, because {t} was missing.",
        "A second attempt at {t} was put down after {n} minutes.",
        "{f} was read {n} times and not changed.",
        "Commit {h} removed {t} from {f} and tightened the words around it.",
        "No broken link was found in {f}.",
        "The agent looked for {t} and found only {f}.",
        "The build took {n} seconds and printed a warning about {t}.",
        "An edit of {f} was refused, so {t} stays as it is.",
        "Then {h} corrected the spelling of {t}.",
        "The board was groomed: {t} moved to the top.",
        "The index in {f} lists {t} now, with {n} entries.",
        "Nothing was decided about {t}.",
        "The check of {f} came back clean.",
    ];
    const THINGS: [&str; 20] = [
        "the comparison table",
        "the pricing section",
        "offline mode",
        "the map of the harbour",
        "a second column",
        "the retry of uploads",
        "the reader's index",
        "the tide almanac",
        "the favicon",
        "a quieter header",
        "the contrast bar",
        "the list of sponsors",
        "the import of old letters",
        "the search box",
        "the error for an empty file",
        "the night's report",
        "the door sensor",
        "the seed catalogue",
        "a glossary",
        "the parser",
    ];
    const FILES: [&str; 14] = [
        "src/weave.rs",
        "blog/index.html",
        "docs/tides.md",
        "plan.org",
        "src/parse/lines.rs",
        "content/faq.md",
        "tests/upload.rs",
        "assets/site.css",
        "notes/harbour.txt",
        "README.md",
        "src/main.rs",
        "scripts/build.sh",
        "data/seeds.csv",
        "src/report/page.rs",
    ];

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, below: usize) -> usize {
            self.0 = mix(self.0.wrapping_add(1));
            usize::try_from(self.0 % below as u64).unwrap()
        }

        /// Returns a tale of five to seven random sentences about one project.
        fn tale(&mut self) -> String {
            let sentences: Vec<String> = (0..5 + self.roll(3))
                .map(|_| {
                    let form = FORMS[self.roll(FORMS.len())];
                    form.replace("{t}", THINGS[self.roll(THINGS.len())])
                        .replace("{f}", FILES[self.roll(FILES.len())])
                        .replace("{h}", &format!("{:07x}", mix(self.0) >> 36))
                        .replace("{n}", &(10 + self.roll(18)).to_string())
                })
                .collect();
            sentences.join(" ")
        }
    }

    /// Removes every eighth word from a string.
    fn without_eighth(text: &str) -> String {
        let words = text.split_whitespace().enumerate();
        let kept: Vec<&str> = words.filter(|(at, _)| at % 8 != 7).map(|(_, word)| word).collect();
        kept.join(" ")
    }

    #[test]
    fn repeated_tales_are_found_and_different_tales_are_not() {
        let mut dice = Dice(26);
        let tales: Vec<String> = (0..36).map(|_| dice.tale()).collect();
        let mut caught = 0;
        for tale in &tales {
            let renewed = tale.replace("2026-06-", "2026-07-").replace("exit 1", "exit 2");
            let longer = format!("{tale} {}", FORMS[3].replace("{t}", "the last page"));
            for repeat in [renewed, longer, without_eighth(tale)] {
                let similarity = likeness(&repeat, tale);
                assert!(similarity >= REPEATED, "{similarity}: {tale}\n{repeat}");
                caught += 1;
            }
        }
        let (mut unlike, mut highest) = (0, 0.0_f64);
        for (at, tale) in tales.iter().enumerate() {
            for other in &tales[..at] {
                let similarity = likeness(tale, other);
                assert!(similarity < REPEATED, "{similarity}: {tale}\n{other}");
                highest = highest.max(similarity);
                unlike += 1;
            }
        }
        assert_eq!((caught, unlike), (108, 630));
        assert!(highest < 0.45, "the most similar distinct tales have a likeness of {highest}");
    }

    #[test]
    fn text_that_copies_instructions_repeats_them() {
        let source = "You are a coding agent awake between two runs. Write a musing of the work.";
        for copied in [
            "write a musing of the work",
            "you are a coding agent awake between two runs. it seems that there is no such thing as you in \
             the sentence, and the person who reads it does not know what a night is or who works in it",
        ] {
            assert!(repeats(copied, source), "{copied}");
        }
        for own in
            ["", "the harbour sleeps; a coding agent awake waits for its last row of the tide"]
        {
            assert!(!repeats(own, source), "{own}");
        }
    }

    #[test]
    fn dates_hashes_and_numbers_are_masked() {
        let tale = "On 2026-06-10 the audit a3f91c2 found 2 claims. Two runs followed.";
        let renewed =
            "On Thursday, 11 June the audit 0b7de44 found 31 claims. Three runs followed.";
        assert_eq!(likeness(renewed, tale), 1.0);
        assert_eq!(likeness("", ""), 0.0);
        assert!(likeness("Nothing of that sort happened.", tale) < 0.1);
    }
}
