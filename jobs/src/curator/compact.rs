//! Folds `logs/pending-log-entries/*.txt` into the audit log, oldest first, and removes old files.
//!
//! ```text
//! plan ──> shown, or executed: journal ── whole audit log replaced ── entries removed ── journal removed
//! ```
//!
//! The journal contains the length of the audit log including the new entries, and the digest of the
//! log's content up to that length. If the process dies and leaves a journal, the next plan uses
//! both to determine whether the log already contains the entries. If so, the plan only removes
//! their files. Otherwise the plan folds the entries again. A plan is executed exactly as it is
//! shown.

use std::fs;
use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, RECORD, read_no_link, write_atomic};
use serde::{Deserialize, Serialize};

use super::queue::{Worker, remove};

const ENTRIES: &str = "logs/pending-log-entries";
const AUDIT: &str = "logs/audit.md";
const JOURNAL: &str = "logs/.compacting.json";
/// Maximum length of an entry in bytes. Longer entries are not folded.
const LARGEST: u64 = 1 << 20;
/// Maximum number of entries to fold in one plan.
const MOST: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum CompactStep {
    /// Append an entry to the audit log and remove its file.
    Fold {
        /// The name of the entry's file.
        entry: String,
        /// The length of the entry in bytes.
        bytes: u64,
    },
    /// Remove an entry that an interrupted compaction has already folded.
    Finish {
        /// The name of the entry's file.
        entry: String,
    },
    /// Remove a file that is older than the retention period.
    Forget {
        /// The path of the file, relative to the worker's folder.
        file: String,
    },
    /// Leave an entry in place.
    Leave {
        /// The name of the entry's file.
        entry: String,
        why: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactionPlan {
    /// The steps, in the order in which they are executed.
    pub acts: Vec<CompactStep>,
    #[serde(skip)]
    folds: Vec<(String, Vec<u8>)>,
    #[serde(skip)]
    finishes: Vec<(String, Digest)>,
}

impl CompactionPlan {
    /// Returns the plan as text, one line per step.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for act in &self.acts {
            text.push_str(&match act {
                CompactStep::Fold { entry, bytes } => format!("fold    {entry} ({bytes} bytes)\n"),
                CompactStep::Finish { entry } => {
                    format!("finish  {entry}: it is in the audit log\n")
                }
                CompactStep::Forget { file } => format!("remove  {file}\n"),
                CompactStep::Leave { entry, why } => format!("leave   {entry}: {why}\n"),
            });
        }
        if self.acts.is_empty() {
            text.push_str("nothing to compact\n");
        }
        text
    }
}

#[derive(Serialize, Deserialize)]
struct Journal {
    /// The length of the audit log including the new entries, in bytes.
    length: usize,
    /// Digest of the audit log up to that length.
    digest: String,
    entries: Vec<(String, String)>,
}

