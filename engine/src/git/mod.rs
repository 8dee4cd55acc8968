//! Queries git about a project and creates commits for runner, without running any program that a
//! project names.
//!
//! Queries go to the user's own `git`, because the user will later work with the same program. A
//! git library would sometimes return different results, for example for tracked files that match an
//! ignore rule. Git reads configuration and attributes that an agent may have written, and many of them
//! name programs. Therefore, the following rules apply:
//!
//! - Apart from a push and a fetch, only the commands in [`Read`] and those that [`commit`] and
//!   [`private`] need are ever called. None of them converts, compares or prints the contents of a
//!   work tree, fetches, signs or asks for a password.
//! - Git is started with an absolute path, which is found in a `PATH` entry outside every project.
//! - The kernel prevents git from starting other programs, from using the network, and from writing
//!   outside the folders that a command needs ([`crate::sandbox::inert`]).
//!
//! This module compares the work tree without git ([`changes`]), because git would apply filters. Only a
//! push ([`push`]) and a fetch into a new repository may use the network and the user's programs,
//! and they ignore the project's configuration. This module must never call git in any other way.

pub mod changes;
pub mod commit;
mod fetch;
#[cfg(feature = "fault-injection")]
pub mod fuzzed;
pub mod private;
pub mod push;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::digest::Digest;
use crate::process::{
    self, Cancel, ChildSandbox, ChildSpec, ExitStatus, Limits, OutputVerdict, SpawnError, Stdin,
    find_program,
};
use crate::recording::{InputRecording, UnrecordedInput};
use crate::sandbox::inert::Inert;

/// Time limit for most git commands.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for a git command that reads history or processes a pack.
const HISTORY: Duration = Duration::from_secs(120);
/// Maximum size of git's output in bytes. It is sufficient for the subjects and paths of a very
/// long history.
const LONGEST: usize = 256 * 1024 * 1024;

/// Arguments that precede every command except a push or a fetch. The sandbox enforces most of
/// these restrictions anyway, but with these options, git does not even attempt the refused
/// operations. The commit graph is disabled because it is a separate file that could list parents
/// other than those in the commits.
const PINNED: [&str; 16] = [
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.quotePath=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "color.ui=false",
];

/// The name of the recorded input that contains git's output.
const INPUT: &str = "git";

/// The recorded command of [`Git::head`].
pub const HEAD: &str = "rev-parse --verify --quiet HEAD";

/// The git commands that only read. None of them runs another program or reads the files in a work
/// tree, except for ignore and attribute files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Prints object names and the paths that git uses.
    RevParse,
    /// Prints the commits that are reachable from a revision, newest first.
    RevList,
    /// Prints the bytes of an object.
    CatFile,
    /// Lists the files in the index, or the untracked files that are not ignored.
    LsFiles,
    /// Prints the differences between two trees, or between commits and their parents.
    DiffTree,
    /// Prints the differences between a tree and the index.
    DiffIndex,
    /// Lists references, their objects and the push targets of branches.
    ForEachRef,
    /// Prints those of the given paths that are ignored.
    CheckIgnore,
    /// Prints all values of one setting, such as the addresses of a remote, one per line.
    ConfigValues,
    /// Lists the settings in the project's own configuration file.
    ConfigList,
    /// Prints the branch that is checked out.
    SymbolicRef,
    /// Prints a pack with the objects reachable from the given revisions.
    PackObjects,
}

impl Read {
    fn command(self) -> &'static [&'static str] {
        match self {
            Self::RevParse => &["rev-parse"],
            Self::RevList => &["rev-list"],
            Self::CatFile => &["cat-file"],
            Self::LsFiles => &["ls-files"],
            Self::DiffTree => &["diff-tree"],
            Self::DiffIndex => &["diff-index", "--cached"],
            Self::ForEachRef => &["for-each-ref"],
            Self::CheckIgnore => &["check-ignore"],
            Self::ConfigValues => &["config", "--get-all"],
            Self::ConfigList => &["config", "--local", "--list", "-z"],
            Self::SymbolicRef => &["symbolic-ref", "--quiet"],
            Self::PackObjects => &["pack-objects"],
        }
    }

    fn with<'a>(self, args: &[&'a str]) -> Vec<&'a str> {
        self.command().iter().chain(args).copied().collect()
    }
}

