//! Decodes terminal input into keys, regardless of how reads split the bytes.
//!
//! ```text
//!  a character     a letter, Enter, Backspace, control-C …    one key
//!  ESC [ … final   an arrow, Home, Page Up …                  one key, or none if it is unknown
//!  ESC             not followed by [ or O                     Escape
//!  an incomplete   sequence or character                      waits for the rest
//! ```
//!
//! This module must never perform I/O.

/// A decoder that stores an incomplete sequence until its next bytes arrive.
#[derive(Debug, Default)]
pub struct Keys {
    torn: Vec<u8>,
}

/// A key press or a terminal event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A character key.
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
    /// Shift and Tab.
    BackTab,
    /// The terminal was resized.
    Resized,
    /// A request to exit: control-C, control-D, a signal, or losing the terminal.
    Stop,
}

/// A decoded key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Does(Input),
    /// A request to repaint the whole screen.
    Repaint,
}

impl Keys {
    /// Decodes the bytes that were read and returns the complete keys.
    pub fn take(&mut self, read: &[u8]) -> Vec<Key> {
        self.torn.extend_from_slice(read);
        let mut keys = Vec::new();
        let mut rest = self.torn.as_slice();
        while let Some((key, len)) = first(rest) {
            keys.extend(key);
            rest = &rest[len..];
        }
        self.torn = rest.to_vec();
        keys
    }

    /// Discards an incomplete sequence.
    pub fn forget(&mut self) {
        self.torn.clear();
    }
}

/// Returns the first key and its length in bytes, or `None` if more bytes are needed. The inner
/// value is `None` for an unknown sequence.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let does = |input| Some(Key::Does(input));
    Some(match bytes {
        [] | [0x1b, b'O'] => return None,
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            (named(&rest[..end], rest[end]), end + 3)
        }
        [0x1b, b'O', last, ..] => (named(b"", *last), 3),
        [0x1b, ..] => (does(Input::Escape), 1),
        [b'\r' | b'\n', ..] => (does(Input::Enter), 1),
        [0x7f | 0x08, ..] => (does(Input::Backspace), 1),
        // Control-C and control-D.
        [0x03 | 0x04, ..] => (does(Input::Stop), 1),
        // Control-L.
        [0x0c, ..] => (Some(Key::Repaint), 1),
        [b'\t', ..] => (does(Input::Tab), 1),
        [0..=0x1f, ..] => (None, 1),
        _ => return letter(bytes),
    })
}

/// Returns the key for the parameters and the final byte of an escape sequence.
fn named(numbers: &[u8], last: u8) -> Option<Key> {
    // The number after a semicolon describes the modifier keys.
    let number = numbers.split(|byte| *byte == b';').next().unwrap_or(b"");
    Some(Key::Does(match (number, last) {
        (_, b'A') => Input::Up,
        (_, b'B') => Input::Down,
        (_, b'H') | (b"1" | b"7", b'~') => Input::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Input::End,
        (b"5", b'~') => Input::PageUp,
        (b"6", b'~') => Input::PageDown,
        (_, b'Z') => Input::BackTab,
        (_, b'M') if numbers.is_empty() => Input::Enter,
        _ => return None,
    }))
}

/// Decodes one UTF-8 character, as [`first`] does. Invalid bytes have a length but no key.
fn letter(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let piece = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(piece) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&piece[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return error.error_len().map(|len| (None, len)),
    };
    let letter = valid.chars().next()?;
    Some((Some(Key::Does(Input::Char(letter))), letter.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] =
        "aä€🦀\r\n\x7f\x08\x03\x04\x0c\x01\t\x1b[Z\x1b[A\x1bOB\x1b[5~\x1b[6;5~\x1b[H\x1b[4~\x1b[15~\x1b[1;2Fq\x1bx\x1b".as_bytes();

    fn expected() -> Vec<Key> {
        use Input::*;
        let first = [Char('a'), Char('ä'), Char('€'), Char('🦀')];
        let then = [Enter, Enter, Backspace, Backspace, Stop, Stop];
        let last =
            [Up, Down, PageUp, PageDown, Home, End, End, Char('q'), Escape, Char('x'), Escape];
        let does = |input: &Input| Key::Does(*input);
        (first.iter().chain(&then).map(does))
            .chain([Key::Repaint])
            .chain([Input::Tab, Input::BackTab].iter().map(does))
            .chain(last.iter().map(does))
            .collect()
    }

    #[test]
    fn bytes_are_decoded_to_keys() {
        assert_eq!(Keys::default().take(ALL), expected());
    }

    #[test]
    fn split_input_yields_the_same_keys() {
        for cut in 1..ALL.len() {
            let (one, two) = ALL.split_at(cut);
            let mut keys = Keys::default();
            let mut taken = keys.take(one);
            taken.extend(keys.take(two));
            // Input ending in an escape byte yields the Escape key.
            if one.last() != Some(&0x1b) {
                assert_eq!(taken, expected(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn invalid_input_is_skipped() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"\xff\xc3(\x80"), [Key::Does(Input::Char('('))]);
        assert_eq!(keys.take(b"\x1b["), []);
        keys.forget();
        assert_eq!(keys.take(b"A"), [Key::Does(Input::Char('A'))]);
    }
}
