//! The refusals of a night, each with its source.
//!
//! Pure: they are collected from the outcomes and lines of runs. No refusal is left to be found
//! only in a run's details.

use runner_engine::outcome::{Class, Outcome};
use serde::{Deserialize, Serialize};

use super::run_line::RunLine;

/// The source of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// A guard refused a write or an act outside the run's scope.
    Guard,
    Budget,
    /// The run was not admitted and never began.
    Admission,
    /// The check of a reply refused an element that was not offered.
    Check,
    /// The sandbox refused something, as far as that is known: uses of tools that failed.
    Sandbox,
}

impl RefusedBy {
    /// Returns the name for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Budget => "budget",
            Self::Admission => "not admitted",
            Self::Check => "check of the reply",
            Self::Sandbox => "sandbox or tools",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub job: String,
    pub run: String,
    pub by: RefusedBy,
    /// The refused act or element, and the reason.
    pub what: String,
}

/// Beginning of a run's line that reports a refused element.
const REFUSED: &str = "refused: ";
/// End of a run's line that reports failed uses of tools.
const TOOLS: &str = "failed; what the sandbox refuses fails so";

/// Returns all refusals of a night, guards first.
pub(super) fn refusals_of_night(runs: &[RunLine]) -> Vec<Refusal> {
    let mut found = Vec::new();
    for run in runs {
        let mut push = |by, what: &str| {
            found.push(Refusal {
                job: run.job.clone(),
                run: run.run.clone(),
                by,
                what: what.to_owned(),
            });
        };
        if let Some(Outcome::Failed { class, why }) = &run.outcome {
            match class {
                Class::Guard => push(RefusedBy::Guard, why),
                Class::OverBudget => push(RefusedBy::Budget, why),
                _ if run.started.is_none() => push(RefusedBy::Admission, why),
                _ => {}
            }
        }
        for line in &run.lines {
            if let Some(what) = line.strip_prefix(REFUSED) {
                push(RefusedBy::Check, what);
            } else if line.ends_with(TOOLS) {
                push(RefusedBy::Sandbox, line);
            }
        }
    }
    found.sort_by_key(|refusal| refusal.by);
    found
}
