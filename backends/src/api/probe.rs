//! Checks whether an endpoint is reachable and has the model, without calling the model.
//!
//! ```text
//! preflight   loopback only: does a server listen, and does Ollama have the model
//! check       GET the model list: which server answers, is the key accepted, is the model listed
//! ```
//!
//! Ollama's list is parsed into `ollama-rs` types. That crate's client is not used, because it
//! accepts a body of any size and discards the status. A probe runs on a separate thread, because a
//! preflight check may be called inside a runtime. A probe must never call a model.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use ollama_rs::models::LocalModel;
use runner_text::nearest::nearest;
use serde::Serialize;
use serde_json::Value;

use super::dialect::Dialect;
use super::plan::EndpointPlan;
use super::{client, refusal};
use crate::error::{BackendError, Phase};
use crate::redact::Secrets;

/// Maximum time to reach an endpoint on this host.
const NEAR: Duration = Duration::from_secs(1);
/// Maximum time to get a list of models.
const FAR: Duration = Duration::from_secs(10);
/// Maximum size of a model list in bytes.
pub(super) const LIST: usize = 8 * 1024 * 1024;

/// The server at an address, and its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The name of the server.
    pub who: String,
    /// The models, or `None` if the endpoint does not list them.
    pub models: Option<Vec<ListedModel>>,
}

/// A model that an endpoint lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedModel {
    pub name: String,
    /// The context window in tokens, if the endpoint reports it.
    pub window: Option<u64>,
}

/// Checks before a run whether an endpoint on this host can answer. Other hosts are not contacted.
///
/// # Errors
/// Returns an error if nothing is listening at the address. For Ollama, also returns an error if
/// the server does not list its models or does not have the model.
pub(crate) fn preflight(plan: &EndpointPlan) -> Result<(), BackendError> {
    if !plan.is_loopback {
        return Ok(());
    }
    listens(plan)?;
    if plan.dialect == Dialect::Ollama {
        let found = found(plan, NEAR * 2)?;
        has_model(plan, &found)?;
    }
    Ok(())
}

fn listens(plan: &EndpointPlan) -> Result<(), BackendError> {
    let host = plan.base.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = plan.base.port_or_known_default().unwrap_or(80);
    let unavailable = |error: &dyn std::fmt::Display| {
        let start = match plan.dialect {
            Dialect::Ollama => "; start it with `ollama serve`",
            _ => "",
        };
        let why = format!("cannot connect to {}: {error}{start}", plan.host());
        BackendError::Unavailable { why }
    };
    let addresses = (host, port).to_socket_addrs().map_err(|error| unavailable(&error))?;
    let mut last = unavailable(&"the host name does not resolve to any address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, NEAR) {
            Ok(_) => return Ok(()),
            Err(error) => last = unavailable(&error),
        }
    }
    Err(last)
}

/// Checks that the list contains the model. An endpoint that does not list its models passes.
///
/// # Errors
/// Returns [`BackendError::NotInstalled`] with the closest model name or some of the names, and the
/// command that downloads the model or lists all models.
pub(crate) fn has_model(plan: &EndpointPlan, found: &Endpoint) -> Result<(), BackendError> {
    let Some(models) = &found.models else {
        return Ok(());
    };
    if models.iter().any(|listed| is_model(plan, &listed.name)) {
        return Ok(());
    }
    let near = match nearest(&plan.model, models.iter().map(|listed| listed.name.as_str())) {
        Some(near) => format!("; did you mean {near:?}?"),
        None if models.is_empty() => "; it has no models".to_owned(),
        None => {
            let some: Vec<&str> =
                models.iter().take(5).map(|listed| listed.name.as_str()).collect();
            format!("; its models include {}", some.join(", "))
        }
    };
    let why = format!("{} does not have the model{near}", plan.host());
    Err(refusal::no_model(plan, &why))
}

/// Asks the endpoint for its models.
///
/// # Errors
/// Returns an error if the client cannot be set up, or if the endpoint cannot be reached, does not
/// answer in time, rejects the request or is not the configured kind of server.
pub(crate) fn find(plan: &EndpointPlan) -> Result<Endpoint, BackendError> {
    found(plan, FAR)
}

fn found(plan: &EndpointPlan, most: Duration) -> Result<Endpoint, BackendError> {
    let work = async {
        match tokio::time::timeout(most, listed(plan, most)).await {
            Ok(found) => found,
            Err(_) => Err(BackendError::Silent { phase: Phase::FirstByte, waited: most }),
        }
    };
    blocking(work)?
}

/// Returns whether a listed name is the plan's model. Ollama adds the tag `latest` to a name
/// without a tag.
pub(crate) fn is_model(plan: &EndpointPlan, name: &str) -> bool {
    let rest = name.strip_prefix(plan.model.as_str());
    rest == Some("") || plan.dialect == Dialect::Ollama && rest == Some(":latest")
}

