//! A cancellation token that every part of a run can watch.
//!
//! ```text
//! not cancelled ──cancel(why)──> cancelled(why)    (the first reason is kept)
//! ```
//!
//! A thread blocked in `poll(2)` watches the file descriptor, and a task awaits
//! [`Cancel::cancelled`]; both observe the same token. A cancellation must never be undone. The
//! token must never kill a process itself: the process's owner does that.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::wait;

/// Time between TERM and KILL for a process that must stop at once.
pub const AT_ONCE: Duration = Duration::from_secs(1);

/// A token with any number of holders, each of which may cancel it. Clones share the same token.
#[derive(Clone, Debug)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// A descriptor that becomes readable when the token is cancelled and remains readable, because
    /// it is never read.
    raised: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    why: Option<String>,
    urgency: Urgency,
    wakers: Vec<Waker>,
    /// Tokens that are cancelled together with this one.
    children: Vec<Weak<Shared>>,
}

/// How quickly a cancelled process must stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Urgency {
    /// Within its own grace period.
    #[default]
    InTime,
    /// Within [`AT_ONCE`].
    AtOnce,
}

impl Cancel {
    /// Creates a token that is not cancelled yet.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is available.
    pub fn new() -> io::Result<Self> {
        let raised = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { raised, state: Mutex::default() }) })
    }

    /// Creates a child token, which is cancelled with this token. Cancelling the child does not
    /// affect this token.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is available.
    pub fn child(&self) -> io::Result<Self> {
        let child = Self::new()?;
        let pulled = {
            let mut state = self.state();
            state.children.retain(|known| known.strong_count() > 0);
            state.children.push(Arc::downgrade(&child.shared));
            state.why.clone().map(|why| (why, state.urgency))
        };
        if let Some((why, urgency)) = pulled {
            child.pull(why, urgency);
        }
        Ok(child)
    }

    /// Asks every holder of the token to stop. Only the first reason is kept.
    pub fn cancel(&self, why: impl Into<String>) {
        self.pull(why.into(), Urgency::InTime);
    }

    /// Cancels the token for work whose cost grows every second: a process that has not stopped
    /// within `AT_ONCE` is killed.
    pub fn cancel_at_once(&self, why: impl Into<String>) {
        self.pull(why.into(), Urgency::AtOnce);
    }

    fn pull(&self, why: String, urgency: Urgency) {
        let (wakers, children) = {
            let mut state = self.state();
            if state.why.is_some() {
                return;
            }
            state.why = Some(why.clone());
            state.urgency = urgency;
            (std::mem::take(&mut state.wakers), std::mem::take(&mut state.children))
        };
        // Writing 1 to an eventfd at 0 cannot fail or block.
        let _ = rustix::io::write(&self.shared.raised, &1_u64.to_ne_bytes());
        wakers.into_iter().for_each(Waker::wake);
        for shared in children.iter().filter_map(Weak::upgrade) {
            Self { shared }.pull(why.clone(), urgency);
        }
    }

    /// Returns whether the token, or the parent that cancelled it, was cancelled with
    /// [`Cancel::cancel_at_once`].
    pub fn is_at_once(&self) -> bool {
        self.state().urgency == Urgency::AtOnce
    }

    pub fn is_cancelled(&self) -> bool {
        self.state().why.is_some()
    }

    /// Returns the reason for the cancellation, or `None` if the token is not cancelled.
    pub fn why(&self) -> Option<String> {
        self.state().why.clone()
    }

    /// Blocks until the token is cancelled or `timeout` has passed, and returns whether it is
    /// cancelled.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        wait::poll_within(&mut fds, timeout);
        self.is_cancelled()
    }

    /// Completes with the reason when the token is cancelled. Works in any async runtime.
    pub async fn cancelled(&self) -> String {
        poll_fn(|context| {
            let mut state = self.state();
            match &state.why {
                Some(why) => Poll::Ready(why.clone()),
                None => {
                    if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                        state.wakers.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no thread panics while it holds the token's state")
    }
}

impl AsFd for Cancel {
    /// Returns a descriptor that remains readable after the cancellation. It must only be polled,
    /// never read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.raised.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn first_reason_is_kept_and_shared_with_clones() {
        let token = Cancel::new().unwrap();
        let other = token.clone();
        assert!(!other.wait(Some(Duration::ZERO)));
        token.cancel("ctrl-c");
        other.cancel("later");
        assert!(token.is_cancelled() && other.wait(None));
        assert_eq!(other.why().as_deref(), Some("ctrl-c"));
    }

    #[test]
    fn cancelling_a_parent_cancels_its_child() {
        let parent = Cancel::new().unwrap();
        let (first, second) = (parent.child().unwrap(), parent.child().unwrap());
        first.cancel_at_once("over budget");
        assert!(!parent.is_cancelled() && !second.is_cancelled());
        parent.cancel("ctrl-c");
        assert_eq!(second.why().as_deref(), Some("ctrl-c"));
        assert!(second.wait(Some(Duration::ZERO)) && !second.is_at_once());
        assert_eq!(first.why().as_deref(), Some("over budget"));
        assert!(first.is_at_once());
        let late = parent.child().unwrap().child().unwrap();
        assert_eq!(late.why().as_deref(), Some("ctrl-c"));
    }

    #[test]
    fn cancelled_future_is_woken_once() {
        let token = Cancel::new().unwrap();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(token.cancelled());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert!(future.as_mut().poll(&mut context).is_pending());
        token.cancel("shutdown");
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready("shutdown".to_owned()));
    }
}
