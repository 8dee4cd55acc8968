//! Finds tokens by their prefix.

use std::sync::LazyLock;

use super::table::{SHAPES, Shape};
use super::{LONGEST, Span, begins_word};

/// Minimum length in bytes of a run of matching bytes that is checked only once.
const LONG_RUN: usize = 1024;

/// Adds the tokens that begin in `text[from..to]`.
pub(super) fn scan(text: &str, from: usize, to: usize, spans: &mut Vec<Span>) {
    let bytes = &text.as_bytes()[..to];
    let index = &*INDEX;
    let mut judged = [from; SHAPES.len()];
    let mut at = from;
    while at < to {
        let fitting = index.at(bytes, at);
        let end = fitting.and_then(|shapes| token(text, bytes, at, shapes, &mut judged));
        match end {
            Some((end, kind)) => {
                spans.push(Span { context: at, start: at, end, kind, rank: 1 });
                at = end;
            }
            None => at += 1,
        }
    }
}

/// The shapes, keyed by the first two bytes of their prefixes, which rule out most positions.
struct Index {
    groups: Vec<Vec<usize>>,
    /// The number of a pair's group in `groups`. Group 0 is empty.
    by_pair: Box<[[u8; 128]; 128]>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { groups: vec![Vec::new()], by_pair: Box::new([[0; 128]; 128]) };
    for (number, shape) in SHAPES.iter().enumerate() {
        let [first, second, ..] = *shape.prefix.as_bytes() else {
            unreachable!("a prefix has at least two bytes");
        };
        let group = &mut index.by_pair[usize::from(first)][usize::from(second)];
        if *group == 0 {
            *group = u8::try_from(index.groups.len()).expect("there are fewer than 256 pairs");
            index.groups.push(Vec::new());
        }
        index.groups[usize::from(*group)].push(number);
    }
    index
});

impl Index {
    /// Returns the shapes that may begin at `at`.
    fn at(&self, bytes: &[u8], at: usize) -> Option<&[usize]> {
        let first = usize::from(*bytes.get(at)?);
        let second = usize::from(*bytes.get(at + 1)?);
        if first >= 128 || second >= 128 {
            return None;
        }
        match self.by_pair[first][second] {
            0 => None,
            group => Some(&self.groups[usize::from(group)]),
        }
    }
}

/// Returns the end and the kind of the token at `at`. If a very long run does not match a shape,
/// `judged` records the end of the run, and the shape is not tried again inside the run.
fn token(
    text: &str,
    bytes: &[u8],
    at: usize,
    shapes: &[usize],
    judged: &mut [usize; SHAPES.len()],
) -> Option<(usize, &'static str)> {
    let mut fits = |number: usize| {
        let shape: &Shape = &SHAPES[number];
        let prefixed = bytes[at..].starts_with(shape.prefix.as_bytes());
        if !prefixed || at < judged[number] || (shape.word && !begins_word(bytes, at)) {
            return None;
        }
        let start = at + shape.prefix.len();
        let tail = bytes[start..].iter().take(LONGEST);
        let length = tail.take_while(|byte| (shape.tail)(**byte)).count();
        let end = start + length;
        if length >= shape.least && (shape.check)(&text[start..end]) {
            return Some((end, shape.kind));
        }
        if length >= LONG_RUN {
            judged[number] = end;
        }
        None
    };
    shapes.iter().find_map(|number| fits(*number))
}

#[cfg(test)]
mod tests {
    use super::super::Redactor;
    use super::super::samples::of_shape;
    use super::*;

    #[test]
    fn every_token_shape_is_redacted() {
        let redactor = Redactor::new(Vec::new());
        for shape in SHAPES {
            assert!(shape.least <= LONGEST && shape.prefix.is_ascii());
            let token = of_shape(shape).secret;
            for (before, after) in [("", ""), ("key ", " end"), ("{\"a\":\"", "\"}")] {
                let text = format!("{before}{token}{after}");
                let redacted = redactor.redact(&text);
                assert!(
                    redacted.starts_with(&format!("{before}[redacted:")),
                    "{token}: {redacted}"
                );
                assert!(
                    redacted.ends_with(after) && !redacted.contains(&token),
                    "{token}: {redacted}"
                );
                for at in 0..=text.len() {
                    let mut stream = redactor.stream();
                    let (one, two) = text.as_bytes().split_at(at);
                    let parts = [stream.push(one), stream.push(two), stream.finish()];
                    assert_eq!(parts.concat(), redacted, "{token} at {at}");
                }
            }
        }
        assert!(SHAPES.len() > 150, "{}", SHAPES.len());
    }
}
