//! The state of an incoming reply, in the same form for every dialect.
//!
//! ```text
//! events ──dialect──> Gathered ──whole──> verdict ──> Reply
//!                         │                  └──> cut off, refused, tool, empty, no JSON: an error
//!                         └──new text, usage──> Sink
//! ```
//!
//! This module must never turn an incomplete reply into an answer, and never repair text that is
//! not JSON.

use std::collections::BTreeSet;

use serde_json::Value;

use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::answer;
use crate::error::BackendError;
use crate::redact::Secrets;
use crate::request::{AnswerForm, Reply, Request, Stop, Usage};

/// The reason a model stopped, in terms common to all dialects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer is finished.
    Done,
    /// The model reached its output limit.
    Length,
    /// The question and the answer did not fit into the model's context.
    Context,
    /// The model or a content filter refused to answer.
    Refusal,
    /// The model wants to use a tool.
    Tool,
    /// A reason that runner does not recognize.
    Other(String),
}

/// A failure in the middle of a reply that started successfully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An error that the provider reported.
    Said {
        /// The HTTP status given in the error, if any.
        status: Option<u16>,
        /// The error's code.
        code: String,
        /// The error message.
        text: String,
    },
    /// The reply does not follow the expected dialect.
    Broken(String),
    /// An event is not JSON.
    NoJson(String),
    /// The text is longer than the limit in bytes.
    TooLong,
}

/// The parts of a reply that have arrived.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub text: String,
    /// The JSON input that the model passed to the answer tool, if it called the tool.
    pub given: Option<String>,
    /// The reason the model stopped, once reported.
    pub end: Option<End>,
    /// Whether the dialect's final message has arrived.
    pub over: bool,
    /// The model's refusal, which replaces an answer.
    pub refusal: String,
    /// The usage reported so far.
    pub spent: ReplyUsage,
    /// Maximum length of the text in bytes.
    most: usize,
    /// Text that the sink has not received yet.
    unheard: String,
    /// Whether the provider reported an impossible count. In that case, no count is used.
    doubted: bool,
    notes: BTreeSet<&'static str>,
}

/// A reply's usage counts, each of which may arrive separately. A later value replaces an earlier
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyUsage {
    /// Input tokens, including cached tokens.
    pub input: Option<u64>,
    pub output: Option<u64>,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Cost in millionths of a dollar.
    pub micros: Option<u64>,
}

impl ReplyUsage {
    fn whole(self) -> Option<Usage> {
        Some(Usage {
            input_tokens: self.input?,
            output_tokens: self.output?,
            cached_input_tokens: self.cached.min(self.input?),
            cost_micros: self.micros,
        })
    }
}

impl Gathered {
    /// Creates an empty state that accepts at most `most` bytes of text.
    pub fn new(most: usize) -> Self {
        Self {
            text: String::new(),
            given: None,
            end: None,
            over: false,
            refusal: String::new(),
            spent: ReplyUsage::default(),
            most,
            unheard: String::new(),
            doubted: false,
            notes: BTreeSet::new(),
        }
    }

    /// Returns the complete usage, or `None` if a count is missing or impossible, or if both counts
    /// are 0.
    pub fn usage(&self) -> Option<Usage> {
        let whole = self.spent.whole().filter(|_| !self.doubted);
        // Every answer uses tokens, but servers that do not count tokens may report 0.
        whole.filter(|it| it.input_tokens > 0 || it.output_tokens > 0)
    }

    /// Returns the usage reported so far, with 0 for a missing output count. Returns `None` if the
    /// input count is missing or any count is impossible.
    pub fn so_far(&self) -> Option<Usage> {
        let output = self.spent.output.or(Some(0));
        ReplyUsage { output, ..self.spent }.whole().filter(|_| !self.doubted)
    }

    pub fn push_text(&mut self, piece: &str) -> Result<(), Fault> {
        self.check_length(piece)?;
        self.text.push_str(piece);
        self.unheard.push_str(piece);
        Ok(())
    }

    /// Appends a piece of the tool's input.
    pub fn give(&mut self, piece: &str) -> Result<(), Fault> {
        self.check_length(piece)?;
        self.given.get_or_insert_default().push_str(piece);
        self.unheard.push_str(piece);
        Ok(())
    }

