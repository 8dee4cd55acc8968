//! Finds the arrays in the complete text, in its code fences, or in prose.

use super::{Extent, ExtractedArray, read_at};

/// The characters that usually begin an element.
const OBJECT_OR_TEXT: [char; 2] = ['{', '"'];

/// Returns all arrays from the first source that contains any: the complete text, then code fences,
/// then prose.
pub(super) fn arrays(text: &str) -> Vec<ExtractedArray> {
    let start = text.find(|c: char| !c.is_whitespace() && c != '\u{feff}');
    let Some(start) = start else {
        return Vec::new();
    };
    let end = text.trim_end().len();
    if text[start..].starts_with('[') {
        let whole = read_at(text, start, end, Extent::ToLimit);
        let intact = whole.elements.iter().all(Result::is_ok);
        let plainly = text[start + 1..].trim_start().starts_with(OBJECT_OR_TEXT);
        if (intact && whole.end == end) || (!intact && plainly && !has_fence(&text[start..end])) {
            return vec![whole];
        }
    }
    let fenced = fences(text);
    if !fenced.is_empty() {
        return fenced
            .into_iter()
            .map(|(start, end)| read_at(text, start, end, Extent::ToLimit))
            .collect();
    }
    prose(text)
}

fn has_fence(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("```"))
}

/// Returns the byte ranges of fenced code that begins with a bracket, without surrounding
/// whitespace. Unmarked fences are used only if no fence marked as JSON contains such code, and
/// fences marked otherwise are ignored. An unterminated fence extends to the end of the text.
fn fences(text: &str) -> Vec<(usize, usize)> {
    let (mut marked, mut unmarked) = (Vec::new(), Vec::new());
    let mut open: Option<(usize, &str, usize)> = None;
    let mut at = 0;
    let mut keep = |start: usize, end: usize, info: &str| {
        let inner = &text[start..end];
        let begin = start + (inner.len() - inner.trim_start().len());
        if !text[begin..end].starts_with('[') {
            return;
        }
        let range = (begin, begin + text[begin..end].trim_end().len());
        match info.to_ascii_lowercase().as_str() {
            "json" | "jsonc" | "json5" => marked.push(range),
            "" => unmarked.push(range),
            _ => {}
        }
    };
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        let ticks = bare.len() - bare.trim_start_matches('`').len();
        match open {
            Some((start, info, length)) if ticks >= length && ticks == bare.len() => {
                keep(start, at, info);
                open = None;
            }
            None if ticks >= 3 && !bare[ticks..].contains('`') => {
                let info = bare[ticks..].split_whitespace().next().unwrap_or("");
                open = Some((at + line.len(), info, ticks));
            }
            _ => {}
        }
        at += line.len();
    }
    if let Some((start, info, _)) = open {
        keep(start, text.len(), info);
    }
    if marked.is_empty() { unmarked } else { marked }
}

/// Maximum number of arrays to find in prose.
const MOST_ARRAYS: usize = 64;

/// Returns the arrays of objects in the text or, if there are none, the empty arrays that are alone
/// on a line.
fn prose(text: &str) -> Vec<ExtractedArray> {
    let mut found: Vec<ExtractedArray> = Vec::new();
    let mut at = 0;
    while found.len() < MOST_ARRAYS
        && let Some(next) = text[at..].find('[')
    {
        let start = at + next;
        if opens_objects(text, start) || is_empty_line(text, start) {
            let array = read_at(text, start, text.len(), Extent::Open);
            at = array.end.max(start + 1);
            found.push(array);
        } else {
            at = start + 1;
        }
    }
    if found.iter().any(|array| !array.elements.is_empty()) {
        found.retain(|array| !array.elements.is_empty());
    }
    found
}

/// Returns whether `{"` or `{}` follows the bracket at `start`, ignoring whitespace.
fn opens_objects(text: &str, start: usize) -> bool {
    let inner = text[start + 1..].trim_start();
    inner.strip_prefix('{').is_some_and(|object| object.trim_start().starts_with(['"', '}']))
}

fn is_empty_line(text: &str, start: usize) -> bool {
    let Some(after) = text[start..].strip_prefix("[]") else {
        return false;
    };
    let before = text[..start].trim_end_matches([' ', '\t']);
    let after = after.trim_start_matches([' ', '\t', '\r']);
    (before.is_empty() || before.ends_with('\n')) && (after.is_empty() || after.starts_with('\n'))
}
