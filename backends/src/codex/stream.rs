//! Combines the events of `codex exec --json` into one result.
//!
//! ```text
//! thread.started ─> turn.started ─> item.* ─> turn.completed{usage} | error, turn.failed{error}
//! ```
//!
//! An item of type `error` is a remark by the program, for example about an unknown context size.
//! It is not a failure.

use std::collections::HashSet;

use runner_engine::process::OutputVerdict;
use serde_json::Value;

use crate::agent::events::AgentEvents;
use crate::request::Usage;
use crate::sink::{OwnedEvent, OwnedTarget};

/// Maximum number of running tools to track. The use of any further tool is reported twice.
const MOST_AT_ONCE: usize = 1_000;

/// The combined result of the events.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// The model's last message.
    pub message: Option<String>,
    /// Whether the turn was completed.
    pub completed: bool,
    /// The last error that the program reported. The turn may still have been completed.
    pub error: Option<String>,
    pub usage: Option<Usage>,
    /// The number of failed tool uses.
    pub failed_commands: u64,
    /// The ids of tool uses that have not finished yet.
    begun: HashSet<String>,
}

impl AgentEvents for Transcript {
    fn event(&mut self, event: Value, tell: &mut dyn FnMut(OwnedEvent)) -> OutputVerdict {
        match event["type"].as_str() {
            Some("item.started") => self.started(&event["item"], tell),
            Some("item.completed") => self.item(&event["item"], tell),
            Some("turn.completed") => {
                self.completed = true;
                self.usage = usage(&event["usage"]);
                if let Some(usage) = self.usage {
                    tell(OwnedEvent::Total(usage));
                }
                return OutputVerdict::ResultSeen;
            }
            Some("turn.failed") => {
                self.error = Some(error_sentence(&event["error"]["message"]));
                return OutputVerdict::ResultSeen;
            }
            // The program may retry, so `turn.failed` or the exit code determines the result.
            Some("error") => {
                let message = error_sentence(&event["message"]);
                tell(OwnedEvent::Note(message.clone()));
                self.error = Some(message);
            }
            _ => {}
        }
        OutputVerdict::Continue
    }
}

impl Transcript {
    fn started(&mut self, item: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
        if let Some(kind) = item["type"].as_str().filter(|kind| is_tool(kind)) {
            if self.begun.len() < MOST_AT_ONCE {
                let id = item["id"].as_str().unwrap_or_default();
                self.begun.insert(id.to_owned());
            }
            tell(tool_use(item, kind));
        }
    }

    fn item(&mut self, item: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
        match item["type"].as_str() {
            Some("agent_message") => {
                if let Some(text) = item["text"].as_str() {
                    tell(OwnedEvent::Text(text.to_owned()));
                    self.message = Some(text.to_owned());
                }
            }
            Some("error") => tell(OwnedEvent::Note(error_sentence(&item["message"]))),
            Some(kind) if is_tool(kind) => {
                let code = &item["exit_code"];
                let status = item["status"].as_str().unwrap_or("completed");
                let failed = status != "completed" || code.as_i64().is_some_and(|code| code != 0);
                self.failed_commands += u64::from(failed);
                let id = item["id"].as_str().unwrap_or_default();
                // The program reports some items only after they have finished.
                if !self.begun.remove(id) {
                    tell(tool_use(item, kind));
                }
                let said = ["aggregated_output", "error", "message"];
                let said = said.iter().find_map(|key| {
                    let value = &item[*key];
                    value.as_str().or_else(|| value["message"].as_str())
                });
                tell(OwnedEvent::ToolResult {
                    id: id.to_owned(),
                    failed,
                    exit_code: code.as_i64(),
                    error: said.filter(|_| failed).map(str::to_owned),
                });
            }
            _ => {}
        }
    }
}

/// Returns the event for a tool use, with its target: a command, the changed files, a server's tool
/// or a search.
fn tool_use(item: &Value, kind: &str) -> OwnedEvent {
    let text = |key: &str| item[key].as_str().filter(|text| !text.is_empty());
    let target = match kind {
        "file_change" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let paths: Vec<&str> = changes.filter_map(|it| it["path"].as_str()).collect();
            (!paths.is_empty()).then(|| OwnedTarget::Path(paths.join(" ")))
        }
        "mcp_tool_call" => text("tool").map(|tool| {
            let server = text("server").unwrap_or("?");
            OwnedTarget::Pipeline(format!("{server} {tool}"))
        }),
        _ => text("command")
            .map(|command| OwnedTarget::Command(inner_command(command)))
            .or_else(|| text("query").map(|query| OwnedTarget::Pipeline(query.to_owned()))),
    };
    OwnedEvent::ToolUse {
        id: item["id"].as_str().unwrap_or_default().to_owned(),
        name: kind.to_owned(),
        target,
    }
}

/// Returns the command that Codex passes to a shell, as in `/bin/bash -lc 'make test'`. A command
/// of any other form is returned unchanged.
fn inner_command(command: &str) -> String {
    let words = shlex::split(command).unwrap_or_default();
    match <[String; 3]>::try_from(words) {
        Ok([shell, option, inner])
            if shell.ends_with("sh") && ["-lc", "-c"].contains(&&*option) =>
        {
            inner
        }
        _ => command.to_owned(),
    }
}

fn is_tool(kind: &str) -> bool {
    matches!(kind, "command_execution" | "file_change" | "mcp_tool_call" | "web_search")
}

/// Returns the text of an error or remark. If the text is an API error in JSON, returns its code
/// and message.
fn error_sentence(message: &Value) -> String {
    let text = message.as_str().unwrap_or_default();
    let inner = serde_json::from_str::<Value>(text).ok();
    let inner = inner.as_ref().map(|value| &value["error"]);
    match inner.and_then(|error| error["message"].as_str()) {
        Some(sentence) => {
            let code = inner.and_then(|error| error["code"].as_str().or(error["type"].as_str()));
            format!("{}: {sentence}", code.unwrap_or("error"))
        }
        None => text.to_owned(),
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    usage.as_object()?;
    // If a count is larger than this, negative or fractional, the usage is unknown.
    const MOST: u64 = 10_000_000_000;
    let count = |key: &str| usage[key].as_u64().filter(|figure| *figure <= MOST);
    let input = count("input_tokens")?;
    let output = count("output_tokens")?;
    let cached = match usage["cached_input_tokens"].is_null() {
        true => 0,
        false => count("cached_input_tokens")?,
    };
    Some(Usage {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: cached,
        cost_micros: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_around_a_command_is_removed() {
        for (command, inner) in [
            ("/bin/bash -lc 'make test'", "make test"),
            ("bash -lc ls", "ls"),
            (r#"/bin/sh -c "printf 'a\\n' > b""#, r"printf 'a\n' > b"),
            (r"/bin/bash -lc 'echo '\''x'\'''", "echo 'x'"),
            ("bash -lc 'not closed", "bash -lc 'not closed"),
            ("bash run.sh -v", "bash run.sh -v"),
            ("make test", "make test"),
        ] {
            assert_eq!(inner_command(command), inner, "{command}");
        }
    }
}
