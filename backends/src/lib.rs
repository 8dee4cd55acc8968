//! Who answers: model backends behind one trait.
//!
//! ```text
//! Request ──preflight──> run ──> Reply                a whole answer
//!                         │ └──> BackendError         a reason, and what to do next; no answer
//!                         └──Event──> Sink            progress, for people and meters only
//! ```
//!
//! This floor knows how to get one answer out of one model, and nothing of jobs, budgets or the
//! database. It must never read the environment (a child's environment is handed in), never apply
//! anything that a model said, never repair an answer and never try a second time by itself.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what they made themselves"
    )
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

/// What a backend is, for reports and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The kind, as the configuration writes it: `builtin`, `command`, …
    pub kind: String,
    /// The model, where one is named.
    pub model: Option<String>,
    /// What confines it, in words that are true today.
    pub containment: String,
}

/// Answers one request of one model.
///
/// **Who calls it, when.** Only `Context::ask` in `jobs`, once for each request whose budget is
/// reserved, on a runtime with time enabled; `preflight` is called at admission and by `doctor`.
///
/// **The contract.** `run` ends with exactly one whole answer or one [`BackendError`]:
/// - It makes one attempt. What a retry would cost is for the caller's budget to say.
/// - It ends within the request's four deadlines, on the boot-time clock: *connect* until the other
///   side is there (a program: it started), *first byte* until it says anything, *idle* between two
///   signs of life, *total* over all. Each ends as [`BackendError::Silent`] with its phase. To end a
///   child takes at most its grace from TERM to KILL more.
/// - When `cancel` is pulled it stops what it began and returns [`BackendError::Cancelled`]. The
///   caller polls the future to its end: dropping it midway leaves a child to its deadlines.
/// - The request is data: it is not changed, and no other request's data reaches this answer.
/// - Where the request has a schema, `Reply::value` is what the model's whole text parses as. Text
///   that does not parse is [`BackendError::Malformed`]; nothing is cut out of it or mended.
/// - Usage that the other side did not state is `None`, never zero: it is charged in full.
/// - No error's text holds a secret of the child's environment.
/// - `preflight` makes no model call and costs nothing; passing it promises nothing but that what
///   must be installed is there.
///
/// **Rejected designs.**
/// - *A stream of tokens as the result*: half an answer would be a value, and each caller would
///   have to know when it is whole. A [`Sink`] sees the stream; the result is one piece.
/// - *Tools in the request*: a model without tools is enough, for evidence is gathered before it is
///   asked; what it cannot call, an injected instruction cannot call either.
/// - *Retries inside a backend*: they spend what nobody reserved, and they hide failures.
/// - *Partial text on error*: someone would use it.
/// - *A synchronous trait*: cancellation and four deadlines over HTTP would need a thread each.
/// - *A request type for each provider*: jobs would then know providers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The name that the configuration gives it; the same for its whole life.
    fn name(&self) -> &str;

    /// What it is and what confines it.
    fn describe(&self) -> Description;

    /// Whether what it needs is there: a program, a key's name, never a call to a model.
    ///
    /// # Errors
    /// What is missing, and where it was looked for.
    fn preflight(&self) -> Result<(), BackendError>;

    /// Gets one answer.
    ///
    /// # Errors
    /// See [`BackendError`]: each variant says what to do next.
    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError>;
}
