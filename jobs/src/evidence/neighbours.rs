//! Ranks the notes that may have the same content as a note.
//!
//! The ranking combines BM25 over the fields of the notes (title, headings, text), the shared word
//! pairs, the shared groups of four letters, and the closeness in time. It finds notes that have
//! the same content in different words. The criteria for *the same* note are stricter: apart from
//! lines that many notes share (a template), the two texts must agree almost word for word, or the
//! larger text must contain almost all of the smaller one. Each note must also contain most of the
//! terms in the other's title, because siblings share a template and differ in their subject. Notes
//! with identical text are always the same.
//!
//! The caller limits the number of notes and reports how many it left out.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use runner_text::markdown;
use runner_text::near::{Sets, containment, jaccard};
use runner_text::terms::terms;

use super::index::term_id;
use super::places;

/// Maximum combined size of the notes to compare at once, in bytes.
pub const MOST: usize = 32 * 1024 * 1024;
/// Maximum number of neighbours of a note.
pub const RANKED: usize = 10;
/// Maximum number of notes that BM25 proposes for a closer comparison.
const LOOKED_AT: usize = 40;
/// Number of neighbours whose text is compared word for word, the most similar first.
const VERIFIED: usize = 3;
/// The weights of a term in the title, in a heading and in the text.
const FIELDS: (f64, f64, f64) = (3.0, 1.5, 1.0);
/// The parameters of BM25: the saturation of repetitions, and the influence of the length.
const BM25: (f64, f64) = (1.2, 0.5);
/// The weights of the figures: the BM25 score as a share of the lower and of the higher of the two
/// notes' own scores, word pairs, groups of letters, closeness in time.
const WEIGHTS: [f64; 5] = [0.3, 0.25, 0.2, 0.2, 0.05];
/// The age difference, in days, at which the closeness in time is one half.
const DAYS: f64 = 14.0;
/// Minimum number of notes with the same line for that line to count as part of a template.
const TEMPLATE: usize = 3;
/// Minimum similarity for two notes to count as the same.
pub const SAME: f64 = 0.75;
/// Minimum share of the smaller note that the larger note must contain for the two to count as the
/// same.
pub const WITHIN: f64 = 0.9;
/// Minimum number of words in the smaller note for a match inside the larger note to count.
const LONG: usize = 12;
/// Minimum share of each title's terms, weighted by rarity, that the other note must contain.
const TITLED: f64 = 0.8;

/// A note that may have the same content as another note.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The path of the similar note.
    pub path: String,
    /// The figure by which neighbours are ranked, from 0 to 1.
    pub score: f64,
    /// The Jaccard similarity of the two texts without template lines, from 0 to 1; 0 if the texts
    /// were not compared word for word.
    pub similarity: f64,
    /// Share of the smaller text that the larger text contains, both without template lines; 0 if
    /// the texts were not compared word for word.
    pub containment: f64,
    /// Whether the two notes are almost certainly the same.
    pub same: bool,
}

impl Neighbour {
    /// Creates a neighbour about which nothing but its path is known.
    pub fn unlike(path: String) -> Self {
        Self { path, score: 0.0, similarity: 0.0, containment: 0.0, same: false }
    }
}

/// A note to compare.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    pub path: &'a str,
    pub text: &'a str,
    /// A time at which the note existed, in seconds since the epoch.
    pub at: i64,
}

/// Returns the neighbours of the first `count` notes, most similar first. A note without neighbours
/// is left out. Each note is compared with all others.
pub fn neighbours(notes: &[Note<'_>], count: usize) -> BTreeMap<String, Vec<Neighbour>> {
    let collection = Collection::of(notes);
    let mut found = BTreeMap::new();
    for (at, note) in notes.iter().enumerate().take(count) {
        let ranked = collection.ranked(at);
        if !ranked.is_empty() {
            found.insert(note.path.to_owned(), ranked);
        }
    }
    found
}

/// A note in the form used for comparison.
struct Compared {
    /// The weight of each term.
    terms: Vec<(u32, f64)>,
    title: Vec<u32>,
    length: f64,
    /// The BM25 score of the note for a query with its own terms.
    own: f64,
}

struct Collection<'a> {
    notes: &'a [Note<'a>],
    compared: Vec<Compared>,
    /// The word pairs and groups of letters of each note that was compared closely.
    grams: Vec<OnceCell<Grams>>,
    /// For each term, the notes that contain it, with the weight of the term.
    postings: HashMap<u32, Vec<(u32, f64)>>,
    mean_length: f64,
    /// The lines that are part of a template.
    template: HashSet<u32>,
}

