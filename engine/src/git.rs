//! Git, asked as a program.
//!
//! The user's own `git` gives the answers that the user's own `git` will act on; a library would
//! sometimes give others (it does for tracked files under an ignore rule). Every call clears `GIT_*`,
//! runs no hook, no pager, no file-system monitor, and takes no optional lock, so that asking never
//! changes or blocks anything. This module must never run a git command that writes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::digest::Digest;
use crate::process::{self, Cancel, ChildSpec, Limits, SpawnError, Status, Stdin, Verdict};
use crate::tape::{Tape, Unrecorded};

/// The longest a question may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest answer: the subjects and paths of a very long history.
const LONGEST: usize = 256 * 1024 * 1024;

/// Its name on a tape.
const DOOR: &str = "git";

/// The question of a tape on which the run was asked for its commit.
pub const HEAD: &str = "rev-parse HEAD";

/// A question to git that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The folder is not inside a work tree.
    #[error("{path} is not in a git repository")]
    NotARepository {
        /// The folder.
        path: PathBuf,
    },
    /// The repository is another user's, and git looks into none of those.
    #[error(
        "{path} belongs to another user, so git refuses to look into it (if you trust it: git config --global --add safe.directory {path})"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Git could not be started.
    #[error("cannot run git")]
    Spawn(#[source] SpawnError),
    /// A run that is gone through again asks what was not asked then.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
    /// Git said no.
    #[error("git {args} ended with {status}: {stderr}")]
    Failed {
        /// The arguments after the pinned ones.
        args: String,
        /// Its exit code or signal.
        status: Status,
        /// The first lines it wrote to stderr.
        stderr: String,
    },
}

/// A work tree to ask about.
#[derive(Clone, Debug)]
pub struct Git {
    root: PathBuf,
    env: BTreeMap<String, String>,
    marker: String,
    tape: Tape,
}

