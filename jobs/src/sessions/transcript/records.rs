//! Reads JSON objects from a line-based file that crashes or concurrent writers may have damaged.
//!
//! ```text
//!            whole object(s)                      ┌─ a line that is an object by itself: resync
//! line ──────────────────────────> ready          │
//!   │ begins one and does not end it ──> block ───┼─ depth 0 again: ready
//!   │                                             └─ too long, end of file: bad, torn
//!   └ none to be found ──> bad
//! ```
//!
//! This module must never keep more than one line and one block of the allowed length in memory.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use serde_json::value::RawValue;

use super::row::Row;

/// Maximum length, in bytes, of a line or of an object that spans several lines. Longer lines and
/// objects are skipped without being parsed.
pub const MAX_LINE: usize = 8 << 20;
/// Maximum number of long lines whose positions are kept.
const PLACES: usize = 100;
/// Maximum number of attempts to find an object in one line that contains invalid text.
const TRIES: usize = 8;

/// A position between two lines of a file, or before an unfinished object in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineGap {
    /// The 1-based number of the next line, or of the line with the unfinished object.
    pub line: u64,
    /// The offset of the next line or of the unfinished object, in bytes.
    pub offset: u64,
}

impl Default for LineGap {
    fn default() -> Self {
        Self { line: 1, offset: 0 }
    }
}

/// The number of lines in each category. Every line is in exactly one category.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Tally {
    pub lines: u64,
    /// Lines that contain at least one row in a known format, or a part of such a row.
    pub read: u64,
    /// Lines of JSON that are not rows in a known format.
    pub foreign: u64,
    /// Lines that contain only whitespace and NUL.
    pub blank: u64,
    /// Lines that yield no JSON object.
    pub bad: u64,
    /// Lines that exceed the maximum length.
    pub too_long: u64,
    /// Unfinished lines at the end of the file, which may still be completed.
    pub torn: u64,
    /// The number of NUL bytes, which file systems leave behind where a write was lost. They are
    /// parts of lines and do not form a category of lines.
    pub nuls: u64,
    /// The byte offsets of the first lines that are too long.
    pub long_at: Vec<u64>,
}

impl Tally {
    /// Adds the counts from another file, without the offsets of its long lines.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in [
            (&mut self.lines, other.lines),
            (&mut self.read, other.read),
            (&mut self.foreign, other.foreign),
            (&mut self.blank, other.blank),
            (&mut self.bad, other.bad),
            (&mut self.too_long, other.too_long),
            (&mut self.torn, other.torn),
            (&mut self.nuls, other.nuls),
        ] {
            *count += more;
        }
    }

    /// Returns whether the categories add up to the number of lines.
    pub fn adds_up(&self) -> bool {
        let sum = self.read + self.foreign + self.blank + self.bad + self.too_long + self.torn;
        sum == self.lines
    }
}

/// A JSON value in the file.
#[derive(Debug)]
pub(super) struct Record {
    /// The number of the line on which the value begins.
    pub(super) line: u64,
    pub(super) content: RecordContent,
    /// The number of lines counted as read for this record, excluding those already counted for an
    /// earlier record.
    counts: u64,
}

#[derive(Debug)]
pub(super) enum RecordContent {
    /// A row that takes up a whole line.
    Row(Box<Row>),
    /// The JSON text of any other value.
    Json(String),
}

/// An object that spans several lines.
#[derive(Debug)]
struct MultilineRecord {
    begins: LineGap,
    /// The number of lines of the object that have not been counted.
    lines: u64,
    bytes: Vec<u8>,
    scan: Scan,
}

/// The nesting state of a JSON text.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    depth: u64,
    string: bool,
    escaped: bool,
}

