//! Reads the objects of a damaged array one by one.
//!
//! ```text
//! between ──{──> element ──parses──────────────> keep it; between
//!    │                   └─does not parse──────> an error; continue after its closing brace, or
//!    │                                           where the next element visibly begins
//!    ├──other text──> an error; continue at the next element
//!    └──] or the end──> done
//! ```
//!
//! An element visibly begins at a brace that begins a line with the damaged element's indentation,
//! or at an object that has the elements' first key and is not itself the value of a key. These
//! rules distinguish elements from nested objects.

use serde_json::Value;

use super::{ElementError, Extent, ExtractedArray, MAX_ELEMENTS};

const OPEN: u8 = b'{';
const CLOSE: u8 = b'}';

/// Number of damaged places after which the parser stops reading an array.
const MAX_BAD: usize = 200;

/// Maximum number of bytes that unsuccessful searches for closing braces may read, as a multiple of
/// the length of the array's text.
const MAX_SEARCHES: usize = 4;

struct Salvage<'t> {
    text: &'t str,
    at: usize,
    limit: usize,
    /// The elements' first key, including its quotes.
    first_key: Option<&'t str>,
    elements: Vec<Result<Value, ElementError>>,
    bad: usize,
    /// Number of bytes that unsuccessful searches may still read.
    searches: usize,
}

/// Reads as many elements as possible from the array at `start`. The array ends at its closing
/// bracket or at `limit`.
pub(super) fn array(text: &str, start: usize, limit: usize, extent: Extent) -> ExtractedArray {
    let mut salvage = Salvage {
        text,
        at: start + 1,
        limit,
        first_key: None,
        elements: Vec::new(),
        bad: 0,
        searches: MAX_SEARCHES * (limit - start),
    };
    salvage.run(extent);
    ExtractedArray { start, end: salvage.at, elements: salvage.elements }
}

impl<'t> Salvage<'t> {
    fn run(&mut self, extent: Extent) {
        loop {
            self.skip(|byte| byte.is_ascii_whitespace() || byte == b',');
            if self.elements.len() >= MAX_ELEMENTS || self.bad >= MAX_BAD {
                let why = "too many elements or too much damage; the rest was not read";
                self.refuse(self.at, why.to_owned());
                self.at = self.limit;
                return;
            }
            match self.byte(self.at) {
                None => return,
                Some(OPEN) => self.element(),
                Some(b']') => match self.behind_bracket(extent) {
                    Some(next) => self.at = next,
                    None => {
                        self.at += 1;
                        return;
                    }
                },
                Some(_) => {
                    self.refuse(self.at, "not an object".to_owned());
                    self.at = self.by_key(self.at).unwrap_or(self.limit);
                }
            }
        }
    }

    /// Returns the position of the next element if the closing bracket at the current position does
    /// not end the array. With [`Extent::Open`], only whitespace, closing brackets, closing braces
    /// and at least one comma may precede that element. With [`Extent::ToLimit`], other text may
    /// also precede the element.
    fn behind_bracket(&self, extent: Extent) -> Option<usize> {
        let after = &self.text[self.at..self.limit];
        let marks = |c: char| c.is_ascii_whitespace() || matches!(c, ']' | '}' | ',');
        let next = self.limit - after.trim_start_matches(marks).len();
        if self.begins_element(next)
            && (extent == Extent::ToLimit || self.text[self.at..next].contains(','))
        {
            return Some(next);
        }
        if extent == Extent::Open {
            return None;
        }
        let mut braces = after.match_indices('{').map(|(at, _)| self.at + at);
        let next = braces.find(|at| self.begins_element(*at))?;
        self.may_follow(next).then_some(next)
    }

