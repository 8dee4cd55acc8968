//! The state of a night in progress, shared by its steps.

use std::time::Duration;

use jiff::civil::Date;
use runner_engine::digest::Digest;
use runner_engine::outcome::Class;

use super::OvernightSpec;
use super::commit::CommitError;
use super::corpus::fitness::Fitness;
use super::corpus::index::Index;
use super::facts::Facts;
use super::output::{Output, RunState};
use super::summary::Summary;
use crate::{Context, JobError};

pub(super) struct Night<'n, 'c> {
    pub(super) ctx: &'n mut Context<'c>,
    pub(super) spec: &'n OvernightSpec,
    pub(super) out: Output,
    pub(super) summary: Summary,
    pub(super) state: RunState,
    pub(super) facts: Facts,
    pub(super) date: Date,
    /// The most recent fitness, with a digest of the nodes, the work items and the number of merged
    /// nodes that were measured.
    pub(super) known: Option<(Digest, Fitness)>,
    /// The index of the most recently read corpus, for the next read of the same contents.
    pub(super) index: Option<Index>,
    /// Number of open proposals to retire nodes.
    pub(super) proposed: u64,
    pub(super) began: Duration,
    /// The boot time at which the loop runs out of time.
    pub(super) until: Duration,
}

pub(super) fn failed(error: CommitError) -> JobError {
    JobError::failed(Class::Environment, error.to_string())
}

pub(super) fn disk(error: impl std::error::Error) -> JobError {
    JobError::failed(Class::Environment, runner_engine::error_chain::whole(&error))
}