impl<'a> Collection<'a> {
    fn of(notes: &'a [Note<'a>]) -> Self {
        let mut compared: Vec<Compared> = notes.iter().map(Compared::of).collect();
        let mut postings: HashMap<u32, Vec<(u32, f64)>> = HashMap::new();
        for (at, note) in compared.iter().enumerate() {
            for (term, weight) in &note.terms {
                postings.entry(*term).or_default().push((at as u32, *weight));
            }
        }
        let lengths: f64 = compared.iter().map(|note| note.length).sum();
        let mean_length = (lengths / compared.len().max(1) as f64).max(1.0);
        let mut sharing: HashMap<u32, usize> = HashMap::new();
        for note in notes {
            let lines: HashSet<u32> = note.text.lines().filter_map(line_id).collect();
            lines.into_iter().for_each(|line| *sharing.entry(line).or_default() += 1);
        }
        let template =
            sharing.into_iter().filter(|(_, notes)| *notes >= TEMPLATE).map(|(line, _)| line);
        let template = template.collect();
        let all = compared.len();
        for note in &mut compared {
            let score = |(term, weight): &(u32, f64)| {
                let idf = idf(all, postings[term].len());
                idf * saturated(*weight, note.length / mean_length)
            };
            note.own = note.terms.iter().map(score).sum();
        }
        let grams = notes.iter().map(|_| OnceCell::new()).collect();
        Self { notes, compared, grams, postings, mean_length, template }
    }

    /// Returns the neighbours of one note, most similar first.
    fn ranked(&self, at: usize) -> Vec<Neighbour> {
        let mut scores: HashMap<u32, f64> = HashMap::new();
        for (term, _) in &self.compared[at].terms {
            let having = &self.postings[term];
            let idf = idf(self.notes.len(), having.len());
            for (other, weight) in having.iter().filter(|(other, _)| *other as usize != at) {
                let length = self.compared[*other as usize].length / self.mean_length;
                *scores.entry(*other).or_default() += idf * saturated(*weight, length);
            }
        }
        // Each score is divided by the smaller and by the larger of the two notes' own scores.
        let share = |other: usize, score: f64| {
            let (a, b) = (self.compared[at].own, self.compared[other].own);
            let (least, most) = (a.min(b).max(f64::MIN_POSITIVE), a.max(b).max(f64::MIN_POSITIVE));
            ((score / least).min(1.0), (score / most).min(1.0))
        };
        let mut best: Vec<(usize, (f64, f64))> = scores
            .into_iter()
            .map(|(other, score)| (other as usize, share(other as usize, score)))
            .collect();
        let sum = |shares: (f64, f64)| shares.0 + shares.1;
        best.sort_by(|a, b| sum(b.1).total_cmp(&sum(a.1)).then(a.0.cmp(&b.0)));
        best.truncate(LOOKED_AT);
        let grams = |at: usize| self.grams[at].get_or_init(|| Grams::of(self.notes[at].text));
        let own = grams(at);
        let mut ranked: Vec<(usize, f64)> = best
            .into_iter()
            .map(|(other, (within, of))| {
                let (pairs, letters) = own.shared(grams(other));
                let days =
                    (self.notes[at].at - self.notes[other].at).unsigned_abs() as f64 / 86_400.0;
                let close = 1.0 / (1.0 + days / DAYS);
                let figures = [within, of, pairs, letters, close];
                (other, figures.iter().zip(WEIGHTS).map(|(figure, weight)| figure * weight).sum())
            })
            .collect();
        ranked.sort_by(|a: &(usize, f64), b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(RANKED);
        let verified = ranked.into_iter().enumerate();
        verified.map(|(place, (other, score))| self.neighbour(at, other, place, score)).collect()
    }

    fn neighbour(&self, at: usize, other: usize, place: usize, score: f64) -> Neighbour {
        let path = self.notes[other].path.to_owned();
        if place >= VERIFIED {
            return Neighbour { path, score, similarity: 0.0, containment: 0.0, same: false };
        }
        let bare = |at: usize| {
            let lines = self.notes[at].text.lines();
            let own =
                lines.filter(|line| !line_id(line).is_some_and(|id| self.template.contains(&id)));
            own.collect::<Vec<_>>().join("\n")
        };
        let (one, two) = (bare(at), bare(other));
        let (a, b) = (Sets::of(&one), Sets::of(&two));
        let (similarity, containment) = (jaccard(&a, &b), containment(&a, &b));
        let words = markdown::word_count(&one).min(markdown::word_count(&two));
        let alike = similarity >= SAME || containment >= WITHIN && words >= LONG;
        let titled = self.titled(at, other) >= TITLED && self.titled(other, at) >= TITLED;
        // Notes with identical text are the same even if all of their lines belong to a template.
        let equal = markdown::plain(self.notes[at].text) == markdown::plain(self.notes[other].text);
        Neighbour { path, score, similarity, containment, same: equal || alike && titled }
    }

    /// Returns the share of the terms in the title of the note `one` that the note `other`
    /// contains, weighted by rarity; 1 if the title has no terms.
    fn titled(&self, one: usize, other: usize) -> f64 {
        let (mut found, mut all) = (0.0, 0.0);
        for term in &self.compared[one].title {
            let having = self.postings.get(term).map_or(&[][..], Vec::as_slice);
            let idf = idf(self.notes.len(), having.len());
            all += idf;
            found += if having.iter().any(|(at, _)| *at as usize == other) { idf } else { 0.0 };
        }
        if all > 0.0 { found / all } else { 1.0 }
    }
}

