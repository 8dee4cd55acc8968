//! Takes over the application's terminal, draws frames, reads keys, and restores the terminal.
//!
//! The terminal must never remain in raw mode, even after an error, a panic or a signal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::ui::keys::{Input, Key, Keys};

/// Returns whether standard input and standard output are both terminals.
pub fn is_available() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// A terminal that this program controls.
pub struct Screen {
    stop: Arc<AtomicBool>,
    // The terminal is never dropped, because its destructor would print an error if the terminal is
    // gone. `give_back` shows the cursor instead.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    size: (u16, u16),
    keys: Keys,
    // Keys that were read together with the last returned key.
    waiting: VecDeque<Key>,
}

/// How often to check for signals, terminal size changes and new data.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl Screen {
    /// Takes over the terminal.
    pub fn open() -> io::Result<Self> {
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
        let entered = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        // From here on, dropping the screen restores the terminal.
        let terminal = ManuallyDrop::new(terminal.inspect_err(|_| give_back())?);
        let keys = Keys::default();
        Ok(Self { stop, terminal, size: (0, 0), keys, waiting: VecDeque::new() })
    }

    /// Draws a frame. Only changed cells are written.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.size = terminal::size().unwrap_or((80, 24));
        self.terminal.draw(render).map(drop)
    }

    /// Waits up to 200 ms for the next input. Returns `None` if there is none, and [`Input::Stop`]
    /// after a signal or if the terminal cannot be read.
    pub fn next(&mut self) -> Option<Input> {
        let mut waits = true;
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return Some(Input::Stop);
            }
            match self.waiting.pop_front() {
                Some(Key::Does(input)) => return Some(input),
                Some(Key::Repaint) => {
                    return Some(match self.terminal.clear() {
                        Ok(()) => Input::Resized,
                        Err(_gone) => Input::Stop,
                    });
                }
                None => {}
            }
            if terminal::size().is_ok_and(|size| size != self.size) {
                return Some(Input::Resized);
            }
            if !std::mem::take(&mut waits) {
                return None;
            }
            if self.read().is_err() {
                return Some(Input::Stop);
            }
        }
    }

    /// Reads the available input, waiting at most [`PERIOD`].
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be read.
    fn read(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&PERIOD)) {
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
