//! Where a backend says how it is getting on.
//!
//! For people and meters only: nothing that a sink saw is an answer, and a run whose sink saw text
//! may still fail. Must never be able to stop a run; that is what `Cancel` is for.

use jiff::Timestamp;

use crate::request::Usage;

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of the model's text. Untrusted and not redacted: a sink that stores must redact.
    Text(&'a str),
    /// What it has cost so far; each replaces the one before.
    Usage(Usage),
    /// What all of it has cost, the last word of whoever bills it: nothing more comes of this request,
    /// whether its answer can be used or not. Never told of a request that was cut off, for what was
    /// under way then may be billed and is in no sum.
    Total(Usage),
    /// A remark of the backend's own.
    Note(&'a str),
    /// The model uses a tool of its program's. All of it is untrusted text.
    ToolUse {
        /// Ties its result to it; empty where the program gives none.
        id: &'a str,
        /// Which.
        name: &'a str,
        /// What it works on, where that is said.
        target: Option<Target<'a>>,
    },
    /// A tool came back.
    ToolResult(ToolResult<'a>),
    /// What the provider says of the account's limits.
    Limit(Limit),
    /// The request was turned away, or never got there: nobody is paid for it.
    NotBilled,
}

/// What a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A file or folder.
    Path(&'a str),
    /// A command line.
    Command(&'a str),
    /// Whatever else it was told: a pattern, a query, a tool of a server.
    Pipeline(&'a str),
}

/// How a tool came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolResult<'a> {
    /// The use that it belongs to; empty where the program does not say.
    pub id: &'a str,
    /// It failed, or was not permitted.
    pub failed: bool,
    /// A command's exit code, where it is said.
    pub exit_code: Option<i64>,
    /// What the tool said of its failure; untrusted text, and long.
    pub error: Option<&'a str>,
}

/// A provider's word on an account's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// When the limit is reset, where it was said.
    pub until: Option<Timestamp>,
    /// Nothing more is answered before that.
    pub reached: bool,
    /// What is answered now is paid for beyond the subscription.
    pub overage: bool,
}

/// Receives signs of life, in order, from the task that awaits the run.
pub trait Sink: Send {
    /// Takes one. Must return soon: the run waits for it.
    fn event(&mut self, event: Event<'_>);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn event(&mut self, _: Event<'_>) {}
}

/// Keeps everything it hears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VecSink {
    /// What was heard, in order.
    pub events: Vec<OwnedEvent>,
}

/// An [`Event`] that outlives the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedEvent {
    /// See [`Event::Text`].
    Text(String),
    /// See [`Event::Usage`].
    Usage(Usage),
    /// See [`Event::Total`].
    Total(Usage),
    /// See [`Event::Note`].
    Note(String),
    /// See [`Event::ToolUse`].
    ToolUse {
        /// Ties its result to it.
        id: String,
        /// Which.
        name: String,
        /// What it works on.
        target: Option<OwnedTarget>,
    },
    /// See [`Event::ToolResult`].
    ToolResult {
        /// The use that it belongs to.
        id: String,
        /// It failed, or was not permitted.
        failed: bool,
        /// A command's exit code.
        exit_code: Option<i64>,
        /// What the tool said of its failure.
        error: Option<String>,
    },
    /// See [`Event::Limit`].
    Limit(Limit),
    /// See [`Event::NotBilled`].
    NotBilled,
}

/// A [`Target`] that outlives the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedTarget {
    /// See [`Target::Path`].
    Path(String),
    /// See [`Target::Command`].
    Command(String),
    /// See [`Target::Pipeline`].
    Pipeline(String),
}

impl From<Target<'_>> for OwnedTarget {
    fn from(target: Target<'_>) -> Self {
        match target {
            Target::Path(text) => Self::Path(text.to_owned()),
            Target::Command(text) => Self::Command(text.to_owned()),
            Target::Pipeline(text) => Self::Pipeline(text.to_owned()),
        }
    }
}

impl OwnedTarget {
    /// The target itself.
    pub fn as_target(&self) -> Target<'_> {
        match self {
            Self::Path(text) => Target::Path(text),
            Self::Command(text) => Target::Command(text),
            Self::Pipeline(text) => Target::Pipeline(text),
        }
    }

    /// What a tool works on, as an agent's program writes its input; also in what its hooks are told.
    pub fn of_input(input: &serde_json::Value) -> Option<Self> {
        let text = |keys: &[&str]| {
            let mut texts = keys.iter().filter_map(|key| input[*key].as_str());
            texts.find(|text| !text.is_empty()).map(str::to_owned)
        };
        text(&["file_path", "notebook_path", "path"])
            .map(Self::Path)
            .or_else(|| text(&["command"]).map(Self::Command))
            .or_else(|| {
                text(&["pattern", "query", "url", "description", "prompt", "skill"])
                    .map(Self::Pipeline)
            })
    }
}

impl OwnedEvent {
    /// The event itself.
    pub fn as_event(&self) -> Event<'_> {
        match self {
            Self::Text(text) => Event::Text(text),
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Total(usage) => Event::Total(*usage),
            Self::Note(note) => Event::Note(note),
            Self::ToolUse { id, name, target } => Event::ToolUse {
                id,
                name,
                target: target.as_ref().map(OwnedTarget::as_target),
            },
            Self::ToolResult {
                id,
                failed,
                exit_code,
                error,
            } => Event::ToolResult(ToolResult {
                id,
                failed: *failed,
                exit_code: *exit_code,
                error: error.as_deref(),
            }),
            Self::Limit(limit) => Event::Limit(*limit),
            Self::NotBilled => Event::NotBilled,
        }
    }
}

impl Sink for VecSink {
    fn event(&mut self, event: Event<'_>) {
        self.events.push(match event {
            Event::Text(text) => OwnedEvent::Text(text.to_owned()),
            Event::Usage(usage) => OwnedEvent::Usage(usage),
            Event::Total(usage) => OwnedEvent::Total(usage),
            Event::Note(note) => OwnedEvent::Note(note.to_owned()),
            Event::ToolUse { id, name, target } => OwnedEvent::ToolUse {
                id: id.to_owned(),
                name: name.to_owned(),
                target: target.map(OwnedTarget::from),
            },
            Event::ToolResult(result) => OwnedEvent::ToolResult {
                id: result.id.to_owned(),
                failed: result.failed,
                exit_code: result.exit_code,
                error: result.error.map(str::to_owned),
            },
            Event::Limit(limit) => OwnedEvent::Limit(limit),
            Event::NotBilled => OwnedEvent::NotBilled,
        });
    }
}
