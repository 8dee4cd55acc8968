//! Removes inline markup such as emphasis, links, images, backticks, tags and footnotes.

/// Returns the text of one line without markup. Brackets outside links and underscores inside names
/// are kept.
pub(super) fn strip(line: &str) -> String {
    let bytes = line.as_bytes();
    let pairs = Pairs::of(bytes);
    let last_tag_end = line.rfind('>').unwrap_or(0);
    let mut out = String::with_capacity(line.len());
    let mut at = 0;
    // For each open link, the innermost last: the end of its text, and the position after the whole
    // link.
    let mut open: Vec<(usize, usize)> = Vec::new();
    while at < bytes.len() {
        if let Some(&(end, next)) = open.last()
            && at >= end
        {
            open.pop();
            at = at.max(next);
            continue;
        }
        match bytes[at] {
            b'\\' if bytes.get(at + 1).is_some_and(u8::is_ascii_punctuation) => {
                out.push(bytes[at + 1] as char);
                at += 2;
            }
            b'!' if bytes.get(at + 1) == Some(&b'[') && pairs.link(bytes, at + 1).is_some() => {
                at += 1;
            }
            b'[' => match pairs.link(bytes, at) {
                Some((end, next)) => {
                    let footnote = bytes.get(at + 1) == Some(&b'^');
                    if footnote {
                        at = next;
                    } else {
                        open.push((end, next));
                        at += 1;
                    }
                }
                None => {
                    out.push('[');
                    at += 1;
                }
            },
            b'*' | b'`' => at += 1,
            b'~' if bytes.get(at + 1) == Some(&b'~') => at += 2,
            b'_' => {
                let run = bytes[at..].iter().take_while(|b| **b == b'_').count();
                if !at_word_edge(bytes, at, run) {
                    out.push_str(&line[at..at + run]);
                }
                at += run;
            }
            b'<' if at < last_tag_end && opens_tag(bytes, at) => {
                let end = line[at..].find('>').map_or(bytes.len(), |len| at + len);
                let inner = &line[at + 1..end];
                if inner.contains("://") || inner.contains('@') {
                    out.push_str(inner);
                }
                at = (end + 1).min(bytes.len());
            }
            _ => {
                let end = line[at..]
                    .char_indices()
                    .skip(1)
                    .find(|(_, c)| c.is_ascii_punctuation() || c.is_whitespace())
                    .map_or(bytes.len(), |(len, _)| at + len);
                let end = open.last().map_or(end, |(limit, _)| end.min(*limit));
                out.push_str(&line[at..end]);
                at = end;
            }
        }
    }
    collapse(&out)
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a run of underscores is at the edge of a word, where it opens or closes
/// emphasis.
fn at_word_edge(bytes: &[u8], at: usize, run: usize) -> bool {
    let word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80);
    let before = at.checked_sub(1).and_then(|i| bytes.get(i));
    word(before) != word(bytes.get(at + run))
}

fn opens_tag(bytes: &[u8], at: usize) -> bool {
    bytes.get(at + 1).is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'/' | b'!'))
}

/// The position of the closing bracket for each opening bracket of a line. All positions are
/// computed in a single pass, which keeps the time linear.
struct Pairs(Vec<u32>);

impl Pairs {
    fn of(bytes: &[u8]) -> Self {
        let mut closing = vec![0; bytes.len()];
        let (mut square, mut round) = (Vec::new(), Vec::new());
        let mut escaped = false;
        for (at, byte) in bytes.iter().enumerate() {
            if escaped {
                escaped = false;
                continue;
            }
            match byte {
                b'\\' => escaped = true,
                b'[' => square.push(at),
                b'(' => round.push(at),
                b']' | b')' => {
                    let stack = if *byte == b']' { &mut square } else { &mut round };
                    if let Some(start) = stack.pop() {
                        closing[start] = u32::try_from(at).unwrap_or(0);
                    }
                }
                _ => {}
            }
        }
        Self(closing)
    }

    fn end(&self, at: usize) -> Option<usize> {
        self.0.get(at).filter(|end| **end > 0).map(|end| *end as usize)
    }

    /// Returns the end of the text and the end of the whole construct, if the `[` at `at` begins a
    /// link, image or footnote.
    fn link(&self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let end = self.end(at)?;
        let whole = match bytes.get(end + 1) {
            Some(b'(' | b'[') => self.end(end + 1)? + 1,
            _ if bytes.get(at + 1) == Some(&b'^') => end + 1,
            _ => return None,
        };
        Some((end, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_markup_is_removed() {
        for (marked, words) in [
            ("**bold** _it_ __b__ ~~gone~~ `code_x`", "bold it b gone code_x"),
            ("snake_case_name and a_b", "snake_case_name and a_b"),
            ("[text](http://a/b_(c)) after", "text after"),
            ("[a **b** [c](d)](e)!", "a b c!"),
            ("![alt text](x.png)", "alt text"),
            ("[ref][1] and [^note] end", "ref and end"),
            ("array[0] and [ ] stay", "array[0] and [ ] stay"),
            ("<b>x</b> <https://a.b/c> 1 < 2 > 0", "x https://a.b/c 1 < 2 > 0"),
            ("\\*star\\* \\[x\\](y)", "*star* [x](y)"),
            ("open [text(", "open [text("),
            ("a\\", "a\\"),
            ("[](x) [é](y)é", "éé"),
            ("é_ü_ö _é_", "é_ü_ö é"),
        ] {
            assert_eq!(strip(marked), words, "{marked}");
        }
    }
}
