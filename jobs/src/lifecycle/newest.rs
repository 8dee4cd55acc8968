//! Finds the newest entry of an agent's journal through its manifest. The folder is never listed.

use std::path::Path;

use runner_engine::scope::Scope;

use super::entry::Entry;
use super::manifest;
use crate::JobError;

/// Returns the folder of an agent's journal, relative to the project.
pub fn folder(agent: &str) -> String {
    manifest::folder(Some(agent).filter(|agent| !agent.is_empty()))
}

/// Returns the newest entry with its path, or `None` if there is no entry yet.
///
/// # Errors
/// Returns an error if the manifest or the entry exists but is not valid.
pub fn newest(root: &Path, agent: &str) -> Result<Option<(String, Entry)>, JobError> {
    newest_in(&Scope::open(root, &[], ".runner/staging/look")?, agent)
}

/// Returns the newest entry through a scope.
///
/// # Errors
/// Returns the same errors as [`newest`].
pub fn newest_in(scope: &Scope, agent: &str) -> Result<Option<(String, Entry)>, JobError> {
    let folder = folder(agent);
    let listed = manifest::read(scope, &folder)?.manifest.entries;
    let Some(listed) = listed.first() else {
        return Ok(None);
    };
    let (entry, _) = manifest::entry_of(scope, &folder, listed)?;
    Ok(Some((format!("{folder}/{}", listed.file), entry)))
}
