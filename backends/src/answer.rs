//! Parses a model's complete output, with the same strict rules for every backend.
//!
//! This module must never extract JSON from prose, remove a fence or close a bracket. Text that is
//! not an answer is treated as an error, so that it is counted and reported. A job that extracts
//! elements from any text ([`AnswerForm::Elements`]) receives the text and must itself report the
//! parts that it cannot use.

use serde_json::Value;

use crate::error::BackendError;
use crate::redact::Secrets;
use crate::request::{AnswerForm, Request};

/// Approximate maximum length, in characters, of the excerpt that an error quotes from a malformed
/// answer.
const EXCERPT: usize = 200;

/// Parses `bytes`, which came from `origin`. The value is present if the text is JSON. Unless the
/// request's form is [`AnswerForm::Elements`], bytes that are not UTF-8 are an error, and so is
/// text that is not JSON if the request has a schema or `must_parse` is set.
pub(crate) fn read(
    request: &Request,
    bytes: Vec<u8>,
    origin: &str,
    must_parse: bool,
    secrets: &Secrets,
) -> Result<(String, Option<Value>), BackendError> {
    if request.form == AnswerForm::Elements {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = serde_json::from_str(&text).ok();
        return Ok((text, value));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let why = format!("{origin} is not UTF-8: {}", error.utf8_error());
            return Err(malformed(why, &String::from_utf8_lossy(error.as_bytes()), secrets));
        }
    };
    match serde_json::from_str(&text) {
        Ok(value) => Ok((text, Some(value))),
        Err(_) if !must_parse && request.schema.is_none() => Ok((text, None)),
        Err(error) => Err(malformed(format!("{origin} is not JSON: {error}"), &text, secrets)),
    }
}

fn malformed(why: String, text: &str, secrets: &Secrets) -> BackendError {
    BackendError::Malformed { why, excerpt: secrets.head(text, EXCERPT) }
}

/// Returns whether `bytes` is empty or contains only ASCII whitespace.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}
