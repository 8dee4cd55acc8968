//! Writes the same messages in the format of `claude`, `codex` or an executor.

use std::fs;
use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

/// Returns the output of `--version`.
pub fn version(kind: &str, behaviour: &str) -> String {
    let old = behaviour == "wrong-version";
    match kind {
        "claude" if old => "0.2.1 (Claude Code)".to_owned(),
        "claude" => "2.1.330 (Claude Code)".to_owned(),
        "codex" if old => "codex-cli 0.1.0".to_owned(),
        "codex" => "codex-cli 0.169.0".to_owned(),
        _ => "agent 1.0".to_owned(),
    }
}

/// The program whose dialect the agent uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    Claude,
    Codex,
    Command,
}

/// The usage so far. A behaviour may report any JSON value.
#[derive(Clone, Debug)]
pub struct Count {
    pub read: Value,
    pub written: Value,
    /// The cost in dollars, which only `claude` reports.
    pub cost: Value,
}

impl Count {
    pub fn of(read: i64, written: i64, cost: f64) -> Self {
        Self { read: json!(read), written: json!(written), cost: json!(cost) }
    }
}

/// A conversation in one dialect.
pub struct Conversation {
    pub kind: ProgramKind,
    /// The file for the last message, if the arguments name one.
    last: Option<String>,
    messages: u32,
    begun: bool,
}

impl Conversation {
    pub fn new(kind: &str, args: &[String]) -> Self {
        let kind = match kind {
            "claude" => ProgramKind::Claude,
            "codex" => ProgramKind::Codex,
            _ => ProgramKind::Command,
        };
        let last = args
            .iter()
            .position(|arg| arg == "-o" || arg == "--output-last-message")
            .and_then(|at| args.get(at + 1).cloned());
        Self { kind, last, messages: 0, begun: false }
    }

    /// Returns the arguments and the text of standard input.
    pub fn prompt(&self) -> (String, String) {
        let text = std::env::args().skip(1).collect::<Vec<_>>().join("\n");
        let mut bytes = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut bytes);
        (text, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes bytes unchanged.
    pub fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes);
        let _ = out.flush();
    }

    pub fn line(&self, value: &Value) {
        self.raw(format!("{value}\n").as_bytes());
    }

    /// Writes the first lines of a conversation, unless they are already written.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        match self.kind {
            ProgramKind::Claude => self.line(&json!({
                "type": "system", "subtype": "init", "session_id": "5e55", "model": "claude-haiku-4-5",
                "cwd": "/", "tools": [], "permissionMode": "default", "apiKeySource": "none"
            })),
            ProgramKind::Codex => {
                self.line(&json!({"type": "thread.started", "thread_id": "7ead"}));
                self.line(&json!({"type": "turn.started"}));
            }
            ProgramKind::Command => {}
        }
    }

    /// Writes a complete message of the model, with the usage only for `claude`. An executor has no
    /// such messages.
    pub fn message(&mut self, text: &str, count: &Count) {
        self.begin();
        self.messages += 1;
        match self.kind {
            ProgramKind::Claude => self.line(&json!({
                "type": "assistant", "session_id": "5e55",
                "message": {
                    "id": format!("msg_{}", self.messages), "type": "message", "role": "assistant",
                    "model": "claude-haiku-4-5", "content": [{"type": "text", "text": text}],
                    "usage": {"input_tokens": count.read, "output_tokens": count.written,
                              "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
                }
            })),
            ProgramKind::Codex => self.line(&json!({
                "type": "item.completed",
                "item": {"id": format!("item_{}", self.messages), "type": "agent_message", "text": text}
            })),
            ProgramKind::Command => {}
        }
    }

    /// Reports a tool call of the model.
    pub fn tool(&mut self, command: &str, failed: bool) {
        self.begin();
        match self.kind {
            ProgramKind::Claude => {
                self.line(&json!({"type": "assistant", "message": {"id": "msg_t", "model": "claude-haiku-4-5",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": command}}],
                    "usage": {"input_tokens": 1, "output_tokens": 1}}}));
                self.line(&json!({"type": "user", "message": {"role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": failed, "content": ""}]}}));
            }
            ProgramKind::Codex => self.line(&json!({"type": "item.completed", "item": {"id": "item_t",
                "type": "command_execution", "command": command, "aggregated_output": "",
                "exit_code": i32::from(failed), "status": if failed { "failed" } else { "completed" }}})),
            ProgramKind::Command => {}
        }
    }

    /// Writes the end of a successful conversation.
    pub fn done(&mut self, text: &str, count: &Count) {
        self.begin();
        match self.kind {
            ProgramKind::Claude => self.line(&self.result(text, count)),
            ProgramKind::Codex => {
                if let Some(path) = &self.last {
                    let _ = fs::write(path, text);
                }
                self.line(&json!({"type": "turn.completed", "usage": {
                    "input_tokens": count.read, "cached_input_tokens": 0, "cache_write_input_tokens": 0,
                    "output_tokens": count.written, "reasoning_output_tokens": 0}}));
            }
            // The executor contract requires JSON.
            ProgramKind::Command => self.line(&json!(text)),
        }
    }

    /// Returns the final line of `claude`'s stream.
    pub fn result(&self, text: &str, count: &Count) -> Value {
        json!({
            "duration_ms": 12, "is_error": false, "num_turns": 1, "subtype": "success",
            "result": text, "session_id": "5e55", "total_cost_usd": count.cost, "type": "result",
            "usage": {"input_tokens": count.read, "output_tokens": count.written},
            "modelUsage": {"claude-haiku-4-5": {"inputTokens": count.read, "outputTokens": count.written,
                "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "webSearchRequests": 0,
                "costUSD": count.cost, "contextWindow": 200_000}},
            "permission_denials": [], "terminal_reason": "completed", "stop_reason": "end_turn"
        })
    }

    pub fn good(&mut self, text: &str) {
        let count = Count::of(120, 30, 0.000_27);
        self.message(text, &count);
        self.done(text, &count);
    }

    /// Reports a failed call to the provider and returns the matching exit code.
    pub fn refuse(&mut self, status: u16, words: &str) -> i32 {
        self.begin();
        match self.kind {
            ProgramKind::Claude => {
                let mut result = self.result(words, &Count::of(0, 0, 0.0));
                result["is_error"] = json!(true);
                result["api_error_status"] = json!(status);
                result["terminal_reason"] = json!("api_error");
                result["modelUsage"] = json!({});
                self.line(&result);
                1
            }
            ProgramKind::Codex => {
                let words = format!("unexpected status {status}: {words}");
                self.line(&json!({"type": "error", "message": words}));
                self.line(&json!({"type": "turn.failed", "error": {"message": words}}));
                1
            }
            ProgramKind::Command => {
                eprintln!("status {status}: {words}");
                3
            }
        }
    }
}
