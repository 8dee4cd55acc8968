//! The analysis tasks: pure functions from the events of a session to findings.
//!
//! ```text
//! events ──signals──> trust, focus, debt and phase at each call ──> phase arc, trust trajectory
//!    ├──> errors, repairs, loops, conventions, co-change, commands, injections
//!    └──> resume packet (../resume.rs)
//! ```
//!
//! Most findings cite the lines on which they are based. A task must never read a file, a clock or
//! the result of another session.

pub mod commands;
pub mod conventions;
pub mod errors;
pub mod failed_calls;
pub mod graph;
pub mod injection;
pub mod loops;
pub mod phases;
pub mod repairs;
pub mod signals;
pub mod workflow;

#[cfg(test)]
mod labelled_tests;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::Session;
pub use commands::CommandUse;
pub use conventions::Observed;
pub use errors::ErrorGroup;
pub use failed_calls::FailedCall;
pub use graph::FilePair;
pub use injection::InjectionEffect;
pub use loops::LoopFinding;
pub use phases::PhaseSpan;
pub use repairs::Repair;
pub use signals::TrustPoint;
pub use workflow::Workflow;

/// Maximum number of lines that a finding cites.
pub const EVIDENCE: usize = 5;

/// The tasks in the order in which they run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// The phases that the session went through.
    PhaseArc,
    /// Errors, grouped by signature.
    ErrorClusters,
    /// Steps that resolved an error.
    RepairSequences,
    /// File names, test locations, import order and commit message forms.
    Conventions,
    /// Repeated calls, and whether the session escaped them.
    Loops,
    /// The trust at each phase change.
    TrustTrajectory,
    /// Files that are changed together.
    CoChangeGraph,
    /// The most frequent calls, and those that were always denied.
    CommandFrequency,
    /// The events after a hook added context.
    InjectionEffectiveness,
    /// The summary for the next session.
    ResumePacket,
}

/// The findings of tasks 1 to 9 for one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    pub phase_arc: Vec<PhaseSpan>,
    pub errors: Vec<ErrorGroup>,
    pub repairs: Vec<Repair>,
    pub conventions: Vec<Observed>,
    pub loops: Vec<LoopFinding>,
    pub trust: Vec<TrustPoint>,
    pub co_change: Vec<FilePair>,
    pub commands: Vec<CommandUse>,
    pub injections: Vec<InjectionEffect>,
    /// Successful workflows, for the artifacts.
    pub workflows: Vec<Workflow>,
    /// Commands whose last outcome was a failure, for the hints.
    pub failed_calls: Vec<FailedCall>,
    /// Short digests of commands that passed.
    pub passed_calls: BTreeSet<u32>,
}

impl Findings {
    /// Runs the tasks on a session, except for those in `skip`.
    pub fn of(session: &Session, skip: &[Task]) -> Self {
        let events = session.events.as_slice();
        let runs = |task: Task| !skip.contains(&task);
        let signals = signals::signals(events);
        // Findings that are added up over several sessions use only the session's own events.
        let own = session.own();
        let first = events.len() - own.len();
        let mut found = Self::default();
        if runs(Task::PhaseArc) {
            found.phase_arc = phases::arc(events, signals.iter().map(|signal| signal.phase));
        }
        if runs(Task::ErrorClusters) {
            found.errors = errors::groups(events);
        }
        if runs(Task::RepairSequences) {
            found.repairs = repairs::repairs(events);
            let is_own = |line: &u64| *line > session.shared_until;
            found.repairs.retain(|repair| repair.evidence.last().is_some_and(is_own));
            found.failed_calls = failed_calls::failed_calls(own);
            found.passed_calls = failed_calls::passed_calls(own);
            found.workflows = workflow::workflows(events, &signals, first);
        }
        if runs(Task::Conventions) {
            found.conventions = conventions::observe(own);
        }
        if runs(Task::Loops) {
            found.loops = loops::loops(events);
        }
        if runs(Task::TrustTrajectory) {
            found.trust = signals::trajectory(events, &signals);
        }
        if runs(Task::CoChangeGraph) {
            found.co_change = graph::pairs(events);
        }
        if runs(Task::CommandFrequency) {
            found.commands = commands::frequency(events);
        }
        if runs(Task::InjectionEffectiveness) {
            found.injections = injection::effects(own, &signals[first..]);
        }
        found
    }
}

/// Adds a line to the evidence of a finding, unless the line was just added or the evidence is
/// full.
pub(super) fn cite(evidence: &mut Vec<u64>, line: u64) {
    if evidence.len() < EVIDENCE && evidence.last() != Some(&line) {
        evidence.push(line);
    }
}
