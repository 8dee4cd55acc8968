//! The settings of a `[backends.NAME]` table: those of all backends, and those of each type.
//!
//! A setting that a type does not use is not a field of its settings, so that the configuration can
//! refuse it. This module must never read the environment or a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_text::grammar;
use runner_text::values::{Size, Span, Text, Wait, read_text};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// The types of backends.
pub const KINDS: [&str; 8] =
    ["builtin", "command", "claude", "codex", "anthropic", "openai", "ollama", "replay"];

/// Default maximum size of each output stream in bytes.
const OUTPUT_CAP: usize = 64 * 1024 * 1024;

/// A configured backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// The name that jobs refer to.
    pub name: String,
    pub kind: BackendKind,
    /// The names of the backends to try if this one is not installed, has no valid login, cannot be
    /// reached or has reached a limit.
    pub fallback: Vec<String>,
    /// The pool whose budget this backend uses.
    pub pool: Option<String>,
}

/// The type of a backend, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// Answers from fixed rules.
    Builtin,
    /// Runs a program.
    Command(CommandSettings, ChildSettings),
    /// Runs an agent.
    Agent(AgentKind, AgentSettings, ChildSettings),
    /// Uses a model's HTTP API.
    Api(Provider, ApiSettings),
    /// Answers from a recording.
    Replay(ReplaySettings),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentKind {
    Claude(ClaudeSettings),
    Codex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    Anthropic(AnthropicSettings),
    Openai(OpenaiSettings),
    Ollama(OllamaSettings),
}

/// The settings that every `[backends.NAME]` table can have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BackendTable {
    /// The kind of backend: "builtin" answers from fixed rules, "command" runs a program, "claude"
    /// and "codex" run these agents, "anthropic", "openai" and "ollama" use a model's API, and
    /// "replay" answers from a recording.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = KINDS))]
    pub kind: String,
    /// The `[backends.NAME]` to try, in this order, if this backend is not installed, has no valid
    /// login, cannot be reached or has reached a limit.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// The pool whose budget this backend uses, defined in `[pools.NAME]` in the user's file.
    pub pool: Option<String>,
}

/// The settings of backends that run a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChildSettings {
    /// The model that the program uses; for a command, a name for reports and prices.
    pub model: Option<String>,
    /// The program's arguments. They must never contain a secret, because every user can read them.
    pub args: Vec<String>,
    /// The names of environment variables to pass to the program in addition to the default ones.
    /// An agent then receives these instead of the usual ones, such as those for its key.
    pub env: Option<Vec<String>>,
    /// A file of additional NAME=VALUE lines. Only its owner may have access to it.
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub env_file: Option<PathBuf>,
    /// Whether the program prints nothing until it answers. If so, the first-byte and idle
    /// deadlines do not apply.
    pub quiet: bool,
    /// The maximum time until the backend's first output. Default: 2 minutes.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub first_byte: Option<Duration>,
    /// The maximum silence between two outputs. Default: 5 minutes.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub idle: Option<Duration>,
    /// The maximum time to exit after the answer or after a request to stop. Default: 10 seconds.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub grace: Option<Duration>,
    /// The maximum size of each output stream. Default: 64MB.
    #[serde(deserialize_with = "read_cap")]
    #[schemars(with = "Option<Size>")]
    pub output_cap: Option<usize>,
}

impl ChildSettings {
    /// Returns the maximum size of each output stream in bytes.
    pub(crate) fn output_cap(&self) -> usize {
        self.output_cap.unwrap_or(OUTPUT_CAP)
    }
}

/// The settings of a command, in addition to [`ChildSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct CommandSettings {
    /// The program to run: a name to look up in PATH, or an absolute path.
    pub program: String,
    /// The file in the run folder that contains the answer. If it is missing or empty, standard
    /// output is the answer. Default: "proposals.json".
    pub artifact: Option<String>,
}

/// The settings of an agent, in addition to [`ChildSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentSettings {
    /// The agent's program: a name to look up in PATH, or an absolute path. Default: "claude" or
    /// "codex".
    pub program: Option<String>,
    /// A separate folder for the agent's login (CLAUDE_CONFIG_DIR, CODEX_HOME).
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub state: Option<PathBuf>,
    /// Whether the agent keeps its own record of requests.
    pub sessions: bool,
    /// The tools that the agent may use. Default: none.
    pub tools: Vec<String>,
    /// The maximum number of concurrent requests per login. Default: 1.
    #[schemars(range(min = 1))]
    pub slots: Option<u32>,
}

/// The settings of claude, in addition to [`AgentSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClaudeSettings {
    /// The maximum number of turns in one request. Default: 20 with tools; without tools,
    /// 3 if the answer has a schema, otherwise 1.
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// The model that claude falls back to while its primary model is overloaded.
    pub fallback_model: Option<String>,
}

