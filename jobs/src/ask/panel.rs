//! Asks several backends at the same time, each once and without fallbacks.
//!
//! ```text
//! asked ──reserve, in order──> all of them at once, MOST at a time ──settle, in order──> results
//!            └── over budget: this backend is skipped, the others are asked
//! ```
//!
//! All reservations are made before the first backend is asked. Requests through a login that
//! allows one request at a time wait for each other (`runner_backends`). A councillor must never
//! read or write another councillor's folder.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use runner_backends::{Reply, Request};
use runner_engine::time::boot_time;

use super::AskError;
use crate::context::Context;
use crate::panel::Panel;

/// Maximum number of requests in progress at the same time.
const MOST: usize = 4;

impl Context<'_> {
    /// Returns the panel of councillors, who each write a separate report.
    pub fn voices(&self) -> &Panel {
        &self.voices
    }

    /// Asks several councillors at once, each by its index in [`Panel::ready`]; the results are in
    /// the order of the questions. Each question is one attempt, reserved and settled separately,
    /// and its time limit is at most the time that the run has left.
    pub fn ask_each(&mut self, asked: &[(usize, Request)]) -> Vec<Result<Reply, AskError>> {
        let began = boot_time();
        let mut opened = Vec::with_capacity(asked.len());
        for (at, request) in asked {
            let voice = &self.voices.ready[*at];
            let (backend, spending) = (Arc::clone(&voice.backend), voice.spending.clone());
            let mut request = request.clone();
            request.limits.total = request.limits.total.min(self.left());
            let open = match self.cancel.why() {
                Some(why) => Err(runner_backends::BackendError::Cancelled { why }.into()),
                None => self.open(&*backend, &spending, &request, 0),
            };
            if open.is_ok() {
                let reported = (backend.name().to_owned(), backend.describe());
                if !self.voices.asked.contains(&reported) {
                    self.voices.asked.push(reported);
                }
            }
            opened.push(open.map(|open| (backend, spending, request, open)));
        }
        let heard = {
            let this = &*self;
            let futures = opened.iter().map(|opened| {
                Box::pin(async move {
                    match opened {
                        Ok((backend, spending, request, open)) => {
                            // The time that a councillor spent waiting for its turn is deducted
                            // from its time limit.
                            let mut request = request.clone();
                            let waited = boot_time().saturating_sub(began);
                            request.limits.total = request.limits.total.saturating_sub(waited);
                            Some(this.metered(&**backend, spending, &request, open).await)
                        }
                        Err(_) => None,
                    }
                })
            });
            let all = together(futures.collect(), MOST);
            this.block_on(all)
        };
        let mut heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                let nobody = |_| {
                    Some((super::unavailable("a runtime", &error), super::ObservedUsage::default()))
                };
                opened.iter().map(nobody).collect()
            }
        };
        let mut results = Vec::with_capacity(opened.len());
        for (opened, heard) in opened.into_iter().zip(heard.drain(..)) {
            results.push(match (opened, heard) {
                (Ok((_, spending, _, open)), Some((answer, heard))) => {
                    self.close(&spending, open, answer, heard).and_then(|it| it)
                }
                (Err(error), _) => Err(error),
                (Ok(_), None) => unreachable!("each reserved request was sent"),
            });
        }
        results
    }
}

/// Runs all futures, at most `most` at a time, and returns their results in the order of the
/// futures.
async fn together<F: Future>(mut futures: Vec<Pin<Box<F>>>, most: usize) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        // Only the first `most` unfinished futures are polled; when one finishes, the next starts
        // at once.
        loop {
            let waiting: Vec<usize> = (0..done.len()).filter(|at| done[*at].is_none()).collect();
            let mut moved = false;
            for at in waiting.iter().copied().take(most) {
                if let Poll::Ready(result) = futures[at].as_mut().poll(cx) {
                    done[at] = Some(result);
                    moved = true;
                }
            }
            if waiting.is_empty() {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
    })
    .await;
    done.into_iter().map(|result| result.expect("all requests are done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn concurrency_is_limited_and_order_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (now, most, began) = (Cell::new(0), Cell::new(0), RefCell::new(Vec::new()));
        let futures = (0..9_usize).map(|number| {
            let (now, most, began) = (&now, &most, &began);
            Box::pin(async move {
                began.borrow_mut().push(number);
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                // Later futures finish earlier, so the order of completion differs from the order
                // of the results.
                for _ in number..9 {
                    tokio::task::yield_now().await;
                }
                now.set(now.get() - 1);
                number * 10
            })
        });
        let results = runtime.block_on(together(futures.collect(), 3));
        assert_eq!(results, [0, 10, 20, 30, 40, 50, 60, 70, 80]);
        assert_eq!((now.get(), most.get()), (0, 3));
        assert_eq!(began.borrow().len(), 9);
    }
}
