//! Reads and writes `rem/manifest.json`, the list of entries, newest first. Readers use this list
//! and never list the folder.
//!
//! This module must never accept a manifest that lists a file outside its folder.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use jiff::fmt::strtime::parse as parse_time;
use jiff::tz::TimeZone;
use runner_engine::digest::Digest;
use runner_engine::outcome::Class;
use runner_engine::scope::{Expect, Scope};
use runner_text::shell_word;
use serde::{Deserialize, Serialize};

use super::entry::{self, Entry};
use crate::JobError;
use crate::json::pretty;

/// The folder of the default agent's entries. Each named agent has a subfolder with its name.
pub const FOLDER: &str = "rem";
pub const FILE: &str = "manifest.json";
/// Maximum number of entries in the list.
pub const MOST: usize = 50;
/// Maximum size of a manifest, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// Returns the folder of an agent's entries, relative to the project.
pub fn folder(agent: Option<&str>) -> String {
    match agent {
        None => FOLDER.to_owned(),
        Some(agent) => format!("{FOLDER}/{agent}"),
    }
}

/// Returns whether `name` is a valid agent name. A folder with a valid name is neither hidden nor
/// private.
pub fn is_agent_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with('_')
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The entries, newest first.
    pub entries: Vec<Listed>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ListedForm")]
pub struct Listed {
    /// The name of the entry's file in the manifest's folder.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Timestamp>,
    /// The model that wrote the entry, or [`entry::BY_RULE`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The first line of the entry's tale.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
    /// The hash of the commit that was checked out when the entry was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The digest of the board when the entry was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
}

/// The forms that an entry can take in the list. An entry may be listed by its file name alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListedForm {
    Name(String),
    Whole {
        file: String,
        ts: Option<Timestamp>,
        #[serde(default)]
        model: String,
        #[serde(default)]
        line: String,
        head: Option<String>,
        board: Option<String>,
    },
}

impl From<ListedForm> for Listed {
    fn from(written: ListedForm) -> Self {
        match written {
            ListedForm::Name(file) => {
                Self { ts: time_of(id_of(&file).unwrap_or_default()), file, ..Self::default() }
            }
            ListedForm::Whole { file, ts, model, line, head, board } => Self {
                ts: ts.or_else(|| time_of(id_of(&file).unwrap_or_default())),
                file,
                model,
                line,
                head,
                board,
            },
        }
    }
}

/// A manifest and the content that its file must still have at publication.
#[derive(Clone, Debug)]
pub struct ReadManifest {
    pub manifest: Manifest,
    pub expect: Expect,
}

/// Returns the id in an entry's file name, or `None` if `file` is not such a name.
pub fn id_of(file: &str) -> Option<&str> {
    let id = file.strip_suffix(".org")?;
    let shape = |form: &str| {
        id.len() == form.len()
            && id.bytes().zip(form.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            })
    };
    (shape("0000-00-00-0000") || shape("0000-00-00-000000")).then_some(id)
}

/// Returns the UTC time that an id encodes, or `None` if the id encodes none.
pub fn time_of(id: &str) -> Option<Timestamp> {
    let form = match id.len() {
        15 => "%Y-%m-%d-%H%M",
        17 => "%Y-%m-%d-%H%M%S",
        _ => return None,
    };
    let civil = parse_time(form, id).ok()?.to_datetime().ok()?;
    civil.to_zoned(TimeZone::UTC).ok().map(|it| it.timestamp())
}

/// Reads a folder's manifest. A missing file yields an empty list.
///
/// # Errors
/// Returns an error if the file exists but cannot be read or is not a valid manifest.
pub fn read(scope: &Scope, folder: &str) -> Result<ReadManifest, JobError> {
    let path = format!("{folder}/{FILE}");
    let Some((bytes, _)) = scope.inspect(&path, LARGEST)? else {
        return Ok(ReadManifest { manifest: Manifest::default(), expect: Expect::Absent });
    };
    let manifest = parse(&bytes).map_err(|why| {
        let hint = format!(
            "fix it, or move it away with `mv {0} {0}.old` to start a new list",
            shell_word(&path)
        );
        JobError::failed(Class::Environment, format!("{path}: {why}; {hint}"))
    })?;
    Ok(ReadManifest { manifest, expect: Expect::Digest(Digest::of(&bytes)) })
}

/// Parses a manifest.
///
/// # Errors
/// Returns the reason if the text is not a valid manifest.
pub fn parse(bytes: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest =
        serde_json::from_slice(bytes).map_err(|error| format!("not a manifest: {error}"))?;
    match manifest.entries.iter().find(|it| id_of(&it.file).is_none()) {
        Some(odd) => Err(format!("{:?} is not the name of an entry", odd.file)),
        None => Ok(manifest),
    }
}

/// Reads an entry listed in the manifest, with its text.
///
/// # Errors
/// Returns an error if the entry does not exist, cannot be read, or is not a valid entry.
pub fn entry_of(scope: &Scope, folder: &str, listed: &Listed) -> Result<(Entry, String), JobError> {
    let path = format!("{folder}/{}", listed.file);
    let bytes = scope.read(&path, entry::LARGEST as u64)?;
    let bad = |why: String| JobError::failed(Class::Malformed, format!("{path}: {why}"));
    let text = String::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
    let id = id_of(&listed.file).ok_or_else(|| bad("not the name of an entry".to_owned()))?;
    let entry = entry::parse(id, &text).map_err(|error| bad(error.to_string()))?;
    Ok((entry, text))
}

