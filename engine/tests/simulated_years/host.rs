//! A simulated host with processes, locks and boots.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use runner_engine::ids::{ProjectId, RunId};
use runner_engine::locks::LockError;
use runner_engine::process::tree::Killed;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::World;

#[derive(Debug, Default)]
pub struct State {
    pub alive: BTreeSet<u32>,
    /// The process that holds each job's deciding lock, or 0 for recovery.
    pub locks: BTreeMap<String, u32>,
    pub boot: u32,
    next: u32,
    /// Processes killed by recovery that the simulation has not removed yet.
    pub killed: Vec<u32>,
    /// Whether the next kill has no effect.
    pub unkillable: bool,
    /// An injected bug: every process gets every lock.
    pub locks_always_free: bool,
    /// An injected bug: all processes seem to be alive.
    pub dead_live: bool,
}

/// A handle to the host, shared by the simulation and recovery.
#[derive(Clone, Debug, Default)]
pub struct Host(pub Rc<RefCell<State>>);

impl Host {
    pub fn spawn(&self) -> ProcessIdentity {
        let mut state = self.0.borrow_mut();
        state.next += 1;
        let pid = state.next;
        state.alive.insert(pid);
        ProcessIdentity { pid, start: u64::from(pid), boot: format!("boot-{}", state.boot) }
    }

    /// Ends a process and releases its locks.
    pub fn end(&self, pid: u32) {
        let mut state = self.0.borrow_mut();
        state.alive.remove(&pid);
        state.locks.retain(|_, holder| *holder != pid);
    }

    pub fn alive(&self, pid: u32) -> bool {
        self.0.borrow().alive.contains(&pid)
    }

    /// Takes a job's lock for a process, which holds the lock until it exits. Returns `false` if
    /// the lock is held.
    pub fn lock(&self, job: &str, pid: u32) -> bool {
        let mut state = self.0.borrow_mut();
        if state.locks.contains_key(job) && !state.locks_always_free {
            return false;
        }
        state.locks.insert(job.to_owned(), pid);
        true
    }

    /// Ends all processes and starts a new boot.
    pub fn reboot(&self) {
        let mut state = self.0.borrow_mut();
        state.alive.clear();
        state.locks.clear();
        state.killed.clear();
        state.boot += 1;
    }
}

/// A lock held by recovery.
struct HeldLock(Host, String);

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.0.0.borrow_mut().locks.remove(&self.1);
    }
}

impl World for Host {
    fn try_lock(&self, _: &ProjectId, job: &str) -> Result<Option<Box<dyn Any>>, LockError> {
        let mut state = self.0.borrow_mut();
        if state.locks.contains_key(job) {
            return Ok(None);
        }
        state.locks.insert(job.to_owned(), 0);
        Ok(Some(Box::new(HeldLock(self.clone(), job.to_owned()))))
    }

    fn is_alive(&self, owner: &ProcessIdentity) -> bool {
        let state = self.0.borrow();
        state.dead_live
            || owner.boot == format!("boot-{}", state.boot) && state.alive.contains(&owner.pid)
    }

    fn kill(&self, owner: &ProcessIdentity) {
        if !self.is_alive(owner) {
            return;
        }
        if std::mem::take(&mut self.0.borrow_mut().unkillable) {
            return;
        }
        self.end(owner.pid);
        self.0.borrow_mut().killed.push(owner.pid);
    }

    fn kill_marked(&self, _: &RunId) -> Killed {
        Killed::default()
    }
}
