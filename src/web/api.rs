//! The API: the JSON output of the command behind a view or an action.

use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::access::Client;
use super::actions::{Action, ActionRequest, Output};
use super::pages::status;
use super::state::{Purpose, Web};
use super::views::{Parts, View};
use crate::ui::Failure;

/// Maximum length of an idempotency key in bytes.
const KEY: usize = 200;

/// Responds with a view's JSON.
pub async fn show(view: &'static View, web: Arc<Web>, parts: Parts) -> Response {
    let answered = match view.command(&parts) {
        Ok(words) => web.call(Purpose::View, parts.project(), words).await,
        Err(why) => Err(Failure::usage(why)),
    };
    match answered {
        Ok(answer) => Json(answer.data).into_response(),
        Err(failure) => failed(&failure, status(&failure)),
    }
}

/// The headers and the body of a request.
pub struct SentRequest {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Carries out an action and responds with its JSON. If a request with the same idempotency key has
/// succeeded before, responds with the same JSON again.
pub async fn act(
    action: &'static Action,
    web: Arc<Web>,
    client: Client,
    parts: Parts,
    sent: SentRequest,
) -> Response {
    let SentRequest { headers, body } = sent;
    let fields = match fields(&body) {
        Ok(fields) => fields,
        Err(failure) => return failed(&failure, StatusCode::BAD_REQUEST),
    };
    let key = match headers.get("idempotency-key").map(|key| key.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=KEY).contains(&key.len()) => Some(key),
        Some(_) => {
            let failure =
                Failure::usage(format!("Idempotency-Key must be text of at most {KEY} bytes"));
            return failed(&failure, StatusCode::BAD_REQUEST);
        }
    };
    // Different requests with the same key have separate responses.
    let place = key.map(|key| format!("{key} {} {:?} {fields:?}", action.name, parts.path));
    if let Some(place) = &place {
        let mut pending = web.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = web.answers.get(place) {
            return Json(serde_json::from_str::<Value>(&known).unwrap_or_default()).into_response();
        }
        if !pending.insert(place.clone()) {
            let what = "the first request with this key is still being carried out";
            return problem(StatusCode::CONFLICT, what, None);
        }
    }
    let mut asked = fields.clone();
    // The queue stores its keys in the database, so they survive a restart.
    if let (Some(key), "run-job") = (key, action.name)
        && !asked.iter().any(|(name, _)| name == "key")
    {
        asked.push(("key".to_owned(), key.to_owned()));
    }
    let request = ActionRequest { parts, fields: asked, output: Output::Json };
    // The task continues even if the client disconnects, so that the client's next request gets the
    // response.
    let done = tokio::spawn(async move {
        let result = action.carry_out(&web, client, &request).await;
        if let Some(place) = place {
            let mut pending = web.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(answer) = &result {
                web.answers.put(place.clone(), answer.data.to_string());
            }
            pending.remove(&place);
        }
        result
    });
    let ended = done.await.unwrap_or_else(|_| Err(Failure::internal("the request did not finish")));
    match ended {
        Ok(answer) => Json(answer.data).into_response(),
        Err(failure) => {
            let status = match status(&failure) {
                // The request is valid, but the state of its target does not allow it.
                StatusCode::NOT_FOUND => StatusCode::CONFLICT,
                status => status,
            };
            failed(&failure, status)
        }
    }
}

/// Returns the fields of a JSON body. An empty body has none.
fn fields(body: &[u8]) -> Result<Vec<(String, String)>, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let wrong = || Failure::usage("the body is not a JSON object whose values are strings");
    let Ok(Value::Object(map)) = serde_json::from_slice(body) else { return Err(wrong()) };
    map.into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            _ => Err(wrong()),
        })
        .collect()
}

/// Responds with a failure.
pub fn failed(failure: &Failure, status: StatusCode) -> Response {
    let (error, fix) = failure.parts();
    problem(status, &error, fix.as_deref())
}

/// Responds with an error and the command that fixes it.
pub fn problem(status: StatusCode, error: &str, fix: Option<&str>) -> Response {
    (status, Json(json!({ "error": error, "fix": fix }))).into_response()
}
