//! A cache of the commits that earlier runs read, with the terms of their added lines.
//!
//! Reading the lines that 40,000 commits added takes half a minute. A commit never changes, so its
//! added lines are read again only if other files now count as documents. The cache is a folder of
//! numbered files. Each file contains a line with the format and the document folders, followed by
//! one line of JSON per commit. A run that reads new commits adds files, so that it writes only the
//! new commits. A damaged line is dropped and its commit is read again. The folder is a cache: it
//! must never hold the only copy of a fact.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::files::{read_host, write_atomic};
use runner_engine::recording::InputRecording;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EvidenceError;
use super::commit::Commit;
use super::documents::Documents;

/// The version of the format and of the data read from a commit.
const FORMAT: u32 = 2;
/// Maximum size of a file in bytes.
const LONGEST: u64 = 64 * 1024 * 1024;
/// Maximum number of commits in one file.
const COMMITS: usize = 2000;
/// Number of files at which the whole cache is rewritten.
const FILES: usize = 100;
/// Maximum number of commits in a history that is recorded.
const RECORDED: usize = 10_000;
/// The recording key for the history.
const INPUT: &str = "history";

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    documents: Documents,
}

/// The content of the cache.
#[derive(Debug, Default)]
pub struct HistoryCache {
    /// The commits by their hash.
    pub commits: HashMap<String, Commit>,
    /// The documents at the time when the added lines were read. Consecutive cache files with the
    /// same documents share an entry.
    documents: Vec<Documents>,
    /// For each commit, the index of its entry in `documents`.
    read_with: HashMap<String, usize>,
    /// The files, in the order in which they were written.
    files: Vec<PathBuf>,
}

impl HistoryCache {
    /// Reads the cache in a folder. Missing and damaged files, and files in another format, are
    /// skipped.
    pub fn load(folder: &Path) -> Self {
        let mut cache = Self { files: files(folder), ..Self::default() };
        // Data from a newer file replaces data from an older one.
        for path in cache.files.iter().rev() {
            let bytes = read_host(path, LONGEST).unwrap_or_default();
            let mut lines = bytes.split(|byte| *byte == b'\n');
            let head = lines.next().and_then(|line| serde_json::from_slice::<Head>(line).ok());
            let Some(head) = head.filter(|head| head.format == FORMAT) else { continue };
            if cache.documents.last() != Some(&head.documents) {
                cache.documents.push(head.documents);
            }
            let with = cache.documents.len() - 1;
            for commit in lines.filter_map(|line| serde_json::from_slice::<Commit>(line).ok()) {
                if !cache.read_with.contains_key(&commit.hash) {
                    cache.read_with.insert(commit.hash.clone(), with);
                    cache.commits.insert(commit.hash.clone(), commit);
                }
            }
        }
        cache
    }

    /// Returns whether a commit's added lines were read and are still valid for these `documents`.
    /// They are treated as valid if none of the commit's paths became a document or stopped being
    /// one.
    pub(super) fn is_current(&self, commit: &Commit, documents: &Documents) -> bool {
        let Some(with) = self.read_with.get(&commit.hash).map(|with| &self.documents[*with]) else {
            return false;
        };
        let same = |path: &String| with.contains(path) == documents.contains(path);
        commit.added.is_some() && (with == documents || commit.paths.iter().all(same))
    }

    /// Writes the new commits or, if the cache has at least [`FILES`] files, rewrites all commits.
    /// A failure only costs time.
    pub(super) fn save(
        folder: &Path,
        commits: &[Commit],
        is_new: impl Fn(&Commit) -> bool,
        documents: &Documents,
    ) {
        let old = files(folder);
        let anew = old.len() >= FILES;
        let written: Vec<&Commit> =
            commits.iter().filter(|commit| anew || is_new(commit)).collect();
        let next = old.last().and_then(|last| number(last)).map_or(0, |last| last + 1);
        let head = Head { format: FORMAT, documents: documents.clone() };
        for (at, some) in written.chunks(COMMITS).enumerate() {
            let mut bytes = serde_json::to_vec(&head).expect("a head always serializes to JSON");
            bytes.push(b'\n');
            encode(some.iter().copied(), &mut bytes);
            let path = folder.join(format!("{:06}", next + at));
            let made = fs::create_dir_all(folder).map_err(|error| error.to_string());
            let done = made.and_then(|()| {
                write_atomic(&path, &bytes, 0o600).map_err(|error| error.to_string())
            });
            if let Err(error) = done {
                tracing::warn!(error, "the history could not be saved");
                return;
            }
        }
        for path in old.iter().filter(|_| anew) {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, "an old file of the history cache could not be removed");
            }
        }
    }
}

