//! Waits on file descriptors. The process modules wait in no other way.
//!
//! An [`Alarm`] is a timer on the boot-time clock. A deadline that passes while the host is
//! suspended therefore takes effect immediately on resume. The timeout of `poll` does not include
//! suspended time. This module must never spin, and never sleep for a guessed time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::time::boot_time;

/// A timer for `poll`. Its descriptor becomes readable when its time has passed.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    set: Option<Duration>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Boottime, flags)?, set: None })
    }

    /// Sets the alarm to `at` on the boot-time clock, or disarms it for `None`. A time in the past
    /// triggers the alarm at once.
    pub(super) fn set(&mut self, at: Option<Duration>) -> io::Result<()> {
        if self.set == at {
            return Ok(());
        }
        // A value of zero would disarm the timer.
        let value = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(value) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.set = at;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// Waits at most `timeout` until any of `fds` is ready. Signals do not end the wait early.
pub(crate) fn poll_within(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let end = timeout.map(|timeout| boot_time() + timeout);
    loop {
        let left = end.map(|end| timespec(end.saturating_sub(boot_time())));
        match poll(fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            // Other errors, such as an invalid pointer or insufficient memory, are handled like a
            // timeout.
            _ => return,
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // A timeout of more than 292 billion years has the same effect as no timeout.
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
