//! Creates backends from the configuration, and defines the known kinds.
//!
//! This module must never read the environment. The caller passes in an environment, and a child
//! receives only the default variables and those listed by its backend.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use runner_engine::digest::Digest;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::time::Clock;
use runner_text::grammar;
use runner_text::nearest::nearest;
use runner_text::values::{Size, Text, Wait, read_text};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::child::{LastSandbox, Patience};
use crate::claude::Claude;
use crate::codex::Codex;
use crate::command::{Command, CommandPlan, REQUEST_FILE};
use crate::redact::ORDINARY;
use crate::slots::Slotted;
use crate::{Backend, BackendError, Builtin, agent, api, credentials};

/// The backend kinds that [`build`] supports.
pub const KINDS: [&str; 8] =
    ["builtin", "command", "claude", "codex", "anthropic", "openai", "ollama", "replay"];

/// Default maximum size of each output stream in bytes.
const OUTPUT_CAP: usize = 64 * 1024 * 1024;

/// One `[backends.NAME]` section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["type"]))]
pub struct BackendSpec {
    /// The name that jobs refer to.
    #[serde(skip)]
    pub name: String,
    /// The kind of backend: "builtin" answers from fixed rules, "command" runs a program, "claude"
    /// and "codex" run these agents, "anthropic", "openai" and "ollama" use a model's API, and
    /// "replay" answers from a recording.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = KINDS))]
    pub kind: String,
    /// The model that the backend uses; for a command, a name for reports and prices.
    pub model: Option<String>,
    /// The program to run: a name to look up in PATH, or an absolute path. Default for agents: "claude" or "codex".
    pub program: Option<String>,
    /// The program's arguments. They must never contain a secret, because every user can read them.
    pub args: Vec<String>,
    /// The names of environment variables to pass to the program in addition to the default ones.
    pub env: Vec<String>,
    /// Whether an agent receives only the variables in `env`, and not the usual ones for its key.
    #[serde(skip)]
    pub only_env: bool,
    /// The file in the run folder that contains the answer. If it is missing or empty, standard
    /// output is the answer. Default: "proposals.json".
    pub artifact: Option<String>,
    /// Whether the program prints nothing until it answers. If so, the first-byte and idle deadlines do
    /// not apply.
    pub quiet: bool,
    /// The deadlines, which are settings in the same table.
    #[serde(skip)]
    pub patience: Patience,
    /// The maximum size of each output stream. Default: 64MB.
    #[serde(deserialize_with = "read_cap")]
    #[schemars(with = "Option<Size>")]
    pub output_cap: Option<usize>,
    /// A file of additional NAME=VALUE lines. Only its owner may have access to it.
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub env_file: Option<PathBuf>,
    /// A separate folder for the agent's login (CLAUDE_CONFIG_DIR, CODEX_HOME).
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub state: Option<PathBuf>,
    /// Whether an agent keeps its own record of requests.
    pub sessions: bool,
    /// The tools that an agent may use. Default: none.
    pub tools: Vec<String>,
    /// The maximum number of turns in one request to claude. Default: 20 with tools; without tools,
    /// 3 if the answer has a schema, otherwise 1.
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// The model that claude falls back to while its primary model is overloaded.
    pub fallback_model: Option<String>,
    /// The maximum number of concurrent requests per login. Default: 1 for agents, no limit for
    /// APIs.
    #[schemars(range(min = 1))]
    pub slots: Option<u32>,
    /// The recording that a replay backend answers from, written by `runner replay RUN --export
    /// FILE`: a path in the project, or a path that begins with / or ~/.
    pub recording: Option<PathBuf>,
    /// The `[backends.NAME]` to try, in this order, if this backend is missing, not allowed or out
    /// of capacity.
    pub fallback: Vec<String>,
    /// The pool whose budget this backend uses, defined in `[pools.NAME]` in the user's file.
    pub pool: Option<String>,
    /// The address of a model's API. Default: the provider's address; for Ollama, this host.
    pub base_url: Option<String>,
    /// The API of an openai backend: Chat Completions, which other servers also offer, or
    /// Responses. Default: "chat".
    #[schemars(extend("enum" = ["chat", "responses"]))]
    pub api: Option<String>,
    /// The name of the variable that holds the API key, or keyring:NAME. It must never be the key itself. Default:
    /// the provider's usual variable, or none if base_url is set.
    pub key: Option<String>,
    /// How the schema of an API's answer is enforced: as a "schema" in the request, as a "tool"
    /// (the default of anthropic), or only in the text of the "prompt".
    #[schemars(extend("enum" = ["schema", "tool", "prompt"]))]
    pub structured: Option<String>,
    /// The maximum length of an answer, in tokens. A job that requests a longer answer is limited to this.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub max_output_tokens: Option<u64>,
    /// The context window of an anthropic or openai model, in tokens. A quarter of it is reserved for
    /// the answer. Default: 128000.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub context_window: Option<u64>,
    /// A PEM file of certificates to trust in addition to the host's.
    #[serde(deserialize_with = "read_own_path")]
    #[schemars(with = "Option<Text<OwnPath>>")]
    pub ca_file: Option<PathBuf>,
    /// The context window of an ollama model in tokens. Default: 4096 to 32768, depending on the
    /// request.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub num_ctx: Option<u64>,
    /// How long an ollama model stays loaded after an answer. Default: Ollama's own setting.
    #[serde(deserialize_with = "read_seconds")]
    #[schemars(with = "Option<Text<Wait>>")]
    pub keep_alive: Option<String>,
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

fn read_own_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    read_text::<OwnPath, D>(from).map(Some)
}

