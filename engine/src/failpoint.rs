//! Kills the process at a chosen step, so that tests use real kills to prove that recovery works.
//!
//! Every step that changes the disk under a publication or an atomic write calls [`reach`] first.
//! It does nothing until a test of the whole program arms it; then the process kills itself, with
//! nothing caught and nothing flushed, like a power cut of one process. Only the code that reads
//! `RUNNER_TEST_KILL` may arm it.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

static LEFT: AtomicI64 = AtomicI64::new(-1);

/// Makes the process kill itself at the step that follows `acts` more steps.
pub fn arm(acts: u32) {
    LEFT.store(i64::from(acts), Ordering::SeqCst);
}

/// Marks a step that is about to be made.
#[inline]
pub fn reach() {
    if LEFT.load(Ordering::Relaxed) >= 0 && LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
        // The process cannot handle a failure here, and killing itself does not fail.
        let _dead = kill_process(getpid(), Signal::KILL);
    }
}
