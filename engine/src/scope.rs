//! The only interface through which a job writes files.
//!
//! ```text
//! open ──stage / remove, any number──> drafting ──finish──> FinishedScope (the caller publishes it)
//!   └────────────── dropped ───────────────┴──> staging folder remains; recovery discards it
//! ```
//!
//! A job names paths beneath a root. The scope accepts changes only to paths under an allowed
//! prefix, and writes the new content to staging. The kernel resolves all paths beneath the root,
//! without following links or crossing mounts. The scope must never write to a target, follow a
//! link, or accept a prefix from a model or a repository.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::digest::Digest;
use crate::error_chain::whole;
use crate::files::read_bounded;
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use crate::publish::{
    BadPath, Draft, FsError, FsFailure, Manifest, NEW_FILE_MODE, PathState, PublishError,
    PublishFs as _, PublishLog, Published, RealFs, Regular, RelPath, publish,
};
use crate::recording::InputRecording;

/// The scope's inputs in a recording: file content, file content with metadata, and existence
/// checks.
const INPUT: &str = "file";
const LOOK: &str = "look";
const THERE: &str = "there";

/// The content that a job expects at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The target must not exist.
    Absent,
    /// The target must have the content that the job read.
    Digest(Digest),
    /// The target may have any content. Only a change after staging is a conflict.
    Current,
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileLook {
    /// The file's permission bits.
    pub mode: u32,
    /// The modification time, in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// The reason why the scope refused or could not access a path.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// The string is not a path relative to a root.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// The path is not under an allowed prefix.
    #[error("{path} is outside the paths that this job may write ({allowed})")]
    Outside { path: RelPath, allowed: String },
    /// The path is in, or contains, a staging folder.
    #[error("{path} is in or contains a staging folder, which is reserved for runner")]
    Staging { path: RelPath },
    /// The path is not a regular file. The scope never reads, replaces or removes it.
    #[error("{path} is {what}, not a plain file")]
    NotAFile {
        path: RelPath,
        /// The type of the entry that was found.
        what: &'static str,
    },
    /// The file has other hard links, which would keep the old content.
    #[error("{path} has {links} hard links; replacing it would separate them")]
    Linked { path: RelPath, links: u64 },
    /// The target's folder is on a different device than the staging folder.
    #[error("{path} and the staging folder are on different file systems")]
    OtherDevice { path: RelPath },
    /// The target does not have the content that the job expected.
    #[error("{path} contains {found}, not the content that the job expected")]
    Unexpected { path: RelPath, found: PathState },
    /// The run already has an entry for this target, or for a path above or beneath it.
    #[error("{path} collides with {other}, which this run already writes or removes")]
    Twice {
        path: RelPath,
        /// The path that already has an entry.
        other: RelPath,
    },
    #[error("the file {path} is larger than {limit} bytes")]
    TooLong {
        path: RelPath,
        /// Maximum length in bytes.
        limit: u64,
    },
    /// The run is a replay, and the recorded run did not read this file or could not read it.
    #[error("{why}")]
    Recorded {
        /// The recorded reason.
        why: String,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// A root, the prefixes that a job may write to, and the changes that the job has staged.
#[derive(Debug)]
pub struct Scope {
    fs: RealFs,
    allowed: Vec<RelPath>,
    staging: RelPath,
    draft: Draft,
    recording: InputRecording,
}

/// A finished scope: the manifest to publish and the root beneath which to publish it.
#[derive(Debug)]
pub struct FinishedScope {
    /// A handle to the root.
    pub fs: RealFs,
    /// The changes to publish.
    pub manifest: Manifest,
}

impl Scope {
    /// Opens `root`. `allowed` lists prefixes that match whole path components. `staging` is the
    /// run's staging folder, which the first change creates.
    ///
    /// # Errors
    /// Returns an error if the root cannot be opened, or if a prefix or the staging path is not a
    /// path beneath it.
    pub fn open(root: &Path, allowed: &[&str], staging: &str) -> Result<Self, ScopeError> {
        let staging = RelPath::new(staging)?;
        let allowed =
            allowed.iter().map(|prefix| RelPath::new(prefix)).collect::<Result<_, _>>()?;
        let fs = RealFs::open(root)?;
        Ok(Self {
            fs,
            allowed,
            draft: Draft::new(staging.clone()),
            staging,
            recording: InputRecording::off(),
        })
    }

    /// Attaches a recording for all later reads and changes.
    pub fn start_recording(&mut self, recording: InputRecording) {
        self.recording = recording;
    }

    /// Stages `bytes` as the new content of `target`. A target that already has this content gets
    /// no entry. A replaced file keeps its permission bits.
    ///
    /// # Errors
    /// Returns any variant except `TooLong` and `Recorded`.
    pub fn stage(
        &mut self,
        target: &str,
        bytes: &[u8],
        expect: Expect,
    ) -> Result<Digest, ScopeError> {
        self.stage_as(target, bytes, expect, None)
    }

    /// Stages a file as [`Scope::stage`] does, with the metadata `looks`. Without this metadata, a
    /// moved or restored file would appear to be new.
    ///
    /// # Errors
    /// Returns the errors of [`Scope::stage`].
    pub fn stage_as(
        &mut self,
        target: &str,
        bytes: &[u8],
        expect: Expect,
        looks: Option<FileLook>,
    ) -> Result<Digest, ScopeError> {
        let name = target;
        let target = self.admit(target)?;
        let (found, mode) = self.examine(&target)?;
        let expected = match expect {
            Expect::Absent => found.is_none(),
            Expect::Digest(digest) => found == Some(digest),
            Expect::Current => true,
        };
        if !expected {
            return Err(unexpected(target, found));
        }
        let before = self.draft.entries().len();
        let mode = looks.map_or(mode, |looks| looks.mode);
        let digest = self.draft.put(&self.fs, target, found, bytes, mode)?;
        // A target that already has this content has no entry.
        if let (Some(looks), Some(entry)) = (looks, self.draft.entries().get(before))
            && let Some(staged) = &entry.staged
        {
            self.fs.set_modified(staged, looks.modified)?;
        }
        self.recording.made(name, Some(bytes));
        Ok(digest)
    }

    /// Reads a file of at most `limit` bytes and its metadata. Returns `None` if the file does not
    /// exist.
    ///
    /// # Errors
    /// Returns `Path`, `NotAFile`, `TooLong` or `Fs`. During a replay, returns `Path`, `Fs` or
    /// `Recorded`.
    pub fn inspect(
        &self,
        path: &str,
        limit: u64,
    ) -> Result<Option<(Vec<u8>, FileLook)>, ScopeError> {
        if self.recording.replays() {
            return self.inspect_recorded(&RelPath::new(path)?);
        }
        let done = self.inspect_now(path, limit);
        match &done {
            _ if !self.recording.records() => {}
            Ok(Some((bytes, looks))) => self.recording.note(LOOK, path, json!(looks), Some(bytes)),
            Ok(None) => self.recording.note(LOOK, path, Value::Null, None),
            Err(error) => (self.recording).note(LOOK, path, json!({ "why": whole(error) }), None),
        }
        done
    }

    /// Returns the content and metadata from the recording during a replay.
    fn inspect_recorded(&self, path: &RelPath) -> Result<Option<(Vec<u8>, FileLook)>, ScopeError> {
        let recorded = |why: String| ScopeError::Recorded { why };
        let answer = self.recording.recall(LOOK, path.as_str());
        let mut answer = answer.map_err(|error| recorded(error.to_string()))?;
        let Some((_, bytes)) = answer.content else {
            return match answer.facts["why"].as_str() {
                Some(why) => Err(recorded(why.to_owned())),
                None => Ok(None),
            };
        };
        let looks = serde_json::from_value(answer.facts.take())
            .map_err(|error| recorded(format!("invalid recorded metadata of {path}: {error}")))?;
        self.lay_down(path, &bytes)?;
        Ok(Some((bytes, looks)))
    }

    fn lay_down(&self, path: &RelPath, bytes: &[u8]) -> Result<(), FsError> {
        let laid = self.recording.lay_down(path.as_str(), bytes);
        laid.map_err(|error| FsError::new("write", path, error))
    }

    /// Returns true if an entry exists at the path, or if that cannot be determined. A link is an
    /// entry. Returns false if the path is invalid.
    pub fn is_there(&self, path: &str) -> bool {
        self.is(path, "something", |found| !matches!(found, Ok(None)))
    }

    /// Returns whether a regular file exists at the path.
    pub fn is_file(&self, path: &str) -> bool {
        self.is(path, "a file", |found| matches!(found, Ok(Some(_))))
    }

    fn is(
        &self,
        path: &str,
        what: &str,
        judge: impl FnOnce(&Result<Option<Regular>, ScopeError>) -> bool,
    ) -> bool {
        let question = format!("{path}: {what}");
        if self.recording.replays() {
            let answer = self.recording.recall(THERE, &question);
            return answer.is_ok_and(|answer| answer.facts == true);
        }
        let is = RelPath::new(path).is_ok_and(|path| judge(&self.regular(&path)));
        self.recording.note(THERE, &question, json!(is), None);
        is
    }

    fn inspect_now(
        &self,
        path: &str,
        limit: u64,
    ) -> Result<Option<(Vec<u8>, FileLook)>, ScopeError> {
        let path = RelPath::new(path)?;
        let fail = |error: io::Error| FsError::new("read", &path, error);
        let Some(mut regular) = self.regular(&path)? else {
            return Ok(None);
        };
        let looks = regular.looks().map_err(fail)?;
        match read_bounded(&mut regular.file, limit).map_err(fail)? {
            Some(bytes) => Ok(Some((bytes, looks))),
            None => Err(ScopeError::TooLong { path, limit }),
        }
    }

    /// Stages the removal of `target`, whose content must have the digest `digest`.
    ///
    /// # Errors
    /// Returns any variant except `TooLong` and `Recorded`.
    pub fn remove(&mut self, target: &str, digest: Digest) -> Result<(), ScopeError> {
        let name = target;
        let target = self.admit(target)?;
        let (found, _) = self.examine(&target)?;
        if found != Some(digest) {
            return Err(unexpected(target, found));
        }
        self.draft.remove(&self.fs, target, digest)?;
        self.recording.made(name, None);
        Ok(())
    }

    /// Reads a file of at most `limit` bytes anywhere beneath the root.
    ///
    /// # Errors
    /// Returns `Path`, `NotAFile`, `TooLong` or `Fs`. During a replay, returns `Path`, `Fs` or
    /// `Recorded`. A missing file is an `Fs` error.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ScopeError> {
        if self.recording.replays() {
            return self.recalled(&RelPath::new(path)?);
        }
        let done = self.read_now(path, limit);
        match &done {
            _ if !self.recording.records() => {}
            Ok(bytes) => self.recording.note(INPUT, path, Value::Null, Some(bytes)),
            Err(error) => {
                let why = whole(error);
                let facts = json!({ "missing": is_missing(error), "why": why });
                self.recording.note(INPUT, path, facts, None);
            }
        }
        done
    }

    fn recalled(&self, path: &RelPath) -> Result<Vec<u8>, ScopeError> {
        let recorded = |why: String| ScopeError::Recorded { why };
        let answer = self.recording.recall(INPUT, path.as_str());
        let answer = answer.map_err(|error| recorded(error.to_string()))?;
        if let Some((_, bytes)) = answer.content {
            self.lay_down(path, &bytes)?;
            return Ok(bytes);
        }
        if answer.facts["missing"] == true {
            return Err(FsError::new("read", path, FsFailure::Missing).into());
        }
        let why = answer.facts["why"].as_str().unwrap_or("it could not be read");
        Err(recorded(why.to_owned()))
    }

    fn read_now(&self, path: &str, limit: u64) -> Result<Vec<u8>, ScopeError> {
        let path = RelPath::new(path)?;
        let fail = |trouble| FsError::new("read", &path, trouble);
        let Some(mut regular) = self.regular(&path)? else {
            return Err(fail(FsFailure::Missing).into());
        };
        let bytes = read_bounded(&mut regular.file, limit);
        let bytes = bytes.map_err(|error: io::Error| fail(error.into()))?;
        bytes.ok_or(ScopeError::TooLong { path, limit })
    }

    /// Makes the staged files durable and closes the scope.
    ///
    /// # Errors
    /// Returns `Fs` if the staging folder cannot be synced.
    pub fn finish(
        self,
        run: RunId,
        fence: Fence,
        outcome: Outcome,
    ) -> Result<FinishedScope, ScopeError> {
        let manifest = self.draft.seal(&self.fs, run, fence, outcome)?;
        Ok(FinishedScope { fs: self.fs, manifest })
    }

    /// Checks that the job may write to the path and that the run has no colliding entry.
    fn admit(&self, target: &str) -> Result<RelPath, ScopeError> {
        let path = RelPath::new(target)?;
        if !self.allowed.iter().any(|prefix| path.is_within(prefix)) {
            let allowed = self.allowed.iter().map(RelPath::as_str).collect::<Vec<_>>().join(", ");
            return Err(ScopeError::Outside { path, allowed });
        }
        // The staging folders of all runs have the same parent.
        let kept = self.staging.parent();
        if path.is_within(kept.as_ref().unwrap_or(&self.staging)) || self.staging.is_within(&path) {
            return Err(ScopeError::Staging { path });
        }
        for entry in self.draft.entries() {
            if path.is_within(&entry.target) || entry.target.is_within(&path) {
                return Err(ScopeError::Twice { path, other: entry.target.clone() });
            }
        }
        Ok(path)
    }

    /// Returns the digest of the target's content, or `None` if the target does not exist, and the
    /// permission bits for its new version.
    fn examine(&self, path: &RelPath) -> Result<(Option<Digest>, u32), ScopeError> {
        let regular = self.regular(path)?;
        if self.fs.device(path)? != self.fs.device(&self.staging)? {
            return Err(ScopeError::OtherDevice { path: path.clone() });
        }
        let Some(mut regular) = regular else {
            return Ok((None, NEW_FILE_MODE));
        };
        if regular.links != 1 {
            return Err(ScopeError::Linked { path: path.clone(), links: regular.links });
        }
        let (digest, _) = Digest::of_reader(&mut regular.file)
            .map_err(|error| FsError::new("read", path, error))?;
        Ok((Some(digest), regular.mode))
    }

    fn regular(&self, path: &RelPath) -> Result<Option<Regular>, ScopeError> {
        self.fs.regular(path).map_err(|error| match error.trouble {
            FsFailure::NotAFile(what) => ScopeError::NotAFile { path: path.clone(), what },
            _ => error.into(),
        })
    }
}

impl FinishedScope {
    /// Returns whether there is nothing to publish and no staging folder to remove.
    pub fn is_empty(&self) -> bool {
        self.manifest.entries.is_empty() && matches!(self.fs.list(&self.manifest.staging), Ok(None))
    }

    /// Publishes the staged changes with [`publish`].
    ///
    /// # Errors
    /// Returns the errors of [`publish`].
    pub fn place(&self, log: &mut impl PublishLog) -> Result<Published, PublishError> {
        publish(&self.fs, log, &self.manifest)
    }
}

fn is_missing(error: &ScopeError) -> bool {
    matches!(error, ScopeError::Fs(error) if matches!(error.trouble, FsFailure::Missing))
}

fn unexpected(path: RelPath, found: Option<Digest>) -> ScopeError {
    ScopeError::Unexpected { path, found: found.map_or(PathState::Absent, PathState::Content) }
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
