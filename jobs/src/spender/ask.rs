//! Sends one request: reserves, asks, retries, falls back and settles.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use jiff::Timestamp;
use runner_backends::chain::moves_on;
use runner_backends::{Backend, BackendError, Phase, Reply, Request};
use runner_engine::policy::quota;
use runner_engine::store::{Amounts, RequestId, StoreError};
use runner_engine::time::boot_time;

use super::{AskError, PaidBackend, Spender, Spending};
use crate::prices::Price;
use crate::request_usage::{charge, most, tokens_of};
use crate::steps::Recorder;
use crate::telemetry::Telemetry;
use crate::usage_meter::{LimitExceeded, ObservedUsage, UsageMeter};

/// Maximum number of retries, each after a short wait, if the backend refused without charge.
const SHORT_RETRIES: usize = 2;
/// The wait before the first retry. Each subsequent wait is about four times as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest rate limit that a run waits out instead of being deferred.
const SHORT_LIMIT: Duration = Duration::from_secs(10);

/// The handling of a request that is too long for the window of a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LongRequest {
    /// The caller makes shorter requests for this fallback.
    Divide,
    /// The next fallback is tried.
    NextFallback,
}

/// Returns whether the next fallback is tried after this error.
fn falls_back(error: &AskError) -> bool {
    match error {
        AskError::Backend(error) => moves_on(error),
        AskError::Limited { .. } | AskError::Breach(LimitExceeded::Overage) => true,
        AskError::OverBudget(_) | AskError::Breach(_) | AskError::Ledger(_) => false,
    }
}

/// A request that is reserved but not settled.
pub(super) struct OpenRequest {
    id: RequestId,
    want: Amounts,
    price: Option<Price>,
    /// The time at which the request was reserved.
    at: Timestamp,
}

pub(super) fn unavailable(what: &str, error: &std::io::Error) -> Result<Reply, BackendError> {
    let why = format!("cannot create {what}: {error}");
    Err(BackendError::Unavailable { why })
}

