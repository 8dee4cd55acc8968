//! Task 1, phase arc: the phases that a session went through.
//!
//! Each call is evaluated together with the nine calls before it. A phase begins when three
//! evaluations in a row agree on it.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::sessions::event::{Action, Event};

/// The number of calls in an evaluation.
const WINDOW: usize = 10;
/// The number of consecutive evaluations that must agree before a phase begins.
const AGREE: u32 = 3;

/// The predominant kind of work in a session at a given time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The first calls.
    #[default]
    Orientation,
    /// Reading and searching.
    Exploring,
    /// Changing files.
    Building,
    /// Building, testing and linting.
    Verifying,
    /// Committing and pushing.
    Wrapping,
}

impl Phase {
    /// Returns the name of the phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orientation => "orientation",
            Self::Exploring => "exploring",
            Self::Building => "building",
            Self::Verifying => "verifying",
            Self::Wrapping => "wrapping",
        }
    }
}

/// A stretch of a session in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    pub phase: Phase,
    /// The number of calls.
    pub calls: u32,
    /// The number of prompts over which the phase lasted, at least 1.
    pub turns: u32,
    /// The line of the first event.
    pub line: u64,
    pub at: Option<Timestamp>,
}

/// Follows the phase call by call.
#[derive(Debug, Default)]
pub(super) struct PhaseDetector {
    window: VecDeque<Action>,
    phase: Phase,
    next: Phase,
    agreed: u32,
}

impl PhaseDetector {
    pub(super) fn take(&mut self, event: &Event) {
        self.window.push_back(event.action);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        let found = self.evaluate();
        self.agreed = if found == self.next { self.agreed + 1 } else { 1 };
        self.next = found;
        if self.agreed >= AGREE {
            self.phase = found;
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the phase of the calls in the window. More recent calls carry more weight, so a
    /// change is noticed while older calls from another phase are still in the window.
    fn evaluate(&self) -> Phase {
        if self.window.len() < 4 {
            return Phase::Orientation;
        }
        let weight = |action: Action| -> usize {
            let recent = |(age, _): (usize, &Action)| if age < 4 { 3 } else { 1 };
            self.window.iter().rev().enumerate().filter(|(_, is)| **is == action).map(recent).sum()
        };
        let scores = [
            // A commit, a check or an edit represents more work than a read.
            (Phase::Wrapping, 3 * weight(Action::Commit)),
            (Phase::Verifying, 2 * weight(Action::Check)),
            (Phase::Building, 2 * weight(Action::Edit)),
            (Phase::Exploring, weight(Action::Read)),
        ];
        let (best, score) =
            scores.into_iter().rev().max_by_key(|(_, score)| *score).unwrap_or_default();
        if score == 0 { self.phase } else { best }
    }
}

/// Returns the phases of a session in order. `phases` contains the phase after each event.
pub fn arc(events: &[Event], phases: impl Iterator<Item = Phase>) -> Vec<PhaseSpan> {
    let mut spans: Vec<PhaseSpan> = Vec::new();
    let mut turn = 0;
    for (event, phase) in events.iter().zip(phases) {
        if spans.last().is_none_or(|last| last.phase != phase) {
            turn = event.turn;
            let (line, at) = (event.line, event.at);
            spans.push(PhaseSpan { phase, calls: 0, turns: 1, line, at });
        }
        if let Some(last) = spans.last_mut() {
            last.calls += u32::from(event.is_call());
            last.turns = event.turn - turn + 1;
        }
    }
    spans
}
