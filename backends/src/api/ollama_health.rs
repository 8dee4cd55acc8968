//! Queries an Ollama server's state within a deadline, for the commands that help a user set it up.
//!
//! This module requests only the version and the model list. It must never call a model.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Client;
use runner_engine::error_chain::plain;
use runner_engine::time::Clock;
use serde::Serialize;
use serde_json::Value;

use super::client;
use super::dialect::Dialect;
use super::plan::EndpointPlan;
use super::probe::{LIST, blocking, is_model, models};
use crate::registry::Surroundings;
use crate::spec::{ApiSettings, BackendKind, BackendSpec, OllamaSettings, Provider};

/// The state of an Ollama server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum OllamaHealth {
    /// The server answers and has the model.
    Ready { version: String },
    /// The server answers but does not have the model.
    ModelMissing { version: String, models: Vec<String> },
    /// No connection to the endpoint could be established.
    Dead {
        /// The system's error message.
        why: String,
    },
    /// No answer arrived within the deadline.
    Silent { why: String },
    /// The endpoint did not answer as Ollama does.
    Stranger { why: String },
    /// The server was not contacted.
    NotAsked { why: String },
}

/// Checks whether the server at `endpoint` answers within `deadline` and has `model`.
pub fn ollama_health(endpoint: &str, model: &str, deadline: Duration) -> OllamaHealth {
    let not_asked = |why: String| OllamaHealth::NotAsked { why };
    if !endpoint.starts_with("http://") {
        return not_asked(format!("{endpoint:?} does not begin with http://"));
    }
    let settings = ApiSettings {
        base_url: Some(endpoint.to_owned()),
        model: Some(model.to_owned()),
        ..ApiSettings::default()
    };
    let ollama = Provider::Ollama(OllamaSettings::default());
    let spec = BackendSpec::new("ollama", BackendKind::Api(ollama, settings));
    let env = BTreeMap::new();
    let around = Surroundings { env: &env, sandbox_start: None, slots: None, clock: &Clock::Host };
    let plan = match EndpointPlan::of(&spec, &around) {
        Ok(plan) => plan,
        Err(error) => return not_asked(error.to_string()),
    };
    let client = match client::client(&plan, deadline) {
        Ok(client) => client,
        Err(error) => return not_asked(error.to_string()),
    };
    let late =
        OllamaHealth::Silent { why: format!("no answer within {} ms", deadline.as_millis()) };
    let work = async {
        let asked = tokio::time::timeout(deadline, ask(&plan, &client)).await;
        asked.map_or(late, |asked| asked.unwrap_or_else(|health| health))
    };
    blocking(work).unwrap_or_else(|error| not_asked(error.to_string()))
}

async fn ask(plan: &EndpointPlan, client: &Client) -> Result<OllamaHealth, OllamaHealth> {
    let stranger = |what: &str, body: &[u8]| OllamaHealth::Stranger {
        why: format!("{what}: {}", brief(&String::from_utf8_lossy(body))),
    };
    let body = get(plan, client, "api/version").await?;
    let version: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(version) = version["version"].as_str().map(str::to_owned) else {
        return Err(stranger("its answer is not from Ollama", &body));
    };
    let body = get(plan, client, Dialect::Ollama.models()).await?;
    let models = models(Dialect::Ollama, &body);
    let models = models.ok_or_else(|| stranger("its answer is not a list of models", &body))?;
    match models.iter().any(|listed| is_model(plan, &listed.name)) {
        true => Ok(OllamaHealth::Ready { version }),
        false => {
            let models = models.into_iter().map(|listed| listed.name).collect();
            Ok(OllamaHealth::ModelMissing { version, models })
        }
    }
}

/// Sends a GET request and returns the body of the answer.
async fn get(plan: &EndpointPlan, client: &Client, path: &str) -> Result<Vec<u8>, OllamaHealth> {
    let failed = |error: reqwest::Error| {
        let why = plain(&client::describe_error(&error));
        match (error.is_timeout(), error.is_connect()) {
            (true, _) => OllamaHealth::Silent { why },
            (false, true) => OllamaHealth::Dead { why },
            (false, false) => OllamaHealth::Stranger { why },
        }
    };
    let mut response = client.get(plan.url(path)).send().await.map_err(failed)?;
    if response.status().as_u16() != 200 {
        let why = format!("it answers /{path} with {}", response.status());
        return Err(OllamaHealth::Stranger { why });
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&piece);
        if body.len() > LIST {
            let why = format!("its answer to /{path} is longer than {LIST} bytes");
            return Err(OllamaHealth::Stranger { why });
        }
    }
    Ok(body)
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
    fn invalid_addresses_are_refused() {
        for bad in ["", "https://x", "http://", "http://x:y", "http://a:b@h", "D:\\x", "http://a b"]
        {
            let health = ollama_health(bad, "m", Duration::from_secs(1));
            assert!(matches!(health, OllamaHealth::NotAsked { .. }), "{bad}: {health:?}");
        }
    }
}