/// The settings of backends that use a model's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiSettings {
    /// The model that answers. An API has no default model.
    pub model: Option<String>,
    /// The address of the API. Default: the provider's address; for Ollama, this host.
    pub base_url: Option<String>,
    /// The name of the variable that contains the API key, or keyring:NAME. It must never be the
    /// key itself. Default: the provider's usual variable, or none if base_url is set.
    pub key: Option<String>,
    /// The names of the variables for proxies and certificates to use, instead of the usual ones.
    pub env: Option<Vec<String>>,
    /// A file of additional NAME=VALUE lines. Only its owner may have access to it.
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub env_file: Option<PathBuf>,
    /// A PEM file of certificates to trust in addition to the host's.
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub ca_file: Option<PathBuf>,
    /// How the schema of an answer is enforced: as a "schema" in the request, as a "tool"
    /// (the default of anthropic), or only in the text of the "prompt".
    pub structured: Option<Structured>,
    /// Whether a temperature that a job requests is sent. Default: false for anthropic and for
    /// OpenAI's own address, whose newest models refuse it, and otherwise true.
    pub temperature: Option<bool>,
    /// The maximum length of an answer, in tokens. A job that requests a longer answer is limited
    /// to this.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub max_output_tokens: Option<u64>,
    /// The maximum time to connect. Default: 10 seconds.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub connect: Option<Duration>,
    /// The maximum time until the backend's first output. Default: 2 minutes.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub first_byte: Option<Duration>,
    /// The maximum silence between two outputs. Default: 5 minutes.
    #[serde(deserialize_with = "read_span")]
    #[schemars(with = "Option<Text<Span>>")]
    pub idle: Option<Duration>,
    /// The maximum size of an answer. Default: 512 bytes per token, and at least 64 KiB.
    #[serde(deserialize_with = "read_cap")]
    #[schemars(with = "Option<Size>")]
    pub output_cap: Option<usize>,
    /// The maximum number of concurrent requests per address and key. Default: no limit.
    #[schemars(range(min = 1))]
    pub slots: Option<u32>,
}

/// The settings of anthropic, in addition to [`ApiSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AnthropicSettings {
    /// The context window of the model, in tokens. A quarter of it is reserved for the answer.
    /// Default: 128000.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub context_window: Option<u64>,
}

/// The settings of openai, in addition to [`ApiSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpenaiSettings {
    /// The API to use: Chat Completions, which other servers also offer, or Responses. Default:
    /// "chat".
    pub api: Option<OpenaiApi>,
    /// The context window of the model, in tokens. A quarter of it is reserved for the answer.
    /// Default: 128000.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub context_window: Option<u64>,
}

/// The settings of ollama, in addition to [`ApiSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OllamaSettings {
    /// The context window of the model, in tokens. Default: 4096 to 32768, depending on the
    /// request.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub num_ctx: Option<u64>,
    /// How long the model stays loaded after an answer. Default: Ollama's own setting.
    #[serde(deserialize_with = "read_seconds")]
    #[schemars(with = "Option<Text<Wait>>")]
    pub keep_alive: Option<String>,
}

/// The settings of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ReplaySettings {
    /// The recording that contains the answers, written by `runner replay RUN --export
    /// FILE`: a path in the project, or a path that begins with / or ~/.
    pub recording: PathBuf,
}

/// The API of an openai backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OpenaiApi {
    Chat,
    Responses,
}

/// How a request asks for an answer that conforms to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Structured {
    /// The provider's own schema mechanism.
    Schema,
    /// A tool whose input is the answer.
    Tool,
    /// Instructions in the question, for providers that support neither a schema nor a tool.
    Prompt,
}

grammar! {
    /// An absolute path, or a path inside the home folder.
    OwnPath: PathBuf, "~/x", "(/|~/).*", own_path;
}

pub fn own_path(text: &str) -> Result<PathBuf, String> {
    match text.starts_with('/') || text.starts_with("~/") {
        true => Ok(text.into()),
        false => Err(format!("{text:?} does not begin with / or ~/")),
    }
}

/// Replaces a leading `~` in a path with the home folder.
pub(crate) fn at_home(path: &Path, env: &BTreeMap<String, String>) -> PathBuf {
    match (path.strip_prefix("~"), env.get("HOME")) {
        (Ok(below), Some(home)) => Path::new(home).join(below),
        _ => path.to_owned(),
    }
}

fn read_own_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    read_text::<OwnPath, D>(from).map(Some)
}

fn read_cap<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    Size::bytes(from).map(|bytes| Some(usize::try_from(bytes).unwrap_or(usize::MAX)))
}

