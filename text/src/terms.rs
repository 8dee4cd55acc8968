//! Extracts terms for a search index: words in lower case, with compound names split and endings
//! removed.
//!
//! Terms are keys for comparison rather than words for display: "caching" and "caches" both become
//! `cach`. The rules are designed for English and for names in code. Words with characters other
//! than ASCII letters keep their endings.

mod stem;
mod stop;

use std::collections::HashMap;

use crate::markdown::{Line, lines};
use crate::{front_matter, markdown};

/// Maximum length of a word in characters. Longer words are omitted.
const LONGEST: usize = 40;

/// Weights of a word in the title, in a heading and in the text.
const WEIGHTS: (u32, u32, u32) = (5, 3, 1);

/// A term of a document, with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopTerm {
    /// The term, as returned by [`terms`].
    pub term: String,
    /// The first form of the term in the document, in lower case, for display.
    pub word: String,
    /// The number of occurrences. An occurrence in the title counts five times, and one in a
    /// heading three times.
    pub weight: u32,
}

/// Returns the terms of `text` in order, including repetitions. Names are split: `maxWait`,
/// `max_wait`, `max-wait` and `max/wait.rs` all contain `max` and `wait`. Stop words, single
/// letters and single digits are omitted.
pub fn terms(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    each_term(text, |term| all.push(term.to_owned()));
    all
}

/// Passes each of the [`terms`] of `text` to `take`, in order, without allocating for each term.
pub fn each_term(text: &str, mut take: impl FnMut(&str)) {
    each_word(text, |word| {
        stem::stem(word);
        take(word);
    });
}

/// Returns the `n` most significant terms of a Markdown note, ordered by descending weight and then
/// alphabetically. Fenced code, comments and front matter other than the title are ignored.
pub fn top_terms(text: &str, n: usize) -> Vec<TopTerm> {
    let mut found: HashMap<String, TopTerm> = HashMap::new();
    let mut count = |text: &str, weight: u32| {
        each_word(text, |word| {
            let shown = word.clone();
            stem::stem(word);
            let entry = found.entry(word.clone()).or_insert_with_key(|term| TopTerm {
                term: term.clone(),
                word: shown,
                weight: 0,
            });
            entry.weight = entry.weight.saturating_add(weight);
        });
    };
    let (in_title, in_heading, in_text) = WEIGHTS;
    let doc = front_matter::split(text);
    let title = markdown::title(text, "");
    count(&title, in_title);
    let mut title_heading = doc.get("title").is_none();
    for line in lines(doc.body()) {
        match line {
            // The heading that serves as the title has already been counted.
            Line::Heading(1, _) if title_heading => title_heading = false,
            Line::Heading(_, heading) => count(&markdown::plain(heading), in_heading),
            Line::Text(line) | Line::Item(line) | Line::Quote(line) | Line::Row(line) => {
                count(&markdown::plain(line), in_text);
            }
            Line::Blank | Line::Rule | Line::Code | Line::Comment => {}
        }
    }
    let mut all: Vec<TopTerm> = found.into_values().collect();
    all.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.term.cmp(&b.term)));
    all.truncate(n);
    all
}

/// Splits `text` into lower-case words. Names are split, and stop words are omitted. `take` may
/// change the word that it receives.
fn each_word(text: &str, mut take: impl FnMut(&mut String)) {
    let mut word = String::new();
    let mut consider = |piece: &str| {
        word.clear();
        match piece.is_ascii() {
            true => word.extend(piece.chars().map(|c| c.to_ascii_lowercase())),
            false => word.push_str(&piece.to_lowercase()),
        }
        let fits = word.chars().nth(1).is_some() && word.chars().count() <= LONGEST;
        if fits && !stop::is_stop(&word) {
            take(&mut word);
        }
    };
    for run in text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '’')) {
        // Most runs are plain words, which have no parts.
        match run.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            true => consider(run),
            false => pieces(run).into_iter().for_each(&mut consider),
        }
    }
}

/// Splits a run of letters, digits and apostrophes. One or two letters after an apostrophe, as in
/// "don't" or "client's", are omitted. Longer parts are kept, because an apostrophe may also be a
/// quotation mark.
fn pieces(run: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for (at, part) in run.split(['\'', '’']).enumerate() {
        if at == 0 || part.chars().nth(2).is_some() {
            all.extend(humps(part));
        }
    }
    all
}

