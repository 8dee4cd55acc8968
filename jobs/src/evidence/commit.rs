//! One commit in the history, as kept in memory and in the evidence cache. This module must never
//! read a repository.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The full hash of the commit.
    pub hash: String,
    /// The commit time in seconds since the epoch; 0 if the date is invalid.
    pub at: i64,
    /// The first line of the commit's message.
    pub subject: String,
    /// The rest of the message, trailers included, up to the limit in `HistoryLimits`.
    pub body: String,
    /// The paths that the commit touched, up to the limit in `HistoryLimits`; empty for a merge, or
    /// if git could not list them.
    pub paths: Vec<String>,
    /// Total number of paths that the commit touched; 0 if `paths` is empty.
    pub touched: usize,
    /// Indices into `paths` of the files that the commit created.
    pub created: Vec<u32>,
    /// The terms of the lines that the commit added; `None` if they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<AddedText>,
}

impl Commit {
    /// Returns the abbreviated hash: its first 12 digits.
    pub fn short(&self) -> &str {
        &self.hash[..self.hash.len().min(12)]
    }
}

/// The terms of the lines that a commit added to files other than documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedText {
    /// The hashes of the terms, sorted. Empty once they are in an index.
    #[serde(serialize_with = "packed", deserialize_with = "unpacked")]
    pub terms: Vec<u32>,
    /// Whether all of the added lines were read and all of their terms were kept.
    pub whole: bool,
    /// Whether the commit changed files other than documents, and each of them gained mostly prose.
    pub prose: bool,
}

fn packed<S: Serializer>(terms: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = terms.iter().flat_map(|term| term.to_le_bytes()).collect();
    serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
}

fn unpacked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = STANDARD_NO_PAD.decode(text).map_err(serde::de::Error::custom)?;
    let words = bytes.as_chunks::<4>().0.iter();
    Ok(words.map(|word| u32::from_le_bytes(*word)).collect())
}
