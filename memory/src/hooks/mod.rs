//! The hooks of a coding session, which inject text and execute the commands in answers.
//!
//! A hook opens the store, writes in at most one transaction and exits. It must never start a
//! process, call a model or wait for anything but the store's lock, and must never use
//! `additionalContext` when an answer ends, because that continues the conversation.

mod answer;
mod block;
mod json;
mod transcript;

use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::apply::{Actor, Recall, key};
use crate::error::Result;
use crate::node::Scope;
use crate::rank;
use crate::store::{Change, Memory};

pub use answer::AnswerReport;
pub use block::{Block, LONGEST, is_whole_block};
pub use transcript::{Read, Turn, read};

use block::Body;

/// Maximum total length in bytes of the nodes injected into a prompt unasked.
const RECALLED_BYTES: usize = 2_000;

/// An event for which the host calls a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    SessionStart,
    PromptSubmit,
    Stop,
    SessionEnd,
    PreCompact,
}

/// The input of a hook. Unknown fields are ignored, and missing ones are `None`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Payload {
    pub session_id: Option<String>,
    pub transcript_path: Option<PathBuf>,
    pub cwd: Option<PathBuf>,
    /// The reason a session starts: startup, resume, clear, compact or fork.
    pub source: Option<String>,
    pub seconds_since_last_response: Option<f64>,
    pub prompt: Option<String>,
    pub prompt_id: Option<String>,
    pub turn_id: Option<String>,
    pub last_assistant_message: Option<String>,
}

/// The context in which a hook runs.
#[derive(Clone, Debug)]
pub struct HookContext {
    pub now: Timestamp,
    pub scope: Scope,
    /// The session's folder, shared by related sessions.
    pub folder: String,
    pub auto_recall: AutoRecall,
    /// The text about the last session that a new session receives before its notes, if any.
    pub last_session: Option<String>,
    /// Maximum time to read a transcript.
    pub transcript_limit: Duration,
}

/// Whether relevant nodes are injected into prompts unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoRecall {
    On,
    Off,
}

impl Payload {
    /// Parses a payload. Fields of an unexpected type are treated as missing, and invalid
    /// characters are replaced. Input that is not a JSON object yields an empty payload.
    pub fn parse(bytes: &[u8]) -> Self {
        let input = String::from_utf8_lossy(bytes);
        if let Ok(payload) = json::parse(&input) {
            return payload;
        }
        let Ok(serde_json::Value::Object(fields)) = json::parse(&input) else {
            return Self::default();
        };
        let text = |name: &str| fields.get(name)?.as_str().map(str::to_owned);
        Self {
            session_id: text("session_id"),
            transcript_path: text("transcript_path").map(PathBuf::from),
            cwd: text("cwd").map(PathBuf::from),
            source: text("source"),
            seconds_since_last_response: None,
            prompt: text("prompt"),
            prompt_id: text("prompt_id"),
            turn_id: text("turn_id"),
            last_assistant_message: text("last_assistant_message"),
        }
    }

    /// Returns the id of the session, if the host names one.
    fn named_session(&self) -> Option<&str> {
        self.session_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the id under which the session's state is stored. Calls without a session id share
    /// the state of their transcript, or else of their folder.
    fn session(&self, context: &HookContext) -> String {
        match (self.named_session(), &self.transcript_path) {
            (Some(id), _) => id.to_owned(),
            (None, Some(path)) => format!("transcript:{}", path.display()),
            (None, None) => format!("folder:{}", context.folder),
        }
    }

    fn actor(&self, context: &HookContext) -> Actor {
        Actor {
            session: self.session(context),
            source: self.named_session().map(str::to_owned),
            scope: context.scope.clone(),
        }
    }
}

impl Memory {
    /// Passes the text for a starting session to `show`. Nothing is injected twice: a resumed
    /// session or a fork receives only the changes to the text that it already has. `show` is
    /// called before the store records the text, so if the hook dies in between, the text is
    /// repeated instead of lost.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used, or the error from `show`.
    pub fn session_start(
        &mut self,
        payload: &Payload,
        context: &HookContext,
        show: impl FnOnce(Option<&str>) -> Result<()>,
    ) -> Result<()> {
        let id = &payload.session(context);
        let source = payload.source.as_deref().unwrap_or("startup");
        let continues = matches!(source, "resume" | "fork");
        let known = self.session(id)?;
        let parent = match (&known, source) {
            // A resumed session keeps its id, so it continues no other session.
            (None, "fork" | "clear") => {
                let ago = payload.seconds_since_last_response.filter(|it| (0.0..1e9).contains(it));
                let answered = ago.and_then(|seconds| {
                    context.now.checked_sub(SignedDuration::from_secs(seconds as i64)).ok()
                });
                self.parent_session(&context.folder, id, answered)?
            }
            _ => None,
        };
        let copied = source == "fork" && known.is_none();
        let fresh = known.is_none();
        let got = known.as_ref().or(parent.as_ref()).and_then(|it| it.generation);
        let mut session = known.unwrap_or_default();
        session.id.clone_from(id);
        session.folder.clone_from(&context.folder);
        session.project = context.scope.project().map(str::to_owned);
        if copied {
            // A fork's transcript may contain rows of its parent session.
            session.since = Some(context.now.to_string());
        }
        self.change("session start", context.now, |change| {
            let reader = change.reader();
            let expanded = expanded(change, id)?;
            let own = parent.as_ref().map_or(id.as_str(), |it| it.id.as_str());
            let block = match got.filter(|_| continues) {
                Some(after) => reader.difference(&context.scope, after, own, &expanded)?,
                None => {
                    let last = context.last_session.as_deref();
                    let last = last.filter(|_| matches!(source, "startup" | "clear"));
                    reader.block(&context.scope, last, &expanded)?
                }
            };
            session.generation = Some(reader.generation()?);
            change.put_session(&session)?;
            if !continues || fresh {
                let from = parent.as_ref().filter(|_| continues).map(|it| it.id.as_str());
                change.reset_delivered(id, from)?;
            }
            if let Some(parent) = &parent {
                change.inherit_task(&parent.id, id)?;
            }
            change.clear_pending(id, &[key::EXPAND])?;
            if let Some(block) = &block {
                change.deliver(id, &block.delivered)?;
            }
            show(block.as_ref().map(|block| block.text.as_str()))
        })
    }

