//! Checks the memory's hooks: configured hooks that do not run, and a store that is damaged or slow.
//!
//! A machine without the memory has no findings.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::{DOCUMENT, read_text_host};
use runner_engine::time::boot_time;
use runner_memory::store::Access;
use runner_memory::{Memory, Scope};

use super::DoctorFinding;
use crate::commands::memory::install::{HostName, home_of};
use crate::env::Env;
use crate::hooks::scope;
use crate::ui::Failure;

/// Maximum time to render a block without a finding.
const SLOW: Duration = Duration::from_millis(200);
/// Maximum depth of folders below the folder of transcripts.
const DEPTH: usize = 4;

pub fn findings(home: &Env) -> Vec<DoctorFinding> {
    let configured: Vec<HostName> = [HostName::Claude, HostName::Codex]
        .into_iter()
        .filter(|name| settings_of(*name).is_some())
        .collect();
    if configured.is_empty() {
        return Vec::new();
    }
    checked(home, &configured)
        .unwrap_or_else(|failure| vec![DoctorFinding::failure("memory", &failure)])
}

/// Returns the settings of a program if they contain runner's hooks.
fn settings_of(name: HostName) -> Option<PathBuf> {
    let file = home_of(name).ok()?.join(match name {
        HostName::Claude => "settings.json",
        HostName::Codex => "hooks.json",
    });
    let text = read_text_host(&file, DOCUMENT).ok()?;
    (text.contains("session-start") && text.contains("hook")).then_some(file)
}

fn checked(home: &Env, configured: &[HostName]) -> Result<Vec<DoctorFinding>, Failure> {
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
    let last: Option<Timestamp> = memory.last_hook()?.and_then(|at| at.parse().ok());
    for name in configured {
        let Some(settings) = settings_of(*name) else { continue };
        let changed = modified(&settings);
        let (folder, fix) = match name {
            HostName::Claude => {
                ("projects", "restart Claude Code, and check its settings with /hooks")
            }
            HostName::Codex => ("sessions", "start codex and trust the hooks with /hooks"),
        };
        let session = newest(&home_of(*name)?.join(folder), DEPTH);
        let ran = session.filter(|at| changed.is_some_and(|changed| *at > changed));
        if let Some(ran) = ran
            && last
                .is_none_or(|last| ran.duration_since(last) > jiff::SignedDuration::from_hours(1))
        {
            let what = format!(
                "a session ran after the hooks were configured, but its hooks did not; {fix}"
            );
            found.push(DoctorFinding::warning(settings.display().to_string(), what));
        }
    }
    Ok(found)
}

fn modified(path: &Path) -> Option<Timestamp> {
    fs::metadata(path).ok()?.modified().ok()?.try_into().ok()
}

/// Returns the time of the last change of a transcript below a folder.
fn newest(folder: &Path, depth: usize) -> Option<Timestamp> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let times = entries.filter_map(|entry| {
        let path = entry.path();
        match entry.file_type().ok()?.is_dir() {
            true if depth > 0 => newest(&path, depth - 1),
            false if path.extension().is_some_and(|it| it == "jsonl") => modified(&path),
            _ => None,
        }
    });
    times.max()
}
