//! `dreams/state.json`: the record of when each idea was last shown and which content was last
//! triaged.
//!
//! The file is an array in a format that other programs also read. Entries that a pass does not
//! change are therefore kept byte for byte. The other fields of a changed entry are kept as
//! written, including numbers of any length and strings that are not valid Unicode (`"\ud800"`). A
//! file that is not such an array is never overwritten. The parser is designed for 100,000 entries:
//! it makes one pass over the text and borrows paths and times from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use jiff::Timestamp;
use runner_engine::digest::Digest;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

mod entry;

use entry::{Keys, element, marked_element};

const OBJECT: char = '{';

/// Why the contents are not a valid state file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadState(String);

/// The content of the state file.
#[derive(Debug, Default)]
pub struct DreamState<'a> {
    text: &'a str,
    /// The entries in file order.
    entries: Vec<Entry<'a>>,
    /// Indices into `entries`, sorted by path; empty if the entries are already in that order.
    by_path: Vec<u32>,
}

#[derive(Debug)]
struct Entry<'a> {
    range: Range<usize>,
    path: Cow<'a, str>,
    hash: Option<Digest>,
    surfaced: Option<Cow<'a, str>>,
    first_seen: Option<Cow<'a, str>>,
}

/// The fields of an entry that a pass needs; all others are skipped.
#[derive(Deserialize)]
struct Needed<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    hash: BorrowedText<'a>,
    #[serde(borrow, default)]
    last_surfaced: BorrowedText<'a>,
    #[serde(borrow, default)]
    first_seen: BorrowedText<'a>,
}

/// A string, borrowed from the file where possible; `None` if the value is null or missing.
/// (`Option<Cow>` would copy.)
#[derive(Default)]
struct BorrowedText<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = BorrowedText<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedText(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BorrowedText(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(BorrowedText(None))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A pass's update of one idea.
#[derive(Clone, Debug, PartialEq)]
pub struct IdeaUpdate {
    /// The time of the pass. A new entry records it as the time when the idea was first seen.
    pub at: Timestamp,
    /// Whether the idea was shown.
    pub shown: bool,
    /// The content covered by a valid answer. `None` leaves the recorded hash unchanged.
    pub triaged: Option<Triaged>,
}

/// The content covered by a valid answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Triaged {
    /// The digest of the content.
    pub hash: Digest,
    /// The time when that content was written.
    pub modified: Timestamp,
    /// How substantial the idea is, from 0 to 1; used only for ranking.
    pub merit: f64,
}

/// The effect of a user's decision on an idea's entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// `active`, `archived`, `promoted` or `merged`.
    pub status: String,
    /// The hash of the content to record as triaged. `None` leaves the recorded hash unchanged.
    pub hash: Option<String>,
    /// The event that is added to `history`.
    pub happened: Value,
}

/// The recorded state of an idea.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdeaRecord {
    /// The idea's status; `None` if the value is missing or not a string.
    pub status: Option<String>,
    /// The digest of the content that was last triaged; `None` if none is recorded.
    pub hash: Option<Digest>,
}

