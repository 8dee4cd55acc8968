//! Plans a run up to the point where it would call a model or start a program.
//!
//! Questions are built and priced with the same code as in a run. A dry run must never call a
//! backend, start a job's program, stage a file or save a cache.

use std::path::{Path, PathBuf};

use runner_backends::Request;
use runner_engine::store::Amounts;
use serde::Serialize;

use crate::request_usage::tokens_of;
use crate::{Context, JobError, Spender};

/// The actions that a run would take.
#[derive(Clone, Debug, Default)]
pub struct DryRunPlan {
    /// The questions that the run would ask, in order.
    pub requests: Vec<PlannedQuestion>,
    /// The program that the job itself would start, if any.
    pub child: Option<PlannedChild>,
    /// The checks that the result must pass before it is published.
    pub checks: Vec<String>,
    /// Additional notes for the user.
    pub notes: Vec<String>,
}

/// A question that a run would ask.
#[derive(Clone, Debug)]
pub struct PlannedQuestion {
    /// The question itself. Its text must be redacted before it is displayed.
    pub request: Request,
    /// Approximate number of tokens in the question.
    pub tokens: u64,
    /// The maximum charge for the question, or why the run's budget refuses the question.
    pub reserved: Result<Amounts, String>,
}

/// A program that a run would start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedChild {
    /// The program as named in the configuration.
    pub program: String,
    /// The path of the program, or `None` if the program is not found.
    pub found: Option<PathBuf>,
    pub args: Vec<String>,
    /// The working directory of the program.
    pub folder: PathBuf,
    /// Names of the environment variables passed to the program.
    pub environment: Vec<String>,
    /// Names of variables that are listed in the configuration but not set.
    pub unset: Vec<String>,
}

impl PlannedChild {
    /// Describes how a run would start a command job's program.
    pub(crate) fn of(
        ctx: &Context<'_>,
        program: &str,
        args: &[String],
        variables: &[String],
    ) -> Self {
        let mut environment: Vec<String> = ctx.programs.env().keys().cloned().collect();
        environment.extend(["RUNNER_OUT", "RUNNER_RUN", "TMPDIR"].map(str::to_owned));
        environment.sort_unstable();
        environment.dedup();
        let unset = variables.iter().filter(|name| !ctx.programs.env().contains_key(*name));
        Self {
            program: program.to_owned(),
            found: ctx.programs.find(Path::new(program), ctx.files.root()),
            args: args.to_vec(),
            folder: ctx.files.root().to_owned(),
            unset: unset.cloned().collect(),
            environment,
        }
    }
}

impl DryRunPlan {
    /// Sums the reservations of all questions that the budget allows.
    pub fn at_most(&self) -> Amounts {
        self.requests
            .iter()
            .filter_map(|one| one.reserved.as_ref().ok())
            .fold(Amounts::default(), |sum, one| sum.plus(*one))
    }
}

/// Prices a question as a run would.
///
/// # Errors
/// Returns an error if the budget cannot be read. A budget that does not allow the question is not
/// an error.
pub(crate) fn priced(
    spender: &mut Spender<'_>,
    request: Request,
    ideas: u64,
) -> Result<PlannedQuestion, JobError> {
    let reserved = spender.price(&request, ideas)?;
    Ok(PlannedQuestion { tokens: tokens_of(&request), request, reserved })
}
