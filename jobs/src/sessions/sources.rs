//! Finds the transcripts of a project's sessions, without reading more than the beginning of each.
//!
//! This module must never write to or lock a file, or follow a link, in the folders of an agent's
//! program.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::open_host;
use serde_json::Value;

use super::SessionsSpec;
use crate::AgentFolders;

/// Number of bytes at the beginning of a transcript in which a row must name the session's folder.
const BEGINNING: u64 = 256 * 1024;
/// Maximum length of the first line of a sub-agent's file, in bytes.
const AGENT_LINE: u64 = 256 * 1024;
/// The age above which Codex rollouts are not inspected.
const ROLLOUTS: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Length of a UUID's text, in bytes.
const UUID: usize = 36;
/// Maximum number of transcripts per project.
const MOST: usize = 5_000;

/// A transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file without its extension, or a digest of the path if the name is long or
    /// unusual.
    pub id: String,
    pub path: PathBuf,
    /// The size in bytes.
    pub size: u64,
    /// When the transcript or one of its sub-agents' transcripts last changed.
    pub modified: Timestamp,
    /// The known transcripts of its sub-agents. [`find_agents`] adds those beside the transcript.
    pub agents: Vec<PathBuf>,
}

/// Returns whether an agent's program calls the session with this id `name`. Codex's name is the
/// UUID at the end of its rollout's file name.
pub fn is_named(id: &str, name: &str) -> bool {
    let rollout = || id.strip_prefix("rollout-")?.strip_suffix(name)?.strip_suffix('-');
    id == name || (name.len() == UUID && rollout().is_some())
}

/// The folders to search for transcripts.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlaces<'a> {
    /// The project's root.
    pub root: &'a Path,
    /// The folders of the agents' programs.
    pub agents: &'a AgentFolders,
    /// Additional folders, absolute or relative to the root.
    pub folders: &'a [String],
    /// The file with the tool uses recorded by runner, relative to the root.
    pub steps: &'a str,
}

impl<'a> SourcePlaces<'a> {
    /// Returns the places of a project's transcripts.
    pub fn of(root: &'a Path, agents: &'a AgentFolders, spec: &'a SessionsSpec) -> Self {
        Self { root, agents, folders: &spec.transcripts, steps: &spec.steps }
    }
}

/// The proof that a transcript belongs to the project.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The settings name the transcript or its folder.
    Settings,
    /// The transcript is in Claude Code's folder for the root. Another project whose path differs
    /// only in its punctuation has the same folder, so a row that names a folder takes precedence.
    Slug,
    /// A row must name a folder in the project.
    Row,
}

/// A transcript that may belong to the project.
struct Candidate {
    source: Source,
    proof: Proof,
}

impl Candidate {
    fn is_of(&self, root: &Path) -> bool {
        self.proof.holds(&self.source.path, root)
    }
}

impl Proof {
    /// Returns whether a transcript belongs to the project at `root`.
    fn holds(self, path: &Path, root: &Path) -> bool {
        let named = || folder_of(path).map(|folder| folder.starts_with(root));
        match self {
            Self::Settings => true,
            Self::Slug => named() != Some(false),
            Self::Row => named() == Some(true),
        }
    }
}

/// Returns the name of the folder where Claude Code keeps the transcripts of sessions in `root`.
fn slug(root: &Path) -> String {
    let slug = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    root.display().to_string().chars().map(slug).collect()
}

/// Returns the folder where Claude Code keeps a project's transcripts.
fn claude_folder(root: &Path, claude: &Path) -> PathBuf {
    claude.join("projects").join(slug(root))
}

