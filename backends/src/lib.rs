//! Model backends, which answer requests through a single trait.
//!
//! ```text
//! Request ──preflight──> run ──> Reply                a complete answer
//!                         │ └──> BackendError         a reason, which determines the next step
//!                         └──Event──> Sink            progress, for people and meters only
//! ```
//!
//! This crate has no access to jobs, budgets or the database. It must never read the environment:
//! the caller passes in a child's environment. It must never apply or repair an answer, and never
//! retry on its own.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read only files that they wrote")
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
#[cfg(feature = "fault-injection")]
pub mod scripted;
pub mod sink;
pub mod spec;

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
use runner_engine::sandbox::SandboxLevel;
use serde::{Deserialize, Serialize};

pub use api::ollama_health::{OllamaHealth, ollama_health};
pub use builtin::Builtin;
pub use chain::Chain;
pub use command::Command;
pub use error::{BackendError, Phase};
pub use registry::{Surroundings, build};
pub use replay::Replay;
pub use request::{AnswerForm, Reply, Request, RequestLimits, Source, Stop, Temperature, Usage};
#[cfg(feature = "fault-injection")]
pub use scripted::{Scripted, Step};
pub use sink::{
    Event, Limit, NullSink, OwnedEvent, OwnedTarget, Sink, Target, ToolResult, VecSink,
};
pub use spec::{BackendKind, BackendSpec};

/// The default context window in tokens, which is that of the smallest hosted models.
pub const WINDOW: u64 = 128_000;

/// The description of a backend, for reports and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The kind, as written in the configuration: `builtin`, `command`, …
    pub kind: String,
    /// The model, if the configuration specifies one.
    pub model: Option<String>,
    /// The current restrictions on the backend, as text.
    pub containment: String,
    /// The sandbox level of the last program that the backend started through a launcher, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
}

/// A backend that answers one request with one model.
///
/// **Callers.** Only the spender in `jobs` calls `run`, once for each request whose budget is
/// reserved, on a runtime with time enabled.
///
/// **Contract.** `run` returns exactly one complete answer or one [`BackendError`]:
/// - It makes one attempt. The caller's budget decides whether a retry is affordable.
/// - It finishes within the request's four deadlines: *connect* until an API is reached, *first
///   byte* until an API's response body or a program's output begins, *idle* between two signs of
///   activity, and *total* for the whole run. If a deadline passes, the result is
///   [`BackendError::Silent`] with that phase. A child that ignores TERM is killed after a grace
///   period, which may end after the deadline.
/// - When `cancel` is triggered, it stops everything that it started and returns
///   [`BackendError::Cancelled`]. The caller must poll the future to completion, because the child
///   of a dropped future keeps running until its deadlines.
/// - The request is not changed, and no data from another request reaches this answer.
/// - If the request has a schema, `Reply::value` is the model's complete answer, parsed as JSON. An
///   answer that is not JSON yields [`BackendError::Malformed`], unless the request's form is
///   [`AnswerForm::Elements`].
/// - Usage that the provider does not report is `None`, never zero.
/// - No error message contains a secret from the backend's environment.
/// - `preflight` makes no model call. Its success does not guarantee that `run` succeeds.
///
/// **Rejected designs.**
/// - *A stream of tokens as the result*: each caller would have to detect whether the answer is
///   complete. A [`Sink`] receives the stream instead.
/// - *Tools in the request*: evidence is gathered before the model is called, and an injected
///   instruction cannot call tools that do not exist.
/// - *Retries inside a backend*: they spend budget that was not reserved, and they hide failures.
/// - *Partial text on error*: some caller would use it.
/// - *A synchronous trait*: cancellation and four deadlines over HTTP would each need a thread.
/// - *A request type for each provider*: jobs would then depend on providers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Returns the backend's name in the configuration.
    fn name(&self) -> &str;

    /// Describes the backend and the restrictions on it.
    fn describe(&self) -> Description;

    /// Checks that the backend has everything it needs, such as a program or a key, without calling
    /// a model.
    ///
    /// # Errors
    /// Returns an error that describes the first problem.
    fn preflight(&self) -> Result<(), BackendError>;

    /// Returns the maximum combined number of tokens in a request and its answer, or `None` if
    /// there is no limit. A job with more to ask sends several requests.
    fn window(&self) -> Option<u64> {
        Some(WINDOW)
    }

    /// Sends the request to the model and returns its answer.
    ///
    /// # Errors
    /// Returns a [`BackendError`], whose variant determines the next step.
    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError>;
}