/// Runs a request to completion on a separate thread, because the caller may be inside a runtime.
pub(super) fn blocking<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, BackendError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| BackendError::Unavailable {
                why: format!("cannot create a runtime: {error}"),
            })?;
            let done = runtime.block_on(work);
            // The host name lookup may still be running and must not delay the probe.
            runtime.shutdown_background();
            Ok(done)
        });
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Requests the list of models and parses it in the dialect's format.
async fn listed(plan: &EndpointPlan, most: Duration) -> Result<Endpoint, BackendError> {
    let client = client::client(plan, most)?;
    let secrets = Secrets::of(&plan.env);
    let url = plan.url(plan.dialect.models());
    let unreachable = |error: reqwest::Error| {
        let words = secrets.head(&client::describe_error(&error), 400);
        let why = format!("{} cannot be reached: {words}", plan.host());
        match words.contains("certificate") {
            true => BackendError::Rejected { why },
            false => BackendError::Unavailable { why },
        }
    };
    let mut response = client.get(url).send().await.map_err(unreachable)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let server = headers.get("server").and_then(|it| it.to_str().ok());
    let who = match (plan.dialect, server) {
        (Dialect::Ollama, _) => format!("Ollama at {}", plan.host()),
        (_, Some(server)) => format!("{} ({})", plan.host(), secrets.head(server, 60)),
        (_, None) => plan.host(),
    };
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&piece);
        if body.len() > LIST {
            let why = format!(
                "{} returned a list of models that is longer than {LIST} bytes",
                plan.host()
            );
            return Err(BackendError::Rejected { why });
        }
    }
    match status {
        200 => {}
        // Some endpoints do not offer a model list, but Ollama always does.
        404 | 405 | 501 if plan.dialect != Dialect::Ollama => {
            return Ok(Endpoint { who, models: None });
        }
        404 => return Err(other(plan)),
        _ => return Err(refusal::of_status(plan, status, &headers, &body, &secrets)),
    }
    let models = models(plan.dialect, &body).ok_or_else(|| other(plan))?;
    let models = Some(models);
    Ok(Endpoint { who, models })
}

/// Returns the error for a server that does not speak the configured dialect.
fn other(plan: &EndpointPlan) -> BackendError {
    let host = plan.host();
    let why = match plan.dialect {
        Dialect::Ollama => format!(
            "the server at {host} is not Ollama; is base_url the address of Ollama, without /v1?"
        ),
        dialect => format!(
            "the server at {host} is not the expected one: its response to {} is not a list of models; \
             is base_url the address of the API?",
            dialect.models()
        ),
    };
    BackendError::Rejected { why }
}

/// Parses a list of models, or returns `None` if `body` is not one. vLLM, OpenRouter and llama.cpp
/// report the context windows.
pub(super) fn models(dialect: Dialect, body: &[u8]) -> Option<Vec<ListedModel>> {
    #[derive(serde::Deserialize)]
    struct Tags {
        models: Vec<LocalModel>,
    }
    if dialect == Dialect::Ollama {
        let tags: Tags = serde_json::from_slice(body).ok()?;
        let models = tags.models.into_iter();
        return Some(models.map(|it| ListedModel { name: it.name, window: None }).collect());
    }
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list["data"].as_array()?.iter().filter_map(|it| {
        let windows = [&it["max_model_len"], &it["context_length"], &it["meta"]["n_ctx"]];
        let window = windows
            .into_iter()
            .find_map(|window| window.as_u64().filter(|it| (1..=u64::from(u32::MAX)).contains(it)));
        Some(ListedModel { name: it["id"].as_str()?.to_owned(), window })
    });
    Some(models.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_windows_are_read() {
        let read = |body: &str| {
            let listed = models(Dialect::Chat, body.as_bytes()).unwrap().into_iter();
            listed.map(|it| (it.name, it.window)).collect::<Vec<_>>()
        };
        // The lists of llama.cpp, vLLM and OpenRouter, shortened.
        let llama = r#"{"models":[],"data":[{"id":"a","meta":{"n_ctx":4096,"n_ctx_train":8192}}]}"#;
        assert_eq!(read(llama), [("a".to_owned(), Some(4096))]);
        let vllm = r#"{"object":"list","data":[{"id":"b","max_model_len":32768}]}"#;
        assert_eq!(read(vllm), [("b".to_owned(), Some(32768))]);
        let router = r#"{"data":[{"id":"c","context_length":131072},{"id":"d"},{"name":"no id"}]}"#;
        assert_eq!(read(router), [("c".to_owned(), Some(131_072)), ("d".to_owned(), None)]);
        for odd in
            [r#"{"data":[{"id":"e","max_model_len":0}]}"#, r#"{"data":[{"id":"e","meta":7}]}"#]
        {
            assert_eq!(read(odd), [("e".to_owned(), None)]);
        }
        assert_eq!(models(Dialect::Chat, b"{}"), None);
    }
}
