//! Writes `_steps.jsonl`, which contains one row for every tool use of an agent in a project.
//!
//! ```text
//! a run's event stream ──Recorder──┐
//!                                  ├──> one line, one write, O_APPEND ──> _steps.jsonl
//! an interactive session's hook ───┘                                        │ beyond its cap
//!                                                  .runner/steps.1.jsonl <──┘ one older file is kept
//! ```
//!
//! Runner writes the rows of a run from the event stream of the agent's program. A run's agent
//! cannot access the file. A failure to write a row never fails the run. This module must never
//! write a secret and never follow a link. The underscore in the file's name marks it as private,
//! so it appears in no page or commit.

mod of_run;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_backends::{Event, OwnedTarget, Target, ToolResult};
use runner_engine::files::{open_in, open_with_no_link};
use runner_text::redact::Redactor;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The name of the file at a project's root, unless the configuration names another.
pub const FILE: &str = "_steps.jsonl";
/// The path to which a full file is renamed, relative to the project.
pub const OLDER: &str = ".runner/steps.1.jsonl";
/// The size at which the file is rotated, in bytes.
pub const CAP: u64 = 1024 * 1024;
/// The tool name in the row that represents a whole run, used if the agent's tool uses cannot be
/// observed.
pub const RUN: &str = "run";
/// Maximum length of an argument or error in a row, in bytes.
const LONGEST: usize = 400;
/// Maximum number of tool uses awaiting a result. Uses beyond this limit are recorded immediately,
/// without a result.
const MOST_AT_ONCE: usize = 1_000;
/// The number of bytes at the end of the file that [`StepsFile::last`] searches for rows.
const TAIL: u64 = 64 * 1024;

/// A row of the file, which describes one tool use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStep {
    /// The 1-based number of the row in the file. Two concurrent sessions may use the same number.
    #[serde(default)]
    pub step: u64,
    #[serde(default)]
    pub tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
    /// The exit code: 0 if the tool succeeded or its result was not awaited, and -1 if it never
    /// returned.
    #[serde(default)]
    pub exit_code: i64,
    #[serde(default)]
    pub error: Option<String>,
    /// The duration of the tool use in milliseconds.
    #[serde(default)]
    pub dur_ms: u64,
    /// The time at which the row was written, normally when the tool returned.
    #[serde(default)]
    pub ts: String,
    /// The project's named agent that used the tool, or `None` for the default agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The input of a tool, in one of three fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Args {
    /// The path of a file or folder. A path inside the project is relative to the project's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Any other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
}

impl ToolStep {
    /// Creates a row for a use of `tool` in the project at `root`. The row is numbered when it is
    /// written.
    pub fn of(tool: &str, target: Option<Target<'_>>, root: &Path, redactor: &Redactor) -> Self {
        let args = target.map(|target| match target {
            Target::Path(path) => {
                Args { path: Some(clean(&below(root, path), redactor)), ..Args::default() }
            }
            Target::Command(cmd) => Args { cmd: Some(clean(cmd, redactor)), ..Args::default() },
            Target::Pipeline(reported) => {
                Args { pipeline: Some(clean(reported, redactor)), ..Args::default() }
            }
        });
        Self { tool: clean(tool, redactor), args, ..Self::default() }
    }

    /// Adds the result of the tool to the row.
    #[must_use]
    pub fn came_back(mut self, result: &ToolResult<'_>, redactor: &Redactor) -> Self {
        self.exit_code = result.exit_code.unwrap_or(i64::from(result.failed));
        self.error = (result.error).map(|error| clean(error.trim(), redactor));
        if result.failed && self.exit_code == 0 {
            self.exit_code = 1;
        }
        self
    }

    /// Formats the row as one line: the tool and its input, each truncated to 80 characters, and
    /// the exit code.
    pub fn line(&self) -> String {
        let args = self.args.as_ref();
        let target = args.and_then(|args| {
            let one = args.path.as_deref().or(args.cmd.as_deref());
            one.or(args.pipeline.as_deref())
        });
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let target: String = flat(target.unwrap_or_default()).chars().take(80).collect();
        let tool: String = flat(&self.tool).chars().take(80).collect();
        let blank = if target.is_empty() { "" } else { " " };
        format!("{tool}{blank}{target} (exit {})", self.exit_code)
    }
}

/// Redacts a string and truncates it to [`LONGEST`] bytes.
fn clean(text: &str, redactor: &Redactor) -> String {
    let text = redactor.redact(text);
    match text.floor_char_boundary(LONGEST) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.into_owned(),
    }
}

/// Returns a path relative to the project, or unchanged if it is outside the project.
fn below(root: &Path, path: &str) -> String {
    let inner = Path::new(path).strip_prefix(root).ok();
    inner.and_then(Path::to_str).unwrap_or(path).to_owned()
}

