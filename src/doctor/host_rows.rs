//! Reads what a host recorded in a session's transcript about the memory's hooks: whether they ran,
//! how long they took, and whether their text arrived complete.
//!
//! Claude Code records each hook as an attachment, with its command, its duration and the part of
//! its output that Claude Code kept. Codex records only the text. This module must never change a
//! transcript.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use runner_engine::files::open_host;
use runner_memory::hooks::is_whole_block;
use serde::Deserialize;

/// Maximum number of bytes to read from a transcript. The rows of the session-start hooks come
/// first.
const MOST: u64 = 32 << 20;
/// The beginning of a block's first line.
const BLOCK: &str = "<!-- ctx:";

/// Runner's hooks as recorded in a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookRows {
    /// Whether the host recorded that one of runner's hooks ran.
    pub ran: bool,
    /// The slowest hook that finished: the host's event and the hook's duration in milliseconds.
    pub slowest: Option<(String, u64)>,
    /// A hook that the host stopped at its time limit: the host's event and the limit in
    /// milliseconds.
    pub ended: Option<(String, u64)>,
    /// A hook that failed: the host's event and the first line of its error.
    pub failed: Option<(String, String)>,
    /// The host's event at which a hook's text did not arrive in full.
    pub cut: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    attachment: Option<Attachment>,
    #[serde(default)]
    payload: Option<Payload>,
}

/// A row about a hook, in the format written by Claude Code.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    hook_event: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    duration_ms: u64,
    #[serde(default)]
    timed_out: bool,
    #[serde(default)]
    timeout_ms: u64,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    content: serde_json::Value,
}

/// An item in a Codex transcript.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: serde_json::Value,
}

impl HookRows {
    /// Reads a transcript. A file that cannot be read has no rows.
    pub fn read(path: &Path) -> Self {
        let mut out = Self::default();
        let Ok(file) = open_host(path) else { return out };
        let mut lines = BufReader::new(file.take(MOST));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            // Most rows are long and not about hooks, so they are not parsed.
            let text = String::from_utf8_lossy(&line);
            if (text.contains("\"hook_") || text.contains(BLOCK))
                && let Ok(row) = serde_json::from_str(&text)
            {
                out.take(row);
            }
            line.clear();
        }
        out
    }

    fn take(&mut self, row: Row) {
        if let Some(row) = row.attachment {
            self.take_attachment(row);
        }
        if let Some(item) = row.payload.filter(|item| item.role == "developer") {
            self.take_text(&item.content, "a prompt or a session start");
        }
    }

    fn take_attachment(&mut self, row: Attachment) {
        match row.kind.as_str() {
            "hook_additional_context" => self.take_text(&row.content, &row.hook_event),
            _ if !is_own(&row.command) => {}
            "hook_success" => {
                self.ran = true;
                if self.slowest.as_ref().is_none_or(|(_, most)| row.duration_ms > *most) {
                    self.slowest = Some((row.hook_event, row.duration_ms));
                }
            }
            "hook_cancelled" if row.timed_out => {
                self.ended = Some((row.hook_event, row.timeout_ms));
            }
            "hook_non_blocking_error" | "hook_blocking_error" => {
                let why = row.stderr.lines().next().unwrap_or_default().to_owned();
                self.failed = Some((row.hook_event, why));
            }
            _ => {}
        }
    }

    /// Checks whether the host kept a block's text in full.
    fn take_text(&mut self, content: &serde_json::Value, event: &str) {
        let items = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        for item in items {
            let text = item.as_str().or_else(|| item["text"].as_str()).unwrap_or_default();
            if text.contains(BLOCK) {
                self.ran = true;
                if !is_whole_block(text) {
                    self.cut = Some(event.to_owned());
                }
            }
        }
    }
}

/// Returns whether a command is one of runner's hooks.
fn is_own(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.any(|word| word == "hook")
        && words.next().is_some_and(|name| {
            ["session-start", "prompt-submit", "stop", "session-end", "pre-compact"].contains(&name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const WHOLE: &str = "<!-- ctx: 1 node, 4 tokens -->\nnote\n<!-- ctx:end -->";

    fn rows(rows: &[Value]) -> HookRows {
        let mut out = HookRows::default();
        for row in rows {
            out.take(serde_json::from_value(row.clone()).unwrap());
        }
        out
    }

    fn ours(kind: &str, more: Value) -> Value {
        let mut row =
            json!({"type": kind, "hookEvent": "Stop", "command": "/bin/runner hook stop"});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "attachment", "attachment": row })
    }

    #[test]
    fn rows_of_claude_code_are_read() {
        let quick = ours("hook_success", json!({"durationMs": 12, "exitCode": 0}));
        let slow = ours("hook_success", json!({"durationMs": 900, "hookEvent": "SessionStart"}));
        let found = rows(&[quick, slow]);
        assert_eq!(found.slowest, Some(("SessionStart".to_owned(), 900)));
        assert!(found.ran && found.ended.is_none() && found.cut.is_none());
        let found = rows(&[ours("hook_cancelled", json!({"timedOut": true, "timeoutMs": 2000}))]);
        assert_eq!(found.ended, Some(("Stop".to_owned(), 2000)));
        let found = rows(&[ours("hook_non_blocking_error", json!({"stderr": "not found\nmore"}))]);
        assert_eq!(found.failed, Some(("Stop".to_owned(), "not found".to_owned())));
        let other = json!({"attachment": {"type": "hook_success", "command": "fmt hook all"}});
        assert_eq!(rows(&[other]), HookRows::default());
    }

    #[test]
    fn truncated_text_is_detected() {
        let claude = |text: &str| {
            json!({"attachment": {"type": "hook_additional_context", "hookEvent": "SessionStart",
                "content": [text]}})
        };
        let codex = |text: &str| json!({"payload": {"role": "developer", "content": [{"type": "input_text", "text": text}]}});
        let preview = format!("<persisted-output>\nOutput too large.\n\n{}", &WHOLE[..30]);
        let middle = format!("Warning: truncated output\n\n{WHOLE}");
        for (row, cut) in [
            (claude(WHOLE), false),
            (codex(WHOLE), false),
            (claude(&preview), true),
            (codex(&middle), true),
            (codex(&WHOLE[..40]), true),
        ] {
            let found = rows(std::slice::from_ref(&row));
            assert_eq!((found.ran, found.cut.is_some()), (true, cut), "{row}");
        }
        // A model's answer was not injected by a hook.
        let said = json!({"payload": {"role": "assistant", "content": [{"text": preview}]}});
        assert_eq!(rows(&[said]), HookRows::default());
    }
}
