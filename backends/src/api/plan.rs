//! The settings for an endpoint: the address, the key and the model, read from one
//! `[backends.NAME]` table.
//!
//! A provider's usual key is sent only to that provider's default address. Any other address gets
//! the key named by `key`, or none. This module must never put a key's value into a message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use reqwest::Url;
use runner_engine::time::Clock;

use super::shape::Dialect;
use crate::agent::refusal_text::LocalClock;
use crate::credentials::{self, why_not};
use crate::error::BackendError;
use crate::registry::{Surroundings, given};
use crate::request::{Request, RequestLimits};
use crate::spec::{
    ApiSettings, BackendKind, BackendSpec, OpenaiApi, Provider, Structured, at_home,
};

/// The settings for calling an endpoint. They are the same for every request.
#[derive(Clone)]
pub(crate) struct EndpointPlan {
    pub name: String,
    pub kind: &'static str,
    pub dialect: Dialect,
    /// The base address, which ends with a slash.
    pub base: Url,
    /// Whether the address is the provider's own.
    pub is_first_hand: bool,
    /// Whether the endpoint is on this host.
    pub is_loopback: bool,
    pub model: String,
    /// The name of the variable that contains the key, and its value if it is set. `None` if no key
    /// is sent.
    pub key: Option<(String, Option<String>)>,
    /// The error message if a keyring reference provides no key. `None` if the key is not a keyring
    /// reference.
    pub no_key: Option<String>,
    /// The part of the environment that the endpoint uses: keys, proxies and certificates.
    pub env: BTreeMap<String, String>,
    /// The settings as configured.
    pub settings: ApiSettings,
    /// The configured context window in tokens. Ollama uses `num_ctx` instead.
    pub context_window: Option<u64>,
    pub ca_file: Option<PathBuf>,
    pub structured: Structured,
    pub num_ctx: Option<u64>,
    pub keep_alive: Option<String>,
    pub clock: Clock,
}

fn usual_base(provider: &Provider) -> &'static str {
    match provider {
        Provider::Anthropic(_) => "https://api.anthropic.com",
        Provider::Openai(_) => "https://api.openai.com/v1",
        Provider::Ollama(_) => "http://127.0.0.1:11434",
    }
}