fn read_cap<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    Size::bytes(from).map(|bytes| Some(usize::try_from(bytes).unwrap_or(usize::MAX)))
}

fn read_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    read_text::<Wait, D>(from).map(|span| Some(format!("{}s", span.as_secs())))
}

impl BackendSpec {
    /// Returns whether the backend is a model's HTTP API.
    pub fn is_endpoint(&self) -> bool {
        api::shape::KINDS.contains(&self.kind.as_str())
    }

    /// Returns the variable that contains an endpoint's key.
    pub fn endpoint_key(&self) -> Option<&str> {
        api::plan::key_name(self).filter(|_| self.is_endpoint())
    }

    /// Returns the variables that the backend receives, if they are set, in addition to the default
    /// ones.
    pub fn variables<'s>(&'s self) -> impl Iterator<Item = &'s str> {
        let kind = if self.only_env { "" } else { &self.kind };
        let own = self.env.iter().map(String::as_str);
        let own = own.chain(self.endpoint_key());
        own.chain(credentials::usual(kind).map(|name| -> &'s str { name }))
    }

    /// Returns the values that must not be shown. These are the values of the variables named by
    /// the backend and the values in its `env_file`, except locations and proxies.
    ///
    /// # Errors
    /// Returns an error if the `env_file` cannot be used.
    pub fn secrets(&self, around: &BTreeMap<String, String>) -> Result<Vec<String>, BackendError> {
        let named = self.variables().filter(|name| !credentials::is_place(name));
        let mut secrets: Vec<String> = named.filter_map(|name| around.get(name).cloned()).collect();
        if let Some(path) = &self.env_file {
            let file = credentials::from_file(&at_home(path, around))?.into_iter();
            secrets.extend(
                file.filter_map(|(name, value)| (!credentials::is_place(&name)).then_some(value)),
            );
        }
        secrets.retain(|value| !value.is_empty());
        Ok(secrets)
    }
}

/// The caller's environment, sandbox, slots and clock for a backend.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The environment from which each child receives the default variables and those listed by its
    /// backend.
    pub env: &'a BTreeMap<String, String>,
    /// The requesting job's sandbox. A backend adds its program's state folder to it. If this is
    /// `None`, the program starts without a launcher.
    pub sandbox_start: Option<&'a SandboxedStart>,
    /// The folder that contains the lock files of the slots, or `None` if there is no limit.
    pub slots: Option<&'a Path>,
    /// The clock for interpreting the times that a program or an API reports.
    pub clock: &'a Clock,
}

