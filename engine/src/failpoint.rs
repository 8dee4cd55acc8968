//! Kills the process at a chosen step, so that tests can verify recovery with real kills.
//!
//! Every step of a publication or an atomic write that changes the disk calls [`reach`] first. The
//! call does nothing until a test of the whole program arms it. An armed call kills the process
//! without unwinding or flushing, as if only this process lost power. Only the code that reads
//! `RUNNER_TEST_KILL` may arm it.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

static LEFT: AtomicI64 = AtomicI64::new(-1);

/// Arms the failpoint: the process survives `acts` calls of [`reach`] and kills itself at the next
/// call.
pub fn arm(acts: u32) {
    LEFT.store(i64::from(acts), Ordering::SeqCst);
}

/// Marks a step that is about to start.
#[inline]
pub fn reach() {
    if LEFT.load(Ordering::Relaxed) >= 0 && LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
        // A process can always kill itself, and a failure could not be handled here.
        let _dead = kill_process(getpid(), Signal::KILL);
    }
}
