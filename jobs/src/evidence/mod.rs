//! Evidence: facts about a note that are gathered from the project, without any model.
//!
//! ```text
//! git log ──> history ─┬─> index (words) ──┐
//!                      └─> overlap (places)┤
//! git ls-files ──> places ─────────────────┼──> Evidence on one note ──> a rule, a request
//! the note ──> written (when) ─────────────┤
//! the notes ──> neighbours ────────────────┘
//! ```
//!
//! One [`ProjectEvidence`] serves all kinds of jobs. Everything in it can be verified: commits that
//! exist, paths that are tracked, notes that were read. This module must never decide, never ask a
//! model, never write, and never treat the text of a commit or a note as anything but words to
//! compare.
//!
//! Limits: [`HistoryLimits`] for the history (48 MiB by default, and about as much again for its
//! index), 32 MiB of notes for the comparison among notes. Reading and indexing 1,300 commits with
//! 29,000 paths takes about 0.15 s, and looking up one note takes about 4 ms (`runner dream bench`
//! prints both). No index is kept between runs, because checking an old index would take as long as
//! building a new one.

pub mod candidates;
pub mod history;
pub mod index;
pub mod neighbours;
pub mod note_date;
pub mod overlap;
pub mod places;
pub mod references;

use std::collections::HashSet;

use runner_engine::git::{Git, GitError};

pub use candidates::{Candidate, NoteTerms};
pub use history::{Commit, HistoryLimits};
pub use index::IndexError;
pub use neighbours::Neighbour;
pub use note_date::CommitTiming;
pub use references::{CheckedReferences, Reference};

use candidates::candidates;
use index::Index;
use overlap::TouchedPaths;
use places::Tracked;

/// Maximum number of candidates for a note.
const CANDIDATES: usize = 5;
/// Maximum number of paths, and of documents, for a note.
const PATHS: usize = 8;

/// The reason why no evidence could be gathered.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// The facts about a project, for all notes of a run.
pub struct ProjectEvidence {
    history: Vec<Commit>,
    index: Index,
    touched: TouchedPaths,
    tracked: Tracked,
    /// The repository, for questions about commits that are not in `history`.
    git: Option<Git>,
    /// Hashes of the commits that were reverted or that revert others.
    reverted: HashSet<String>,
    notes: Vec<String>,
}

/// The evidence for and against one note.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The terms of the note.
    pub words: NoteTerms,
    /// Commits that may have done the work, best first.
    pub candidates: Vec<Candidate>,
    /// Terms of the note's title that occur in no commit message and no path.
    pub unheard: Vec<String>,
    /// Tracked files that the note names.
    pub paths: Vec<String>,
    /// Tracked documents and sources with a name like the note's.
    pub namesakes: Vec<String>,
}

impl ProjectEvidence {
    /// Reads the history and the list of tracked files, and indexes them.
    ///
    /// # Errors
    /// Returns an [`EvidenceError`] if git or the index fails.
    pub fn open(git: &Git, bounds: &HistoryLimits) -> Result<Self, EvidenceError> {
        let history = history::read(git, bounds)?;
        let room = Self::of(history.commits, history::tracked(git)?)?;
        Ok(Self {
            git: Some(git.clone()),
            reverted: history.reverted,
            notes: history.notes,
            ..room
        })
    }

    /// Builds the evidence from a history and paths that have already been read.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the index cannot be built.
    pub fn of(history: Vec<Commit>, tracked: Vec<String>) -> Result<Self, IndexError> {
        let index = Index::build(&history)?;
        Ok(Self {
            touched: TouchedPaths::build(&history),
            history,
            index,
            tracked: Tracked::new(tracked),
            git: None,
            reverted: HashSet::new(),
            notes: Vec::new(),
        })
    }

    /// Returns the evidence about the note at `path` with this text.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the search fails.
    pub fn about(&self, path: &str, text: &str) -> Result<Evidence, IndexError> {
        let words = NoteTerms::of(path, text);
        let indexes = (&self.index, &self.touched);
        let candidates = candidates(indexes, &self.history, (path, text), &words, CANDIDATES)?;
        let own = |paths: Vec<&str>| -> Vec<String> {
            paths.into_iter().filter(|found| *found != path).map(str::to_owned).collect()
        };
        let paths = own(self.tracked.named_in(text, PATHS));
        let namesakes = own(self.tracked.with_stem(places::stem(path), PATHS));
        let heard = |term: &&String| self.index.frequency(term) > 0;
        let unheard = words.title.iter().filter(|term| !heard(term)).cloned().collect();
        Ok(Evidence { words, candidates, unheard, paths, namesakes })
    }

    /// Returns the commit of a candidate.
    pub fn commit(&self, candidate: &Candidate) -> &Commit {
        &self.history[candidate.at]
    }

    /// Returns all commits, the newest first.
    pub fn history(&self) -> &[Commit] {
        &self.history
    }

    /// Returns the commit whose hash begins with `prefix`, which must have at least 7 digits.
    pub fn commit_named(&self, prefix: &str) -> Option<&Commit> {
        let good = prefix.len() >= 7 && prefix.bytes().all(|byte| byte.is_ascii_hexdigit());
        let prefix = prefix.to_ascii_lowercase();
        good.then(|| self.history.iter().find(|commit| commit.hash.starts_with(&prefix)))?
    }

    /// Checks whether a commit with this prefix is reachable from `HEAD` although it is not in the
    /// history that was read. Returns false for a reverted commit.
    pub fn commit_elsewhere(&self, prefix: &str) -> bool {
        let Some(git) = &self.git else { return false };
        let Ok(Some(hash)) = git.commit(prefix) else {
            return false;
        };
        !self.reverted.contains(&hash) && git.leads_to(&hash, "HEAD").unwrap_or(false)
    }

    /// Returns the parts of the history that were not read, each with the reason, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Checks whether this path is tracked, or is a folder of tracked files.
    pub fn has_path(&self, path: &str) -> bool {
        self.tracked.has(path)
    }

    /// Checks whether this path, or a file below it, is in the history that was read, even if it no
    /// longer exists.
    pub fn had_path(&self, path: &str) -> bool {
        self.touched.has(path)
    }
}