/// The file to which the rows are written.
#[derive(Clone, Debug)]
pub struct StepsFile {
    /// The project's canonical root.
    pub root: PathBuf,
    /// The file's path, relative to the root.
    pub path: String,
    /// The size at which the file is rotated, in bytes.
    pub cap: u64,
    /// The named agent that uses the tools, or `None` for the default agent.
    pub agent: Option<String>,
}

impl StepsFile {
    /// Describes a project's steps file with the default cap.
    pub fn new(root: &Path, path: &str, agent: Option<&str>) -> Self {
        Self {
            root: root.to_owned(),
            path: path.to_owned(),
            cap: CAP,
            agent: agent.map(str::to_owned),
        }
    }

    /// Opens the file, creating or rotating it if necessary. The file is not rotated again while
    /// the returned handle is open.
    ///
    /// A child's sandbox depends on the lock, which keeps the file in place. The sandbox hides an
    /// existing file, but if the file is missing, the sandbox mounts a folder at its path, and then
    /// no process can create the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, rotated or locked, or if it is not a regular
    /// file with exactly one hard link.
    pub fn hold_lock(&self) -> io::Result<File> {
        loop {
            let file = self.turned()?;
            flock(&file, FlockOperation::LockShared)?;
            // Another process may have rotated the file before the lock was taken.
            if self.is_current(&file).unwrap_or(false) {
                return Ok(file);
            }
        }
    }

    /// Appends a row with one write, after rotating a full file. Sets the row's number, time and
    /// agent.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, is not a regular file with exactly one hard
    /// link, cannot be written, or has reached eight times its cap because it could not be rotated.
    pub fn append(&self, mut step: ToolStep, now: Timestamp) -> io::Result<()> {
        let mut file = self.turned()?;
        if file.metadata()?.len() >= 8 * self.cap {
            return Err(io::Error::other(format!("{} is full", self.path)));
        }
        let (rows, whole) = rows(&mut file)?;
        step.step = rows + 1;
        step.ts = now.to_string();
        step.agent.clone_from(&self.agent);
        let mut line = serde_json::to_string(&step).map_err(io::Error::other)?;
        line.push('\n');
        if !whole {
            // The leading line feed keeps this row from being joined to an incomplete last row.
            line.insert(0, '\n');
        }
        file.write_all(line.as_bytes())
    }

    fn turned(&self) -> io::Result<File> {
        let file = self.open()?;
        if file.metadata()?.len() >= self.cap && self.turn(&file)? {
            return self.open();
        }
        Ok(file)
    }

    fn full(&self) -> PathBuf {
        self.root.join(&self.path)
    }

    fn open(&self) -> io::Result<File> {
        let path = self.full();
        let mut options = File::options();
        options.create(true).append(true).read(true).mode(0o600);
        let file = open_with_no_link(&mut options, &path)?;
        if file.metadata()?.nlink() > 1 {
            let why =
                format!("{} is not a regular file with exactly one hard link", path.display());
            return Err(io::Error::other(why));
        }
        Ok(file)
    }

    /// Returns whether the path names this file.
    fn is_current(&self, file: &File) -> io::Result<bool> {
        let (held, named) = (file.metadata()?, fs::symlink_metadata(self.full())?);
        Ok((held.dev(), held.ino()) == (named.dev(), named.ino()))
    }

    /// Renames a full file, unless another process holds its lock or has already renamed it.
    /// Returns whether the file was renamed, so the path must be opened again.
    ///
    /// A process that still has the file open continues to write to the older file, so no row is
    /// lost.
    fn turn(&self, file: &File) -> io::Result<bool> {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        if !self.is_current(file)? {
            return Ok(true);
        }
        let older = self.root.join(OLDER);
        if let Some(folder) = older.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(self.full(), older)?;
        Ok(true)
    }

    /// Returns at most `count` of the last rows of the agent and of sessions without an agent,
    /// oldest first. Invalid lines are skipped, and a missing file has no rows.
    ///
    /// # Errors
    /// Returns an error if the file exists but cannot be read.
    pub fn last(&self, count: usize) -> io::Result<Vec<ToolStep>> {
        let mut rows = self.rows_of(&self.full())?;
        if rows.len() < count {
            // After a recent rotation, the missing rows are at the end of the older file.
            let mut older = self.rows_of(&self.root.join(OLDER)).unwrap_or_default();
            older.append(&mut rows);
            rows = older;
        }
        let from = rows.len().saturating_sub(count);
        Ok(rows.split_off(from))
    }

