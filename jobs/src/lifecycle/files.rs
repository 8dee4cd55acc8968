//! The `[lifecycle]` section: the locations of the lifecycle's files in a project, and whether
//! entries are committed.

use runner_engine::publish::RelPath;
use runner_text::grammar;
use runner_text::values::{Text, read_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reserved::{NEVER, reserved};

/// The settings for the lifecycle's files and commits in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// The record of the tools that agents used; its name begins with an underscore.
    #[serde(deserialize_with = "read_text::<PrivateFile, _>")]
    #[schemars(with = "Text<PrivateFile>")]
    pub steps: String,
    /// The file with the daydreams.
    #[serde(deserialize_with = "read_text::<ProjectFile, _>")]
    #[schemars(with = "Text<ProjectFile>")]
    pub daydreams: String,
    /// Whether an entry is committed once it is published.
    pub commit: bool,
    /// Whether the commit is pushed.
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
    /// A path in the project and in none of the reserved places.
    ProjectFile: String, "", "", of_project;
    /// A path whose name begins with an underscore, which keeps it out of every page and commit.
    PrivateFile: String, "_steps.jsonl", "", private;
}

fn of_project(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    match reserved(text, &NEVER) {
        Some(never) => Err(format!("{text:?} lies in {never}, which is not its place")),
        None => Ok(text.to_owned()),
    }
}

fn private(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    let name = text.rsplit('/').next().unwrap_or(text);
    if !name.starts_with('_') || reserved(text, &[".git"]).is_some() {
        return Err(format!("{text:?}: its name must begin with an underscore"));
    }
    Ok(text.to_owned())
}