impl<'a> DreamState<'a> {
    /// Parses a state file. A blank file yields an empty state.
    ///
    /// # Errors
    /// Returns an error if the file is not an array of objects with a `path`, or if a hash or a
    /// time is neither a string nor null.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadState> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| BadState(format!("it is not UTF-8: {error}")))?;
        let mut state = DreamState { text, ..DreamState::default() };
        let mut at = skip_space(text, 0);
        if at == text.len() {
            return Ok(state);
        }
        if !text[at..].starts_with('[') {
            return Err(BadState("it is not a JSON array".to_owned()));
        }
        at = skip_space(text, at + 1);
        if text[at..].starts_with(']') {
            return end(text, at, state);
        }
        loop {
            let mut values =
                serde_json::Deserializer::from_str(&text[at..]).into_iter::<Needed<'a>>();
            let number = state.entries.len();
            // Serde would also accept a list of values for `Needed`.
            if !text[at..].is_empty() && !text[at..].starts_with(OBJECT) {
                return Err(BadState(format!("entry {number} at byte {at} is not an object")));
            }
            let needed = match values.next() {
                Some(Ok(needed)) => needed,
                Some(Err(error)) => {
                    return Err(BadState(format!("entry {number} at byte {at}: {error}")));
                }
                None => return Err(BadState(format!("it ends before entry {number}"))),
            };
            let range = at..at + values.byte_offset();
            let hash = needed.hash.0.as_deref().and_then(Digest::parse);
            at = skip_space(text, range.end);
            state.entries.push(Entry {
                range,
                path: needed.path,
                hash,
                surfaced: needed.last_surfaced.0,
                first_seen: needed.first_seen.0,
            });
            match text.as_bytes().get(at) {
                Some(b',') => at = skip_space(text, at + 1),
                Some(b']') => return end(text, at, state),
                _ => {
                    return Err(BadState(format!(
                        "no comma or end after entry {number} at byte {at}"
                    )));
                }
            }
        }
    }

    /// Returns the number of ideas in the state.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the state has no ideas.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the digest of the most recently triaged content of the idea at `path`, or `None` if
    /// none is recorded. The idea at index `hint` is checked first, and `hint` is then set to the
    /// index after the idea that was found. A caller that makes queries in path order starts with 0
    /// and passes the same variable to each call.
    pub fn triaged(&self, path: &str, hint: &mut usize) -> Option<Digest> {
        let guess = if self.by_path.is_empty() {
            self.entries.get(*hint)
        } else {
            self.by_path.get(*hint).map(|at| &self.entries[*at as usize])
        };
        if let Some(entry) = guess.filter(|entry| entry.path == path) {
            *hint += 1;
            return entry.hash;
        }
        let place = self.place(path)?;
        *hint = place + 1;
        self.entries[self.at(place)].hash
    }

    /// Returns the time when the idea at `path` was last shown, or `None` if no such time is
    /// recorded.
    pub fn surfaced(&self, path: &str) -> Option<Timestamp> {
        let surfaced = self.entries[self.find(path)?].surfaced.as_deref()?.parse().ok();
        surfaced.filter(|at| *at > Timestamp::UNIX_EPOCH)
    }

    /// Returns whether the state has an entry for the idea at `path`.
    pub fn knows(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the times of the passes recorded in the state, in order. Every pass records the
    /// ideas that it sees for the first time, so an idea that a pass did not record did not exist
    /// at the time.
    pub fn passes(&self) -> Vec<Timestamp> {
        let times = self.entries.iter().flat_map(|entry| [&entry.surfaced, &entry.first_seen]);
        let times = times.flatten().filter_map(|time| time.parse().ok());
        let mut times: Vec<Timestamp> =
            times.filter(|time| *time > Timestamp::UNIX_EPOCH).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Returns the last of `passes` at which the idea at `path` did not exist yet, or `None` if no
    /// such pass is known.
    pub fn absent_at(&self, path: &str, passes: &[Timestamp]) -> Option<Timestamp> {
        let Some(at) = self.find(path) else { return passes.last().copied() };
        let seen: Timestamp = self.entries[at].first_seen.as_deref()?.parse().ok()?;
        let earlier = passes.partition_point(|pass| *pass < seen);
        earlier.checked_sub(1).map(|last| passes[last])
    }

    fn find(&self, path: &str) -> Option<usize> {
        self.place(path).map(|place| self.at(place))
    }

    /// Returns the index, in path order, of the idea at `path`.
    fn place(&self, path: &str) -> Option<usize> {
        let compare = |entry: &Entry<'_>| entry.path.as_ref().cmp(path);
        let found = if self.by_path.is_empty() {
            self.entries.binary_search_by(compare)
        } else {
            self.by_path.binary_search_by(|at| compare(&self.entries[*at as usize]))
        };
        found.ok()
    }

    /// Converts an index in path order to an index in file order.
    fn at(&self, place: usize) -> usize {
        self.by_path.get(place).map_or(place, |at| *at as usize)
    }

    /// Returns the recorded state of the idea at `path`, or `None` if the idea has no entry.
    pub fn standing(&self, path: &str) -> Option<IdeaRecord> {
        let entry = &self.entries[self.find(path)?];
        let keys = Keys::of(&self.text[entry.range.clone()]);
        Some(IdeaRecord {
            status: keys.get("status").and_then(|raw| serde_json::from_str(raw).ok()),
            hash: entry.hash,
        })
    }

    /// Returns the file's new content after a pass. Changed entries keep their position, and new
    /// entries follow at the end, sorted by path.
    pub fn with(&self, changes: &BTreeMap<&str, IdeaUpdate>) -> String {
        self.rewritten(changes, element)
    }

    /// Returns the file's new content after the user's decisions on these ideas.
    pub fn marked(&self, marks: &BTreeMap<&str, Mark>) -> String {
        self.rewritten(marks, marked_element)
    }

    fn rewritten<C>(
        &self,
        changes: &BTreeMap<&str, C>,
        element: impl Fn(Keys<'_>, &str, &C) -> String,
    ) -> String {
        let mut touched: BTreeMap<usize, (&str, &C)> = BTreeMap::new();
        let mut added = Vec::new();
        for (path, change) in changes {
            match self.find(path) {
                Some(at) => {
                    touched.insert(at, (path, change));
                }
                None => added.push((*path, change)),
            }
        }
        let mut text = String::with_capacity(self.text.len() + 256 * changes.len() + 4);
        text.push('[');
        let mut put = |element: &str| {
            text.push_str(if text.len() == 1 { "\n  " } else { ",\n  " });
            text.push_str(element);
        };
        for (at, entry) in self.entries.iter().enumerate() {
            let old = &self.text[entry.range.clone()];
            match touched.get(&at) {
                None => put(old),
                Some((path, change)) => put(&element(Keys::of(old), path, change)),
            }
        }
        for (path, change) in added {
            put(&element(Keys::default(), path, change));
        }
        text.push_str(if text.len() == 1 { "]\n" } else { "\n]\n" });
        text
    }
}

fn end<'a>(text: &str, at: usize, mut state: DreamState<'a>) -> Result<DreamState<'a>, BadState> {
    let after = skip_space(text, at + 1);
    if after != text.len() {
        return Err(BadState(format!("unexpected text after the array, at byte {after}")));
    }
    let path = |at: &u32| &state.entries[*at as usize].path;
    if !state.entries.is_sorted_by(|a, b| a.path < b.path) {
        let mut by_path: Vec<u32> = (0..state.entries.len() as u32).collect();
        by_path.sort_by(|a, b| path(a).cmp(path(b)));
        // If there are two entries for one idea, the first one is used.
        by_path.dedup_by(|a, b| path(a) == path(b));
        state.by_path = by_path;
    }
    Ok(state)
}

fn skip_space(text: &str, from: usize) -> usize {
    text[from..]
        .bytes()
        .position(|byte| !byte.is_ascii_whitespace())
        .map_or(text.len(), |n| from + n)
}

#[cfg(test)]
mod tests;
