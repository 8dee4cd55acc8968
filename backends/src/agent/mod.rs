//! Runs agent programs, which read a question from standard input and write events as JSON lines to
//! standard output.
//!
//! ```text
//! Request ──prompt──> stdin, written and closed
//!                        program ──stdout──> Lines ──line──> EventStream ──event──> Sink
//!                           │                                  │ result seen: exit grace
//!                           v                                  v
//!                         Ended ─────────────────────────> judge ──> Reply | BackendError
//! ```
//!
//! The result is evaluated only after the process tree is dead. This module must never treat an
//! exit code alone as success.

pub(crate) mod events;
pub(crate) mod lines;
pub(crate) mod prompt;
pub(crate) mod refusal_text;
pub(crate) mod reset;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use runner_engine::process::{
    Cancel, ChildSpec, Ended, ExitStatus, OutputVerdict, Stdin, Stream, find_program, run,
};
use runner_engine::sandbox::SandboxedStart;
use runner_engine::time::Clock;
use runner_text::counted;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::child::LastSandbox;
use crate::error::BackendError;
use crate::redact::Secrets;
use crate::request::{Reply, Request};
use crate::sink::{Event, OwnedEvent, Sink};
use crate::spec::ChildSettings;
use crate::{answer, child, credentials};
use events::{AgentEvents, EventStream};
use prompt::ProgramAnswer;
use refusal_text::LocalClock;

/// The settings for running an agent program. They are the same for every request.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlan {
    pub name: String,
    pub kind: &'static str,
    /// The program: a name to look up in `env`'s `PATH`, or an absolute path.
    pub program: PathBuf,
    /// The settings. Any variable that `settings.env` lists may contain a key.
    pub settings: ChildSettings,
    /// The program's environment, without the variables that the kind of agent adds.
    pub env: BTreeMap<String, String>,
    /// Required environment variables that are not set.
    pub missing: Vec<String>,
    /// The agent's state folder, which contains its login and settings. `None` if the agent chooses
    /// the folder itself.
    pub state: Option<PathBuf>,
    /// Whether the program keeps its own record of requests.
    pub sessions: bool,
    pub tools: Vec<String>,
    pub sandbox_start: Option<SandboxedStart>,
    pub clock: Clock,
    pub held: LastSandbox,
}

impl AgentPlan {
    /// Checks that everything the program needs is present, without starting anything.
    pub fn check(&self) -> Result<(), BackendError> {
        if !self.missing.is_empty() {
            let why = format!(
                "backend {} names environment variables that are not set: {}",
                self.name,
                self.missing.join(", ")
            );
            return Err(BackendError::Rejected { why });
        }
        self.find()?;
        credentials::plausible(self).map(|_| ())
    }

    /// Finds the program's executable.
    pub fn find(&self) -> Result<PathBuf, BackendError> {
        let path = self.env.get("PATH").map_or("", String::as_str);
        find_program(&self.program, Path::new("/"), path).map_err(|error| match child::spawn_error(
            &error,
        ) {
            BackendError::NotInstalled { what, hint } => BackendError::NotInstalled {
                what,
                hint: format!("{hint}; {}", credentials::install(self.kind)),
            },
            other => other,
        })
    }

    /// Returns the current time and the time zone for interpreting the program's times.
    pub fn here(&self) -> LocalClock {
        let zone = self.env.get("TZ").and_then(|name| TimeZone::get(name).ok());
        LocalClock {
            now: self.clock.read().map(|now| now.wall).unwrap_or_default(),
            zone: zone.unwrap_or_else(|| TimeZone::try_system().unwrap_or(TimeZone::UTC)),
        }
    }

    /// Returns the sandbox with write access to the agent's state folder and with network access,
    /// or `None` if no sandbox is configured. If the job lists hosts, only those hosts can be
    /// reached.
    pub fn sandbox(&self) -> Option<SandboxedStart> {
        let mut sandbox_start = self.sandbox_start.clone()?;
        // The sandbox rejects paths that contain symbolic links.
        let real = self.state.as_ref().map(|path| path.canonicalize().unwrap_or(path.clone()));
        let sandbox = &mut sandbox_start.sandbox;
        // The login is hidden from all other children.
        let login = real.as_ref().map(|state| state.join(credentials::login_file(self.kind)));
        sandbox.hide.retain(|path| Some(path) != login.as_ref());
        sandbox.write.extend(real);
        sandbox.network = sandbox.hosts.is_empty();
        Some(sandbox_start)
    }

    /// Returns whether the program runs in the kernel's sandbox.
    pub fn is_sandboxed(&self) -> bool {
        self.sandbox_start.as_ref().is_some_and(|it| !it.sandbox.off)
    }

    /// Returns `env`, with the variable named by `state` set to the agent's state folder unless the
    /// agent chooses the folder itself.
    pub fn environment(&self, state: &str) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        if let Some(folder) = self.state.as_ref().and_then(|path| path.to_str()) {
            env.insert(state.to_owned(), folder.to_owned());
        }
        env
    }

    /// Describes the restrictions on the program: the kernel sandbox that was applied to the last
    /// child, and the program's `own` restrictions.
    pub fn containment(&self, own: &str) -> String {
        format!("{}; {own}", self.held.describe(self.sandbox_start.as_ref()))
    }

    /// Creates the agent's state folder if it is missing, because the sandbox can open only an
    /// existing folder.
    ///
    /// # Errors
    /// Returns [`BackendError::Rejected`] if the folder cannot be created.
    pub fn prepare(&self) -> Result<(), BackendError> {
        let Some(state) = self.state.as_ref().filter(|path| !path.exists()) else {
            return Ok(());
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
        made.map_err(|error| BackendError::Rejected {
            why: format!("cannot create {}: {error}", state.display()),
        })
    }
}

