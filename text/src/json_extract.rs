//! Extracts JSON arrays from the output of a model or a program.
//!
//! An array may be the complete text, the content of a code fence, or part of prose. If it does not
//! parse as a whole, its objects are read one by one, so that valid elements survive next to
//! invalid ones. This module must never repair an element by guessing: an element is returned
//! unchanged or as an error, and a damaged array always yields an error.

mod find;
mod salvage;

use serde_json::Value;

/// Maximum length of the text in bytes. Longer text is rejected.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of elements. A longer array is rejected, or truncated to this number if it is
/// damaged.
pub const MAX_ELEMENTS: usize = 10_000;

/// An element's value, or the reason it cannot be read.
pub type ElementResult = Result<Value, ElementError>;

/// A damaged element, or other damage to the array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("element {index} at byte {offset}: {why}")]
pub struct ElementError {
    /// The index among the results, from 0.
    pub index: usize,
    /// The byte offset at which the damaged element, unexpected text or damaged array begins.
    pub offset: usize,
    pub why: String,
}

/// The reason no array can be returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    #[error("{bytes} bytes, more than the limit of {MAX_BYTES}")]
    TooLong { bytes: usize },
    #[error("no JSON array")]
    NoArray,
    /// The text contains several arrays that differ.
    #[error("{count} JSON arrays where one was expected")]
    Several {
        /// Number of arrays found. A search in prose stops at a limit.
        count: usize,
    },
    #[error("{count} elements, more than the limit of {MAX_ELEMENTS}")]
    TooMany { count: usize },
}

/// The byte range of an array in the text, and its elements.
struct ExtractedArray {
    start: usize,
    end: usize,
    elements: Vec<ElementResult>,
}

/// Returns the elements of the only array in `text`.
///
/// If the complete text is an array, it has priority over code fences, which have priority over
/// prose. Unmarked fences are used only if no fence marked as JSON contains an array, and fences
/// marked otherwise are ignored. In prose, only arrays of objects and empty arrays on their own
/// line are considered. Consecutive arrays with the same text are treated as one.
///
/// The time is linear in the length of the text. After 200 damaged places, the parser stops reading
/// an array and returns an error as its last element.
pub fn extract_array(text: &str) -> Result<Vec<ElementResult>, ExtractError> {
    let mut found = extract_arrays(text)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        count => Err(ExtractError::Several { count }),
    }
}

/// Returns the elements of each array in `text`, in the order of the text. The arrays are found as
/// by [`extract_array`]; of several textually identical arrays in a row, only one is returned.
///
/// # Errors
/// Returns the errors of [`extract_array`], except [`ExtractError::Several`].
pub fn extract_arrays(text: &str) -> Result<Vec<Vec<ElementResult>>, ExtractError> {
    if text.len() > MAX_BYTES {
        return Err(ExtractError::TooLong { bytes: text.len() });
    }
    let mut found = find::arrays(text);
    found.dedup_by(|a, b| text[a.start..a.end].trim() == text[b.start..b.end].trim());
    for ExtractedArray { elements, .. } in &found {
        if elements.len() > MAX_ELEMENTS && elements.iter().all(Result::is_ok) {
            return Err(ExtractError::TooMany { count: elements.len() });
        }
    }
    if found.is_empty() {
        return Err(ExtractError::NoArray);
    }
    Ok(found.into_iter().map(|array| array.elements).collect())
}

/// Whether the end of an array is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The array ends at or before the limit.
    Open,
    /// The array ends exactly at the limit.
    ToLimit,
}

/// Reads the array at `start`, as a whole or, if it is damaged, element by element. The array is
/// within `text[..limit]`.
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

/// Returns whether another element follows the closing bracket. With [`Extent::ToLimit`], the comma
/// before that element may be missing.
fn goes_on(after: &str, extent: Extent) -> bool {
    let after = after.trim_start();
    match after.strip_prefix(',') {
        Some(next) => next.trim_start().starts_with('{'),
        None => extent == Extent::ToLimit && after.starts_with('{'),
    }
}

#[cfg(test)]
mod tests;
