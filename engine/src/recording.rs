//! Records a run's inputs and artifacts. The run can then be replayed without its environment.
//!
//! ```text
//! off        input ──> environment ──answer──> job
//! recording  input ──> environment ──answer──> job      answers and artifacts are recorded
//! replaying  input ──> recording ────answer──> job      a missing answer is an error and is
//!                                                       added to the unanswered questions
//! ```
//!
//! An answer consists of a few facts and, optionally, content. Content is stored once under its
//! digest. A recording that exceeds its cap drops all answers, because an incomplete set would be
//! useless. A recording must never read real inputs during a replay, and must never cause a run
//! that it records to fail.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;

/// A recorded question to an input, with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedRead {
    /// The input that was queried: `git`, `file`, `look`, `idea` …
    pub input: String,
    pub question: String,
    /// The short part of the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub facts: Value,
    /// Digest of the long part of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
}

/// An artifact that the run staged or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedArtifact {
    /// The path of the artifact, relative to the project.
    pub target: String,
    /// Digest of the artifact's content. `None` if the artifact was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
}

/// The data in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordingData {
    /// The reads, in order.
    pub reads: Vec<RecordedRead>,
    /// The artifacts that the run staged or removed, in order.
    pub made: Vec<RecordedArtifact>,
    /// The content of all reads and artifacts, by digest.
    pub contents: BTreeMap<Digest, Vec<u8>>,
    /// The total size of the recorded data in bytes, including data that was dropped later.
    pub bytes: u64,
    /// Whether the recording exceeded its cap, so that its reads and contents were dropped.
    pub over: bool,
}

/// The error for a question to which the recording has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording has no answer from {input} to {question:?}")]
pub struct UnrecordedInput {
    /// The input that was queried.
    pub input: String,
    pub question: String,
}

/// An answer from a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedAnswer {
    /// The short part of the answer.
    pub facts: Value,
    /// The long part of the answer, with its digest at the time of the read. If the content was
    /// redacted later, the digest no longer matches.
    pub content: Option<(Digest, Vec<u8>)>,
}

/// A handle to a recording, which may be disabled. Clones share the recording.
#[derive(Clone, Debug, Default)]
pub struct InputRecording(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    mode: RecordingMode,
    data: Mutex<RecordingData>,
    /// A replay's remaining answers by input and question, and its unanswered questions.
    left: Mutex<(RecordedAnswers, Vec<UnrecordedInput>)>,
}

type RecordedAnswers = BTreeMap<(String, String), VecDeque<RecordedRead>>;

#[derive(Debug)]
enum RecordingMode {
    Recording { cap: u64 },
    Replaying { mirror: PathBuf },
}

impl InputRecording {
    /// Creates a handle without a recording. All inputs are read directly.
    pub fn off() -> Self {
        Self(None)
    }

    /// Creates an empty recording of at most `cap` bytes.
    pub fn recording(cap: u64) -> Self {
        Self::new(
            RecordingMode::Recording { cap },
            RecordingData::default(),
            RecordedAnswers::new(),
        )
    }

    /// Creates a handle that replays existing data. [`InputRecording::lay_down`] writes to the
    /// folder `mirror`.
    pub fn replaying(data: &RecordingData, mirror: &Path) -> Self {
        let mut answers = RecordedAnswers::new();
        for read in &data.reads {
            let key = (read.input.clone(), read.question.clone());
            answers.entry(key).or_default().push_back(read.clone());
        }
        let known = RecordingData { contents: data.contents.clone(), ..RecordingData::default() };
        let mirror = mirror.to_owned();
        Self::new(RecordingMode::Replaying { mirror }, known, answers)
    }

    fn new(mode: RecordingMode, data: RecordingData, answers: RecordedAnswers) -> Self {
        Self(Some(Arc::new(Shared {
            mode,
            data: Mutex::new(data),
            left: Mutex::new((answers, Vec::new())),
        })))
    }

    /// Returns whether answers are recorded.
    pub fn records(&self) -> bool {
        matches!(&self.0, Some(shared) if matches!(shared.mode, RecordingMode::Recording { .. }))
    }

    /// Returns whether answers come only from the recording.
    pub fn replays(&self) -> bool {
        matches!(&self.0, Some(shared) if matches!(shared.mode, RecordingMode::Replaying { .. }))
    }