fn read_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    read_text::<Wait, D>(from).map(|span| Some(format!("{}s", span.as_secs())))
}

fn read_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    read_text::<Span, D>(from).map(|span| Some(span.unsigned_abs()))
}

/// A table that can be read several times, each time as different settings.
pub trait ReadTable {
    /// Reads the settings of `T`, and ignores all others. Returns `None` if a setting of `T` is
    /// missing or invalid.
    fn read<T: DeserializeOwned>(&mut self) -> Option<T>;
}

impl ReadTable for serde_json::Value {
    fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        serde_json::from_value(self.clone()).ok()
    }
}

impl BackendKind {
    /// Reads the settings of the type `kind`. Returns `None` if the type is unknown, or if a
    /// setting is missing or invalid.
    pub fn read(kind: &str, table: &mut impl ReadTable) -> Option<Self> {
        Some(match kind {
            "builtin" => Self::Builtin,
            "command" => Self::Command(table.read()?, table.read()?),
            "claude" => Self::Agent(AgentKind::Claude(table.read()?), table.read()?, table.read()?),
            "codex" => Self::Agent(AgentKind::Codex, table.read()?, table.read()?),
            "anthropic" => Self::Api(Provider::Anthropic(table.read()?), table.read()?),
            "openai" => Self::Api(Provider::Openai(table.read()?), table.read()?),
            "ollama" => Self::Api(Provider::Ollama(table.read()?), table.read()?),
            "replay" => Self::Replay(table.read()?),
            _ => return None,
        })
    }

    /// Returns the schemas of the settings that [`Self::read`] reads for the type `kind`.
    pub fn schemas(kind: &str, from: &mut SchemaGenerator) -> Vec<Schema> {
        match kind {
            "command" => vec![CommandSettings::json_schema(from), ChildSettings::json_schema(from)],
            "claude" => vec![
                ClaudeSettings::json_schema(from),
                AgentSettings::json_schema(from),
                ChildSettings::json_schema(from),
            ],
            "codex" => vec![AgentSettings::json_schema(from), ChildSettings::json_schema(from)],
            "anthropic" => {
                vec![AnthropicSettings::json_schema(from), ApiSettings::json_schema(from)]
            }
            "openai" => vec![OpenaiSettings::json_schema(from), ApiSettings::json_schema(from)],
            "ollama" => vec![OllamaSettings::json_schema(from), ApiSettings::json_schema(from)],
            "replay" => vec![ReplaySettings::json_schema(from)],
            _ => Vec::new(),
        }
    }

    /// Returns the type's name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Command(..) => "command",
            Self::Agent(agent, ..) => agent.name(),
            Self::Api(provider, _) => provider.name(),
            Self::Replay(_) => "replay",
        }
    }

    /// Returns the configured model, if any.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Command(_, child) | Self::Agent(.., child) => child.model.as_deref(),
            Self::Api(_, api) => api.model.as_deref(),
            Self::Builtin | Self::Replay(_) => None,
        }
    }

    /// Replaces the model of a backend that has one.
    pub fn set_model(&mut self, model: String) {
        match self {
            Self::Command(_, child) | Self::Agent(.., child) => child.model = Some(model),
            Self::Api(_, api) => api.model = Some(model),
            Self::Builtin | Self::Replay(_) => {}
        }
    }

    /// Returns the `env` setting, or `None` if it is not set.
    pub fn env(&self) -> Option<&[String]> {
        match self {
            Self::Command(_, child) | Self::Agent(.., child) => child.env.as_deref(),
            Self::Api(_, api) => api.env.as_deref(),
            Self::Builtin | Self::Replay(_) => None,
        }
    }

    /// Returns the `env_file` setting, or `None` if it is not set.
    pub fn env_file(&self) -> Option<&PathBuf> {
        match self {
            Self::Command(_, child) | Self::Agent(.., child) => child.env_file.as_ref(),
            Self::Api(_, api) => api.env_file.as_ref(),
            Self::Builtin | Self::Replay(_) => None,
        }
    }
}

impl AgentKind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claude(_) => "claude",
            Self::Codex => "codex",
        }
    }
}

impl Provider {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Anthropic(_) => "anthropic",
            Self::Openai(_) => "openai",
            Self::Ollama(_) => "ollama",
        }
    }
}

impl BackendSpec {
    /// Creates a backend without fallbacks and without a pool.
    pub fn new(name: &str, kind: BackendKind) -> Self {
        Self { name: name.to_owned(), kind, fallback: Vec::new(), pool: None }
    }

    /// Returns whether the backend is the built-in one.
    pub fn is_builtin(&self) -> bool {
        self.kind == BackendKind::Builtin
    }
}
