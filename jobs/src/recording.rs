//! Records the reads, requests and artifacts of a run, so the run can be replayed without the
//! project.
//!
//! ```text
//! RunMode::Run ──> recording + exchanges ──job's work──> PendingRecording ──redact──> recordings/RUN.jsonl
//!                                                         └─ skipped, deferred, cancelled: nothing
//! ```
//!
//! A recording is written after the job's work and before the results are published. An error while
//! writing the recording does not affect the run. A recording must never contain a secret, and no
//! decision may depend on it.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::Description;
use runner_backends::replay::Exchange;
use runner_backends::replay::file::{self, Content, FileError, RecordingLine};
use runner_backends::replay::question::redacted;
use runner_engine::files::write_atomic;
use runner_engine::git::HEAD;
use runner_engine::ids::{ProjectId, RunId};
use runner_engine::outcome::Outcome;
use runner_engine::recording::{RecordedArtifact, RecordingData};
use runner_engine::store::{Amounts, Budget};
use runner_text::redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Context, JobSpec};

/// The recordings folder, inside the state folder.
pub const FOLDER: &str = "recordings";
/// Maximum total size, in bytes, of the inputs that one recording keeps.
pub const LARGEST: u64 = 32 * 1024 * 1024;

const ENDING: &str = ".jsonl";

/// Returns the file name of a run's recording in [`FOLDER`].
pub fn name_of(run: &RunId) -> String {
    format!("{run}{ENDING}")
}

/// Returns the run whose recording has this file name, or `None` if no recording has such a name.
pub fn run_named(name: &str) -> Option<RunId> {
    name.strip_suffix(ENDING)?.parse().ok()
}

/// The destination of a run's recording, and the data in its header that the run does not know.
#[derive(Clone, Debug)]
pub struct Recorder {
    pub path: PathBuf,
    pub project: ProjectId,
    /// Path prefixes that the run may write to.
    pub writes: Vec<String>,
    /// The folder where the run stages its files.
    pub staging: String,
}

/// The header of a recording, which describes the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordingHeader {
    pub run: RunId,
    pub project: ProjectId,
    /// The root folder of the project at the time of the run.
    pub root: PathBuf,
    pub spec: RecordedJob,
    /// The value of `now` for the whole run.
    pub now: Timestamp,
    /// The seed for the run's random choices. It is stored as a string, because not every JSON
    /// reader supports integers of this size.
    #[serde(with = "as_text")]
    pub seed: u64,
    /// True if the user started the run manually.
    pub manual: bool,
    /// The amounts reserved by the run.
    pub reserved: Amounts,
    pub head: Option<String>,
    /// The backend that answered, or would have answered.
    pub backend: String,
    pub described: Description,
    /// The backends that were not asked or did not answer, each with the reason.
    pub passed: Vec<String>,
    /// Path prefixes that the run may write to.
    pub writes: Vec<String>,
    /// The folder where the run staged its files.
    pub staging: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedJob {
    /// The name of the job within the project.
    pub name: String,
    pub kind: String,
    pub settings: Value,
    /// The inputs that came from runner rather than from the settings.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub given: Value,
    pub backend: String,
    /// The maximum amounts that the run could spend.
    pub budget: Budget,
    /// The time limit of the run.
    pub total: Duration,
}

impl RecordedJob {
    fn of(spec: &JobSpec) -> serde_json::Result<Self> {
        Ok(Self {
            name: spec.name.clone(),
            kind: spec.kind.name().to_owned(),
            settings: spec.kind.settings()?,
            given: spec.kind.given(),
            backend: spec.backend.clone(),
            budget: spec.budget,
            total: spec.total,
        })
    }
}

/// A recording read from its file.
#[derive(Clone, Debug)]
pub struct Recording {
    pub head: RecordingHeader,
    /// The recorded reads and artifacts.
    pub data: RecordingData,
    /// The recorded requests and replies.
    pub asked: Vec<Exchange>,
    pub outcome: Outcome,
    /// Number of recorded contents from which a secret was redacted.
    pub redacted: usize,
}

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read, or is not a recording.
    #[error(transparent)]
    File(#[from] FileError),
    /// The run read more than a recording can keep.
    #[error(
        "the run read {bytes} bytes, but a recording keeps at most {most}, so the run cannot be replayed"
    )]
    TooLong { bytes: u64, most: u64 },
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// Returns a [`RecordingError`] if the recording cannot be read or replayed.
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let not_one = |why: String| FileError::NotOne { path: path.to_owned(), why };
        let lines = file::read(path)?;
        let (contents, redacted) = file::contents(&lines)
            .map_err(|digest| not_one(format!("the content {digest} cannot be read")))?;
        let mut data = RecordingData { contents, ..RecordingData::default() };
        let (mut head, mut asked, mut outcome) = (None, Vec::new(), None);
        for line in lines {
            match line {
                RecordingLine::Recording { of, .. } => {
                    let of = serde_json::from_value(of)
                        .map_err(|error| not_one(format!("line 1: {error}")))?;
                    head = Some(of);
                }
                RecordingLine::Read(read) => data.reads.push(read),
                RecordingLine::Made(made) => data.made.push(made),
                RecordingLine::Asked(exchange) => asked.push(*exchange),
                RecordingLine::Over { bytes, most } => {
                    return Err(RecordingError::TooLong { bytes, most });
                }
                RecordingLine::End { outcome: ended, .. } => {
                    let ended: Outcome = serde_json::from_value(ended)
                        .map_err(|error| not_one(format!("its last line: {error}")))?;
                    outcome = Some(ended);
                }
                RecordingLine::Content(_) => {}
            }
        }
        let named = data.reads.iter().filter_map(|read| read.content);
        if let Some(lost) = named.into_iter().find(|it| !data.contents.contains_key(it)) {
            return Err(not_one(format!("the content {lost} is missing")).into());
        }
        match (head, outcome) {
            (Some(head), Some(outcome)) => Ok(Self { head, data, asked, outcome, redacted }),
            _ => Err(not_one("it does not state how the run ended".to_owned()).into()),
        }
    }
}

