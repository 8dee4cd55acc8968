//! Wakes the daemon: a thread for each joined fleet listens for new work and results, so that the
//! daemon need not wait for its next regular tick.
//!
//! ```text
//! membership ──thread──> LISTEN ──notification──> channel of the daemon ──> tick
//!                ^          │ connection lost
//!                └─backoff──┘
//! ```
//!
//! A wake-up is only a reason to tick earlier. While there is no connection, the regular ticks find
//! the work. The threads must never change anything.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use runner_fleet::Signals;
use tokio::sync::mpsc;

use super::membership::{self, Membership};
use crate::env::Env;
use crate::ui::Failure;

/// How often a thread checks whether its fleet is still joined.
const CHECK: Duration = Duration::from_secs(5);
/// Minimum time between two wake-ups from the same fleet.
const PAUSE: Duration = Duration::from_millis(500);
/// The wait after a lost connection. Each failed attempt to reconnect doubles the wait.
const FIRST: Duration = Duration::from_secs(5);
/// The longest wait.
const LONGEST: Duration = Duration::from_mins(1);

/// The listening threads, by fleet. Dropping one of the senders ends its thread.
#[derive(Debug)]
pub struct Wakeups {
    threads: BTreeMap<String, Sender<()>>,
    wake: mpsc::Sender<()>,
}

impl Wakeups {
    /// Creates a set without threads. `wake` receives a message for each wake-up; one pending
    /// message is enough.
    pub fn new(wake: mpsc::Sender<()>) -> Self {
        Self { threads: BTreeMap::new(), wake }
    }

    /// Starts threads for fleets joined since the last call, and stops those of fleets that this
    /// host has left.
    pub fn refresh(&mut self, home: &Env) {
        // The tick reports a file that cannot be read.
        let Ok(members) = Membership::all(home) else { return };
        self.threads.retain(|fleet, _| members.iter().any(|member| member.fleet == *fleet));
        for Membership { fleet, .. } in members {
            if self.threads.contains_key(&fleet) {
                continue;
            }
            let (stop, stopped) = channel();
            let (home, wake, name) = (home.clone(), self.wake.clone(), fleet.clone());
            let started =
                thread::Builder::new().spawn(move || listen(&home, &name, &stopped, &wake));
            match started {
                Ok(_detached) => drop(self.threads.insert(fleet, stop)),
                // The next tick tries again.
                Err(error) => tracing::warn!(fleet, %error, "cannot start a thread"),
            }
        }
    }
}

/// Listens until `stopped` is closed.
fn listen(home: &Env, fleet: &str, stopped: &Receiver<()>, wake: &mpsc::Sender<()>) {
    let mut wait = FIRST;
    loop {
        match connect(home, fleet) {
            Ok(signals) => {
                wait = FIRST;
                // Work or results may have arrived while there was no connection.
                if !pass_on(signals, stopped, wake) {
                    return;
                }
            }
            Err(failure) => tracing::debug!(fleet, %failure, "cannot listen"),
        }
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        wait = wait.saturating_mul(2).min(LONGEST);
    }
}

fn connect(home: &Env, fleet: &str) -> Result<Signals, Failure> {
    let database = membership::database(&membership::settings(home, fleet)?)?;
    database.listen().map_err(membership::failure)
}

/// Passes notifications on. Returns true if the connection was lost, and false if the thread must
/// end.
fn pass_on(mut signals: Signals, stopped: &Receiver<()>, wake: &mpsc::Sender<()>) -> bool {
    let mut woken = true;
    loop {
        // A full channel already contains a wake-up.
        if woken && matches!(wake.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {
            return false;
        }
        let pause = if woken { PAUSE } else { Duration::ZERO };
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
        match signals.wait(CHECK) {
            Ok(found) => woken = found,
            Err(error) => {
                tracing::debug!(%error, "the listening connection was lost");
                return true;
            }
        }
    }
}