    fn check_length(&self, piece: &str) -> Result<(), Fault> {
        let given = self.given.as_ref().map_or(0, String::len);
        match self.text.len() + given + piece.len() <= self.most {
            true => Ok(()),
            false => Err(Fault::TooLong),
        }
    }

    /// Takes the text that the sink has not received yet.
    pub fn news(&mut self) -> String {
        std::mem::take(&mut self.unheard)
    }

    /// Adds a remark for the report. A repeated remark is kept only once.
    pub fn note(&mut self, note: &'static str) {
        self.notes.insert(note);
    }

    /// Returns a count reported by the provider, or `None` if it is missing or impossible. A count
    /// is impossible if it is negative, not an integer or above `most`. The reply's usage is then
    /// unknown.
    pub fn figure(&mut self, value: &Value, most: u64) -> Option<u64> {
        match value {
            Value::Null => None,
            value => match value.as_u64().filter(|figure| *figure <= most) {
                Some(figure) => Some(figure),
                None => {
                    self.note(
                        "the reported usage is impossible, so the reserved amount is charged",
                    );
                    self.doubted = true;
                    None
                }
            },
        }
    }

    /// Returns the answer, or an error if the reply is incomplete or unusable.
    pub fn reply(
        mut self,
        plan: &EndpointPlan,
        request: &Request,
        secrets: &Secrets,
    ) -> Result<Reply, BackendError> {
        let name = &plan.name;
        let most = plan.most_tokens(request);
        let malformed = |why: String, text: &str| BackendError::Malformed {
            why,
            excerpt: secrets.head(text, 200),
        };
        let mut stop = Stop::End;
        match self.end.take() {
            Some(End::Done) => {}
            Some(End::Length) if request.form == AnswerForm::Elements => {
                stop = Stop::Length;
                self.note("the answer reached its length limit and was truncated");
            }
            Some(End::Tool) if self.given.is_some() => {}
            Some(End::Length) => return Err(BackendError::Truncated { most }),
            Some(End::Context) => {
                let why = format!(
                    "the request and its answer do not fit into the context window of {name}'s model"
                );
                return Err(BackendError::Rejected { why });
            }
            Some(End::Refusal) => {
                let said = secrets.head(self.refusal.trim(), 400);
                let why = format!("the model refused to answer{}", after_colon(&said));
                return Err(BackendError::Rejected { why });
            }
            Some(End::Tool) => {
                return Err(malformed(
                    "the model requested a tool, but none was offered".to_owned(),
                    &self.text,
                ));
            }
            Some(End::Other(word)) => {
                let why = format!("the answer ended for an unknown reason: {word:?}");
                return Err(malformed(secrets.head(&why, 200), &self.text));
            }
            None => {
                let why = format!("{name}: the answer ended without a stop reason");
                return Err(malformed(why, &self.text));
            }
        }
        if !self.refusal.trim().is_empty() {
            let said = secrets.head(self.refusal.trim(), 400);
            let why = format!("the model refused to answer: {said}");
            return Err(BackendError::Rejected { why });
        }
        let given = self.given.take();
        let text = match given {
            Some(given) => {
                if !self.text.trim().is_empty() {
                    self.note("text around the answer was ignored");
                }
                given
            }
            None => std::mem::take(&mut self.text),
        };
        if text.trim().is_empty() {
            return Err(malformed("an empty answer".to_owned(), ""));
        }
        let (text, value) = answer::read(request, text.into_bytes(), "the answer", false, secrets)?;
        let (text, value) = match (&request.schema, value) {
            (Some(schema), Some(value)) => {
                let bare = prompt::unrooted(schema, value.clone());
                let text = if bare == value { text } else { bare.to_string() };
                (text, Some(bare))
            }
            (_, value) => (text, value),
        };
        let usage = self.usage();
        if usage.is_none() && !self.doubted {
            self.note("the provider did not report the usage");
        }
        Ok(Reply {
            text,
            value,
            usage,
            stop,
            notes: self.notes.into_iter().map(str::to_owned).collect(),
        })
    }
}

fn after_colon(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}
