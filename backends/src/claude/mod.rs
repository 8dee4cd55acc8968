//! Runs Claude Code as a backend (`claude -p`).
//!
//! - **One attempt.** Claude Code's own retries and its second request after a broken stream are
//!   disabled, because runner's policies determine when a request is retried.
//! - **Tools** are disabled unless the configuration lists some. User and project settings are not
//!   read (`--setting-sources ""`), so no project hook runs. No MCP server is started.
//! - **Permission mode `default`.** Nobody can answer a permission prompt, so every tool that the
//!   configuration does not list is denied. In more permissive modes, the kernel's sandbox would be
//!   the only barrier.
//! - **Success** requires exit code 0, `is_error` false, subtype `success`, a non-empty answer and,
//!   if the request has a schema, JSON. There are two exceptions. Runner may have stopped a program
//!   that did not exit after its result. A program that ran out of turns has succeeded if the
//!   request has a schema and the model's last text is the required JSON.
//! - **State.** The state folder (`CLAUDE_CONFIG_DIR`) contains the login. Inside the sandbox, the
//!   variable is always set, so that the program writes no file next to that folder.
//!
//! This module must never put a request's instructions, its evidence or a key on the command line.

mod stream;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use runner_engine::process::{Cancel, ChildSpec, Ended};
use runner_text::counted;
use serde_json::Value;

use crate::agent::prompt::ProgramAnswer;
use crate::agent::{self, AgentPlan, prompt, refusal_text};
use crate::redact::Secrets;
use crate::spec::ClaudeSettings;
use crate::{Backend, BackendError, Description, Reply, Request, Sink, Stop, child};
use stream::Transcript;

/// Default maximum number of turns if tools are configured.
const TURNS: u32 = 20;
/// Default maximum number of turns without configured tools, if the answer has a schema. The model
/// must pass the answer to a tool, and the program asks again if the model answers in plain text.
const SCHEMA_TURNS: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Claude {
    plan: Arc<AgentPlan>,
    settings: ClaudeSettings,
}

impl Claude {
    pub(crate) fn new(plan: AgentPlan, settings: ClaudeSettings) -> Self {
        Self { plan: Arc::new(plan), settings }
    }
}

#[async_trait]
impl Backend for Claude {
    fn name(&self) -> &str {
        &self.plan.name
    }

    fn describe(&self) -> Description {
        let tools = if self.plan.tools.is_empty() {
            "no tools".to_owned()
        } else {
            format!("tools {}", self.plan.tools.join(", "))
        };
        let own = format!("{tools}, permission mode default, no project settings or hooks");
        Description {
            kind: "claude".to_owned(),
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
        let spec = spec(&self.plan, &self.settings, request);
        let agent::Watched { spec, ended, events, remarks, heard } =
            agent::watch(spec, &self.plan, sink, cancel).await?;
        let judge = Judge { plan: &self.plan, spec: &spec, request, secrets: &secrets };
        let reply = judge.reply(&events, ended, cancel)?;
        Ok(agent::hand_out(reply, remarks, &heard, sink))
    }
}

fn spec(plan: &AgentPlan, own: &ClaudeSettings, request: &Request) -> ChildSpec {
    let mut args: Vec<String> = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        // Partial messages count as signs of activity for the idle deadline.
        "--include-partial-messages",
        "--setting-sources",
        "",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--permission-mode",
        "default",
    ]
    .map(str::to_owned)
    .into();
    let form = if request.schema.is_some() { ProgramAnswer::Tool } else { ProgramAnswer::Text };
    let mut put = |name: &str, value: String| args.extend([name.to_owned(), value]);
    put("--tools", plan.tools.join(","));
    if plan.tools.is_empty() {
        let place = match form {
            ProgramAnswer::Tool => prompt::PLACE_WITH_TOOL,
            ProgramAnswer::Text | ProgramAnswer::RootedText => prompt::PLACE,
        };
        put("--system-prompt", place.to_owned());
    } else {
        put("--allowedTools", plan.tools.join(","));
    }
    let turns = match (plan.tools.is_empty(), form) {
        (true, ProgramAnswer::Tool) => SCHEMA_TURNS,
        (true, _) => 1,
        (false, _) => TURNS,
    };
    put("--max-turns", own.max_turns.unwrap_or(turns).to_string());
    if let Some(model) = &plan.settings.model {
        put("--model", model.clone());
    }
    if let Some(model) = &own.fallback_model {
        put("--fallback-model", model.clone());
    }
    if let Some(schema) = &request.schema {
        put("--json-schema", prompt::rooted(schema).to_string());
    }
    if !plan.sessions {
        args.push("--no-session-persistence".to_owned());
    }
    args.extend(plan.settings.args.iter().cloned());
    let mut env = plan.environment("CLAUDE_CONFIG_DIR");
    let first_byte = request.limits.first_byte.min(request.limits.total);
    for (name, value) in [
        ("CLAUDE_CODE_MAX_RETRIES", "0".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        // The program prints output before it contacts the provider, so its first byte does not
        // come from the provider. This variable limits how long the program waits for the provider.
        ("API_TIMEOUT_MS", first_byte.as_millis().max(1).to_string()),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", request.limits.max_output_tokens.to_string()),
    ] {
        env.insert(name.to_owned(), value);
    }
    // Claude Code refuses to run inside another Claude Code session.
    env.remove("CLAUDECODE");
    agent::child_spec(plan, request, form, args, env)
}

/// The inputs for evaluating an attempt.
struct Judge<'a> {
    plan: &'a AgentPlan,
    spec: &'a ChildSpec,
    request: &'a Request,
    secrets: &'a Secrets,
}