impl Spender<'_> {
    /// Calls the backend, and falls back to the next backend in the chain if the first one cannot
    /// answer. Each attempt is reserved and settled separately. Later requests are sent first to
    /// the last backend that was tried. A request that is too long for the window of a fallback is
    /// not sent to it, and the next fallback is tried.
    ///
    /// # Errors
    /// Returns the [`AskError`] of the last attempt, or the rate limit that ends first if there was
    /// one. An attempt that ends with [`AskError::OverBudget`] was not sent. If no backend was
    /// called, because the request is too long, the error is [`BackendError::Rejected`].
    pub fn ask(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        let made_for = self.backends.own_window;
        let done = self.ask_in_turn(request, ideas, (made_for, LongRequest::NextFallback));
        self.note_asked(request, &done);
        done
    }

    /// Calls the backends like [`Spender::ask`], with a request that was made for the window of the
    /// current backend and that can be divided.
    ///
    /// # Errors
    /// Returns the errors of [`Spender::ask`], and [`BackendError::Rejected`] as soon as the
    /// request is too long for a fallback. That fallback is then the current backend.
    pub fn ask_divisible(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        let done = self.ask_in_turn(request, ideas, (self.window(), LongRequest::Divide));
        self.note_asked(request, &done);
        done
    }

    fn ask_in_turn(
        &mut self,
        request: &Request,
        ideas: u64,
        (made_for, long): (Option<u64>, LongRequest),
    ) -> Result<Reply, AskError> {
        // The error of the last call. Before the first call, the rejection of a request that is too
        // long.
        let mut failed: Option<AskError> = None;
        loop {
            let (error, why) = match self.too_long(request, made_for) {
                Some(why) => {
                    let named = format!("{}: {why}", self.backend_name());
                    let error = BackendError::Rejected { why: named }.into();
                    if long == LongRequest::Divide {
                        return Err(error);
                    }
                    (failed.take().unwrap_or(error), why)
                }
                None => match self.ask_patiently(request, ideas) {
                    Err(error) if falls_back(&error) => {
                        let why = error.to_string();
                        (error, why)
                    }
                    done => return done,
                },
            };
            if let AskError::Limited { until, why } = &error
                && self.backends.limited.as_ref().is_none_or(|(earliest, _)| until < earliest)
            {
                self.backends.limited = Some((*until, why.clone()));
            }
            let why = self.tools.redactor.redact(&why).into_owned();
            let Some(next) = self.backends.fallbacks.next() else {
                tracing::warn!(backend = self.backend_name(), why, "no backend is left");
                // The run can continue when the first limit ends.
                let limited = self.backends.limited.clone();
                let limited = limited.filter(|(until, _)| *until > self.tools.clock.wall());
                return Err(match limited {
                    Some((until, why)) => AskError::Limited { until, why },
                    None => error,
                });
            };
            tracing::warn!(
                from = self.backend_name(),
                to = next.backend.name(),
                why,
                "falling back to another backend"
            );
            self.fell.push(format!("{}: {why}", self.backend_name()));
            self.backends.first = next;
            failed = Some(error);
        }
    }

    /// Returns the reason why a request that was made for another window does not fit into a
    /// smaller window of the current backend, or `None` if it fits.
    fn too_long(&self, request: &Request, made_for: Option<u64>) -> Option<String> {
        let window = self.window().filter(|window| made_for.is_none_or(|it| *window < it))?;
        let answer = request.limits.max_output_tokens.min(window / 4);
        let needed = tokens_of(request).saturating_add(answer);
        (needed > window).then(|| {
            format!("the request needs about {needed} tokens, but the window has {window}")
        })
    }

    /// Calls the backend, and retries after a short wait if the backend refused without charge.
    ///
    /// A retry helps if an API is briefly overloaded or unavailable, or if a limit ends soon. Each
    /// attempt is a separate request that is reserved and settled. Longer waits defer the run.
    fn ask_patiently(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        // The jitter is seeded, so a run is reproducible.
        let mut waits = ExponentialBuilder::default()
            .with_min_delay(FIRST_WAIT)
            .with_factor(4.0)
            .with_max_times(SHORT_RETRIES)
            .with_jitter_seed(self.admitted.seed())
            .with_jitter()
            .build();
        // All attempts share the limit of the request, so a backend that waited for a free slot
        // until the limit is not called again.
        let mut total = request.limits.total;
        loop {
            if let Some(why) = self.tools.cancel.why() {
                return Err(BackendError::Cancelled { why }.into());
            }
            let mut asked = request.clone();
            asked.limits.total = total.min(self.tools.clock.left());
            let began = boot_time();
            let (done, unpaid) = self.ask_one(&asked, ideas)?;
            total = total.saturating_sub(boot_time().saturating_sub(began));
            if total.is_zero() {
                return done;
            }
            let wait = match (&done, waits.next()) {
                (Err(AskError::Backend(BackendError::Unavailable { .. })), Some(wait))
                    if unpaid =>
                {
                    wait
                }
                // A limit that ends after more than `SHORT_LIMIT` defers the run.
                (Err(AskError::Limited { until, .. }), Some(wait)) if unpaid => {
                    match Duration::try_from(until.duration_since(self.tools.clock.wall())) {
                        Ok(left) if left <= SHORT_LIMIT => wait.max(left),
                        _ => return done,
                    }
                }
                _ => return done,
            };
            if wait >= self.tools.clock.left() {
                return done;
            }
            tracing::info!(backend = self.backend_name(), ?wait, "asking the backend again");
            self.tools.cancel.wait(Some(wait));
        }
    }

    /// Calls the backend once, without a retry or a fallback.
    ///
    /// # Errors
    /// Returns the [`AskError`] of the request.
    pub(crate) fn ask_once(&mut self, request: &Request) -> Result<Reply, AskError> {
        self.ask_one(request, 0)?.0
    }

    /// Reserves a request, calls the backend and settles the request. Also returns whether the
    /// backend refused without charge.
    ///
    /// `ideas` is the number of work items, in the job's own unit, that the request covers. A
    /// request that exceeds its reservation is stopped. A request without reported usage is charged
    /// its reservation, unless the backend refused it without charge.
    ///
    /// # Errors
    /// Returns [`AskError::OverBudget`] if the budget does not cover the request, in which case
    /// nothing is sent, and [`AskError::Ledger`] if the database cannot be used. Errors of the
    /// reserved request are in the inner result.
    fn ask_one(
        &mut self,
        request: &Request,
        ideas: u64,
    ) -> Result<(Result<Reply, AskError>, bool), AskError> {
        let asked = self.backends.first.clone();
        let open = match self.open(&asked, request, ideas) {
            Err(limited @ AskError::Limited { .. }) => return Ok((Err(limited), true)),
            open => open?,
        };
        let (answer, heard) = match block_on(self.metered(&asked, request, &open)) {
            Ok(done) => done,
            Err(error) => (unavailable("a runtime", &error), ObservedUsage::default()),
        };
        let unpaid = heard.not_billed && !heard.spoke;
        for note in answer.iter().flat_map(|reply| &reply.notes) {
            let remark = format!("{}: {note}", asked.backend.name());
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
        Ok((self.close(&asked.spending, open, answer, heard)?, unpaid))
    }

    /// Reserves a request that is about to be sent.
    ///
    /// # Errors
    /// Returns [`AskError::Limited`] if a limit applies to the backend's pool, unless the run was
    /// started manually, and the errors of [`Spender::reserve`].
    pub(super) fn open(
        &mut self,
        asked: &PaidBackend,
        request: &Request,
        ideas: u64,
    ) -> Result<OpenRequest, AskError> {
        let now = self.tools.clock.wall();
        if !self.admitted.manual()
            && let Some(limit) = self.store.limit(&asked.spending.pool, now)?
        {
            let until = self.spread(limit.until, now);
            return Err(AskError::Limited { until, why: limit.why });
        }
        let (id, want) = self.reserve(&*asked.backend, request, ideas)?;
        let model = asked.backend.describe().model;
        self.asked = true;
        Ok(OpenRequest {
            id,
            want,
            price: model.and_then(|model| asked.spending.prices.of(&model)),
            at: self.tools.clock.wall(),
        })
    }

    /// Settles a request and converts its answer or error.
    pub(super) fn close(
        &mut self,
        spending: &Spending,
        open: OpenRequest,
        answer: Result<Reply, BackendError>,
        heard: ObservedUsage,
    ) -> Result<Result<Reply, AskError>, AskError> {
        self.failed_tools += heard.failed_tools;
        self.denied = self.denied.take().or_else(|| heard.denied.clone());
        let charge = charge(&answer, &heard, open.want, open.price);
        let note = self.tools.redactor.redact(&charge.note).into_owned();
        let now = self.tools.clock.wall();
        self.store.settle_request(open.id, charge.spent, charge.money, &note, now)?;
        Ok(self.conclude(spending, answer, heard, open.at))
    }

    /// Reserves the maximum charge for a request, and returns the request's id and the amounts.
    ///
    /// # Errors
    /// Returns [`AskError::OverBudget`] if the budget does not cover the request, and
    /// [`AskError::Ledger`] if the database cannot be used.
    pub(super) fn reserve(
        &mut self,
        backend: &dyn Backend,
        request: &Request,
        ideas: u64,
    ) -> Result<(RequestId, Amounts), AskError> {
        let run = self.admitted.run().clone();
        let left = self.store.left_of(&run)?;
        let mut want = most(request, left, ideas);
        if backend.describe().kind == "builtin" {
            (want.tokens, want.micros) = (0, 0);
        }
        let now = self.tools.clock.wall();
        let reserved = self.store.reserve_request(&run, backend.name(), want, now)?;
        Ok((reserved.map_err(AskError::OverBudget)?, want))
    }

    /// Calls the backend under a usage meter. If the run's budget limits its time, the request is
    /// cancelled when that time runs out.
    pub(super) async fn metered(
        &self,
        asked: &PaidBackend,
        request: &Request,
        open: &OpenRequest,
    ) -> (Result<Reply, BackendError>, ObservedUsage) {
        // The request has its own cancel token, because a stopped request must not cancel the run,
        // which still has to settle.
        let cancel = match self.tools.cancel.child() {
            Ok(cancel) => cancel,
            Err(error) => {
                return (unavailable("a cancel token", &error), ObservedUsage::default());
            }
        };
        let (backend, clock) = (&asked.backend, self.tools.clock);
        let (id, name, redactor) = (&request.id, backend.name(), &self.tools.redactor);
        let mut reported =
            Telemetry::new(self.tools.run_dir, id, name, redactor, move || clock.wall());
        if let Some(file) = &self.steps {
            reported =
                reported.with_steps(Recorder::new(file.clone(), self.tools.redactor.clone()));
        }
        let overage = asked.spending.overage;
        let mut meter =
            UsageMeter::new(open.want, open.price, overage, cancel.clone(), &mut reported);
        let (left, short) = (self.tools.clock.left(), self.admitted.short_of_time());
        let answer = {
            let mut answer = std::pin::pin!(backend.run(request, &mut meter, &cancel));
            if short {
                tokio::select! {
                    answer = &mut answer => answer,
                    () = tokio::time::sleep(left) => {
                        cancel.cancel_at_once("the time in the run's budget is used up");
                        // The future is always polled to completion, so the backend stops
                        // everything that it started.
                        answer.await
                    }
                }
            } else {
                answer.await
            }
        };
        let mut heard = meter.observed();
        reported.ended(answer.as_ref().err().map(ToString::to_string).as_deref());
        let over = matches!(
            answer,
            Err(BackendError::Cancelled { .. } | BackendError::Silent { phase: Phase::Total, .. })
        ) && self.tools.clock.left().is_zero();
        if over && self.admitted.short_of_time() && heard.breach.is_none() {
            let reserved = self.admitted.reserved().seconds;
            heard.breach = Some(LimitExceeded::Over { unit: "seconds", used: reserved, reserved });
        }
        (answer, heard)
    }

    /// Converts an answer or error, and records the pool's limits, which all runs share.
    fn conclude(
        &mut self,
        spending: &Spending,
        answer: Result<Reply, BackendError>,
        heard: ObservedUsage,
        asked: Timestamp,
    ) -> Result<Reply, AskError> {
        let limit = heard.limit.filter(|limit| limit.reached);
        match (answer, heard.breach) {
            // Charges for usage beyond the subscription are reported even if the request was
            // answered.
            (_, Some(LimitExceeded::Overage)) => {
                let until = heard.limit.and_then(|limit| limit.until);
                self.note_limit(spending, until, "its answers are billed beyond the subscription")?;
                Err(AskError::Breach(LimitExceeded::Overage))
            }
            // A complete answer is already paid for, so it is kept even if it exceeded its
            // reservation. In that case, the next request finds no budget left.
            (Ok(reply), _) => {
                match limit {
                    Some(limit) => {
                        self.note_limit(spending, limit.until, "the limit is reached")?
                    }
                    None if spending.pool.is_empty() => {}
                    None => {
                        let now = self.tools.clock.wall();
                        self.store.clear_limit(&spending.pool, asked, now)?;
                    }
                }
                if let Some((until, why)) = spending.left(heard.fullest) {
                    self.note_limit(spending, until, &why)?;
                }
                Ok(reply)
            }
            (Err(_), Some(breach)) => Err(AskError::Breach(breach)),
            (Err(BackendError::RateLimited { until, why }), None) => {
                let until = until.or(limit.and_then(|limit| limit.until));
                Err(self.refused(spending, until, &why)?)
            }
            (Err(BackendError::Cancelled { .. }), None)
                if limit.is_some() && !self.tools.cancel.is_cancelled() =>
            {
                let until = limit.and_then(|limit| limit.until);
                Err(self.refused(spending, until, "the provider's limit is reached")?)
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Returns the error for a refused request.
    ///
    /// The run waits without using up an attempt. If the pool has refused too often in a row, the
    /// run fails.
    fn refused(
        &mut self,
        spending: &Spending,
        said: Option<Timestamp>,
        why: &str,
    ) -> Result<AskError, StoreError> {
        let why = self.tools.redactor.redact(why).into_owned();
        let now = self.tools.clock.wall();
        let (until, streak, why) = if spending.pool.is_empty() {
            let wake = quota::wake(said, 1, now);
            (wake.until, 1, why)
        } else {
            let limit = self.store.note_limit(&spending.pool, said, &why, now)?;
            (limit.until, limit.streak, limit.why)
        };
        if streak > quota::MOST {
            let why = format!("refused {streak} times in a row, despite waiting: {why}");
            return Ok(AskError::Backend(BackendError::RateLimited { until: None, why }));
        }
        Ok(AskError::Limited { until: self.spread(until, now), why })
    }

    /// Returns the time at which the run continues after a limit that ends at `until`.
    fn spread(&self, until: Timestamp, now: Timestamp) -> Timestamp {
        // The run itself waits out a limit that ends soon, so no jitter is added to this end time.
        match Duration::try_from(until.duration_since(now)) {
            Ok(left) if left <= SHORT_LIMIT => until,
            _ => quota::spread(until, self.admitted.run().as_str()),
        }
    }

    fn note_limit(
        &mut self,
        spending: &Spending,
        said: Option<Timestamp>,
        why: &str,
    ) -> Result<(), StoreError> {
        if !spending.pool.is_empty() {
            let now = self.tools.clock.wall();
            self.store.note_limit(&spending.pool, said, why, now)?;
        }
        Ok(())
    }
}

/// Blocks until a future completes. Returns an error if no runtime can be created.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}
