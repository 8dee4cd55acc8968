//! Runs Codex as a backend (`codex exec --json`).
//!
//! - **The question** is written to standard input, because every user can read a command line.
//!   Standard input is then closed, because the program waits for the end of its input.
//! - **Tools** are disabled by default. If the configuration lists some (`tools = ["shell"]`), the
//!   program gets its shell and no other tool. The user's configuration and rules are not read, so
//!   no hook, notifier or MCP server runs.
//! - **Sandbox mode.** Inside runner's sandbox, the program's own sandbox is off
//!   (`danger-full-access`). A nested sandbox often cannot be set up, in which case the program
//!   does not report the commands that failed. Without runner's sandbox, the mode is `read-only`.
//! - **Success** requires exit code 0, a completed turn and a non-empty last message, which must be
//!   JSON if the request has a schema. If runner stopped a program that did not exit after its
//!   turn, the exit code does not matter. The number of failed commands is reported as a note.
//! - **Cost.** The program reports tokens but no cost, so the caller computes the cost.
//!
//! This module must never wait for an approval, and never leave behind a file that contains the
//! question.

mod stream;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use runner_engine::process::{Cancel, ChildSpec, Ended};

use crate::agent::prompt::ProgramAnswer;
use crate::agent::{self, AgentPlan, prompt, refusal_text};
use crate::artifact::Folder;
use crate::redact::Secrets;
use crate::{Backend, BackendError, Description, Reply, Request, Sink, Stop, child};
use stream::Transcript;

/// The file in the run folder that contains the answer's schema.
const SCHEMA_FILE: &str = "answer.schema.json";

/// Features that are always disabled.
const FEATURES: &[&str] = &[
    "hooks",
    "plugins",
    "apps",
    "multi_agent",
    "goals",
    "view_image",
    "image_generation",
    "browser_use",
    "computer_use",
];
/// Features that are disabled unless the configuration lists tools.
const SHELL: &[&str] = &["shell_tool", "unified_exec"];

#[derive(Clone, Debug)]
pub(crate) struct Codex {
    plan: Arc<AgentPlan>,
}

impl Codex {
    pub(crate) fn new(plan: AgentPlan) -> Self {
        Self { plan: Arc::new(plan) }
    }
}

/// Returns the mode of the program's own sandbox.
fn sandbox(plan: &AgentPlan) -> &'static str {
    if plan.is_sandboxed() { "danger-full-access" } else { "read-only" }
}

#[async_trait]
impl Backend for Codex {
    fn name(&self) -> &str {
        &self.plan.name
    }

    fn describe(&self) -> Description {
        let tools = if self.plan.tools.is_empty() { "no tools" } else { "its shell" };
        let own = format!("{tools}, its own sandbox {}", sandbox(&self.plan));
        Description {
            kind: "codex".to_owned(),
            model: self.plan.settings.model.clone(),
            containment: self.plan.containment(&own),
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
        self.plan.check()?;
        self.plan.prepare()?;
        let secrets = Secrets::of(&self.plan.env);
        let folder = put_schema(request)?;
        let schema = request.run_dir.as_ref().filter(|_| folder.is_some());
        let spec = spec(&self.plan, request, schema.map(|folder| folder.join(SCHEMA_FILE)));
        let watched = agent::watch(spec, &self.plan, sink, cancel).await;
        if let Some(folder) = folder {
            let _in_our_own_folder = folder.remove(SCHEMA_FILE);
        }
        let agent::Watched { spec, ended, events, remarks, heard } = watched?;
        let ended = child::by_itself(&spec, ended, cancel, &secrets)?;
        let reply = reply(&self.plan, (&spec, &ended), request, &secrets, events)?;
        Ok(agent::hand_out(reply, remarks, &heard, sink))
    }
}

/// Writes the schema, if there is one and providers accept it, to a file in the run folder. Returns
/// that folder, or `None` if no file was written. The question always contains the schema.
fn put_schema(request: &Request) -> Result<Option<Folder>, BackendError> {
    let (Some(schema), Some(path)) = (&request.schema, &request.run_dir) else {
        return Ok(None);
    };
    // Providers accept only schemas in which every object is closed.
    let schema = prompt::rooted(schema);
    if !prompt::is_closed(&schema) {
        return Ok(None);
    }
    let put = || {
        let folder = Folder::open(path)?;
        folder.remove(SCHEMA_FILE)?;
        folder.write_new(SCHEMA_FILE, schema.to_string().as_bytes())?;
        Ok(folder)
    };
    put().map(Some).map_err(|error: std::io::Error| {
        let folder = path.display();
        BackendError::Rejected {
            why: format!("cannot write {SCHEMA_FILE} in the run folder {folder}: {error}"),
        }
    })
}

fn spec(plan: &AgentPlan, request: &Request, schema: Option<PathBuf>) -> ChildSpec {
    let mut args: Vec<String> = [
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--ignore-user-config",
        "--ignore-rules",
        "--color",
        "never",
        "-s",
        sandbox(plan),
        "-c",
        "approval_policy=\"never\"",
        "-c",
        "web_search=\"disabled\"",
    ]
    .map(str::to_owned)
    .into();
    let shell = if plan.tools.is_empty() { SHELL } else { &[] };
    for feature in FEATURES.iter().chain(shell) {
        args.extend(["-c".to_owned(), format!("features.{feature}=false")]);
    }
    if !plan.sessions {
        args.push("--ephemeral".to_owned());
    }
    if let Some(model) = &plan.settings.model {
        args.extend(["-m".to_owned(), model.clone()]);
    }
    if let Some(path) = &schema {
        args.extend(["--output-schema".to_owned(), path.display().to_string()]);
    }
    args.extend(plan.settings.args.iter().cloned());
    args.push("-".to_owned());
    let mut env = plan.environment("CODEX_HOME");
    // `codex exec` reads the key from its own variable.
    if let (Some(key), false) =
        (env.get("OPENAI_API_KEY").cloned(), env.contains_key("CODEX_API_KEY"))
    {
        env.insert("CODEX_API_KEY".to_owned(), key);
    }
    let form = if schema.is_some() { ProgramAnswer::RootedText } else { ProgramAnswer::Text };
    agent::child_spec(plan, request, form, args, env)
}

fn reply(
    plan: &AgentPlan,
    (spec, ended): (&ChildSpec, &Ended),
    request: &Request,
    secrets: &Secrets,
    transcript: Transcript,
) -> Result<Reply, BackendError> {
    let well = agent::went_well(ended);
    if !well || !transcript.completed {
        let stderr = String::from_utf8_lossy(&ended.stderr);
        if well && transcript.error.is_none() {
            return Err(agent::ended_without("a completed turn", ended, secrets));
        }
        let said = transcript.error.as_deref().unwrap_or(&stderr);
        let why = secrets.head(said.trim(), 400);
        let said =
            refusal_text::ProgramError { text: said, ..refusal_text::ProgramError::default() };
        let meaning = refusal_text::meaning(said, &plan.here(), why.clone());
        return Err(meaning
            .unwrap_or_else(|| child::crash(spec, ended, &format!("failed: {why}"), secrets)));
    }
    let said = transcript.message.unwrap_or_default();
    let (text, value) = agent::answer(request, said, secrets)?;
    let mut notes = Vec::new();
    if transcript.failed_commands > 0 {
        let failed = transcript.failed_commands;
        notes.push(format!("{failed} of the agent's commands failed"));
    }
    Ok(Reply { text, value, usage: transcript.usage, stop: Stop::End, notes })
}
