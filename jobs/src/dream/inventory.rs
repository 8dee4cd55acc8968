//! Lists all ideas with the digests of their contents. A file is read only if the stat cache has no
//! valid entry for it.
//!
//! ```text
//! walk ──> known to the cache? ──yes──> digest                        (nothing is opened)
//!                              └─no──> read ──> idea | runner's own | trouble
//! ```
//!
//! An inventory must never open a file twice or keep its text. If no idea has changed, it only
//! walks the tree and compares stat data.

use std::io::Read;
use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::publish::{RealFs, RelPath};
use runner_engine::recording::InputRecording;
use runner_text::front_matter;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::spec::DreamSpec;
use super::stat_cache::{self, CachedFile, StatCache};
use super::walk::{IdeaFile, Stat, WalkProblem, too_long, walk};

/// The recording key for the ideas that were read.
const INPUT: &str = "idea";

/// An idea that could be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idea {
    /// The path of the idea, relative to the project.
    pub path: Box<str>,
    /// The file's stat data at the time of the read.
    pub stat: Stat,
    /// Digest of the complete content.
    pub digest: Digest,
}

/// The ideas of a project at the time of one inventory.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// All ideas, sorted by path.
    pub ideas: Vec<Idea>,
    /// The files that could not be read as ideas, sorted by path.
    pub troubles: Vec<WalkProblem>,
    /// Number of files that were left out because runner wrote them and the user did not edit them.
    pub own: usize,
    /// Number of files for which the cache had no valid entry.
    pub read: usize,
    /// The new content of the cache, if it must be rewritten.
    #[serde(skip)]
    pub cache: Option<Vec<u8>>,
    /// The digest of the current content of the cache; `None` if the cache has no content.
    #[serde(skip)]
    pub cache_digest: Option<Digest>,
}

/// Lists the ideas of the project at `root`. `cache` is the path of the stat cache.
///
/// # Errors
/// Returns an error if the project's folder cannot be opened.
pub fn take_inventory(
    root: &Path,
    spec: &DreamSpec,
    cache: &Path,
) -> Result<Inventory, runner_engine::publish::FsError> {
    let walked = walk(root, spec);
    let cache = StatCache::load(cache);
    let reader = Reader::open(root, spec.max_idea_bytes)?;
    let mut survey = Inventory { troubles: walked.troubles, ..Inventory::default() };
    survey.ideas.reserve_exact(walked.found.len());
    // Files that are not ideas. The cache records them too.
    let mut others: Vec<(Box<str>, Stat, CachedFile)> = Vec::new();
    let mut next = 0;
    for IdeaFile { path, stat } in walked.found {
        let (stat, known) = match cache.get(&path, &stat, &mut next) {
            Some(known) => (stat, known),
            None => {
                survey.read += 1;
                match reader.read(&path) {
                    Ok((bytes, stat)) => (stat, what_is(&bytes)),
                    Err(problem) => {
                        let (path, why) = (path.into(), problem.to_string());
                        survey.troubles.push(WalkProblem { path, why });
                        continue;
                    }
                }
            }
        };
        match known {
            CachedFile::Idea(digest) => survey.ideas.push(Idea { path, stat, digest }),
            CachedFile::Own => {
                survey.own += 1;
                others.push((path, stat, known));
            }
            CachedFile::NotText => {
                survey
                    .troubles
                    .push(WalkProblem { path: path.to_string(), why: "is not UTF-8".to_owned() });
                others.push((path, stat, known));
            }
        }
    }
    survey.troubles.sort_unstable();
    if survey.read > 0 || cache.len() != survey.ideas.len() + others.len() {
        let ideas =
            survey.ideas.iter().map(|idea| (&*idea.path, idea.stat, CachedFile::Idea(idea.digest)));
        let others = others.iter().map(|(path, stat, known)| (&**path, *stat, *known));
        let mut all: Vec<_> = ideas.chain(others).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        survey.cache = Some(stat_cache::encode(all.into_iter()));
    }
    survey.cache_digest = match &survey.cache {
        Some(bytes) => stat_cache::digest_of(bytes),
        None => cache.digest(),
    };
    Ok(survey)
}

fn what_is(bytes: &[u8]) -> CachedFile {
    match std::str::from_utf8(bytes) {
        Err(_) => CachedFile::NotText,
        Ok(text) if is_own(text) => CachedFile::Own,
        Ok(_) => CachedFile::Idea(Digest::of(bytes)),
    }
}

