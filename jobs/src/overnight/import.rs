//! Converts data that other programs left in the corpus's folder into corpus changes: a findings
//! registry and unfinished commits.
//!
//! ```text
//! findings/registry.jsonl ──a line──> findings/ID.md, unless the corpus has the finding
//! COMMIT-MARKER.N, READY ──staging/N is empty, every path of prev.N exists──> completed: no change
//!                         └─otherwise──────────> rolled back: the files of prev.N are restored
//! ```
//!
//! The files of a resolved commit are moved aside, not deleted. The caller keeps a copy of every
//! file that a rollback removes from the corpus. This module must never treat one of runner's own
//! commits as another program's.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, beneath, read_in};
use serde::Serialize;
use serde_json::Value;

use super::corpus::{Changes, Corpus, FOLDER, SUBPATHS};

/// The findings registry, relative to the corpus.
const REGISTRY: &str = "findings/registry.jsonl";
/// The folder that contains the commits, relative to the corpus.
const COMMITS: &str = "overnight";
const MARKER: &str = "COMMIT-MARKER.";
/// Maximum length of a finding's id in bytes.
const ID: usize = 100;
/// The fields of a finding that become fields of its node.
const FIELDS: [&str; 8] = [
    "date",
    "severity",
    "category",
    "confidence",
    "status",
    "superseded_by",
    "dedup_key",
    "ttl_days",
];

/// The result of importing a findings registry.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImportedFindings {
    /// The paths of the new nodes, relative to the corpus.
    pub added: Vec<String>,
    /// Number of findings that are already in the corpus or repeat an earlier line.
    pub known: usize,
    /// The 1-based numbers of the lines that are not findings.
    pub unreadable: Vec<usize>,
}

/// How another program's unfinished commit is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitEnd {
    /// All files had been moved, so the corpus is not changed.
    Completed,
    /// The files are restored to their state before the commit.
    RolledBack,
    /// Nothing is changed, because the marker cannot be parsed.
    LeftAlone,
}

/// A commit left unfinished by another program.
#[derive(Clone, Debug, Serialize)]
pub struct ForeignCommit {
    /// The path of the commit's marker, relative to the project.
    pub marker: String,
    /// The number in the marker's name.
    #[serde(skip)]
    number: String,
    pub end: CommitEnd,
    /// Number of files that are restored or removed.
    pub files: usize,
}

