//! What is run: the kinds of jobs, and the context in which each does its work.
//!
//! A job is a plain function from its specification and a [`Context`] to a [`Finished`] or a
//! [`JobError`]. It must never write but through the context's scope, never spend but through
//! [`Context::ask`], and never read a clock, the environment or the network.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what they made themselves"
    )
)]

pub mod act;
pub mod ask;
pub mod charge;
pub mod command;
pub mod context;
pub mod curator;
pub mod dream;
pub mod evidence;
pub mod failmark;
pub mod lifecycle;
pub mod meter;
pub mod output;
pub mod overnight;
pub mod perform;
pub mod prices;
pub mod prompt;
pub mod recording;
pub mod rehearse;
pub mod replay;
pub mod report;
pub mod sessions;
pub mod spec;
pub mod steps;
pub mod telemetry;

pub use ask::AskError;
pub use ask::voices::{Voice, Voices};
pub use context::{Context, Progress, Silent, Spending};
pub use perform::{PerformError, Settled, perform};
pub use rehearse::{Plan, rehearse};
pub use spec::{Finished, JobError, JobSpec, KindSpec};
