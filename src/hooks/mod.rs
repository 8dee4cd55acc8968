//! The memory's hooks, which an agent's program calls during a session.
//!
//! A hook delays every prompt, so it does not load the configuration, opens only the memory store,
//! and starts no runtime. Only the session-end hook also reads the database, and may start another
//! process, which analyzes the session. A hook always prints valid JSON, and its exit code is 0
//! unless the store is damaged. In a run started by runner, a hook does nothing, which keeps
//! runner's own output out of the memory.

pub mod scope;

use runner_engine::outcome::Exit;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runner_jobs::sessions::resume_packet;
use runner_memory::error::Result as MemoryResult;
use runner_memory::hooks::{AutoRecall, HookContext, HookEvent, Payload};
use runner_memory::store::Access;
use runner_memory::{Memory, MemoryError};
use serde_json::{Value, json};

use crate::env;
use crate::project;
use crate::sessions;
use crate::ui::{Failure, show};

/// Maximum size of a payload in bytes. A prompt may be long.
const LONGEST: u64 = 64 << 20;
/// Maximum time to read a transcript, unless `CTX_TRANSCRIPT_TIMEOUT` sets it in seconds.
const TRANSCRIPT: Duration = Duration::from_secs(5);

/// Whether the answer was printed.
static ANSWERED: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Debug)]
pub struct HookCall {
    pub event: HookEvent,
    /// The answer to use instead of the transcript.
    pub response: Option<String>,
    /// The store to use instead of the default one.
    pub db: Option<PathBuf>,
}

/// Returns the host's name for an event, which must appear in the hook's output.
fn event_name(event: HookEvent) -> &'static str {
    match event {
        HookEvent::SessionStart => "SessionStart",
        HookEvent::PromptSubmit => "UserPromptSubmit",
        HookEvent::Stop => "Stop",
        HookEvent::SessionEnd => "SessionEnd",
        HookEvent::PreCompact => "PreCompact",
    }
}

/// Returns the event for the memory's hook of this name, or `None` if there is no such hook.
pub fn event(hook: &str) -> Option<HookEvent> {
    match hook {
        "session-start" => Some(HookEvent::SessionStart),
        "prompt-submit" => Some(HookEvent::PromptSubmit),
        "stop" => Some(HookEvent::Stop),
        "session-end" => Some(HookEvent::SessionEnd),
        "pre-compact" => Some(HookEvent::PreCompact),
        _ => None,
    }
}

/// Parses a hook call from a command line without using the full command parser. Returns `None` if
/// the full parser must handle the command line, to print help or errors.
pub fn call(arguments: impl Iterator<Item = OsString>) -> Option<HookCall> {
    let mut words = arguments.skip(1);
    if words.next()? != "hook" {
        return None;
    }
    let event = event(words.next()?.to_str()?)?;
    let mut call = HookCall { event, response: None, db: None };
    while let Some(word) = words.next() {
        let word = word.into_string().ok()?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), OsStr::new(value).to_owned()),
            None => (word, words.next()?),
        };
        match name.as_str() {
            "--response" => call.response = Some(value.into_string().ok()?),
            "--db" => call.db = Some(value.into()),
            "--host" => {}
            _ => return None,
        }
    }
    Some(call)
}

/// Answers a hook and returns the process's exit code.
pub fn run(call: &HookCall) -> Exit {
    #[allow(
        clippy::exit,
        clippy::disallowed_methods,
        reason = "a panic must not block the session"
    )]
    std::panic::set_hook(Box::new(|_| {
        if !ANSWERED.load(Ordering::SeqCst) {
            answer(&json!({}));
        }
        std::process::exit(0)
    }));
    let done = match env::setting("RUNNER_RUN") {
        Some(_) => Ok(()),
        None => work(call),
    };
    if !ANSWERED.load(Ordering::SeqCst) {
        answer(&json!({}));
    }
    match done {
        Ok(()) => Exit::Done,
        Err(failure) => {
            show::complain(&failure.message());
            match failure.is_damaged_memory() {
                true => Exit::Failed,
                false => Exit::Done,
            }
        }
    }
}

/// Answers a hook that cannot run, for example because its command line is invalid.
pub fn answer_nothing() -> Exit {
    answer(&json!({}));
    Exit::Done
}

fn answer(value: &Value) -> bool {
    ANSWERED.store(true, Ordering::SeqCst);
    show::own(&show::json_line(value));
    !show::lost()
}