/// The result of [`watch`].
pub(crate) struct Watched<E> {
    pub spec: ChildSpec,
    pub ended: Ended,
    /// The combined result of the program's events.
    pub events: E,
    /// Irregularities in the program's output and exit.
    pub remarks: Vec<String>,
    /// The last text that the sink received.
    pub heard: String,
}

/// Runs the program until its whole process tree is dead, and passes the program's events to the
/// sink.
///
/// # Errors
/// Returns an error if the program could not be run, or if the runtime is shutting down.
pub(crate) async fn watch<E: AgentEvents>(
    spec: ChildSpec,
    plan: &AgentPlan,
    sink: &mut dyn Sink,
    cancel: &Cancel,
) -> Result<Watched<E>, BackendError> {
    let (reported, mut received) = mpsc::unbounded_channel();
    let cancel = cancel.clone();
    let work = tokio::task::spawn_blocking(move || {
        let mut output = EventStream::<E>::new();
        // The receiver no longer exists if the runtime is shutting down.
        let mut tell = |event| drop(reported.send(event));
        let ended = run(&spec, &cancel, &mut |stream, piece| match stream {
            Stream::Stdout => output.feed(piece, &mut tell),
            _ => OutputVerdict::Continue,
        });
        output.finish(&mut tell);
        ended.map(|ended| (spec, ended, output)).map_err(|error| child::spawn_error(&error))
    });
    let mut heard = String::new();
    while let Some(event) = received.recv().await {
        sink.event(event.as_event());
        if let OwnedEvent::Text(text) = event {
            heard = text;
        }
    }
    let (spec, ended, output) = match work.await {
        Ok(done) => done?,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => {
            return Err(BackendError::Cancelled { why: "the runtime is shutting down".into() });
        }
    };
    plan.held.set(ended.containment.as_ref());
    let remarks = leftovers(&output, &ended);
    Ok(Watched { spec, ended, events: output.events, remarks, heard })
}

/// Returns the child's specification, with the question on standard input.
pub(crate) fn child_spec(
    plan: &AgentPlan,
    request: &Request,
    form: ProgramAnswer,
    args: Vec<String>,
    env: BTreeMap<String, String>,
) -> ChildSpec {
    ChildSpec {
        program: plan.program.clone(),
        args: args.into_iter().map(OsString::from).collect(),
        cwd: request.place(),
        env,
        stdin: Stdin::Bytes(prompt::text_for(request, form).into_bytes()),
        limits: child::limits(&request.limits, &plan.settings),
        marker: request.id.clone(),
        sandbox: plan.sandbox().into(),
    }
}

/// Returns whether the program exited normally: with exit code 0, or because runner stopped it
/// after it reported its result.
pub(crate) fn went_well(ended: &Ended) -> bool {
    ended.status == ExitStatus::Exit(0) || ended.lingered
}

/// Reads the answer from a program's final message. The value is present if the message is JSON. If
/// the request has a schema, the wrapper object that [`prompt::rooted`] adds is removed.
///
/// # Errors
/// Returns [`BackendError::Malformed`] if the message is empty or is not the required JSON.
pub(crate) fn answer(
    request: &Request,
    said: String,
    secrets: &Secrets,
) -> Result<(String, Option<Value>), BackendError> {
    if said.trim().is_empty() {
        return Err(BackendError::Malformed {
            why: "reported an empty answer".to_owned(),
            excerpt: String::new(),
        });
    }
    let (text, value) = answer::read(request, said.into_bytes(), "the answer", false, secrets)?;
    Ok(match (&request.schema, value) {
        (Some(schema), Some(value)) => {
            let bare = prompt::unrooted(schema, value.clone());
            let text = if bare == value { text } else { bare.to_string() };
            (text, Some(bare))
        }
        (_, value) => (text, value),
    })
}

/// Returns the error for a program that exited normally but never reported `what`.
pub(crate) fn ended_without(what: &str, ended: &Ended, secrets: &Secrets) -> BackendError {
    BackendError::Malformed {
        why: format!("ended without {what}"),
        excerpt: secrets.head(&String::from_utf8_lossy(&ended.stdout), 200),
    }
}

/// Adds the run's remarks to a reply and passes the reply's notes to the sink. Also passes the text
/// to the sink unless `heard`, the last text that the sink received, is the same.
pub(crate) fn hand_out(
    mut reply: Reply,
    remarks: Vec<String>,
    heard: &str,
    sink: &mut dyn Sink,
) -> Reply {
    reply.notes.extend(remarks);
    if heard != reply.text {
        sink.event(Event::Text(&reply.text));
    }
    for note in &reply.notes {
        sink.event(Event::Note(note));
    }
    reply
}

/// Describes irregularities in a program's output and exit, for the report.
fn leftovers<E: AgentEvents>(output: &EventStream<E>, ended: &Ended) -> Vec<String> {
    let (unreadable, overlong, killed) = (output.unreadable, output.overlong(), ended.killed);
    let mut notes = Vec::new();
    if unreadable > 0 {
        notes.push(format!("{} of the output could not be read", counted(unreadable, "line")));
    }
    if overlong > 0 {
        notes
            .push(format!("output skipped because it was too long: {}", counted(overlong, "line")));
    }
    if killed > 0 {
        notes.push(format!("killed {} that the program left behind", counted(killed, "process")));
    }
    if ended.lingered {
        notes.push("the program did not exit after its answer and was terminated".to_owned());
    }
    notes
}