impl EndpointPlan {
    /// Creates the plan from a backend's configuration.
    ///
    /// # Errors
    /// Returns [`BackendError::Rejected`] if the configuration is invalid, and
    /// [`BackendError::NotLoggedIn`] if the `env_file` cannot be used.
    pub fn of(spec: &BackendSpec, around: &Surroundings<'_>) -> Result<Self, BackendError> {
        let rejected =
            |why: String| BackendError::Rejected { why: format!("backend {:?}: {why}", spec.name) };
        let BackendKind::Api(provider, settings) = &spec.kind else {
            return Err(rejected(format!("{:?} is not an API", spec.kind.name())));
        };
        let (dialect, context_window, ollama) = match provider {
            Provider::Anthropic(own) => (Dialect::Messages, own.context_window, None),
            Provider::Ollama(own) => (Dialect::Ollama, None, Some(own)),
            Provider::Openai(own) => match own.api {
                None | Some(OpenaiApi::Chat) => (Dialect::Chat, own.context_window, None),
                Some(OpenaiApi::Responses) => (Dialect::Responses, own.context_window, None),
            },
        };
        let text = settings.base_url.as_deref().unwrap_or(usual_base(provider));
        let base = base(text, dialect).map_err(|why| rejected(format!("base_url {why}")))?;
        let model = (settings.model.clone()).filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| {
            rejected(
                "a model is required (`runner backends check` lists the available models)"
                    .to_owned(),
            )
        })?;
        let structured = match (settings.structured, dialect) {
            (None, Dialect::Messages) => Structured::Tool,
            (None, _) => Structured::Schema,
            (Some(Structured::Tool), Dialect::Chat | Dialect::Responses | Dialect::Ollama) => {
                return Err(rejected(format!(
                    "structured = \"tool\" is not supported by {} (supported: schema, prompt)",
                    provider.name()
                )));
            }
            (Some(structured), _) => structured,
        };
        let key_name = spec.endpoint_key();
        let kept = key_name.and_then(credentials::in_keyring);
        if let Some(Err(why)) = kept {
            return Err(rejected(format!("key = \"keyring:…\": {why}")));
        }
        if let Some(name) = key_name
            && kept.is_none()
            && !name.bytes().all(|it| matches!(it, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
        {
            // The value of `key` may be the key itself, so it is not shown.
            let why =
                "key must be the name of a variable (capitals, digits, _), never the key itself";
            return Err(rejected(why.to_owned()));
        }
        let (env, _) = given(spec, around)?;
        let key = key_name.map(|name| {
            let value = env.get(name).filter(|value| !value.is_empty());
            (name.to_owned(), value.cloned())
        });
        let is_loopback = is_loopback(&base);
        if key.is_some() && base.scheme() == "http" && !is_loopback {
            return Err(rejected(format!(
                "its key would be sent to {} unencrypted: use https, or remove `key`",
                host(&base)
            )));
        }
        Ok(Self {
            name: spec.name.clone(),
            kind: provider.name(),
            dialect,
            is_first_hand: Url::parse(usual_base(provider))
                .is_ok_and(|own| own.host() == base.host()),
            is_loopback,
            base,
            model,
            no_key: kept.and(key_name).map(|reference| {
                let why = around.env.get(&why_not(reference)).cloned();
                why.unwrap_or_else(|| format!("{reference} was not looked up"))
            }),
            key,
            env,
            settings: settings.clone(),
            context_window,
            ca_file: (settings.ca_file.as_deref()).map(|path| at_home(path, around.env)),
            structured,
            num_ctx: ollama.and_then(|own| own.num_ctx),
            keep_alive: ollama.and_then(|own| own.keep_alive.clone()),
            clock: around.clock.clone(),
        })
    }

    /// Returns the key to send, if any.
    ///
    /// # Errors
    /// Returns [`BackendError::NotLoggedIn`] if the key is missing or cannot be sent in a header.
    pub fn secret(&self) -> Result<Option<&str>, BackendError> {
        match &self.key {
            None => Ok(None),
            Some((_, Some(value))) if value.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Some(value))
            }
            Some((name, Some(_))) => Err(BackendError::NotLoggedIn {
                why: format!(
                    "{name} contains characters that a key cannot have, such as a space or a line break"
                ),
            }),
            Some((_, None)) if self.no_key.is_some() => {
                Err(BackendError::NotLoggedIn { why: self.no_key.clone().unwrap_or_default() })
            }
            Some((name, None)) => Err(BackendError::NotLoggedIn {
                why: format!(
                    "{name} is not set for backend {}: set it, or write it into a file that `env_file` names",
                    self.name
                ),
            }),
        }
    }

    pub fn url(&self, path: &str) -> Url {
        // Joining cannot fail, because the base ends with a slash and runner chooses the path.
        self.base.join(path).unwrap_or_else(|_| self.base.clone())
    }

    /// Returns the maximum number of tokens in an answer.
    pub fn most_tokens(&self, request: &Request) -> u64 {
        let asked = request.limits.max_output_tokens;
        // Some servers refuse a question if its longest answer would not fit into the window.
        let share = self.context_window.map(|window| (window / 4).max(1));
        [self.settings.max_output_tokens, share].into_iter().flatten().fold(asked, u64::min)
    }

    /// Returns the sampling temperature to send, if any.
    pub fn temperature(&self, request: &Request) -> Option<serde_json::Value> {
        let usual = match self.dialect {
            Dialect::Messages => false,
            Dialect::Chat | Dialect::Responses => !self.is_first_hand,
            Dialect::Ollama => true,
        };
        let sent = self.settings.temperature.unwrap_or(usual);
        Some(f64::from(request.limits.temperature.filter(|_| sent)?).into())
    }

    /// Returns the maximum number of bytes in an answer's text. Without `output_cap`, the limit
    /// allows more bytes per token than any real token has.
    pub fn most_text(&self, request: &Request) -> usize {
        let bytes = self.most_tokens(request).saturating_mul(512).max(64 * 1024);
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.settings.output_cap.map_or(most, |cap| cap.min(most))
    }

    /// Returns the request's deadlines, with this backend's overrides applied.
    pub fn limits(&self, asked: &RequestLimits) -> RequestLimits {
        let own = &self.settings;
        let or = |own: Option<Duration>, asked: Duration| own.unwrap_or(asked);
        RequestLimits {
            connect: or(own.connect, asked.connect),
            first_byte: or(own.first_byte, asked.first_byte),
            idle: or(own.idle, asked.idle),
            ..asked.clone()
        }
    }

    /// Returns the current time and the time zone for interpreting the provider's times.
    pub fn here(&self) -> LocalClock {
        LocalClock {
            now: self.clock.read().map(|now| now.wall).unwrap_or_default(),
            zone: TimeZone::UTC,
        }
    }

    /// Returns the endpoint's host name, for messages.
    pub fn host(&self) -> String {
        host(&self.base)
    }
}

fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("nowhere");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn base(text: &str, dialect: Dialect) -> Result<Url, String> {
    let mut url =
        Url::parse(text).map_err(|error| format!("{text:?} is not a valid address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain credentials: name the key's variable in `key`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not contain ? or #".to_owned());
    }
    let mut path = url.path().trim_end_matches('/').to_owned();
    // Anthropic's own tools accept the address with or without `/v1`.
    if matches!(dialect, Dialect::Messages)
        && let Some(bare) = path.strip_suffix("/v1")
    {
        path = bare.to_owned();
    }
    url.set_path(&format!("{path}/"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(kind: &str, change: impl FnOnce(&mut ApiSettings)) -> Result<EndpointPlan, String> {
        let mut kind = BackendKind::read(kind, &mut json!({ "model": "m" })).unwrap();
        let BackendKind::Api(_, settings) = &mut kind else { panic!("{kind:?} is not an API") };
        change(settings);
        let spec = BackendSpec::new("mine", kind);
        let env = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OTHER"]
            .map(|name| (name.to_owned(), format!("canary-{name}")));
        let around = Surroundings {
            env: &env.into(),
            sandbox_start: None,
            slots: None,
            clock: &Clock::Host,
        };
        EndpointPlan::of(&spec, &around).map_err(|error| error.to_string())
    }

    #[test]
    fn default_key_goes_only_to_its_provider() {
        for kind in ["anthropic", "openai"] {
            let own = plan(kind, |_| {}).unwrap();
            assert!(own.secret().unwrap().is_some() && own.is_first_hand, "{kind}");
            let other = plan(kind, |it| it.base_url = Some("https://example.org/v1".into()));
            let other = other.unwrap();
            assert_eq!(other.secret(), Ok(None), "{kind}");
            assert!(!other.is_first_hand && !other.is_loopback);
            let named = plan(kind, |it| {
                it.base_url = Some("https://example.org/v1/".into());
                it.key = Some("OTHER".into());
            });
            assert_eq!(named.unwrap().secret(), Ok(Some("canary-OTHER")));
        }
        assert_eq!(plan("ollama", |_| {}).unwrap().secret(), Ok(None));
        let absent = plan("openai", |it| it.key = Some("NOT_THERE".into())).unwrap();
        let error = absent.secret().unwrap_err();
        assert!(matches!(&error, BackendError::NotLoggedIn { why } if why.contains("NOT_THERE")));
    }

    #[test]
    fn invalid_base_urls_are_refused() {
        let base = |kind: &str, text: &str| {
            plan(kind, |it| it.base_url = Some(text.into()))
                .map(|plan| plan.url(plan.dialect.path()).to_string())
        };
        for (kind, text, expected) in [
            ("anthropic", "https://a.example", "https://a.example/v1/messages"),
            ("anthropic", "https://a.example/v1/", "https://a.example/v1/messages"),
            ("anthropic", "https://a.example/x", "https://a.example/x/v1/messages"),
            ("openai", "http://[::1]:9/v1", "http://[::1]:9/v1/chat/completions"),
            ("ollama", "http://127.0.0.1:11434/", "http://127.0.0.1:11434/api/chat"),
            ("anthropic", "https://b\u{fc}.example", "https://xn--b-eha.example/v1/messages"),
        ] {
            assert_eq!(base(kind, text).unwrap(), expected);
        }
        for (text, why) in [
            ("example.org", "not a valid address"),
            ("ftp://example.org", "http://"),
            ("https://me:secret@example.org", "must not contain credentials"),
            ("https://example.org?key=1", "must not contain ? or #"),
        ] {
            let said = base("openai", text).unwrap_err();
            assert!(said.contains(why) && !said.contains("secret"), "{said}");
        }
        for secret in ["sk-ant-canary", "hf_canary", "canary KEY"] {
            let said = plan("openai", |it| it.key = Some(secret.into())).err().unwrap();
            assert!(said.contains("never the key itself") && !said.contains("canary"), "{said}");
        }
        let open = plan("openai", |it| {
            it.base_url = Some("http://example.org/v1".into());
            it.key = Some("OTHER".into());
        });
        assert!(open.err().unwrap().contains("unencrypted"));
        let near = plan("openai", |it| {
            it.base_url = Some("http://localhost:1234/v1".into());
            it.key = Some("OTHER".into());
        });
        assert!(near.unwrap().is_loopback);
    }
}
