//! Reads and writes recordings as JSON lines.
//!
//! ```text
//! recording   the header               exactly one, the first line
//! content     a text or file           any number, identified by digest
//! read        an input of the run
//! asked       a question and its answer or error
//! made        an artifact
//! over        the reads were too large and were not recorded
//! end         the outcome and the number of lines
//! ```
//!
//! Contents and exchanges are redacted before they are recorded. A recording without its last line
//! must never be treated as complete.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use runner_engine::digest::Digest;
use runner_engine::files::open_host;
use runner_engine::recording::{RecordedArtifact, RecordedRead};
use runner_text::redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::question::{ReplayQuestion, redacted};
use crate::{BackendError, Reply};

/// Version of the recording format.
pub const FORMAT: u32 = 1;
/// Maximum size of a recording in bytes.
pub const LARGEST: u64 = 256 * 1024 * 1024;

/// One line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordingLine {
    /// The header.
    Recording {
        /// The version of the format, [`FORMAT`].
        format: u32,
        /// The run and its job. The code that executes jobs defines the details.
        of: Value,
    },
    /// A string or file that other lines reference by its digest.
    Content(Content),
    Read(RecordedRead),
    Asked(Box<Exchange>),
    Made(RecordedArtifact),
    /// The data that was read was too large to record.
    Over {
        /// The total size in bytes.
        bytes: u64,
        /// The maximum size to record.
        most: u64,
    },
    /// The last line, which shows that the recording is complete.
    End {
        /// The number of lines before this one.
        lines: u64,
        /// The outcome of the work.
        outcome: Value,
    },
}

/// A recorded string or file, redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The digest of the original content, before redaction.
    pub digest: Digest,
    /// The content as text, if it is UTF-8 or was redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content as base64, if it is neither UTF-8 nor redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Whether anything was redacted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

/// A question and its answer or error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Digest of the question.
    pub digest: Digest,
    pub question: ReplayQuestion,
    /// The backend that was called.
    pub backend: String,
    /// The answer. Its `value` is parsed again from its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// The error, if there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<BackendError>,
    /// The digest of the recorded answer's text, used to detect later changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_digest: Option<Digest>,
}

/// The error for a file that cannot be read or is not a complete recording.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is not a recording that this version can read.
    #[error("{} is not a recording: {why}", path.display())]
    NotOne {
        path: PathBuf,
        /// The defect, with its line if one line is at fault.
        why: String,
    },
    /// The recording has no end line, or its end line gives a different number of lines.
    #[error("{} is not a complete recording: {why}", path.display())]
    Cut {
        path: PathBuf,
        /// The defect.
        why: String,
    },
}

impl Content {
    /// Creates the redacted record of a string or file.
    pub fn of(digest: Digest, bytes: &[u8], redactor: &Redactor) -> Self {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(bytes),
        };
        let clean = redactor.redact(&text);
        let redacted = clean != text;
        // Bytes that are not UTF-8 are stored unchanged, unless there is something to redact.
        let whole = !redacted && matches!(text, std::borrow::Cow::Owned(_));
        Self {
            digest,
            text: (!whole).then(|| clean.into_owned()),
            base64: whole.then(|| STANDARD.encode(bytes)),
            redacted,
        }
    }

    /// Returns the stored bytes, or `None` if they are missing or are not valid base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.base64) {
            (Some(text), _) => Some(text.as_bytes().to_vec()),
            (None, Some(text)) => STANDARD.decode(text).ok(),
            (None, None) => None,
        }
    }
}

impl Exchange {
    /// Creates the record of a question and its redacted answer or error.
    pub fn of(
        question: ReplayQuestion,
        backend: &str,
        answer: Result<&Reply, BackendError>,
        redactor: &Redactor,
    ) -> Self {
        let clean = |text: &str| redactor.redact(text).into_owned();
        let (reply, error) = match answer {
            Ok(reply) => {
                let reply = Reply {
                    text: clean(&reply.text),
                    value: None,
                    notes: reply.notes.iter().map(|note| clean(note)).collect(),
                    usage: reply.usage,
                    stop: reply.stop,
                };
                (Some(reply), None)
            }
            Err(error) => {
                let value = serde_json::to_value(&error).unwrap_or_default();
                let error = serde_json::from_value(redacted(&value, redactor)).unwrap_or(error);
                (None, Some(error))
            }
        };
        Self {
            digest: question.digest(),
            question,
            backend: backend.to_owned(),
            reply_digest: (reply.as_ref()).map(|reply| Digest::of(reply.text.as_bytes())),
            reply,
            error,
        }
    }
}

/// Encodes a recording: the lines, followed by the end line.
pub fn encode(lines: &[RecordingLine], outcome: Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = RecordingLine::End { lines: lines.len() as u64, outcome };
    for line in lines.iter().chain([&end]) {
        serde_json::to_writer(&mut bytes, line).expect("lines have string keys only");
        bytes.push(b'\n');
    }
    bytes
}

/// Reads a recording completely.
///
/// # Errors
/// Returns a [`FileError`] if the file cannot be read or is not a complete recording.
pub fn read(path: &Path) -> Result<Vec<RecordingLine>, FileError> {
    let io = |source| FileError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = open_host(path).map_err(io)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    parse(&bytes, path)
}