/// Returns a report on the registry, and the changes that add the findings missing from the corpus
/// as nodes.
///
/// # Errors
/// Returns an error if the registry exists but cannot be read.
pub fn findings(root: &Path, corpus: &Corpus) -> io::Result<(ImportedFindings, Changes)> {
    let (mut report, mut changes) = (ImportedFindings::default(), Changes::new());
    let bytes = match read_in(root, Path::new(FOLDER).join(REGISTRY), DOCUMENT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((report, changes)),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let known: BTreeSet<&str> = corpus.nodes.iter().map(|node| node.id.as_str()).collect();
    // Some programs write front matter before the rows.
    let mut rows = text.lines().enumerate().peekable();
    if rows.peek().is_some_and(|(_, line)| line.trim() == "---") {
        rows.next();
        rows.by_ref().take_while(|(_, line)| line.trim() != "---").for_each(drop);
    }
    for (at, line) in rows.filter(|(_, line)| !line.trim().is_empty()) {
        let Some((id, node)) = serde_json::from_str(line).ok().and_then(|row| node_of(&row)) else {
            report.unreadable.push(at + 1);
            continue;
        };
        let path = format!("findings/{id}.md");
        if known.contains(id.as_str()) || corpus.at(&path).is_some() || changes.contains_key(&path)
        {
            report.known += 1;
            continue;
        }
        report.added.push(path.clone());
        changes.insert(path, Some(node.into_bytes()));
    }
    Ok((report, changes))
}

/// Returns the id and the text of a finding's node, or `None` if the row is not a valid finding.
fn node_of(row: &Value) -> Option<(String, String)> {
    let text = |name: &str| row[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let id = text("id")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.len() > ID || id.starts_with('.') || !id.chars().all(plain) {
        return None;
    }
    let pattern = text("pattern")?;
    let mut node = format!("---\nid: {id}\ntype: finding\n");
    for name in FIELDS {
        match &row[name] {
            Value::String(_) | Value::Number(_) => {
                node.push_str(&format!("{name}: {}\n", row[name]))
            }
            _ => {}
        }
    }
    let source = &row["source"];
    for (field, name) in
        [("source_repo", "repo"), ("source_session", "session"), ("source", "file")]
    {
        if let Some(value) = source[name].as_str().filter(|value| !value.is_empty()) {
            node.push_str(&format!("{field}: {}\n", Value::from(value)));
        }
    }
    let (first, rest) = pattern.split_once('\n').unwrap_or((pattern, ""));
    node.push_str(&format!("---\n# {first}\n"));
    let question = text("detection_question").map(|it| format!("How to detect it: {it}"));
    let item = text("checklist_item").map(|it| format!("What to do: {it}"));
    for part in [Some(rest.trim().to_owned()), question, item].into_iter().flatten() {
        if !part.is_empty() {
            node.push_str(&format!("\n{part}\n"));
        }
    }
    Some((id.to_owned(), node))
}

/// Returns the unfinished commits of other programs, and the changes that resolve them.
///
/// # Errors
/// Returns an error if a folder or file cannot be read.
pub fn commits(root: &Path) -> io::Result<(Vec<ForeignCommit>, Changes)> {
    let folder = beneath(root, &Path::new(FOLDER).join(COMMITS))?;
    let mut names: Vec<String> = match fs::read_dir(&folder) {
        Ok(entries) => {
            entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    names.retain(|name| name.starts_with(MARKER));
    names.sort();
    let (mut all, mut changes) = (Vec::new(), Changes::new());
    for name in names {
        let below = Path::new(FOLDER).join(COMMITS);
        let bytes = read_in(root, below.join(&name), DOCUMENT)?;
        let marker = serde_json::from_slice::<Value>(&bytes).ok();
        // A commit in a state other than READY is finished. A marker with a manifest is runner's
        // own, and the next run finishes its commit.
        let is_own = |it: &Value| it["state"] != "READY" || !it["manifest"].is_null();
        if marker.as_ref().is_some_and(is_own) {
            continue;
        }
        let number = &name[MARKER.len()..];
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let (end, files) = match marker {
            None => (CommitEnd::LeftAlone, 0),
            Some(_) if is_complete(root, number)? => (CommitEnd::Completed, 0),
            Some(_) => (CommitEnd::RolledBack, roll_back(root, number, &mut changes)?),
        };
        let marker = below.join(&name).display().to_string();
        all.push(ForeignCommit { marker, number: number.to_owned(), end, files });
    }
    Ok((all, changes))
}

/// Moves the files of a resolved commit to the `imported` folder, and moves the marker last.
///
/// # Errors
/// Returns an error if a file cannot be moved. A second call then moves the remaining files.
pub fn set_aside(root: &Path, commit: &ForeignCommit) -> io::Result<()> {
    let from = beneath(root, &Path::new(FOLDER).join(COMMITS))?;
    let number = &commit.number;
    let into = beneath(root, &Path::new(FOLDER).join(COMMITS).join("imported").join(number))?;
    fs::create_dir_all(&into)?;
    let names =
        [format!("prev.{number}"), format!("staging/{number}"), format!("{MARKER}{number}")];
    for name in names {
        match fs::rename(from.join(&name), into.join(name.replace('/', "."))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether all files of a commit had been moved: no staged file is left, and every path
/// that had files before the commit has some now.
fn is_complete(root: &Path, number: &str) -> io::Result<bool> {
    let below = Path::new(FOLDER).join(COMMITS);
    if !tree(root, &below.join("staging").join(number).join(FOLDER))?.is_empty() {
        return Ok(false);
    }
    let prev = below.join(format!("prev.{number}"));
    for path in SUBPATHS {
        let before =
            tree(root, &prev.join(path))?.len() + tree(root, &prev.join(FOLDER).join(path))?.len();
        if before > 0 && tree(root, &Path::new(FOLDER).join(path))?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds the changes that undo a commit to `changes`, and returns the number of files to restore or
/// remove.
fn roll_back(root: &Path, number: &str, changes: &mut Changes) -> io::Result<usize> {
    let prev = Path::new(FOLDER).join(COMMITS).join(format!("prev.{number}"));
    let mut count = 0;
    for path in SUBPATHS {
        for below in [prev.join(path), prev.join(FOLDER).join(path)] {
            let before = tree(root, &below)?;
            if before.is_empty() {
                continue;
            }
            let live = tree(root, &Path::new(FOLDER).join(path))?;
            let named = |file: &PathBuf| match file.as_os_str().is_empty() {
                true => path.to_owned(),
                false => format!("{path}/{}", file.display()),
            };
            for file in live.difference(&before) {
                changes.insert(named(file), None);
                count += 1;
            }
            for file in &before {
                let old = read_in(root, inside(&below, file), DOCUMENT)?;
                let new = read_in(root, inside(&Path::new(FOLDER).join(path), file), DOCUMENT);
                if new.ok().as_ref() != Some(&old) {
                    changes.insert(named(file), Some(old));
                    count += 1;
                }
            }
        }
    }
    Ok(count)
}

/// Joins a path returned by [`tree`] to its folder.
fn inside(folder: &Path, file: &Path) -> PathBuf {
    match file.as_os_str().is_empty() {
        true => folder.to_owned(),
        false => folder.join(file),
    }
}

/// Returns the paths of the files in a folder, relative to the folder. If `folder` is a file,
/// returns one empty path. Links are omitted.
fn tree(root: &Path, folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let top = match beneath(root, folder) {
        Ok(top) => top,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(error),
    };
    match fs::symlink_metadata(&top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(error),
        Ok(data) if data.is_file() => return Ok(BTreeSet::from([PathBuf::new()])),
        Ok(_) => {}
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(top.join(&at))? {
            let entry = entry?;
            let (path, kind) = (at.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                files.insert(path);
            }
        }
    }
    Ok(files)
}
