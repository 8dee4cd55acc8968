//! The refusals of a night, each with its source.
//!
//! The module is pure: it collects the refusals from the outcomes and summaries of runs, so no
//! refusal is visible only in a run's details.

use runner_engine::outcome::{Class, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_line::RunLine;

/// The source of a refusal.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// A guard refused a write or an action outside the run's scope.
    Guard,
    Budget,
    /// The run was not admitted and never began.
    Admission,
    /// A reply check refused an element that was not offered.
    Check,
}

impl RefusedBy {
    /// Returns the display name.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Budget => "budget",
            Self::Admission => "admission",
            Self::Check => "reply check",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Refusal {
    pub job: String,
    pub run: String,
    pub by: RefusedBy,
    /// The refused action or element, and the reason.
    pub what: String,
}

/// Returns all refusals of a night, guards first. A failed tool use is not a refusal, because a
/// failing test is also a failed tool use.
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
        run.refused.iter().for_each(|what| push(RefusedBy::Check, what));
    }
    found.sort_by_key(|refusal| refusal.by);
    found
}
