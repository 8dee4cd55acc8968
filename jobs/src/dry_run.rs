//! A run gone through up to where it would ask or start something: what it would ask, of how many
//! tokens, at most for how much; what it would start; how what comes back would be checked.
//!
//! The questions are built and priced by the code that a run builds and prices them with. Must never
//! ask a backend, start a job's program, stage a file or keep a cache.

use std::path::{Path, PathBuf};

use runner_backends::Request;
use runner_engine::process::find_program;
use runner_engine::store::Amounts;
use serde::Serialize;

use crate::request_usage::tokens_of;
use crate::{Context, JobError};

/// The actions that a run would take.
#[derive(Clone, Debug, Default)]
pub struct DryRunPlan {
    /// The questions that the run would ask, in this order.
    pub requests: Vec<PlannedQuestion>,
    /// The program that would be started.
    pub child: Option<PlannedChild>,
    /// The checks that a reply must pass before any of it is published.
    pub checks: Vec<String>,
    /// Further facts that are known in advance.
    pub notes: Vec<String>,
}

/// One question.
#[derive(Clone, Debug)]
pub struct PlannedQuestion {
    /// The question itself; its texts are not redacted for a terminal.
    pub request: Request,
    /// About how many tokens it has.
    pub tokens: u64,
    /// The most that it is charged, or why the run's budget has no room for it.
    pub reserved: Result<Amounts, String>,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedChild {
    /// As the configuration names it.
    pub program: String,
    /// Where it lies; none when it is not found.
    pub found: Option<PathBuf>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it starts.
    pub folder: PathBuf,
    /// Names of the variables that it sees.
    pub environment: Vec<String>,
    /// Named in the configuration and not set, so it does not see them.
    pub unset: Vec<String>,
}

impl PlannedChild {
    /// Returns the program of a command job as a run would start it.
    pub(crate) fn of(
        ctx: &Context<'_>,
        program: &str,
        args: &[String],
        variables: &[String],
    ) -> Self {
        let path = ctx.env.get("PATH").map_or("", String::as_str);
        let mut environment: Vec<String> = ctx.env.keys().cloned().collect();
        environment.extend(["RUNNER_OUT", "RUNNER_RUN", "TMPDIR"].map(str::to_owned));
        environment.sort_unstable();
        environment.dedup();
        let unset = variables.iter().filter(|name| !ctx.env.contains_key(*name));
        Self {
            program: program.to_owned(),
            found: find_program(Path::new(program), ctx.root, path).ok(),
            args: args.to_vec(),
            folder: ctx.root.to_owned(),
            unset: unset.cloned().collect(),
            environment,
        }
    }
}

impl DryRunPlan {
    /// Returns the maximum budget usage of all questions together.
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
/// The budget cannot be read. A budget without room for the question is no error.
pub(crate) fn priced(
    ctx: &mut Context<'_>,
    request: Request,
    ideas: u64,
) -> Result<PlannedQuestion, JobError> {
    let reserved = match ctx.reserve(&request, ideas) {
        Ok((_, reserved)) => Ok(reserved),
        Err(error) => match JobError::from(error) {
            JobError::OverBudget(why) => Err(why),
            other => return Err(other),
        },
    };
    Ok(PlannedQuestion { tokens: tokens_of(&request), request, reserved })
}
