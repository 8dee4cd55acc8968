//! The `[lifecycle]` section, and the settings checks shared by the lifecycle's kinds.

use runner_engine::publish::RelPath;
use runner_text::grammar;
use runner_text::values::{Text, read_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manifest::is_agent_name;
use crate::reserved::{self, NEVER, reserved};

/// The settings for the lifecycle's files and commits in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// The file that records the tools that agents used. Its name must begin with an underscore.
    #[serde(deserialize_with = "read_text::<PrivateFile, _>")]
    #[schemars(with = "Text<PrivateFile>")]
    pub steps: String,
    /// The daydreams file.
    #[serde(deserialize_with = "read_text::<ProjectFile, _>")]
    #[schemars(with = "Text<ProjectFile>")]
    pub daydreams: String,
    /// Whether a journal entry is committed after it is published.
    pub commit: bool,
    /// Whether that commit is pushed.
    pub push: bool,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            steps: crate::steps::FILE.to_owned(),
            daydreams: "daydreams.json".to_owned(),
            commit: false,
            push: false,
        }
    }
}

grammar! {
    /// A path in the project, outside the reserved places.
    ProjectFile: String, "", "", of_project;
    /// A path whose name begins with an underscore, which keeps it out of every page and commit.
    PrivateFile: String, "_steps.jsonl", "", private;
}

fn of_project(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    match reserved(text, &NEVER) {
        Some(never) => Err(format!("{text:?} is inside {never}, where this file is not allowed")),
        None => Ok(text.to_owned()),
    }
}

fn private(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    let name = text.rsplit('/').next().unwrap_or(text);
    if let Some(never) = reserved(text, &[".git"]) {
        return Err(format!("{text:?} is inside {never}, where this file is not allowed"));
    }
    if !name.starts_with('_') {
        return Err(format!("{text:?}: the name must begin with an underscore"));
    }
    Ok(text.to_owned())
}

/// Maximum length of an agent's name in the settings, in characters.
const LONGEST_NAME: usize = 40;

/// Checks an agent's name, its board and the paths that it may write.
pub(super) fn check(
    agent: &str,
    board: &str,
    writes: Option<&[String]>,
) -> Result<(), (&'static str, String)> {
    // The name becomes a folder name, and some file systems ignore case.
    let is_short = agent.len() <= LONGEST_NAME && !agent.contains(|c: char| c.is_ascii_uppercase());
    let is_valid = agent.is_empty() || (is_short && is_agent_name(agent));
    if !is_valid {
        let why = format!(
            "{agent:?} is not a valid agent name (lowercase letters, digits, - and _, not beginning \
             with _, at most {LONGEST_NAME} characters)"
        );
        return Err(("agent", why));
    }
    RelPath::new(board).map_err(|error| ("board", error.to_string()))?;
    if let Some(never) = reserved(board, &NEVER) {
        return Err(("board", format!("{board:?}: a board cannot be in {never}")));
    }
    reserved::writes(writes).map_err(|why| ("writes", why))
}
