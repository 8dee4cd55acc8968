//! The newest entry of an agent's journal, found by its manifest; the folder is never listed.

use std::path::Path;

use runner_engine::scope::Scope;

use super::entry::Entry;
use super::manifest;
use crate::JobError;

/// The journal of an agent, below the project.
pub fn folder(agent: &str) -> String {
    manifest::folder(Some(agent).filter(|agent| !agent.is_empty()))
}

/// The newest entry with its path; `None` where nobody has dreamt yet.
///
/// # Errors
/// The manifest or the entry is there and is none.
pub fn newest(root: &Path, agent: &str) -> Result<Option<(String, Entry)>, JobError> {
    newest_in(&Scope::open(root, &[], ".runner/staging/look")?, agent)
}

/// The same through a scope.
///
/// # Errors
/// Those of [`newest`].
pub fn newest_in(scope: &Scope, agent: &str) -> Result<Option<(String, Entry)>, JobError> {
    let folder = folder(agent);
    let listed = manifest::read(scope, &folder)?.manifest.entries;
    let Some(listed) = listed.first() else {
        return Ok(None);
    };
    let (entry, _) = manifest::entry_of(scope, &folder, listed)?;
    Ok(Some((format!("{folder}/{}", listed.file), entry)))
}