/// Plans a compaction. Finished jobs, failed jobs and findings are kept for `keep`, or forever if
/// `keep` is `None`.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn plan(
    worker: &Worker,
    keep: Option<SignedDuration>,
    now: Timestamp,
) -> io::Result<CompactionPlan> {
    let mut plan = CompactionPlan::default();
    let folded = folded(worker)?;
    let mut found = Vec::new();
    for name in entries(&worker.path(ENTRIES))? {
        let path = worker.path(ENTRIES).join(&name);
        let data = match fs::symlink_metadata(&path) {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if !data.is_file() || data.len() > LARGEST {
            let why = format!("it is not a regular file, or is larger than {LARGEST} bytes");
            plan.acts.push(CompactStep::Leave { entry: name, why });
            continue;
        }
        let bytes = read_no_link(&path, LARGEST)?;
        let digest = Digest::of(&bytes);
        if folded.contains(&(name.clone(), digest.to_string())) {
            plan.acts.push(CompactStep::Finish { entry: name.clone() });
            plan.finishes.push((name, digest));
        } else {
            found.push((data.modified()?, name, bytes));
        }
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    for (_, entry, bytes) in found.into_iter().take(MOST) {
        plan.acts.push(CompactStep::Fold { entry: entry.clone(), bytes: bytes.len() as u64 });
        plan.folds.push((entry, bytes));
    }
    if let Some(keep) = keep {
        for part in ["done", "failed", "findings"] {
            for name in old(&worker.path(part), keep, now)? {
                plan.acts.push(CompactStep::Forget { file: format!("{part}/{name}") });
            }
        }
    }
    Ok(plan)
}

/// Executes the plan. The caller must hold the worker's lock from before it creates the plan until
/// this function returns. `pause` is called before each file operation, and an error from `pause` stops the
/// execution.
///
/// # Errors
/// Returns an error if `pause` or a file operation fails. The next plan contains the remaining
/// steps.
pub fn apply(
    worker: &Worker,
    plan: &CompactionPlan,
    pause: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let folder = worker.path(ENTRIES);
    for (name, digest) in &plan.finishes {
        pause()?;
        gone(&folder.join(name), *digest)?;
    }
    if !plan.finishes.is_empty() || worker.path(JOURNAL).exists() {
        pause()?;
        remove(&worker.path(JOURNAL))?;
    }
    if !plan.folds.is_empty() {
        fold(worker, plan, pause)?;
    }
    for act in &plan.acts {
        if let CompactStep::Forget { file } = act {
            pause()?;
            remove(&worker.path(file))?;
        }
    }
    Ok(())
}

fn fold(
    worker: &Worker,
    plan: &CompactionPlan,
    pause: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let audit = worker.path(AUDIT);
    let mut text = match read_no_link(&audit, RECORD) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            b"# What the curator did\n\n".to_vec()
        }
        Err(error) => return Err(error),
    };
    for (_, bytes) in &plan.folds {
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(bytes);
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    let journal = Journal {
        length: text.len(),
        digest: Digest::of(&text).to_string(),
        entries: plan
            .folds
            .iter()
            .map(|(name, bytes)| (name.clone(), Digest::of(bytes).to_string()))
            .collect(),
    };
    let words = serde_json::to_vec(&journal).expect("a journal has string keys only");
    pause()?;
    write_atomic(&worker.path(JOURNAL), &words, 0o644).map_err(|it| it.source)?;
    pause()?;
    write_atomic(&audit, &text, 0o644).map_err(|it| it.source)?;
    for (name, bytes) in &plan.folds {
        pause()?;
        gone(&worker.path(ENTRIES).join(name), Digest::of(bytes))?;
    }
    pause()?;
    remove(&worker.path(JOURNAL))
}

/// Removes an entry's file, unless its content has changed since it was folded.
fn gone(path: &Path, digest: Digest) -> io::Result<()> {
    match read_no_link(path, LARGEST) {
        Ok(bytes) if Digest::of(&bytes) == digest => remove(path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the entries that an interrupted compaction has already added to the log, each with the
/// digest of its content.
fn folded(worker: &Worker) -> io::Result<Vec<(String, String)>> {
    let text = match read_no_link(worker.path(JOURNAL), DOCUMENT) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let Ok(journal) = serde_json::from_slice::<Journal>(&text) else {
        return Ok(Vec::new());
    };
    let audit = read_no_link(worker.path(AUDIT), RECORD).unwrap_or_default();
    let is_in = audit
        .get(..journal.length)
        .is_some_and(|text| Digest::of(text).to_string() == journal.digest);
    Ok(if is_in { journal.entries } else { Vec::new() })
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = listed(folder)?;
    names.retain(|name| name.ends_with(".txt") && !name.starts_with('.'));
    Ok(names)
}

fn listed(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Returns the plain files in `folder` that have not changed for longer than `keep`.
fn old(folder: &Path, keep: SignedDuration, now: Timestamp) -> io::Result<Vec<String>> {
    let mut names = listed(folder)?;
    names.retain(|name| {
        let Ok(data) = fs::symlink_metadata(folder.join(name)) else {
            return false;
        };
        let changed = data.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
        data.is_file() && changed.is_some_and(|at| now.duration_since(at) > keep)
    });
    Ok(names)
}
