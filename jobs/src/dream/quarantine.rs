//! Ideas that are set aside after three unusable answers in a row about the same content.
//!
//! ```text
//! shown, no valid answer ──> 1 ──> 2 ──> 3: parked ──changes, or --retry-parked──> shown again
//!                  a valid answer at any time: forgotten
//! ```
//!
//! The quarantine is a file in the project's cache and not part of `state.json`, for three reasons:
//! it describes answers and not ideas, it must also be updated when a pass publishes nothing, and
//! its loss costs at most three more questions about each idea. No idea is parked silently: every
//! pass names the parked ideas.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, WriteError, read_host, write_atomic};
use serde::{Deserialize, Serialize};

/// Number of unusable answers after which an idea is set aside.
pub const PARKED_AFTER: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct QuarantinedIdea {
    hash: Digest,
    answers: u32,
    /// The time when the idea was last shown without a valid answer. A pass that fails publishes no
    /// state, so this is the only record that the idea was shown.
    #[serde(default)]
    surfaced: Timestamp,
}

/// The ideas that were shown without a valid answer, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quarantine(BTreeMap<String, QuarantinedIdea>);

impl Quarantine {
    /// Returns the path of the quarantine file in a project's cache.
    pub fn path(cache: &Path) -> PathBuf {
        cache.join("dream-parked.json")
    }

    /// Reads the quarantine file. A missing or damaged file yields an empty quarantine.
    pub fn load(cache: &Path) -> Self {
        let bytes = read_host(Self::path(cache), DOCUMENT).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Writes the quarantine file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&self, cache: &Path) -> Result<(), WriteError> {
        let bytes = serde_json::to_vec_pretty(self).expect("paths and hashes serialize to JSON");
        write_atomic(&Self::path(cache), &bytes, 0o600)
    }

    /// Returns whether this content of an idea is set aside.
    pub fn holds(&self, path: &str, hash: &Digest) -> bool {
        let known = self.0.get(path).filter(|known| known.hash == *hash);
        known.is_some_and(|known| known.answers >= PARKED_AFTER)
    }

    /// Records that an idea got a valid answer.
    pub fn note_valid(&mut self, path: &str) {
        self.0.remove(path);
    }

    /// Returns the time when the idea was last shown without a valid answer, or `None` if no such
    /// time is recorded.
    pub fn surfaced(&self, path: &str) -> Option<Timestamp> {
        self.0.get(path).map(|known| known.surfaced)
    }

    /// Records that an idea with this content was shown. Does not change the number of unusable
    /// answers about this content.
    pub fn note_shown(&mut self, path: &str, hash: Digest, now: Timestamp) {
        let known = self.0.remove(path).filter(|known| known.hash == hash);
        let answers = known.map_or(0, |known| known.answers);
        self.0.insert(path.to_owned(), QuarantinedIdea { hash, answers, surfaced: now });
    }

    /// Records that an idea with this content got no valid answer.
    pub fn note_invalid(&mut self, path: &str, hash: Digest, now: Timestamp) {
        let before = self.0.remove(path).filter(|known| known.hash == hash);
        let answers = before.map_or(0, |known| known.answers).saturating_add(1);
        self.0.insert(path.to_owned(), QuarantinedIdea { hash, answers, surfaced: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_park_idea_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut parked = Quarantine::load(folder.path());
        for answers in 0..PARKED_AFTER {
            assert!(!parked.holds("a.md", &one), "{answers}");
            parked.note_invalid("a.md", one, now);
        }
        assert!(parked.holds("a.md", &one) && !parked.holds("b.md", &one));
        assert_eq!((parked.surfaced("a.md"), parked.surfaced("b.md")), (Some(now), None));
        assert!(!parked.holds("a.md", &two), "the idea changed");
        parked.save(folder.path()).unwrap();
        assert_eq!(Quarantine::load(folder.path()), parked);
        parked.note_invalid("a.md", two, now);
        assert!(!parked.holds("a.md", &two), "the count starts again");
        parked.note_valid("a.md");
        assert_eq!(parked, Quarantine::default());
        std::fs::write(Quarantine::path(folder.path()), "no JSON").unwrap();
        assert_eq!(Quarantine::load(folder.path()), Quarantine::default());
    }
}
