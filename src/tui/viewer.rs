//! Text that the user scrolls and searches: the overview, the details of a run, or a growing log.
//! This module is pure.
//!
//! Only the visible lines and those of the last screen are wrapped, so the cost of wrapping does not
//! grow with the number of lines.

use runner_text::redact::Redacted;

use super::rows::{CellStyle, Row};
use crate::ui::keys::Input;
use crate::ui::show::Tone;

/// Maximum number of lines that a viewer keeps when lines are appended. Beyond it, the first lines
/// are dropped.
pub const KEPT: usize = 5_000;

/// The text that the lines must contain, and whether it is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    pub text: String,
    pub typing: bool,
}

impl Search {
    /// Handles a key while the text is being typed. Enter keeps the text, and Escape clears it.
    pub fn typed(&mut self, key: Input) {
        match key {
            Input::Enter => self.typing = false,
            Input::Escape => *self = Self::default(),
            Input::Backspace => {
                self.text.pop();
            }
            Input::Char(letter) => self.text.push(letter),
            _ => {}
        }
    }

    /// Returns whether a line contains the text, ignoring case.
    pub fn accepts(&self, line: &str) -> bool {
        self.text.is_empty() || line.to_lowercase().contains(&self.text.to_lowercase())
    }
}

/// The visible part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first visible line, counted among the lines that match the search.
    Line(usize),
    /// The end, even as the text grows.
    End,
}

/// Text with its visible part and a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// The line above the text.
    pub title: String,
    /// The run that the text is about, if there is one.
    pub run: Option<String>,
    lines: Vec<(Tone, String)>,
    place: Place,
    /// The first visible line when scrolled to the end, as of the last rendering.
    last: usize,
    /// Number of rows that were available in the last rendering.
    room: usize,
    pub search: Search,
}

impl Viewer {
    /// Creates a viewer that shows text from its beginning.
    pub fn new(title: String, run: Option<String>) -> Self {
        let (place, search) = (Place::Line(0), Search::default());
        Self { title, run, lines: Vec::new(), place, last: 0, room: 0, search }
    }

    /// Creates an empty viewer that follows the end of growing text.
    pub fn following(title: String, run: String) -> Self {
        Self { place: Place::End, ..Self::new(title, Some(run)) }
    }

    /// Replaces the text and keeps the scroll position.
    pub fn set(&mut self, lines: Vec<(Tone, String)>) {
        self.lines = lines;
    }

    /// Replaces the text with redacted lines in the plain tone.
    pub fn set_text(&mut self, text: &str) {
        self.lines = plain(text).collect();
    }

    /// Adds lines at the end. Beyond [`KEPT`] lines, the first ones are dropped.
    pub fn append(&mut self, text: &str) {
        self.lines.extend(plain(text));
        let over = self.lines.len().saturating_sub(KEPT);
        let dropped =
            self.lines.drain(..over).filter(|(_, line)| self.search.accepts(line)).count();
        // The place is counted among the lines that the search accepts.
        if let Place::Line(line) = &mut self.place {
            *line = line.saturating_sub(dropped);
        }
    }

    /// Returns whether the end stays visible as the text grows.
    pub fn follows(&self) -> bool {
        self.place == Place::End
    }

    /// Handles a key. Keys that neither scroll nor search do nothing.
    pub fn update(&mut self, key: Input) {
        if self.search.typing {
            return self.search.typed(key);
        }
        let page = self.room.saturating_sub(1).max(1);
        match key {
            Input::Char('/') => self.search.typing = true,
            Input::Down | Input::Char('j') => self.down(1),
            Input::Up | Input::Char('k') => self.up(1),
            Input::PageDown | Input::Char(' ') => self.down(page),
            Input::PageUp => self.up(page),
            Input::Home | Input::Char('g') => self.place = Place::Line(0),
            Input::End | Input::Char('G' | 'f') => self.place = Place::End,
            _ => {}
        }
    }

    fn down(&mut self, by: usize) {
        if let Place::Line(line) = self.place {
            let line = line.saturating_add(by);
            self.place = if line < self.last { Place::Line(line) } else { Place::End };
        }
    }

    fn up(&mut self, by: usize) {
        let line = match self.place {
            Place::Line(line) => line,
            Place::End => self.last,
        };
        self.place = Place::Line(line.saturating_sub(by));
    }

