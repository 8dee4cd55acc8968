//! Finds notes with the same content in almost the same words.
//!
//! The module compares all notes that it is given by means of `text::near`. The caller limits the
//! number of notes and reports how many it left out.

use std::collections::BTreeMap;

use runner_text::near::{self, Doc};

/// Maximum text that is compared at once, in bytes.
pub const MOST: usize = 32 * 1024 * 1024;

/// A note whose text is similar to another note's.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The path of the similar note.
    pub path: String,
    /// Number of shared parts divided by the number of all parts, from 0 to 1.
    pub similarity: f64,
    /// Share of the smaller note that the larger note contains.
    pub containment: f64,
}

/// Returns the neighbours of every note that has some, the nearest first.
pub fn neighbours(notes: &[(&str, &str)]) -> BTreeMap<String, Vec<Neighbour>> {
    let docs: Vec<Doc<'_>> = notes.iter().map(|(key, text)| Doc { key, text }).collect();
    let mut found: BTreeMap<String, Vec<Neighbour>> = BTreeMap::new();
    for pair in near::neighbours(&docs, near::NEAR) {
        for (one, other) in [(pair.a, pair.b), (pair.b, pair.a)] {
            found.entry(one.to_owned()).or_default().push(Neighbour {
                path: other.to_owned(),
                similarity: pair.similarity,
                containment: pair.containment,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_symmetric() {
        let text = "Every night the report should list which jobs ran, how long each of them took, \
                    what it cost in tokens and in money, and which of them need a person.";
        let longer = format!("{text} It should be one page.");
        let found =
            neighbours(&[("a.md", text), ("b.md", &longer), ("c.md", "quite another thing")]);
        assert_eq!(found["a.md"][0].path, "b.md");
        assert_eq!(found["b.md"][0].path, "a.md");
        assert!(found["a.md"][0].similarity > 0.7 && !found.contains_key("c.md"), "{found:?}");
    }
}
