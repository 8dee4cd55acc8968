//! Reads single keys from standard input. This module must never print.

use std::io;

use crossterm::terminal;
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use super::keys::{Input, Key, Keys};

/// Reads keys without waiting for Enter, alongside output that is not full-screen.
pub struct KeyReader {
    keys: Keys,
}

impl KeyReader {
    /// Starts reading keys. Returns `None` if standard input is not a terminal, if another program
    /// is in the terminal's foreground, or if raw mode cannot be enabled.
    pub fn open() -> Option<Self> {
        let ours = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if !ours || terminal::enable_raw_mode().is_err() {
            return None;
        }
        Some(Self { keys: Keys::default() })
    }

    /// Reads the available keys and returns the last of them. Returns [`Input::Resized`] if there
    /// is none or the last one requests a repaint, and [`Input::Stop`] if the terminal is gone.
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