/// Splits a camel-case name.
fn humps(run: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = run.char_indices().collect();
    let mut parts = Vec::new();
    let mut start = 0;
    for i in 1..chars.len() {
        let (at, c) = chars[i];
        let before = chars[i - 1].1;
        let after = chars.get(i + 1).map(|(_, c)| *c);
        let hump = before.is_lowercase() && c.is_uppercase();
        // "HTTPServer" is split into "HTTP" and "Server". "OAuth" and a plural such as "URLs" are
        // not split.
        let acronym_ends = at - start > 1
            && before.is_uppercase()
            && c.is_uppercase()
            && after.is_some_and(char::is_lowercase)
            && !(after == Some('s') && i + 2 == chars.len());
        let digit_hump = before.is_ascii_digit() && c.is_uppercase();
        if hump || acronym_ends || (digit_hump && after.is_some_and(char::is_lowercase)) {
            parts.push(&run[start..at]);
            start = at;
        }
    }
    if start < run.len() {
        parts.push(&run[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stemmed(word: &str) -> String {
        let mut word = word.to_owned();
        stem::stem(&mut word);
        word
    }

    #[test]
    fn compound_names_are_split() {
        for name in
            ["maxWaitTime", "max_wait_time", "max-wait-time", "max/wait.time", "MaxWaitTime"]
        {
            assert_eq!(terms(name), ["max", "wait", "time"].map(stemmed), "{name}");
        }
        assert_eq!(terms("HTTPServer parseJSON URLs"), ["http", "server", "pars", "json", "url"]);
        assert_eq!(
            terms("sha256 utf8 v2 OAuth2Token"),
            ["sha256", "utf8", "v2", "oauth2", "token"]
        );
        assert_eq!(terms("engine/src/time.rs"), ["engin", "src", "time", "rs"].map(stemmed));
    }

    #[test]
    fn stop_words_are_omitted() {
        assert_eq!(
            terms("The client's retry and it isn't a 5 or x"),
            ["client", "retry"].map(stemmed)
        );
        assert_eq!(terms("'quoted' don’t l'avion 429"), ["quot", "avion", "429"]);
        assert_eq!(terms(&"a".repeat(41)), [""; 0]);
        assert_eq!(terms("Über naïve 日本"), ["über", "naïve", "日本"]);
    }

    #[test]
    fn inflected_forms_share_a_stem() {
        for forms in [
            vec!["retry", "retries", "retried", "retrying"],
            vec!["cache", "caches", "cached", "caching"],
            vec!["schedule", "schedules", "scheduled", "scheduling"],
            vec!["run", "runs", "running"],
            vec!["class", "classes"],
            vec!["process", "processes", "processed", "processing"],
            vec!["index", "indexes", "indexed", "indexing"],
            vec!["setting", "settings"],
        ] {
            let stems: Vec<String> = forms.iter().map(|form| stemmed(form)).collect();
            assert!(stems.iter().all(|s| *s == stems[0]), "{stems:?}");
        }
    }

    #[test]
    fn titles_and_headings_weigh_more() {
        let note = "# Nightly scheduler\n\nThe backoff grows. Backoff again, scheduler.\n\n\
                    ## Jitter\n\n- jitter, `backoff`\n\n```\ncode code code code code code\n```\n";
        let top = top_terms(note, 3);
        let seen: Vec<(&str, u32)> = top.iter().map(|t| (t.word.as_str(), t.weight)).collect();
        assert_eq!(seen, [("scheduler", 6), ("nightly", 5), ("jitter", 4)]);
        let declared = top_terms("---\ntitle: Alpha\n---\n# Beta\n", 9);
        assert_eq!(declared.iter().map(|t| t.weight).collect::<Vec<_>>(), [5, 3]);
        assert_eq!(top_terms("", 3), []);
    }

    #[test]
    fn hostile_words_take_linear_time() {
        for piece in ["a'", "aB", "'", "a_", "A"] {
            assert!(terms(&piece.repeat(100_000)).len() <= 100_000);
        }
    }

    proptest! {
        #[test]
        fn terms_are_lower_case_and_never_empty(text in "\\PC{0,60}") {
            for term in terms(&text) {
                prop_assert!(!term.is_empty());
                prop_assert_eq!(term.to_lowercase(), term.clone());
            }
            prop_assert!(top_terms(&text, 5).len() <= 5);
        }
    }
}
