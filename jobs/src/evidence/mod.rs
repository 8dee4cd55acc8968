//! Gathers evidence: facts about a note from the project, without any model.
//!
//! ```text
//! cache ──┐
//! git log ┴> history ─┬─> documents (prove nothing)
//!                     ├─> added (lines) ──> index (words) ──┐
//!                     └─> overlap (places) ─────────────────┤
//! git ls-files ──> places ──────────────────────────────────┼─> Evidence on one note ─> rule, request
//! the note ──> note_date (when), criteria (what) ───────────┤
//! the notes ──> neighbours, other notes ────────────────────┘
//! ```
//!
//! One [`ProjectEvidence`] serves all kinds of jobs. Everything in it can be verified: commits that
//! exist, paths that are tracked, notes that were read. This module must never make a decision,
//! call a model, or treat the text of a commit or a note as anything but words to compare.
//!
//! [`HistoryLimits`] limits the history. The commits and the terms of their added lines are kept in
//! a [`cache`] keyed by commit, so that a later run reads only new commits.

pub mod added;
pub mod cache;
pub mod candidates;
pub mod commit;
pub mod criteria;
pub mod documents;
pub mod history;
pub mod index;
pub mod neighbours;
pub mod note_date;
pub mod other_notes;
pub mod overlap;
pub mod places;
pub mod references;

use std::collections::HashSet;
use std::path::Path;

use runner_engine::git::{Git, GitError};
use runner_engine::recording::InputRecording;
use runner_text::counted;

pub use candidates::{Candidate, NoteTerms};
pub use commit::Commit;
pub use history::HistoryLimits;
pub use neighbours::Neighbour;
pub use note_date::CommitTiming;
pub use references::{CheckedReferences, Reference};

use cache::HistoryCache;
use candidates::{Compared, candidates};
use documents::Documents;
use history::History;
use index::Index;
use overlap::TouchedPaths;
use places::Tracked;

/// Maximum number of candidates for a note, unless a caller sets another limit.
const CANDIDATES: usize = 5;
/// Maximum number of paths, and of namesakes, for a note.
const PATHS: usize = 8;

/// Why no evidence could be gathered.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// The recording of a replayed run has no usable history.
    #[error("the recorded history: {0}")]
    Recorded(String),
}

/// The facts about a project, for all notes of a run.
pub struct ProjectEvidence {
    history: Vec<Commit>,
    documents: Documents,
    index: Index,
    touched: TouchedPaths,
    tracked: Tracked,
    /// The repository, for queries about commits that are not in `history`.
    git: Option<Git>,
    /// Hashes of the commits that were reverted or that revert others.
    reverted: HashSet<String>,
    notes: Vec<String>,
    /// Maximum number of candidates for a note.
    pub most_candidates: usize,
}

/// The evidence about one note.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The terms of the note.
    pub words: NoteTerms,
    /// Commits that may have done the work, best first.
    pub candidates: Vec<Candidate>,
    /// Tracked files mentioned in the note.
    pub paths: Vec<String>,
    /// Tracked files with the note's stem.
    pub namesakes: Vec<String>,
}

/// The folders and limits for gathering a project's evidence.
#[derive(Clone, Copy, Debug)]
pub struct EvidenceSource<'a> {
    pub limits: HistoryLimits,
    /// The folders of the project's own notes.
    pub notes: &'a [&'a str],
    /// The folder where the history is kept between runs; `None` if it is not kept.
    pub cache: Option<&'a Path>,
}

impl ProjectEvidence {
    /// Reads the history and the list of tracked files, and indexes them. A recorded run records
    /// the history as one input, and a replayed run reads it from the recording.
    ///
    /// # Errors
    /// Returns an [`EvidenceError`] if git fails, or if a recording has no usable history.
    pub fn open(
        git: &Git,
        source: EvidenceSource<'_>,
        recording: &InputRecording,
    ) -> Result<Self, EvidenceError> {
        let (commits, notes) = match recording.replays() {
            true => cache::recalled(recording)?,
            false => {
                let quiet = git.clone().with_recording(InputRecording::off());
                let read = Self::read(&quiet, source)?;
                cache::note(recording, &read.0, &read.1);
                read
            }
        };
        let documents = Documents::learn(&commits, source.notes);
        let history = History::of(commits, notes);
        let room = Self::indexed(history.commits, documents, history::tracked(git)?);
        Ok(Self {
            git: Some(git.clone()),
            reverted: history.reverted,
            notes: history.notes,
            ..room
        })
    }

    /// Reads the commits, including their added lines, and updates the cache.
    fn read(
        git: &Git,
        source: EvidenceSource<'_>,
    ) -> Result<(Vec<Commit>, Vec<String>), EvidenceError> {
        let mut cache = source.cache.map(HistoryCache::load).unwrap_or_default();
        let known = std::mem::take(&mut cache.commits);
        let (mut commits, mut notes) = history::extend(git, &source.limits, known)?;
        let documents = Documents::learn(&commits, source.notes);
        let mut current = HashSet::new();
        for commit in &mut commits {
            match cache.is_current(commit, &documents) {
                true => {
                    current.insert(commit.hash.clone());
                }
                false => commit.added = None,
            }
        }
        drop(cache);
        added::read(git, &mut commits, &documents, source.limits.files)?;
        let left = commits.iter().filter(|commit| commit.added.is_none()).count();
        if left > 0 {
            notes.push(format!(
                "the added lines of {} have not been read yet",
                counted(left, "commit")
            ));
        }
        let is_new = |commit: &Commit| commit.added.is_some() && !current.contains(&commit.hash);
        if let Some(cache) = source.cache
            && commits.iter().any(is_new)
        {
            HistoryCache::save(cache, &commits, is_new, &documents);
        }
        Ok((commits, notes))
    }

