//! Replaces byte ranges of a string.

use std::ops::Range;

/// A replacement of one byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub range: Range<usize>,
    pub with: String,
}

/// The reason edits cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the changes to bytes {} to {} and {} to {} overlap", .0.start, .0.end, .1.start, .1.end)]
    Overlap(Range<usize>, Range<usize>),
    /// The range is outside the text, or a boundary is inside a character.
    #[error("a change to bytes {} to {} does not fit the text", .0.start, .0.end)]
    Outside(Range<usize>),
}

/// Applies all edits, in any order. Every byte outside their ranges is kept.
///
/// # Errors
/// Returns an error if edits overlap or do not fit the text.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> Result<String, EditError> {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut out = String::with_capacity(text.len() + 64);
    let mut done = 0;
    let mut last = 0..0;
    for edit in edits {
        if edit.range.start < done {
            return Err(EditError::Overlap(last, edit.range));
        }
        let kept = text.get(done..edit.range.start);
        let (Some(kept), Some(_)) = (kept, text.get(edit.range.clone())) else {
            return Err(EditError::Outside(edit.range));
        };
        out.push_str(kept);
        out.push_str(&edit.with);
        done = edit.range.end;
        last = edit.range;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Ok(out)
}