    /// Passes the text for a prompt to `show`: the results of the last answer's commands, and
    /// relevant nodes that the session has not received yet. If nothing is pending and no node is
    /// relevant, the store is not changed.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used, or the error from `show`.
    pub fn prompt_submit(
        &mut self,
        payload: &Payload,
        context: &HookContext,
        show: impl FnOnce(Option<&str>) -> Result<()>,
    ) -> Result<()> {
        let id = &payload.session(context);
        let reads = self.begin_reads()?;
        let reader = self.reader();
        let mut waits = false;
        for name in [key::STATUS, key::RECALL, key::EXPAND] {
            waits |= reader.pending(id, name)?.is_some();
        }
        let hits = match (context.auto_recall, payload.prompt.as_deref()) {
            (AutoRecall::On, Some(prompt)) => {
                let delivered = self.delivered(id)?;
                let hits = rank::relevant(reader, prompt, &context.scope)?;
                let new = hits.into_iter().filter(|it| !delivered.contains(&it.id));
                new.take(rank::FEW).map(|hit| hit.id).collect()
            }
            _ => Vec::new(),
        };
        drop(reads);
        if !waits && hits.is_empty() {
            return show(None);
        }
        self.change("prompt", context.now, |change| {
            let block = prompt_block(change, id, &context.scope, &hits)?;
            change.clear_pending(id, &[key::STATUS, key::RECALL, key::EXPAND])?;
            if let Some(block) = &block {
                change.deliver(id, &block.delivered)?;
            }
            show(block.as_ref().map(|block| block.text.as_str()))
        })
    }
}

/// Returns the ids of the nodes that a session asked to expand.
fn expanded(change: &Change<'_>, session: &str) -> Result<Vec<String>> {
    let text = change.pending(session, key::EXPAND)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

fn prompt_block(
    change: &Change<'_>,
    id: &str,
    scope: &Scope,
    hits: &[String],
) -> Result<Option<Block>> {
    let reader = change.reader();
    let mut body = Body::new(LONGEST);
    if let Some(status) = change.pending(id, key::STATUS)? {
        body.add_lines(&format!("## Memory Status\n\n{status}"));
    }
    let recalls: Vec<Recall> = change
        .pending(id, key::RECALL)?
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    for recall in &recalls {
        let nodes = reader.nodes(&recall.nodes)?;
        body.add_recall(&reader.recall_parts(&recall.query, &nodes, recall.found)?, &nodes);
    }
    reader.add_expanded(&mut body, scope, &expanded(change, id)?)?;
    let mut nodes = reader.nodes(hits)?;
    nodes.retain(|node| !body.shows(&node.id));
    let short = reader.short_ids(nodes.iter().map(|node| &node.id))?;
    let own = body.nested(RECALLED_BYTES);
    let mut recalled = Body::new(own);
    for node in &nodes {
        let heading = if recalled.is_empty() { "## Related Notes\n" } else { "" };
        recalled.add_node(node, &short[&node.id], heading);
    }
    body.append(recalled);
    Ok((!body.is_empty()).then(|| body.close(0)))
}