/// Returns whether runner wrote this text and no one has changed it since. Its front matter must
/// have `generated_by: runner` or `provenance: runner`, alone or followed by more words, and its
/// body must still match the recorded `body_sha256`. A text without that digest is not runner's
/// own, because someone may have changed it.
pub fn is_own(text: &str) -> bool {
    let doc = front_matter::split(text);
    let is_runner = |key: &str| {
        doc.get(key).is_some_and(|value| {
            let rest = value.strip_prefix("runner");
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    };
    if !is_runner("generated_by") && !is_runner("provenance") {
        return false;
    }
    doc.get("body_sha256").is_some_and(|sum| sum == Digest::of(doc.body().as_bytes()).to_string())
}

/// Why a file could not be read. The message completes a sentence that begins with the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    #[error("is gone")]
    Gone,
    #[error("{0}")]
    Unreadable(String),
}

impl ReadProblem {
    /// Parses the problem from the text in a recording.
    fn of(recorded: &str) -> Self {
        let gone = Self::Gone;
        if recorded == gone.to_string() { gone } else { Self::Unreadable(recorded.to_owned()) }
    }
}

/// Reads ideas below an open folder. It follows no links, enters no mounts, opens no devices and
/// returns no file that is longer than its limit.
#[derive(Debug)]
pub struct Reader {
    fs: RealFs,
    most: u64,
    recording: InputRecording,
}

impl Reader {
    /// Opens the project's folder. The reader refuses files of more than `most` bytes.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened.
    pub fn open(root: &Path, most: u64) -> Result<Self, runner_engine::publish::FsError> {
        Ok(Self { fs: RealFs::open(root)?, most, recording: InputRecording::off() })
    }

    /// Sets the recording that the reader records to or replays.
    #[must_use]
    pub fn with_recording(mut self, recording: InputRecording) -> Self {
        self.recording = recording;
        self
    }

    /// Returns the content of an idea and its stat data at the time of the read.
    ///
    /// # Errors
    /// Returns [`ReadProblem::Gone`] if the idea does not exist. Returns
    /// [`ReadProblem::Unreadable`] if the idea is not a regular file, is too long or cannot be
    /// read, or if the recording that is replayed does not contain it.
    pub fn read(&self, path: &str) -> Result<(Vec<u8>, Stat), ReadProblem> {
        let (bytes, stat, _) = self.inspect(path)?;
        Ok((bytes, stat))
    }

    /// Reads an idea like [`Reader::read`]. If the content is replayed, also returns the recorded
    /// digest.
    fn inspect(&self, path: &str) -> Result<(Vec<u8>, Stat, Option<Digest>), ReadProblem> {
        if self.recording.replays() {
            return self.recalled(path);
        }
        let done = self.read_now(path);
        if self.recording.records() {
            let (facts, bytes) = match &done {
                Ok((bytes, stat)) => (json!({ "stat": stat }), Some(bytes.as_slice())),
                Err(problem) => (json!({ "why": problem.to_string() }), None),
            };
            self.recording.note(INPUT, path, facts, bytes);
        }
        done.map(|(bytes, stat)| (bytes, stat, None))
    }

    fn recalled(&self, path: &str) -> Result<(Vec<u8>, Stat, Option<Digest>), ReadProblem> {
        let answer = self.recording.recall(INPUT, path);
        let mut answer = answer.map_err(|error| ReadProblem::Unreadable(error.to_string()))?;
        let stat = serde_json::from_value(answer.facts["stat"].take());
        match (answer.content, stat) {
            (Some((digest, bytes)), Ok(stat)) => Ok((bytes, stat, Some(digest))),
            _ => {
                let why = answer.facts["why"].as_str();
                Err(ReadProblem::of(why.unwrap_or("the recording gives no reason")))
            }
        }
    }

    fn read_now(&self, path: &str) -> Result<(Vec<u8>, Stat), ReadProblem> {
        let cannot =
            |why: &dyn std::fmt::Display| ReadProblem::Unreadable(format!("cannot be read: {why}"));
        let rel = RelPath::new(path).map_err(|bad| cannot(&bad.why))?;
        let regular = self.fs.regular(&rel).map_err(|error| cannot(&error.trouble))?;
        let Some(mut regular) = regular else {
            return Err(ReadProblem::Gone);
        };
        let stat = Stat::of(&regular.file.metadata().map_err(|error| cannot(&error))?);
        let mut bytes = Vec::with_capacity(usize::try_from(stat.size.min(self.most)).unwrap_or(0));
        let read = (&mut regular.file).take(self.most + 1).read_to_end(&mut bytes);
        read.map_err(|error| cannot(&error))?;
        if bytes.len() as u64 > self.most {
            return Err(ReadProblem::Unreadable(too_long(stat.size, self.most)));
        }
        Ok((bytes, stat))
    }

    /// Returns the current digest of an idea.
    ///
    /// # Errors
    /// Returns the same errors as [`Reader::read`].
    pub fn digest(&self, path: &str) -> Result<Digest, ReadProblem> {
        let (bytes, _, digest) = self.inspect(path)?;
        Ok(digest.unwrap_or_else(|| Digest::of(&bytes)))
    }

    /// Returns the text of an idea with its stat data and digest.
    ///
    /// # Errors
    /// Returns the same errors as [`Reader::read`], and an error if the content is not UTF-8.
    pub fn text(&self, path: &str) -> Result<(String, Stat, Digest), String> {
        let (bytes, stat, digest) = self.inspect(path).map_err(|problem| problem.to_string())?;
        let digest = digest.unwrap_or_else(|| Digest::of(&bytes));
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
        Ok((text, stat, digest))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::FileTimes;
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Place {
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("ideas")).unwrap();
            Self { folder }
        }

        /// Writes an idea with an old modification time.
        fn write(&self, name: &str, bytes: &[u8]) {
            let path = self.folder.path().join("ideas").join(name);
            fs::write(&path, bytes).unwrap();
            date(&path, 1_000_000_000);
        }

        /// Takes an inventory and saves the cache.
        fn pass_now(&self) -> Inventory {
            let cache = self.folder.path().join("cache");
            let survey = take_inventory(self.folder.path(), &DreamSpec::default(), &cache).unwrap();
            if let Some(bytes) = &survey.cache {
                fs::write(&cache, bytes).unwrap();
            }
            survey
        }

        /// Takes an inventory and saves the cache as if it had been written much later, so that no
        /// entry is racy.
        fn pass(&self) -> Inventory {
            let survey = self.pass_now();
            date(&self.folder.path().join("cache"), 5_000_000_000);
            survey
        }
    }

    fn date(path: &Path, seconds: u64) {
        let file = fs::File::options().write(true).open(path).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_times(FileTimes::new().set_modified(then)).unwrap();
    }

    #[test]
    fn unchanged_ideas_are_not_read_again() {
        let place = Place::new();
        place.write("a.md", b"one");
        place.write("b.md", b"\xff\xfe");
        let sum = Digest::of(b"x");
        let own = format!("---\ngenerated_by: runner\nbody_sha256: {sum}\n---\nx");
        place.write("c.md", own.as_bytes());
        let first = place.pass();
        assert_eq!((first.ideas.len(), first.read, first.own, first.troubles.len()), (1, 3, 1, 1));
        assert_eq!(first.ideas[0].digest, Digest::of(b"one"));
        let second = place.pass();
        assert_eq!((second.read, second.cache.is_some()), (0, false));
        assert_eq!((second.ideas, second.own, second.troubles), (first.ideas, 1, first.troubles));
        place.write("a.md", b"three");
        let third = place.pass();
        assert_eq!((third.read, third.ideas[0].digest), (1, Digest::of(b"three")));
        fs::remove_file(place.folder.path().join("ideas/b.md")).unwrap();
        let fourth = place.pass();
        assert_eq!((fourth.read, fourth.cache.is_some(), fourth.troubles.len()), (0, true, 0));
    }

    #[test]
    fn change_with_same_size_and_mtime_is_detected() {
        let place = Place::new();
        place.write("a.md", b"one");
        place.pass_now();
        place.write("a.md", b"two");
        assert_eq!(place.pass_now().ideas[0].digest, Digest::of(b"two"));
    }

    #[test]
    fn only_unmodified_generated_files_are_own() {
        let own_with = |line: &str| {
            let sum = Digest::of(b"x");
            is_own(&format!("---\n{line}\nbody_sha256: {sum}\n---\nx"))
        };
        assert!(own_with("generated_by: runner"));
        assert!(own_with("provenance: runner dream 0.1"));
        for other in ["runners", "runner-up", "runner's friend", "runner, and me", "me"] {
            assert!(!own_with(&format!("provenance: {other}")), "{other}");
        }
        assert!(!is_own("generated_by: runner\n"));
        let unsummed = "---\ngenerated_by: runner\n---\nx";
        assert!(!is_own(unsummed), "without a digest, someone may have edited the text");
        let sum = Digest::of(b"body\n");
        assert!(is_own(&format!("---\ngenerated_by: runner\nbody_sha256: {sum}\n---\nbody\n")));
        assert!(!is_own(&format!(
            "---\ngenerated_by: runner\nbody_sha256: {sum}\n---\nbody, changed\n"
        )));
    }

    #[test]
    fn reader_enforces_size_limit_and_refuses_links() {
        let place = Place::new();
        let root = place.folder.path();
        place.write("a.md", b"12345");
        std::os::unix::fs::symlink("a.md", root.join("ideas/l.md")).unwrap();
        let reader = Reader::open(root, 4).unwrap();
        let problem = |path: &str| reader.read(path).unwrap_err().to_string();
        assert_eq!(problem("ideas/a.md"), "is 5 bytes long; the limit is 4");
        assert!(problem("ideas/l.md").contains("symbolic link"));
        assert_eq!(problem("ideas/none.md"), "is gone");
        assert_eq!(reader.read("ideas/none.md").unwrap_err(), ReadProblem::of("is gone"));
        assert!(reader.read("../etc/passwd").is_err());
        assert_eq!(Reader::open(root, 5).unwrap().digest("ideas/a.md"), Ok(Digest::of(b"12345")));
    }
}