/// Describes why a git operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// Git found no repository for the folder.
    #[error("{path} is not in a git repository")]
    NotARepository { path: PathBuf },
    /// The repository belongs to another user, and git refuses to read it.
    #[error(
        "{path} belongs to another user, so git refuses to use it; fix: if you trust it, run \"git config --global --add safe.directory {path}\""
    )]
    Foreign { path: PathBuf },
    /// Git could not be started.
    #[error("cannot run git")]
    Spawn(#[source] SpawnError),
    /// A replayed run asked a question that the recording does not answer.
    #[error(transparent)]
    Unrecorded(#[from] UnrecordedInput),
    /// Git would write through a symbolic link, to a special file, or to a file with several hard
    /// links.
    #[error("{} is a symbolic link, a special file or a file with several hard links, so git would write elsewhere; remove it", path.display())]
    Linked { path: PathBuf },
    /// A child cannot get a private git directory for this repository.
    #[error("{}: {why}", path.display())]
    Unsupported {
        path: PathBuf,
        /// The unsupported property of the repository.
        why: &'static str,
    },
    /// A git folder, or a file in it, cannot be created, read or written.
    #[error("{}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    /// A tree object cannot be parsed.
    #[error("the tree {object} is damaged")]
    Damaged { object: String },
    /// The project's folder, a file that must be compared, or the list of index entries cannot be
    /// read.
    #[error("{path}: {why}")]
    Unreadable {
        /// The path of the file relative to the project, the project's path, `the index` or `the
        /// recorded changes`.
        path: String,
        /// The reason why the file cannot be read.
        why: String,
    },
    /// Git exited with an error.
    #[error("git {args} ended with {status}: {stderr}")]
    Failed {
        /// The arguments that follow the pinned arguments, or only the command's name if the
        /// command writes or uses the network.
        args: String,
        /// Git's exit code or signal.
        status: ExitStatus,
        /// The first three non-empty lines of git's standard error.
        stderr: String,
    },
}

/// Runs git commands in one work tree.
#[derive(Clone, Debug)]
pub struct Git {
    /// The folder in which git is started.
    root: PathBuf,
    /// The project's work tree, which may contain programs written by an agent.
    project: PathBuf,
    env: BTreeMap<String, String>,
    marker: String,
    recording: InputRecording,
}

impl Git {
    /// Creates an instance for the work tree at `root`. Git's environment gets `PATH`, `HOME` and
    /// the user's name from `env`. `marker` identifies the run in the environment of git's
    /// processes.
    pub fn new(root: &Path, env: &BTreeMap<String, String>, marker: &str) -> Self {
        let mut env: BTreeMap<String, String> = env
            .iter()
            .filter(|(name, _)| matches!(name.as_str(), "PATH" | "HOME" | "USER" | "LOGNAME"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        env.insert("LC_ALL".to_owned(), "C".to_owned());
        env.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
        // In a partial clone, a query must not start a download. Replacement objects would show
        // a different history from the one that is pushed.
        env.insert("GIT_NO_LAZY_FETCH".to_owned(), "1".to_owned());
        env.insert("GIT_NO_REPLACE_OBJECTS".to_owned(), "1".to_owned());
        Self {
            root: root.to_owned(),
            project: root.to_owned(),
            env,
            marker: marker.to_owned(),
            recording: InputRecording::off(),
        }
    }

    #[must_use]
    pub fn with_recording(mut self, recording: InputRecording) -> Self {
        self.recording = recording;
        self
    }

    /// Returns the marker that identifies the run in the environment of git's processes.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// Returns the environment variables that git commands get.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs a git command and returns its standard output.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git cannot be started, if it does not exit with code 0, or if a
    /// replayed recording lacks the answer.
    pub fn ask(&self, read: Read, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.ask_with(read, args, Stdin::Null)
    }

    /// Runs a git command that reads `stdin`, and returns its standard output.
    ///
    /// # Errors
    /// Returns the errors of [`Git::ask`].
    pub fn ask_with(&self, read: Read, args: &[&str], stdin: Stdin) -> Result<Vec<u8>, GitError> {
        let args = read.with(args);
        let answer = self.call(&args, stdin)?;
        self.successful(&args, answer)
    }

    fn successful(&self, args: &[&str], answer: Answer) -> Result<Vec<u8>, GitError> {
        if answer.status == ExitStatus::Exit(0) {
            return Ok(answer.stdout);
        }
        let stderr = answer.first_lines();
        if stderr.contains("not a git repository") {
            return Err(GitError::NotARepository { path: self.root.clone() });
        }
        if stderr.contains("dubious ownership") {
            return Err(GitError::Foreign { path: self.root.clone() });
        }
        Err(GitError::Failed { args: args.join(" "), status: answer.status, stderr })
    }

    /// Runs a git command that reads `stdin`, and returns its standard output. Returns `None` for
    /// exit code 1, which means that there is no output.
    ///
    /// # Errors
    /// Returns the errors of [`Git::ask`]. Exit code 1 is not an error.
    pub fn ask_if_any(
        &self,
        read: Read,
        args: &[&str],
        stdin: Stdin,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let args = read.with(args);
        let answer = self.call(&args, stdin)?;
        match answer.status {
            ExitStatus::Exit(1) => Ok(None),
            _ => self.successful(&args, answer).map(Some),
        }
    }

    /// Returns one line for each commit selected by `args`, newest first. `format` uses git's
    /// placeholders and must not contain a line feed.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails.
    pub fn log(&self, format: &str, args: &[&str]) -> Result<Vec<String>, GitError> {
        let format = format!("--format=tformat:{format}");
        let mut all = vec![format.as_str(), "--encoding=UTF-8"];
        all.extend(args);
        let out = self.ask(Read::RevList, &all)?;
        // Git prints a line with the commit's name before each formatted line.
        let lines = out.split(|byte| *byte == b'\n').skip(1).step_by(2);
        Ok(lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect())
    }

    /// Returns the differences between `commits` and their parents, in the format selected by
    /// `args`. `commits` has one hash per line, as printed by `rev-list`.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails.
    pub fn diffs(&self, commits: Vec<u8>, args: &[&str]) -> Result<Vec<u8>, GitError> {
        let mut all = vec![
            "--stdin",
            "--root",
            "-r",
            "--no-renames",
            // This option overrides the file order in the user's configuration.
            "-O/dev/null",
            "--encoding=UTF-8",
        ];
        all.extend(args);
        self.ask_with(Read::DiffTree, &all, Stdin::Bytes(commits))
    }

    /// Returns whether `ancestor` is an ancestor of `descendant` or the same commit.
    ///
    /// # Errors
    /// Returns a [`GitError`], for example if one of the commits does not exist.
    pub fn leads_to(&self, ancestor: &str, descendant: &str) -> Result<bool, GitError> {
        let missing =
            self.ask(Read::RevList, &["--max-count=1", ancestor, "--not", descendant, "--"])?;
        Ok(missing.is_empty())
    }

    /// Returns the top-level folder of the work tree.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails, for example [`GitError::NotARepository`].
    pub fn top(&self) -> Result<PathBuf, GitError> {
        self.path(&["--show-toplevel"])
    }

    /// Returns the absolute path that `rev-parse` prints for `args`.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails.
    pub fn path(&self, args: &[&str]) -> Result<PathBuf, GitError> {
        let mut all = vec!["--path-format=absolute"];
        all.extend(args);
        let out = self.ask(Read::RevParse, &all)?;
        let path = out.strip_suffix(b"\n").unwrap_or(&out);
        Ok(PathBuf::from(OsStr::from_bytes(path)))
    }

    /// Returns the commit that is checked out, or `None` if the checked-out branch has no commits
    /// yet.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails.
    pub fn head(&self) -> Result<Option<String>, GitError> {
        let args = ["--verify", "--quiet", "HEAD"];
        let out = self.ask_if_any(Read::RevParse, &args, Stdin::Null)?;
        Ok(out.map(|out| String::from_utf8_lossy(&out).trim().to_owned()))
    }

    /// Returns the full hash of a commit. `hash` may be abbreviated to at least seven digits.
    /// Returns `None` if this repository does not contain the commit, or if `hash` is shorter or
    /// not hexadecimal.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git cannot be started, or if a replayed recording lacks the
    /// answer.
    pub fn commit(&self, hash: &str) -> Result<Option<String>, GitError> {
        if hash.len() < 7 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let name = format!("{hash}^{{commit}}");
        let answer = self.call(&["rev-parse", "--verify", "--quiet", &name], Stdin::Null)?;
        Ok((answer.status == ExitStatus::Exit(0))
            .then(|| String::from_utf8_lossy(&answer.stdout).trim().to_owned()))
    }

    fn call(&self, args: &[&str], stdin: Stdin) -> Result<Answer, GitError> {
        let question = question(args, &stdin);
        if self.recording.replays() {
            return self.recalled(&question);
        }
        let answer = self.started(args, stdin, Inert::default())?;
        if self.recording.records() {
            let stderr = String::from_utf8_lossy(&answer.stderr);
            let facts = json!({ "status": answer.status, "stderr": stderr });
            self.recording.note(INPUT, &question, facts, Some(&answer.stdout));
        }
        Ok(answer)
    }

    fn recalled(&self, question: &str) -> Result<Answer, GitError> {
        let answer = self.recording.recall(INPUT, question)?;
        let status = serde_json::from_value(answer.facts["status"].clone());
        let status = status.map_err(|_| UnrecordedInput {
            input: INPUT.to_owned(),
            question: question.to_owned(),
        })?;
        Ok(Answer {
            status,
            stdout: answer.content.map(|(_, bytes)| bytes).unwrap_or_default(),
            stderr: answer.facts["stderr"].as_str().unwrap_or_default().as_bytes().to_vec(),
        })
    }

    fn started(&self, args: &[&str], stdin: Stdin, rights: Inert) -> Result<Answer, GitError> {
        let spec = ChildSpec {
            program: self.program().map_err(GitError::Spawn)?,
            args: PINNED.iter().chain(args).map(OsString::from).collect(),
            cwd: self.root.clone(),
            env: self.env.clone(),
            stdin,
            limits: Limits {
                total: Some(match args.first() {
                    Some(&("rev-list" | "diff-tree" | "pack-objects" | "index-pack")) => HISTORY,
                    _ => PATIENCE,
                }),
                output_cap: LONGEST,
                ..Limits::default()
            },
            marker: self.marker.clone(),
            sandbox: ChildSandbox::Inert(rights),
        };
        start(&spec, &Cancel::new().map_err(no_token)?)
    }

    /// Searches the `PATH` entries outside every project for git, and returns its absolute path.
    ///
    /// # Errors
    /// Returns an error if git is not found.
    pub fn program(&self) -> Result<PathBuf, SpawnError> {
        let path = self.env.get("PATH").map_or("", String::as_str);
        let git = Path::new("git");
        // Entries without git are skipped first, because checking whether an entry is inside a
        // project is slower.
        path.split(':')
            .filter(|entry| Path::new(entry).join(git).exists() && !is_inside(entry, &self.project))
            .find_map(|entry| find_program(git, &self.root, entry).ok())
            .map_or_else(|| find_program(git, &self.root, &outside(path, &self.project)), Ok)
    }
}

/// Returns the `PATH` entries that are outside every project and whose `git` is not a link into
/// one. An agent may have written a program into a project.
pub fn outside(path: &str, project: &Path) -> String {
    let entries = path.split(':').filter(|entry| !is_inside(entry, project));
    entries.collect::<Vec<_>>().join(":")
}

/// Returns whether a `PATH` entry, or the `git` in it, is inside `project` or another project. A
/// relative entry is treated as inside, because it depends on the current folder.
pub fn is_inside(entry: &str, project: &Path) -> bool {
    let project = fs::canonicalize(project).ok();
    let leads = |path: &Path| {
        fs::canonicalize(path).is_ok_and(|real| {
            is_in_a_project(&real) || project.as_ref().is_some_and(|it| real.starts_with(it))
        })
    };
    let entry = Path::new(entry);
    !entry.is_absolute() || leads(entry) || leads(&entry.join("git"))
}

/// Returns whether a canonical path (see [`fs::canonicalize`]) is inside a project, which is a
/// folder that contains a `runner.toml`.
pub fn is_in_a_project(real: &Path) -> bool {
    real.ancestors().any(|folder| folder.join("runner.toml").symlink_metadata().is_ok())
}

#[derive(Debug)]
struct Answer {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Answer {
    fn first_lines(&self) -> String {
        String::from_utf8_lossy(&self.stderr)
            .lines()
            .filter(|line| !line.trim().is_empty())
            .take(3)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn no_token(source: std::io::Error) -> GitError {
    GitError::Spawn(SpawnError::Io {
        program: PathBuf::from("git"),
        what: "create a cancel token",
        source,
    })
}

fn start(spec: &ChildSpec, cancel: &Cancel) -> Result<Answer, GitError> {
    let ended =
        process::run(spec, cancel, &mut |_, _| OutputVerdict::Continue).map_err(GitError::Spawn)?;
    Ok(Answer { status: ended.status, stdout: ended.stdout, stderr: ended.stderr })
}

/// Returns the text that identifies a question in recordings.
fn question(args: &[&str], stdin: &Stdin) -> String {
    let command = args.join(" ");
    match stdin {
        Stdin::Null => command,
        Stdin::Bytes(bytes) => format!("{command} < {}", Digest::of(bytes)),
    }
}
