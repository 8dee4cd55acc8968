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

use crate::lifecycle::orient::orient;
use crate::lifecycle::work;
use crate::lifecycle::{daydream, rem};
use crate::request_usage::tokens_of;
use crate::{
    Context, JobError, JobSpec, KindSpec, command, curator, dream, overnight, prompt, report,
};

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

impl DryRunPlan {
    /// Returns the maximum budget usage of all questions together.
    pub fn at_most(&self) -> Amounts {
        self.requests
            .iter()
            .filter_map(|one| one.reserved.as_ref().ok())
            .fold(Amounts::default(), |sum, one| sum.plus(*one))
    }
}

/// Goes through the job's work; `ctx` must be [`rehearsing`](Context::dry_running).
///
/// # Errors
/// What would end the run before it asks: nothing to do, a wait, a refusal, a failure.
pub fn dry_run(mut ctx: Context<'_>, spec: &JobSpec) -> Result<DryRunPlan, JobError> {
    let mut plan = DryRunPlan {
        checks: checks(&spec.kind),
        ..DryRunPlan::default()
    };
    match &spec.kind {
        KindSpec::Dream(own) => {
            let (request, ideas, notes) = dream::question(&mut ctx, own)?;
            plan.notes = notes;
            plan.requests.push(priced(&mut ctx, request, ideas)?);
        }
        KindSpec::Prompt(own) => {
            let prompt::PromptQuestion { request, left_out } = prompt::question(&ctx, own)?;
            plan.notes = left_out
                .iter()
                .map(|why| format!("left out: {why}"))
                .collect();
            plan.requests.push(priced(&mut ctx, request, 0)?);
        }
        KindSpec::Command(own) => {
            let child = child(&ctx, own);
            if child.found.is_none() {
                plan.notes
                    .push(format!("there is no program {} to be found", own.program));
            }
            plan.child = Some(child);
        }
        KindSpec::Overnight(own) => plan.notes = overnight::plan(&ctx, own),
        KindSpec::Rem(own) => {
            let (request, notes) = rem::question(&ctx, own)?;
            plan.notes = notes;
            plan.requests.push(priced(&mut ctx, request, 0)?);
        }
        KindSpec::Daydream(own) => {
            let request = daydream::question(&ctx, own);
            plan.requests.push(priced(&mut ctx, request, 0)?);
        }
        KindSpec::Report | KindSpec::Cycle(_) | KindSpec::Work(_) => {
            if let Some(own) = spec.kind.work() {
                let reported = orient(&ctx.scope, &own.board, &own.agent);
                plan.notes = reported.lines(own.kind, None);
                let request = work::question(&ctx, &own, &reported, None)?;
                plan.requests.push(priced(&mut ctx, request, 0)?);
            }
        }
        KindSpec::Curator(own) => plan.notes = curator::dry_run(ctx.root, own),
    }
    Ok(plan)
}

fn priced(
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
    Ok(PlannedQuestion {
        tokens: tokens_of(&request),
        request,
        reserved,
    })
}

fn child(ctx: &Context<'_>, own: &command::CommandSpec) -> PlannedChild {
    let path = ctx.env.get("PATH").map_or("", String::as_str);
    let mut environment: Vec<String> = ctx.env.keys().cloned().collect();
    environment.extend(["RUNNER_OUT", "RUNNER_RUN", "TMPDIR"].map(str::to_owned));
    environment.sort_unstable();
    environment.dedup();
    let unset = own.env.iter().filter(|name| !ctx.env.contains_key(*name));
    PlannedChild {
        program: own.program.clone(),
        found: find_program(Path::new(&own.program), ctx.root, path).ok(),
        args: own.args.clone(),
        folder: ctx.root.to_owned(),
        unset: unset.cloned().collect(),
        environment,
    }
}

fn checks(kind: &KindSpec) -> Vec<String> {
    match kind {
        KindSpec::Dream(own) => vec![
            "every element of the answer: its targets, status and action are among those offered"
                .to_owned(),
            "evidence: an idea is archived only for a commit or path that exists, else it is kept"
                .to_owned(),
            "no idea, and no destination, has changed since it was read".to_owned(),
            "no proposal was decided before".to_owned(),
            format!(
                "git ignores what is written in {}/ and tracks none of it",
                own.dreams
            ),
        ],
        KindSpec::Prompt(own) => vec![
            "the answer is not empty".to_owned(),
            format!(
                "{} is a plain file, or not there, and does not change meanwhile",
                own.to
            ),
        ],
        KindSpec::Command(own) => {
            let mut checks = vec!["the program ends with 0, in time".to_owned()];
            checks.extend(own.artifacts.iter().map(|artifact| {
                let form = command::form(&artifact.to)
                    .map_or_else(String::new, |form| format!(" and is {form}"));
                format!("{} is there, is not empty{form}", artifact.from)
            }));
            checks
        }
        KindSpec::Cycle(_) => vec![
            "the gate of its state is open, and its position is what was read".to_owned(),
            "its position moves on only with what the state published".to_owned(),
        ],
        KindSpec::Work(_) => vec![
            "each verdict of the newest entry names exactly one task".to_owned(),
            "nothing is written below rem/".to_owned(),
        ],
        KindSpec::Overnight(own) => vec![
            "fitness of the staged corpus, before anything of it is committed".to_owned(),
            "no file of the corpus has changed since it was copied".to_owned(),
            format!("{} is written below {} alone", "the report", own.output_dir),
        ],
        KindSpec::Report => vec![format!("{}: made from the database", report::FOLDER)],
        KindSpec::Rem(_) => vec![
            "the six headings stand in their order, and no other".to_owned(),
            "every commit hash that it names is among what was shown".to_owned(),
            "every verdict that names a task names exactly one of the board".to_owned(),
            "its tale does not repeat the previous one; else it is asked for once more".to_owned(),
        ],
        KindSpec::Daydream(_) => {
            vec!["the answer is text; it is lowercased and cut at 40 words".to_owned()]
        }
        KindSpec::Curator(_) => vec![
            "a job file is of a listed kind, and its id is its file's name".to_owned(),
            "an answer chooses among what rules have found, and adds words".to_owned(),
        ],
    }
}