impl Compared {
    fn of(note: &Note<'_>) -> Self {
        let title = markdown::title(note.text, places::stem(note.path));
        let headings = note.text.lines().filter(|line| line.starts_with('#'));
        let headings = headings.collect::<Vec<_>>().join("\n");
        let mut weights: HashMap<u32, f64> = HashMap::new();
        let mut length = 0.0;
        let in_title = terms(&title);
        for (found, weight) in [
            (in_title.clone(), FIELDS.0),
            (terms(&headings), FIELDS.1),
            (terms(&markdown::plain(note.text)), FIELDS.2),
        ] {
            length += found.len() as f64 * weight;
            found.iter().for_each(|term| *weights.entry(term_id(term)).or_default() += weight);
        }
        let mut terms: Vec<(u32, f64)> = weights.into_iter().collect();
        terms.sort_unstable_by_key(|(term, _)| *term);
        let title: HashSet<u32> = in_title.iter().map(|term| term_id(term)).collect();
        Self { terms, title: title.into_iter().collect(), length, own: 0.0 }
    }
}

/// The word pairs and the groups of four letters in a note's text, each sorted and without
/// duplicates.
struct Grams {
    pairs: Vec<u64>,
    letters: Vec<u32>,
}

impl Grams {
    fn of(text: &str) -> Self {
        let plain = markdown::plain(text).to_lowercase();
        let words: Vec<u32> = terms(&plain).iter().map(|term| term_id(term)).collect();
        let pairs = words.windows(2).map(|two| u64::from(two[0]) << 32 | u64::from(two[1]));
        let letters: Vec<char> = plain.chars().filter(|c| c.is_alphanumeric()).collect();
        let mut group = String::new();
        let groups = letters.windows(4).map(|four| {
            group.clear();
            group.extend(four);
            term_id(&group)
        });
        Self { letters: set(groups.collect()), pairs: set(pairs.collect()) }
    }

