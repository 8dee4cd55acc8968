//! Where a backend says how it is getting on.
//!
//! For people and meters only: nothing that a sink saw is an answer, and a run whose sink saw text
//! may still fail. Must never be able to stop a run; that is what `Cancel` is for.

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
}

impl Sink for VecSink {
    fn event(&mut self, event: Event<'_>) {
        self.events.push(match event {
            Event::Text(text) => OwnedEvent::Text(text.to_owned()),
            Event::Usage(usage) => OwnedEvent::Usage(usage),
            Event::Note(note) => OwnedEvent::Note(note.to_owned()),
        });
    }
}
