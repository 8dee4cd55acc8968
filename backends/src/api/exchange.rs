//! One request over HTTP, from the connection to the end of the reply, within its four deadlines.
//!
//! ```text
//! connect ──> sent ──first byte──> head ──2xx──> body ──> … ──final event──> Gathered
//!    │          │                    │            │ each piece moves the idle deadline
//!    v          v                    v            v
//! Connect   FirstByte             refusal    Idle, cut off, an error among the events
//! ```
//!
//! All deadlines except *connect* use the boot-time clock, so runner notices an expired deadline
//! within a second after a sleeping host wakes. When the request ends for any reason, its
//! connection is closed, so that the provider stops generating the answer. This module must never
//! send a second request.

use std::ops::ControlFlow;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response};
use runner_engine::process::Cancel;
use runner_engine::time::boot_time;
use serde_json::Value;

use super::dialect::{self, Reader};
use super::framing::{Framing, TooLarge};
use super::gathered::{Fault, Gathered};
use super::plan::EndpointPlan;
use super::{client, limits, refusal};
use crate::error::{BackendError, Phase};
use crate::redact::Secrets;
use crate::request::{RequestLimits, Usage};
use crate::sink::{Event, Limit, Sink};

/// Maximum number of bytes to read from the body of an error response.
const ERROR_BODY: usize = 64 * 1024;
/// Maximum wait for the body of an error response. The status alone is sufficient.
const ERROR_WAIT: Duration = Duration::from_secs(5);
/// Maximum interval between readings of the boot-time clock. The runtime's own clock stops while
/// the host sleeps.
const LOOK: Duration = Duration::from_secs(1);

/// The deadlines and the cancellation token of one request.
pub(crate) struct Watch<'a> {
    pub limits: &'a RequestLimits,
    pub cancel: &'a Cancel,
    pub began: Duration,
}

impl Watch<'_> {
    /// Waits for `what` until `most` after `since`, but never beyond the total deadline.
    ///
    /// # Errors
    /// Returns [`BackendError::Silent`] if the deadline passes, and [`BackendError::Cancelled`] if
    /// the request is cancelled.
    pub async fn wait<T>(
        &self,
        what: impl Future<Output = T>,
        phase: Phase,
        since: Duration,
        most: Duration,
    ) -> Result<T, BackendError> {
        let total = self.began.saturating_add(self.limits.total);
        let (phase, end) = match since.saturating_add(most) {
            end if end < total => (phase, end),
            _ => (Phase::Total, total),
        };
        tokio::select! {
            biased;
            why = self.cancel.cancelled() => Err(BackendError::Cancelled { why }),
            what = what => Ok(what),
            () = until(end) => Err(BackendError::Silent {
                phase,
                waited: boot_time().saturating_sub(self.began),
            }),
        }
    }
}

