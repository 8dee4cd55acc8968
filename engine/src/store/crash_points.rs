//! Where a process may be made to die, for tests that look at what it leaves: before the Nth durable
//! step of a restore, a backup, a migration or a pruning. In ordinary life it does nothing.

use rustix::process::{Signal, getpid, kill_process};

/// Counts durable steps, and dies before one of them where that is asked for.
#[derive(Debug, Default)]
pub struct CrashPoints {
    left: Option<u32>,
}

impl CrashPoints {
    /// Dies, as by a power cut or `kill -9`, before the step after `count` others.
    pub fn dying_after(count: u32) -> Self {
        Self { left: Some(count) }
    }

    /// Marks that the next action, called `what`, is durable. Kills the process here if this crash
    /// point was selected.
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
