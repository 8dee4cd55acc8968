//! Extracts a single JSON array from the output of a model or a program.
//!
//! The array may be the complete text, the content of a code fence, or a part of prose. If it does
//! not parse as a whole, its objects are read one by one, so that one invalid element never causes
//! the loss of the valid ones (contracts/dream.md). This module must never repair by guessing: an
//! element is returned either as it was written or as an error, and a damaged array always contains
//! an error. If the text contains two different arrays, neither is chosen.

mod find;
mod salvage;

use serde_json::Value;

/// Maximum length of a text in bytes; a longer text is rejected.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of elements. A longer array is rejected, or truncated to this number if it is
/// damaged.
pub const MAX_ELEMENTS: usize = 10_000;

/// One element of the array: its value, or the reason why it cannot be read.
pub type ElementResult = Result<Value, ElementError>;

/// A damaged element, or other damage to the array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("element {index} at byte {offset}: {why}")]
pub struct ElementError {
    /// The index of the element among the results, from 0.
    pub index: usize,
    /// The byte offset in the text at which the element begins.
    pub offset: usize,
    /// The description of the damage.
    pub why: String,
}

/// The reason why no array can be returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    #[error("{bytes} bytes, more than the limit of {MAX_BYTES}")]
    TooLong { bytes: usize },
    /// The text contains no array of objects.
    #[error("no JSON array")]
    NoArray,
    /// The text contains several arrays that differ.
    #[error("{count} JSON arrays where one was expected")]
    Several {
        /// Number of arrays found; the search stops after a limit.
        count: usize,
    },
    #[error("{count} elements, more than the limit of {MAX_ELEMENTS}")]
    TooMany { count: usize },
}

/// The position of an array in the text, and its elements.
struct ExtractedArray {
    start: usize,
    end: usize,
    elements: Vec<ElementResult>,
}

/// Returns the elements of the only array in `text`.
///
/// If the complete text is an array, that array is used. Otherwise a code fence that contains an
/// array (marked `json`, or unmarked if no marked fence contains one) has priority over prose. In
/// prose, only arrays of objects are considered, including an array inside an enclosing object.
/// Arrays with the same text count as one. Time is linear in the text: after a few hundred damaged
/// places the parser stops, with an error as the last element.
pub fn extract_array(text: &str) -> Result<Vec<ElementResult>, ExtractError> {
    if text.len() > MAX_BYTES {
        return Err(ExtractError::TooLong { bytes: text.len() });
    }
    let mut found = find::arrays(text);
    let count = found.len();
    let alike = |a: &ExtractedArray, b: &ExtractedArray| {
        text[a.start..a.end].trim() == text[b.start..b.end].trim()
    };
    if found.windows(2).any(|pair| !alike(&pair[0], &pair[1])) {
        return Err(ExtractError::Several { count });
    }
    let elements = found.pop().ok_or(ExtractError::NoArray)?.elements;
    let intact = elements.iter().all(Result::is_ok);
    if intact && elements.len() > MAX_ELEMENTS {
        let count = elements.len();
        return Err(ExtractError::TooMany { count });
    }
    Ok(elements)
}

/// Whether the end of an array is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The array ends at or before the limit.
    Open,
    /// The array ends exactly at the limit.
    ToLimit,
}

/// Reads the array that begins at `start`, as a whole or element by element. The array is within
/// `text[..limit]`; with [`Extent::ToLimit`], it ends at `limit`.
fn read_at(text: &str, start: usize, limit: usize, extent: Extent) -> ExtractedArray {
    let region = &text[start..limit];
    let mut stream = serde_json::Deserializer::from_str(region).into_iter::<Value>();
    let why = match stream.next() {
        Some(Ok(Value::Array(values))) => {
            let end = stream.byte_offset();
            if !goes_on(&region[end..], extent) {
                return ExtractedArray {
                    start,
                    end: start + end,
                    elements: values.into_iter().map(Ok).collect(),
                };
            }
            "elements after its end".to_owned()
        }
        Some(Err(error)) => error.to_string(),
        _ => "not an array".to_owned(),
    };
    let mut found = salvage::array(text, start, limit, extent);
    if found.elements.iter().all(Result::is_ok) {
        let index = found.elements.len();
        found.elements.push(Err(ElementError {
            index,
            offset: start,
            why: format!("the array is damaged: {why}"),
        }));
    }
    found
}

/// Returns whether another element follows the bracket that should be the last. With
/// [`Extent::ToLimit`], no comma is required.
fn goes_on(after: &str, extent: Extent) -> bool {
    let after = after.trim_start();
    match after.strip_prefix(',') {
        Some(next) => next.trim_start().starts_with('{'),
        None => extent == Extent::ToLimit && after.starts_with('{'),
    }
}

#[cfg(test)]
mod tests;