impl Git {
    /// Questions about the work tree at `root`; `env` is the environment a child may have (`PATH`,
    /// `HOME`), `marker` the run that asks.
    pub fn new(root: &Path, env: &BTreeMap<String, String>, marker: &str) -> Self {
        let mut env: BTreeMap<String, String> = env
            .iter()
            .filter(|(name, _)| matches!(name.as_str(), "PATH" | "HOME" | "USER" | "LOGNAME"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        env.insert("LC_ALL".to_owned(), "C".to_owned());
        env.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
        // In a partial clone a question must not become a download.
        env.insert("GIT_NO_LAZY_FETCH".to_owned(), "1".to_owned());
        Self {
            root: root.to_owned(),
            env,
            marker: marker.to_owned(),
            tape: Tape::off(),
        }
    }

    /// The same, on a tape.
    #[must_use]
    pub fn taped(mut self, tape: Tape) -> Self {
        self.tape = tape;
        self
    }

    /// The work tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What git prints.
    ///
    /// # Errors
    /// [`GitError::Failed`] for any exit code but 0.
    pub fn ask(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.ask_with(args, Stdin::Null)
    }

    /// What git prints when it reads `stdin`.
    ///
    /// # Errors
    /// [`GitError::Failed`] for any exit code but 0.
    pub fn ask_with(&self, args: &[&str], stdin: Stdin) -> Result<Vec<u8>, GitError> {
        let (status, stdout, stderr) = self.call(args, stdin)?;
        if status == Status::Exit(0) {
            return Ok(stdout);
        }
        let stderr = String::from_utf8_lossy(&stderr)
            .lines()
            .take(3)
            .collect::<Vec<_>>()
            .join("; ");
        if stderr.contains("not a git repository") {
            return Err(GitError::NotARepository {
                path: self.root.clone(),
            });
        }
        if stderr.contains("dubious ownership") {
            return Err(GitError::Foreign {
                path: self.root.clone(),
            });
        }
        Err(GitError::Failed {
            args: args.join(" "),
            status,
            stderr,
        })
    }

    /// Whether git answers 0 (yes) or 1 (no); anything else is an error.
    ///
    /// # Errors
    /// [`GitError::Failed`] for any exit code but 0 and 1.
    pub fn says_yes(&self, args: &[&str]) -> Result<bool, GitError> {
        let (status, _, stderr) = self.call(args, Stdin::Null)?;
        match status {
            Status::Exit(0) => Ok(true),
            Status::Exit(1) => Ok(false),
            status => Err(GitError::Failed {
                args: args.join(" "),
                status,
                stderr: String::from_utf8_lossy(&stderr)
                    .lines()
                    .take(3)
                    .collect::<Vec<_>>()
                    .join("; "),
            }),
        }
    }

    /// What git prints when it reads `stdin`, where exit code 1 says that there is nothing to print.
    ///
    /// # Errors
    /// [`GitError::Failed`] for any exit code but 0 and 1.
    pub fn ask_if_any(&self, args: &[&str], stdin: Stdin) -> Result<Vec<u8>, GitError> {
        let (status, stdout, stderr) = self.call(args, stdin)?;
        match status {
            Status::Exit(0) => Ok(stdout),
            Status::Exit(1) => Ok(Vec::new()),
            status => Err(GitError::Failed {
                args: args.join(" "),
                status,
                stderr: String::from_utf8_lossy(&stderr)
                    .lines()
                    .take(3)
                    .collect::<Vec<_>>()
                    .join("; "),
            }),
        }
    }

    /// The top of the work tree.
    ///
    /// # Errors
    /// [`GitError::NotARepository`].
    pub fn top(&self) -> Result<PathBuf, GitError> {
        let out = self.ask(&["rev-parse", "--show-toplevel"])?;
        Ok(PathBuf::from(
            String::from_utf8_lossy(&out)
                .trim_end_matches('\n')
                .to_owned(),
        ))
    }

    /// The commit that is checked out; `None` in a repository without commits.
    ///
    /// # Errors
    /// [`GitError`].
    pub fn head(&self) -> Result<Option<String>, GitError> {
        if !self.says_yes(&["rev-parse", "--verify", "--quiet", "HEAD"])? {
            return Ok(None);
        }
        let out = self.ask(&["rev-parse", "HEAD"])?;
        Ok(Some(String::from_utf8_lossy(&out).trim().to_owned()))
    }

    /// The full hash of a commit that exists here.
    ///
    /// # Errors
    /// [`GitError`].
    pub fn commit(&self, hash: &str) -> Result<Option<String>, GitError> {
        if hash.len() < 7 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let name = format!("{hash}^{{commit}}");
        let (status, stdout, _) =
            self.call(&["rev-parse", "--verify", "--quiet", &name], Stdin::Null)?;
        Ok((status == Status::Exit(0)).then(|| String::from_utf8_lossy(&stdout).trim().to_owned()))
    }

    fn call(&self, args: &[&str], stdin: Stdin) -> Result<(Status, Vec<u8>, Vec<u8>), GitError> {
        let question = question(args, &stdin);
        if self.tape.replays() {
            return self.recalled(&question);
        }
        let (status, stdout, stderr) = self.started(args, stdin)?;
        if self.tape.records() {
            let words = String::from_utf8_lossy(&stderr);
            let facts = json!({ "status": status, "stderr": words });
            self.tape.note(DOOR, &question, facts, Some(&stdout));
        }
        Ok((status, stdout, stderr))
    }

    fn recalled(&self, question: &str) -> Result<(Status, Vec<u8>, Vec<u8>), GitError> {
        let answer = self.tape.recall(DOOR, question)?;
        let status = serde_json::from_value(answer.facts["status"].clone());
        let status = status.map_err(|_| Unrecorded {
            door: DOOR.to_owned(),
            question: question.to_owned(),
        })?;
        let stdout = answer.content.map(|(_, bytes)| bytes).unwrap_or_default();
        let stderr = answer.facts["stderr"].as_str().unwrap_or_default();
        Ok((status, stdout, stderr.as_bytes().to_vec()))
    }

    fn started(&self, args: &[&str], stdin: Stdin) -> Result<(Status, Vec<u8>, Vec<u8>), GitError> {
        let pinned = [
            "--no-optional-locks",
            "--no-pager",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.quotePath=false",
            "-c",
            "color.ui=false",
        ];
        let spec = ChildSpec {
            program: PathBuf::from("git"),
            args: pinned.iter().chain(args).map(OsString::from).collect(),
            cwd: self.root.clone(),
            env: self.env.clone(),
            stdin,
            limits: Limits {
                total: Some(PATIENCE),
                output_cap: LONGEST,
                ..Limits::default()
            },
            marker: self.marker.clone(),
            confine: None,
        };
        let cancel = Cancel::new().map_err(|source| {
            GitError::Spawn(SpawnError::Io {
                program: PathBuf::from("git"),
                what: "make a cancel token",
                source,
            })
        })?;
        let ended =
            process::run(&spec, &cancel, &mut |_, _| Verdict::Continue).map_err(GitError::Spawn)?;
        Ok((ended.status, ended.stdout, ended.stderr))
    }
}

/// A question as it stands on a tape.
fn question(args: &[&str], stdin: &Stdin) -> String {
    let words = args.join(" ");
    match stdin {
        Stdin::Null => words,
        Stdin::Bytes(bytes) => format!("{words} < {}", Digest::of(bytes)),
    }
}
