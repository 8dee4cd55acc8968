//! `runner hook`: the hooks that an agent's program calls.
//!
//! `post-tool-use` records a session's tool use as a row in `_steps.jsonl`. The memory hooks are in
//! `src/hooks/`; `src/entry.rs` calls them before anything is loaded.
//!
//! `post-tool-use` runs after every tool use, so it neither calls git nor starts a runtime. It
//! reads the database only to identify the project and to check whether the user has accepted the
//! project's settings, because those settings specify the output file. It must never exit with code
//! 2, which would show its output to the model. It must never write anything except the row.

use std::io::{self, Read as _};
use std::path::PathBuf;

use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::manifest::is_agent_name;
use runner_jobs::steps::{self, StepsFile};
use runner_memory::hooks::HookEvent;
use runner_text::redact::Redactor;
use serde::Deserialize;

use super::Cli;
use crate::env;
use crate::hooks::{self, HookCall};
use crate::project::{self, LoadedProject};
use crate::ui::Failure;

/// Maximum size of a payload in bytes. The payload contains the tool's whole output.
const LONGEST: u64 = 64 * 1024 * 1024;

/// The hooks called by an agent's program
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner hook post-tool-use < payload.json")]
pub struct HookArgs {
    /// The hook
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HookCommand {
    /// Record one tool use: read the PostToolUse hook's payload from standard input and add one row
    /// to _steps.jsonl
    ///
    /// This hook is for sessions between a user and an agent; runner itself records the runs that
    /// it starts. The hook never stops or disturbs a session: on an error it exits with code 1,
    /// which the agent's program merely logs.
    #[command(after_help = "Example: runner hook post-tool-use < payload.json")]
    PostToolUse {
        /// The name of the session's agent
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Give a new session its project's notes: read the SessionStart hook's payload from standard
    /// input and print the hook's answer
    #[command(after_help = "Example: runner hook session-start < payload.json")]
    SessionStart(MemoryHook),
    /// Add the results of the last answer's commands, and any relevant notes, to a prompt
    #[command(after_help = "Example: runner hook prompt-submit < payload.json")]
    PromptSubmit(MemoryHook),
    /// Execute the memory commands in the answers given since the last call
    #[command(after_help = "Example: runner hook stop --response '<ctx:status/>' < payload.json")]
    Stop(MemoryHook),
    /// Execute the remaining memory commands of a session that is ending
    #[command(after_help = "Example: runner hook session-end < payload.json")]
    SessionEnd(MemoryHook),
    /// Execute the memory commands given so far, before a session is compacted
    #[command(after_help = "Example: runner hook pre-compact < payload.json")]
    PreCompact(MemoryHook),
}

/// The arguments of a memory hook.
#[derive(Debug, clap::Args)]
struct MemoryHook {
    /// The answer to read commands from, instead of the session's transcript
    #[arg(long, value_name = "TEXT")]
    response: Option<String>,
    /// The memory store [default: $CTX_DB, or ~/.ctx/store.db]
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// The program that calls the hook
    #[arg(long, value_name = "NAME", value_parser = ["claude", "codex"])]
    host: Option<String>,
}

impl HookArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let (event, args) = match &self.command {
            HookCommand::PostToolUse { agent } => return post_tool_use(cli, agent.as_deref()),
            HookCommand::SessionStart(args) => (HookEvent::SessionStart, args),
            HookCommand::PromptSubmit(args) => (HookEvent::PromptSubmit, args),
            HookCommand::Stop(args) => (HookEvent::Stop, args),
            HookCommand::SessionEnd(args) => (HookEvent::SessionEnd, args),
            HookCommand::PreCompact(args) => (HookEvent::PreCompact, args),
        };
        let call = HookCall { event, response: args.response.clone(), db: args.db.clone() };
        Ok(hooks::run(&call))
    }
}

/// The part of the payload that names the session's folder.
#[derive(Deserialize)]
struct SessionPlace {
    cwd: Option<PathBuf>,
}

/// Records the tool use in the payload. Records nothing outside a project, or in a run.
fn post_tool_use(cli: &Cli<'_>, agent: Option<&str>) -> Result<Exit, Failure> {
    if let Some(agent) = agent.filter(|it| !is_agent_name(it)) {
        return Err(Failure::usage(format!("{agent:?} is not a valid agent name")));
    }
    let mut payload = Vec::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_end(&mut payload);
    let read = read.map_err(|error| Failure::data(format!("the payload: {error}")))?;
    if read as u64 > LONGEST {
        return Err(Failure::data(format!("the payload is longer than {LONGEST} bytes")));
    }
    // Runner itself records the tool uses of its own runs.
    if env::setting("RUNNER_RUN").is_some() {
        return Ok(Exit::Done);
    }
    let at: SessionPlace = serde_json::from_slice(&payload)
        .map_err(|error| Failure::data(format!("the payload: {error}")))?;
    let folder = at.cwd.unwrap_or_else(|| cli.here.to_owned());
    let Ok(root) = project::find(&folder) else { return Ok(Exit::Done) };
    let config = LoadedProject::load(cli.env, &root)?.trusted_outside_jobs()?.config;
    let redactor = Redactor::new(Vec::new());
    let step = steps::of_hook(&payload, &root, &redactor)
        .map_err(|why| Failure::data(why).hint("runner hook post-tool-use --help"))?;
    let file = StepsFile::new(&root, &config.lifecycle.steps, agent);
    file.append(step, cli.env.wall()?).map_err(|error| {
        Failure::cannot_write(format!("cannot write {}: {error}", config.lifecycle.steps))
    })?;
    Ok(Exit::Done)
}
