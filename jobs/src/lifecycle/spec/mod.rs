//! The declaration of an agent's cycle: its states, the next state of each, and their gates.
//!
//! ```text
//! * rem                          ## rem
//! :PROPERTIES:                   - KIND: rem
//! :KIND: rem                     - NEXT: wake_plan
//! :NEXT: wake_plan               - MIN-INTERVAL: 50m
//! :MIN-INTERVAL: 50m
//! :END:                          Dream: …
//! Dream: …
//! ```
//!
//! A heading with properties is a state, and any other heading is prose. A cycle begins with the
//! first state. This module must never accept states that do not form a cycle. Each mistake is
//! reported with its line.

mod graph;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::store::Budget;
use serde::{Deserialize, Serialize};

pub use parse::{LARGEST, parse};

/// The built-in cycle, for projects that do not declare one.
pub const DEFAULT: &str = include_str!("../../../../config/lifecycle.org");

/// The work done in a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// An agent works on the picked task.
    #[default]
    Wake,
    /// An agent checks the newest entry's claims.
    Audit,
    /// Runner dreams, and no agent runs.
    Rem,
    /// An agent grooms the board.
    Plan,
}

impl StateKind {
    pub const ALL: [Self; 4] = [Self::Wake, Self::Audit, Self::Rem, Self::Plan];

    /// Returns the kind's name in a declaration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Audit => "audit",
            Self::Rem => "rem",
            Self::Plan => "plan",
        }
    }

    /// Returns the agent's default prompt, which is empty for a dream.
    pub fn prompt(self) -> &'static str {
        match self {
            Self::Wake => include_str!("../../../../config/prompts/wake.md"),
            Self::Audit => include_str!("../../../../config/prompts/audit.md"),
            Self::Plan => include_str!("../../../../config/prompts/plan.md"),
            Self::Rem => "",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleState {
    /// The state's heading.
    pub name: String,
    /// The work done in the state.
    pub kind: StateKind,
    /// The name of the next state.
    pub next: String,
    /// The number of successful runs before the next state is entered, at least 1.
    pub repeat: u32,
    /// Minimum time between a successful run and the next run of the state, or `None` for no
    /// minimum.
    pub min_interval: Option<SignedDuration>,
    /// The path of a project file that contains the prompt, or the prompt itself.
    pub prompt: Option<String>,
    /// The backend that answers in place of the job's backend.
    pub backend: Option<String>,
    /// The limits that replace those of the job's budget.
    pub budget: Budget,
    /// The time limit of one run, which replaces the job's time limit.
    pub timeout: Option<Duration>,
    /// The text below the properties.
    pub about: String,
    /// The 1-based line number of the state's heading.
    pub line: usize,
}

/// A declared cycle without mistakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// All states, at least one. The cycle begins with the first state.
    pub states: Vec<CycleState>,
}

impl Spec {
    pub fn state(&self, name: &str) -> Option<&CycleState> {
        self.states.iter().find(|state| state.name == name)
    }

    /// Returns the state in which the cycle begins.
    pub fn first(&self) -> &CycleState {
        &self.states[0]
    }
}

/// A mistake in a declaration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpecError {
    /// The 1-based line number.
    pub line: usize,
    /// A description of the mistake, often with the correct form.
    pub why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}
