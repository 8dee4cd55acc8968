//! Converts one row of a transcript into events.
//!
//! Only the needed fields of a row are parsed. The content may be a text or a list of blocks,
//! depending on the version. The number of events of a row is limited.

use std::fmt;

use jiff::Timestamp;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{SessionEvent, SessionEventKind};

/// Maximum number of blocks of one message that are read.
const BLOCKS: usize = 1000;
/// Maximum length of the text of an event, in bytes. Longer texts are truncated.
const TEXT: usize = 64 * 1024;

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    cwd: Option<String>,
    #[serde(default, rename = "gitBranch", deserialize_with = "lenient")]
    branch: Option<String>,
    /// Only the rows of other programs have a payload.
    #[serde(default)]
    payload: Option<IgnoredAny>,
    /// A text that the program added to the conversation, such as the output of a hook.
    #[serde(default, deserialize_with = "lenient")]
    attachment: Option<Attachment>,
    #[serde(default, rename = "isSidechain", deserialize_with = "lenient")]
    sidechain: Option<bool>,
    #[serde(default, rename = "isMeta", deserialize_with = "lenient")]
    meta: Option<bool>,
    #[serde(default, rename = "isCompactSummary", deserialize_with = "lenient")]
    compact: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    summary: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Message>,
}

#[derive(Default, Deserialize)]
struct Message {
    #[serde(default)]
    content: Content,
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(default, rename = "type", deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default)]
    content: serde_json::Value,
}

impl Attachment {
    /// Returns the context that a hook added, or `None` if this is another attachment.
    fn injected(&self) -> Option<String> {
        let context = self.kind.as_deref() == Some("hook_additional_context");
        let texts = match &self.content {
            serde_json::Value::String(text) => vec![text.as_str()],
            serde_json::Value::Array(items) => items.iter().filter_map(|it| it.as_str()).collect(),
            _ => Vec::new(),
        };
        context.then(|| cut(&texts.join("\n")))
    }
}

/// The content of a message, which is a text or a list of blocks.
#[derive(Default)]
struct Content(Vec<Block>);

#[derive(Default, Deserialize)]
struct Block {
    #[serde(default, rename = "type", deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    text: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    input: Option<Input>,
    #[serde(default, deserialize_with = "lenient")]
    tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    is_error: Option<bool>,
    #[serde(default)]
    content: Content,
}

/// The input of a tool, under the names that tools use for it.
#[derive(Default, Deserialize)]
struct Input {
    #[serde(default, deserialize_with = "lenient")]
    file_path: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    notebook_path: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    command: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pattern: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    path: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    url: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    query: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    description: Option<String>,
}

/// Reads a value, or returns `None` if its form is unexpected. One unexpected field therefore does
/// not invalidate the row.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let raw = <&serde_json::value::RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content(vec![Block {
                    kind: Some("text".to_owned()),
                    text: Some(cut(text)),
                    ..Block::default()
                }]))
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Content, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Content::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut blocks = Vec::new();
                while blocks.len() < BLOCKS {
                    match seq.next_element::<&serde_json::value::RawValue>()? {
                        Some(raw) => blocks.extend(serde_json::from_str::<Block>(raw.get()).ok()),
                        None => return Ok(Content(blocks)),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Content(blocks))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Content {
    fn text(self) -> String {
        let mut whole = String::new();
        for block in self.0 {
            let text = block.text.unwrap_or_default();
            if !whole.is_empty() && !text.is_empty() {
                whole.push('\n');
            }
            whole.push_str(&text);
            if whole.len() > TEXT {
                break;
            }
        }
        cut(&whole)
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Returns the events of a row, or `None` if the row is not one of the program's rows.
pub(super) fn events(line: u64, json: &str) -> Option<Vec<SessionEvent>> {
    let row: Row = serde_json::from_str(json).ok()?;
    if row.payload.is_some() {
        return None;
    }
    let known = row.message.is_some()
        || row.summary.is_some()
        || row.timestamp.is_some()
        || row.kind.contains('-');
    if !known {
        return None;
    }
    let at: Option<Timestamp> = row.timestamp.as_deref().and_then(|at| at.parse().ok());
    let event = |what| SessionEvent {
        line,
        at,
        cwd: row.cwd.clone(),
        branch: row.branch.clone(),
        sidechain: row.sidechain.unwrap_or(false),
        what,
    };
    let person = row.kind == "user" && !row.meta.unwrap_or(false);
    let mut events = Vec::new();
    match row.kind.as_str() {
        "user" | "assistant" => {
            if row.compact.unwrap_or(false) {
                let text = row.message.map(|it| it.content.text()).unwrap_or_default();
                return Some(vec![event(SessionEventKind::Summary(text))]);
            }
            let blocks = row.message.map(|it| it.content.0).unwrap_or_default();
            for block in blocks {
                let what = match block.kind.as_deref() {
                    Some("text") => {
                        let text = cut(&block.text.unwrap_or_default());
                        if row.kind == "user" && is_injected(&text) {
                            events.push(event(SessionEventKind::Injected(text)));
                            continue;
                        }
                        match (row.kind.as_str(), person) {
                            ("assistant", _) => SessionEventKind::Answer(text),
                            (_, true) => SessionEventKind::Prompt(text),
                            _ => SessionEventKind::Other("meta".to_owned()),
                        }
                    }
                    Some("tool_use") => SessionEventKind::Call {
                        id: block.id.unwrap_or_default(),
                        tool: block.name.unwrap_or_default(),
                        target: block.input.unwrap_or_default().target(),
                    },
                    Some("tool_result") => SessionEventKind::Outcome {
                        id: block.tool_use_id.unwrap_or_default(),
                        failed: block.is_error.unwrap_or(false),
                        text: block.content.text(),
                    },
                    other => SessionEventKind::Other(other.unwrap_or("block").to_owned()),
                };
                events.push(event(what));
            }
        }
        "summary" => {
            events.push(event(SessionEventKind::Summary(cut(&row.summary.unwrap_or_default()))))
        }
        other => events.push(event(match row.attachment.as_ref().and_then(Attachment::injected) {
            Some(text) => SessionEventKind::Injected(text),
            None => SessionEventKind::Other(cut(other)),
        })),
    }
    Some(events)
}

/// Reports whether a text of a user's row is context that a hook of the program added.
fn is_injected(text: &str) -> bool {
    let head = text.trim_start();
    head.starts_with("<system-reminder>") && text.contains("hook additional context")
}

impl Input {
    fn target(self) -> String {
        let first = [
            self.file_path,
            self.notebook_path,
            self.command,
            self.pattern,
            self.path,
            self.url,
            self.query,
            self.description,
        ];
        cut(&first.into_iter().flatten().next().unwrap_or_default())
    }
}
