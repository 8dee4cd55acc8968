//! Tests `runner top` in a pseudo-terminal: its views, a growing log, decisions, and its exit.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fixture::{Fixture, ended_within};
use crate::review::terminal;

/// The maximum time until the screen changes.
const WAIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
const NOTE: &str = "Coffee is better in the morning.\n";

/// A running `runner top`, and everything that it has written.
pub struct Top {
    child: Child,
    ours: File,
    size: Winsize,
    seen: Vec<u8>,
}

/// Returns the text that a terminal shows after this output. Only characters, cursor movements and
/// clearing the screen are interpreted.
fn screen(output: &[u8], size: Winsize) -> String {
    let mut cells = vec![vec![' '; size.ws_col.into()]; size.ws_row.into()];
    let (mut row, mut column) = (0, 0);
    let text = String::from_utf8_lossy(output);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            if let Some(cell) =
                cells.get_mut(row).and_then(|row: &mut Vec<char>| row.get_mut(column))
            {
                *cell = c;
            }
            column += 1;
            continue;
        }
        let mut sequence = String::new();
        for c in rest.by_ref().skip(1) {
            sequence.push(c);
            if c.is_ascii_alphabetic() {
                break;
            }
        }
        if let Some(place) = sequence.strip_suffix('H') {
            let mut numbers = place.split(';').map(|number| number.parse::<usize>().unwrap_or(1));
            (row, column) = (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1);
        } else if sequence == "2J" {
            cells.iter_mut().for_each(|row| row.fill(' '));
        }
    }
    cells.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
}

impl Top {
    fn start(fixture: &Fixture, line: &[&str], colour: bool) -> Self {
        Self::sized(fixture, line, colour, [80, 24])
    }

