//! Runs a child process for a single attempt to get an answer.
//!
//! Every backend that runs a program uses this module. The module must never start a second attempt
//! and never return output from a process tree that is still alive.

use runner_text::counted;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runner_engine::process::{
    Cancel, ChildSpec, Ended, ExitStatus, Limits, OutputVerdict, Reason, SpawnError, Stream, run,
};

use crate::error::{BackendError, Phase};
use crate::redact::Secrets;
use crate::request::RequestLimits;
use crate::spec::ChildSettings;
use runner_engine::sandbox::{AppliedSandbox, SandboxLevel, SandboxedStart};

/// Approximate maximum number of characters of stderr in an error, taken from the end.
const STDERR_TAIL: usize = 2_000;

/// Returns a child's limits. A `quiet` child prints nothing before its answer, so only the total
/// deadline can detect that it hangs. There is no connect deadline, because starting a child either
/// succeeds or fails immediately. The backend's settings override the request's.
pub(crate) fn limits(limits: &RequestLimits, own: &ChildSettings) -> Limits {
    let unless_quiet = |set: Option<Duration>, asked| (!own.quiet).then_some(set.unwrap_or(asked));
    let usual = Limits::default();
    Limits {
        first_byte: unless_quiet(own.first_byte, limits.first_byte),
        idle: unless_quiet(own.idle, limits.idle),
        total: Some(limits.total),
        term_to_kill: own.grace.unwrap_or(usual.term_to_kill),
        exit_grace: own.grace.unwrap_or(usual.exit_grace),
        output_cap: own.output_cap(),
        ..usual
    }
}

/// The sandbox of the last child that a backend started through a launcher, if any.
#[derive(Clone, Debug, Default)]
pub struct LastSandbox(Arc<Mutex<Option<AppliedSandbox>>>);

impl LastSandbox {
    /// Records a child's sandbox. `None` keeps the previous record.
    pub(crate) fn set(&self, applied: Option<&AppliedSandbox>) {
        if let Some(applied) = applied {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(applied.clone());
        }
    }

    pub(crate) fn level(&self) -> Option<SandboxLevel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|it| it.sandbox)
    }

    /// Describes the last child's sandbox or, before the first child, the requested sandbox.
    pub(crate) fn describe(&self, requested: Option<&SandboxedStart>) -> String {
        match (&*self.0.lock().unwrap_or_else(PoisonError::into_inner), requested) {
            (Some(applied), _) => applied.to_string(),
            (None, Some(start)) if !start.sandbox.off => {
                "inside the sandbox, once it is started".to_owned()
            }
            (None, _) => "no sandbox".to_owned(),
        }
    }
}

/// Runs a child to completion. This function blocks the thread, so async code must call it through
/// `spawn_blocking`. Returns an error unless the child exited on its own with code 0. The second
/// value is the sandbox that was applied, if the child was started through a launcher.
pub(crate) fn attempt(
    spec: &ChildSpec,
    cancel: &Cancel,
    secrets: &Secrets,
) -> (Result<Ended, BackendError>, Option<AppliedSandbox>) {
    match run(spec, cancel, &mut |_, _| OutputVerdict::Continue) {
        Ok(ended) => {
            let containment = ended.containment.clone();
            (judge(spec, cancel, secrets, ended), containment)
        }
        Err(error) => (Err(spawn_error(&error)), None),
    }
}

fn judge(
    spec: &ChildSpec,
    cancel: &Cancel,
    secrets: &Secrets,
    ended: Ended,
) -> Result<Ended, BackendError> {
    let ended = by_itself(spec, ended, cancel, secrets)?;
    if ended.status == ExitStatus::Exit(0) {
        return Ok(ended);
    }
    Err(crash(spec, &ended, "failed", secrets))
}

/// Returns the error for a program that failed without being stopped, with the end of its stderr.
pub(crate) fn crash(
    spec: &ChildSpec,
    ended: &Ended,
    what: &str,
    secrets: &Secrets,
) -> BackendError {
    BackendError::Crash {
        status: ended.status.to_string(),
        why: format!("{} {what}", spec.program.display()),
        stderr_tail: secrets.tail(&ended.stderr, STDERR_TAIL),
    }
}

/// Returns a child that exited on its own, with any exit code, or that was stopped only after its
/// result. Otherwise, and if a process that it started cannot be killed, returns an error.
pub(crate) fn by_itself(
    spec: &ChildSpec,
    ended: Ended,
    cancel: &Cancel,
    secrets: &Secrets,
) -> Result<Ended, BackendError> {
    let program = spec.program.display();
    let silent = |phase| Err(BackendError::Silent { phase, waited: ended.took() });
    if ended.survivors > 0 {
        return Err(BackendError::Crash {
            status: ended.status.to_string(),
            why: format!(
                "{program}: {} that it started cannot be killed",
                counted(ended.survivors, "process")
            ),
            stderr_tail: secrets.tail(&ended.stderr, STDERR_TAIL),
        });
    }
    match ended.reason {
        Reason::FirstByteDeadline => silent(Phase::FirstByte),
        Reason::IdleDeadline => silent(Phase::Idle),
        Reason::TotalDeadline => silent(Phase::Total),
        Reason::Cancelled => Err(BackendError::Cancelled { why: cancel.why().unwrap_or_default() }),
        Reason::OutputCap { stream } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            let cap = spec.limits.output_cap;
            let why = format!("{program} wrote more than {cap} bytes to {stream}");
            Err(BackendError::Malformed { why, excerpt: String::new() })
        }
        Reason::Quota => Err(BackendError::Crash {
            status: ended.status.to_string(),
            why: format!("{program} wrote more data to its folder than its limit allows"),
            stderr_tail: secrets.tail(&ended.stderr, STDERR_TAIL),
        }),
        Reason::Overuse(over) => Err(BackendError::Crash {
            status: ended.status.to_string(),
            why: format!("{program} was killed: {over}"),
            stderr_tail: secrets.tail(&ended.stderr, STDERR_TAIL),
        }),
        Reason::Exited => Ok(ended),
    }
}

/// Converts an error from starting a child.
pub(crate) fn spawn_error(error: &SpawnError) -> BackendError {
    match error {
        SpawnError::NotFound { program, .. } | SpawnError::NotExecutable { program, .. } => {
            BackendError::NotInstalled {
                what: program.display().to_string(),
                hint: error.to_string(),
            }
        }
        SpawnError::Cwd { .. } | SpawnError::Sandbox { .. } => {
            BackendError::Rejected { why: error.to_string() }
        }
        SpawnError::Cancelled { why } => BackendError::Cancelled { why: why.clone() },
        SpawnError::Io { source, .. } => {
            BackendError::Unavailable { why: format!("{error}: {source}") }
        }
    }
}
