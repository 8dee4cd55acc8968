//! Redacts text that arrives in pieces.

use super::{LOOK_BACK, RedactState, Redactor, Tail, floor, write_spans};

/// Accepts bytes in pieces of any size and returns redacted text line by line, so that no boundary
/// between pieces can hide a secret. The concatenated output equals the result of
/// [`Redactor::redact`] for the complete text. Invalid UTF-8 becomes `U+FFFD`.
///
/// An unfinished line is held back up to a limit of at least 144 KiB. Call [`finish`](Self::finish)
/// at the end, or an unfinished last line is lost.
#[derive(Clone, Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    state: RedactState,
    /// The end of the text that has already been returned, followed by the text that is held back.
    text: String,
    held: usize,
    /// The first bytes of an incomplete character.
    bytes: Vec<u8>,
}

impl StreamRedactor {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            state: RedactState::default(),
            text: String::new(),
            held: 0,
            bytes: Vec::new(),
        }
    }

    /// Accepts the next piece and returns the redacted text that it completes.
    pub fn push(&mut self, piece: &[u8]) -> String {
        if self.bytes.is_empty() {
            self.decode(piece);
        } else {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.extend_from_slice(piece);
            self.decode(&bytes);
        }
        self.drain(Tail::Open)
    }

    /// Returns the remaining text and resets the stream.
    pub fn finish(&mut self) -> String {
        let bytes = std::mem::take(&mut self.bytes);
        self.text.push_str(&String::from_utf8_lossy(&bytes));
        let out = self.drain(Tail::Final);
        self.text.clear();
        (self.state, self.held) = (RedactState::default(), 0);
        out
    }

    fn decode(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.text.push_str(text),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(length) => {
                            self.text.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[length..];
                        }
                        None => {
                            self.bytes = after.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }

    fn drain(&mut self, tail: Tail) -> String {
        let mut out = String::new();
        while self.held < self.text.len() {
            let step = self.redactor.step(&mut self.state, &self.text, self.held, tail);
            let Some((end, spans)) = step else { break };
            write_spans(&mut out, &self.text, self.held, end, &spans);
            self.held = end;
        }
        let kept = floor(&self.text, self.held.saturating_sub(LOOK_BACK));
        self.text.drain(..kept);
        self.held -= kept;
        out
    }
}