    fn element(&mut self) {
        let start = self.at;
        let key = first_key(&self.text[start..self.limit]);
        self.first_key = self.first_key.or(key);
        let region = &self.text[start..self.limit];
        let mut stream = serde_json::Deserializer::from_str(region).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                self.at = start + stream.byte_offset();
                self.elements.push(Ok(value));
            }
            Some(Err(error)) => {
                self.refuse(start, error.to_string());
                self.at = match self.closing_brace(start) {
                    Ok(end) => end,
                    Err(stuck) => self.next_element(start, stuck).unwrap_or(self.limit),
                };
            }
            None => self.at = self.limit,
        }
    }

    /// Returns the position after the brace that closes the object at `start`, if strings, braces
    /// and brackets balance up to there and an element can end there. Otherwise returns the
    /// position at which the search stopped as `Err`. A line break ends an open string, because a
    /// JSON string cannot contain one.
    fn closing_brace(&mut self, start: usize) -> Result<usize, usize> {
        let limit = self.same_indent(start).unwrap_or(self.limit);
        let limit = limit.min(start + self.searches);
        let bytes = self.text.as_bytes();
        let mut open: Vec<u8> = Vec::new();
        let (mut string, mut escaped) = (false, false);
        // The last byte outside strings that is not whitespace.
        let mut before = b'[';
        let mut at = start;
        while at < limit {
            let byte = bytes[at];
            match byte {
                _ if escaped => escaped = false,
                b'\\' if string => escaped = true,
                b'\n' => string = false,
                b'"' => string = !string,
                // An element cannot begin inside a string or as a key, so a quotation mark or a
                // brace is missing before it.
                OPEN if string && self.begins_element(at) => break,
                _ if string => {}
                OPEN if matches!(before, b',' | OPEN) && open.last() == Some(&OPEN) => break,
                OPEN | b'[' => open.push(byte),
                CLOSE | b']' => {
                    let opening = if byte == CLOSE { OPEN } else { b'[' };
                    if open.pop() != Some(opening) {
                        break;
                    }
                    if open.is_empty() {
                        let next = self.byte(self.after_space(at + 1));
                        let plausible = matches!(next, None | Some(b',' | b']' | OPEN));
                        return if plausible { Ok(at + 1) } else { Err(at + 1) };
                    }
                }
                // No other byte is valid outside strings.
                _ if !b" \t\r\n,:+-.0123456789eEtrufalsn".contains(&byte) => break,
                _ => {}
            }
            if !string && !byte.is_ascii_whitespace() {
                before = byte;
            }
            at += 1;
        }
        self.searches = self.searches.saturating_sub(at - start);
        Err(at)
    }

    /// Returns the position where the element after the one at `start` visibly begins. A search by
    /// key begins at `stuck`.
    fn next_element(&self, start: usize, stuck: usize) -> Option<usize> {
        self.same_indent(start).or_else(|| self.by_key(stuck))
    }

    /// Returns the next brace that begins a line with the same indentation as the brace at `start`.
    /// Returns `None` if other text precedes the brace at `start` on its line.
    fn same_indent(&self, start: usize) -> Option<usize> {
        let before = self.text[..start].trim_end_matches([' ', '\t']);
        if !before.ends_with('\n') || self.byte(start) != Some(OPEN) {
            return None;
        }
        let indent = &self.text[before.len()..start];
        let opening = format!("\n{indent}{{");
        let next = self.text[start..self.limit].find(&opening)?;
        Some(start + next + opening.len() - 1)
    }

    /// Returns the next brace that is followed by the elements' first key and is not the value of a
    /// key.
    fn by_key(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at += self.text.get(at..self.limit)?.find('{')?;
            if self.begins_element(at) && self.may_follow(at) {
                return Some(at);
            }
            at += 1;
        }
    }

    /// Returns whether the text before `at` ends with a comma or with the end of an element.
    fn may_follow(&self, at: usize) -> bool {
        self.text[..at].trim_end().ends_with([',', ']', '}'])
    }

    /// Returns whether an object with a recognizable first key begins at `at`. The key must be the
    /// elements' first key, if that is known.
    fn begins_element(&self, at: usize) -> bool {
        let key = first_key(&self.text[at..self.limit]);
        key.is_some() && (self.first_key.is_none() || key == self.first_key)
    }

    fn refuse(&mut self, offset: usize, why: String) {
        self.bad += 1;
        self.elements.push(Err(ElementError { index: self.elements.len(), offset, why }));
    }

    fn byte(&self, at: usize) -> Option<u8> {
        (at < self.limit).then(|| self.text.as_bytes()[at])
    }

    fn skip(&mut self, unwanted: impl Fn(u8) -> bool) {
        while self.byte(self.at).is_some_and(&unwanted) {
            self.at += 1;
        }
    }

    fn after_space(&self, mut at: usize) -> usize {
        while self.byte(at).is_some_and(|byte| byte.is_ascii_whitespace()) {
            at += 1;
        }
        at
    }
}

/// Returns an object's first key, including its quotes, if the key is shorter than 64 bytes and
/// contains no escape or line break.
fn first_key(object: &str) -> Option<&str> {
    let inner = object.strip_prefix('{')?.trim_start();
    let rest = inner.strip_prefix('"')?;
    let end = rest.bytes().take(64).position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?;
    let key = inner.get(..end + 2)?;
    let colon = rest[end..].strip_prefix('"')?.trim_start();
    colon.starts_with(':').then_some(key)
}
