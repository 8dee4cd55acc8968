//! The kinds of jobs that runner runs, and the context in which each job works.
//!
//! A job is a plain function from its specification and a [`Context`] to a [`Finished`] or a
//! [`JobError`]. A job publishes files only through the context's files, with these exceptions:
//! `overnight` publishes its iterations while it runs, `curator` writes its queue, events and logs
//! directly, and `wake`, `audit` and `plan` edit the board before their main work. A job spends
//! only through its [`Spender`]. It must never read a clock or the environment itself, or access
//! the network.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read only files that they wrote")
)]

pub mod agent_folders;
pub mod backend_test;
pub mod clock;
pub mod command;
pub mod context;
pub mod curator;
mod denied;
pub mod dream;
pub mod dry_run;
pub mod evidence;
pub mod execute;
pub mod failmark;
pub mod frame;
mod json;
pub mod kind;
pub mod kinds;
pub mod lifecycle;
pub mod log_tail;
pub mod manual_edit;
pub mod output;
pub mod overnight;
pub mod prices;
pub mod prompt;
pub mod recording;
pub mod replay;
pub mod report;
pub mod request_usage;
pub mod reserved;
pub mod session_notes;
pub mod sessions;
pub mod spec;
pub mod spender;
pub mod steps;
pub mod telemetry;
pub mod usage_meter;

pub use agent_folders::AgentFolders;
pub use context::{Context, ContextParts, Folders, Progress, RunFiles, RunMode, Silent};
pub use dry_run::DryRunPlan;
pub use execute::{ExecuteError, SettledRun, execute};
pub use kind::Kind;
pub use spec::{Finished, JobError, JobSpec};
pub use spender::{
    AbsentPanelist, AskError, PaidBackend, Panel, Panelist, RunBackends, Spender, Spending,
};
