//! Finds the earliest date on which a note could have been written. A commit from before that date
//! cannot have done the work that the note asks for.
//!
//! ```text
//! a date that the text states ────────────────────────┐
//! the creation of a file that the text cites (a.rs:9) ├──> the latest of them
//! the commit that added the note itself ──────────────┘
//! ```
//!
//! The file's modification time is not evidence, because a checkout sets it. This module must never
//! read a clock: it treats a date later than the newest commit as a plan, not as the date of
//! writing.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::commit::Commit;
use super::overlap::TouchedPaths;

/// A tolerance of one day, in seconds, because a date has no hour and no time zone.
const GRACE: i64 = 86_400;
/// Maximum time from the note to the commit for [`CommitTiming::Soon`], in seconds.
const SOON: i64 = 14 * 86_400;

/// A commit's date relative to the date of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitTiming {
    /// Nothing dates the note.
    Unknown,
    /// The commit was made more than a day before the note.
    Before,
    /// The commit was made between a day before and two weeks after the note.
    Soon,
    /// The commit was made more than two weeks after the note.
    Later,
}

/// Returns the earliest time at which this note could have been written in its present form, in
/// seconds since the epoch, or `None` if nothing dates the note.
pub fn earliest(history: &[Commit], touched: &TouchedPaths, path: &str, text: &str) -> Option<i64> {
    let newest = history.iter().map(|commit| commit.at).max()?;
    let stated = dates(text).filter(|at| *at <= newest);
    let quoted = quoted(text).filter_map(|file| touched.born(file));
    let born = quoted.chain(touched.born_exactly(path));
    stated.chain(born.filter_map(|at| Some(history.get(at)?.at))).max()
}

/// Compares a commit's time with the time when the note was written.
pub fn when(written: Option<i64>, commit: i64) -> CommitTiming {
    match written {
        None => CommitTiming::Unknown,
        Some(written) if commit < written - GRACE => CommitTiming::Before,
        Some(written) if commit <= written + SOON => CommitTiming::Soon,
        Some(_) => CommitTiming::Later,
    }
}

/// Words that mark the following date as a deadline or a plan, and therefore not as the time when
/// the note was written.
const DEADLINES: [&str; 16] = [
    "before",
    "by",
    "deadline",
    "due",
    "end",
    "eta",
    "expires",
    "expiry",
    "milestone",
    "planned",
    "release",
    "scheduled",
    "target",
    "till",
    "until",
    "within",
];

/// Returns whether one of the last few words before a date makes it a deadline.
fn is_deadline(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let words = line.rsplit(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.take(3).any(|word| DEADLINES.contains(&word.to_lowercase().as_str()))
}

/// Returns the dates in a string that are written as `2026-01-31`, except deadlines, each as its
/// first second in UTC.
fn dates(text: &str) -> impl Iterator<Item = i64> {
    let bytes = text.as_bytes();
    let within = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    text.match_indices('-').filter_map(move |(at, _)| {
        let from = at.checked_sub(4)?;
        let day = text.get(from..at + 6)?;
        if from.checked_sub(1).is_some_and(within) || within(at + 6) {
            return None;
        }
        let day: Date = day.parse().ok()?;
        if is_deadline(&text[..from]) {
            return None;
        }
        Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
    })
}

/// Returns the files that are cited with a line number in a string, as in `src/a.rs:12`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside = |c: char| !(c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    text.match_indices(':').filter_map(move |(at, _)| {
        let line = text[at + 1..].chars().next()?;
        let file = text[..at].rsplit(outside).next()?;
        let ending = file.rsplit_once('.').map(|(_, ending)| ending)?;
        let file_like = (1..=8).contains(&ending.len()) && !ending.contains('/');
        (line.is_ascii_digit() && file_like).then_some(file.trim_start_matches("./"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn commit(at: i64, created: &str) -> Commit {
        Commit {
            hash: "c".repeat(40),
            at,
            subject: "x".into(),
            body: String::new(),
            paths: vec![created.to_owned()],
            touched: 1,
            created: vec![0],
            ..Commit::default()
        }
    }

    fn found(text: &str) -> Option<i64> {
        let history = [
            commit(20_500 * DAY, "src/new.rs"),
            commit(20_000 * DAY, "src/old.rs"),
            commit(19_900 * DAY, "ideas/own.md"),
        ];
        let touched = TouchedPaths::build(&history);
        earliest(&history, &touched, "ideas/x.md", text).map(|at| at / DAY)
    }

    #[test]
    fn latest_possible_date_is_used() {
        // 2024-10-04 is day 20,000.
        assert_eq!(found("---\ndate: 2024-10-04\n---\nAs of 2024-10-05, x"), Some(20_001));
        assert_eq!(found("see src/old.rs:12 and src/new.rs"), Some(20_000));
        assert_eq!(found("see `src/new.rs:7-9` (2024-10-04)"), Some(20_500));
        assert_eq!(found("until 2035-01-01"), None, "a planned date is not the date of writing");
        for deadline in ["Deadline: 2024-10-04", "ship it by 2024-10-04", "due on the 2024-10-04"] {
            assert_eq!(found(deadline), None, "{deadline}");
        }
        assert_eq!(found("written by Ann on 2024-10-04"), None);
        assert_eq!(found("due soon\nDate: 2024-10-04"), Some(20_000));
        assert_eq!(found("12024-10-04 2024-10-041 2024-13-01 a-b 12:30 x.y:z"), None);
        assert_eq!(found(""), None);
        assert_eq!(found("ü-2024-10-04"), Some(20_000));
    }

    #[test]
    fn tracked_note_has_its_commit_date() {
        let history = [commit(7 * DAY, "ideas/own.md")];
        let touched = TouchedPaths::build(&history);
        assert_eq!(earliest(&history, &touched, "ideas/own.md", ""), Some(7 * DAY));
        assert_eq!(earliest(&history, &touched, "own.md", ""), None);
        assert_eq!(earliest(&[], &TouchedPaths::default(), "a", "2024-10-04"), None);
    }

    #[test]
    fn commit_timing_includes_both_boundaries() {
        let written = Some(100 * DAY);
        assert_eq!(when(written, 99 * DAY), CommitTiming::Soon);
        assert_eq!(when(written, 99 * DAY - 1), CommitTiming::Before);
        assert_eq!(when(written, 114 * DAY), CommitTiming::Soon);
        assert_eq!(when(written, 114 * DAY + 1), CommitTiming::Later);
        assert_eq!(when(None, 0), CommitTiming::Unknown);
    }
}