/// Returns the folders where Claude Code may keep transcripts of sessions in subfolders of `root`.
fn claude_subfolders(root: &Path, claude: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let prefix = slug(root) + "-";
    let entries = fs::read_dir(claude.join("projects")).into_iter().flatten().flatten();
    let is_below = move |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(&prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    entries.filter(is_below).map(|entry| entry.path())
}

/// Returns at most `most` of Claude Code's transcripts for a project, newest first, each with the
/// time of its last change. `claude` is Claude Code's folder.
pub fn claude_transcripts(root: &Path, claude: &Path, most: usize) -> Vec<(SystemTime, PathBuf)> {
    let own = transcripts(&claude_folder(root, claude)).map(|path| (path, Proof::Slug));
    let below = claude_subfolders(root, claude)
        .flat_map(|folder| transcripts(&folder).map(|path| (path, Proof::Row)));
    let dated = |(path, proof): (PathBuf, Proof)| {
        let data = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((data.modified().ok()?, path, proof))
    };
    let mut found: Vec<_> = own.chain(below).filter_map(dated).collect();
    found.sort_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
    let newest = found.into_iter().filter(|(_, path, proof)| proof.holds(path, root)).take(most);
    newest.map(|(at, path, _)| (at, path)).collect()
}

/// Returns the transcripts of a project, newest first. The tool uses recorded by runner are treated
/// as a session only if there is no other transcript, because agents' programs record the same tool
/// uses.
pub fn sources(places: SourcePlaces<'_>, now: Timestamp) -> Vec<Source> {
    wanted_sources(places, now, &|_| true)
}

/// Returns the transcripts of a project for which `wanted` returns true, newest first. Opens a
/// transcript that is not wanted only to find out whether the project has any transcripts, or which
/// of two transcripts with the same id belongs to the project.
pub fn wanted_sources(
    places: SourcePlaces<'_>,
    now: Timestamp,
    wanted: &dyn Fn(&Source) -> bool,
) -> Vec<Source> {
    let root = places.root;
    let mut found: BTreeMap<String, Candidate> = BTreeMap::new();
    let mut add = |path: PathBuf, proof: Proof| {
        let Some(source) = source(path) else { return };
        match found.entry(source.id.clone()) {
            Entry::Vacant(free) => {
                free.insert(Candidate { source, proof });
            }
            Entry::Occupied(mut known) if !known.get().is_of(root) => {
                known.insert(Candidate { source, proof });
            }
            Entry::Occupied(_) => {}
        }
    };
    if let Some(claude) = &places.agents.claude {
        transcripts(&claude_folder(root, claude)).for_each(|path| add(path, Proof::Slug));
        for folder in claude_subfolders(root, claude) {
            transcripts(&folder).for_each(|path| add(path, Proof::Row));
        }
    }
    if let Some(codex) = &places.agents.codex {
        let rollouts = rollouts(&codex.join("sessions"), now);
        rollouts.into_iter().for_each(|path| add(path, Proof::Row));
    }
    for folder in places.folders {
        transcripts(&root.join(folder)).for_each(|path| add(path, Proof::Settings));
    }
    if !found.values().any(|one| one.is_of(root)) {
        let steps = source(root.join(places.steps)).into_iter();
        let steps = steps.map(|source| Candidate { source, proof: Proof::Settings });
        found = steps.map(|one| (one.source.id.clone(), one)).collect();
    }
    let is_wanted = |one: &Candidate| wanted(&one.source) && one.is_of(root);
    let mut all: Vec<Source> =
        found.into_values().filter(is_wanted).map(|one| one.source).collect();
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

/// Returns the recent rollouts. Their folders are named after the year, the month and the day.
fn rollouts(folder: &Path, now: Timestamp) -> Vec<PathBuf> {
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
    files.filter(recent).collect()
}

/// Returns the folder named in the first row that names one, or `None` if there is no such row at
/// the beginning of the transcript.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let mut reader = BufReader::new(open_host(path).ok()?.take(BEGINNING));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).ok()? > 0 {
        let row: Value = serde_json::from_slice(&line).unwrap_or_default();
        if let Some(cwd) = row["payload"]["cwd"].as_str().or(row["cwd"].as_str()) {
            return Some(PathBuf::from(cwd));
        }
        line.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcript_belongs_to_the_folder_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let (claude, root) = (folder.path().join("claude"), folder.path().join("my-app"));
        let agents = AgentFolders { claude: Some(claude.clone()), codex: None };
        let write = |cwd: &Path, id: &str, text: String| {
            let folder = claude_folder(cwd, &claude);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("{id}.jsonl")), text).unwrap();
        };
        let row = |cwd: &Path| {
            let row = serde_json::json!({ "type": "user", "cwd": cwd });
            format!("{{\"type\":\"summary\"}}\nnot a row\n{row}\n")
        };
        let sub = root.join("sub");
        let ids = |folders: &[String]| -> Vec<String> {
            let places =
                SourcePlaces { root: &root, agents: &agents, folders, steps: "steps.jsonl" };
            let mut ids: Vec<String> =
                sources(places, Timestamp::UNIX_EPOCH).into_iter().map(|it| it.id).collect();
            ids.sort();
            ids
        };
        // The other project's folder has the same name.
        let other = folder.path().join("my.app");
        assert_eq!(claude_folder(&other, &claude), claude_folder(&root, &claude));
        write(&other, "other", row(&other));
        write(&other, "twice", row(&other));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("steps.jsonl"), "{}\n").unwrap();
        assert_eq!(ids(&[]), ["steps"], "the other project's sessions are left out");
        write(&root, "own", row(&root));
        write(&root, "unnamed", "{}\n".to_owned());
        write(&sub, "below", row(&sub));
        write(&sub, "twice", row(&sub));
        write(&sub, "nowhere", "{}\n".to_owned());
        let beside = folder.path().join("my-app-sub");
        write(&beside, "beside", row(&beside));
        assert_eq!(ids(&[]), ["below", "own", "twice", "unnamed"]);
        let found = claude_transcripts(&root, &claude, 9);
        let mut names: Vec<_> = found.iter().map(|(_, path)| path.file_stem().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["below", "own", "twice", "unnamed"]);
        assert_eq!(claude_transcripts(&root, &claude, 2), found[..2]);
        // The settings may name any folder.
        let named = claude_folder(&beside, &claude).to_string_lossy().into_owned();
        assert_eq!(ids(&[named]), ["below", "beside", "nowhere", "own", "twice", "unnamed"]);
    }
}