/// The recording of a run whose outcome is not yet known.
#[derive(Debug)]
pub(crate) struct PendingRecording {
    recorder: Recorder,
    head: Box<RecordingHeader>,
    data: RecordingData,
    asked: Vec<Exchange>,
}

impl Context<'_> {
    /// Returns the run's recording, if the run is recorded.
    pub(crate) fn take(&mut self, spec: &JobSpec) -> Option<PendingRecording> {
        let recorder = self.recorder.take()?;
        let commit = self.head_commit();
        let data = self.recording.data();
        let passed = self.spender.passed().iter().chain(self.spender.fell()).cloned().collect();
        let head = RecordingHeader {
            run: self.admitted.run().clone(),
            project: recorder.project.clone(),
            root: self.files.root().to_owned(),
            spec: RecordedJob::of(spec).ok()?,
            now: self.clock.now(),
            seed: self.admitted.seed(),
            manual: self.admitted.manual(),
            reserved: self.admitted.reserved(),
            head: commit,
            backend: self.spender.backend_name().to_owned(),
            described: self.spender.backend(),
            passed,
            writes: recorder.writes.clone(),
            staging: recorder.staging.clone(),
        };
        Some(PendingRecording {
            recorder,
            head: Box::new(head),
            data,
            asked: self.spender.take_exchanges(),
        })
    }

    /// Returns the commit that the run worked on, or `None` if the project has no commits or no git
    /// repository.
    fn head_commit(&self) -> Option<String> {
        head_of(&self.recording.data())
            .or_else(|| self.work.head().map(str::to_owned))
            .or_else(|| self.git.head().ok().flatten())
    }
}

/// Returns the checked-out commit that the run read, or `None` if it read none.
fn head_of(data: &RecordingData) -> Option<String> {
    let reported = |read: &&runner_engine::recording::RecordedRead| read.question == HEAD;
    let digest = data.reads.iter().find(reported)?.content?;
    let text = String::from_utf8_lossy(data.contents.get(&digest)?);
    Some(text.trim().to_owned())
}

impl PendingRecording {
    /// Writes the recording, unless there is nothing to replay. A failure is only logged.
    pub(crate) fn write(self, outcome: &Outcome, redactor: &Redactor) {
        use Outcome::{Cancelled, Deferred, Lost, Skipped};
        if matches!(outcome, Skipped { .. } | Deferred { .. } | Cancelled { .. } | Lost { .. }) {
            return;
        }
        let path = self.recorder.path.clone();
        if let Err(error) = self.put(outcome, redactor) {
            tracing::warn!(path = %path.display(), error, "the run could not be recorded");
        }
    }

    fn put(self, outcome: &Outcome, redactor: &Redactor) -> Result<(), String> {
        let of = serde_json::to_value(&self.head).map_err(|error| error.to_string())?;
        let mut lines =
            vec![RecordingLine::Recording { format: file::FORMAT, of: redacted(&of, redactor) }];
        if self.data.over {
            lines.push(RecordingLine::Over { bytes: self.data.bytes, most: LARGEST });
        } else {
            let contents = self.data.contents.iter();
            lines.extend(contents.map(|(digest, bytes)| {
                RecordingLine::Content(Content::of(*digest, bytes, redactor))
            }));
            lines.extend(self.data.reads.into_iter().map(|mut read| {
                read.facts = redacted(&read.facts, redactor);
                read.question = redactor.redact(&read.question).into_owned();
                RecordingLine::Read(read)
            }));
            lines.extend((self.asked.into_iter()).map(|one| RecordingLine::Asked(Box::new(one))));
        }
        lines.extend(self.data.made.into_iter().map(|made| {
            let target = redactor.redact(&made.target).into_owned();
            RecordingLine::Made(RecordedArtifact { target, ..made })
        }));
        let outcome = redacted(&json!(outcome), redactor);
        let bytes = file::encode(&lines, outcome);
        let path = &self.recorder.path;
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(|error| error.to_string())?;
        }
        write_atomic(path, &bytes, 0o600).map_err(|error| error.to_string())
    }
}

/// Serializes a number as a string.
mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
