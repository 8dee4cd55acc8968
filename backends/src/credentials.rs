//! Checks whether a program can log in, without contacting a provider, and reads keys from an
//! `env_file`.
//!
//! A key comes from the environment, from the program's own login, or from an `env_file` that only
//! its owner may access. The check does not show whether a key is valid. This module must never put
//! a key into a message or write a key anywhere.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::agent::AgentPlan;
use crate::error::BackendError;
use crate::spec::{BackendKind, BackendSpec, Provider, at_home};
use runner_engine::files::{open_host, read_host};
use runner_text::shell_word;

/// Prefix of a keyring reference, which a setting may contain instead of the name of a variable.
/// The caller resolves the reference and passes the secret in the environment, with the complete
/// reference as its name.
pub const KEYRING: &str = "keyring:";

/// Returns the environment key that stores the reason a reference was not resolved. The key is not
/// a valid variable name.
pub fn why_not(reference: &str) -> String {
    format!("{reference} is unavailable because")
}

/// Returns the name in a keyring reference, or `None` if the text is not a keyring reference.
///
/// # Errors
/// Returns an error if the name is empty, has more than 100 characters, or has a character other
/// than ASCII letters, digits, `-`, `_`, `.` and `/`. Such a name may be the secret itself.
pub fn in_keyring(reference: &str) -> Option<Result<&str, &'static str>> {
    let name = reference.strip_prefix(KEYRING)?;
    let good = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '/');
    Some(match !name.is_empty() && name.len() <= 100 && name.chars().all(good) {
        true => Ok(name),
        false => Err(
            "`keyring:` must be followed by the name of a secret (letters, digits, - _ . /), never the secret itself",
        ),
    })
}

/// Maximum size in bytes of an `env_file` or a login file.
const LARGEST: u64 = 1024 * 1024;

/// Variables that may contain a program's key.
const KEYS: [(&str, &[&str]); 2] = [
    ("claude", &["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]),
    ("codex", &["CODEX_API_KEY", "OPENAI_API_KEY"]),
];

/// Variables that an agent or API backend receives unless its configuration sets `env`. They
/// contain locations and proxies rather than keys.
const PLACES: [&str; 11] = [
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
];

/// Returns whether a variable contains a location or a proxy rather than a key.
pub fn is_place(name: &str) -> bool {
    PLACES.contains(&name)
}

/// Returns the variables that a backend of this kind receives by default: the keys of an agent, and
/// the locations and proxies of an agent or an API. The key of an API is not among them.
pub(crate) fn usual(kind: &BackendKind) -> impl Iterator<Item = &'static str> + use<> {
    let (keys, places) = match kind {
        BackendKind::Agent(agent, ..) => (keys(agent.name()), &PLACES[..]),
        BackendKind::Api(..) => (&[][..], &PLACES[..]),
        BackendKind::Builtin | BackendKind::Command(..) | BackendKind::Replay(_) => {
            (&[][..], &[][..])
        }
    };
    keys.iter().chain(places).copied()
}

/// Returns the variables that may contain the key of the agent of this kind.
fn keys(agent: &str) -> &'static [&'static str] {
    KEYS.iter().find(|(name, _)| *name == agent).map_or(&[], |(_, keys)| keys)
}

/// Returns the variable that usually contains the key of the provider's API.
fn usual_key(provider: &Provider) -> Option<&'static str> {
    match provider {
        Provider::Anthropic(_) => Some("ANTHROPIC_API_KEY"),
        Provider::Openai(_) => Some("OPENAI_API_KEY"),
        Provider::Ollama(_) => None,
    }
}

impl BackendSpec {
    /// Returns the name of the variable whose value an API receives as its key, or `None` if the
    /// backend is not an API or no key is sent.
    pub fn endpoint_key(&self) -> Option<&str> {
        let BackendKind::Api(provider, settings) = &self.kind else { return None };
        match (&settings.key, &settings.base_url) {
            (Some(name), _) => Some(name),
            (None, None) => usual_key(provider),
            (None, Some(_)) => None,
        }
    }

