//! `runner dream delta` and `runner dream submit`: a pass that is answered by a program that runner
//! does not start.
//!
//! This module must never publish anything itself: the answer is checked and published by a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use runner_engine::digest::Digest;
use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_host};
use runner_engine::ids::OccurrenceId;
use runner_engine::outcome::{Exit, Outcome, SkipReason};
use runner_jobs::dream::{DreamSpec, Offered};
use serde::Serialize;
use serde_json::{Value, json};

use super::pass::IdeaSelection;
use super::{DreamJobArg, dream_job};
use crate::commands::Cli;
use crate::commands::execute::dry_run::{Charge, DryRun, DryRunOutcome, DryRunStore};
use crate::commands::run::{self as by_hand, ManualRun};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// The setting with the file of the answer.
const ANSWER: &str = "answer_file";
/// The answer of a request that is only printed.
const NO_ANSWER: &str = "/dev/null";

/// Print the request of the next pass, for a program that answers it with `runner dream submit`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The request contains the changed ideas, the evidence about them, and the permitted choices. No backend is \
                  asked, and nothing is published.\n\n\
                  Example: runner dream delta --json > request.json && my-harness < request.json > answer.json && \
                  runner dream submit answer.json"
)]
pub(super) struct DeltaArgs {
    #[command(flatten)]
    selection: IdeaSelection,
    #[command(flatten)]
    which: DreamJobArg,
}

/// Check and publish an answer to the last request of `runner dream delta`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The answer is a JSON array of proposals. It is checked like the answer of a backend, by one run of the \
                  dream job. An idea that has changed since the request stays selected.\n\n\
                  Example: runner dream submit answer.json"
)]
pub(super) struct SubmitArgs {
    /// The file with the answer
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    which: DreamJobArg,
}

/// The request of the next pass.
#[derive(Debug, Serialize)]
struct DeltaView<'a> {
    schema_version: u32,
    job: &'a str,
    /// The ideas in the request, with the SHA-256 digests of their contents.
    ideas: BTreeMap<String, Digest>,
    /// The request, or null if a pass would ask nothing.
    request: Value,
    /// Why a pass would ask nothing.
    outcome: Option<Outcome>,
}

impl DeltaArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        let (job, spec) = dream_job(&project, &self.which)?;
        let mut settings = self.selection.settings();
        settings.push((ANSWER.to_owned(), NO_ANSWER.to_owned()));
        let mut store = DryRunStore::of(cli.env, &project)?;
        let key = OccurrenceId::new(store.now).to_string();
        let run = store.enter(&project, job, &key, None, settings)?;
        let run = run.ok_or_else(|| Failure::internal("a new key was already used"))?;
        let (request, outcome) = match asked(store.dry_run(&run, Charge::AtMost)?) {
            Ok(request) => (request, None),
            Err(outcome) => (Value::Null, Some(outcome)),
        };
        let offered = Offered::of_request(&request["offer"]).unwrap_or_default();
        if outcome.is_none() {
            keep(cli, &project, spec, &offered)?;
        }
        let exit = outcome.as_ref().map_or(Exit::Done, |outcome| outcome.exit(true));
        let of = |path: &String| Some((path.clone(), *offered.digests.get(path)?));
        let ideas = offered.sources.iter().filter_map(of).collect();
        cli.ui.show(&DeltaView { schema_version: 1, job, ideas, request, outcome });
        Ok(exit)
    }
}

/// Returns the part of the request that an answer depends on, or why nothing would be asked.
fn asked(planned: DryRun) -> Result<Value, Outcome> {
    if let DryRunOutcome::Declined(outcome) = planned.stands {
        return Err(outcome);
    }
    let requests = match planned.plan {
        Some(Ok(plan)) => plan.requests,
        Some(Err(outcome)) => return Err(outcome),
        None => Vec::new(),
    };
    // No window limits the request, so there is only one.
    let Some(request) = requests.into_iter().next().map(|planned| planned.request) else {
        return Err(Outcome::skipped(SkipReason::Idle, "there is nothing to ask"));
    };
    Ok(json!({
        "instructions": request.instructions,
        "sources": request.sources,
        "rule_answer": request.rule_answer,
        "offer": request.offer,
        "schema": request.schema,
    }))
}

fn keep(
    cli: &Cli<'_>,
    project: &LoadedProject,
    spec: &DreamSpec,
    offered: &Offered,
) -> Result<(), Failure> {
    let cache = cli.env.cache_folder(&project.id);
    fs::create_dir_all(&cache).map_err(|error| Failure::not_made(&cache, error))?;
    offered.save(&cache, spec).map_err(|error| Failure::cannot_write(whole(&error)))
}

impl View for DeltaView<'_> {
    fn print(&self, _ui: Ui) {
        if let Some(outcome) = &self.outcome {
            let why = outcome.why().map_or_else(|| outcome.to_string(), safe::line);
            show::out(&format!("{}: {}: {why}\n", self.job, outcome.as_str()));
            return;
        }
        let mut text = format!("{}:\n", show::count(self.ideas.len() as u64, "idea"));
        for path in self.ideas.keys() {
            text.push_str(&format!("  {}\n", safe::line(path)));
        }
        text.push_str("`runner dream delta --json` prints the request\n");
        show::out(&text);
    }
}

impl SubmitArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        let (job, spec) = dream_job(&project, &self.which)?;
        if Offered::load(&cli.env.cache_folder(&project.id), spec).is_none() {
            return Err(Failure::data("there is no request to answer")
                .hint("runner dream delta --json > request.json"));
        }
        let file = cli.here.join(&self.file);
        read_host(&file, DOCUMENT)
            .map_err(|error| Failure::data(format!("cannot read {}: {error}", file.display())))?;
        let Some(file) = file.to_str() else {
            return Err(Failure::data(format!("{} is not valid UTF-8", file.display())));
        };
        let settings = vec![(ANSWER.to_owned(), file.to_owned())];
        let how = ManualRun { deferral_is_normal: true, ..ManualRun::new(cli, settings) };
        by_hand::once(cli.env, &project, job, None, how)
    }
}
