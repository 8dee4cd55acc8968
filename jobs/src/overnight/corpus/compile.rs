//! Compiles the candidate and established learnings and findings on one subject into a pattern.
//!
//! A pattern lists its sources, each with the beginning of its text, and adds no statements of its
//! own. A node written by runner is never a source. A pattern is rewritten only when the set of its
//! sources changes. A pattern without `generated_by: runner` belongs to the user and is never
//! changed.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_text::front_matter::edit::{self, quote};
use runner_text::markdown;
use serde::Serialize;

use super::node::GENERATOR;
use super::{Changes, Corpus, Maturity, Node, NodeKind};

/// Minimum number of sources per pattern.
pub const FEWEST: usize = 3;
/// Maximum number of sources per pattern.
const MOST: usize = 24;
/// Maximum number of patterns written by one compilation.
const AT_ONCE: usize = 8;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compiled {
    /// The path of the pattern's file.
    pub path: String,
    pub subject: String,
    /// The ids of the pattern's sources.
    pub sources: Vec<String>,
}

/// Finds the subjects that need a new or changed pattern, and returns the patterns and the changes
/// that write them.
pub fn compile(corpus: &Corpus, date: Date) -> (Vec<Compiled>, Changes) {
    let mut by_subject: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in corpus.active() {
        let fits = matches!(node.kind, NodeKind::Learning | NodeKind::Finding)
            && !node.generated
            && node.maturity >= Maturity::Candidate;
        if fits {
            for subject in &node.subjects {
                by_subject.entry(subject).or_default().push(node);
            }
        }
    }
    let mut compiled = Vec::new();
    let mut changes = Changes::new();
    for (subject, mut nodes) in by_subject {
        let slug = slug(subject);
        if nodes.len() < FEWEST || slug.is_empty() || compiled.len() >= AT_ONCE {
            continue;
        }
        nodes.sort_by_key(|node| node.standing());
        nodes.truncate(MOST);
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        let path = format!("patterns/compiled-{slug}.md");
        let sources: Vec<String> = nodes.iter().map(|node| node.id.clone()).collect();
        // Only the first of several subjects with the same file name, such as `c` and `c++`, gets a
        // pattern.
        if changes.contains_key(&path) {
            continue;
        }
        let there = corpus.at(&path);
        // A pattern that the user retired stays retired.
        if let Some(there) = there
            && (!there.generated
                || !there.is_active()
                || there.value("category").map(plain) != Some(plain(subject))
                || there.value("sources") == Some(key_of(&sources).as_str()))
        {
            continue;
        }
        let new = text(subject, &slug, &nodes, date);
        let new = there.and_then(|it| edit::with_fields_of(&it.text, &new)).unwrap_or(new);
        changes.insert(path.clone(), Some(new.into_bytes()));
        compiled.push(Compiled { path, subject: subject.to_owned(), sources });
    }
    (compiled, changes)
}

/// Returns the `sources` field of a pattern with these sources.
fn key_of(ids: &[impl AsRef<str>]) -> String {
    let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
    plain(&ids.join(", "))
}

/// Removes the characters that are escaped in front matter and replaces tabs with spaces, so that a
/// string can be compared with its field.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(|c| !matches!(c, '"' | '\\') && (!c.is_control() || *c == '\t'));
    kept.map(|c| if c == '\t' { ' ' } else { c }).collect()
}

fn text(subject: &str, slug: &str, nodes: &[&Node], date: Date) -> String {
    let ids: Vec<&str> = nodes.iter().map(|node| node.id.as_str()).collect();
    let list: Vec<String> = ids.iter().map(|id| quote(id)).collect();
    let mut out = format!(
        "---\nid: compiled-{slug}\ntype: pattern\ndate: {date}\nmaturity: provisional\nutility: 0.5\ncategory: {}\n\
         generated_by: {GENERATOR}\nsources: \"{}\"\ncompiled_from: [{}]\n---\n\n# {subject}: what was learned\n\n",
        quote(subject),
        key_of(&ids),
        list.join(", ")
    );
    for node in nodes {
        let first = markdown::summary(node.body(), 240);
        out.push_str(&format!("- **{}** ([[{}]]): {first}\n", node.title, node.id));
    }
    out
}

/// Converts a subject to part of a file name: at most 40 lower-case letters, digits and hyphens.
pub fn slug(text: &str) -> String {
    let words: Vec<String> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-").chars().take(40).collect::<String>().trim_end_matches('-').to_owned()
}
