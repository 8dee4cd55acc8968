//! The newest entry of an agent's journal, found by its manifest; the folder is never listed.

use std::path::Path;

use runner_engine::scope::Scope;
use serde_json::Value;

use super::entry::{self, Entry};

/// The folder of all journals.
pub const FOLDER: &str = "rem";
/// The longest manifest that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Why there is no newest entry to be had.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct NoEntry {
    /// The file, below the project.
    pub path: String,
    /// Why.
    pub why: String,
}

/// The journal of an agent, below the project.
pub fn folder(agent: &str) -> String {
    if agent.is_empty() {
        FOLDER.to_owned()
    } else {
        format!("{FOLDER}/{agent}")
    }
}

/// The newest entry with its path; `None` where nobody has dreamt yet.
///
/// # Errors
/// The manifest or the entry is there and is none.
pub fn newest(root: &Path, agent: &str) -> Result<Option<(String, Entry)>, NoEntry> {
    let folder = folder(agent);
    let manifest = format!("{folder}/manifest.json");
    let bad = |path: &str, why: String| NoEntry {
        path: path.to_owned(),
        why,
    };
    let scope = Scope::open(root, &[], ".runner/staging/look")
        .map_err(|error| bad(&manifest, error.to_string()))?;
    let look = |path: &str, most: u64| {
        let found = scope.look(path, most);
        found.map_err(|error| bad(path, error.to_string()))
    };
    let Some((bytes, _)) = look(&manifest, LONGEST)? else {
        return Ok(None);
    };
    let said: Value =
        serde_json::from_slice(&bytes).map_err(|error| bad(&manifest, error.to_string()))?;
    let Some(entries) = said.get("entries").and_then(Value::as_array) else {
        return Err(bad(&manifest, "it has no \"entries\"".to_owned()));
    };
    let Some(first) = entries.first() else {
        return Ok(None);
    };
    let name = ["file", "path", "id"]
        .iter()
        .find_map(|key| first.get(key))
        .unwrap_or(first);
    let name = name.as_str().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let id = name.strip_suffix(".org").unwrap_or(name);
    let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !plain {
        let why = format!("its newest entry has no name of an entry: {first}");
        return Err(bad(&manifest, why));
    }
    let path = format!("{folder}/{id}.org");
    let Some((bytes, _)) = look(&path, entry::LARGEST as u64)? else {
        let why = format!("{manifest} names it, and it is not there");
        return Err(bad(&path, why));
    };
    let text = String::from_utf8(bytes).map_err(|_| bad(&path, "it is not UTF-8".to_owned()))?;
    let read = entry::parse(id, &text).map_err(|error| bad(&path, error.to_string()))?;
    Ok(Some((path, read)))
}