    fn rows_of(&self, path: &Path) -> io::Result<Vec<ToolStep>> {
        let mut file = match open_in(&self.root, path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let skipped = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        let mut lines = bytes.split(|byte| *byte == b'\n');
        if skipped > 0 {
            lines.next();
        }
        Ok(lines
            .filter(|line| line.starts_with(b"{"))
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(|row: &ToolStep| row.agent.is_none() || row.agent == self.agent)
            .collect())
    }
}

/// Returns the number of line feeds in a file, and whether the file is empty or ends with one.
fn rows(file: &mut File) -> io::Result<(u64, bool)> {
    file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; 64 * 1024];
    let (mut rows, mut whole) = (0, true);
    loop {
        let read = file.read(&mut buffer)?;
        let Some(last) = buffer[..read].last() else {
            return Ok((rows, whole));
        };
        whole = *last == b'\n';
        rows += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}

/// Writes the tool uses in one request's event stream, each as soon as its tool returns.
#[derive(Debug)]
pub struct Recorder {
    file: StepsFile,
    redactor: Redactor,
    begun: HashMap<String, (ToolStep, Timestamp)>,
    _held: Option<File>,
}

impl Recorder {
    /// Creates a recorder that writes to `file` and keeps the file from being rotated. The caller
    /// must create the recorder before the agent's program starts.
    pub fn new(file: StepsFile, redactor: Redactor) -> Self {
        let held = file.hold_lock();
        let held =
            held.inspect_err(|error| tracing::warn!(%error, "{} cannot be written", file.path));
        Self { _held: held.ok(), file, redactor, begun: HashMap::new() }
    }

    /// Processes an event of the stream.
    pub fn event(&mut self, event: Event<'_>, now: Timestamp) {
        match event {
            Event::ToolUse { id, name, target } => {
                let step = ToolStep::of(name, target, &self.file.root, &self.redactor);
                if self.begun.len() >= MOST_AT_ONCE || id.is_empty() {
                    // No result will be matched to this use.
                    return self.put(step, now);
                }
                if let Some((before, _)) = self.begun.insert(id.to_owned(), (step, now)) {
                    self.put(unanswered(before), now);
                }
            }
            Event::ToolResult(result) => {
                let (step, since) = match self.begun.remove(result.id) {
                    Some(begun) => begun,
                    // The use was already recorded without a result.
                    None if !result.failed => return,
                    None => (ToolStep::of("?", None, &self.file.root, &self.redactor), now),
                };
                let mut step = step.came_back(&result, &self.redactor);
                let took = now.duration_since(since).as_millis();
                step.dur_ms = u64::try_from(took).unwrap_or(0);
                self.put(step, now);
            }
            _ => {}
        }
    }

    /// Ends the stream and records the tool uses that have not returned.
    pub fn ended(&mut self, now: Timestamp) {
        let mut left: Vec<(ToolStep, Timestamp)> = self.begun.drain().map(|(_, it)| it).collect();
        left.sort_by_key(|(_, since)| *since);
        for (step, _) in left {
            self.put(unanswered(step), now);
        }
    }

    fn put(&mut self, step: ToolStep, now: Timestamp) {
        if let Err(error) = self.file.append(step, now) {
            tracing::warn!(%error, "a step could not be recorded in {}", self.file.path);
        }
    }
}

/// Marks a tool use that never returned.
fn unanswered(mut step: ToolStep) -> ToolStep {
    step.exit_code = -1;
    step.error = Some("it did not return".to_owned());
    step
}

/// Creates a row from the payload that Claude Code passes to its hook after a tool use.
///
/// # Errors
/// Returns a description of the invalid part of the payload.
pub fn of_hook(payload: &[u8], root: &Path, redactor: &Redactor) -> Result<ToolStep, String> {
    let payload: serde_json::Value = serde_json::from_slice(payload)
        .map_err(|error| format!("the payload is not JSON: {error}"))?;
    let tool = payload["tool_name"].as_str();
    let tool = tool.ok_or("the payload names no tool")?;
    let target = OwnedTarget::of_input(&payload["tool_input"]);
    let step = ToolStep::of(tool, target.as_ref().map(OwnedTarget::as_target), root, redactor);
    let response = &payload["tool_response"];
    let text = |key: &str| response[key].as_str().filter(|text| !text.is_empty());
    let stated = payload["error"].as_str().or_else(|| text("error"));
    let failed = stated.is_some()
        || response["is_error"] == true
        || response["success"] == false
        || response["interrupted"] == true
        || payload["hook_event_name"] == "PostToolUseFailure";
    let error = stated.or_else(|| text("stderr").filter(|_| failed));
    let code = ["exit_code", "exitCode", "returnCode"];
    let result = ToolResult {
        id: "",
        failed,
        exit_code: code.iter().find_map(|key| response[*key].as_i64()),
        error,
    };
    let mut step = step.came_back(&result, redactor);
    step.dur_ms = payload["duration_ms"].as_u64().unwrap_or(0);
    Ok(step)
}

#[cfg(test)]
mod tests;
