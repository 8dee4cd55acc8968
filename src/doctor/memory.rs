//! Checks the memory for problems: configured hooks that never run or are slow, a host that
//! truncates their text, and a damaged or slow store.
//!
//! A machine on which no hooks are configured has no findings.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::{DOCUMENT, read_text_host};
use runner_engine::time::boot_time;
use runner_memory::store::Access;
use runner_memory::{Memory, Scope};

use super::DoctorFinding;
use super::host_rows::HookRows;
use crate::commands::memory::install::{HostName, home_of};
use crate::env::Env;
use crate::hooks::scope;
use crate::ui::Failure;

/// Maximum time to open the store and render a block. A longer time is reported.
const SLOW: Duration = Duration::from_millis(200);
/// Maximum duration of a hook in milliseconds, as measured by the host. A longer one is reported.
const SLOW_HOOK: u64 = 500;
/// Maximum folder depth below the transcripts folder.
const DEPTH: usize = 4;

pub fn findings(home: &Env) -> Vec<DoctorFinding> {
    let hosts: Vec<ConfiguredHost> =
        [HostName::Claude, HostName::Codex].into_iter().filter_map(ConfiguredHost::of).collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    checked(home, &hosts).unwrap_or_else(|failure| vec![DoctorFinding::failure("memory", &failure)])
}

/// A program whose settings contain runner's hooks.
struct ConfiguredHost {
    name: HostName,
    settings: PathBuf,
    folder: PathBuf,
}

impl ConfiguredHost {
    fn of(name: HostName) -> Option<Self> {
        let home = home_of(name).ok()?;
        let (settings, folder) = match name {
            HostName::Claude => ("settings.json", "projects"),
            HostName::Codex => ("hooks.json", "sessions"),
        };
        let settings = home.join(settings);
        let text = read_text_host(&settings, DOCUMENT).ok()?;
        let found = text.contains("session-start") && text.contains("hook");
        found.then(|| Self { name, settings, folder: home.join(folder) })
    }

    /// Returns the transcript of the newest session, if it ran after the settings were changed.
    fn last_session(&self) -> Option<PathBuf> {
        let changed = modified(&self.settings)?;
        let (at, path) = newest(&self.folder, DEPTH)?;
        (at > changed).then_some(path)
    }

    fn findings(&self, memory: &Memory) -> Result<Vec<DoctorFinding>, Failure> {
        let Some(transcript) = self.last_session() else { return Ok(Vec::new()) };
        let rows = HookRows::read(&transcript);
        let settings = self.settings.display().to_string();
        let warning = |what: String| DoctorFinding::warning(&settings, what);
        let mut found = Vec::new();
        if let Some((event, limit)) = &rows.ended {
            let what = format!(
                "the host ended the {event} hook of the last session after {limit} ms, so its text or its \
                 commands were lost"
            );
            found.push(warning(what).hint("runner memory status"));
        } else if let Some((event, why)) = &rows.failed {
            found.push(warning(format!(
                "the {event} hook of the last session failed: {why}; `runner memory install --remove` and \
                 `--apply` write its path again"
            )));
        } else if let Some((event, took)) = rows.slowest.as_ref().filter(|it| it.1 > SLOW_HOOK) {
            let what = format!("the {event} hook of the last session took {took} ms");
            found.push(warning(what).hint("runner memory status"));
        }
        if let Some(event) = &rows.cut {
            let place = transcript.display().to_string();
            let what = format!(
                "the host truncated the notes that a hook injected at {event}; other hooks may inject text there too"
            );
            found.push(DoctorFinding::warning(place, what).hint("runner memory list"));
        }
        // In a session that runner itself started, the hooks write nothing, but the host records
        // that they ran.
        let known = session_id(&transcript).map(|id| memory.session(&id)).transpose()?.flatten();
        if known.is_none() && rows == HookRows::default() {
            let fix = match self.name {
                HostName::Claude => "restart Claude Code, and check its settings with /hooks",
                HostName::Codex => "start codex and trust the hooks with /hooks",
            };
            let what = "a session ran after the hooks were configured, but its hooks did not";
            found.push(warning(format!("{what}; {fix}")));
        }
        Ok(found)
    }
}

fn checked(home: &Env, hosts: &[ConfiguredHost]) -> Result<Vec<DoctorFinding>, Failure> {
    let location = scope::store(None)?;
    let place = location.path.display().to_string();
    if !location.path.exists() {
        let what = "hooks are configured, but there is no memory store";
        return Ok(vec![DoctorFinding::warning(place, what).hint("runner memory install")]);
    }
    let mut found = Vec::new();
    let began = boot_time();
    let memory = Memory::open(&location.path, Access::Prompt, home.wall()?)?;
    memory.reader().block(&Scope::Global, None, &[])?;
    let took = boot_time().saturating_sub(began);
    if took > SLOW {
        let what = format!("a hook needs {} ms to read the memory store", took.as_millis());
        found.push(DoctorFinding::warning(&place, what).hint("runner memory status"));
    }
    memory.check()?;
    for host in hosts {
        found.extend(host.findings(&memory)?);
    }
    Ok(found)
}

/// Returns a transcript's session id: its name, or the UUID at the end of its name.
fn session_id(transcript: &Path) -> Option<String> {
    const UUID: usize = 36;
    let stem = transcript.file_stem()?.to_str()?;
    let tail = stem.len().checked_sub(UUID).and_then(|at| stem.get(at..));
    Some(tail.filter(|_| stem.starts_with("rollout-")).unwrap_or(stem).to_owned())
}

fn modified(path: &Path) -> Option<Timestamp> {
    fs::metadata(path).ok()?.modified().ok()?.try_into().ok()
}

/// Returns the most recently changed transcript below a folder, if there is one, with the time of
/// the change.
fn newest(folder: &Path, depth: usize) -> Option<(Timestamp, PathBuf)> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let found = entries.filter_map(|entry| {
        let path = entry.path();
        match entry.file_type().ok()?.is_dir() {
            true if path.file_name().is_some_and(|name| name == "subagents") => None,
            true if depth > 0 => newest(&path, depth - 1),
            false if path.extension().is_some_and(|it| it == "jsonl") => {
                Some((modified(&path)?, path))
            }
            _ => None,
        }
    });
    found.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_name_their_session() {
        let id = |path: &str| session_id(Path::new(path));
        let uuid = "01a20812-bdef-7d72-93bf-f2dc9f4b6895";
        assert_eq!(id(&format!("/p/{uuid}.jsonl")).as_deref(), Some(uuid));
        let rollout = format!("/s/2026/11/23/rollout-2026-11-23T11-02-55-{uuid}.jsonl");
        assert_eq!(id(&rollout).as_deref(), Some(uuid));
    }

    #[test]
    fn newest_transcript_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("p/subagents");
        fs::create_dir_all(&below).unwrap();
        for (name, at) in [("p/a.jsonl", 100), ("p/b.jsonl", 200), ("p/subagents/c.jsonl", 300)] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
        }
        let (at, path) = newest(folder.path(), DEPTH).unwrap();
        assert_eq!((at.as_second(), path), (200, folder.path().join("p/b.jsonl")));
    }
}