/// Returns a function that prints text for the session as the hook's answer.
fn inject(event: HookEvent) -> impl FnOnce(Option<&str>) -> MemoryResult<()> {
    move |text| {
        let value = match text {
            None => json!({}),
            Some(text) => json!({ "hookSpecificOutput": {
                "hookEventName": event_name(event), "additionalContext": text
            } }),
        };
        match answer(&value) {
            true => Ok(()),
            // Nothing was delivered, so nothing is recorded as delivered.
            false => Err(MemoryError::Invalid("cannot write standard output".to_owned())),
        }
    }
}

fn work(call: &HookCall) -> Result<(), Failure> {
    let payload = match call.response.is_some() && io::stdin().is_terminal() {
        true => Payload::default(),
        false => read_payload()?,
    };
    let home = env::Env::read()?;
    let folder = payload.cwd.clone().unwrap_or_else(|| home.here.clone());
    let found = scope::find(&folder);
    let access = match call.event {
        HookEvent::SessionStart | HookEvent::PromptSubmit => Access::Prompt,
        HookEvent::Stop | HookEvent::PreCompact => Access::Answer,
        HookEvent::SessionEnd => Access::Command,
    };
    let now = home.wall()?;
    let path = scope::store(call.db.as_deref())?.path;
    let mut memory = Memory::open(&path, access, now)?;
    let context = HookContext {
        now,
        scope: found.scope,
        folder: found.folder,
        auto_recall: auto_recall(&home, found.root.as_deref()),
        last_session: match call.event {
            HookEvent::SessionStart => last_session(&home, found.root.as_deref()),
            _ => None,
        },
        transcript_limit: transcript_limit(),
    };
    match call.event {
        HookEvent::SessionStart => {
            memory.session_start(&payload, &context, inject(call.event))?;
        }
        HookEvent::PromptSubmit => {
            memory.prompt_submit(&payload, &context, inject(call.event))?;
        }
        event => {
            let report =
                memory.take_answers(event, &payload, &context, call.response.as_deref())?;
            for offset in report.skipped.iter().take(20) {
                show::notice(&format!(
                    "runner memory warning: skipped a line of the transcript at byte {offset}"
                ));
            }
            for warning in &report.warnings {
                show::notice(&format!("runner memory warning: {warning}"));
            }
            if event == HookEvent::Stop && !report.warnings.is_empty() {
                let text = format!("runner memory: {}", report.warnings.join("; "));
                answer(&json!({ "systemMessage": text }));
            }
        }
    }
    if call.event == HookEvent::SessionEnd
        && let (Some(root), Some(session)) = (&found.root, &payload.session_id)
    {
        sessions::analyze_ended(&home, root, session)?;
    }
    Ok(())
}

/// Returns the results of analyzing a project's last session, if there are any.
fn last_session(home: &env::Env, root: Option<&Path>) -> Option<String> {
    let root = root?;
    resume_packet(root, &home.cache_folder(&project::id_at(root)?))
}

fn read_payload() -> Result<Payload, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(LONGEST).read_to_end(&mut bytes);
    read.map_err(|error| Failure::data(format!("cannot read the payload: {error}")))?;
    Ok(Payload::parse(&bytes))
}

fn transcript_limit() -> Duration {
    let seconds = env::setting("CTX_TRANSCRIPT_TIMEOUT");
    let seconds: Option<f64> = seconds.and_then(|text| text.to_str()?.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(TRANSCRIPT)
}

/// Reads only `memory.auto_recall`, because loading the whole configuration takes too long for a
/// prompt. A project's file takes precedence over the user's.
fn auto_recall(home: &env::Env, root: Option<&Path>) -> AutoRecall {
    let project = root.map(|root| root.join(crate::project::FILE));
    for file in project.iter().chain([&home.user_config]) {
        let text = runner_engine::files::read_text_host(file, runner_engine::files::DOCUMENT);
        let Some(text) = text.ok().filter(|text| text.contains("auto_recall")) else { continue };
        let table: Option<toml::Table> = text.parse().ok();
        let set = table.and_then(|table| table.get("memory")?.get("auto_recall")?.as_bool());
        if let Some(set) = set {
            return if set { AutoRecall::On } else { AutoRecall::Off };
        }
    }
    AutoRecall::On
}