    /// Adds an answer to the recording. Does nothing unless the handle is recording.
    pub fn note(&self, input: &str, question: &str, facts: Value, content: Option<&[u8]>) {
        let Some(shared) = self.0.as_ref().filter(|_| self.records()) else {
            return;
        };
        let mut data = shared.data();
        let length = if facts.is_null() { 0 } else { facts.to_string().len() };
        let content = shared.keep(&mut data, question.len() + length, content);
        if !data.over {
            data.reads.push(RecordedRead {
                input: input.to_owned(),
                question: question.to_owned(),
                facts,
                content,
            });
        }
    }

    /// Adds a staged or removed artifact to the data, even during a replay.
    pub fn made(&self, target: &str, content: Option<&[u8]>) {
        let Some(shared) = &self.0 else { return };
        let mut data = shared.data();
        let content = shared.keep(&mut data, target.len(), content);
        data.made.push(RecordedArtifact { target: target.to_owned(), content });
    }

    /// Returns whether a replay has an answer from this input to this question. A recording made by
    /// an earlier version may lack the answer, because that version may not have asked the
    /// question.
    pub fn has(&self, input: &str, question: &str) -> bool {
        let Some(shared) = &self.0 else { return false };
        let left = shared.left.lock().expect("no thread panics while it holds the lock");
        left.0.contains_key(&(input.to_owned(), question.to_owned()))
    }

    /// Returns the next answer to a question during a replay. The last answer is returned
    /// repeatedly, because reading an unchanged input again gives the same answer.
    ///
    /// # Errors
    /// Returns an error if the recording has no answer to the question. During a replay, the
    /// question is then added to the unanswered questions.
    pub fn recall(&self, input: &str, question: &str) -> Result<RecordedAnswer, UnrecordedInput> {
        let missing = || UnrecordedInput { input: input.to_owned(), question: question.to_owned() };
        let shared = self.0.as_ref().ok_or_else(missing)?;
        let mut left = shared.left.lock().expect("no thread panics while it holds the lock");
        let key = (input.to_owned(), question.to_owned());
        let read = match left.0.get_mut(&key) {
            Some(answers) if answers.len() > 1 => answers.pop_front(),
            Some(answers) => answers.front().cloned(),
            None => None,
        };
        let Some(read) = read else {
            left.1.push(missing());
            return Err(missing());
        };
        let data = shared.data();
        let content = read.content.map(|digest| {
            let bytes = data.contents.get(&digest).cloned().unwrap_or_default();
            (digest, bytes)
        });
        Ok(RecordedAnswer { facts: read.facts, content })
    }

    /// Calls `ask` and records the answer. During a replay, returns the recorded answer without
    /// calling `ask`. Errors are not recorded.
    ///
    /// # Errors
    /// Returns the errors of `ask`. During a replay, returns an error if the recording has no
    /// usable answer.
    pub fn through<T, E>(
        &self,
        input: &str,
        question: &str,
        ask: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<UnrecordedInput>,
    {
        if self.replays() {
            let facts = self.recall(input, question)?.facts;
            return serde_json::from_value(facts).map_err(|_| self.lacks(input, question).into());
        }
        let answer = ask()?;
        if self.records()
            && let Ok(facts) = serde_json::to_value(&answer)
        {
            self.note(input, question, facts, None);
        }
        Ok(answer)
    }

    /// Adds a question to the unanswered questions, and returns the error for it.
    fn lacks(&self, input: &str, question: &str) -> UnrecordedInput {
        let lacking = UnrecordedInput { input: input.to_owned(), question: question.to_owned() };
        if let Some(shared) = &self.0 {
            let mut left = shared.left.lock().expect("no thread panics while it holds the lock");
            left.1.push(lacking.clone());
        }
        lacking
    }

    /// Writes a file into the replay's mirror folder. Does nothing outside a replay.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn lay_down(&self, below: &str, bytes: &[u8]) -> std::io::Result<()> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let RecordingMode::Replaying { mirror } = &shared.mode else {
            return Ok(());
        };
        let path = mirror.join(below);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, bytes)
    }

    /// Returns the data recorded so far.
    pub fn data(&self) -> RecordingData {
        self.0.as_ref().map(|shared| shared.data().clone()).unwrap_or_default()
    }

    /// Returns the questions that had no usable answer during a replay.
    pub fn missing(&self) -> Vec<UnrecordedInput> {
        let Some(shared) = &self.0 else {
            return Vec::new();
        };
        let left = shared.left.lock().expect("no thread panics while it holds the lock");
        left.1.clone()
    }
}

