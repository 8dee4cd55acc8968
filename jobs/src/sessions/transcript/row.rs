//! Converts one row of a Claude Code transcript into events.
//!
//! Only the fields that are needed are parsed. The content is either text or a list of blocks,
//! depending on the version. The number of events per row is limited.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess};

use super::lenient::{Form, Object, any_form, object};
use super::{SessionEvent, SessionEventKind};

/// Maximum number of blocks to read per message.
const BLOCKS: usize = 1000;
/// Maximum length of an event's text, in bytes. Longer text is truncated.
const TEXT: usize = 64 * 1024;
/// Maximum length of the start of a string, in bytes.
const HEAD: usize = 8 * 1024;

/// The fields that are needed from a row.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "any_form")]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    uuid: Option<String>,
    #[serde(default, rename = "forkedFrom", deserialize_with = "any_form")]
    origin: Object<Origin>,
    #[serde(default, deserialize_with = "any_form")]
    cwd: Option<String>,
    #[serde(default, rename = "gitBranch", deserialize_with = "any_form")]
    branch: Option<String>,
    /// Only the rows of other programs have a payload.
    #[serde(default)]
    payload: Option<IgnoredAny>,
    /// Text that the program added to the conversation, such as the output of a hook.
    #[serde(default, deserialize_with = "any_form")]
    attachment: Object<Attachment>,
    #[serde(default, rename = "isSidechain", deserialize_with = "any_form")]
    sidechain: Option<bool>,
    #[serde(default, rename = "isMeta", deserialize_with = "any_form")]
    meta: Option<bool>,
    #[serde(default, rename = "isCompactSummary", deserialize_with = "any_form")]
    compact: Option<bool>,
    #[serde(default, deserialize_with = "any_form")]
    summary: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    message: Object<Message>,
}

/// The row that a row in a fork of a session is a copy of.
#[derive(Debug, Deserialize)]
struct Origin {
    #[serde(default, rename = "messageUuid", deserialize_with = "any_form")]
    uuid: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "any_form")]
    content: Content,
}

#[derive(Debug, Deserialize)]
struct Attachment {
    #[serde(default, rename = "type", deserialize_with = "any_form")]
    kind: Option<String>,
    #[serde(default)]
    content: serde_json::Value,
}

impl Attachment {
    /// Returns the context that a hook added, or `None` if this is another kind of attachment.
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

/// The content of a message, which is text or a list of blocks.
#[derive(Debug, Default)]
struct Content(Vec<Block>);

#[derive(Debug, Default, Deserialize)]
struct Block {
    #[serde(default, rename = "type", deserialize_with = "any_form")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    text: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    id: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    name: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    input: Object<Input>,
    #[serde(default, deserialize_with = "any_form")]
    tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    is_error: Option<bool>,
    #[serde(default, deserialize_with = "any_form")]
    content: Content,
}

/// The input of a tool, under the field names that the various tools use.
#[derive(Debug, Default, Deserialize)]
struct Input {
    #[serde(default, deserialize_with = "any_form")]
    file_path: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    notebook_path: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    command: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    pattern: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    path: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    url: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    query: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    description: Option<String>,
    #[serde(default, deserialize_with = "any_form")]
    content: Head,
    #[serde(default, deserialize_with = "any_form")]
    new_string: Head,
}

/// The start of a string.
#[derive(Debug, Default)]
struct Head(String);

impl Form<'_> for Head {
    fn of_text(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(HEAD)].to_owned())
    }
}

impl<'de> Form<'de> for Content {
    fn of_text(text: &str) -> Self {
        let kind = Some("text".to_owned());
        Self(vec![Block { kind, text: Some(cut(text)), ..Block::default() }])
    }

    fn of_seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut blocks = Vec::new();
        while blocks.len() < BLOCKS {
            match seq.next_element::<ContentItem>()? {
                Some(ContentItem(block)) => blocks.extend(block.0),
                None => return Ok(Self(blocks)),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self(blocks))
    }
}

/// An item of a list of blocks.
#[derive(Deserialize)]
#[serde(transparent)]
struct ContentItem(#[serde(deserialize_with = "any_form")] Object<Block>);

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

impl Row {
    /// Reads a line that contains one row and nothing else. This is enough for most lines.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(Self::is_known)
    }

    /// Reads a row from JSON, or returns `None` if the JSON is not one of Claude Code's rows.
    pub(super) fn of_json(json: &str) -> Option<Self> {
        object(json).filter(Self::is_known)
    }

    fn is_known(&self) -> bool {
        let has_content = self.message.0.is_some()
            || self.summary.is_some()
            || self.timestamp.is_some()
            || self.kind.contains('-');
        has_content && self.payload.is_none()
    }
}

/// Returns the events of a row.
pub(super) fn events(line: u64, row: Row) -> Vec<SessionEvent> {
    let at: Option<Timestamp> = row.timestamp.as_deref().and_then(|at| at.parse().ok());
    let uuid = row.origin.0.and_then(|it| it.uuid).or(row.uuid);
    let id = uuid.map(|uuid| BuildHasherDefault::<DefaultHasher>::default().hash_one(uuid));
    let event = |what| SessionEvent {
        line,
        row: id,
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
                let text = row.message.0.map(|it| it.content.text()).unwrap_or_default();
                return vec![event(SessionEventKind::Summary(text))];
            }
            let blocks = row.message.0.map(|it| it.content.0).unwrap_or_default();
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
                    Some("tool_use") => {
                        let mut input = block.input.0.unwrap_or_default();
                        let written = match input.content.0.is_empty() {
                            true => std::mem::take(&mut input.new_string.0),
                            false => std::mem::take(&mut input.content.0),
                        };
                        SessionEventKind::Call {
                            id: block.id.unwrap_or_default(),
                            tool: block.name.unwrap_or_default(),
                            written,
                            target: input.target(),
                        }
                    }
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
        other => {
            events.push(event(match row.attachment.0.as_ref().and_then(Attachment::injected) {
                Some(text) => SessionEventKind::Injected(text),
                None => SessionEventKind::Other(cut(other)),
            }))
        }
    }
    events
}

/// Returns whether text in a user's row is context that one of Claude Code's hooks added.
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
