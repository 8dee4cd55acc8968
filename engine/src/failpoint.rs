//! Kills this process or makes a commit fail at a chosen step, for tests that verify recovery.
//!
//! Only the feature `fault-injection` enables these failures. A process dies by `SIGKILL`, so it
//! runs no destructor and flushes no buffer.

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// Number of calls to [`reach`] that this process still survives. A negative number means no limit.
static ACTS: AtomicI64 = AtomicI64::new(-1);
/// The same number for calls to [`before`].
static STEPS: AtomicI64 = AtomicI64::new(-1);

thread_local! {
    /// Number of commits that still succeed on this thread. `None` means no limit.
    static COMMITS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Reads `RUNNER_TEST_KILL`, the number of calls to [`reach`] that this process survives.
pub fn arm_acts(setting: impl Fn(&str) -> Option<OsString>) {
    if cfg!(feature = "fault-injection") {
        arm(&ACTS, setting("RUNNER_TEST_KILL"));
    }
}

/// Reads `RUNNER_TEST_DIE_AT`, the number of calls to [`before`] that this process survives.
pub fn arm_steps(setting: impl Fn(&str) -> Option<OsString>) {
    if cfg!(feature = "fault-injection") {
        arm(&STEPS, setting("RUNNER_TEST_DIE_AT"));
    }
}

/// Makes every commit on this thread fail after the next `count` commits, as if the process had
/// died. `None` removes the limit.
pub fn fail_commits_after(count: Option<u32>) {
    COMMITS.set(count);
}

/// Marks a point directly before a publication, an import of commits or an atomic write changes the
/// disk.
#[inline]
pub fn reach() {
    if cfg!(feature = "fault-injection") {
        pass(&ACTS);
    }
}

/// Marks a point directly before a durable step, such as a step of a backup or a setup.
#[inline]
pub fn before(what: &str) {
    tracing::debug!(what, "next durable step");
    if cfg!(feature = "fault-injection") {
        pass(&STEPS);
    }
}

/// Returns whether the next commit on this thread must fail.
#[inline]
pub(crate) fn commit_fails() -> bool {
    let left = COMMITS.get().filter(|_| cfg!(feature = "fault-injection"));
    COMMITS.set(left.map(|left| left.saturating_sub(1)));
    left == Some(0)
}

fn arm(counter: &AtomicI64, value: Option<OsString>) {
    if let Some(count) = value.and_then(|text| text.to_str()?.parse::<u32>().ok()) {
        counter.store(count.into(), Ordering::SeqCst);
    }
}

fn pass(counter: &AtomicI64) {
    if counter.load(Ordering::Relaxed) >= 0 && counter.fetch_sub(1, Ordering::SeqCst) == 0 {
        // A process can always send itself `SIGKILL`.
        let _dead = kill_process(getpid(), Signal::KILL);
    }
}
