//! Task 6, trust trajectory, and the signals that other tasks use: trust, focus, debt and phase at
//! each call.
//!
//! Trust starts at 100: an error costs 5, a repeated error 10, a denial 10 and a loop 15, and a
//! passing check earns 5. Debt is the number of edits since the last passing check. Focus is 100
//! minus 5 for each file above 15 and each folder above 8 among the last 50 calls.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::loops::LoopDetector;
use super::phases::{Phase, PhaseDetector};
use crate::sessions::event::{Action, Event, Outcome};

/// The number of calls over which focus is measured.
const FOCUS_WINDOW: usize = 50;

/// The state of a session after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    pub phase: Phase,
    /// From 0 to 100.
    pub trust: u8,
    /// From 0 to 100.
    pub focus: u8,
    /// The number of edits since the last passing check.
    pub debt: u32,
}

/// The trust when a phase began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustPoint {
    pub phase: Phase,
    pub trust: u8,
    pub focus: u8,
    pub debt: u32,
    pub line: u64,
}

/// Returns the signals after each event.
pub fn signals(events: &[Event]) -> Vec<Signal> {
    let mut phases = PhaseDetector::default();
    let mut loops = LoopDetector::default();
    let mut focus = Focus::default();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let (mut trust, mut debt) = (100_i32, 0);
    let mut all = Vec::with_capacity(events.len());
    for event in events {
        if event.is_call() {
            match &event.outcome {
                Outcome::Failed(error) if seen.insert(&error.trigger) => trust -= 5,
                Outcome::Failed(_) | Outcome::Denied => trust -= 10,
                Outcome::Passed if event.action == Action::Check => {
                    trust += 5;
                    debt = 0;
                }
                Outcome::Passed if event.action == Action::Edit => debt += 1,
                _ => {}
            }
            if loops.take(event) {
                trust -= 15;
            }
            trust = trust.clamp(0, 100);
            phases.take(event);
            focus.take(event);
        }
        let trust = u8::try_from(trust).unwrap_or(0);
        all.push(Signal { phase: phases.phase(), trust, focus: focus.value(), debt });
    }
    all
}

/// Returns the signals at the start of each phase.
pub fn trajectory(events: &[Event], signals: &[Signal]) -> Vec<TrustPoint> {
    let mut points: Vec<TrustPoint> = Vec::new();
    for (event, signal) in events.iter().zip(signals) {
        if points.last().is_none_or(|last| last.phase != signal.phase) {
            let Signal { phase, trust, focus, debt } = *signal;
            points.push(TrustPoint { phase, trust, focus, debt, line: event.line });
        }
    }
    points
}

/// The files used by the most recent calls.
#[derive(Default)]
struct Focus<'e> {
    recent: VecDeque<Option<&'e str>>,
    /// The number of calls that used each file, and the number of files in each folder.
    files: HashMap<&'e str, usize>,
    folders: HashMap<&'e str, usize>,
}

/// Decrements a count. Returns true if the count reaches zero.
fn remove_one<'e>(counts: &mut HashMap<&'e str, usize>, of: &'e str) -> bool {
    let Some(count) = counts.get_mut(of) else { return false };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(of);
    }
    last
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl<'e> Focus<'e> {
    fn take(&mut self, event: &'e Event) {
        let file = (event.tool != "Bash" && matches!(event.action, Action::Read | Action::Edit))
            .then_some(event.target.as_str());
        self.recent.push_back(file);
        if let Some(file) = file {
            let calls = self.files.entry(file).or_default();
            *calls += 1;
            if *calls == 1 {
                *self.folders.entry(folder(file)).or_default() += 1;
            }
        }
        if self.recent.len() > FOCUS_WINDOW
            && let Some(Some(old)) = self.recent.pop_front()
            && remove_one(&mut self.files, old)
        {
            remove_one(&mut self.folders, folder(old));
        }
    }

    fn value(&self) -> u8 {
        let over = self.files.len().saturating_sub(15) + self.folders.len().saturating_sub(8);
        u8::try_from(100_usize.saturating_sub(5 * over)).unwrap_or(0)
    }
}
