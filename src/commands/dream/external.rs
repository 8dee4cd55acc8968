//! `runner dream delta` and `runner dream submit`: make a pass whose request is answered by a
//! program that runner does not start.
//!
//! This module must never publish anything itself: a run checks and publishes the answer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::error_chain::whole;
use runner_engine::file_lock::FileLock;
use runner_engine::files::{DOCUMENT, read_host};
use runner_engine::ids::OccurrenceId;
use runner_engine::outcome::{Exit, Outcome, SkipReason};
use runner_jobs::dream::{DreamSpec, ExternalRequest, ExternalRequests, Submission};
use runner_text::shell_word;
use serde::Serialize;
use serde_json::{Value, json};

use super::pass::IdeaSelection;
use super::{DreamJobArg, dream_job};
use crate::commands::Cli;
use crate::commands::execute::dry_run::{Charge, DryRun, DryRunOutcome, DryRunStore};
use crate::commands::run::{self as by_hand, ManualRun};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// The setting that contains the path of a submission.
const SUBMISSION: &str = "submission";
/// The value of [`SUBMISSION`] when the request is only printed.
const NO_SUBMISSION: &str = "/dev/null";

/// Print the request of the next pass, for a program that answers it with `runner dream submit`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The request contains the changed ideas, the evidence about them, and the permitted choices. No backend is \
                  asked, and nothing is published.\n\n\
                  Example: runner dream delta --json > request.json && my-harness < request.json > answer.json && \
                  runner dream submit answer.json --request \"$(jq -r .id request.json)\""
)]
pub(super) struct DeltaArgs {
    #[command(flatten)]
    selection: IdeaSelection,
    #[command(flatten)]
    which: DreamJobArg,
}

/// Check and publish an answer to a request of `runner dream delta --json`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The answer is a JSON array of proposals. One run of the dream job checks it like a backend's answer. \
                  An idea that has changed since the request remains selected for the next pass.\n\n\
                  Example: runner dream submit answer.json --request \"$(jq -r .id request.json)\""
)]
pub(super) struct SubmitArgs {
    /// The file with the answer, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The id of the request, if several await an answer
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    #[command(flatten)]
    which: DreamJobArg,
}

/// The request of the next pass.
#[derive(Debug, Serialize)]
struct DeltaView<'a> {
    schema_version: u32,
    job: &'a str,
    /// The id of the request, or `None` if a pass would make no request.
    id: Option<&'a str>,
    /// The ideas in the request, with the SHA-256 digests of their contents.
    ideas: BTreeMap<&'a str, Digest>,
    /// The request, or [`Value::Null`] if a pass would make no request.
    request: Value,
    /// The outcome of a pass that would make no request, with the reason; `None` if there is a
    /// request.
    outcome: Option<Outcome>,
}

impl DeltaArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        let (job, spec) = dream_job(&project, &self.which)?;
        let mut settings = self.selection.settings();
        settings.push((SUBMISSION.to_owned(), NO_SUBMISSION.to_owned()));
        let mut store = DryRunStore::of(cli.env, &project)?;
        let key = OccurrenceId::new(store.now).to_string();
        let run = store.enter(&project, job, &key, None, settings)?;
        let run = run.ok_or_else(|| Failure::internal("a new occurrence already exists"))?;
        let (request, outcome) = match asked(store.dry_run(&run, Charge::AtMost)?) {
            Ok(request) => (request, None),
            Err(outcome) => (Value::Null, Some(outcome)),
        };
        let record = ExternalRequest::new(&request["offer"], store.now);
        // Without --json, the request is not printed, so nobody can answer it.
        if let Some(record) = record.as_ref().filter(|_| cli.ui.json) {
            change_requests(cli, &project, spec, |all| all.add(record.clone()))?;
        }
        let exit = outcome.as_ref().map_or(Exit::Done, |outcome| outcome.exit(true));
        let id = record.as_ref().map(|record| record.id.as_str());
        let ideas = record.as_ref().map(ExternalRequest::ideas).unwrap_or_default();
        cli.ui.show(&DeltaView { schema_version: 1, job, id, ideas, request, outcome });
        Ok(exit)
    }
}

