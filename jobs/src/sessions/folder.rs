//! The analysis files in a project, and the check that they were written by runner.
//!
//! ```text
//! <folder>/sessions/<id>.json    the findings of a session, with its cursor
//! <folder>/artifacts/<id>.json   an artifact
//! <folder>/decisions.json        the user's decisions on artifacts
//! <folder>/retired.json          the counts of sessions whose findings were removed
//! <folder>/resume.json           the resume packet
//! <folder>/hints.json            the hints for the guard hook
//! <state>/sessions.json          the digests of these files, outside of the project
//! ```
//!
//! A file whose digest runner did not record is reported but never used.
//! Before files are published, their new digests are written together with the previous ones, so
//! one of the two matches whichever version survives a crash.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::files::{read_host, read_in, write_atomic};
use serde::{Deserialize, Serialize};

use super::artifact::{Artifact, Counts};
use super::fold::Decisions;
use super::record::SessionRecord;
use super::resume::Packet;

/// The name of the digest file.
const DIGESTS: &str = "sessions.json";
/// Maximum size of a file in bytes.
const LARGEST: u64 = 2 << 20;
/// Maximum size of the digest file, in bytes.
const DIGESTS_LARGEST: u64 = 8 << 20;
/// Maximum number of files in one folder.
const MOST: usize = 10_000;

/// For each file that runner wrote, the digests of its previous content and of the content that
/// replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests(BTreeMap<String, Vec<String>>);

impl Digests {
    /// Reads the digests of a project. `state` is the project's folder in runner's state folder.
    pub fn load(state: &Path) -> Self {
        let bytes = read_host(state.join(DIGESTS), DIGESTS_LARGEST).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Returns whether runner wrote this content.
    pub fn knows(&self, path: &str, bytes: &[u8]) -> bool {
        let digest = Digest::of(bytes).to_string();
        self.0.get(path).is_some_and(|known| known.contains(&digest))
    }

    /// Adds the digest of the content that is about to be published, and keeps the digest of the
    /// current file.
    pub fn note(&mut self, path: &str, bytes: &[u8], current: Option<Digest>) {
        let known = current.into_iter().chain([Digest::of(bytes)]);
        self.0.insert(path.to_owned(), known.map(|digest| digest.to_string()).collect());
    }

    /// Keeps only the digests of the paths for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|path, _| keep(path));
    }

    /// Writes the digests.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&self, state: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        fs::create_dir_all(state)?;
        write_atomic(&state.join(DIGESTS), &bytes, 0o600).map_err(io::Error::other)
    }
}

/// A session whose findings were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    pub session: String,
    /// The counts that the session added to each artifact, keyed by artifact id.
    pub counts: BTreeMap<String, Counts>,
}

/// The analysis files.
#[derive(Clone, Debug, Default)]
pub struct SessionFolder {
    pub records: BTreeMap<String, SessionRecord>,
    pub artifacts: Vec<Artifact>,
    /// Artifacts that runner did not write, or that another program has since changed.
    pub unknown: Vec<Artifact>,
    pub decisions: Decisions,
    /// The sessions whose findings were removed, oldest removal first.
    pub retired: Vec<Retired>,
    pub packet: Option<Packet>,
    /// Files without a recorded digest and invalid artifacts, with the reason why each is not used.
    pub problems: Vec<String>,
    /// The digest of each file written by runner, keyed by path.
    pub files: BTreeMap<String, Digest>,
    /// Whether runner did not record the content of an existing `decisions.json`. Such a file must
    /// not be replaced.
    pub are_decisions_unknown: bool,
}

impl SessionFolder {
    /// Reads the files inside `folder` in the project. Missing, unreadable and invalid files are
    /// treated as empty.
    pub fn load(root: &Path, folder: &str, digests: &Digests) -> Self {
        let mut found = Self::default();
        for path in below(root, &format!("{folder}/sessions")) {
            if let Some(bytes) = found.read(root, &path, digests)
                && let Ok(record) = serde_json::from_slice::<SessionRecord>(&bytes)
            {
                found.records.insert(record.session.clone(), record);
            }
        }
        for path in below(root, &format!("{folder}/artifacts")) {
            let Ok(bytes) = read_in(root, &path, LARGEST) else { continue };
            let Some(artifact) = Artifact::read(&bytes) else {
                found.problems.push(format!("{path} is not an artifact"));
                continue;
            };
            if digests.knows(&path, &bytes) {
                found.files.insert(path, Digest::of(&bytes));
                found.artifacts.push(artifact);
            } else {
                found.unknown.push(artifact);
            }
        }
        let mut one = |name: &str| found.read(root, &format!("{folder}/{name}"), digests);
        let decisions = one("decisions.json");
        let is_unknown = decisions.is_none()
            && root.join(folder).join("decisions.json").symlink_metadata().is_ok();
        let retired = one("retired.json");
        let packet = one("resume.json");
        // Each run derives the hints again, so only the digest of the file is needed.
        let _hints = one("hints.json");
        let parsed = decisions.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        found.decisions = parsed.unwrap_or_default();
        let parsed = retired.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        found.retired = parsed.unwrap_or_default();
        found.packet = packet.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        found.are_decisions_unknown = is_unknown;
        found
    }

    /// Reads one file, or returns `None` if it is missing or not written by runner.
    fn read(&mut self, root: &Path, path: &str, digests: &Digests) -> Option<Vec<u8>> {
        let bytes = read_in(root, path, LARGEST).ok()?;
        if !digests.knows(path, &bytes) {
            self.problems
                .push(format!("{path} is not used, because runner did not record its content"));
            return None;
        }
        self.files.insert(path.to_owned(), Digest::of(&bytes));
        Some(bytes)
    }

    /// Returns the records, ordered by the end times of their sessions.
    pub fn in_order(&self) -> Vec<&SessionRecord> {
        let mut all: Vec<&SessionRecord> = self.records.values().collect();
        all.sort_by(|a, b| a.ended_at.cmp(&b.ended_at).then(a.session.cmp(&b.session)));
        all
    }
}

/// Returns the sorted paths of the JSON files in a folder, relative to the root.
fn below(root: &Path, folder: &str) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let names = fs::read_dir(root.join(folder)).into_iter().flatten().flatten().filter_map(name);
    let mut paths: Vec<String> = names
        .filter(|name| name.ends_with(".json") && !name.starts_with('.'))
        .take(MOST)
        .map(|name| format!("{folder}/{name}"))
        .collect();
    paths.sort();
    paths
}

/// Returns a project's resume packet, formatted for a new session, in at most 2,000 bytes, or
/// `None` if there is none or if another program has changed it.
///
/// `state` is the project's folder in runner's state folder. This function reads two small files
/// and writes nothing.
pub fn resume_packet(root: &Path, state: &Path) -> Option<String> {
    let bytes = read_known(root, &Digests::load(state), "/resume.json")?;
    let packet: Packet = serde_json::from_slice(&bytes).ok()?;
    Some(packet.render())
}

/// Reads the newest file whose path ends with `name` and whose content runner wrote.
///
/// Several folders have such a file if several jobs write them, or if the setting was changed.
pub(super) fn read_known(root: &Path, digests: &Digests, name: &str) -> Option<Vec<u8>> {
    let known = digests.0.keys().filter(|path| path.ends_with(name)).filter_map(|path| {
        let bytes = read_in(root, PathBuf::from(path), LARGEST).ok()?;
        let modified = root.join(path).metadata().and_then(|it| it.modified()).ok();
        digests.knows(path, &bytes).then_some((modified, bytes))
    });
    known.max_by_key(|(modified, _)| *modified).map(|(_, bytes)| bytes)
}
