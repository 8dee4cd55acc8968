//! Measures whether a static model helps to find similar ideas: `neighbour_measure FOLDER MODEL`.
//!
//! `FOLDER` contains `ideas/` and `truth.json`. Two sorts of pairs are known: the two halves of a note,
//! which share a subject and few sentences, and two notes that the same commit implemented. Their
//! cosine is added to their score with several weights.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a measuring program"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use runner_jobs::evidence::neighbours::{Note, neighbours};
use runner_memory::model::{Table, Vector};
use serde_json::Value;

/// The notes with their paths, and the pairs of their places that belong together.
struct Collection {
    notes: Vec<(String, String)>,
    pairs: Vec<(usize, usize)>,
}

fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let model = std::env::args().nth(2).unwrap();
    let table = Table::open(model.as_ref()).unwrap().load().unwrap();
    let ideas = load(folder.as_ref());
    let truth = std::fs::read(Path::new(&folder).join("truth.json")).unwrap();
    let truth: Vec<Value> = serde_json::from_slice(&truth).unwrap();
    for (what, collection) in
        [("halves", halves(&ideas)), ("same commit", siblings(&ideas, &truth))]
    {
        println!("{what}: {} notes, {} pairs", collection.notes.len(), collection.pairs.len());
        measure(&collection, &table);
    }
}

fn load(folder: &Path) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder.join("ideas"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            (format!("ideas/{name}"), std::fs::read_to_string(&path).unwrap())
        })
        // The same proposal at an earlier point is almost the same text.
        .filter(|(name, _)| !name.contains("@start"))
        .collect();
    found.sort();
    found
}

/// Splits each note with at least six paragraphs: the title and every other paragraph, and the rest.
fn halves(ideas: &[(String, String)]) -> Collection {
    let mut notes = Vec::new();
    let mut pairs = Vec::new();
    for (name, text) in ideas {
        let parts: Vec<&str> = text.split("\n\n").filter(|it| !it.trim().is_empty()).collect();
        if parts.len() < 6 {
            continue;
        }
        pairs.push((notes.len(), notes.len() + 1));
        for half in 0..2 {
            let own: Vec<&str> = parts.iter().skip(half).step_by(2).copied().collect();
            notes.push((format!("{half}-{}", name.replace('/', "-")), own.join("\n\n")));
        }
    }
    Collection { notes, pairs }
}

/// Pairs the notes that share a commit, unless the commit implemented more than three of them.
fn siblings(ideas: &[(String, String)], truth: &[Value]) -> Collection {
    let mut by_commit: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for row in truth {
        let place = ideas.iter().position(|(name, _)| *name == row["idea"].as_str().unwrap());
        let Some(place) = place else { continue };
        for commit in row["commits"].as_array().unwrap() {
            let hash = commit["hash"].as_str().or(commit.as_str()).unwrap();
            by_commit.entry(hash.to_owned()).or_default().insert(place);
        }
    }
    let mut pairs = BTreeSet::new();
    for places in by_commit.values().filter(|it| it.len() <= 3) {
        for a in places {
            pairs.extend(places.range(a + 1..).map(|b| (*a, *b)));
        }
    }
    Collection { notes: ideas.to_vec(), pairs: pairs.into_iter().collect() }
}

fn measure(collection: &Collection, table: &Table) {
    let Collection { notes, pairs } = collection;
    let given: Vec<Note<'_>> =
        notes.iter().map(|(path, text)| Note { path, text, at: 0 }).collect();
    let ranked = neighbours(&given, given.len());
    let vectors: Vec<Option<Vector>> = notes.iter().map(|(_, text)| table.embed(text)).collect();
    for weight in [0.0, 0.1, 0.25, 0.5, 1.0, 1e6] {
        let rank = |from: usize, to: usize| {
            let score = |at: usize| {
                let near = ranked.get(&notes[from].0).into_iter().flatten();
                let found = near.filter(|it| it.path == notes[at].0).map(|it| it.score).next();
                let cosine = vectors[from].as_ref().zip(vectors[at].as_ref());
                found.unwrap_or(0.0) + weight * cosine.map_or(0.0, |(a, b)| f64::from(a.cosine(b)))
            };
            let own = score(to);
            if own <= 0.0 {
                return notes.len();
            }
            (0..notes.len()).filter(|at| *at != from && *at != to && score(*at) >= own).count()
        };
        let ranks: Vec<usize> =
            pairs.iter().flat_map(|(a, b)| [rank(*a, *b), rank(*b, *a)]).collect();
        let share = |most: usize| {
            ranks.iter().filter(|it| **it < most).count() as f64 / ranks.len().max(1) as f64
        };
        println!("  weight {weight}: R@1 {:.3}, R@10 {:.3}", share(1), share(10));
    }
}
