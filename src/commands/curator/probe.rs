//! Asks the engine's address for its state, within a deadline.
//!
//! The probe sends two plain HTTP requests, and never takes longer than the deadline. An address that cannot be resolved, a host that drops packets and a service that
//! never finishes its answer therefore cost the same. It must never send anything but these two
//! requests, and never follow a redirect.

use std::error::Error;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url, redirect};
use runner_engine::error_chain::plain;
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

/// Time limit of both requests together.
pub const DEADLINE: Duration = Duration::from_millis(1_500);
/// Maximum length of an answer, in bytes.
const LARGEST: usize = 4 << 20;

/// The result of the probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// The engine answers and has the model.
    Ready { version: String },
    /// The engine answers and lacks the model.
    ModelMissing { version: String, models: Vec<String> },
    /// Nothing listens at the endpoint.
    Dead {
        /// The system's error message.
        why: String,
    },
    /// The connection is neither answered nor refused.
    Silent {
        /// The step that the request reached.
        why: String,
    },
    /// Another program listens at the endpoint.
    Stranger { why: String },
    /// The engine was not asked.
    NotAsked { why: String },
}

/// Checks whether the engine at `endpoint` answers and has `model`.
pub fn probe(endpoint: &str, model: &str) -> Health {
    let base = match address(endpoint) {
        Ok(base) => base,
        Err(why) => return Health::NotAsked { why },
    };
    // Only the first call installs the provider. The error of any further call is ignored.
    let _decided = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Health::NotAsked { why: format!("cannot ask: {error}") },
    };
    let asked = runtime.block_on(async { timeout(DEADLINE, ask(&base, model)).await });
    // Does not wait for a name lookup that is still in progress.
    runtime.shutdown_background();
    let late = || format!("no answer within {} ms", DEADLINE.as_millis());
    asked.map_or_else(|_| Health::Silent { why: late() }, |health| health.unwrap_or_else(|it| it))
}

fn address(endpoint: &str) -> Result<Url, String> {
    if !endpoint.starts_with("http://") {
        return Err(format!("{endpoint:?} does not begin with http://"));
    }
    let url: Url = endpoint.parse().map_err(|error| format!("{endpoint:?}: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address contains a user name or a password".to_owned());
    }
    Ok(url)
}

/// Returns the state of the engine. The state of an engine that cannot be asked is the error.
async fn ask(base: &Url, model: &str) -> Result<Health, Health> {
    let stranger =
        |what: &str, text: &str| Health::Stranger { why: format!("{what}: {}", brief(text)) };
    let version = get(base, "/api/version").await?;
    let found = serde_json::from_str(&version).map(|it: Value| it["version"].clone());
    let Ok(Value::String(version)) = found else {
        return Err(stranger("its answer is not from Ollama", &version));
    };
    let tags = get(base, "/api/tags").await?;
    let Ok(list) = serde_json::from_str::<Value>(&tags) else {
        return Err(stranger("its list of models is not JSON", &tags));
    };
    let names = list["models"].as_array().into_iter().flatten();
    let models: Vec<String> = names
        .filter_map(|it| it["name"].as_str().or(it["model"].as_str()))
        .map(|name| name.chars().take(200).collect())
        .collect();
    // A name without a tag means the tag `latest`.
    let whole = if model.contains(':') { model.to_owned() } else { format!("{model}:latest") };
    match models.iter().any(|name| *name == whole || *name == model) {
        true => Ok(Health::Ready { version }),
        false => Ok(Health::ModelMissing { version, models }),
    }
}

async fn get(base: &Url, path: &str) -> Result<String, Health> {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    let client = Client::builder().redirect(redirect::Policy::none()).no_proxy().build();
    let answered = client.map_err(broken)?.get(url).send().await;
    let mut response = answered.map_err(broken)?;
    if response.status() != StatusCode::OK {
        return Err(Health::Stranger {
            why: format!("it answers {path} with {}", response.status()),
        });
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LARGEST {
            return Err(Health::Stranger { why: "its answer does not end".to_owned() });
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the state that an error of the HTTP client shows, with the error's first cause.
fn broken(error: reqwest::Error) -> Health {
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let cause = plain(&cause.to_string());
    match error.is_connect() {
        true => Health::Dead { why: cause },
        false => Health::Stranger { why: format!("its answer is not HTTP: {cause}") },
    }
}

fn brief(text: &str) -> String {
    let words: String =
        text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{:?}", words.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_or_refused_in_words() {
        for (endpoint, host, port) in [
            ("http://127.0.0.1:11434", "127.0.0.1", 11_434),
            ("http://localhost/x", "localhost", 80),
            ("http://[::1]:9/", "[::1]", 9),
        ] {
            let url = address(endpoint).unwrap();
            assert_eq!((url.host_str(), url.port_or_known_default()), (Some(host), Some(port)));
        }
        for bad in ["", "https://x", "http://", "http://x:y", "http://a:b@h", "D:\\x", "http://a b"]
        {
            assert!(address(bad).is_err(), "{bad}");
            assert!(matches!(probe(bad, "m"), Health::NotAsked { .. }));
        }
    }
}
