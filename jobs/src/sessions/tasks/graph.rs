//! Task 7, file relationships: which files were changed in the same turn.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::errors::brief;
use crate::sessions::event::{Action, Event};

/// Maximum number of pairs.
const MOST: usize = 20;
/// Maximum number of changed files in a turn. A turn that changes more is ignored, because two of
/// its files are unlikely to be related.
const FILES: usize = 20;
/// Minimum number of turns in which both files were changed.
const LEAST: u32 = 2;

/// Two files that were changed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePair {
    pub files: [String; 2],
    /// The number of turns in which both were changed.
    pub turns: u32,
}

/// Returns the files that were changed in each turn.
pub fn changed_by_turn(events: &[Event]) -> BTreeMap<u32, BTreeSet<&str>> {
    let mut turns: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.action == Action::Edit) {
        turns.entry(event.turn).or_default().insert(&event.target);
    }
    turns
}

/// Returns the pairs, most frequent first.
pub fn pairs(events: &[Event]) -> Vec<FilePair> {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for files in changed_by_turn(events).into_values().filter(|files| files.len() <= FILES) {
        let files: Vec<&str> = files.into_iter().collect();
        for (at, first) in files.iter().enumerate() {
            for second in &files[at + 1..] {
                *counts.entry((first, second)).or_default() += 1;
            }
        }
    }
    let mut pairs: Vec<_> = counts.into_iter().filter(|(_, turns)| *turns >= LEAST).collect();
    pairs.sort_by_key(|(files, turns)| (std::cmp::Reverse(*turns), *files));
    pairs.truncate(MOST);
    let pair = |((a, b), turns)| FilePair { files: [brief(a, 120), brief(b, 120)], turns };
    pairs.into_iter().map(pair).collect()
}