/// Creates the backend that `spec` describes.
///
/// # Errors
/// Returns [`BackendError::Rejected`] if the configuration or a recording is invalid, and
/// [`BackendError::NotLoggedIn`] if the `env_file` cannot be used.
pub fn build(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Backend>, BackendError> {
    let rejected =
        |why: String| BackendError::Rejected { why: format!("backend {:?}: {why}", spec.name) };
    let program = |usual: &str| {
        let program = spec.program.as_deref().unwrap_or(usual);
        if program.is_empty() {
            return Err(rejected(format!("kind {:?} needs a program", spec.kind)));
        }
        if program.contains('/') && !program.starts_with('/') {
            return Err(rejected(format!(
                "the program {program:?} is neither a name nor an absolute path"
            )));
        }
        Ok(PathBuf::from(program))
    };
    match spec.kind.as_str() {
        "builtin" => Ok(Arc::new(Builtin::new(&spec.name))),
        "claude" => {
            let plan = agent_plan(spec, "claude", program("claude")?, around)?;
            Ok(slotted(spec, &plan.clone(), Claude::new(plan), around))
        }
        "codex" => {
            let plan = agent_plan(spec, "codex", program("codex")?, around)?;
            Ok(slotted(spec, &plan.clone(), Codex::new(plan), around))
        }
        "replay" => {
            let Some(path) = &spec.recording else {
                return Err(rejected("kind \"replay\" needs a recording".to_owned()));
            };
            let path = at_home(path, around.env);
            Ok(Arc::new(crate::Replay::open(&spec.name, path)?))
        }
        "command" => {
            let program = program("")?;
            let artifact = spec.artifact.as_deref().unwrap_or("proposals.json");
            let mut parts = Path::new(artifact).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if artifact == REQUEST_FILE {
                return Err(rejected(format!(
                    "the artifact cannot be {artifact:?}, which is the request"
                )));
            }
            if !plain || artifact.contains('/') {
                return Err(rejected(format!(
                    "the artifact {artifact:?} is not a plain file name"
                )));
            }
            let (env, missing) = given(spec, around)?;
            Ok(Arc::new(Command::new(CommandPlan {
                name: spec.name.clone(),
                model: spec.model.clone(),
                program,
                args: spec.args.clone(),
                env,
                missing,
                artifact: artifact.to_owned(),
                quiet: spec.quiet,
                patience: spec.patience,
                sandbox_start: around.sandbox_start.cloned(),
                output_cap: spec.output_cap.unwrap_or(OUTPUT_CAP),
                held: LastSandbox::default(),
            })))
        }
        _ if spec.is_endpoint() => {
            let plan = api::plan::EndpointPlan::of(spec, around)?;
            let login = format!("{}{:?}", plan.base, plan.key.as_ref().map(|(name, _)| name));
            let inner = Arc::new(api::Api::new(plan));
            Ok(match (around.slots, spec.slots) {
                (Some(folder), Some(slots)) => Arc::new(Slotted {
                    inner,
                    folder: folder.to_owned(),
                    login: format!("{}-{}", spec.kind, short(login.as_bytes())),
                    slots,
                }),
                _ => inner,
            })
        }
        other => {
            let hint = nearest(other, KINDS).map(|kind| format!("; did you mean {kind:?}?"));
            let known = KINDS.join(", ");
            Err(rejected(format!(
                "unknown kind {other:?}{} (known: {known})",
                hint.unwrap_or_default()
            )))
        }
    }
}

/// Replaces a leading `~` in a path with the home folder.
pub(crate) fn at_home(path: &Path, env: &BTreeMap<String, String>) -> PathBuf {
    match (path.strip_prefix("~"), env.get("HOME")) {
        (Ok(below), Some(home)) => Path::new(home).join(below),
        _ => path.to_owned(),
    }
}

/// Returns the environment for a child of the backend `spec`, and the names in `spec.env` that are
/// unset.
pub(crate) fn given(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
) -> Result<(BTreeMap<String, String>, Vec<String>), BackendError> {
    let from_file = match &spec.env_file {
        Some(path) => credentials::from_file(&at_home(path, around.env))?,
        None => BTreeMap::new(),
    };
    let wanted = ORDINARY.into_iter().chain(spec.variables());
    let mut env: BTreeMap<String, String> =
        wanted.filter_map(|name| Some((name.to_owned(), around.env.get(name)?.clone()))).collect();
    env.extend(from_file);
    let missing = spec.env.iter().filter(|name| !env.contains_key(*name));
    let missing = missing.cloned().collect();
    Ok((env, missing))
}

pub(crate) fn agent_plan(
    spec: &BackendSpec,
    kind: &'static str,
    program: PathBuf,
    around: &Surroundings<'_>,
) -> Result<agent::AgentPlan, BackendError> {
    let (env, missing) = given(spec, around)?;
    let mut plan = agent::AgentPlan {
        name: spec.name.clone(),
        kind,
        model: spec.model.clone(),
        program,
        args: spec.args.clone(),
        env,
        missing,
        named: spec.env.clone(),
        state: (spec.state.as_deref()).map(|path| at_home(path, around.env)),
        sessions: spec.sessions,
        tools: spec.tools.clone(),
        max_turns: spec.max_turns,
        fallback_model: spec.fallback_model.clone(),
        quiet: spec.quiet,
        patience: spec.patience,
        sandbox_start: around.sandbox_start.cloned(),
        output_cap: spec.output_cap.unwrap_or(OUTPUT_CAP),
        clock: around.clock.clone(),
        held: LastSandbox::default(),
    };
    if plan.is_sandboxed() {
        plan.state = credentials::home(&plan);
    }
    Ok(plan)
}

/// Returns a short name for `what`: the first sixteen hexadecimal digits of its digest.
fn short(what: &[u8]) -> String {
    let digest = Digest::of(what).to_string();
    let digits = digest.chars().filter(char::is_ascii_hexdigit);
    digits.take(16).collect()
}

/// Wraps a backend so that its requests wait for a free slot.
fn slotted(
    spec: &BackendSpec,
    plan: &agent::AgentPlan,
    inner: impl Backend + 'static,
    around: &Surroundings<'_>,
) -> Arc<dyn Backend> {
    let inner = Arc::new(inner);
    let Some(folder) = around.slots else {
        return inner;
    };
    let home = credentials::home(plan).unwrap_or_default();
    let short = short(home.as_os_str().as_encoded_bytes());
    Arc::new(Slotted {
        inner,
        folder: folder.to_owned(),
        login: format!("{}-{short}", plan.kind),
        slots: spec.slots.unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Surroundings<'_> = Surroundings {
        env: &BTreeMap::new(),
        sandbox_start: None,
        slots: None,
        clock: &Clock::Host,
    };

    fn why(spec: &BackendSpec) -> String {
        match build(spec, &NOWHERE) {
            Ok(backend) => panic!("built {:?}", backend.describe()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn unknown_kind_suggests_the_nearest() {
        let spec = |kind: &str| BackendSpec { kind: kind.into(), ..BackendSpec::default() };
        assert!(why(&spec("comand")).contains("did you mean \"command\"?"));
        assert!(why(&spec("built-in")).contains("did you mean \"builtin\"?"));
        let far = why(&spec("xyzzy"));
        assert!(
            far.contains(
                "known: builtin, command, claude, codex, anthropic, openai, ollama, replay"
            ) && !far.contains("mean"),
            "{far}"
        );
    }

    #[test]
    fn invalid_program_and_artifact_are_refused() {
        let spec = |program: &str, artifact: &str| BackendSpec {
            kind: "command".into(),
            program: Some(program.into()),
            artifact: Some(artifact.into()),
            ..BackendSpec::default()
        };
        assert!(why(&spec("", "a")).contains("needs a program"));
        assert!(why(&spec("bin/x", "a")).contains("neither a name nor an absolute path"));
        for artifact in ["", "..", ".", "a/b", "/a", "a/"] {
            assert!(why(&spec("x", artifact)).contains("plain file name"), "{artifact:?}");
        }
        let reserved = why(&spec("x", "request.json"));
        assert!(reserved.contains("request"), "{reserved}");
        assert!(build(&spec("x", "answer.json"), &NOWHERE).is_ok());
    }
}
