//! Reads the selected ideas, gathers their evidence and judges them with the rules. The result
//! contains everything that a question needs.
//!
//! This module must never keep more text in memory than its limits allow: [`TEXTS`] bytes of the
//! selected ideas, and other ideas only until the combined size reaches [`MOST`].

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::digest::Digest;
use runner_text::markdown;

use super::compare::{OTHERS, OtherNotes};
use super::features::Features;
use super::inventory::{Idea, Reader};
use super::proposal::Offer;
use super::rule::{self, RuleVerdict};
use super::walk::{Stat, WalkProblem};
use crate::Progress;
use crate::evidence::neighbours::{MOST, Note, neighbours};
use crate::evidence::{Evidence, Neighbour, ProjectEvidence, places};
use crate::session_notes::SessionNote;

/// Maximum number of an idea's neighbours to offer as merge destinations.
pub const OFFERED_NEIGHBOURS: usize = 5;
/// Maximum length of a neighbour's text to show, in bytes.
pub const PER_NEIGHBOUR: usize = 1500;
/// Maximum combined size of the selected ideas' contents in memory, in bytes.
pub const TEXTS: usize = 64 * 1024 * 1024;
/// Maximum length of the first paragraph in a search for session notes, in characters.
const GIST: usize = 200;
/// Minimum score of a neighbour that may be the same idea (see [`Neighbour::score`]).
pub const LIKE: f64 = 0.5;

/// A selected idea with its verdict.
#[derive(Debug)]
pub struct ClassifiedIdea {
    /// The path of the idea, relative to the project.
    pub path: String,
    pub text: String,
    /// The file's stat data when it was read.
    pub stat: Stat,
    /// Digest of the text.
    pub digest: Digest,
    /// The evidence about the idea.
    pub grounds: Evidence,
    /// Ideas with similar text.
    pub near: Vec<Neighbour>,
    /// The rule's verdict on the idea.
    pub verdict: RuleVerdict,
    /// Session notes that are relevant to the idea.
    pub notes: Vec<SessionNote>,
    /// A score from 0 to 1 for how substantial the idea is, used only for ranking.
    pub merit: f64,
}

/// The selected ideas that could be read.
#[derive(Debug, Default)]
pub struct ClassifiedIdeas {
    /// The ideas in the order of selection.
    pub shown: Vec<ClassifiedIdea>,
    /// The targets that an answer may choose from.
    pub offer: Offer,
    /// The beginning of each offered neighbour's text, keyed by path.
    pub neighbours: BTreeMap<String, String>,
    /// The number of other ideas that were compared and the total number of other ideas; `None` if
    /// all were compared.
    pub compared: Option<(usize, usize)>,
}

/// A function that returns a time at which the idea at a path did not exist yet, in seconds since
/// the epoch, or `None` if no such time is known.
pub type Born<'a> = &'a dyn Fn(&str) -> Option<i64>;

impl ClassifiedIdea {
    /// Returns the text to search session notes for: the title and the first paragraph.
    pub fn gist(&self) -> String {
        let stem = places::stem(&self.path);
        format!("{} {}", markdown::title(&self.text, stem), markdown::summary(&self.text, GIST))
    }

    /// Adds session notes to the evidence. They never change the verdict.
    pub fn rest_on(&mut self, notes: Vec<SessionNote>) {
        for SessionNote { id, kind, day, text, .. } in &notes {
            let verdict = &mut self.verdict;
            let kind = kind.as_str();
            verdict.evidence.push_str(&format!("; a session noted on {day} ({kind} {id}): {text}"));
            verdict.bare.push_str(&format!("; a session noted {kind} {id}"));
        }
        self.notes = notes;
    }
}

impl ClassifiedIdeas {
    /// Returns the idea at `path`, if it was selected and could be read.
    pub fn of(&self, path: &str) -> Option<&ClassifiedIdea> {
        self.shown.iter().find(|one| one.path == path)
    }
}

