//! Reads an agent's position in its cycle from small files below `.runner/`. Only a publication
//! changes these files.
//!
//! ```text
//! .runner/lifecycle-pos                    wake_add 2            the state, and its successful runs
//! .runner/lifecycle-ran-rem                1782442720            the time of its last successful run
//! .runner/agents/NAME/lifecycle-pos        the same for a named agent
//! ```
//!
//! These files are the only record of the position. This module must never guess a position: an
//! invalid file stops the cycle.

use std::fmt;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::scope::{Scope, ScopeError};
use serde::{Deserialize, Serialize};

use super::spec::{CycleState, Spec};

/// Maximum size of a position file, in bytes.
const LONGEST: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub state: String,
    /// Number of successful runs since the state was entered.
    pub hits: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.state, self.hits)
    }
}

impl Position {
    /// Returns the position at the beginning of a state.
    pub fn at(state: &str) -> Self {
        Self { state: state.to_owned(), hits: 0 }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (state, hits) = (words.next()?, words.next());
        let hits = hits.map_or(Some(0), |hits| hits.parse().ok())?;
        words.next().is_none().then(|| Self { state: state.to_owned(), hits })
    }

    /// Returns the position after a successful run of `state`.
    #[must_use]
    pub fn after(&self, state: &CycleState) -> Self {
        let hits = self.hits.saturating_add(1);
        if hits < state.repeat {
            Self { state: state.name.clone(), hits }
        } else {
            Self::at(&state.next)
        }
    }
}

/// Why a position cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadPosition {
    /// The file is not a small regular file, or does not contain a valid position or time.
    #[error("{path} has invalid content: {text:?}")]
    Malformed { path: String, text: String },
    /// The cycle does not have this state.
    #[error("{path} names the state {state:?}, which the cycle does not have")]
    Unknown { path: String, state: String },
    #[error("cannot read {path}")]
    Io { path: String, source: io::Error },
}

/// Returns the folder of an agent's files, relative to the project.
pub fn folder(agent: &str) -> String {
    if agent.is_empty() { ".runner".to_owned() } else { format!(".runner/agents/{agent}") }
}

/// Returns the path of an agent's position file.
pub fn path(agent: &str) -> String {
    format!("{}/lifecycle-pos", folder(agent))
}

/// Returns the path of the file that records when a state last ran successfully.
pub fn ran_path(agent: &str, state: &str) -> String {
    format!("{}/lifecycle-ran-{state}", folder(agent))
}

/// Returns the command that moves an agent to a state.
pub fn reset(agent: &str, state: &str) -> String {
    match agent {
        "" => format!("runner lifecycle goto {state}"),
        agent => format!("runner lifecycle goto {state} --agent {agent}"),
    }
}

/// Reads an agent's position. Without a file, the agent is at the beginning of the cycle.
///
/// # Errors
/// Returns [`BadPosition`] if the file cannot be used.
pub fn read(root: &Path, agent: &str, spec: &Spec) -> Result<Position, BadPosition> {
    read_in(&open(root, &path(agent))?, agent, spec)
}

/// Reads an agent's position through a scope.
///
/// # Errors
/// Returns [`BadPosition`] if the file cannot be used.
pub fn read_in(scope: &Scope, agent: &str, spec: &Spec) -> Result<Position, BadPosition> {
    let path = path(agent);
    let Some(text) = small(scope, &path)? else {
        return Ok(Position::at(&spec.first().name));
    };
    let Some(position) = Position::parse(&text) else {
        let text = text.chars().take(80).collect();
        return Err(BadPosition::Malformed { path, text });
    };
    if spec.state(&position.state).is_none() {
        let state = position.state;
        return Err(BadPosition::Unknown { path, state });
    }
    Ok(position)
}

/// Returns the time of a state's last successful run, or `None` if there was none.
///
/// # Errors
/// Returns [`BadPosition`] if the file cannot be used.
pub fn ran(root: &Path, agent: &str, state: &str) -> Result<Option<Timestamp>, BadPosition> {
    ran_in(&open(root, &ran_path(agent, state))?, agent, state)
}

/// Returns the time of a state's last successful run, read through an open scope, or `None` if
/// there was none.
///
/// # Errors
/// Returns [`BadPosition`] if the file cannot be used.
pub fn ran_in(scope: &Scope, agent: &str, state: &str) -> Result<Option<Timestamp>, BadPosition> {
    let path = ran_path(agent, state);
    let Some(text) = small(scope, &path)? else {
        return Ok(None);
    };
    let at = text.trim().parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.map(Some)
        .ok_or_else(|| BadPosition::Malformed { path, text: text.chars().take(80).collect() })
}

/// Opens a project read-only.
fn open(root: &Path, path: &str) -> Result<Scope, BadPosition> {
    Scope::open(root, &[], ".runner/staging/look").map_err(|error| cannot(path, &error))
}

fn cannot(path: &str, error: &ScopeError) -> BadPosition {
    BadPosition::Io { path: path.to_owned(), source: io::Error::other(whole(error)) }
}

/// Reads a regular file of at most [`LONGEST`] bytes, or returns `None` if the file does not exist.
fn small(scope: &Scope, path: &str) -> Result<Option<String>, BadPosition> {
    match scope.inspect(path, LONGEST) {
        Ok(found) => Ok(found.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned())),
        Err(ScopeError::NotAFile { .. } | ScopeError::TooLong { .. }) => {
            let text = "(not a small regular file)".to_owned();
            let path = path.to_owned();
            Err(BadPosition::Malformed { path, text })
        }
        Err(error) => Err(cannot(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{DEFAULT, parse};
    use super::*;
    use runner_text::org::BoardForm;

    #[test]
    fn cycle_repeats_states_and_returns_to_start() {
        let spec = parse(DEFAULT, BoardForm::Org).unwrap();
        let mut at = Position::at("wake_add");
        let mut way = Vec::new();
        for _ in 0..7 {
            way.push(at.to_string());
            at = at.after(spec.state(&at.state).unwrap());
        }
        assert_eq!(
            way,
            [
                "wake_add 0",
                "wake_add 1",
                "wake_add 2",
                "wake_audit 0",
                "rem 0",
                "wake_plan 0",
                "wake_add 0"
            ]
        );
    }

    #[test]
    fn invalid_positions_are_refused() {
        let spec = parse(DEFAULT, BoardForm::Org).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(read(root, "", &spec).unwrap(), Position::at("wake_add"));
        std::fs::create_dir_all(root.join(".runner/agents/two")).unwrap();
        let at = root.join(path("two"));
        for (text, good) in [
            ("rem 0\n", true),
            ("rem\n", true),
            ("", false),
            ("rem x", false),
            ("rem 1 2", false),
            ("gone 0", false),
        ] {
            std::fs::write(&at, text).unwrap();
            assert_eq!(read(root, "two", &spec).is_ok(), good, "{text:?}");
        }
        std::fs::remove_file(&at).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &at).unwrap();
        assert!(read(root, "two", &spec).is_err());
        assert_eq!(ran(root, "two", "rem").unwrap(), None);
        std::fs::write(root.join(ran_path("two", "rem")), "60\n").unwrap();
        let at = Timestamp::from_second(60).unwrap();
        assert_eq!(ran(root, "two", "rem").unwrap(), Some(at));
    }
}
