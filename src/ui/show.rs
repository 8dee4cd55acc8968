//! Prints results on standard output and everything else on standard error.
//!
//! A closed pipe is not an error, because the reader may stop at any time.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use jiff::Timestamp;
use runner_engine::error_chain::{error_chain, plain};
use runner_engine::outcome::Outcome;
use runner_engine::zones;
use runner_text::redact::Redacted;
use serde::Serialize;
use unicode_width::UnicodeWidthChar as _;

use super::capture;
use crate::env;

static LOST: AtomicBool = AtomicBool::new(false);

/// Returns whether part of a result could not be written.
pub fn lost() -> bool {
    LOST.load(Ordering::SeqCst)
}

/// Prints a result on standard output, redacted.
pub fn out(text: &str) {
    write_out(&Redacted::of(text));
}

/// Prints text without redacting it: text that is already redacted, or generated text such as a
/// completion script.
pub fn own(text: &str) {
    write_out(text);
}

fn write_out(text: &str) {
    if capture::add(text, |captured| &mut captured.out) {
        return;
    }
    let mut stdout = io::stdout().lock();
    let done = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = done
        && error.kind() != io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::SeqCst)
    {
        complain(&format!("cannot write standard output: {}", error_chain(&error)));
    }
}

/// Prints a result as JSON on standard output, redacted.
pub fn json(value: &impl Serialize) {
    let text = Redacted::pretty_json(value).expect("results have string keys only");
    write_out(&(text.into_string() + "\n"));
}

/// Returns a result as one line of JSON.
pub fn json_line(value: &impl Serialize) -> String {
    let text = Redacted::json(value).expect("results have string keys only");
    text.into_string() + "\n"
}

/// Returns whether standard output is a terminal that can move its cursor.
pub fn can_draw() -> bool {
    io::stdout().is_terminal() && env::setting("TERM").is_some_and(|term| term != "dumb")
}

/// Draws text from the upper left corner of the terminal, over the previous text. If the text does
/// not fit, the last line shows how many lines were omitted.
pub fn draw(text: &str, first: bool) {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    // A size of 0 means that the size is unknown.
    let reported = |reported: u16, usual: usize| match reported {
        0 => usual,
        reported => usize::from(reported),
    };
    let (rows, columns) =
        size.map_or((24, 80), |size| (reported(size.ws_row, 24), reported(size.ws_col, 80)));
    let mut frame = String::from(if first { "\u{1b}[2J\u{1b}[H" } else { "\u{1b}[H" });
    frame.push_str(&fitted(text, rows.max(2), columns));
    frame.push_str("\u{1b}[J");
    own(&frame);
}

/// Returns the lines that fit, each followed by a sequence that clears the rest of its row. The
/// last row is left blank so that the screen does not scroll.
fn fitted(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = rows - 1;
    let mut frame = String::new();
    let mut row = |line: &str| {
        let mut width = 0;
        let line = Redacted::of(line);
        let kept = line.chars().take_while(|c| {
            width += c.width().unwrap_or(0);
            width <= columns
        });
        frame.extend(kept);
        frame.push_str("\u{1b}[K\r\n");
    };
    if lines.len() <= room {
        lines.iter().for_each(|line| row(line));
    } else {
        lines[..room - 1].iter().for_each(|line| row(line));
        let more = (lines.len() - room + 1) as u64;
        row(&format!("… {}", count(more, "more line")));
    }
    frame
}

/// Prints a notice on standard error.
pub fn notice(text: &str) {
    complain_raw(&plain(text));
}

/// Prints an error on standard error.
pub fn complain(text: &str) {
    complain_raw(&format!("runner: {}", plain(text)));
}

pub(super) fn complain_raw(text: &str) {
    let text = format!("{}\n", Redacted::of(text));
    if capture::add(&text, |captured| &mut captured.notices) {
        return;
    }
    let _closed = io::stderr().lock().write_all(text.as_bytes());
}

