//! Waits for the first of several events: a signal, a closed output, a key press, a change in a
//! folder, or a timeout.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::ui::Failure;

/// Why a wait ended. If several reasons apply, the first variant wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// The process received SIGINT or SIGTERM.
    Interrupted,
    /// The other end of an output is closed.
    Closed,
    /// Standard input has keys to read.
    Key,
    /// A watched folder changed.
    Change,
    Time,
}

/// Returns whether the other end of an output is closed.
pub fn is_closed(output: BorrowedFd<'_>) -> bool {
    let reason = Waiter::default().wait(&[output], Duration::ZERO);
    reason.is_ok_and(|reason| reason == WakeReason::Closed)
}

#[derive(Default)]
pub struct Waiter {
    signals: Option<UnixStream>,
    /// The inotify instance, or `None` if no folder can be watched.
    changes: Option<OwnedFd>,
    /// Whether keys on standard input end a wait.
    reads_keys: bool,
}

impl Waiter {
    /// Creates a waiter that watches no folder and handles no signals.
    pub fn new() -> Self {
        let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Self { signals: None, changes, reads_keys: false }
    }

    /// Creates a waiter that is interrupted by SIGINT and SIGTERM.
    pub fn interruptible() -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::internal(format!("cannot wait for signals: {error}"));
        let (receiver, sender) = UnixStream::pair().map_err(cannot)?;
        for signal in [SIGINT, SIGTERM] {
            let sender = sender.try_clone().map_err(cannot)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(cannot)?;
        }
        Ok(Self { signals: Some(receiver), ..Self::new() })
    }

    /// Makes keys on standard input end a wait.
    pub fn read_keys(&mut self) {
        self.reads_keys = true;
    }

    /// Watches a folder. Returns `false` if that is not possible.
    pub fn watch(&self, folder: &Path, what: WatchFlags) -> bool {
        let watch = |changes| inotify::add_watch(changes, folder, what).is_ok();
        self.changes.as_ref().is_some_and(watch)
    }

    /// Returns whether a signal has arrived.
    pub fn is_interrupted(&self) -> bool {
        self.wait(&[], Duration::ZERO).is_ok_and(|reason| reason == WakeReason::Interrupted)
    }

    /// Waits for an event for at most `limit`. Returns [`WakeReason::Time`] if no event has
    /// occurred by then, or if a signal interrupts the wait.
    pub fn wait(&self, outputs: &[BorrowedFd<'_>], limit: Duration) -> Result<WakeReason, Failure> {
        let mut reasons = Vec::new();
        let mut polled = Vec::new();
        let mut add = |reason, fd, flags| {
            reasons.push(reason);
            polled.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if let Some(signals) = &self.signals {
            add(WakeReason::Interrupted, signals.as_fd(), PollFlags::IN);
        }
        let stdin = io::stdin();
        if self.reads_keys {
            add(WakeReason::Key, stdin.as_fd(), PollFlags::IN);
        }
        if let Some(changes) = &self.changes {
            add(WakeReason::Change, changes.as_fd(), PollFlags::IN);
        }
        // No events are requested for outputs, because `poll` always reports when the other end is
        // closed.
        outputs.iter().for_each(|output| add(WakeReason::Closed, *output, PollFlags::empty()));
        match poll(&mut polled, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::internal(format!("cannot wait: {error}"))),
        }
        let ended = reasons.into_iter().zip(&polled).filter(|(_, it)| !it.revents().is_empty());
        let reason = ended.map(|(reason, _)| reason).min().unwrap_or(WakeReason::Time);
        if let (WakeReason::Change, Some(changes)) = (reason, &self.changes) {
            // Drains the events. Their content does not matter.
            let mut reported = [0_u8; 4096];
            while rustix::io::read(changes, &mut reported).is_ok_and(|count| count > 0) {}
        }
        Ok(reason)
    }
}
