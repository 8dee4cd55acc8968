//! Repeats the status: redraws it on a terminal, and otherwise prints it when it has changed.
//!
//! ```text
//! read ──> draw ──> wait: 2 s, or a change to the database ──> read …
//!                    ├ interrupted ──> exit code 130
//!                    └ q, Esc, or the reader has closed the output ──> exit code 0
//! ```
//!
//! The cursor is never hidden and no alternate screen is opened. On a terminal, keys are read
//! without waiting for Enter; the terminal's mode is restored at the end. The lines are overwritten
//! in place, with a single write for each update, so nothing flickers.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use runner_engine::outcome::Exit;
use runner_engine::time::boot_time;
use rustix::fs::inotify::WatchFlags;

use super::{gather, text};
use crate::commands::Cli;
use crate::ui::key_reader::KeyReader;
use crate::ui::keys::Input;
use crate::ui::{Failure, show};
use crate::wait::{Waiter, WakeReason};

/// Maximum time between two updates.
const PACE: Duration = Duration::from_secs(2);
/// Time to wait after a change to the database, because changes usually come in bursts.
const SETTLE: Duration = Duration::from_millis(100);

/// Repeats the status until the command is interrupted or its output is closed.
pub(super) fn watch(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let mut waiter = Waiter::interruptible()?;
    // If the watch fails, changes are noticed only at the next update.
    waiter.watch(&cli.env.state, WatchFlags::MODIFY);
    let drawn = cli.ui.can_redraw();
    let mut keys = if drawn { KeyReader::open() } else { None };
    if keys.is_some() {
        waiter.read_keys();
    }
    let stdout = io::stdout();
    let wait = |limit| waiter.wait(&[stdout.as_fd()], limit);
    let mut before = None;
    loop {
        let text = cli.ui.frame(&gather::gather(cli)?, text::text);
        if drawn {
            show::draw(&text, before.is_none());
            before = Some(text);
        } else if before.as_ref() != Some(&text) {
            show::out(&text);
            before = Some(text);
        }
        let mut woken = wait(PACE)?;
        if woken == WakeReason::Change {
            let until = boot_time() + SETTLE;
            while woken == WakeReason::Change {
                let left = until.saturating_sub(boot_time());
                if left.is_zero() {
                    break;
                }
                woken = wait(left)?;
            }
        }
        match woken {
            WakeReason::Time | WakeReason::Change => {}
            WakeReason::Key => match keys.as_mut().map_or(Input::Stop, KeyReader::read) {
                Input::Char('q' | 'Q') | Input::Escape => return Ok(Exit::Done),
                Input::Stop => return Ok(Exit::Cancelled),
                _ => {}
            },
            WakeReason::Interrupted => return Ok(Exit::Cancelled),
            WakeReason::Closed => return Ok(Exit::Done),
        }
    }
}