    /// Returns the Dice coefficients of the word pairs and the letter groups of two notes.
    fn shared(&self, other: &Self) -> (f64, f64) {
        (dice(&self.pairs, &other.pairs), dice(&self.letters, &other.letters))
    }
}

/// Sorts a list, removes its duplicates and frees its unused memory.
fn set<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list.shrink_to_fit();
    list
}

/// Returns the Dice coefficient of two sorted lists.
fn dice<T: Ord>(one: &[T], other: &[T]) -> f64 {
    let (mut shared, mut rest) = (0usize, other);
    for item in one {
        let before = rest.iter().take_while(|it| *it < item).count();
        rest = &rest[before..];
        if rest.first() == Some(item) {
            shared += 1;
        }
    }
    2.0 * shared as f64 / (one.len() + other.len()).max(1) as f64
}

fn idf(all: usize, having: usize) -> f64 {
    (1.0 + (all as f64 - having as f64 + 0.5) / (having as f64 + 0.5)).ln()
}

fn saturated(weight: f64, length: f64) -> f64 {
    let (saturation, by_length) = BM25;
    weight * (saturation + 1.0) / (weight + saturation * (1.0 - by_length + by_length * length))
}

/// Returns an id for a line's terms, or `None` if the line has no terms.
fn line_id(line: &str) -> Option<u32> {
    let words = terms(line);
    (!words.is_empty()).then(|| term_id(&words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The night report\n\nEvery night the report should list which jobs ran, how long each of \
                        them took, what it cost in tokens and in money, and which of them need a person.";

    fn found(notes: &[(&str, &str)]) -> BTreeMap<String, Vec<Neighbour>> {
        let notes: Vec<Note<'_>> =
            notes.iter().map(|(path, text)| Note { path, text, at: 0 }).collect();
        neighbours(&notes, notes.len())
    }

    #[test]
    fn almost_equal_notes_are_the_same() {
        let longer = format!("{TEXT} It should be one page.");
        let found = found(&[("a.md", TEXT), ("b.md", &longer), ("c.md", "# Zebra\n\nStripes.")]);
        for (one, other) in [("a.md", "b.md"), ("b.md", "a.md")] {
            let near = &found[one][0];
            assert!(near.path == other && near.same && near.similarity > 0.7, "{near:?}");
        }
        assert!(!found.get("c.md").into_iter().flatten().any(|near| near.same), "{found:?}");
    }

    #[test]
    fn paraphrases_rank_first_and_are_not_the_same() {
        let paraphrase = "# What ran at night\n\nA list in the morning: the jobs, the duration and costs of each, \
                          tokens and money, and whether somebody is needed for a job.";
        let other = "# Retry\n\nThe client should wait at most an hour before each retry of a job at night.";
        let found = found(&[("a.md", TEXT), ("b.md", other), ("c.md", paraphrase)]);
        assert_eq!(found["a.md"][0].path, "c.md", "{found:?}");
        assert!(!found["a.md"][0].same);
    }

    #[test]
    fn siblings_with_a_shared_template_are_not_the_same() {
        let sibling = |tool: &str| {
            format!(
                "# Add {tool} support\n\n## Why\n\nUsers of {tool} have no slash commands.\n\n## What changes\n\n\
                 - Add a configurator that writes the shared commands\n- Refresh existing files on update\n\
                 - Update the documentation and the tests\n- Keep the markers around the managed text\n"
            )
        };
        let (a, b, c) = (sibling("maple"), sibling("tulip"), sibling("cedar"));
        let siblings = found(&[("a.md", &a), ("b.md", &b), ("c.md", &c)]);
        assert!(siblings.values().flatten().all(|near| !near.same), "{siblings:?}");
        let two = found(&[("a.md", &a), ("b.md", &b)]);
        assert!(two.values().flatten().all(|near| !near.same), "{two:?}");
        let twins = found(&[("a.md", &a), ("b.md", &b), ("c.md", &c), ("d.md", &a)]);
        assert!(twins["a.md"][0].same && twins["a.md"][0].path == "d.md", "{twins:?}");
    }
}
