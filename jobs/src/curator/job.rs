//! A job file in the queue.
//!
//! Any program may have written the file, so its content is validated. The content never determines
//! where a file is written.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::pretty;

/// Maximum size of a job file, in bytes.
pub const LARGEST: u64 = 64 * 1024;
/// Maximum number of retries. A job file that requests more gets this number.
const RETRIES: u32 = 10;

/// The kinds of work that a curator does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CuratorJobKind {
    /// Find problems in the notes.
    LintWiki,
    /// Draft ideas from the open points of notes.
    DreamSeed,
    /// Extract learnings from a transcript.
    IngestClaudeSession,
}

impl CuratorJobKind {
    pub const ALL: [Self; 3] = [Self::LintWiki, Self::DreamSeed, Self::IngestClaudeSession];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::LintWiki => "lint-wiki",
            Self::DreamSeed => "dream-seed",
            Self::IngestClaudeSession => "ingest-claude-session",
        }
    }

    /// Parses the kind from its name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for CuratorJobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The file, or the part of a file, that a job processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The path of the file, absolute or relative to the project's root.
    pub path: String,
    /// The first line of the chunk, counted from 1. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_start: Option<u64>,
    /// The last line of the chunk, or `None` for a chunk of the default length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_end: Option<u64>,
}

impl Source {
    /// Returns whether a line, counted from 1, is in the part of the file that the job processes.
    pub fn covers(&self, line: usize) -> bool {
        let line = u64::try_from(line).unwrap_or(u64::MAX);
        line >= self.chunk_start.unwrap_or(1) && line <= self.chunk_end.unwrap_or(u64::MAX)
    }
}

/// A job file. The last four fields extend the contract and have defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    /// The id, `20060102T150405Z-kind-8hex`, which is also the file name without its extension.
    pub id: String,
    pub kind: CuratorJobKind,
    /// The time at which the job was requested.
    pub created_at: Timestamp,
    /// Maximum number of retries.
    #[serde(default = "one")]
    pub max_retries: u32,
    /// The file that the job processes, for kinds that need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The priority. Jobs with a higher priority are processed first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The number of failed attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The number of times that the job was returned to the queue because its process died.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub returned: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

fn one() -> u32 {
    1
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl JobFile {
    /// Creates a job that has not been tried yet. `hex` becomes the last eight characters of its
    /// id.
    pub fn new(kind: CuratorJobKind, source: Option<Source>, hex: &str, now: Timestamp) -> Self {
        let at = now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string();
        Self {
            id: format!("{at}-{kind}-{hex}"),
            kind,
            created_at: now,
            max_retries: 1,
            source,
            priority: 0,
            attempts: 0,
            returned: 0,
            last_error: None,
        }
    }

    /// Parses and validates the content of the file `name`. Accepts only the listed `kinds`.
    ///
    /// # Errors
    /// Returns the reason why the file is not a valid job.
    pub fn read(name: &str, bytes: &[u8], kinds: &[CuratorJobKind]) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
        let word = value["kind"].as_str().unwrap_or_default();
        let listed = |kinds: &[CuratorJobKind]| {
            kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
        };
        match CuratorJobKind::of(word) {
            None => {
                let known = listed(&CuratorJobKind::ALL);
                return Err(format!("there is no kind {word:?} (known kinds: {known})"));
            }
            Some(kind) if !kinds.contains(&kind) => {
                return Err(format!(
                    "the kind {word:?} is not among those enabled in [curator] ({})",
                    listed(kinds)
                ));
            }
            Some(_) => {}
        }
        let mut job: Self = serde_json::from_value(value)
            .map_err(|error| format!("it is not a valid job: {error}"))?;
        if !good_id(&job.id, job.kind) {
            return Err(format!(
                "its id {:?} is not of the form 20060102T150405Z-{}-8hex",
                job.id, job.kind
            ));
        }
        if name.strip_suffix(".json") != Some(job.id.as_str()) {
            return Err(format!("its id {:?} does not match its file's name", job.id));
        }
        if let Some(source) = &job.source {
            if source.path.is_empty() || source.path.contains('\0') {
                return Err("its source has no path".to_owned());
            }
            if let (Some(start), Some(end)) = (source.chunk_start, source.chunk_end)
                && end < start
            {
                return Err(format!("its chunk ends ({end}) before it starts ({start})"));
            }
        }
        job.max_retries = job.max_retries.min(RETRIES);
        Ok(job)
    }

    /// Returns the content of the job's file.
    pub fn text(&self) -> Vec<u8> {
        pretty(self).into_bytes()
    }

    /// Returns the last eight characters of the job's id.
    pub fn hex(&self) -> &str {
        self.id.rsplit('-').next().unwrap_or(&self.id)
    }
}

fn good_id(id: &str, kind: CuratorJobKind) -> bool {
    let Some((at, rest)) = id.split_once('-') else {
        return false;
    };
    let form = at.bytes().enumerate().all(|(place, byte)| match place {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    });
    let hex = rest.strip_prefix(kind.as_str()).and_then(|rest| rest.strip_prefix('-'));
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    form && at.len() == 16 && hex.is_some_and(|hex| hex.len() == 8 && hex.bytes().all(is_hex))
}