/// Reads only the questions and answers of a recording. Unreadable lines are omitted, so the result
/// does not prove that the recording is complete.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn exchanges(path: &Path) -> io::Result<Vec<Exchange>> {
    let file = io::BufReader::new(open_host(path)?.take(LARGEST));
    let mut found = Vec::new();
    for line in file.split(b'\n') {
        let line = line?;
        if line.starts_with(b"{\"asked\":")
            && let Ok(RecordingLine::Asked(exchange)) = serde_json::from_slice(&line)
        {
            found.push(*exchange);
        }
    }
    Ok(found)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<RecordingLine>, FileError> {
    let not_one = |why: String| FileError::NotOne { path: path.to_owned(), why };
    let cut = |why: &str| FileError::Cut { path: path.to_owned(), why: why.to_owned() };
    if bytes.len() as u64 > LARGEST {
        return Err(not_one(format!("it is larger than {LARGEST} bytes")));
    }
    let ended = bytes.ends_with(b"\n");
    let mut lines = Vec::new();
    let mut texts = bytes.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((at, text)) = texts.next() {
        let last = texts.peek().is_none();
        if last && text.is_empty() {
            break;
        }
        match serde_json::from_slice::<RecordingLine>(text) {
            Ok(RecordingLine::Recording { format, .. }) if format != FORMAT => {
                return Err(not_one(format!(
                    "it has format {format}, but this runner reads format {FORMAT}"
                )));
            }
            Ok(line) => lines.push(line),
            Err(_) if last && !ended && at > 0 => return Err(cut("its last line is incomplete")),
            Err(error) => return Err(not_one(format!("line {}: {error}", at + 1))),
        }
        if at == 0 && !matches!(lines[0], RecordingLine::Recording { .. }) {
            return Err(not_one("its first line is not the header of a recording".to_owned()));
        }
    }
    match lines.last() {
        None => Err(not_one("it is empty".to_owned())),
        Some(RecordingLine::End { lines: count, .. }) if *count + 1 == lines.len() as u64 => {
            Ok(lines)
        }
        Some(RecordingLine::End { .. }) => Err(cut("lines are missing, or there are extra lines")),
        Some(_) => Err(cut("the end line is missing")),
    }
}

/// Returns all contents of a recording by digest, and how many of them are redacted.
///
/// # Errors
/// Returns the digest of an entry whose bytes cannot be decoded.
pub fn contents(lines: &[RecordingLine]) -> Result<(BTreeMap<Digest, Vec<u8>>, usize), Digest> {
    let mut contents = BTreeMap::new();
    let mut redacted = 0;
    for line in lines {
        if let RecordingLine::Content(content) = line {
            redacted += usize::from(content.redacted);
            contents.insert(content.digest, content.bytes().ok_or(content.digest)?);
        }
    }
    Ok((contents, redacted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Vec<u8> {
        let redactor = Redactor::new(vec!["canary-123456".into()]);
        let content =
            |bytes: &[u8]| RecordingLine::Content(Content::of(Digest::of(bytes), bytes, &redactor));
        let lines = [
            RecordingLine::Recording { format: FORMAT, of: json!({ "run": "x" }) },
            content(b"plain\n"),
            content(b"\xff\0not text"),
            content(b"\xff canary-123456"),
            content(b"canary-123456"),
        ];
        encode(&lines, json!({ "outcome": "succeeded" }))
    }

    #[test]
    fn contents_round_trip_except_for_secrets() {
        let bytes = sample();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(!text.contains("canary-123456"), "{text}");
        let lines = parse(&bytes, Path::new("x")).unwrap();
        let (contents, redacted) = contents(&lines).unwrap();
        assert_eq!(redacted, 2);
        for whole in [&b"plain\n"[..], b"\xff\0not text"] {
            assert_eq!(contents[&Digest::of(whole)], whole);
        }
        let bad = [RecordingLine::Content(Content {
            digest: Digest::of(b""),
            text: None,
            base64: Some("§".into()),
            redacted: false,
        })];
        assert_eq!(super::contents(&bad), Err(Digest::of(b"")));
    }

    #[test]
    fn truncated_recording_is_refused() {
        let bytes = sample();
        for length in 0..bytes.len() - 1 {
            let error = parse(&bytes[..length], Path::new("x")).unwrap_err().to_string();
            assert!(
                error.contains("not a recording") || error.contains("not a complete recording"),
                "{length}: {error}"
            );
        }
        // Removing a line from the middle is also detected.
        let text = String::from_utf8(bytes).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.remove(2);
        let error = parse((lines.join("\n") + "\n").as_bytes(), Path::new("x")).unwrap_err();
        assert!(error.to_string().contains("lines are missing"), "{error}");
    }

    #[test]
    fn garbage_is_reported_with_line_number() {
        let why = |bytes: &[u8]| parse(bytes, Path::new("x")).unwrap_err().to_string();
        assert_eq!(why(b""), "x is not a recording: it is empty");
        assert!(why(b"\0\xff\x01").contains("line 1"), "{}", why(b"\0\xff\x01"));
        assert!(why(b"{\"made\":{\"target\":\"x\"}}\n").contains("first line"));
        let newer = b"{\"recording\":{\"format\":2,\"of\":{}}}\n";
        assert!(why(newer).contains("format 2, but this runner reads format 1"));
        let mut odd = sample();
        odd.extend_from_slice(b"{\"unknown\":1}\n");
        assert!(why(&odd).contains("line 7"), "{}", why(&odd));
    }
}
