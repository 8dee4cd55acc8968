//! The commits of a project that were read before, with the terms of their added lines.
//!
//! Reading the lines that 40,000 commits added takes half a minute; a commit never changes, so it
//! is read once. The file holds a line of JSON for each commit, after a line with the format and
//! the folders of documents. A damaged line is dropped and its commit is read again. The file is a
//! cache: it must never be the only place of a fact.

use std::collections::HashMap;
use std::path::Path;

use runner_engine::files::{read_host, write_atomic};
use runner_engine::recording::InputRecording;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EvidenceError;
use super::documents::Documents;
use super::history::Commit;

/// Changes with the format and with what is read from a commit.
const FORMAT: u32 = 1;
/// Maximum size of the file in bytes.
const LONGEST: u64 = 512 * 1024 * 1024;
/// Maximum number of commits of a history that is recorded.
const RECORDED: usize = 10_000;
/// The name of the history in a recording.
const INPUT: &str = "history";

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    documents: String,
}

/// The content of the file.
#[derive(Debug, Default)]
pub struct HistoryCache {
    /// The commits by their hash.
    pub commits: HashMap<String, Commit>,
    /// What counted as a document when the added lines were read.
    pub documents: String,
}

impl HistoryCache {
    /// Reads the file. A missing or damaged file, or another format, yields an empty cache.
    pub fn load(path: &Path) -> Self {
        let bytes = read_host(path, LONGEST).unwrap_or_default();
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let head = lines.next().and_then(|line| serde_json::from_slice::<Head>(line).ok());
        let Some(head) = head.filter(|head| head.format == FORMAT) else {
            return Self::default();
        };
        let commits = lines.filter_map(|line| serde_json::from_slice::<Commit>(line).ok());
        let commits = commits.map(|commit| (commit.hash.clone(), commit)).collect();
        Self { commits, documents: head.documents }
    }
}

/// Writes the commits that are still reachable. A failure only costs time.
pub(super) fn save(path: &Path, commits: &[Commit], documents: &Documents) {
    let head = Head { format: FORMAT, documents: documents.signature() };
    let mut bytes = serde_json::to_vec(&head).expect("numbers and texts are JSON");
    bytes.push(b'\n');
    encode(commits, &mut bytes);
    if let Err(error) = write_atomic(path, &bytes, 0o600) {
        tracing::warn!(%error, "the history could not be kept");
    }
}

fn encode(commits: &[Commit], bytes: &mut Vec<u8>) {
    for commit in commits {
        serde_json::to_writer(&mut *bytes, commit).expect("a commit is JSON");
        bytes.push(b'\n');
    }
}

/// Adds the history to the recording of a run. A long history is left out, because it would take as
/// much memory again; its run cannot be replayed.
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

/// Returns the history that the recorded run had.
pub(super) fn recalled(
    recording: &InputRecording,
) -> Result<(Vec<Commit>, Vec<String>), EvidenceError> {
    let wrong = |error: &dyn std::fmt::Display| EvidenceError::Recorded(error.to_string());
    let answer = recording.recall(INPUT, "").map_err(|error| wrong(&error))?;
    let notes = serde_json::from_value(answer.facts).map_err(|error| wrong(&error))?;
    let Some((_, bytes)) = answer.content else {
        return Err(wrong(&format!("histories of more than {RECORDED} commits are not kept")));
    };
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let commits = lines.map(serde_json::from_slice).collect::<Result<Vec<Commit>, _>>();
    Ok((commits.map_err(|error| wrong(&error))?, notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::added::AddedText;

    #[test]
    fn damaged_lines_lose_only_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let commit = |hash: char| Commit {
            hash: hash.to_string().repeat(40),
            subject: "feat: x".into(),
            added: Some(AddedText { terms: vec![1, 7], whole: true, prose: false }),
            ..Commit::default()
        };
        let commits = [commit('a'), commit('b')];
        save(&path, &commits, &Documents::default());
        let found = HistoryCache::load(&path);
        assert_eq!(found.commits.len(), 2);
        assert_eq!(found.commits[&commits[0].hash], commits[0]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(HistoryCache::load(&path).commits.len(), 1);
        std::fs::write(&path, text.replacen("\"format\":1", "\"format\":0", 1)).unwrap();
        assert!(HistoryCache::load(&path).commits.is_empty());
        assert!(HistoryCache::load(&folder.path().join("none")).commits.is_empty());
    }
}