impl Manifest {
    /// Returns the manifest with `newest` added as the first entry, limited to [`MOST`] entries.
    #[must_use]
    pub fn with(&self, newest: Listed) -> Self {
        let others = self.entries.iter().filter(|it| it.file != newest.file);
        let entries = std::iter::once(newest.clone()).chain(others.cloned());
        Self { entries: entries.take(MOST).collect() }
    }

    /// Returns the text of the manifest's file.
    pub fn text(&self) -> String {
        pretty(self)
    }
}

/// Returns a new entry's id: the time to the minute or, if that id is taken, to the next free
/// second.
pub fn new_id(now: Timestamp, taken: impl Fn(&str) -> bool) -> String {
    let minute = now.strftime("%Y-%m-%d-%H%M").to_string();
    if !taken(&minute) {
        return minute;
    }
    let mut at = now;
    loop {
        let second = at.strftime("%Y-%m-%d-%H%M%S").to_string();
        if !taken(&second) {
            return second;
        }
        at += jiff::SignedDuration::from_secs(1);
    }
}

/// Returns the folder of an agent's entries. An empty name means the default agent.
pub fn folder_of(agent: &str) -> String {
    folder(Some(agent).filter(|agent| !agent.is_empty()))
}

/// An agent's newest entry.
#[derive(Clone, Debug)]
pub struct Newest {
    /// The entry's path, relative to the project.
    pub path: String,
    /// The entry's row in the list.
    pub listed: Listed,
    /// The path of the list.
    pub list: String,
    pub entry: Entry,
    /// The entry's text.
    pub text: String,
    /// The digests of the entry and of the list, by path.
    pub digests: BTreeMap<String, Digest>,
}

/// Returns the newest entry, or `None` if there is no entry yet.
///
/// # Errors
/// Returns an error if the manifest is invalid, or if its first entry is missing or invalid.
pub fn newest(root: &Path, agent: &str) -> Result<Option<Newest>, JobError> {
    newest_in(&Scope::open(root, &[], ".runner/staging/look")?, agent)
}

/// Reads the newest entry through a scope, or returns `None` if there is no entry yet.
///
/// # Errors
/// Returns the same errors as [`newest`].
pub fn newest_in(scope: &Scope, agent: &str) -> Result<Option<Newest>, JobError> {
    let folder = folder_of(agent);
    let ReadManifest { manifest, expect } = read(scope, &folder)?;
    let (Some(listed), Expect::Digest(of_list)) = (manifest.entries.first(), expect) else {
        return Ok(None);
    };
    let (entry, text) = entry_of(scope, &folder, listed)?;
    let (path, list) = (format!("{folder}/{}", listed.file), format!("{folder}/{FILE}"));
    let of_entry = Digest::of(text.as_bytes());
    let digests = BTreeMap::from([(path.clone(), of_entry), (list.clone(), of_list)]);
    let listed = listed.clone();
    Ok(Some(Newest { path, listed, list, entry, text, digests }))
}

#[cfg(test)]
impl Newest {
    /// Creates an entry without content.
    pub fn fixture(list: &str, path: &str, digests: BTreeMap<String, Digest>) -> Self {
        let text = "#+TITLE: rem\n#+MODEL: m\n* tale\nx\n* goals\n* blue sky\n* fears\n* verdicts\n* carry\n";
        let entry = entry::parse("2026-06-10-1430", text).unwrap();
        let (path, list, text) = (path.to_owned(), list.to_owned(), text.to_owned());
        let listed = Listed { file: path.clone(), ..Listed::default() };
        Self { path, listed, list, entry, text, digests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_reads_both_forms_and_refuses_paths() {
        let text = br#"{"entries": ["2026-06-10-1430.org",
            {"file": "2026-06-09-143005.org", "ts": "2026-06-09T14:30:05Z", "more": 1}]}"#;
        let manifest = parse(text).unwrap();
        assert_eq!(manifest.entries[0].ts.unwrap().to_string(), "2026-06-10T14:30:00Z");
        assert_eq!(parse(manifest.text().as_bytes()).unwrap(), manifest);
        for bad in [
            "",
            "{}",
            "[]",
            "{\"entries\": [3]}",
            "{\"entries\": [\"../2026-06-10-1430.org\"]}",
            "{\"entries\": [{\"file\": \"/etc/passwd\"}]}",
            "{\"entries\": [\"2026-06-10-1430.org.org\"]}",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for name in ["", ".", "..", "a/b", "_x", "é", "a b"] {
            assert!(!is_agent_name(name), "{name}");
        }
        assert!(is_agent_name("night-2"));
    }

    #[test]
    fn manifest_keeps_newest_entries_with_unique_ids() {
        let now: Timestamp = "2026-06-10T14:30:07Z".parse().unwrap();
        let listed = |id: String| Listed { file: format!("{id}.org"), ..Listed::default() };
        let mut manifest = Manifest::default();
        let mut ids = Vec::<String>::new();
        for _ in 0..60 {
            let id = new_id(now, |id| ids.iter().any(|it| it == id));
            assert!(time_of(&id).is_some() && id_of(&format!("{id}.org")).is_some(), "{id}");
            manifest = manifest.with(listed(id.clone()));
            ids.push(id);
        }
        assert_eq!(ids[..3], ["2026-06-10-1430", "2026-06-10-143007", "2026-06-10-143008"]);
        assert_eq!(manifest.entries.len(), MOST);
        assert_eq!(manifest.entries[0], listed(ids[59].clone()));
    }
}
