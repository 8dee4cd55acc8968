//! A test double that follows a script, for tests of jobs and for the conformance suite.
//!
//! The double can produce every outcome that a backend can, and must never violate the trait's
//! contract.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use runner_engine::process::Cancel;
use serde_json::Value;

use crate::error::Phase;
use crate::redact::Secrets;
use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink, Stop, answer};

/// The double's behaviour for one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Returns this reply unchanged.
    Reply(Reply),
    /// Returns this value, with its JSON as the text and without usage.
    Answer(Value),
    /// Returns this text, parsed like a model's text: an error if it is blank, or if the request
    /// has a schema and the text is not JSON.
    Text(String),
    /// Returns this error.
    Error(BackendError),
    /// Sends nothing until the request is cancelled, or the first-byte or total deadline passes.
    Hang,
    /// Sends this text to the sink, then nothing until the request is cancelled, or the idle or
    /// total deadline passes.
    Stall(String),
}

/// A backend that answers from a list of steps, one for each request.
#[derive(Debug)]
pub struct Scripted {
    name: String,
    preflight: Option<BackendError>,
    window: u64,
    steps: Mutex<VecDeque<Step>>,
    asked: Mutex<Vec<Request>>,
}

impl Scripted {
    /// Creates a double with this name. After the last step, it returns `Unavailable`.
    pub fn new(name: impl Into<String>, steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            name: name.into(),
            preflight: None,
            window: crate::WINDOW,
            steps: Mutex::new(steps.into_iter().collect()),
            asked: Mutex::default(),
        }
    }

    /// Makes `preflight` fail with this error.
    #[must_use]
    pub fn failing_preflight(mut self, error: BackendError) -> Self {
        self.preflight = Some(error);
        self
    }

    /// Sets the context window in tokens.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.window = tokens;
        self
    }

    /// Returns all requests so far, in order.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("no thread panics while it holds the list").clone()
    }

    fn next(&self, request: &Request) -> Option<Step> {
        let mut asked = self.asked.lock().expect("no thread panics while it holds the list");
        asked.push(request.clone());
        self.steps.lock().expect("no thread panics while it holds the steps").pop_front()
    }
}

#[async_trait]
impl Backend for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Description {
        Description {
            kind: "scripted".to_owned(),
            model: None,
            containment: "in-process, no tools".to_owned(),
            sandbox: None,
        }
    }

    fn preflight(&self) -> Result<(), BackendError> {
        self.preflight.clone().map_or(Ok(()), Err)
    }

    fn window(&self) -> Option<u64> {
        Some(self.window)
    }

    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        if let Some(why) = cancel.why() {
            return Err(BackendError::Cancelled { why });
        }
        let limits = &request.limits;
        let Some(step) = self.next(request) else {
            let why = format!("the script of {} has no step for {}", self.name, request.id);
            return Err(BackendError::Unavailable { why });
        };
        let reply = match step {
            Step::Reply(reply) => reply,
            Step::Answer(value) => plain(value.to_string(), Some(value)),
            Step::Text(text) if answer::is_blank(text.as_bytes()) => {
                let why = "an empty answer".to_owned();
                return Err(BackendError::Malformed { why, excerpt: String::new() });
            }
            Step::Text(text) => {
                let secrets = Secrets::default();
                let read = answer::read(request, text.into_bytes(), "the text", false, &secrets);
                let (text, value) = read?;
                plain(text, value)
            }
            Step::Error(error) => return Err(error),
            Step::Hang => {
                return Err(
                    silence(Phase::FirstByte, limits.first_byte, limits.total, cancel).await
                );
            }
            Step::Stall(text) => {
                sink.event(Event::Text(&text));
                return Err(silence(Phase::Idle, limits.idle, limits.total, cancel).await);
            }
        };
        sink.event(Event::Text(&reply.text));
        if let Some(usage) = reply.usage {
            sink.event(Event::Usage(usage));
        }
        Ok(reply)
    }
}

fn plain(text: String, value: Option<Value>) -> Reply {
    Reply { text, value, usage: None, stop: Stop::End, notes: Vec::new() }
}

/// Waits silently until the earlier of the two deadlines, or until the request is cancelled.
async fn silence(
    phase: Phase,
    deadline: Duration,
    total: Duration,
    cancel: &Cancel,
) -> BackendError {
    let (phase, waited) = if deadline <= total { (phase, deadline) } else { (Phase::Total, total) };
    match tokio::time::timeout(waited, cancel.cancelled()).await {
        Ok(why) => BackendError::Cancelled { why },
        Err(_) => BackendError::Silent { phase, waited },
    }
}