/// Returns the cache files in numerical order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| number(path).is_some()).collect();
    files.sort();
    files
}

fn number(path: &Path) -> Option<usize> {
    path.file_name()?.to_str()?.parse().ok()
}

fn encode<'a>(commits: impl IntoIterator<Item = &'a Commit>, bytes: &mut Vec<u8>) {
    for commit in commits {
        serde_json::to_writer(&mut *bytes, commit).expect("a commit always serializes to JSON");
        bytes.push(b'\n');
    }
}

/// Adds the history to the recording of a run. A long history is left out, because recording it
/// would take as much memory again. A run with such a history cannot be replayed.
pub(super) fn note(recording: &InputRecording, commits: &[Commit], notes: &[String]) {
    if !recording.records() {
        return;
    }
    if commits.len() > RECORDED {
        return recording.note(INPUT, "", json!(notes), None);
    }
    let mut bytes = Vec::new();
    encode(commits, &mut bytes);
    recording.note(INPUT, "", json!(notes), Some(&bytes));
}

/// Returns the history that was recorded, with its notes.
///
/// # Errors
/// Returns [`EvidenceError::Recorded`] if the recording has no usable history.
pub(super) fn recalled(
    recording: &InputRecording,
) -> Result<(Vec<Commit>, Vec<String>), EvidenceError> {
    let wrong = |error: &dyn std::fmt::Display| EvidenceError::Recorded(error.to_string());
    let answer = recording.recall(INPUT, "").map_err(|error| wrong(&error))?;
    let notes = serde_json::from_value(answer.facts).map_err(|error| wrong(&error))?;
    let Some((_, bytes)) = answer.content else {
        return Err(wrong(&format!("histories of more than {RECORDED} commits are not recorded")));
    };
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let commits = lines.map(serde_json::from_slice).collect::<Result<Vec<Commit>, _>>();
    Ok((commits.map_err(|error| wrong(&error))?, notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::commit::AddedText;

    fn commit(hash: char) -> Commit {
        Commit {
            hash: hash.to_string().repeat(40),
            subject: "feat: x".into(),
            added: Some(AddedText { terms: vec![1, 7], whole: true, prose: false }),
            ..Commit::default()
        }
    }

    #[test]
    fn damaged_line_loses_only_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        let commits = [commit('a'), commit('b')];
        HistoryCache::save(folder.path(), &commits, |_| true, &Documents::default());
        let found = HistoryCache::load(folder.path());
        assert_eq!(found.commits.len(), 2);
        assert_eq!(found.commits[&commits[0].hash], commits[0]);
        let path = &found.files[0];
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, &text[..text.len() - 9]).unwrap();
        assert_eq!(HistoryCache::load(folder.path()).commits.len(), 1);
        std::fs::write(path, text.replacen("\"format\":2", "\"format\":0", 1)).unwrap();
        assert!(HistoryCache::load(folder.path()).commits.is_empty());
        assert!(HistoryCache::load(&folder.path().join("none")).commits.is_empty());
    }

    #[test]
    fn only_new_commits_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut commits = vec![commit('a')];
        HistoryCache::save(folder.path(), &commits, |_| true, &Documents::default());
        commits.push(commit('b'));
        let b = commits[1].hash.clone();
        HistoryCache::save(folder.path(), &commits, |it| it.hash == b, &Documents::default());
        let found = HistoryCache::load(folder.path());
        assert_eq!((found.commits.len(), found.files.len()), (2, 2));
        assert!(!std::fs::read_to_string(&found.files[1]).unwrap().contains(&commits[0].hash));
        for _ in 0..FILES {
            HistoryCache::save(folder.path(), &commits, |it| it.hash == b, &Documents::default());
        }
        let found = HistoryCache::load(folder.path());
        assert!(found.files.len() < FILES && found.commits.len() == 2);
    }

    #[test]
    fn added_lines_depend_on_what_is_a_document() {
        let folder = tempfile::tempdir().unwrap();
        let touching = |hash: char, path: &str| Commit { paths: vec![path.into()], ..commit(hash) };
        let commits = [touching('a', "plans/x.yaml"), touching('b', "src/x.rs")];
        HistoryCache::save(folder.path(), &commits, |_| true, &Documents::default());
        let found = HistoryCache::load(folder.path());
        let plans = Documents::learn(&[], &["plans"]);
        let current =
            |documents: &Documents| commits.each_ref().map(|it| found.is_current(it, documents));
        assert_eq!(current(&Documents::default()), [true, true]);
        assert_eq!(current(&plans), [false, true], "a plan was read as code");
        assert!(!found.is_current(&commit('c'), &plans), "the commit was never read");
    }
}
