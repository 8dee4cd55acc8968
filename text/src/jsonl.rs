//! Reads JSON lines in bounded memory, even from files damaged by a crash.
//!
//! Every record that is not blank is either parsed or reported with its line number and the reason.
//! An invalid record does not affect the next one. The reader must never store more than one line
//! of the allowed length, and must never panic. NUL bytes, which some file systems leave after a
//! lost write, separate records, as line breaks do.

pub mod keep;

use std::io::{self, BufRead};
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A parsed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonlRecord<T> {
    /// The record's line number, from 1.
    pub line: u64,
    /// The byte offset of the record from the start of the reader.
    pub offset: u64,
    pub value: T,
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Bad {
    /// The record's line number, from 1.
    pub line: u64,
    /// The byte offset of the record from the start of the reader.
    pub offset: u64,
    pub why: BadReason,
}

/// The reason a record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReason {
    /// The record is not JSON, or does not have the expected structure.
    #[error("{0}")]
    Json(String),
    /// The last record has no line break and is not valid, probably because it is still being
    /// written.
    #[error("unfinished last line: {0}")]
    Unfinished(String),
    /// The record is longer than the limit and was skipped.
    #[error("{bytes} bytes long, more than the limit")]
    TooLong { bytes: u64 },
    /// The reader failed, so no more records follow.
    #[error("cannot be read: {0}")]
    Read(String),
}

/// The counts of the records read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonlCounts {
    pub parsed: u64,
    /// Number of records that could not be read, including those that are too long.
    pub bad: u64,
    /// Number of records that were skipped because of their length.
    pub too_long: u64,
    pub nuls: u64,
}

/// An iterator over the records of a reader, each parsed as a `T`.
#[derive(Debug)]
pub struct Jsonl<R, T = Value> {
    reader: R,
    cap: usize,
    record: Vec<u8>,
    line: u64,
    offset: u64,
    counts: JsonlCounts,
    ended: bool,
    value: PhantomData<fn() -> T>,
}

/// How a record ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Line,
    Nul,
    File,
}

impl<R: BufRead, T: DeserializeOwned> Jsonl<R, T> {
    /// Creates an iterator that skips and reports records longer than `max_line_bytes`, not
    /// counting the line break.
    pub fn new(reader: R, max_line_bytes: usize) -> Self {
        Self {
            reader,
            cap: max_line_bytes,
            record: Vec::new(),
            line: 1,
            offset: 0,
            counts: JsonlCounts::default(),
            ended: false,
            value: PhantomData,
        }
    }

    pub fn counts(&self) -> JsonlCounts {
        self.counts
    }

    /// Returns the number of bytes read so far. Another reader can continue from there, unless the
    /// last record was unfinished.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next record, which may be blank, into `self.record`, and returns its length and
    /// end. All bytes of a record that is too long are counted, but not all of them are stored.
    fn read(&mut self) -> io::Result<(u64, End)> {
        self.record.clear();
        let mut length = 0;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let stop = chunk.iter().position(|byte| matches!(byte, b'\n' | 0));
            let part = &chunk[..stop.unwrap_or(chunk.len())];
            let end = match stop.map(|at| chunk[at]) {
                Some(b'\n') => Some(End::Line),
                Some(_) => Some(End::Nul),
                None => chunk.is_empty().then_some(End::File),
            };
            // A carriage return and a byte order mark do not count against the limit.
            let room = (self.cap.saturating_add(4)).saturating_sub(self.record.len());
            self.record.extend_from_slice(&part[..part.len().min(room)]);
            length += part.len() as u64;
            let used = part.len() + usize::from(stop.is_some());
            self.reader.consume(used);
            self.offset += used as u64;
            if let Some(end) = end {
                return Ok((length, end));
            }
        }
    }

    fn parse(&mut self, length: u64, end: End) -> Result<T, BadReason> {
        let carriage =
            u64::from(self.record.len() as u64 == length && self.record.ends_with(b"\r"));
        if length - carriage > self.cap as u64 {
            self.counts.too_long += 1;
            return Err(BadReason::TooLong { bytes: length });
        }
        serde_json::from_slice(&self.record).map_err(|error| {
            let why = error.to_string();
            if end == End::File { BadReason::Unfinished(why) } else { BadReason::Json(why) }
        })
    }
}

