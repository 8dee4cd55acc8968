//! Splits byte chunks of any size into lines, in bounded memory.
//!
//! A character split across two chunks is reassembled. A line that exceeds the limit is skipped
//! entirely. This module must never keep more than one line or interpret a line's content.

use memchr::memchr;

/// Splits a stream into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    longest: usize,
    /// The start of an incomplete line.
    begun: Vec<u8>,
    /// Whether the rest of the current line is being skipped because the line is too long.
    passing: bool,
    /// The number of lines that were too long.
    overlong: u64,
}

impl Lines {
    /// Creates a splitter for lines of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self { longest, begun: Vec::new(), passing: false, overlong: 0 }
    }

    /// Consumes a chunk and passes each completed line, without its line feed, to `each`.
    pub fn feed(&mut self, mut piece: &[u8], each: &mut dyn FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', piece) {
            let (rest, next) = (&piece[..end], &piece[end + 1..]);
            piece = next;
            if self.passing {
                self.passing = false;
            } else if self.begun.is_empty() && rest.len() <= self.longest {
                each(rest);
            } else if self.keep(rest) {
                each(&self.begun);
                self.begun.clear();
            } else {
                self.passing = false;
            }
        }
        if !self.passing {
            self.keep(piece);
        }
    }

    /// Passes the last line to `each` if the stream ended without a line feed.
    pub fn finish(&mut self, each: &mut dyn FnMut(&[u8])) {
        if !self.begun.is_empty() {
            each(&std::mem::take(&mut self.begun));
        }
    }

    /// Returns the number of lines that were skipped because they were too long.
    pub fn overlong(&self) -> u64 {
        self.overlong
    }

    fn keep(&mut self, piece: &[u8]) -> bool {
        if self.begun.len() + piece.len() > self.longest {
            self.begun = Vec::new();
            self.passing = true;
            self.overlong += 1;
            return false;
        }
        self.begun.extend_from_slice(piece);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(longest: usize, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
        let mut all = Vec::new();
        let mut lines = Lines::new(longest);
        for piece in pieces {
            lines.feed(piece, &mut |line| all.push(line.to_vec()));
            assert!(lines.begun.len() <= longest);
        }
        lines.finish(&mut |line| all.push(line.to_vec()));
        (all, lines.overlong())
    }

    #[test]
    fn line_splitting_is_independent_of_chunks() {
        let stream = "one\n\n{\"ä\":\"€\"}\r\n\0\0\nvery long indeed\nlast".as_bytes();
        let whole = lines(13, &[stream]);
        assert_eq!(whole.0.len(), 5);
        assert_eq!(whole.1, 1);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(lines(13, &pieces), whole, "cut at {first} and {second}");
            }
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(lines(13, &single), whole);
    }

    #[test]
    fn endless_line_uses_bounded_memory() {
        let mut lines = Lines::new(1_000);
        let piece = [b'x'; 64 * 1024];
        for _ in 0..16 * 1024 {
            lines.feed(&piece, &mut |_| panic!("no line was expected"));
            assert!(lines.begun.capacity() <= 2_048);
        }
        let mut after = Vec::new();
        lines.feed(b"\nafter\n", &mut |line| after.push(line.to_vec()));
        assert_eq!((after, lines.overlong()), (vec![b"after".to_vec()], 1));
    }
}
