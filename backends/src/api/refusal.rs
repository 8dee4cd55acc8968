//! Classifies a provider's error by its status, headers and body.
//!
//! This module must never read an answer.

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::dialect::{self, Dialect};
use super::gathered::Fault;
use super::limits;
use super::plan::EndpointPlan;
use crate::agent::refusal_text::{self, ProgramError};
use crate::error::BackendError;
use crate::redact::Secrets;
use crate::sink::Limit;

/// Maximum length in characters of a message to show.
const SHOWN: usize = 400;

/// Returns the error for a response whose status does not indicate success.
pub(crate) fn of_status(
    plan: &EndpointPlan,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    secrets: &Secrets,
) -> BackendError {
    if (300..400).contains(&status) {
        let to = headers.get("location").and_then(|it| it.to_str().ok());
        let to = to.and_then(|to| plan.base.join(to).ok());
        let to =
            to.map_or("elsewhere".to_owned(), |to| to.host_str().unwrap_or("elsewhere").to_owned());
        return BackendError::Rejected {
            why: format!(
                "{} redirects to {to} (HTTP {status}), and the key is not sent there: set base_url to the API itself",
                plan.host()
            ),
        };
    }
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let (code, text) = match dialect::provider_error(&value) {
        Some(Fault::Said { code, text, .. }) => (code, text),
        _ => (String::new(), plain(&value, body, headers)),
    };
    let here = plan.here();
    let until = limits::until(headers, here.now);
    let limit =
        until.map(|until| Limit { until: Some(until), reached: true, overage: false, used: None });
    let said = ProgramError { status: Some(status), code: &code, text: &text, limit };
    meaning(plan, said, secrets)
}

/// Returns the text of an error body in an unknown format. Web pages are not shown.
fn plain(value: &Value, body: &[u8], headers: &HeaderMap) -> String {
    for key in ["message", "detail"] {
        if let Some(text) = value[key].as_str() {
            return text.to_owned();
        }
    }
    let kind = headers.get("content-type").and_then(|it| it.to_str().ok());
    match kind.unwrap_or_default() {
        kind if kind.contains("html") => "a web page".to_owned(),
        _ => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

/// Returns the error for a failure in the middle of a reply.
pub(crate) fn of_fault(plan: &EndpointPlan, fault: Fault, secrets: &Secrets) -> BackendError {
    match fault {
        Fault::Said { status, code, text } => {
            let status = status.or_else(|| status_of(&code));
            meaning(plan, ProgramError { status, code: &code, text: &text, limit: None }, secrets)
        }
        Fault::Broken(why) | Fault::NoJson(why) => {
            BackendError::Malformed { why: secrets.head(&why, SHOWN), excerpt: String::new() }
        }
        Fault::TooLong => BackendError::Malformed {
            why: "the answer is longer than its token limit allows".to_owned(),
            excerpt: String::new(),
        },
    }
}

/// Returns the status that corresponds to an error's code, if the code is known.
fn status_of(code: &str) -> Option<u16> {
    code.split(' ').find_map(|word| {
        Some(match word {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" | "rate_limit_exceeded" => 429,
            "api_error" | "server_error" => 500,
            "timeout_error" => 504,
            "overloaded_error" | "server_is_overloaded" => 529,
            _ => return None,
        })
    })
}

fn meaning(plan: &EndpointPlan, said: ProgramError<'_>, secrets: &Secrets) -> BackendError {
    let ProgramError { status, code, text, .. } = said;
    let until = said.limit.and_then(|limit| limit.until);
    let words = match (code, text) {
        ("", "") => "no message".to_owned(),
        (code, "") => code.to_owned(),
        (_, text) => text.to_owned(),
    };
    let shown = secrets.head(&words, SHOWN);
    let host = plan.host();
    let why = match status {
        Some(status) => format!("{host} returned HTTP {status}: {shown}"),
        None => format!("{host} returned an error: {shown}"),
    };
    let lower = words.to_ascii_lowercase();
    // A 404 means that either the model is missing or the address is wrong.
    let about_model = lower.contains("model") || code.contains("model_not_found");
    if status == Some(404) || (status.is_none() && lower.contains("not found")) {
        if about_model {
            return no_model(plan, &why);
        }
        let why = format!("{why} (is base_url the address of the API?)");
        return BackendError::Rejected { why };
    }
    if exceeds_window(code, &lower) {
        let setting = format!("backends.{}.context_window", plan.name);
        let why = format!("{why}; set {setting} to the number of tokens that the model accepts");
        return BackendError::Rejected { why };
    }
    match refusal_text::meaning(said, &plan.here(), why.clone()) {
        // The provider is overloaded and reports when it will answer again.
        Some(BackendError::Unavailable { why }) if until.is_some() => {
            BackendError::RateLimited { until, why }
        }
        Some(error) => error,
        None => match status {
            Some(400..500) => BackendError::Rejected { why },
            _ => BackendError::Unavailable { why },
        },
    }
}

/// Returns whether an error reports a request that does not fit into the context window. OpenAI and
/// llama.cpp's server have a code for this error. vLLM and Anthropic report it only in the message,
/// which `lower` contains in lower case.
fn exceeds_window(code: &str, lower: &str) -> bool {
    code.split(' ')
        .any(|word| matches!(word, "context_length_exceeded" | "exceed_context_size_error"))
        || lower.contains("maximum context length")
        || lower.contains("prompt is too long")
}

/// Returns the error for a model that the provider does not have.
pub(crate) fn no_model(plan: &EndpointPlan, why: &str) -> BackendError {
    let hint = match plan.dialect {
        Dialect::Ollama => format!("{why}; ollama pull {}", plan.model),
        _ => format!("{why}; `runner backends check {}` lists the available models", plan.name),
    };
    BackendError::NotInstalled { what: format!("model {:?}", plan.model), hint }
}