/// Reads and judges the ideas with the indices `selected`. An idea that can no longer be read is
/// added to `troubles`. If the ideas do not all fit into [`TEXTS`], the first that does not fit
/// and all ideas after it wait for another pass. `compared` compares the candidates with the project's other notes.
pub fn judge_all(
    (ideas, selected): (&[Idea], &[usize]),
    reader: &Reader,
    (room, born, compared): (&ProjectEvidence, Born<'_>, &OtherNotes<'_>),
    troubles: &mut Vec<WalkProblem>,
    progress: &mut dyn Progress,
) -> ClassifiedIdeas {
    let mut texts: Vec<(&Idea, String, Stat, Digest)> = Vec::new();
    let mut held = 0;
    for idea in selected.iter().map(|at| &ideas[*at]) {
        match reader.text(&idea.path) {
            Ok((text, ..)) if text.len() > TEXTS => troubles.push(WalkProblem {
                path: idea.path.to_string(),
                why: format!("it is {} bytes long; a pass can read {TEXTS} bytes", text.len()),
            }),
            Ok((text, ..)) if held + text.len() > TEXTS => break,
            Ok((text, stat, digest)) => {
                held += text.len();
                texts.push((idea, text, stat, digest));
            }
            Err(why) => troubles.push(WalkProblem { path: idea.path.to_string(), why }),
        }
    }
    let (others, among) = others(ideas, &texts, reader);
    let mut near = {
        let own = texts.iter().map(|(idea, text, ..)| note(idea, text));
        let all: Vec<Note<'_>> =
            own.chain(others.iter().map(|(idea, text, _)| note(idea, text))).collect();
        neighbours(&all, texts.len())
    };
    let features: Vec<Features> =
        texts.iter().map(|(idea, text, ..)| Features::of(text, places::stem(&idea.path))).collect();
    let into = destinations(&texts, &near);
    let mut judged = ClassifiedIdeas { compared: among, ..ClassifiedIdeas::default() };
    let total = texts.len() as u64;
    for ((idea, text, stat, digest), features) in texts.into_iter().zip(features) {
        let path = idea.path.to_string();
        let mut grounds = room.about(&path, &text, born(&path));
        compared.compare(room, &path, &features, &mut grounds);
        let near = near.remove(&path).unwrap_or_default();
        let chosen = into.get(&path).and_then(|into| near.iter().find(|near| near.path == *into));
        let verdict = rule::judge(room, &features, &grounds, chosen);
        judged.offer.sources.push(path.clone());
        judged.offer.destinations.insert(path.clone());
        judged.offer.digests.insert(path.clone(), digest);
        judged.shown.push(ClassifiedIdea {
            path,
            text,
            stat,
            digest,
            grounds,
            near,
            verdict,
            notes: Vec::new(),
            merit: rule::merit(&features),
        });
        progress.step("ideas", judged.shown.len() as u64, total);
    }
    let near: BTreeSet<&str> = judged
        .shown
        .iter()
        .flat_map(|one| one.near.iter().take(OFFERED_NEIGHBOURS))
        .map(|near| near.path.as_str())
        .collect();
    let begun = |text: &str| text[..text.floor_char_boundary(PER_NEIGHBOUR)].to_owned();
    let own = judged.shown.iter().filter(|one| near.contains(&*one.path));
    judged.neighbours = own.map(|one| (one.path.clone(), begun(&one.text))).collect();
    for (idea, text, digest) in others {
        if near.contains(&*idea.path) {
            judged.offer.destinations.insert(idea.path.to_string());
            judged.offer.digests.insert(idea.path.to_string(), digest);
            judged.neighbours.insert(idea.path.to_string(), begun(&text));
        }
    }
    judged
}

fn note<'a>(idea: &'a Idea, text: &'a str) -> Note<'a> {
    Note { path: &idea.path, text, at: idea.stat.mtime / 1_000_000_000 }
}

type OtherIdeas<'a> = (&'a Idea, String, Digest);

/// Reads the other ideas, which are not in `texts`, up to the limits. If a limit was reached, also
/// returns the number of ideas that were read and the total number of other ideas. An idea that can
/// no longer be read is skipped.
fn others<'a>(
    ideas: &'a [Idea],
    texts: &[(&Idea, String, Stat, Digest)],
    reader: &Reader,
) -> (Vec<OtherIdeas<'a>>, Option<(usize, usize)>) {
    let chosen: BTreeSet<&str> = texts.iter().map(|(idea, ..)| &*idea.path).collect();
    let mut held: usize = texts.iter().map(|(_, text, ..)| text.len()).sum();
    let mut others = Vec::new();
    let of = ideas.len() - chosen.len();
    for idea in ideas.iter().filter(|idea| !chosen.contains(&*idea.path)) {
        if others.len() == OTHERS || held >= MOST {
            let compared = others.len();
            return (others, Some((compared, of)));
        }
        if let Ok((text, _, digest)) = reader.text(&idea.path) {
            held += text.len();
            others.push((idea, text, digest));
        }
    }
    (others, None)
}

