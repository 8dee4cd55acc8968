//! A backend that answers each request with the recorded answer to the same question, without
//! calling a model.
//!
//! ```text
//! Request ──> Question ──digest──> recorded? ──yes──> the recorded reply or error
//!                                            └─no──> rejected, with the first difference
//! ```
//!
//! This backend is used to replay runs and to test a user's own jobs. It must never answer a
//! question that was not recorded, except after [`Replay::standing_in`].

pub mod file;
pub mod question;

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use async_trait::async_trait;
use runner_engine::process::Cancel;
use runner_text::counted;
use runner_text::redact::Redactor;

use crate::redact::Secrets;
use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink, answer};
pub use file::{Exchange, FileError, RecordingLine};
pub use question::ReplayQuestion;

/// A question that the recorded run did not ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The number of the request in this run, starting at 1.
    pub request: usize,
    /// The difference from the recorded request with the same number.
    pub difference: Difference,
}

/// The difference between a request and the recorded request with the same number.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// The first part that differs.
    Part(String),
    /// Only the digests differ.
    Digest,
    /// The recording contains only this many requests.
    Absent(usize),
}

impl Difference {
    /// Describes the difference, with `subject` as the request that differs.
    fn sentence(&self, subject: &str) -> String {
        match self {
            Self::Part(part) => format!("{subject} differs at {part}"),
            Self::Digest => format!("{subject} differs only in its digest"),
            Self::Absent(0) => "the recording contains no requests".to_owned(),
            Self::Absent(recorded) => {
                format!("the recording contains only {}", counted(*recorded, "request"))
            }
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = format!("request {}", self.request);
        let sentence = self.difference.sentence(&request);
        match self.difference {
            Difference::Absent(_) => write!(f, "{request} was not recorded: {sentence}"),
            _ => f.write_str(&sentence),
        }
    }
}

/// A backend that answers from a recording.
pub struct Replay {
    name: String,
    description: Description,
    exchanges: Vec<Exchange>,
    by_order: bool,
    redactor: Redactor,
    state: Mutex<ReplayState>,
}

#[derive(Default)]
struct ReplayState {
    given: Vec<usize>,
    asked: usize,
    drift: Vec<Drift>,
}

impl Replay {
    /// Creates a replay with this name from recorded exchanges.
    pub fn new(name: &str, exchanges: Vec<Exchange>) -> Self {
        Self {
            name: name.to_owned(),
            description: Description {
                kind: "replay".to_owned(),
                model: None,
                containment: "in-process, sends no requests".to_owned(),
                sandbox: None,
            },
            exchanges,
            by_order: false,
            redactor: Redactor::new(Vec::new()),
            state: Mutex::default(),
        }
    }

    /// Creates a replay from the exchanges in a recording file.
    ///
    /// # Errors
    /// Returns [`BackendError::Rejected`] if the file is missing or is not a complete recording.
    pub fn open(name: &str, path: PathBuf) -> Result<Self, BackendError> {
        let lines = file::read(&path).map_err(|error| BackendError::Rejected {
            why: format!("backend {name:?}: {}", runner_engine::error_chain::whole(&error)),
        })?;
        let exchanges = lines.into_iter().filter_map(|line| match line {
            RecordingLine::Asked(exchange) => Some(*exchange),
            _ => None,
        });
        Ok(Self::new(name, exchanges.collect()))
    }

    /// Makes the replay stand in for the backend that answered originally. From then on, an
    /// unrecorded question gets the answer to the recorded request with the same number, if there
    /// is one.
    #[must_use]
    pub fn standing_in(mut self, description: Description) -> Self {
        self.description = description;
        self.by_order = true;
        self
    }

    /// Returns the questions that were not recorded.
    pub fn drift(&self) -> Vec<Drift> {
        self.lock().drift.clone()
    }

