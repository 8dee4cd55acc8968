//! Runs an arbitrary program as a backend.
//!
//! ```text
//! request ──JSON──> stdin, and <run_dir>/request.json
//!                       program, watched until its whole tree is dead
//! answer  <──────── <run_dir>/<artifact>, if it exists and is not empty; otherwise stdout
//! ```
//!
//! Exit code 0 without an answer is an error. The artifact must be a regular file with a single
//! hard link. Unless the request's form is `Elements`, it must contain JSON. It is read after the
//! process tree is dead, through a folder handle that was opened before the program started. An
//! artifact from an earlier attempt is removed before the program starts. This backend must never
//! accept an incomplete answer or an answer from a program that failed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use runner_engine::process::{Cancel, ChildSpec, Stdin, find_program};
use runner_engine::sandbox::SandboxedStart;
use runner_text::counted;

use crate::artifact::Folder;
use crate::child::LastSandbox;
use crate::redact::Secrets;
use crate::spec::ChildSettings;
use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink, Stop, answer, child};

/// The file in the run folder that contains the request.
pub const REQUEST_FILE: &str = "request.json";

/// A backend that runs a program to answer requests.
#[derive(Clone, Debug)]
pub struct Command {
    plan: Arc<CommandPlan>,
}

/// The settings for running the program. They are the same for every request.
#[derive(Debug)]
pub(crate) struct CommandPlan {
    pub name: String,
    /// The program: a name to look up in `env`'s `PATH`, or an absolute path.
    pub program: PathBuf,
    pub settings: ChildSettings,
    /// The program's complete environment.
    pub env: BTreeMap<String, String>,
    /// Required variables that are not set.
    pub missing: Vec<String>,
    /// The artifact's file name, without a path.
    pub artifact: String,
    /// The sandbox in which the program starts.
    pub sandbox_start: Option<SandboxedStart>,
    pub held: LastSandbox,
}

impl Command {
    pub(crate) fn new(plan: CommandPlan) -> Self {
        Self { plan: Arc::new(plan) }
    }
}

#[async_trait]
impl Backend for Command {
    fn name(&self) -> &str {
        &self.plan.name
    }

    fn describe(&self) -> Description {
        Description {
            kind: "command".to_owned(),
            model: self.plan.settings.model.clone(),
            containment: self.plan.held.describe(self.plan.sandbox_start.as_ref()),
            sandbox: self.plan.held.level(),
        }
    }

    fn preflight(&self) -> Result<(), BackendError> {
        self.plan.check()
    }

    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        let (plan, request, cancel) = (self.plan.clone(), request.clone(), cancel.clone());
        let work = tokio::task::spawn_blocking(move || plan.run(&request, &cancel));
        let reply = match work.await {
            Ok(result) => result?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                return Err(BackendError::Cancelled { why: "the runtime is shutting down".into() });
            }
        };
        sink.event(Event::Text(&reply.text));
        reply.notes.iter().for_each(|note| sink.event(Event::Note(note)));
        Ok(reply)
    }
}

impl CommandPlan {
    fn check(&self) -> Result<(), BackendError> {
        if !self.missing.is_empty() {
            let why = format!(
                "backend {} names environment variables that are not set: {}",
                self.name,
                self.missing.join(", ")
            );
            return Err(BackendError::Rejected { why });
        }
        let path = self.env.get("PATH").map_or("", String::as_str);
        match find_program(&self.program, Path::new("/"), path) {
            Ok(_) => Ok(()),
            Err(error) => Err(child::spawn_error(&error)),
        }
    }

    fn run(&self, request: &Request, cancel: &Cancel) -> Result<Reply, BackendError> {
        self.check()?;
        let secrets = Secrets::of(&self.env);
        let body = serde_json::to_vec(request)
            .map_err(|error| BackendError::Rejected { why: format!("request: {error}") })?;
        let folder = match &request.run_dir {
            Some(path) => Some(self.prepare(path, &body)?),
            None => None,
        };
        let spec = ChildSpec {
            program: self.program.clone(),
            args: self.settings.args.iter().map(OsString::from).collect(),
            cwd: request.place(),
            env: self.env.clone(),
            stdin: Stdin::Bytes(body),
            limits: child::limits(&request.limits, &self.settings),
            marker: request.id.clone(),
            sandbox: self.sandbox_start.clone().into(),
        };
        let (ended, containment) = child::attempt(&spec, cancel, &secrets);
        self.held.set(containment.as_ref());
        let ended = ended?;
        let mut notes = Vec::new();
        if ended.killed > 0 {
            notes.push(format!(
                "killed {} that the program left behind",
                counted(ended.killed, "process")
            ));
        }
        let artifact = match &folder {
            Some(folder) => self.artifact(folder)?,
            None => None,
        };
        let (text, value) = match artifact {
            Some(bytes) => {
                if !answer::is_blank(&ended.stdout) {
                    notes.push(format!(
                        "{} bytes on stdout were ignored: {} is the answer",
                        ended.stdout.len(),
                        self.artifact
                    ));
                }
                answer::read(request, bytes, &self.artifact, true, &secrets)?
            }
            None if answer::is_blank(&ended.stdout) => {
                return Err(BackendError::Malformed {
                    why: "exited with code 0 without an answer".to_owned(),
                    excerpt: String::new(),
                });
            }
            None => answer::read(request, ended.stdout, "stdout", false, &secrets)?,
        };
        Ok(Reply { text, value, usage: None, stop: Stop::End, notes })
    }

    /// Opens the run folder, removes the files of an earlier attempt, and writes the request.
    fn prepare(&self, path: &Path, body: &[u8]) -> Result<Folder, BackendError> {
        let rejected = |what: &str, error: std::io::Error| BackendError::Rejected {
            why: format!("cannot {what} in the run folder {}: {error}", path.display()),
        };
        let folder = Folder::open(path).map_err(|error| rejected("work", error))?;
        for name in [REQUEST_FILE, &self.artifact] {
            folder.remove(name).map_err(|error| rejected(&format!("remove {name}"), error))?;
        }
        folder
            .write_new(REQUEST_FILE, body)
            .map_err(|error| rejected(&format!("write {REQUEST_FILE}"), error))?;
        Ok(folder)
    }

    /// Reads the program's artifact, or returns `None` if it is missing or blank.
    fn artifact(&self, folder: &Folder) -> Result<Option<Vec<u8>>, BackendError> {
        match folder.read(&self.artifact, self.settings.output_cap()) {
            Ok(bytes) => Ok(bytes.filter(|bytes| !answer::is_blank(bytes))),
            Err(why) => Err(BackendError::Malformed {
                why: format!("{} {why}", self.artifact),
                excerpt: String::new(),
            }),
        }
    }
}
