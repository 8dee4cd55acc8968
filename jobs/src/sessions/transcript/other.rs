//! Converts the transcript rows of programs other than Claude Code into events: Codex rollouts,
//! `_steps.jsonl`, and rows with `ts`, `type` and `detail`.
//!
//! The events use Claude Code's tool names, so a reader of events does not need to know which
//! program wrote the rows. This module must never guess: rows in any other format are not
//! converted.

use jiff::Timestamp;
use serde_json::Value;

use super::{SessionEvent, SessionEventKind};
use crate::steps::ToolStep;

/// Maximum length of a text field in bytes.
const TEXT: usize = 64 * 1024;

/// Returns the events of a row, or `None` if the row is in none of the known formats.
pub(super) fn events(line: u64, json: &str) -> Option<Vec<SessionEvent>> {
    let row: Value = serde_json::from_str(json).ok()?;
    let at = row["timestamp"].as_str().or(row["ts"].as_str()).and_then(|at| at.parse().ok());
    let base = RowBase { line, at };
    if row["payload"].is_object() {
        return Some(codex(base, row["type"].as_str()?, &row["payload"]));
    }
    match row["type"].as_str() {
        // Early versions of Codex wrote the items without an envelope.
        Some(kind @ ("message" | "function_call" | "function_call_output" | "reasoning"))
            if row["ts"].is_null() =>
        {
            let known =
                row["role"].is_string() || row["call_id"].is_string() || kind == "reasoning";
            known.then(|| codex(base, "response_item", &row))
        }
        Some(kind) if row["ts"].is_string() && !row["detail"].is_null() => {
            Some(plain(base, kind, &row["detail"]))
        }
        None if row["tool"].is_string() && row["ts"].is_string() => {
            let step: ToolStep = serde_json::from_value(row).ok()?;
            Some(of_step(base, step))
        }
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct RowBase {
    line: u64,
    at: Option<Timestamp>,
}

impl RowBase {
    fn event(self, what: SessionEventKind) -> SessionEvent {
        let RowBase { line, at } = self;
        SessionEvent { line, at, cwd: None, branch: None, sidechain: false, row: None, what }
    }

    /// Returns a call and its outcome, for a row that contains both.
    fn done(self, tool: &str, target: String, failure: Option<String>) -> Vec<SessionEvent> {
        let id = format!("line-{}", self.line);
        let call = SessionEventKind::Call {
            id: id.clone(),
            tool: tool.to_owned(),
            target,
            written: String::new(),
        };
        let failed = failure.is_some();
        let text = failure.unwrap_or_default();
        vec![self.event(call), self.event(SessionEventKind::Outcome { id, failed, text })]
    }
}

fn codex(base: RowBase, kind: &str, payload: &Value) -> Vec<SessionEvent> {
    let text = |key: &str| payload[key].as_str().map(cut).unwrap_or_default();
    let id = || text("call_id");
    let mut event = match (kind, payload["type"].as_str()) {
        ("session_meta" | "turn_context", _) => SessionEventKind::Other(kind.to_owned()),
        ("compacted", _) => SessionEventKind::Summary(text("message")),
        ("response_item", Some("message")) => {
            let said = said(&payload["content"]);
            match payload["role"].as_str() {
                Some("assistant") => SessionEventKind::Answer(said),
                // Codex itself adds messages about the host, which begin with a tag.
                Some("user") if !said.starts_with('<') => SessionEventKind::Prompt(said),
                _ => SessionEventKind::Other("meta".to_owned()),
            }
        }
        ("response_item", Some("function_call" | "custom_tool_call" | "local_shell_call")) => {
            let (tool, target) = codex_call(payload);
            SessionEventKind::Call { id: id(), tool, target, written: String::new() }
        }
        ("response_item", Some("function_call_output" | "custom_tool_call_output")) => {
            let (failed, text) = codex_output(&payload["output"]);
            SessionEventKind::Outcome { id: id(), failed, text }
        }
        (_, inner) => SessionEventKind::Other(inner.unwrap_or(kind).to_owned()),
    };
    if let SessionEventKind::Other(name) = &mut event {
        *name = cut(name);
    }
    let mut event = base.event(event);
    event.cwd = payload["cwd"].as_str().map(str::to_owned);
    event.branch = payload["git"]["branch"].as_str().map(str::to_owned);
    vec![event]
}

/// Returns the tool and the target of a call: a command, or the files of a patch, one on each line.
fn codex_call(payload: &Value) -> (String, String) {
    let name = payload["name"].as_str().unwrap_or("shell");
    let arguments = payload["arguments"].as_str().unwrap_or_default();
    let input: Value = serde_json::from_str(arguments).unwrap_or_default();
    let patch = payload["input"].as_str().or(input["input"].as_str()).unwrap_or_default();
    if name == "apply_patch" {
        return ("Edit".to_owned(), patched(patch));
    }
    let command = [&input["command"], &input["cmd"], &payload["action"]["command"]];
    let command = command.into_iter().find_map(|value| match value {
        Value::String(command) => Some(command.clone()),
        // ["bash", "-lc", "the command"]
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let inner = words.get(1).is_some_and(|flag| flag.starts_with('-'));
            Some(if inner { words[2..].join(" ") } else { words.join(" ") })
        }
        _ => None,
    });
    match command {
        Some(command) if command.trim_start().starts_with("apply_patch") => {
            ("Edit".to_owned(), patched(&command))
        }
        Some(command) => ("Bash".to_owned(), cut(&command)),
        None => {
            let path = input["path"].as_str().or(input["query"].as_str()).unwrap_or_default();
            (cut(name), cut(path))
        }
    }
}

fn patched(patch: &str) -> String {
    let heads = ["*** Update File: ", "*** Add File: ", "*** Delete File: "];
    let file =
        |line: &str| heads.iter().find_map(|head| line.strip_prefix(head)).map(str::to_owned);
    cut(&patch.lines().filter_map(file).collect::<Vec<_>>().join("\n"))
}

/// Returns whether a call failed, and its output.
fn codex_output(output: &Value) -> (bool, String) {
    let text = output.as_str().or(output["content"].as_str()).unwrap_or_default();
    let parsed: Option<Value> =
        text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    if let Some(parsed) = parsed.filter(|it| it["output"].is_string()) {
        let failed = parsed["metadata"]["exit_code"].as_i64().is_some_and(|code| code != 0);
        return (failed, cut(parsed["output"].as_str().unwrap_or_default()));
    }
    let code = ["Exit code: ", "Process exited with code "]
        .iter()
        .find_map(|head| text.lines().take(6).find_map(|line| line.strip_prefix(head)))
        .and_then(|code| code.trim().parse::<i64>().ok());
    let refused = output["success"] == false;
    let body = text.split_once("Output:\n").map_or(text, |(_, body)| body);
    (refused || code.is_some_and(|code| code != 0), cut(body))
}

fn said(content: &Value) -> String {
    let parts = content.as_array().into_iter().flatten();
    let parts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).take(1000).collect();
    cut(&parts.join("\n"))
}