/// Replaces control characters, except line breaks and tabs, so that untrusted text cannot control
/// the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(obeyed) {
        Cow::Owned(text.replace(obeyed, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Formats a time in the system's time zone, to the second.
pub fn format_time(at: Timestamp) -> String {
    at.to_zoned(zones::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// Formats a time in the system's time zone, to the minute, for lists.
pub fn format_minute(at: Timestamp) -> String {
    at.to_zoned(zones::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Formats a time in the given zone, with the zone's abbreviation. An unknown zone is replaced by
/// the system's zone.
pub fn format_time_in(at: Timestamp, zone: &str) -> String {
    let zone = zones::get(zone).unwrap_or_else(|_| zones::system());
    at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// Formats a count with its noun, such as "1 run" or "2 runs".
pub fn count(count: u64, what: &str) -> String {
    runner_text::counted(count, what)
}

pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Formats the rows as a table. On a terminal, cells wrap to fit the terminal's width.
pub fn table(rows: &[Vec<String>]) -> String {
    layout(rows, &[], terminal_width())
}

/// Formats the rows as a table with one line per row, so that the text can be copied.
pub fn unwrapped_table(rows: &[Vec<String>]) -> String {
    layout(rows, &[], None)
}

/// The meaning of a listed item's state, which decides its colour on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// Returns the tone of an outcome, or of a run without one.
    pub fn of(outcome: Option<&Outcome>) -> Self {
        match outcome {
            Some(Outcome::Succeeded) => Self::Good,
            Some(Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. }) => {
                Self::Bad
            }
            Some(
                Outcome::Degraded { .. } | Outcome::Deferred { .. } | Outcome::Cancelled { .. },
            ) => Self::Warn,
            _ => Self::Plain,
        }
    }

    fn color(self) -> Option<Color> {
        match self {
            Self::Plain => None,
            Self::Good => Some(Color::Green),
            Self::Warn => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
        }
    }
}

/// A table with a header. The cells in column `toned` are coloured with their row's tone.
pub struct List<'a> {
    pub header: &'a [&'a str],
    /// The index of the column containing the item's state.
    pub toned: usize,
    pub rows: Vec<(Tone, Vec<String>)>,
}

impl List<'_> {
    /// Prints the list on standard output, redacted.
    pub fn print(&self) {
        own(&self.text());
    }

    /// Formats the list. Colours and wrapping apply on a terminal only.
    fn text(&self) -> String {
        let mut rows = vec![self.header.iter().map(|cell| (*cell).to_owned()).collect()];
        // Colour escape sequences are added after redaction, which would remove them.
        let redacted = |cell: &String| Redacted::of(cell).to_string();
        rows.extend(self.rows.iter().map(|(_, cells)| cells.iter().map(redacted).collect()));
        let mut styles = vec![];
        if can_draw() && env::setting("NO_COLOR").is_none() {
            styles = (0..self.header.len()).map(|column| (0, column, CellLook::Header)).collect();
            let toned = self.rows.iter().enumerate();
            styles.extend(toned.filter_map(|(row, (tone, _))| {
                Some((row + 1, self.toned, CellLook::Color(tone.color()?)))
            }));
        }
        layout(&rows, &styles, terminal_width())
    }
}

#[derive(Clone, Copy)]
enum CellLook {
    Header,
    Color(Color),
}

fn terminal_width() -> Option<u16> {
    if !can_draw() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Formats rows with two spaces between columns. `looks` contains the row and column of each styled
/// cell. If `width` is given, longer lines wrap.
fn layout(rows: &[Vec<String>], looks: &[(usize, usize, CellLook)], width: Option<u16>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    if !looks.is_empty() {
        table.enforce_styling();
    }
    match width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    for (at, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(column, text)| {
            let look = looks.iter().find(|(row, cell, _)| (*row, *cell) == (at, column));
            let cell = Cell::new(text);
            match look {
                None => cell,
                Some((_, _, CellLook::Header)) => cell.add_attribute(Attribute::Bold),
                Some((_, _, CellLook::Color(color))) => cell.fg(*color),
            }
        });
        table.add_row(cells);
    }
    let last = table.column_count().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { 2 }));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr as _;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\u{7}\tc\n"), "a\u{fffd}[2Jb\u{fffd}\tc\n");
    }

    #[test]
    fn output_is_fitted_to_the_terminal() {
        let clear = "\u{1b}[K\r\n";
        assert_eq!(fitted("a\nb\n", 4, 20), format!("a{clear}b{clear}"));
        assert_eq!(
            fitted("a\nb\nc\nd\n", 4, 20),
            format!("a{clear}b{clear}… 2 more lines{clear}"),
            "the last row is not blank"
        );
        assert_eq!(fitted("夜夜夜\u{1b}[2J", 4, 5), format!("夜夜{clear}"));
    }

    #[test]
    fn table_columns_are_aligned() {
        let rows = vec![
            vec!["a".into(), "long".into(), "x".into()],
            vec!["bbb".into(), "s".into(), "y".into()],
        ];
        assert_eq!(table(&rows), "a    long  x\nbbb  s     y\n");
        let wide =
            vec![row(["name", "夜夜", "x"]), row(["n", "a long text of several words", "y"])];
        assert_eq!(layout(&wide, &[], None).lines().count(), 2);
        let narrow = layout(&wide, &[], Some(24));
        assert!(narrow.lines().count() > 2, "{narrow}");
        assert!(narrow.lines().all(|line| line.width() <= 24), "{narrow}");
    }
}
