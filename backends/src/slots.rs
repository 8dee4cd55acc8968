//! Limits the number of concurrent requests per login, across all processes on this host.
//!
//! ```text
//! run ──> slot free? ──no──> retry after a pause; cancelled: Cancelled; timed out: Unavailable
//!             │ yes: flock, held until the answer arrives
//!             v
//!        inner backend
//! ```
//!
//! Programs renew their own login while they work, and two programs that do so at the same time can
//! invalidate it. The limit therefore applies to a login, which several backends may share. A login
//! is identified by an agent and its state folder, or by an API's address and the name of its key.
//! A slot is an `flock` on a file that is never deleted. The kernel releases the lock when the
//! process exits, so no slot is lost.
//!
//! The queue's groups cannot provide this limit, because they count jobs before the backend is
//! known. This module must never hold a slot while no request is in progress.

use runner_text::counted;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runner_engine::file_lock::{FileLock, FileLockError, LockMode};
use runner_engine::process::Cancel;
use runner_engine::time::boot_time;

use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink};

/// The first and the longest interval between checks for a free slot.
const TURN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A backend whose requests wait for a free slot.
pub(crate) struct Slotted {
    pub inner: Arc<dyn Backend>,
    /// The folder that contains the lock files.
    pub folder: PathBuf,
    /// The name of the login.
    pub login: String,
    /// Maximum number of concurrent requests.
    pub slots: u32,
}

#[async_trait]
impl Backend for Slotted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn preflight(&self) -> Result<(), BackendError> {
        self.inner.preflight()
    }

    fn window(&self) -> Option<u64> {
        self.inner.window()
    }

    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        let began = boot_time();
        let slot = self.take(request.limits.total, sink, cancel).await;
        let _slot = slot.inspect_err(|_| sink.event(Event::NotBilled))?;
        let waited = boot_time().saturating_sub(began);
        let mut request = request.clone();
        request.limits.total = request.limits.total.saturating_sub(waited);
        self.inner.run(&request, sink, cancel).await
    }
}

impl Slotted {
    async fn take(
        &self,
        patience: Duration,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<FileLock, BackendError> {
        let began = boot_time();
        let mut turn = TURN.0;
        let mut reported = false;
        loop {
            if let Some(why) = cancel.why() {
                return Err(BackendError::Cancelled { why });
            }
            if let Some(slot) = self.free()? {
                return Ok(slot);
            }
            let waited = boot_time().saturating_sub(began);
            if waited >= patience {
                return Err(BackendError::Unavailable {
                    why: format!(
                        "waited {:.0} s for a free slot of login {}: other runs are using {} of {} (backends.{}.slots)",
                        waited.as_secs_f64(),
                        self.login,
                        self.slots,
                        counted(self.slots, "slot"),
                        self.name()
                    ),
                });
            }
            if !reported {
                sink.event(Event::Note("waiting for a slot: other runs are using the same login"));
                reported = true;
            }
            let turn_ends = turn.min(patience.saturating_sub(waited));
            let _cancelled_or_not = tokio::time::timeout(turn_ends, cancel.cancelled()).await;
            turn = (turn * 2).min(TURN.1);
        }
    }

    fn free(&self) -> Result<Option<FileLock>, BackendError> {
        let bad = |error: std::io::Error| BackendError::Rejected {
            why: format!("cannot lock a slot in {}: {error}", self.folder.display()),
        };
        fs::create_dir_all(&self.folder).map_err(bad)?;
        for number in 0..self.slots {
            let path = self.folder.join(format!("{}.{number}.lock", self.login));
            let file = FileLock::open(&path).map_err(bad)?;
            match FileLock::take(file, LockMode::Exclusive) {
                Ok(slot) => return Ok(Some(slot)),
                Err(FileLockError::Held { .. }) => {}
                Err(FileLockError::Io(error)) => return Err(bad(error)),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestLimits, Scripted, Step, VecSink};
    use serde_json::json;

    fn slotted(folder: &std::path::Path, slots: u32) -> Slotted {
        let steps = (0..9).map(|_| Step::Answer(json!(1)));
        Slotted {
            inner: Arc::new(Scripted::new("under-test", steps)),
            folder: folder.to_owned(),
            login: "claude-test".to_owned(),
            slots,
        }
    }

    fn request(total: Duration) -> Request {
        Request {
            id: "r/1".into(),
            purpose: "test".into(),
            instructions: "".into(),
            sources: Vec::new(),
            rule_answer: json!(null),
            offer: json!(null),
            schema: None,
            limits: RequestLimits { total, ..RequestLimits::default() },
            run_dir: None,
            work: None,
            form: crate::AnswerForm::default(),
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn requests_wait_for_a_free_slot() {
        let folder = tempfile::tempdir().unwrap();
        let two = slotted(folder.path(), 2);
        let cancel = Cancel::new().unwrap();
        let first = two.free().unwrap().unwrap();
        let second = two.free().unwrap().unwrap();
        assert!(two.free().unwrap().is_none());
        // Another backend with the same login shares the slots.
        assert!(slotted(folder.path(), 1).free().unwrap().is_none());
        let (short, long) = (Duration::from_millis(80), Duration::from_secs(60));
        let mut sink = VecSink::default();
        let error = block_on(two.run(&request(short), &mut sink, &cancel)).unwrap_err();
        assert!(matches!(&error, BackendError::Unavailable { why } if why.contains("2 slots")));
        // The wait was reported, and nothing was sent.
        assert_eq!(sink.events.len(), 2);
        drop(first);
        block_on(two.run(&request(long), &mut VecSink::default(), &cancel)).unwrap();
        let third = two.free().unwrap().unwrap();
        cancel.cancel("stopped");
        let stopped = block_on(two.run(&request(long), &mut VecSink::default(), &cancel));
        assert!(matches!(stopped, Err(BackendError::Cancelled { .. })));
        drop((second, third));
    }
}
