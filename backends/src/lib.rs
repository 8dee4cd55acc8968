//! Model backends that answer requests, behind one trait.
//!
//! ```text
//! Request ──preflight──> run ──> Reply                a whole answer
//!                         │ └──> BackendError         a reason, and what to do next; no answer
//!                         └──Event──> Sink            progress, for people and meters only
//! ```
//!
//! This crate gets one answer from one model, and knows nothing of jobs, budgets or the database.
//! It must never read the environment (the caller passes in a child's environment), never apply
//! anything from a model's answer, never repair an answer and never make a second attempt by
//! itself.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read what they made themselves")
)]

pub mod builtin;
pub mod chain;
pub mod check;
pub mod command;
pub mod credentials;
pub mod error;
pub mod registry;
pub mod replay;
pub mod request;
pub mod scripted;
pub mod sink;

mod agent;
mod answer;
mod api;
mod artifact;
mod child;
mod claude;
mod codex;
mod redact;
mod slots;

use async_trait::async_trait;
use runner_engine::process::Cancel;
use serde::{Deserialize, Serialize};

pub use builtin::Builtin;
pub use chain::Chain;
pub use child::Patience;
pub use command::Command;
pub use error::{BackendError, Phase};
pub use registry::{BackendSpec, Surroundings, build};
pub use replay::Replay;
pub use request::{Reply, Request, RequestLimits, Source, Stop, Temperature, Usage};
pub use scripted::{Scripted, Step};
pub use sink::{
    Event, Limit, NullSink, OwnedEvent, OwnedTarget, Sink, Target, ToolResult, VecSink,
};

/// The description of a backend, for reports and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The kind, as the configuration writes it: `builtin`, `command`, …
    pub kind: String,
    /// The model, if one is named.
    pub model: Option<String>,
    /// The current restrictions on the backend, as text.
    pub containment: String,
}

/// A backend that answers one request with one model.
///
/// **Callers.** Only `Context::ask` in `jobs` calls `run`, once for each request whose budget is
/// reserved, on a runtime with time enabled. Admission and `doctor` call `preflight`.
///
/// **The contract.** `run` ends with exactly one whole answer or one [`BackendError`]:
/// - It makes one attempt. The caller's budget decides whether a retry may be paid for.
/// - It ends within the request's four deadlines, on the boot-time clock: *connect* until the other
///   side is there (for a program: until it has started), *first byte* until it sends anything,
///   *idle* between two signs of life, *total* over all. Each ends as [`BackendError::Silent`] with
///   its phase. Ending a child takes at most its grace from TERM to KILL longer.
/// - When `cancel` is triggered, it stops what it began and returns [`BackendError::Cancelled`].
///   The caller polls the future to its end: dropping it midway leaves a child running until its
///   deadlines.
/// - The request is data: it is not changed, and no other request's data reaches this answer.
/// - If the request has a schema, `Reply::value` is the parsed form of the model's whole text. Text
///   that does not parse is [`BackendError::Malformed`]; nothing is cut out of it or repaired.
/// - Usage that the other side did not state is `None`, never zero: it is charged in full.
/// - No error's text holds a secret of the child's environment.
/// - `preflight` makes no model call and costs nothing; its success only guarantees that everything
///   that must be installed is there.
///
/// **Rejected designs.**
/// - *A stream of tokens as the result*: half an answer would be a value, and each caller would
///   have to know when it is whole. A [`Sink`] sees the stream; the result is one piece.
/// - *Tools in the request*: a model without tools is enough, because evidence is gathered before
///   it is asked; an injected instruction cannot call what the model cannot call.
/// - *Retries inside a backend*: they spend budget that was not reserved, and they hide failures.
/// - *Partial text on error*: some caller would use it.
/// - *A synchronous trait*: cancellation and four deadlines over HTTP would need a thread each.
/// - *A request type for each provider*: jobs would then know providers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Returns the name from the configuration, which stays the same for the backend's whole life.
    fn name(&self) -> &str;

    /// Describes the backend and the restrictions on it.
    fn describe(&self) -> Description;

    /// Checks that the backend has what it needs, such as a program or a key's name, without
    /// calling a model.
    ///
    /// # Errors
    /// Returns an error that names the missing item and the places that were searched.
    fn preflight(&self) -> Result<(), BackendError>;

    /// Gets one answer.
    ///
    /// # Errors
    /// Returns a [`BackendError`]; each variant describes the next step.
    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError>;
}
