//! Citations between nodes, and the evidence that a node's text contains.

use std::collections::{BTreeSet, HashMap};

use super::node::stem_of;
use super::work::Claim;
use super::{Corpus, Node};

/// The citations between the nodes of a corpus. All vectors are indexed like [`Corpus::nodes`].
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// For each node, the nodes that cite it.
    pub cited_by: Vec<BTreeSet<usize>>,
    /// For each node, the nodes that it cites.
    pub cites: Vec<BTreeSet<usize>>,
    /// For each node, whether an unfinished work item mentions it.
    pub in_work: Vec<bool>,
}

impl Links {
    /// Finds citations by id, file name or wiki link, anywhere in a node, or in the description,
    /// evidence or source of an unfinished work item. The running time is linear in the number of
    /// words.
    pub fn of(corpus: &Corpus) -> Self {
        let mut named: HashMap<&str, usize> = HashMap::new();
        for (at, node) in corpus.nodes.iter().enumerate() {
            named.entry(stem_of(&node.path)).or_insert(at);
            named.entry(&node.id).or_insert(at);
        }
        // A common word such as "readme" does not count as a citation.
        named.retain(|name, _| name.len() >= 6 && name.contains(['-', '_', '.']));
        let count = corpus.nodes.len();
        let mut links = Self {
            cited_by: vec![BTreeSet::new(); count],
            cites: vec![BTreeSet::new(); count],
            in_work: vec![false; count],
        };
        for (at, node) in corpus.nodes.iter().enumerate() {
            for name in names(&node.text) {
                if let Some(other) = named.get(name).filter(|other| **other != at) {
                    links.cites[at].insert(*other);
                    links.cited_by[*other].insert(at);
                }
            }
        }
        for item in corpus.work.items.iter().filter(|item| item.claim != Claim::Consumed) {
            for text in [&item.description, &item.evidence, &item.source] {
                for name in names(text) {
                    if let Some(at) = named.get(name) {
                        links.in_work[*at] = true;
                    }
                }
            }
        }
        links
    }
}

/// Returns each word in a string as a possible node name: the last part of its path, without a
/// fragment or the extension `.md`.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    strip_marks(text).map(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        let name = name.split('#').next().unwrap_or(name);
        name.strip_suffix(".md").unwrap_or(name)
    })
}

/// Returns the words in a string, without the punctuation around them.
fn strip_marks(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "()[]{}<>\"'`,;|*".contains(c))
        // Only trailing punctuation is trimmed, because a leading dot belongs to a path.
        .map(|word| word.trim_end_matches(|c: char| ".:!?".contains(c)))
        .filter(|word| !word.is_empty())
}

/// Returns the relative paths mentioned in a string: words with a folder and a file extension.
pub fn paths(text: &str) -> impl Iterator<Item = &str> {
    strip_marks(text)
        .filter(|word| {
            let word = word.split(':').next().unwrap_or(word);
            let Some((folders, name)) = word.rsplit_once('/') else {
                return false;
            };
            let ended = name
                .rsplit_once('.')
                .is_some_and(|(stem, end)| !stem.is_empty() && (1..=6).contains(&end.len()));
            ended && !folders.is_empty() && !word.contains("://") && !word.starts_with('/')
        })
        .map(|word| word.split(':').next().unwrap_or(word))
        .map(|word| word.trim_start_matches("./"))
}

/// Returns the commits mentioned in a string: words of 7 to 40 lower-case hexadecimal digits, with
/// at least one digit and one letter.
pub fn commits(text: &str) -> impl Iterator<Item = &str> {
    strip_marks(text).filter(|word| {
        (7..=40).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            && word.bytes().any(|b| b.is_ascii_digit())
            && word.bytes().any(|b| b.is_ascii_alphabetic())
    })
}

/// Returns whether a node names its evidence: a source in its front matter, or a path or a commit
/// in its body.
pub fn has_evidence(node: &Node) -> bool {
    node.sourced || paths(node.body()).next().is_some() || commits(node.body()).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_commits_are_extracted_from_text() {
        let text = "See `src/net/retry.rs:12`, ./docs/a.md (https://example.org/a.html), /etc/passwd and/or 8f1e2d3 \
                    in feedface, deadbee1, 1234567, .agents/plan.md.";
        assert_eq!(
            paths(text).collect::<Vec<_>>(),
            ["src/net/retry.rs", "docs/a.md", ".agents/plan.md"]
        );
        assert_eq!(commits(text).collect::<Vec<_>>(), ["8f1e2d3", "deadbee1"]);
    }
}