impl Shared {
    fn data(&self) -> MutexGuard<'_, RecordingData> {
        self.data.lock().expect("no thread panics while it holds the data")
    }

    /// Adds `more` and the length of new content to the recording's size. Stores `content` unless
    /// the cap is exceeded, and returns its digest.
    fn keep(
        &self,
        data: &mut RecordingData,
        more: usize,
        content: Option<&[u8]>,
    ) -> Option<Digest> {
        let digest = content.map(Digest::of);
        let new = digest.filter(|digest| !data.contents.contains_key(digest));
        let length = new.and(content).map_or(0, <[u8]>::len);
        data.bytes = data.bytes.saturating_add((more + length) as u64);
        if matches!(self.mode, RecordingMode::Recording { cap } if data.bytes > cap) {
            data.over = true;
            data.reads.clear();
            data.contents.clear();
        } else if let (Some(digest), Some(bytes)) = (new, content) {
            data.contents.insert(digest, bytes.to_vec());
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    impl From<UnrecordedInput> for String {
        fn from(error: UnrecordedInput) -> Self {
            error.to_string()
        }
    }

    #[test]
    fn recorded_answers_replay_in_order_and_repeat() {
        let recording = InputRecording::recording(1000);
        recording.note("file", "a", Value::Null, Some(b"one"));
        recording.note("file", "a", Value::Null, Some(b"two"));
        recording.note("git", "a", json!({"exit": 1}), None);
        recording.made("out", Some(b"two"));
        recording.made("gone", None);
        let data = recording.data();
        assert_eq!((data.contents.len(), data.made.len()), (2, 2));
        let folder = tempfile::tempdir().unwrap();
        let again = InputRecording::replaying(&data, folder.path());
        let text = |input: &str| {
            let answer = again.recall(input, "a").unwrap();
            answer.content.map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(text("file").as_deref(), Some("one"));
        assert_eq!(text("file").as_deref(), Some("two"));
        assert_eq!(text("file").as_deref(), Some("two"));
        assert_eq!(text("git"), None);
        assert_eq!(again.missing(), []);
        let error = again.recall("git", "b").unwrap_err();
        assert!(error.to_string().contains("git") && error.to_string().contains("\"b\""));
        assert_eq!(again.missing(), [error]);
        again.made("out", Some(b"two"));
        assert_eq!(again.data().made, data.made[..1]);
        again.note("file", "x", Value::Null, Some(b"not noted"));
        assert_eq!(again.data().reads, []);
    }

    #[test]
    fn replay_never_calls_the_source() {
        let recording = InputRecording::recording(1000);
        let asked = |recording: &InputRecording, answer: Result<Option<u8>, &str>| {
            recording.through("dice", "x", || answer.map_err(str::to_owned))
        };
        assert_eq!(asked(&recording, Ok(Some(4))), Ok(Some(4)));
        assert_eq!(asked(&recording, Err("fell off")), Err("fell off".to_owned()));
        assert_eq!(asked(&recording, Ok(None)), Ok(None));
        let folder = tempfile::tempdir().unwrap();
        let mut data = recording.data();
        let again = InputRecording::replaying(&data, folder.path());
        for answer in [Some(4), None, None] {
            assert_eq!(asked(&again, Err("the input was queried")), Ok(answer));
        }
        data.reads[0].facts = json!("no number");
        let again = InputRecording::replaying(&data, folder.path());
        assert!(asked(&again, Ok(Some(1))).unwrap_err().contains("dice"));
        assert_eq!(again.missing().len(), 1);
    }

    #[test]
    fn recording_over_its_cap_drops_inputs() {
        let recording = InputRecording::recording(100);
        recording.note("file", "a", Value::Null, Some(&[b'x'; 60]));
        recording.note("file", "b", Value::Null, Some(&[b'x'; 60]));
        assert!(!recording.data().over, "the same content counts once");
        recording.note("file", "c", Value::Null, Some(&[b'y'; 60]));
        recording.made("out", Some(b"z"));
        let data = recording.data();
        assert!(data.over && data.reads.is_empty() && data.bytes > 120);
        assert_eq!(data.made.len(), 1);
    }

    #[test]
    fn disabled_recording_records_nothing() {
        let recording = InputRecording::off();
        recording.note("file", "a", Value::Null, Some(b"one"));
        recording.made("a", None);
        assert!(!recording.records() && !recording.replays());
        assert_eq!(recording.data(), RecordingData::default());
        assert!(recording.recall("file", "a").is_err());
    }
}