async fn until(end: Duration) {
    loop {
        let left = end.saturating_sub(boot_time());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// A request in progress.
pub(crate) struct Exchange<'a> {
    pub plan: &'a EndpointPlan,
    pub client: &'a Client,
    pub watch: Watch<'a>,
    pub secrets: &'a Secrets,
}

impl Exchange<'_> {
    /// Sends the request once, reads the reply to its end and reports its progress to the sink.
    ///
    /// # Errors
    /// Returns an error unless the reply is complete.
    pub async fn ask(
        &self,
        body: Vec<u8>,
        reader: &mut dyn Reader,
        gathered: &mut Gathered,
        sink: &mut dyn Sink,
    ) -> Result<(), BackendError> {
        let request = (self.client)
            .post(self.plan.url(self.plan.dialect.path()))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/x-ndjson, application/json")
            .body(body);
        let Watch { limits, began, .. } = self.watch;
        let sent =
            (self.watch).wait(request.send(), Phase::FirstByte, began, limits.first_byte).await?;
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                if error.is_connect() {
                    sink.event(Event::NotBilled);
                }
                return Err(self.broken(&error));
            }
        };
        let status = response.status().as_u16();
        if !response.status().is_success() {
            if is_not_billed(status) {
                sink.event(Event::NotBilled);
            }
            return Err(self.refused(response).await?);
        }
        self.hear_limits(response.headers(), sink);
        let framing = self.framing(response.headers())?;
        self.read(response, framing, reader, gathered, sink).await
    }

    /// Determines the framing of the body from the response headers.
    fn framing(&self, headers: &HeaderMap) -> Result<Framing, BackendError> {
        let host = self.plan.host();
        let text = |name| {
            let value = headers.get(name)?;
            Some(value.to_str().unwrap_or("unreadable").to_owned())
        };
        if let Some(how) = text(CONTENT_ENCODING)
            && !how.eq_ignore_ascii_case("identity")
        {
            return Err(BackendError::Malformed {
                why: format!(
                    "{host} answered with the content encoding {how:?}, which was not requested"
                ),
                excerpt: String::new(),
            });
        }
        let kind = text(CONTENT_TYPE).unwrap_or_default();
        Framing::of(&kind).ok_or_else(|| {
            let kind = match kind.as_str() {
                "" => "a response without a content type",
                kind => kind,
            };
            BackendError::Unavailable {
                why: format!(
                    "{host} answered with {}, which is not a model's answer; base_url may not be the address of the API",
                    self.secrets.head(kind, 100)
                ),
            }
        })
    }

    async fn read(
        &self,
        mut response: Response,
        mut framing: Framing,
        reader: &mut dyn Reader,
        gathered: &mut Gathered,
        sink: &mut dyn Sink,
    ) -> Result<(), BackendError> {
        let Watch { limits, began, .. } = self.watch;
        let (mut phase, mut since, mut most) = (Phase::FirstByte, began, limits.first_byte);
        let mut reported = None;
        loop {
            let piece = (self.watch).wait(response.chunk(), phase, since, most).await?;
            let mut fault = None;
            let whole = framing.is_whole();
            let mut each =
                |name: &[u8], data: &[u8]| match event(name, data, whole, reader, gathered) {
                    Ok(()) if gathered.over => ControlFlow::Break(()),
                    Ok(()) => ControlFlow::Continue(()),
                    Err(why) => {
                        fault = Some(why);
                        ControlFlow::Break(())
                    }
                };
            let ended = match piece {
                Ok(Some(piece)) => {
                    (phase, since, most) = (Phase::Idle, boot_time(), limits.idle);
                    framing.feed(&piece, &mut each).map_err(|TooLarge| {
                        BackendError::Malformed {
                            why: "one event of the answer is larger than 16 MiB".to_owned(),
                            excerpt: String::new(),
                        }
                    })?;
                    false
                }
                Ok(None) => {
                    framing.finish(&mut each);
                    true
                }
                Err(error) => {
                    report_new(gathered, &mut reported, sink);
                    return Err(self.cut(&error));
                }
            };
            report_new(gathered, &mut reported, sink);
            match fault {
                // A last line without a line break may be incomplete.
                Some(Fault::NoJson(_)) if ended && !whole => {}
                Some(fault) => return Err(refusal::of_fault(self.plan, fault, self.secrets)),
                None => {}
            }
            if gathered.over {
                return Ok(());
            }
            if ended {
                // Some servers omit the last message. If the stop reason or the usage is also
                // missing, the answer may be incomplete.
                let chat = self.plan.dialect == dialect::Dialect::Chat;
                return match (&gathered.end, gathered.spent.output) {
                    (Some(_), Some(_)) if chat => Ok(()),
                    _ => Err(BackendError::Unavailable {
                        why: format!(
                            "{} ended its answer before it was complete",
                            self.plan.host()
                        ),
                    }),
                };
            }
        }
    }

    /// Converts an error response into an error, including as much of its body as arrives in time.
    /// Returns `Err` only if the request is cancelled.
    async fn refused(&self, mut response: Response) -> Result<BackendError, BackendError> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let since = boot_time();
        let wait = ERROR_WAIT.min(self.watch.limits.idle);
        while body.len() < ERROR_BODY {
            let piece = self.watch.wait(response.chunk(), Phase::Idle, since, wait);
            match piece.await {
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
                Err(stopped @ BackendError::Cancelled { .. }) => return Err(stopped),
                _ => break,
            }
        }
        body.truncate(ERROR_BODY);
        let (plan, secrets) = (self.plan, self.secrets);
        Ok(refusal::of_status(plan, status, &headers, &body, secrets))
    }

    fn hear_limits(&self, headers: &HeaderMap, sink: &mut dyn Sink) {
        let until = limits::until(headers, self.plan.here().now);
        if until.is_some() {
            // This request is answered even though the provider reports a limit.
            sink.event(Event::Limit(Limit { until, reached: false, overage: false, used: None }));
        }
        if let Some((used, until)) = limits::used(headers, self.plan.here().now) {
            let used = Some(used);
            sink.event(Event::Limit(Limit { until, reached: false, overage: false, used }));
        }
    }

    /// Returns the error for a connection that failed or broke before the response headers arrived.
    fn broken(&self, error: &reqwest::Error) -> BackendError {
        let waited = boot_time().saturating_sub(self.watch.began);
        if error.is_connect() && error.is_timeout() {
            let phase = Phase::Connect;
            return BackendError::Silent { phase, waited };
        }
        let host = self.plan.host();
        let words = self.secrets.head(&client::describe_error(error), 400);
        let what = match error.is_connect() {
            true => "cannot be reached",
            false => "closed the connection unexpectedly",
        };
        let why = format!("{host} {what}: {words}");
        // Waiting does not fix a certificate error.
        if words.contains("certificate") {
            let why = format!(
                "{why} (add further CA certificates with backends.{}.ca_file)",
                self.plan.name
            );
            return BackendError::Rejected { why };
        }
        BackendError::Unavailable { why }
    }

    fn cut(&self, error: &reqwest::Error) -> BackendError {
        let words = self.secrets.head(&client::describe_error(error), 200);
        BackendError::Unavailable {
            why: format!("{} aborted its answer: {words}", self.plan.host()),
        }
    }
}

