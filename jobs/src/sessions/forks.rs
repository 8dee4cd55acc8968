//! Finds the part of a transcript that belongs to another session.
//!
//! A program that forks a session copies the rows of the session into a new transcript. The copies
//! keep the ids of the rows, or name them as their origin, so they are counted only for the session
//! that was analyzed first.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use jiff::{SignedDuration, Timestamp};
use runner_engine::files::open_host;

use super::record::SessionRecord;
use super::transcript::{LineGap, SessionEvent, Transcript};

/// Maximum number of rows to compare, which limits the use of memory.
const MOST: usize = 200_000;
/// Maximum time by which the rows of a transcript may be out of order.
const DISORDER: SignedDuration = SignedDuration::from_mins(1);
/// The size of the parts in which [`reader_from`] searches, in bytes.
const PART: u64 = 1 << 20;

/// The rows of a transcript that may be copies.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The line of each row, keyed by the digest of the row's id.
    lines: HashMap<u64, u64>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Rows {
    /// Adds the row of an event.
    pub fn add(&mut self, event: &SessionEvent) {
        let Some(row) = event.row.filter(|_| self.lines.len() < MOST) else { return };
        self.lines.insert(row, event.line);
        if let Some(at) = event.at {
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = self.last.max(Some(at));
        }
    }

    /// Returns the last line that also belongs to another session and counts for that session, or 0
    /// if there is no such line. A transcript that cannot be read is skipped.
    ///
    /// The first row of a fork is a copy. If another session contains no copies of this session's
    /// rows, only its rows around the time of this session's first row are read.
    ///
    /// # Errors
    /// Returns an error of kind `Interrupted` if `cancelled` returns true.
    pub fn shared_until<'r>(
        &self,
        others: impl Iterator<Item = &'r SessionRecord>,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let mut until = 0;
        for other in others.filter(|it| it.started_at <= self.last && it.ended_at >= self.first) {
            let Some(begins) = self.first.max(other.started_at) else { continue };
            // The other session may itself be a fork.
            let copied = other.shared_until.unwrap_or_default();
            let earliest = match copied {
                0 => begins.saturating_sub(DISORDER).unwrap_or(begins),
                _ => Timestamp::MIN,
            };
            let reader = open_host(&other.path).and_then(|file| reader_from(file, earliest));
            let Ok(reader) = reader else { continue };
            let mut latest = begins.saturating_add(DISORDER).ok();
            for event in Transcript::new(reader, LineGap::default()) {
                let Ok(event) = event else { break };
                if let Some(line) = event.row.and_then(|row| self.lines.get(&row)) {
                    latest = self.last;
                    if event.line > copied {
                        until = until.max(*line);
                    }
                }
                if event.row.is_some() && event.at > latest {
                    break;
                }
                if cancelled() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(until)
    }
}

/// Returns a reader that is positioned at a line of the transcript before the rows of `time`. Does
/// not read the whole file.
fn reader_from(mut file: File, time: Timestamp) -> io::Result<BufReader<File>> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    while high - low > PART && time > Timestamp::MIN {
        let middle = low + (high - low) / 2;
        file.seek(SeekFrom::Start(middle))?;
        let mut part = BufReader::new(file.by_ref().take(PART));
        part.skip_until(b'\n')?;
        let mut events = Transcript::new(part, LineGap::default()).filter_map(Result::ok);
        match events.find_map(|event| event.row.and(event.at)) {
            Some(at) if at < time => low = middle,
            _ => high = middle,
        }
    }
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader.seek(SeekFrom::Start(low))?;
    if low > 0 {
        reader.skip_until(b'\n')?;
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: i64) -> String {
        let time = Timestamp::from_second(at).unwrap();
        let text = "x".repeat(500);
        format!(
            "{{\"type\":\"user\",\"uuid\":\"u{at}\",\"timestamp\":\"{time}\",\
             \"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
        )
    }

    #[test]
    fn long_transcripts_are_read_from_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.jsonl");
        std::fs::write(&path, (0..20_000).map(row).collect::<String>()).unwrap();
        for second in [0, 1, 777, 10_000, 19_999, 30_000] {
            let time = Timestamp::from_second(second).unwrap();
            let reader = reader_from(File::open(&path).unwrap(), time).unwrap();
            let first = Transcript::new(reader, LineGap::default()).next().unwrap().unwrap();
            let first = first.at.unwrap().as_second();
            // A part of 1 MiB contains fewer than 2,000 of these rows.
            assert!(first <= second && first + 4_000 > second.min(20_000), "{second}: {first}");
        }
    }
}