    /// Starts the application on a terminal with this number of columns and rows.
    pub fn sized(
        fixture: &Fixture,
        line: &[&str],
        colour: bool,
        [ws_col, ws_row]: [u16; 2],
    ) -> Self {
        let (ours, theirs) = terminal();
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).unwrap();
        let mut command = fixture.runner(line);
        command.env("TERM", "xterm").stdin(theirs.try_clone().unwrap()).stdout(theirs);
        if !colour {
            command.env("NO_COLOR", "1");
        }
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        Self { child, ours, size, seen: Vec::new() }
    }

    /// Returns the text that the terminal shows.
    pub fn screen(&self) -> String {
        screen(&self.seen, self.size)
    }

    /// Reads until the screen shows `text`.
    pub fn until(&mut self, text: &str) {
        let began = Instant::now();
        while !self.screen().contains(text) {
            let ready = {
                let mut polled = [PollFd::new(&self.ours, PollFlags::IN)];
                poll(&mut polled, Some(&WAIT)).unwrap()
            };
            let shown = self.screen();
            assert!(ready > 0 && began.elapsed().as_secs() < 30, "no {text:?}:\n{shown}");
            let mut bytes = [0; 4096];
            let count = self.ours.read(&mut bytes).unwrap();
            self.seen.extend_from_slice(&bytes[..count]);
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the application has ended, and returns everything that it has written.
    pub fn end(mut self, code: i32) -> String {
        // The application does not end while its output is blocked, so read that output. Reading
        // fails once the application has closed the terminal.
        let mut bytes = [0; 4096];
        let polled = || poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&WAIT));
        while polled().is_ok_and(|ready| ready > 0) {
            match (&self.ours).read(&mut bytes) {
                Ok(count) if count > 0 => self.seen.extend_from_slice(&bytes[..count]),
                _ => break,
            }
        }
        let ended = ended_within(self.child.id(), Duration::from_secs(30));
        if !ended {
            self.child.kill().unwrap();
        }
        let was = self.child.wait().unwrap();
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert!(ended, "the application did not end");
        assert_eq!((was.code(), complaints.as_str()), (Some(code), ""));
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

fn with_proposal() -> Fixture {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("ideas/coffee.md", NOTE);
    fixture.run(&["dream", "run"]).ends(0);
    fixture
}

#[test]
fn top_without_terminal_suggests_status() {
    let fixture = with_proposal();
    fixture.run(&["top"]).ends(2).expect_text("needs a terminal").expect_text("runner status");
}

#[test]
fn views_show_the_data_of_the_commands() {
    let fixture = with_proposal();
    let id = fixture.run(&["runs", "--json"]).ends(0).json()[0]["id"].as_str().unwrap().to_owned();
    let mut top = Top::start(&fixture, &["top"], true);
    top.until("last night");
    top.press("\t");
    top.until("choose");
    top.press("\r");
    top.until(&format!("run {id}"));
    top.press("l");
    top.until("follows the end");
    top.press("q");
    top.until("back");
    top.press("q");
    top.until("choose");
    top.press("q");
    let seen = top.end(0);
    assert!(seen.contains("succeeded"), "{seen:?}");
    assert!(!seen.contains("\u{1b}[?1000h"), "mouse reporting is on");
    assert!(seen.contains("\u{1b}[?1049h"), "no alternate screen");
}

#[test]
fn proposal_is_decided_and_undone() {
    let fixture = with_proposal();
    let before = fixture.tree("ideas");
    let mut top = Top::start(&fixture, &["top"], true);
    top.until("last night");
    top.press("3");
    top.until("coffee");
    top.press("\r");
    top.until("accept");
    top.press("r");
    top.until("rejected");
    let all = fixture.run(&["dream", "list", "--all", "--json"]).ends(0).json();
    assert_eq!(all[0]["decision"]["decision"], "rejected");
    top.press("u");
    top.until("undone");
    top.press("qq");
    top.end(0);
    assert_eq!(fixture.tree("ideas"), before);
    let all = fixture.run(&["dream", "list", "--all", "--json"]).ends(0).json();
    assert!(all[0]["decision"].is_null(), "{all}");
}

#[test]
fn new_run_appears_automatically() {
    let fixture = with_proposal();
    let mut top = Top::start(&fixture, &["top"], false);
    top.until("last night");
    top.press("2");
    top.until("choose");
    fixture.run(&["dream", "run"]).ends(0);
    let id = fixture.run(&["runs", "--json"]).ends(0).json()[0]["id"].as_str().unwrap().to_owned();
    // With 80 columns, the list shows only the beginning of each id.
    top.until(&id[..12]);
    top.press("q");
    let seen = top.end(0);
    let colours = ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[38;5;"];
    assert!(!colours.iter().any(|colour| seen.contains(colour)), "{seen:?}");
}

#[test]
fn runs_are_cancelled_retried_and_paused() {
    let fixture = with_proposal();
    fixture.run(&["enqueue", "dream"]).ends(0);
    let mut top = Top::start(&fixture, &["top"], true);
    top.until("last night");
    top.press("2");
    top.until("queued");
    top.press("c");
    top.until("Cancel run");
    top.press("n");
    top.until("choose");
    assert_eq!(
        fixture.count("SELECT count(*) FROM runs WHERE state = 'queued'"),
        1,
        "the answer `n` cancelled the run"
    );
    top.press("cy");
    top.until("will not run");
    top.until("cancelled");
    let sql = "SELECT count(*) FROM runs WHERE outcome ->> 'outcome' = 'cancelled'";
    assert_eq!(fixture.count(sql), 1);
    top.press("r");
    top.until("queued: ready");
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state = 'queued'"), 1);
    let paused = || {
        fixture.run(&["jobs", "show", "dream", "--json"]).ends(0).json()["paused_until"].is_string()
    };
    top.press("p");
    top.until("dream is paused");
    assert!(paused());
    top.press("p");
    top.until("dream is resumed");
    assert!(!paused());
    // The new attempt is the first run in the list, so `G` selects a run that has ended. Such a run
    // cannot be cancelled.
    top.press("G");
    top.press("cy");
    top.until("has already ended");
    top.press("1");
    top.until("pause all");
    top.press("p");
    top.until("Pause everything");
    top.press("y");
    top.until("everything is paused");
    assert_eq!(fixture.count("SELECT count(*) FROM pause"), 1);
    top.press("p");
    top.until("the pause for all jobs has ended");
    top.press("q");
    top.end(0);
    let sql =
        "SELECT count(*) FROM events WHERE kind = 'top' AND detail LIKE 'runner %: asked by %'";
    assert_eq!(
        fixture.count(sql),
        7,
        "the audit trail does not contain every request, including the refused one"
    );
    let of_run = "SELECT count(*) FROM events WHERE kind = 'top' AND run IS NOT NULL AND project IS NOT NULL";
    assert_eq!(fixture.count(of_run), 5);
}