    /// Renders the visible part, at most `room` rows.
    pub fn rows(&mut self, width: usize, room: usize) -> Vec<Row> {
        self.room = room;
        let accepted = |(_, line): &&(Tone, String)| self.search.accepts(line);
        let lines: Vec<&(Tone, String)> = self.lines.iter().filter(accepted).collect();
        let wrapped =
            |(tone, line): &(Tone, String)| Row::wrapped(CellStyle::from(*tone), line, width);
        let mut end: Vec<Row> = Vec::new();
        let mut last = lines.len();
        while last > 0 && end.len() < room {
            let mut rows = wrapped(lines[last - 1]);
            if end.len() + rows.len() > room && !end.is_empty() {
                break;
            }
            rows.append(&mut end);
            end = rows;
            last -= 1;
        }
        self.last = last;
        match self.place {
            Place::Line(line) if line < last => {
                let rows = lines[line..].iter().flat_map(|line| wrapped(line));
                rows.take(room).collect()
            }
            // Only the start of a line longer than the screen is shown.
            _ => end.into_iter().take(room).collect(),
        }
    }
}

/// Returns the lines of `text`, redacted. A secret may span several lines, so the text is redacted
/// as a whole.
fn plain(text: &str) -> impl Iterator<Item = (Tone, String)> {
    let lines: Vec<_> =
        Redacted::of(text).lines().map(|line| (Tone::Plain, line.to_owned())).collect();
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> String {
        (0..count).map(|line| format!("line {line}\n")).collect()
    }

    fn seen(viewer: &mut Viewer) -> Vec<String> {
        viewer.rows(40, 4).iter().map(|row| row.text().to_owned()).collect()
    }

    #[test]
    fn growing_log_is_followed_until_scrolled() {
        let mut log = Viewer::following("log".into(), "R1".into());
        log.append(&numbered(10));
        assert_eq!(seen(&mut log), ["line 6", "line 7", "line 8", "line 9"]);
        log.append("new\n");
        assert_eq!(seen(&mut log)[3], "new");
        log.update(Input::Up);
        assert_eq!(seen(&mut log)[3], "line 9");
        log.append("newer\n");
        assert_eq!(seen(&mut log)[3], "line 9", "scrolling back must stop following the end");
        log.update(Input::End);
        assert_eq!(seen(&mut log)[3], "newer");
        log.append(&numbered(2 * KEPT));
        assert_eq!(log.lines.len(), KEPT);
        log.update(Input::Home);
        assert_eq!(seen(&mut log)[0], format!("line {KEPT}"));
    }

    #[test]
    fn dropped_lines_do_not_move_the_view() {
        let mut log = Viewer::following("log".into(), "R1".into());
        log.append(&numbered(KEPT));
        log.update(Input::Char('/'));
        for key in "99".chars() {
            log.update(Input::Char(key));
        }
        log.update(Input::Enter);
        seen(&mut log);
        log.update(Input::Up);
        let before = seen(&mut log);
        log.append(&numbered(50));
        assert_eq!(seen(&mut log), before);
    }

    #[test]
    fn scrolling_stops_at_both_ends() {
        let mut page = Viewer::new("page".into(), None);
        page.set_text(&numbered(6));
        assert_eq!(seen(&mut page)[0], "line 0");
        for _ in 0..20 {
            page.update(Input::Char('j'));
            seen(&mut page);
        }
        assert_eq!(seen(&mut page), ["line 2", "line 3", "line 4", "line 5"]);
        page.update(Input::Char('k'));
        assert_eq!(seen(&mut page)[0], "line 1");
        page.update(Input::PageUp);
        page.update(Input::PageUp);
        assert_eq!(seen(&mut page)[0], "line 0");
    }

    #[test]
    fn a_search_hides_other_lines() {
        let mut page = Viewer::new("page".into(), None);
        page.set_text(&numbered(30));
        for key in ['/', 'L', 'I', 'N', 'E', ' ', '2'] {
            page.update(Input::Char(key));
        }
        page.update(Input::Enter);
        assert_eq!(seen(&mut page), ["line 2", "line 20", "line 21", "line 22"]);
        page.update(Input::Char('/'));
        page.update(Input::Escape);
        assert_eq!(seen(&mut page)[1], "line 1");
    }
}