/// Returns the part of the request that an answer depends on, or the outcome of a pass that would
/// make no request.
fn asked(planned: DryRun) -> Result<Value, Outcome> {
    if let DryRunOutcome::Declined(outcome) = planned.stands {
        return Err(outcome);
    }
    let requests = match planned.plan {
        Some(Ok(plan)) => plan.requests,
        Some(Err(outcome)) => return Err(outcome),
        None => Vec::new(),
    };
    // No context window limits the request, so there is at most one.
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

fn change_requests(
    cli: &Cli<'_>,
    project: &LoadedProject,
    spec: &DreamSpec,
    change: impl FnOnce(&mut ExternalRequests),
) -> Result<(), Failure> {
    let cache = cli.env.cache_folder(&project.id);
    fs::create_dir_all(&cache).map_err(|error| Failure::not_made(&cache, error))?;
    let lock = cache.join("dream-requests.lock");
    let _lock = FileLock::open(&lock)
        .and_then(FileLock::wait)
        .map_err(|error| Failure::cannot_write(format!("{}: {error}", lock.display())))?;
    let mut all = ExternalRequests::load(&cache, spec);
    all.prune(&project.root, spec);
    change(&mut all);
    all.save(&cache, spec).map_err(|error| Failure::cannot_write(whole(&error)))
}

impl View for DeltaView<'_> {
    fn print(&self, _ui: Ui) {
        if let Some(outcome) = &self.outcome {
            let why = outcome.why().map_or_else(|| outcome.to_string(), safe::line);
            let text = format!("{}: {}: {why}\n", self.job, outcome.as_str());
            match outcome.class() {
                Some(_) => show::notice(text.trim_end()),
                None => show::out(&text),
            }
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
        let mut requests = ExternalRequests::load(&cli.env.cache_folder(&project.id), spec);
        requests.prune(&project.root, spec);
        let request = self.request_of(&requests)?;
        let answer = self.answer(cli.here)?;
        let folder = cli.env.scratch("submission");
        cli.env.make_state()?;
        fs::create_dir_all(&folder).map_err(|error| Failure::not_made(&folder, error))?;
        let file = folder.join("submission.json");
        let submission = Submission::new(request.clone(), answer, (&project.root, spec))
            .map_err(|error| Failure::environment(safe::line(&whole(&error))))?;
        let saved = submission.save(&file);
        let settings = vec![(SUBMISSION.to_owned(), file.display().to_string())];
        let how = ManualRun { deferral_is_normal: true, ..ManualRun::new(cli, settings) };
        let done = saved
            .map_err(|error| Failure::cannot_write(whole(&error)))
            .and_then(|()| by_hand::once(cli.env, &project, job, None, how));
        // Daily pruning removes anything that cannot be removed now.
        let _ = fs::remove_dir_all(&folder);
        change_requests(cli, &project, spec, |_| {})?;
        done
    }

    /// Returns the request that the answer responds to.
    fn request_of<'r>(
        &self,
        requests: &'r ExternalRequests,
    ) -> Result<&'r ExternalRequest, Failure> {
        let found = match (&self.request, requests.all()) {
            (Some(id), all) => all.iter().find(|request| request.id == *id),
            (None, [only]) => Some(only),
            (None, []) => None,
            (None, [.., last]) => {
                let why = format!("{} requests await an answer", requests.all().len());
                let answer = shell_word(self.file.display());
                return Err(Failure::usage(why).hint(format!(
                    "runner dream submit {answer} --request {}   (the last one)",
                    last.id
                )));
            }
        };
        let why = match &self.request {
            Some(id) => format!("no request {id} awaits an answer"),
            None => "no request awaits an answer".to_owned(),
        };
        found.ok_or_else(|| Failure::data(why).hint("runner dream delta --json > request.json"))
    }

    /// Reads the answer from the file or from standard input.
    fn answer(&self, here: &Path) -> Result<String, Failure> {
        let file = here.join(&self.file);
        let (is_stdin, name) = match self.file.as_os_str() == "-" {
            true => (true, "standard input".to_owned()),
            false => (false, file.display().to_string()),
        };
        let bytes = match is_stdin {
            true => {
                let mut bytes = Vec::new();
                io::stdin().take(DOCUMENT + 1).read_to_end(&mut bytes).and_then(|length| {
                    match length as u64 > DOCUMENT {
                        true => Err(io::Error::other(format!("it has more than {DOCUMENT} bytes"))),
                        false => Ok(bytes),
                    }
                })
            }
            false => read_host(&file, DOCUMENT),
        };
        let bytes = bytes.map_err(|error| Failure::data(format!("cannot read {name}: {error}")))?;
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        match is_request(&answer) {
            true => Err(Failure::data(format!("{name} is a request, not an answer"))),
            false => Ok(answer),
        }
    }
}

/// Returns whether the first JSON object in a text is the output of `runner dream delta --json`.
/// The rule-based answer in that output must not be published as the program's answer.
fn is_request(text: &str) -> bool {
    let Some(at) = text.find('{') else { return false };
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    values.next().is_some_and(|it| it.is_ok_and(|it| it["request"]["offer"].is_object()))
}