/// Determines which idea each selected idea may be merged into. If two selected ideas match, the
/// smaller one is merged into the larger; if their sizes are similar, the newer one is merged into
/// the older. Two ideas are never merged into each other. If only one of two matching ideas was
/// selected, it is merged into the other idea.
fn destinations(
    texts: &[(&Idea, String, Stat, Digest)],
    near: &BTreeMap<String, Vec<Neighbour>>,
) -> BTreeMap<String, String> {
    let size: BTreeMap<&str, (usize, i64)> =
        texts.iter().map(|(idea, text, stat, _)| (&*idea.path, (text.len(), stat.mtime))).collect();
    let mut into: BTreeMap<String, String> = BTreeMap::new();
    for (path, (length, modified)) in &size {
        let goes = |other: &&Neighbour| match size.get(other.path.as_str()) {
            None => true,
            Some((theirs, their_time)) => {
                let (least, most) = (length.min(theirs), length.max(theirs));
                if most * 4 > least * 5 {
                    length < theirs
                } else {
                    (their_time, other.path.as_str()) < (modified, path)
                }
            }
        };
        let close = |other: &&Neighbour| other.same || other.score >= LIKE;
        let near = || near.get(*path).into_iter().flatten().filter(close).filter(goes);
        let best = near().find(|other| other.same).or_else(|| near().next());
        if let Some(best) = best {
            into.insert((*path).to_owned(), best.path.clone());
        }
    }
    // A merge into an idea that is itself merged would change an archived idea.
    let moving: BTreeSet<String> = into.keys().cloned().collect();
    into.retain(|_, destination| !moving.contains(destination));
    into
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idea(path: &str) -> Idea {
        let stat = Stat { size: 0, mtime: 0, ctime: 0, inode: 0 };
        Idea { path: path.into(), stat, digest: Digest::of(b"") }
    }

    fn links(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<Neighbour>> {
        let mut near: BTreeMap<String, Vec<Neighbour>> = BTreeMap::new();
        for (a, b) in pairs {
            for (one, other) in [(a, b), (b, a)] {
                let neighbour = Neighbour {
                    path: (*other).to_string(),
                    score: 0.9,
                    similarity: 0.9,
                    containment: 1.0,
                    same: true,
                };
                near.entry((*one).to_string()).or_default().push(neighbour);
            }
        }
        near
    }

    fn decided(ideas: &[(&str, usize, i64)], pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned: Vec<Idea> = ideas.iter().map(|(path, ..)| idea(path)).collect();
        let texts: Vec<(&Idea, String, Stat, Digest)> = owned
            .iter()
            .zip(ideas)
            .map(|(idea, (_, length, mtime))| {
                (idea, "x".repeat(*length), Stat { mtime: *mtime, ..idea.stat }, idea.digest)
            })
            .collect();
        destinations(&texts, &links(pairs)).into_iter().collect()
    }

    #[test]
    fn each_pair_merges_in_one_direction() {
        let pair = [("a", "b")];
        let way = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
        assert_eq!(
            decided(&[("a", 100, 1), ("b", 300, 2)], &pair),
            way("a", "b"),
            "into the larger"
        );
        assert_eq!(
            decided(&[("a", 100, 2), ("b", 110, 1)], &pair),
            way("a", "b"),
            "into the older"
        );
        assert_eq!(
            decided(&[("a", 100, 1), ("b", 100, 1)], &pair),
            way("b", "a"),
            "into the first"
        );
        assert_eq!(
            decided(&[("a", 900, 1)], &pair),
            way("a", "b"),
            "into the idea that was not selected"
        );
        assert_eq!(decided(&[("a", 900, 1)], &[]), []);
    }

    #[test]
    fn merged_idea_is_not_a_merge_target() {
        let found =
            decided(&[("a", 100, 1), ("b", 200, 1), ("c", 400, 1)], &[("a", "b"), ("b", "c")]);
        assert_eq!(found, [("b".to_owned(), "c".to_owned())]);
    }
}
