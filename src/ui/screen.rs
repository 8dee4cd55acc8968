//! A full-screen terminal interface: paints rows, reads keys, and restores the terminal.
//!
//! The caller must escape the text of rows. A screen must never leave the terminal in raw mode,
//! even after an error, a panic or a signal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use runner_text::redact::Redacted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use super::keys::Input;
use super::keys::{Key, Keys};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellStyle {
    Plain,
    Strong,
    Faint,
    Bar,
    /// Additions and good states.
    Good,
    /// Problems.
    Bad,
}

/// The segments of one row, from left to right.
pub type Row = Vec<(CellStyle, String)>;

/// Returns whether standard input and standard output are both terminals.
pub fn there_is_one() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// A terminal that this program controls.
pub struct Screen {
    color: bool,
    stop: Arc<AtomicBool>,
    // The painted rows. Only changed rows are painted again.
    painted: Vec<Row>,
    size: (u16, u16),
    keys: Keys,
    // Keys that were read together with the last returned key.
    waiting: VecDeque<Key>,
}

/// The interval at which signals and the size of the terminal are checked.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl Screen {
    /// Takes over the terminal. Styles have no colors if `color` is false.
    pub fn open(color: bool) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        terminal::enable_raw_mode()?;
        // From here on, dropping the screen restores the terminal.
        let screen = Self {
            color,
            stop,
            painted: Vec::new(),
            size: (0, 0),
            keys: Keys::default(),
            waiting: VecDeque::new(),
        };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Returns the number of columns and rows.
    pub fn size(&self) -> (usize, usize) {
        let (width, height) = terminal::size().unwrap_or((80, 24));
        (usize::from(width.max(1)), usize::from(height.max(1)))
    }

    /// Paints the rows from the top of the screen.
    pub fn paint(&mut self, rows: Vec<Row>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let size = terminal::size().unwrap_or((80, 24));
        if size != self.size {
            (self.size, self.painted) = (size, Vec::new());
            queue!(out, Clear(ClearType::All))?;
        }
        for (at, row) in rows.iter().enumerate() {
            if self.painted.get(at) == Some(row) {
                continue;
            }
            let line = u16::try_from(at).unwrap_or(u16::MAX);
            queue!(out, cursor::MoveTo(0, line))?;
            for (look, text) in row {
                self.dress(&mut out, *look)?;
                queue!(out, Print(Redacted::of(text)), SetAttribute(Attribute::Reset), ResetColor)?;
            }
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        self.painted = rows;
        out.flush()
    }

    fn dress(&self, out: &mut impl io::Write, look: CellStyle) -> io::Result<()> {
        let attribute = match look {
            CellStyle::Plain => return Ok(()),
            CellStyle::Strong | CellStyle::Bad => Attribute::Bold,
            CellStyle::Faint => Attribute::Dim,
            CellStyle::Bar => Attribute::Reverse,
            CellStyle::Good => Attribute::NormalIntensity,
        };
        queue!(out, SetAttribute(attribute))?;
        let color = match look {
            CellStyle::Good => Color::Green,
            CellStyle::Bad => Color::Red,
            _ => return Ok(()),
        };
        if self.color {
            queue!(out, SetForegroundColor(color))?;
        }
        Ok(())
    }

    /// Waits for the next input. Returns [`Input::Stop`] after a signal, or if the terminal cannot
    /// be read.
    pub fn next(&mut self) -> Input {
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return Input::Stop;
            }
            match self.waiting.pop_front() {
                Some(Key::Does(input)) => return input,
                Some(Key::Repaint) => {
                    self.painted.clear();
                    return Input::Resized;
                }
                None => {}
            }
            if terminal::size().is_ok_and(|size| size != self.size) {
                return Input::Resized;
            }
            if self.read().is_err() {
                return Input::Stop;
            }
        }
    }

    /// Reads the available input, waiting at most [`LOOK`].
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be read.
    fn read(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK)) {
            Ok(0) => {
                self.keys.forget();
                return Ok(());
            }
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 1024];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.waiting.extend(self.keys.take(&bytes[..len]));
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads keys without waiting for Enter, beside output that is not a [`Screen`].
pub struct KeyReader {
    keys: Keys,
}

impl KeyReader {
    /// Starts to read keys. Returns `None` if standard input is not a terminal, or if another
    /// program is in the foreground of the terminal.
    pub fn open() -> Option<Self> {
        let ours = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if !ours || terminal::enable_raw_mode().is_err() {
            return None;
        }
        Some(Self { keys: Keys::default() })
    }

    /// Reads the available keys and returns the last of them. Returns [`Input::Stop`] if the
    /// terminal is gone.
    pub fn read(&mut self) -> Input {
        let mut bytes = [0; 1024];
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => Input::Stop,
            Ok(len) => match self.keys.take(&bytes[..len]).pop() {
                Some(Key::Does(input)) => input,
                Some(Key::Repaint) | None => Input::Resized,
            },
            Err(Errno::INTR | Errno::AGAIN) => Input::Resized,
            Err(_) => Input::Stop,
        }
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        let _gone = terminal::disable_raw_mode();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal. May be called more than once.
fn give_back() {
    let _gone = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
    let _gone = terminal::disable_raw_mode();
}