    /// Returns the number of requests so far.
    pub fn asked(&self) -> usize {
        self.lock().asked
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ReplayState> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Finds the exchange for a question: the first one with the question's digest that has not
    /// been used yet, or else the last one with this digest.
    fn find(&self, question: &ReplayQuestion) -> Result<&Exchange, Difference> {
        let mut state = self.lock();
        state.asked += 1;
        let at = state.asked;
        let digest = question.digest();
        let same = |index: &usize| self.exchanges[*index].digest == digest;
        let mut all = (0..self.exchanges.len()).filter(same);
        let fresh = all.clone().find(|index| !state.given.contains(index));
        if let Some(index) = fresh.or_else(|| all.next_back()) {
            state.given.push(index);
            return Ok(&self.exchanges[index]);
        }
        let then = self.exchanges.get(at - 1);
        let difference = match then {
            Some(then) => {
                then.question.differs(question).map_or(Difference::Digest, Difference::Part)
            }
            None => Difference::Absent(self.exchanges.len()),
        };
        state.drift.push(Drift { request: at, difference: difference.clone() });
        match then.filter(|_| self.by_order) {
            Some(then) => Ok(then),
            None => Err(difference),
        }
    }
}

#[async_trait]
impl Backend for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn preflight(&self) -> Result<(), BackendError> {
        Ok(())
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
        let question = ReplayQuestion::of(request, &self.redactor);
        let exchange = self.find(&question).map_err(|difference| BackendError::Rejected {
            why: format!(
                "the recording has no reply to this request (digest {}); {}",
                question.digest().short(),
                difference.sentence("the recorded request with the same number")
            ),
        })?;
        if let Some(error) = &exchange.error {
            return Err(error.clone());
        }
        let Some(reply) = &exchange.reply else {
            let why = "the recording has neither a reply nor an error for this request".to_owned();
            return Err(BackendError::Rejected { why });
        };
        let origin = "the recorded reply";
        let bytes = reply.text.clone().into_bytes();
        let (text, value) = answer::read(request, bytes, origin, false, &Secrets::default())?;
        sink.event(Event::Text(&text));
        if let Some(usage) = reply.usage {
            sink.event(Event::Usage(usage));
        }
        Ok(Reply { text, value, ..reply.clone() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{NullSink, Stop};

    fn exchange(request: &Request, text: &str) -> Exchange {
        let redactor = Redactor::new(Vec::new());
        let reply = Reply {
            text: text.to_owned(),
            value: None,
            usage: None,
            stop: Stop::End,
            notes: Vec::new(),
        };
        let question = ReplayQuestion::of(request, &redactor);
        Exchange::of(question, "claude", Ok(&reply), &redactor)
    }

    fn ask(backend: &Replay, request: &Request) -> Result<Reply, BackendError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let cancel = Cancel::new().unwrap();
        runtime.block_on(backend.run(request, &mut NullSink, &cancel))
    }

    #[test]
    fn requests_get_their_recorded_answers() {
        let (one, mut two) = (question::tests::request(1), question::tests::request(1));
        two.offer = json!({ "ids": ["y"] });
        let exchanges = vec![exchange(&two, "[2]"), exchange(&one, "[1]"), exchange(&one, "[3]")];
        let backend = Replay::new("again", exchanges.clone());
        assert_eq!(ask(&backend, &one).unwrap().value, Some(json!([1])));
        assert_eq!(ask(&backend, &two).unwrap().value, Some(json!([2])));
        for _ in 0..2 {
            assert_eq!(ask(&backend, &one).unwrap().text, "[3]");
        }
        let mut other = one.clone();
        other.rule_answer = json!([]);
        let error = ask(&backend, &other).unwrap_err().to_string();
        assert!(error.contains("no reply to this request"), "{error}");
        assert!(error.ends_with("; the recording contains only 3 requests"), "{error}");
        assert_eq!(
            backend.drift()[0].to_string(),
            "request 5 was not recorded: the recording contains only 3 requests"
        );
        let by_order = Replay::new("x", exchanges).standing_in(backend.describe());
        assert_eq!(ask(&by_order, &other).unwrap().text, "[2]");
        assert_eq!(
            by_order.drift()[0].to_string(),
            "request 1 differs at rule_answer: 1 element in the recording, 0 now"
        );
    }

    #[test]
    fn errors_are_replayed_as_errors() {
        let request = question::tests::request(1);
        let redactor = Redactor::new(Vec::new());
        let auth = BackendError::Auth { why: "no".into() };
        let question = ReplayQuestion::of(&request, &redactor);
        let failed = Exchange::of(question, "claude", Err(auth.clone()), &redactor);
        let text = serde_json::to_string(&failed).unwrap();
        let backend = Replay::new("again", vec![serde_json::from_str(&text).unwrap()]);
        assert_eq!(ask(&backend, &request), Err(auth));
        let backend = Replay::new("again", vec![exchange(&request, "no JSON")]);
        let error = ask(&backend, &request).unwrap_err();
        assert!(matches!(error, BackendError::Malformed { .. }), "{error}");
    }
}