/// Returns whether a request with this response status was rejected and is therefore certain not to
/// be billed. A request that timed out may be billed.
pub(crate) fn is_not_billed(status: u16) -> bool {
    matches!(status, 300..400 | 400..=407 | 409..500 | 503 | 529)
}

fn event(
    name: &[u8],
    data: &[u8],
    whole: bool,
    reader: &mut dyn Reader,
    gathered: &mut Gathered,
) -> Result<(), Fault> {
    if data.trim_ascii() == b"[DONE]" {
        gathered.over = true;
        return Ok(());
    }
    if data.trim_ascii().is_empty() {
        return Ok(());
    }
    let text = std::str::from_utf8(data).ok().filter(|_| !whole);
    if let Some(piece) = text.and_then(|text| reader.piece(text)) {
        return gathered.push_text(&piece);
    }
    let value: Value = serde_json::from_slice(data)
        .map_err(|error| Fault::NoJson(format!("a part of the answer is not JSON: {error}")))?;
    if !whole {
        let name = std::str::from_utf8(name).unwrap_or_default();
        return reader.event(name, &value, gathered);
    }
    match dialect::provider_error(&value) {
        Some(fault) => Err(fault),
        None => reader.whole(&value, gathered),
    }
}

/// Reports new text and new usage to the sink.
fn report_new(gathered: &mut Gathered, reported: &mut Option<Usage>, sink: &mut dyn Sink) {
    let news = gathered.news();
    if !news.is_empty() {
        sink.event(Event::Text(&news));
    }
    let so_far = gathered.so_far();
    if let Some(usage) = so_far
        && so_far != *reported
    {
        *reported = so_far;
        sink.event(Event::Usage(usage));
    }
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