    /// Builds the evidence from a history and paths that have already been read.
    pub fn of(history: Vec<Commit>, tracked: Vec<String>) -> Self {
        let documents = Documents::learn(&history, &[]);
        Self::indexed(history, documents, tracked)
    }

    /// Builds the evidence from commits with these subjects, newest first. Each commit changes one
    /// file.
    #[cfg(test)]
    pub(crate) fn of_subjects(subjects: &[&str]) -> Self {
        let commit = |(at, subject): (usize, &&str)| Commit {
            hash: format!("{at:040x}"),
            at: 1_700_000_000 - at as i64,
            subject: (*subject).to_owned(),
            paths: vec![format!("src/file{at}.rs")],
            touched: 1,
            ..Commit::default()
        };
        Self::of(subjects.iter().enumerate().map(commit).collect(), Vec::new())
    }

    fn indexed(mut history: Vec<Commit>, documents: Documents, tracked: Vec<String>) -> Self {
        let index = Index::build(&mut history, &documents);
        Self {
            index,
            touched: TouchedPaths::build(&history),
            history,
            documents,
            tracked: Tracked::new(tracked),
            git: None,
            reverted: HashSet::new(),
            notes: Vec::new(),
            most_candidates: CANDIDATES,
        }
    }

    /// Returns the evidence from before the commit at index `at`: without that commit, any newer
    /// commit and the list of tracked files.
    #[must_use]
    pub fn before(&self, at: usize) -> Self {
        let mut history = self.history.get(at + 1..).unwrap_or_default().to_vec();
        for (commit, terms) in
            history.iter_mut().zip(self.index.added_terms().into_iter().skip(at + 1))
        {
            if let Some(added) = &mut commit.added {
                added.terms = terms;
            }
        }
        Self::indexed(history, self.documents.clone(), Vec::new())
    }

    /// Returns the evidence about the note at `path` with this text. `born` is a time at which the
    /// note did not exist yet, in seconds since the epoch, if one is known.
    pub fn about(&self, path: &str, text: &str, born: Option<i64>) -> Evidence {
        let words = NoteTerms::of(path, text);
        let most = self.most_candidates;
        let candidates = candidates(self.compared(), (path, text), &words, born, most);
        let own = |paths: Vec<&str>| -> Vec<String> {
            paths.into_iter().filter(|found| *found != path).map(str::to_owned).collect()
        };
        let paths = own(self.tracked.named_in(text, PATHS));
        let namesakes = own(self.tracked.with_stem(places::stem(path), PATHS));
        Evidence { words, candidates, paths, namesakes }
    }

    fn compared(&self) -> Compared<'_> {
        Compared { index: &self.index, touched: &self.touched, history: &self.history }
    }

    /// Frees the index, which accounts for a third of a long history's memory. Commits and paths
    /// can still be looked up, but [`about`](Self::about) no longer finds candidates.
    pub fn drop_index(&mut self) {
        self.index = Index::default();
    }

    /// Returns whether the file at this path is a document. Changes to documents prove nothing
    /// about a note.
    pub fn is_document(&self, path: &str) -> bool {
        self.documents.contains(path)
    }

    /// Returns the commit of a candidate.
    pub fn commit(&self, candidate: &Candidate) -> &Commit {
        &self.history[candidate.at]
    }

    /// Returns the commits in effect that were read, newest first.
    pub fn history(&self) -> &[Commit] {
        &self.history
    }

    /// Returns the newest commit whose hash begins with `prefix`. Returns `None` if there is no
    /// such commit, or if `prefix` does not consist of at least 7 hex digits.
    pub fn commit_named(&self, prefix: &str) -> Option<&Commit> {
        let good = prefix.len() >= 7 && prefix.bytes().all(|byte| byte.is_ascii_hexdigit());
        let prefix = prefix.to_ascii_lowercase();
        good.then(|| self.history.iter().find(|commit| commit.hash.starts_with(&prefix)))?
    }

    /// Asks git whether a commit with this prefix is reachable from `HEAD`, because the commit may
    /// not be in the history that was read. Returns false for a reverted commit, or if git fails.
    pub fn commit_elsewhere(&self, prefix: &str) -> bool {
        let Some(git) = &self.git else { return false };
        let Ok(Some(hash)) = git.commit(prefix) else {
            return false;
        };
        !self.reverted.contains(&hash) && git.leads_to(&hash, "HEAD").unwrap_or(false)
    }

    /// Returns one line for each part of the history that was not read, with the reason.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns whether this path is tracked, or is a folder of tracked files.
    pub fn has_path(&self, path: &str) -> bool {
        self.tracked.has(path)
    }

    /// Returns whether this path, or a file below it, is in the history that was read, even if it
    /// no longer exists.
    pub fn had_path(&self, path: &str) -> bool {
        self.touched.has(path)
    }
}
