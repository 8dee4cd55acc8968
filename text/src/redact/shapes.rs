//! Tokens that their own prefix gives away: the floor is what gitleaks' default rules find.

use super::{LONGEST, Span, begins_word};

/// From this length on a run of fitting bytes is judged once.
const LONG_RUN: usize = 1024;

/// A prefix and what has to follow it.
struct Shape {
    kind: &'static str,
    prefix: &'static str,
    /// Which bytes may follow.
    tail: fn(u8) -> bool,
    /// How many of them at least.
    least: usize,
    /// Whether a letter or digit may not stand before the prefix: for prefixes that occur in
    /// words.
    word: bool,
    /// A last look at what follows.
    check: fn(&str) -> bool,
}

fn alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn url_safe(byte: u8) -> bool {
    alnum(byte) || matches!(byte, b'_' | b'-')
}

fn dotted(byte: u8) -> bool {
    url_safe(byte) || byte == b'.'
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn any(_: &str) -> bool {
    true
}

fn has_digit(tail: &str) -> bool {
    tail.bytes().any(|byte| byte.is_ascii_digit())
}

/// One unbroken piece of at least 20 letters and digits, both of them: what tells a key from
/// words joined with hyphens.
fn has_long_piece(tail: &str) -> bool {
    tail.split(['-', '_']).any(|piece| {
        piece.len() >= 20 && has_digit(piece) && piece.bytes().any(|b| !b.is_ascii_digit())
    })
}

fn is_aws_id(tail: &str) -> bool {
    tail.len() == 16
}

/// `header.payload.signature`; the payload may be absent in a detached one.
fn is_jwt(tail: &str) -> bool {
    let mut parts = tail.split('.');
    let header = parts.next().is_some_and(|part| part.len() >= 10);
    let payload = parts
        .next()
        .is_some_and(|part| part.len() >= 10 || part.is_empty());
    header && payload && parts.next().is_some_and(|part| part.len() >= 10)
}

const fn shape(
    kind: &'static str,
    prefix: &'static str,
    tail: fn(u8) -> bool,
    least: usize,
) -> Shape {
    Shape {
        kind,
        prefix,
        tail,
        least,
        word: false,
        check: any,
    }
}

const fn word(
    kind: &'static str,
    prefix: &'static str,
    tail: fn(u8) -> bool,
    least: usize,
    check: fn(&str) -> bool,
) -> Shape {
    Shape {
        kind,
        prefix,
        tail,
        least,
        word: true,
        check,
    }
}

/// Of two that fit, the earlier wins.
const SHAPES: &[Shape] = &[
    word("aws-key", "AKIA", upper, 16, is_aws_id),
    word("aws-key", "ASIA", upper, 16, is_aws_id),
    word("aws-key", "ABIA", upper, 16, is_aws_id),
    word("aws-key", "ACCA", upper, 16, is_aws_id),
    shape("github-token", "ghp_", alnum, 30),
    shape("github-token", "gho_", alnum, 30),
    shape("github-token", "ghs_", alnum, 30),
    shape("github-token", "ghu_", alnum, 30),
    shape("github-token", "ghr_", alnum, 30),
    shape("github-token", "github_pat_", url_safe, 22),
    shape("gitlab-token", "glpat-", dotted, 20),
    shape("anthropic-key", "sk-ant-", url_safe, 20),
    word("openai-key", "sk-proj-", url_safe, 20, has_digit),
    word("openai-key", "sk-svcacct-", url_safe, 20, has_digit),
    word("openai-key", "sk-admin-", url_safe, 20, has_digit),
    word("openai-key", "sk-", url_safe, 20, has_long_piece),
    word("slack-token", "xoxa-", url_safe, 10, has_digit),
    word("slack-token", "xoxb-", url_safe, 10, has_digit),
    word("slack-token", "xoxe-", url_safe, 10, has_digit),
    word("slack-token", "xoxe.", dotted, 10, has_digit),
    word("slack-token", "xoxp-", url_safe, 10, has_digit),
    word("slack-token", "xoxr-", url_safe, 10, has_digit),
    word("slack-token", "xoxs-", url_safe, 10, has_digit),
    word("slack-token", "xapp-", url_safe, 10, has_digit),
    word("google-key", "AIza", url_safe, 35, any),
    word("google-token", "ya29.", dotted, 20, has_digit),
    word("jwt", "eyJ", dotted, 22, is_jwt),
    shape("npm-token", "npm_", alnum, 30),
    word("huggingface-token", "hf_", alnum, 30, any),
    shape("stripe-key", "sk_live_", alnum, 10),
    shape("stripe-key", "rk_live_", alnum, 10),
    word("stripe-key", "sk_test_", alnum, 16, has_digit),
    word("stripe-key", "rk_test_", alnum, 16, has_digit),
    shape("pypi-token", "pypi-AgE", url_safe, 50),
    shape("age-key", "AGE-SECRET-KEY-1", upper, 50),
];

/// Adds the tokens that begin in `text[from..to]`.
pub(super) fn scan(text: &str, from: usize, to: usize, spans: &mut Vec<Span>) {
    let bytes = &text.as_bytes()[..to];
    let mut judged = [from; SHAPES.len()];
    let mut at = from;
    while at < to {
        let found = may_begin(&bytes[at..]).then(|| token(text, bytes, at, &mut judged));
        let end = found.flatten();
        match end {
            Some((end, kind)) => {
                spans.push(Span {
                    context: at,
                    start: at,
                    end,
                    kind,
                    rank: 1,
                });
                at = end;
            }
            None => at += 1,
        }
    }
}

/// Whether the first two bytes begin any of the prefixes: most places are done with here.
fn may_begin(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'A', b'B' | b'C' | b'G' | b'I' | b'K' | b'S', ..]
            | [b'e', b'y', ..]
            | [b'g', b'h' | b'i' | b'l', ..]
            | [b'h', b'f', ..]
            | [b'n', b'p', ..]
            | [b'p', b'y', ..]
            | [b'r' | b's', b'k', ..]
            | [b'x', b'a' | b'o', ..]
            | [b'y', b'a', ..]
    )
}

/// The token at `at`. Where a very long run did not fit a shape, `judged` keeps its end: the same
/// shape is not tried again inside it.
fn token(
    text: &str,
    bytes: &[u8],
    at: usize,
    judged: &mut [usize; SHAPES.len()],
) -> Option<(usize, &'static str)> {
    let fits = |(shape, judged): (&Shape, &mut usize)| {
        let prefixed = bytes[at..].starts_with(shape.prefix.as_bytes());
        if !prefixed || at < *judged || (shape.word && !begins_word(bytes, at)) {
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
            *judged = end;
        }
        None
    };
    SHAPES.iter().zip(judged).find_map(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shape_is_passed_over() {
        for shape in SHAPES {
            assert!(may_begin(shape.prefix.as_bytes()), "{}", shape.prefix);
            assert!(shape.least <= LONGEST);
        }
    }
}
