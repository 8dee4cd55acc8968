//! Kills the process before the Nth durable step of a restore, a backup, a migration or a pruning,
//! so that tests can inspect the files that it leaves. In production, it does nothing.

use rustix::process::{Signal, getpid, kill_process};

/// Counts durable steps and, if requested, kills the process before one of them.
#[derive(Debug, Default)]
pub struct CrashPoints {
    left: Option<u32>,
}

impl CrashPoints {
    /// Creates crash points that kill the process before the step that follows `count` other steps,
    /// as `kill -9` or a power cut would.
    pub fn dying_after(count: u32) -> Self {
        Self { left: Some(count) }
    }

    /// Marks that the next action, called `what`, is durable. Kills the process if this crash point
    /// was selected.
    pub fn before(&mut self, what: &str) {
        tracing::debug!(what, "next durable step");
        match &mut self.left {
            None => {}
            Some(0) => {
                let _never_returns = kill_process(getpid(), Signal::KILL);
            }
            Some(left) => *left -= 1,
        }
    }
}
