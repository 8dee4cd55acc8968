//! Finds the transcripts of a project's sessions, without reading more than the first line of each.
//!
//! This module must never write, lock or follow anything in the folders of an agent's program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::open_host;
use serde_json::Value;

/// Maximum length of the first line of a rollout, in bytes.
const FIRST_LINE: u64 = 64 * 1024;
/// Maximum length of the first line of a sub-agent's file, in bytes.
const AGENT_LINE: u64 = 256 * 1024;
/// The age at which Codex rollouts are no longer inspected.
const ROLLOUTS: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Maximum number of transcripts per project.
const MOST: usize = 5_000;

/// A transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file without its extension, or a digest of the path if the name is unusual.
    pub id: String,
    pub path: PathBuf,
    /// The size in bytes.
    pub size: u64,
    /// When the transcript or one of its sub-agents' transcripts last changed.
    pub modified: Timestamp,
    /// The known transcripts of its sub-agents. [`find_agents`] adds those beside the transcript.
    pub agents: Vec<PathBuf>,
}

/// The folders to search for transcripts.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlaces<'a> {
    /// The project's root.
    pub root: &'a Path,
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// Additional folders, absolute or relative to the root.
    pub folders: &'a [String],
    /// The file with the tool uses recorded by runner, relative to the root.
    pub steps: &'a str,
}

/// Returns the folder where Claude Code keeps a project's transcripts.
pub fn claude_folder(root: &Path, home: &Path) -> PathBuf {
    let slug = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let slug: String = root.display().to_string().chars().map(slug).collect();
    home.join(".claude/projects").join(slug)
}

/// Returns the transcripts of a project, newest first. The tool uses recorded by runner count as a
/// session only if there is no other transcript, because agents' programs record the same tool
/// uses.
pub fn sources(places: SourcePlaces<'_>, now: Timestamp) -> Vec<Source> {
    let mut found: BTreeMap<String, Source> = BTreeMap::new();
    let mut add = |path: PathBuf| {
        if let Some(source) = source(path) {
            found.entry(source.id.clone()).or_insert(source);
        }
    };
    if let Some(home) = places.home {
        transcripts(&claude_folder(places.root, home)).for_each(&mut add);
        rollouts(&home.join(".codex/sessions"), places.root, now).into_iter().for_each(&mut add);
    }
    for folder in places.folders {
        transcripts(&places.root.join(folder)).for_each(&mut add);
    }
    if found.is_empty() {
        found.extend(source(places.root.join(places.steps)).map(|it| (it.id.clone(), it)));
    }
    let mut all: Vec<Source> = found.into_values().collect();
    all.sort_by(|a, b| b.modified.cmp(&a.modified).then(a.id.cmp(&b.id)));
    all.truncate(MOST);
    all
}

/// Returns the transcript at a path, or `None` if it is not a regular file.
pub fn source(path: PathBuf) -> Option<Source> {
    let data = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    // A sub-agent may continue after the last event of its session.
    let agents = agents(&path.with_extension("").join("subagents"));
    let times = agents.iter().filter_map(|it| fs::symlink_metadata(it).ok()?.modified().ok());
    let modified = times.chain(data.modified().ok()).max().unwrap_or(SystemTime::UNIX_EPOCH);
    let name = path.file_stem()?.to_string_lossy().into_owned();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.+".contains(&b);
    let id = match name.len() <= 120 && !name.starts_with('.') && name.bytes().all(plain) {
        true => name,
        false => Digest::of(path.to_string_lossy().as_bytes()).short(),
    };
    let modified = Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    Some(Source { id, path, size: data.len(), modified, agents })
}

/// Adds sub-agent transcripts stored next to their session's transcript. The first row of such a
/// transcript names the session.
pub fn find_agents(sources: &mut [Source]) {
    let mut folders: BTreeMap<PathBuf, BTreeMap<String, Vec<PathBuf>>> = BTreeMap::new();
    for source in sources {
        let (Some(folder), Some(session)) = (source.path.parent(), source.path.file_stem()) else {
            continue;
        };
        let by_session = folders.entry(folder.to_owned()).or_insert_with(|| {
            let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
            for agent in agents(folder) {
                if let Some(session) = session_of(&agent) {
                    found.entry(session).or_default().push(agent);
                }
            }
            found
        });
        source.agents.extend(by_session.remove(&*session.to_string_lossy()).unwrap_or_default());
    }
}

/// Returns the session named in the first row of a sub-agent's file.
fn session_of(path: &Path) -> Option<String> {
    let mut line = Vec::new();
    BufReader::new(open_host(path).ok()?.take(AGENT_LINE)).read_until(b'\n', &mut line).ok()?;
    let first: Value = serde_json::from_slice(&line).ok()?;
    first["sessionId"].as_str().map(str::to_owned)
}

/// Returns the sorted paths of the regular files in a folder that are named like sub-agents'
/// transcripts.
fn agents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_agent = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("agent-")
            && name.ends_with(".jsonl")
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let mut paths: Vec<PathBuf> = entries.filter(is_agent).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn transcripts(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // The transcript of a sub-agent is part of a session (parts.rs), not a session.
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".jsonl") && !name.starts_with("agent-")
    };
    entries.filter(is_own)
}

/// Returns the rollouts whose session worked in the project. Their folders are named after the year,
/// the month and the day.
fn rollouts(folder: &Path, root: &Path, now: Timestamp) -> Vec<PathBuf> {
    let oldest = now.saturating_sub(ROLLOUTS).unwrap_or(Timestamp::UNIX_EPOCH);
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let days = below(folder.to_owned())
        .flat_map(|year| below(year.path()))
        .flat_map(|month| below(month.path()));
    let files = days.flat_map(|day| transcripts(&day.path()).collect::<Vec<_>>());
    let recent = |path: &PathBuf| {
        let modified = fs::symlink_metadata(path).and_then(|data| data.modified()).ok();
        modified.and_then(|at| Timestamp::try_from(at).ok()).is_some_and(|at| at >= oldest)
    };
    files.filter(recent).filter(|path| works_in(path, root)).collect()
}

/// Returns whether the first line of a rollout names a folder in the project.
fn works_in(path: &Path, root: &Path) -> bool {
    let Ok(file) = open_host(path) else { return false };
    let mut line = Vec::new();
    let mut reader = BufReader::new(file.take(FIRST_LINE));
    if reader.read_until(b'\n', &mut line).is_err() {
        return false;
    }
    let first: Value = serde_json::from_slice(&line).unwrap_or_default();
    let cwd = first["payload"]["cwd"].as_str().or(first["cwd"].as_str());
    cwd.is_some_and(|cwd| Path::new(cwd).starts_with(root))
}