impl Scan {
    fn over(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (self.string, byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (_, b'"') => self.string = !self.string,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn closed(self) -> bool {
        self.depth == 0 && !self.string
    }
}

#[derive(Debug)]
pub(super) struct Records<R> {
    reader: R,
    cap: usize,
    at: LineGap,
    last: u64,
    line: Vec<u8>,
    block: Option<MultilineRecord>,
    ready: VecDeque<Record>,
    tally: Tally,
    /// The number of lines counted for the last record returned.
    given: u64,
    /// The position at which the unfinished end of the file begins, if there is one.
    torn: Option<LineGap>,
    ended: bool,
}

impl<R: BufRead> Records<R> {
    /// Creates a reader of records that starts at the current position of `reader`, which is
    /// `from`.
    pub(super) fn new(reader: R, from: LineGap, cap: usize) -> Self {
        Self {
            reader,
            cap,
            at: from,
            last: u64::MAX,
            line: Vec::new(),
            block: None,
            ready: VecDeque::new(),
            tally: Tally::default(),
            given: 0,
            torn: None,
            ended: false,
        }
    }

    pub(super) fn stop_after(&mut self, line: u64) {
        self.last = line;
    }

    pub(super) fn skip_to(&mut self, line: u64) -> io::Result<()> {
        while self.at.line < line {
            let before = self.at;
            let (length, ended) = self.take(false)?;
            if !ended {
                // The file ends before the requested line.
                self.at = before;
                self.at.offset += length;
                self.ended = true;
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes allocated for the current line and block.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.line.capacity() + block
    }

    /// Returns the counts so far.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the position from which a later reader may continue.
    pub(super) fn place(&self) -> LineGap {
        self.torn.or(self.block.as_ref().map(|block| block.begins)).unwrap_or(self.at)
    }

    /// Counts the last record as foreign instead of read.
    pub(super) fn note_foreign(&mut self) {
        self.tally.read -= self.given;
        self.tally.foreign += self.given;
        self.given = 0;
    }

    /// Reads one line, and stores it if `keep` is set. Returns the length without the line ending,
    /// and whether the line has a line ending.
    fn take(&mut self, keep: bool) -> io::Result<(u64, bool)> {
        self.line.clear();
        let mut length = 0;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let stop = memchr::memchr(b'\n', chunk);
            let part = &chunk[..stop.unwrap_or(chunk.len())];
            let ended = stop.is_some();
            let empty = chunk.is_empty();
            let room = (self.cap + 1).saturating_sub(self.line.len());
            if keep {
                self.line.extend_from_slice(&part[..part.len().min(room)]);
            }
            length += part.len() as u64;
            let used = part.len() + usize::from(ended);
            self.reader.consume(used);
            self.at.offset += used as u64;
            if ended || empty {
                self.at.line += u64::from(ended || length > 0);
                return Ok((length, ended));
            }
        }
    }

    /// Discards the current block and counts its lines as bad.
    fn drop_block(&mut self) {
        if let Some(block) = self.block.take() {
            self.tally.bad += block.lines;
        }
    }

    /// Inspects the line that was just read, which starts at `begins`.
    fn inspect(&mut self, begins: LineGap, length: u64, ended: bool) {
        self.tally.lines += 1;
        if length > self.cap as u64 {
            self.drop_block();
            self.tally.too_long += 1;
            if self.tally.long_at.len() < PLACES {
                self.tally.long_at.push(begins.offset);
            }
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        let mut from = 0;
        while let Some(at) = memchr::memchr(0, &line[from..]) {
            from += at;
            line[from] = b' ';
            self.tally.nuls += 1;
        }
        if begins.offset == 0 && line.starts_with(b"\xef\xbb\xbf") {
            line[..3].fill(b' ');
        }
        self.sort(begins, &line, ended);
        line.clear();
        self.line = line;
    }

    fn sort(&mut self, begins: LineGap, line: &[u8], ended: bool) {
        let blank = line.iter().all(u8::is_ascii_whitespace);
        match self.block.take() {
            None if blank => self.tally.blank += 1,
            None => self.alone(begins, line, ended),
            Some(block) => self.within(block, begins, line, ended),
        }
    }

    /// Processes a line while an object is open.
    fn within(&mut self, mut block: MultilineRecord, begins: LineGap, line: &[u8], ended: bool) {
        let resync = line.first() == Some(&b'{') && whole(line).is_some_and(|all| !all.is_empty());
        if resync || block.bytes.len() + line.len() >= self.cap {
            self.tally.bad += block.lines;
            self.alone(begins, line, ended);
            return;
        }
        block.bytes.push(b'\n');
        block.scan.over(b"\n");
        block.bytes.extend_from_slice(line);
        block.scan.over(line);
        block.lines += 1;
        if !block.scan.closed() {
            self.block = Some(block);
            return;
        }
        match whole(&block.bytes) {
            Some(values) if !values.is_empty() => {
                let mut counts = block.lines;
                for json in values {
                    self.ready.push_back(Record {
                        line: block.begins.line,
                        content: RecordContent::Json(json),
                        counts: std::mem::take(&mut counts),
                    });
                }
            }
            _ => self.tally.bad += block.lines,
        }
    }

    /// Processes a line that does not continue an open object.
    fn alone(&mut self, begins: LineGap, line: &[u8], ended: bool) {
        if let Some(row) = Row::of_line(line) {
            let content = RecordContent::Row(Box::new(row));
            self.ready.push_back(Record { line: begins.line, content, counts: 1 });
            return;
        }
        let mut counts = 1;
        let mut rest = line;
        for _ in 0..TRIES {
            let JsonParts { values, open, bad } = found(rest);
            for json in values {
                self.ready.push_back(Record {
                    line: begins.line,
                    content: RecordContent::Json(json),
                    counts: std::mem::take(&mut counts),
                });
            }
            if let Some(open) = open {
                let mut scan = Scan::default();
                scan.over(&rest[open..]);
                // A later reader must not repeat the values that precede the object.
                let skipped = if counts == 0 { line.len() - rest.len() + open } else { 0 };
                let begins = LineGap { offset: begins.offset + skipped as u64, ..begins };
                self.block = Some(MultilineRecord {
                    begins,
                    lines: counts,
                    bytes: rest[open..].to_vec(),
                    scan,
                });
                return;
            }
            // An object may follow the invalid text.
            let Some(bad) = bad else { break };
            let behind = rest.get(bad + 1..).unwrap_or_default();
            match behind.windows(2).position(|two| two == b"{\"") {
                Some(at) => rest = &behind[at..],
                None => break,
            }
        }
        if counts == 1 {
            if ended {
                self.tally.bad += 1;
            } else {
                self.tally.torn += 1;
                self.torn = Some(begins);
            }
        }
    }
}

struct JsonParts {
    values: Vec<String>,
    /// The offset of an unterminated object.
    open: Option<usize>,
    /// The offset at which the text stops being JSON.
    bad: Option<usize>,
}

fn found(text: &[u8]) -> JsonParts {
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<&RawValue>();
    let mut values = Vec::new();
    loop {
        let at = stream.byte_offset();
        match stream.next() {
            None => {
                return JsonParts { values, open: None, bad: None };
            }
            Some(Ok(value)) => values.push(value.get().to_owned()),
            Some(Err(error)) => {
                let skip = text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                let at = at + skip;
                let opens = error.is_eof() && text.get(at) == Some(&b'{');
                return JsonParts {
                    values,
                    open: opens.then_some(at),
                    bad: (!opens).then_some(at),
                };
            }
        }
    }
}

/// Returns the values in `text`, or `None` if it does not consist only of JSON.
fn whole(text: &[u8]) -> Option<Vec<String>> {
    let found = found(text);
    (found.open.is_none() && found.bad.is_none()).then_some(found.values)
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.given = record.counts;
                self.tally.read += record.counts;
                return Some(Ok(record));
            }
            if self.ended || self.at.line > self.last {
                if let Some(block) = self.block.take() {
                    self.tally.torn += block.lines;
                    self.torn = Some(block.begins);
                }
                return None;
            }
            let begins = self.at;
            match self.take(true) {
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Ok((0, false)) => self.ended = true,
                Ok((length, ended)) => {
                    self.ended = !ended;
                    self.inspect(begins, length, ended);
                }
            }
        }
    }
}