    /// Returns the variables that the backend receives, if they are set, in addition to the
    /// ordinary ones.
    pub fn variables<'s>(&'s self) -> impl Iterator<Item = &'s str> {
        let named = self.kind.env();
        let own = named.unwrap_or_default().iter().map(String::as_str);
        let own = own.chain(self.endpoint_key());
        let usual = named.is_none().then(|| usual(&self.kind));
        own.chain(usual.into_iter().flatten().map(|name| -> &'s str { name }))
    }

    /// Returns the values that must not be shown. These are the values of the backend's
    /// [`variables`](Self::variables) and the values in its `env_file`, except locations and
    /// proxies.
    ///
    /// # Errors
    /// Returns an error if the `env_file` cannot be used.
    pub fn secrets(&self, around: &BTreeMap<String, String>) -> Result<Vec<String>, BackendError> {
        let named = self.variables().filter(|name| !is_place(name));
        let mut secrets: Vec<String> = named.filter_map(|name| around.get(name).cloned()).collect();
        if let Some(path) = self.env_file(around) {
            let file = from_file(&path)?.into_iter();
            secrets.extend(file.filter_map(|(name, value)| (!is_place(&name)).then_some(value)));
        }
        secrets.retain(|value| !value.is_empty());
        Ok(secrets)
    }

    /// Returns the path of the login in the agent's `state` folder, or `None` if no `state` is set.
    pub fn own_login(&self, env: &BTreeMap<String, String>) -> Option<PathBuf> {
        let BackendKind::Agent(kind, agent, _) = &self.kind else { return None };
        let state = at_home(agent.state.as_deref()?, env);
        Some(state.join(login_file(kind.name())))
    }

    /// Returns the path of the backend's `env_file`, which may contain keys.
    pub fn env_file(&self, env: &BTreeMap<String, String>) -> Option<PathBuf> {
        self.kind.env_file().map(|path| at_home(path, env))
    }
}

/// Returns the command that installs a program of this kind, or advice for an unknown kind.
pub(crate) fn install(kind: &str) -> &'static str {
    match kind {
        "claude" => "npm install -g @anthropic-ai/claude-code",
        "codex" => "npm install -g @openai/codex",
        _ => "install it, or give its path in `program`",
    }
}

/// Returns the name of the login file in the state folder of an agent of this kind.
pub fn login_file(kind: &str) -> &'static str {
    match kind {
        "claude" => ".credentials.json",
        _ => "auth.json",
    }
}

/// Describes the credentials with which an agent can log in.
///
/// # Errors
/// Returns [`BackendError::NotLoggedIn`], with a hint, if no usable credentials were found.
pub(crate) fn plausible(plan: &AgentPlan) -> Result<String, BackendError> {
    let keys = keys(plan.kind);
    let own = plan.settings.env.iter().flatten().map(String::as_str);
    let own = own.filter(|name| !is_place(name));
    let set = |name: &&str| plan.env.get(*name).is_some_and(|value| !value.is_empty());
    if let Some(name) = keys.iter().copied().chain(own).find(set) {
        return Ok(format!("{name} is set"));
    }
    let good: fn(&Value) -> bool = match plan.kind {
        "claude" => |login| text(&login["claudeAiOauth"]["accessToken"]),
        _ => |login| text(&login["OPENAI_API_KEY"]) || text(&login["tokens"]["access_token"]),
    };
    let hint = match plan.kind {
        "claude" => {
            "log in with `claude`, or set CLAUDE_CODE_OAUTH_TOKEN (`claude setup-token`) or ANTHROPIC_API_KEY"
        }
        _ => "log in with `codex login`, or set CODEX_API_KEY",
    };
    let Some(state) = home(plan) else {
        let why = format!("HOME is not set, so no login can be found; {hint}");
        return Err(BackendError::NotLoggedIn { why });
    };
    let path = state.join(login_file(plan.kind));
    let why = match read(&path) {
        Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
            Ok(login) if good(&login) => return Ok(format!("login in {}", path.display())),
            Ok(_) => format!("{} contains no login", path.display()),
            Err(_) => format!("{} is not JSON", path.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("the environment contains no key, and there is no {}", path.display())
        }
        Err(error) => format!("{} cannot be read: {error}", path.display()),
    };
    Err(BackendError::NotLoggedIn { why: format!("{why}; {hint}") })
}