fn of_step(base: RowBase, step: ToolStep) -> Vec<SessionEvent> {
    let args = step.args.unwrap_or_default();
    let target = args.path.or(args.cmd).or(args.pipeline).unwrap_or_default();
    let failure = (step.exit_code != 0).then(|| step.error.unwrap_or_default());
    base.done(&step.tool, target, failure)
}

fn plain(base: RowBase, kind: &str, detail: &Value) -> Vec<SessionEvent> {
    let text = |key: &str| detail[key].as_str().map(cut);
    let first = |keys: &[&str]| keys.iter().find_map(|key| text(key));
    let all = detail.as_str().map(cut);
    let target = all.clone().or_else(|| first(&["target", "path", "file", "cmd", "command"]));
    let target = cut(&target.unwrap_or_default());
    let tool = match kind {
        "prompt" | "user" => {
            let said = all.or_else(|| text("text")).unwrap_or_default();
            return vec![base.event(SessionEventKind::Prompt(said))];
        }
        "answer" | "assistant" => {
            let said = all.or_else(|| text("text")).unwrap_or_default();
            return vec![base.event(SessionEventKind::Answer(said))];
        }
        "read" => "Read",
        "edit" => "Edit",
        "write" => "Write",
        "search" => "Grep",
        "bash" | "shell" | "command" | "test" | "build" | "commit" => "Bash",
        "error" | "failure" => {
            let why = first(&["error", "message", "text"]).or(all).unwrap_or_default();
            let tool = text("tool").unwrap_or_else(|| "Bash".to_owned());
            let target = if detail.is_string() { String::new() } else { target };
            return base.done(&tool, target, Some(cut(&why)));
        }
        other => return vec![base.event(SessionEventKind::Other(cut(other)))],
    };
    let failure = first(&["error"]).or_else(|| {
        let code = detail["exit_code"].as_i64().filter(|code| *code != 0);
        code.map(|_| text("output").unwrap_or_default())
    });
    base.done(tool, target, failure)
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT)].to_owned()
}
