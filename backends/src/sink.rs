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
    /// A remark of the backend's own.
    Note(&'a str),
    /// The model uses a tool of its program's. Its name is untrusted text.
    ToolUse(&'a str),
    /// A tool came back.
    ToolResult {
        /// It failed, or was not permitted.
        failed: bool,
    },
    /// What the provider says of the account's limits.
    Limit(Limit),
    /// The request was turned away, or never got there: nobody is paid for it.
    NotBilled,
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
    /// See [`Event::Note`].
    Note(String),
    /// See [`Event::ToolUse`].
    ToolUse(String),
    /// See [`Event::ToolResult`].
    ToolResult {
        /// It failed, or was not permitted.
        failed: bool,
    },
    /// See [`Event::Limit`].
    Limit(Limit),
    /// See [`Event::NotBilled`].
    NotBilled,
}

impl OwnedEvent {
    /// The event itself.
    pub fn as_event(&self) -> Event<'_> {
        match self {
            Self::Text(text) => Event::Text(text),
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Note(note) => Event::Note(note),
            Self::ToolUse(name) => Event::ToolUse(name),
            Self::ToolResult { failed } => Event::ToolResult { failed: *failed },
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
            Event::Note(note) => OwnedEvent::Note(note.to_owned()),
            Event::ToolUse(name) => OwnedEvent::ToolUse(name.to_owned()),
            Event::ToolResult { failed } => OwnedEvent::ToolResult { failed },
            Event::Limit(limit) => OwnedEvent::Limit(limit),
            Event::NotBilled => OwnedEvent::NotBilled,
        });
    }
}
