//! The steps for setting up this machine: shown first, then carried out as shown.
//!
//! If a plan was interrupted between two steps, the next plan contains the steps that remain. This
//! module must never change anything except the record without having shown the change.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use runner_engine::error_chain::whole;
use runner_engine::failpoint;
use runner_engine::files::write_atomic;
use runner_text::{shell_line, shell_word};
use similar::TextDiff;

use super::crontab;
use super::record::SetupRecord;
use crate::env;
use crate::project::FILE;
use crate::ui::Failure;

/// One step of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Writes the record of the items that will exist, or that exist now.
    Note(Box<SetupRecord>),
    Folder(PathBuf),
    /// Writes a file. The file keeps its permissions if no mode is given.
    Write {
        path: PathBuf,
        old: Option<String>,
        new: String,
        mode: Option<u32>,
    },
    /// Creates a symbolic link at the first path, pointing to the second.
    Link(PathBuf, PathBuf),
    Crontab {
        old: Option<Vec<u8>>,
        /// The new crontab; `None` removes it.
        new: Option<Vec<u8>>,
    },
    Run {
        /// The program and its arguments.
        words: Vec<String>,
        on_failure: OnFailure,
    },
    Remove(PathBuf),
    /// Removes a folder if it is empty.
    RemoveFolder(PathBuf),
    /// Removes the record, because nothing is left.
    Forget,
}

/// How the setup reacts to a command that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Stops with an error.
    Stop,
    /// Reports the failure and continues.
    Report,
}

impl SetupStep {
    /// Describes the step in one line, followed by a diff if it changes text. Returns `None` for a
    /// step that only changes the record.
    pub fn message(&self) -> Option<String> {
        Some(match self {
            Self::Note(_) | Self::Forget => return None,
            Self::Folder(path) => format!("create the folder {}", path.display()),
            Self::Write { path, old, new, .. } => {
                let verb = if old.is_some() { "change" } else { "write" };
                format!(
                    "{verb} {}\n{}",
                    path.display(),
                    difference(old.as_deref().unwrap_or_default(), new)
                )
            }
            Self::Link(path, to) => format!("link {} to {}", path.display(), to.display()),
            Self::Crontab { old, new: None } => format!(
                "remove the crontab, because there was none before the setup\n{}",
                difference(&lossy(old.as_ref()), "")
            ),
            Self::Crontab { old, new } => format!(
                "change the crontab\n{}",
                difference(&lossy(old.as_ref()), &lossy(new.as_ref()))
            ),
            Self::Run { words, on_failure } => format!(
                "run {}{}",
                shell_line(words),
                if *on_failure == OnFailure::Stop { "" } else { "   (continues if it fails)" }
            ),
            Self::Remove(path) => format!("remove {}", path.display()),
            Self::RemoveFolder(path) => {
                format!("remove the folder {}, if it is empty", path.display())
            }
        })
    }
}

fn lossy(text: Option<&Vec<u8>>) -> String {
    text.map_or_else(String::new, |text| String::from_utf8_lossy(text).into_owned())
}

impl SetupStep {
    /// Returns the project whose settings file the step writes, and the file's new contents.
    pub fn project_edit(&self) -> Option<(&Path, &str)> {
        match self {
            Self::Write { path, new, .. } if path.ends_with(FILE) => Some((path.parent()?, new)),
            _ => None,
        }
    }
}

/// Returns a unified diff of two strings, indented by four spaces.
pub fn difference(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(2).to_string();
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Carries out the steps, with the record at `note` and a temporary file at `draft`. Returns
/// messages about problems that did not stop the setup.
pub fn carry_out(steps: &[SetupStep], note: &Path, draft: &Path) -> Result<Vec<String>, Failure> {
    let mut troubles = Vec::new();
    for step in steps {
        failpoint::before("a step of the setup");
        if let Some(trouble) = one(step, note, draft)? {
            troubles.push(trouble);
        }
    }
    Ok(troubles)
}

fn one(step: &SetupStep, note: &Path, draft: &Path) -> Result<Option<String>, Failure> {
    let cannot = |path: &Path, why: String| {
        Failure::cannot_write(format!("cannot write {}: {why}", path.display()))
            .hint(format!("ls -ld {}", shell_word(path.parent().unwrap_or(path).display())))
    };
    let gone = |path: &Path, done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cannot(path, error.to_string()))
        }
        _ => Ok(()),
    };
    match step {
        SetupStep::Note(record) => {
            let text = serde_json::to_vec(record).expect("a record has string keys only");
            write_atomic(note, &text, 0o600).map_err(|error| cannot(note, whole(&error)))?;
        }
        SetupStep::Folder(path) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(path)
            .map_err(|error| cannot(path, error.to_string()))?,
        SetupStep::Write { path, old, new, mode } => {
            let there = super::text_at(path)?;
            if there != *old && there.as_deref() != Some(new.as_str()) {
                return Err(Failure::later(format!(
                    "another process changed {} in the meantime, so it was not written",
                    path.display()
                ))
                .hint("run the command again"));
            }
            let kept = fs::metadata(path).map(|data| data.permissions().mode() & 0o7777);
            let mode = mode.unwrap_or_else(|| kept.unwrap_or(0o644));
            write_atomic(path, new.as_bytes(), mode)
                .map_err(|error| cannot(path, whole(&error)))?;
        }
        SetupStep::Link(path, to) => match symlink(to, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done.map_err(|error| cannot(path, error.to_string()))?,
        },
        SetupStep::Crontab { old, new } => {
            return crontab::write(old.as_deref(), new.as_deref(), draft);
        }
        SetupStep::Run { words, on_failure } => {
            if let Err(why) = run(words) {
                let what = format!("{}: {why}", shell_line(words));
                if *on_failure == OnFailure::Stop {
                    return Err(Failure::environment(what).hint(
                        "correct the problem and run the command again, or: runner setup --scheduler cron --apply",
                    ));
                }
                return Ok(Some(what));
            }
        }
        SetupStep::Remove(path) => gone(path, fs::remove_file(path))?,
        // A folder is kept if another program has created a file in it.
        SetupStep::RemoveFolder(path) => match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            done => gone(path, done)?,
        },
        SetupStep::Forget => gone(note, fs::remove_file(note))?,
    }
    Ok(None)
}

/// Runs a host program and returns its standard output. If it fails, returns its exit status and
/// error output.
pub fn run(words: &[String]) -> Result<String, String> {
    let done = env::host_command(&words[0])
        .map_err(|error| error.to_string())?
        .args(&words[1..])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim())),
    }
}