impl Judge<'_> {
    fn reply(
        &self,
        transcript: &Transcript,
        ended: Ended,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        let ended = child::by_itself(self.spec, ended, cancel, self.secrets)?;
        let Some(result) = &transcript.result else {
            return Err(self.without_result(&ended));
        };
        let well = agent::went_well(&ended);
        let said = sentence(result);
        if let Some(reply) = self.answered_as_text(result, transcript) {
            return Ok(reply);
        }
        if result["is_error"] != false || result["subtype"] != "success" {
            return Err(self.refused(result, &said, transcript, &ended));
        }
        if !well {
            let what = "returned a result and then failed";
            return Err(child::crash(self.spec, &ended, what, self.secrets));
        }
        let (text, value) = self.answer(result, said)?;
        let mut notes = Vec::new();
        let denied = result["permission_denials"].as_array().map_or(&[][..], Vec::as_slice);
        if !denied.is_empty() {
            let names = denied.iter().filter_map(|one| one["tool_name"].as_str());
            let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
            notes.push(format!(
                "not permitted: {} ({}); `tools` in [backends.{}] lists the permitted tools",
                counted(denied.len(), "use of a tool"),
                names.join(", "),
                self.plan.name
            ));
        }
        Ok(Reply {
            text,
            value,
            usage: stream::total(result),
            stop: match result["stop_reason"].as_str() {
                Some("max_tokens") => Stop::Length,
                Some("refusal") => Stop::Refusal,
                _ => Stop::End,
            },
            notes,
        })
    }

    /// Returns the answer of a model that kept answering in plain text until it ran out of turns,
    /// even though the program required the tool. Returns `None` if the text is not the required
    /// JSON.
    fn answered_as_text(&self, result: &Value, transcript: &Transcript) -> Option<Reply> {
        let used_up = matches!(
            result["subtype"].as_str(),
            Some("error_max_turns" | "error_max_structured_output_retries")
        );
        let said = transcript.text.clone().filter(|_| used_up && self.request.schema.is_some())?;
        let (text, value) = agent::answer(self.request, said, self.secrets).ok()?;
        Some(Reply {
            text,
            value,
            usage: stream::total(result),
            stop: Stop::End,
            notes: vec!["the model answered in plain text instead of through the tool".to_owned()],
        })
    }

    fn answer(
        &self,
        result: &Value,
        said: String,
    ) -> Result<(String, Option<Value>), BackendError> {
        if let (Some(schema), Some(value)) = (&self.request.schema, result.get("structured_output"))
            && !value.is_null()
        {
            let value = prompt::unrooted(schema, value.clone());
            return Ok((value.to_string(), Some(value)));
        }
        agent::answer(self.request, said, self.secrets)
    }

    /// Returns the error for a failure that the program reported.
    fn refused(
        &self,
        result: &Value,
        said: &str,
        transcript: &Transcript,
        ended: &Ended,
    ) -> BackendError {
        let why = self.secrets.head(said, 400);
        let subtype = result["subtype"].as_str().unwrap_or_default();
        let code = ["api_error", "api_error_type", "error"]
            .into_iter()
            .find_map(|key| result[key].as_str())
            .unwrap_or_default();
        let malformed = |why: String| BackendError::Malformed { why, excerpt: String::new() };
        match (subtype, code) {
            ("error_max_turns", _) => {
                return malformed(format!("{why} (backends.{}.max_turns)", self.plan.name));
            }
            ("error_max_budget_usd", _) => return BackendError::OverBudget { why },
            (_, "max_output_tokens") => {
                let most = self.request.limits.max_output_tokens;
                return malformed(format!("the answer is longer than {most} tokens"));
            }
            // The model wrote either nothing or an incomplete answer.
            _ if said.contains("could not be parsed") => return malformed(why),
            _ if result["stop_reason"] == "refusal" => {
                return BackendError::Rejected {
                    why: format!("the model refused to answer: {why}"),
                };
            }
            _ => {}
        }
        let said = refusal_text::ProgramError {
            status: result["api_error_status"]
                .as_u64()
                .and_then(|status| u16::try_from(status).ok()),
            code,
            text: said,
            limit: transcript.limit,
        };
        refusal_text::meaning(said, &self.plan.here(), why.clone()).unwrap_or_else(|| {
            let what = if why.is_empty() { subtype } else { &why };
            child::crash(self.spec, ended, &format!("failed: {what}"), self.secrets)
        })
    }

    /// Returns the error for a program that exited without reporting a result.
    fn without_result(&self, ended: &Ended) -> BackendError {
        if agent::went_well(ended) {
            return agent::ended_without("a result", ended, self.secrets);
        }
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let said =
            refusal_text::ProgramError { text: &stderr, ..refusal_text::ProgramError::default() };
        let why = self.secrets.tail(&ended.stderr, 400);
        refusal_text::meaning(said, &self.plan.here(), why)
            .unwrap_or_else(|| child::crash(self.spec, ended, "failed", self.secrets))
    }
}

/// Returns a result's text: the answer, or the description of the failure.
fn sentence(result: &Value) -> String {
    if let Some(text) = result["result"].as_str() {
        return text.to_owned();
    }
    let errors = result["errors"].as_array().into_iter().flatten();
    let errors: Vec<&str> = errors.filter_map(Value::as_str).collect();
    errors.join("; ")
}