/// Returns the agent's state folder, or `None` if neither the configuration nor the environment
/// determines it.
pub(crate) fn home(plan: &AgentPlan) -> Option<PathBuf> {
    plan.state.clone().or_else(|| home_in(plan.kind, &plan.env))
}

/// Returns the folder that an agent of this kind uses in an environment: the absolute path in the
/// agent's variable, or else the agent's default folder in the home folder.
pub fn home_in(kind: &str, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let (variable, usual) = match kind {
        "claude" => ("CLAUDE_CONFIG_DIR", ".claude"),
        _ => ("CODEX_HOME", ".codex"),
    };
    let set = |name: &str| env.get(name).map(Path::new).filter(|path| path.is_absolute());
    let named = set(variable).map(Path::to_owned);
    named.or_else(|| Some(set("HOME")?.join(usual)))
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    read_host(path, LARGEST)
}

/// Reads the variables from an `env_file`, which has lines of the form `NAME=VALUE`, optionally
/// after `export`. Empty lines and lines that start with `#` are skipped, quotes around a value are
/// removed, and nothing is expanded.
///
/// # Errors
/// Returns [`BackendError::NotLoggedIn`] if the file cannot be read or is too large, if other users
/// can access it, or if a line is not a variable assignment. The message does not contain the line.
pub fn from_file(path: &Path) -> Result<BTreeMap<String, String>, BackendError> {
    let shown = path.display();
    let bad = |why: String| BackendError::NotLoggedIn { why };
    let mut file = open_host(path).map_err(|error| bad(format!("cannot read {shown}: {error}")))?;
    let meta = file.metadata().map_err(|error| bad(format!("cannot inspect {shown}: {error}")))?;
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(bad(format!(
            "{shown} contains keys, and other users can access it (mode {mode:o}): run `chmod 600 {}`",
            shell_word(&shown)
        )));
    }
    if meta.len() > LARGEST {
        return Err(bad(format!("{shown} is larger than {LARGEST} bytes")));
    }
    let mut whole = String::new();
    file.read_to_string(&mut whole)
        .map_err(|error| bad(format!("cannot read {shown}: {error}")))?;
    let mut variables = BTreeMap::new();
    for (at, line) in whole.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let plain = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match line.split_once('=') {
            Some((name, value)) if plain(name.trim_end()) && !value.contains('\0') => {
                let value = value.trim();
                let quoted = ['"', '\'']
                    .into_iter()
                    .find_map(|mark| value.strip_prefix(mark)?.strip_suffix(mark));
                let value = quoted.unwrap_or(value);
                variables.insert(name.trim_end().to_owned(), value.to_owned());
            }
            _ => {
                let line = at + 1;
                return Err(bad(format!("{shown}:{line}: expected NAME=VALUE")));
            }
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn key_file_must_be_private() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("keys");
        let put = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            from_file(&path)
        };
        let good = put("# mine\n\nexport A = \"x y\"\nB='z'\nC=d=e\n", 0o600).unwrap();
        let good: Vec<_> = good.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(good, [("A", "x y"), ("B", "z"), ("C", "d=e")]);
        for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
            let error = put("A=canary", mode).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
            assert!(matches!(error, BackendError::NotLoggedIn { .. }));
        }
        for text in
            ["canary", "=canary", "A B=canary", "1A=canary", "A=ca\0nary", "A=canary\nü=canary"]
        {
            let error = put(text, 0o600).unwrap_err().to_string();
            assert!(error.contains("NAME=VALUE") && !error.contains("canary"), "{error}");
        }
        assert!(from_file(place.path()).is_err());
        assert!(from_file(&place.path().join("absent")).is_err());
    }
}
