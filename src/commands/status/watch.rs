//! Repeats the status: redraws it on a terminal, and elsewhere prints it when it has changed.
//!
//! ```text
//! read ──> draw ──> wait: 2 s, or a change of the database ──> read …
//!                    ├ interrupted ──> exit code 130
//!                    └ the reader has closed the output ──> exit code 0
//! ```
//!
//! The cursor is never hidden and no alternate screen is opened, so nothing needs to be restored at
//! the end. Each line is overwritten in place with a single write, so that nothing flickers.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use runner_engine::outcome::Exit;
use runner_engine::time::boot_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{gather, text};
use crate::commands::Cli;
use crate::env::Env;
use crate::ui::{Failure, show};

/// Maximum time between two updates.
const PACE: Duration = Duration::from_secs(2);
/// Time to wait after a change of the database, because several changes usually follow each other.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    Time,
    Change,
    Interrupted,
    Closed,
}

/// Repeats the status until the command is interrupted or its output is closed.
pub(super) fn watch(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let cannot = |error: io::Error| Failure::internal(format!("cannot wait for signals: {error}"));
    let (reported, tell) = UnixStream::pair().map_err(cannot)?;
    for signal in [SIGINT, SIGTERM] {
        let tell = tell.try_clone().map_err(cannot)?;
        signal_hook::low_level::pipe::register(signal, tell).map_err(cannot)?;
    }
    let mut ears = WatchSignals { reported, changes: changes(cli.env) };
    let drawn = cli.ui.can_redraw();
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
        let mut woken = ears.wait(PACE)?;
        if woken == WakeReason::Change {
            let until = boot_time() + SETTLE;
            while woken == WakeReason::Change {
                let left = until.saturating_sub(boot_time());
                if left.is_zero() {
                    break;
                }
                woken = ears.wait(left)?;
            }
        }
        match woken {
            WakeReason::Time | WakeReason::Change => {}
            WakeReason::Interrupted => return Ok(Exit::Cancelled),
            WakeReason::Closed => return Ok(Exit::Done),
        }
    }
}

fn changes(home: &Env) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    // Without the watch, changes are noticed later.
    inotify::add_watch(&watch, &home.state, WatchFlags::MODIFY).ok()?;
    Some(watch)
}

struct WatchSignals {
    reported: UnixStream,
    changes: Option<OwnedFd>,
}

impl WatchSignals {
    fn wait(&mut self, limit: Duration) -> Result<WakeReason, Failure> {
        let stdout = io::stdout();
        let mut polled = vec![
            PollFd::new(&self.reported, PollFlags::IN),
            // This waits only for the other end to close, which `poll` always reports.
            PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
        ];
        if let Some(changes) = &self.changes {
            polled.push(PollFd::new(changes, PollFlags::IN));
        }
        let limit = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Failure::internal(format!("cannot wait: {error}")));
            }
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let is = |at: usize, what| polled.get(at).is_some_and(|it| it.revents().intersects(what));
        if is(0, PollFlags::IN) {
            return Ok(WakeReason::Interrupted);
        }
        if is(1, gone) {
            return Ok(WakeReason::Closed);
        }
        if !is(2, PollFlags::IN) {
            return Ok(WakeReason::Time);
        }
        if let Some(changes) = &self.changes {
            let mut reported = [0_u8; 4096];
            while rustix::io::read(changes, &mut reported).is_ok_and(|count| count > 0) {}
        }
        Ok(WakeReason::Change)
    }
}