impl<R: BufRead, T: DeserializeOwned> Iterator for Jsonl<R, T> {
    type Item = Result<JsonlRecord<T>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let (line, mut offset) = (self.line, self.offset);
            let (mut length, end) = match self.read() {
                Ok(read) => read,
                Err(error) => {
                    self.ended = true;
                    self.counts.bad += 1;
                    let why = BadReason::Read(error.to_string());
                    return Some(Err(Bad { line, offset, why }));
                }
            };
            match end {
                End::Line => self.line += 1,
                End::Nul => self.counts.nuls += 1,
                End::File => self.ended = true,
            }
            if offset == 0 && self.record.starts_with(b"\xef\xbb\xbf") {
                self.record.drain(..3);
                length -= 3;
                offset = 3;
            }
            let whole = length == self.record.len() as u64;
            if whole && self.record.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let parsed = self.parse(length, end);
            return Some(match parsed {
                Ok(value) => {
                    self.counts.parsed += 1;
                    Ok(JsonlRecord { line, offset, value })
                }
                Err(why) => {
                    self.counts.bad += 1;
                    Err(Bad { line, offset, why })
                }
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A reader that returns at most `size` bytes at a time and is interrupted before each piece.
    struct Dripping<'a> {
        rest: &'a [u8],
        size: usize,
        ready: bool,
    }

    impl io::Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.fill_buf()?.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.rest[..count]);
            self.consume(count);
            Ok(count)
        }
    }

    impl BufRead for Dripping<'_> {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            if !std::mem::replace(&mut self.ready, true) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(&self.rest[..self.size.min(self.rest.len())])
        }

        fn consume(&mut self, count: usize) {
            self.rest = &self.rest[count..];
            self.ready = false;
        }
    }

    /// Formats each record as its line number and its value or kind of error.
    fn read(bytes: &[u8], cap: usize, size: usize) -> (Vec<String>, JsonlCounts) {
        let reader = Dripping { rest: bytes, size, ready: false };
        let mut lines = Jsonl::<_, Value>::new(reader, cap);
        let mut seen = Vec::new();
        for record in lines.by_ref() {
            seen.push(match record {
                Ok(entry) => format!("{} {}", entry.line, entry.value),
                Err(bad) => match bad.why {
                    BadReason::Json(_) => format!("{} bad", bad.line),
                    BadReason::Unfinished(_) => format!("{} unfinished", bad.line),
                    BadReason::TooLong { bytes } => format!("{} long {bytes}", bad.line),
                    BadReason::Read(why) => format!("{} read {why}", bad.line),
                },
            });
        }
        assert!(lines.next().is_none());
        assert_eq!(lines.offset(), bytes.len() as u64);
        (seen, lines.counts())
    }

    #[test]
    fn valid_lines_survive_invalid_ones() {
        let file =
            b"\xef\xbb\xbf{\"a\":1}\r\n\n  \nnot json\n{\"a\":\n[2]\n\"\xff\"\n3\n{\"torn\":";
        let (seen, counts) = read(file, 100, 1000);
        let expected = ["1 {\"a\":1}", "4 bad", "5 bad", "6 [2]", "7 bad", "8 3", "9 unfinished"];
        assert_eq!(seen, expected);
        assert_eq!((counts.parsed, counts.bad), (3, 4));
        assert_eq!(read(b"", 9, 9).0, [""; 0]);
        assert_eq!(read(b"1", 9, 9).0, ["1 1"]);
    }

    #[test]
    fn nul_bytes_are_skipped_and_counted() {
        let hole = "\0".repeat(5000);
        let file =
            format!("{{\"a\":1}}\n{hole}{{\"b\":2}}\n{{\"c\":{hole}{{\"d\":4}}\n{hole}\n5\n");
        let (seen, counts) = read(file.as_bytes(), 64, 7);
        assert_eq!(seen, ["1 {\"a\":1}", "2 {\"b\":2}", "3 bad", "3 {\"d\":4}", "5 5"]);
        assert_eq!(counts.nuls, 15_000);
    }

    #[test]
    fn long_lines_are_skipped_and_counted() {
        let long = format!("\"{}\"", "x".repeat(9));
        let file = format!("{long}\n\"x{}\n{long}\r\n{}\n7", &long[1..], " ".repeat(40));
        let (seen, counts) = read(file.as_bytes(), 11, 3);
        let whole = format!("1 {long}");
        let third = format!("3 {long}");
        assert_eq!(seen, [&whole, "2 long 12", &third, "4 long 40", "5 7"]);
        assert_eq!((counts.too_long, counts.bad, counts.parsed), (2, 2, 3));
    }

    #[test]
    fn typed_records_report_line_and_offset() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Row {
            n: u8,
        }
        let file = b"{\"n\":1}\n{\"n\":300}\n{\"n\":3}\n";
        let mut rows = Jsonl::<_, Row>::new(&file[..], 20);
        assert_eq!(rows.next().unwrap().unwrap().value, Row { n: 1 });
        let bad = rows.next().unwrap().unwrap_err();
        assert_eq!((bad.line, bad.offset), (2, 8));
        assert!(bad.to_string().starts_with("line 2: invalid value"), "{bad}");
        assert_eq!(rows.next().unwrap().unwrap().offset, 18);
    }

    #[test]
    fn read_error_ends_iteration() {
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let mut lines = Jsonl::<_, Value>::new(io::BufReader::new(Broken), 9);
        assert_eq!(lines.next().unwrap().unwrap_err().why, BadReason::Read("gone".into()));
        assert!(lines.next().is_none());
    }

    proptest! {
        #[test]
        fn chunk_size_does_not_change_the_result(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\n'), Just(0), Just(b'1'), Just(b'"'), Just(b'{'), Just(b'}'),
                    Just(b' '), Just(b'\r'), any::<u8>()],
                0..60,
            ),
            size in 1_usize..9, cap in 0_usize..9,
        ) {
            prop_assert_eq!(read(&bytes, cap, size), read(&bytes, cap, 1000));
        }

        #[test]
        fn written_files_round_trip(values in prop::collection::vec(any::<(i32, String)>(), 0..8)) {
            let values: Vec<Value> = values.into_iter().map(|(n, s)| json!({"n": n, "s": s})).collect();
            let file: String = values.iter().map(|value| format!("{value}\n")).collect();
            let back: Vec<Value> = Jsonl::<_, Value>::new(file.as_bytes(), 10_000)
                .map(|entry| entry.unwrap().value)
                .collect();
            prop_assert_eq!(back, values);
        }
    }
}
