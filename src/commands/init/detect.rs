//! Detects the backends that this machine can use. No model is called: programs print their
//! version, and servers list their models.

use runner_backends::check::{self, ListedModel};
use runner_backends::{BackendKind, BackendSpec, Surroundings};
use serde::Serialize;
use serde_json::json;

use crate::env::{self, Env};
use crate::keyring;

/// A backend that this machine may be able to use.
struct Candidate {
    name: &'static str,
    kind: &'static str,
    /// The environment variable that must contain the key. Without it, the candidate is not
    /// detected.
    key: Option<&'static str>,
    base_url: Option<&'static str>,
}

/// The last three candidates are LM Studio, llama.cpp and vLLM servers on their usual ports.
const CANDIDATES: [Candidate; 8] = [
    Candidate { name: "claude", kind: "claude", key: None, base_url: None },
    Candidate { name: "codex", kind: "codex", key: None, base_url: None },
    Candidate {
        name: "anthropic",
        kind: "anthropic",
        key: Some("ANTHROPIC_API_KEY"),
        base_url: None,
    },
    Candidate { name: "openai", kind: "openai", key: Some("OPENAI_API_KEY"), base_url: None },
    Candidate { name: "ollama", kind: "ollama", key: None, base_url: None },
    local("lmstudio", "http://127.0.0.1:1234/v1"),
    local("llamacpp", "http://127.0.0.1:8080/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
];

const fn local(name: &'static str, base_url: &'static str) -> Candidate {
    Candidate { name, kind: "openai", key: None, base_url: Some(base_url) }
}

/// A backend that is ready to use.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DetectedBackend {
    /// The name for its `[backends.NAME]` table.
    pub(super) name: &'static str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The address of a server, if it differs from the usual address for its kind.
    pub(super) base_url: Option<&'static str>,
    /// The result of the check: the agent's version, or a description of the endpoint.
    pub(super) about: String,
    /// The models that the API lists. Agents have their own default model.
    pub(super) models: Vec<ListedModel>,
}

impl DetectedBackend {
    /// Returns whether a setting must name the model. Agents have their own default model.
    pub(super) fn needs_model(&self) -> bool {
        !matches!(self.kind, "claude" | "codex")
    }

    /// Returns the name of the model, if the API lists exactly one.
    pub(super) fn only_model(&self) -> Option<&str> {
        match self.models.as_slice() {
            [one] => Some(&one.name),
            _ => None,
        }
    }

    /// Returns whether the API lists the model. Ollama adds the tag `latest` to a name without a
    /// tag.
    pub(super) fn has_model(&self, name: &str) -> bool {
        let tagged = format!("{name}:latest");
        let is_ollama = self.kind == "ollama";
        self.models.iter().any(|it| it.name == name || is_ollama && it.name == tagged)
    }

    /// Returns the settings, as keys and TOML values, with which dream passes use this backend.
    pub(super) fn settings(&self, model: Option<&str>) -> Vec<(String, String)> {
        let mut settings = vec![("type", self.kind.to_owned())];
        settings.extend(self.base_url.map(|url| ("base_url", url.to_owned())));
        let listed = self.models.iter().find(|it| Some(it.name.as_str()) == model);
        settings.extend(model.map(|name| ("model", name.to_owned())));
        // Runner itself sets the context window of each request to Ollama.
        let window = listed.and_then(|it| it.window).filter(|_| self.kind != "ollama");
        settings.extend(window.map(|window| ("context_window", window.to_string())));
        let name = self.name;
        let settings = settings.into_iter();
        let mut all: Vec<_> =
            settings.map(|(key, value)| (format!("backends.{name}.{key}"), value)).collect();
        all.push(("jobs.dream.backend".to_owned(), name.to_owned()));
        all
    }
}

/// Returns the candidates that pass `runner backends check`, except for its check of the model.
pub(super) fn models(home: &Env) -> Vec<DetectedBackend> {
    let Ok(marker) = env::marker() else { return Vec::new() };
    CANDIDATES.iter().filter_map(|candidate| candidate.detect(home, &marker)).collect()
}

impl Candidate {
    fn detect(&self, home: &Env, marker: &str) -> Option<DetectedBackend> {
        if self.key.is_some_and(|key| env::setting(key).is_none()) {
            return None;
        }
        let mut settings = json!({});
        if let Some(url) = self.base_url {
            settings["base_url"] = url.into();
        }
        let spec = BackendSpec::new(self.name, BackendKind::read(self.kind, &mut settings)?);
        let mut variables = env::child_environment();
        variables.extend(keyring::resolve_secrets(&spec));
        let around =
            Surroundings { env: &variables, sandbox_start: None, slots: None, clock: &home.clock };
        let (findings, models) = check::check_and_list(&spec, &around, marker);
        if findings.iter().any(|it| it.problem.is_some() && it.what != "model") {
            return None;
        }
        let items = ["version", "endpoint", "program"];
        let about = items.iter().find_map(|what| findings.iter().find(|it| it.what == *what));
        Some(DetectedBackend {
            name: self.name,
            kind: self.kind,
            base_url: self.base_url,
            about: about.map_or_else(String::new, |it| it.said.clone()),
            models,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_server_are_complete() {
        let listed = ListedModel { name: "small.gguf".to_owned(), window: Some(4096) };
        let mut server = DetectedBackend {
            name: "llamacpp",
            kind: "openai",
            base_url: Some("http://127.0.0.1:8080/v1"),
            about: String::new(),
            models: vec![listed],
        };
        let texts = |of: &DetectedBackend, model| -> Vec<String> {
            let settings = of.settings(model).into_iter();
            settings.map(|(key, value)| format!("{key}={value}")).collect()
        };
        assert_eq!(
            texts(&server, Some("small.gguf")),
            [
                "backends.llamacpp.type=openai",
                "backends.llamacpp.base_url=http://127.0.0.1:8080/v1",
                "backends.llamacpp.model=small.gguf",
                "backends.llamacpp.context_window=4096",
                "jobs.dream.backend=llamacpp",
            ]
        );
        assert!(!texts(&server, Some("other")).iter().any(|it| it.contains("context_window")));
        (server.name, server.kind, server.base_url) = ("claude", "claude", None);
        assert_eq!(
            texts(&server, None),
            ["backends.claude.type=claude", "jobs.dream.backend=claude"]
        );
    }
}
