//! Sends a run's phases as an OpenTelemetry trace, after the run is settled.
//!
//! ```text
//! run        ├─────────────────────────────────────────────────────────┤ settled
//! requested  ├────────────┤ admitted
//! working                 ├─────────────────────────┤
//! publishing                                        ├──────────────────┤
//! ```
//!
//! The trace is a single POST request with OTLP JSON, made from the run's database rows. The
//! OpenTelemetry crates are not used: they would add nine dependencies, read the environment
//! themselves, and need an adapter to this program's HTTP library.
//!
//! Only `runner execute` sends a trace, as its last step, so an unresponsive receiver delays that
//! process's exit by at most one second. This module must never change a run, and every string
//! passes through [`Redacted`].

use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Method, Url};
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, PublicationTimes, RunRow, Store, StoreError};
use runner_text::redact::Redacted;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use crate::alerts::webhook;
use crate::config::addresses::checked_url;
use crate::env;

/// Maximum duration of the request.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of a string in characters.
const LONGEST: usize = 1_000;

/// The data of a trace.
struct TracedRun {
    row: RunRow,
    spent: Amounts,
    published: Option<PublicationTimes>,
}

/// Sends a settled run's trace, if a receiver is configured in the environment. Any problem is
/// reported in the run's log.
pub fn send(store: &Store, run: &RunId) {
    let Some((name, address)) = receiver() else { return };
    if let Err(why) = try_send(store, run, &address) {
        tracing::warn!(%why, variable = name, "the run's trace was not sent");
    }
}

/// Returns the receiver's address, preceded by the name of the variable that contains it, or `None`
/// if no variable is set.
fn receiver() -> Option<(&'static str, String)> {
    let named = |name| env::setting(name)?.into_string().ok();
    let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    if let Some(address) = named(traces) {
        return Some((traces, address));
    }
    // This variable contains the base address for all signals.
    let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
    named(all).map(|address| (all, format!("{}/v1/traces", address.trim_end_matches('/'))))
}

fn try_send(store: &Store, run: &RunId, address: &str) -> Result<(), String> {
    let url: Url = checked_url(address)
        .map_err(|_| "expected an https:// address, or an http:// address of this host")?;
    let read = |error: StoreError| error.to_string();
    let row = store.run(run).map_err(read)?;
    let spent = store.spent_by(run).map_err(read)?;
    let published = store.publication_times(run).map_err(read)?;
    let Some(finished) = row.finished() else { return Ok(()) };
    let body = trace(&TracedRun { row, spent, published }, finished).to_string();
    let headers = vec![("content-type", "application/json".to_owned())];
    webhook::request(Method::POST, url, headers, body.into_bytes(), PATIENCE)
}

/// Returns the trace as OTLP JSON.
fn trace(run: &TracedRun, finished: Timestamp) -> Value {
    let TracedRun { row, published, .. } = run;
    let admitted = row.started();
    let mut spans = vec![span(run, "run", (row.requested, finished))];
    spans[0]["attributes"] = attributes(run);
    spans[0]["status"] = status(row.outcome());
    spans[0]["events"] = json!([{ "timeUnixNano": nanos(finished), "name": "settled" }]);
    let mut child = |name: &str, from: Timestamp, to: Timestamp| {
        let mut part = span(run, name, (from, to));
        part["parentSpanId"] = json!(span_id(row, "run"));
        spans.push(part);
    };
    child("requested", row.requested, admitted.unwrap_or(finished));
    if let Some(admitted) = admitted {
        child("working", admitted, published.map_or(finished, |times| times.committed));
    }
    if let Some(times) = published {
        child("publishing", times.committed, times.published.unwrap_or(finished));
    }
    if let Some(admitted) = admitted {
        spans[1]["events"] = json!([{ "timeUnixNano": nanos(admitted), "name": "admitted" }]);
    }
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "runner"),
            text("service.version", version),
        ] },
        "scopeSpans": [{ "scope": { "name": "runner", "version": version }, "spans": spans }],
    }] })
}

/// Returns a span without a parent. It never ends before it begins, even if the clock was set back.
fn span(run: &TracedRun, name: &str, (from, to): (Timestamp, Timestamp)) -> Value {
    // A run id has 128 bits, like a trace id.
    let trace = Ulid::from_string(run.row.id.as_str()).map_or(0, |id| id.0);
    json!({
        "traceId": format!("{trace:032x}"),
        "spanId": span_id(&run.row, name),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": nanos(from),
        "endTimeUnixNano": nanos(to.max(from)),
    })
}

fn span_id(row: &RunRow, name: &str) -> String {
    let digest = Sha256::digest(format!("{} {name}", row.id));
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(run: &TracedRun) -> Value {
    let TracedRun { row, spent, .. } = run;
    let outcome = row.outcome();
    let mut all = vec![
        text("runner.run", row.id.as_str()),
        text("runner.project", row.project.as_str()),
        text("runner.job", &row.job_name),
        text("runner.kind", &row.kind),
        text("runner.outcome", outcome.map_or("", Outcome::as_str)),
        number("runner.attempt", u64::from(row.attempt)),
        number("runner.calls", spent.calls),
        number("runner.tokens", spent.tokens),
        number("runner.cost_micros", spent.micros),
    ];
    if let Some(class) = outcome.and_then(Outcome::class) {
        all.push(text("runner.class", class.as_str()));
    }
    if !row.summary.backend.is_empty() {
        all.push(text("runner.backend", &row.summary.backend));
    }
    Value::Array(all)
}

/// Returns the OTLP status: error with the reason if the run failed, timed out or was lost, ok if
/// the outcome was published, and unset otherwise.
fn status(outcome: Option<&Outcome>) -> Value {
    match outcome {
        Some(it @ (Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. })) => {
            json!({ "code": 2, "message": shown(it.why().unwrap_or_default()) })
        }
        Some(it) if it.published() => json!({ "code": 1 }),
        _ => json!({ "code": 0 }),
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": shown(value) } })
}

/// Returns a numeric attribute. OTLP JSON represents whole numbers as strings.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn shown(value: &str) -> String {
    Redacted::of(value).head(LONGEST).into_string()
}

fn nanos(at: Timestamp) -> String {
    at.as_nanosecond().to_string()
}
