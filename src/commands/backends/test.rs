//! `runner backends test NAME`: asks a backend one small question, and shows the request, the
//! reply, the usage and the time. Each test is a separate run, and its usage counts toward the
//! budgets of the project's day and of the backend's pool.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::{
    AnswerForm, Backend, BackendError, BackendSpec, Request, RequestLimits, Surroundings, build,
};
use runner_engine::error_chain::plain;
use runner_engine::outcome::{Class, Exit};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::sandbox::placeholders::FOLDER;
use runner_engine::sandbox::{Sandbox, SandboxedStart};
use runner_engine::store::Amounts;
use runner_jobs::backend_test::{AdmittedTest, JOB, SettledTest, TOTAL};
use runner_jobs::{JobError, PaidBackend};
use runner_text::redact::Redacted;
use serde::Serialize;
use serde_json::{Value, json};

use super::slots_folder;
use crate::budget;
use crate::commands::Cli;
use crate::commands::board::{act_failure, edit_actor};
use crate::env::{self, Env};
use crate::guard::private_paths::PrivateFolders;
use crate::keyring;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// The question that a test asks. The rule-based answer in [`request`] is correct.
const QUESTION: &str = "Count the letters of the word \"runner\".";
/// Maximum length of the answer in tokens.
const TOKENS: u64 = 1_000;

/// The request of a test, with its reply or its error.
#[derive(Debug, Serialize)]
struct BackendTest<'a> {
    name: &'a str,
    kind: &'a str,
    model: Option<String>,
    containment: String,
    /// The request, as a job would send it.
    request: Request,
    reply: Option<Value>,
    text: Option<String>,
    usage: Option<runner_backends::Usage>,
    notes: Vec<String>,
    /// The class of the failure, if there is no reply.
    class: Option<&'static str>,
    error: Option<String>,
    seconds: f64,
    /// The id of the test's run.
    run: String,
    /// The names of the budgets that the test counts toward.
    budgets: Vec<String>,
    /// The amounts charged to each budget, excluding time.
    charged: Amounts,
    /// Whether the backend did not report its usage, in which case the reserved amounts were
    /// charged.
    charged_as_reserved: bool,
}

impl View for BackendTest<'_> {
    fn print(&self, _ui: Ui) {
        let mut rows = vec![
            show::row(["backend", &format!("{} ({})", self.name, self.kind)]),
            show::row(["model", self.model.as_deref().unwrap_or("the backend's default")]),
            show::row(["sandbox", &self.containment]),
            show::row(["request", QUESTION]),
        ];
        if let Some(schema) = &self.request.schema {
            rows.push(show::row(["schema", &schema.to_string()]));
        }
        let limits = format!("{TOKENS} tokens, {} s, one call", TOTAL.as_secs());
        rows.push(show::row(["limits", &limits]));
        match (&self.text, &self.error) {
            (Some(text), _) => rows.push(show::row(["reply", text])),
            (None, error) => {
                let class = self.class.unwrap_or_default();
                let error = error.as_deref().unwrap_or_default();
                rows.push(show::row(["FAILED", &format!("{class}: {error}")]));
            }
        }
        rows.push(show::row(["usage", &self.describe_usage()]));
        rows.push(show::row(["time", &format!("{:.1} s", self.seconds)]));
        rows.push(show::row(["charged", &self.describe_charge()]));
        rows.extend(self.notes.iter().map(|note| show::row(["note", note])));
        show::out(&show::table(&rows));
    }
}

impl BackendTest<'_> {
    fn describe_usage(&self) -> String {
        let Some(usage) = self.usage else { return "not reported".to_owned() };
        let cost = usage.cost_micros.map_or_else(String::new, |micros| {
            format!(", ${}.{:06}", micros / 1_000_000, micros % 1_000_000)
        });
        format!("{} tokens in, {} out{cost}", usage.input_tokens, usage.output_tokens)
    }

    fn describe_charge(&self) -> String {
        let reserved = match self.charged_as_reserved {
            true => ", as reserved, because the usage was not reported",
            false => "",
        };
        let amounts = budget::format_amounts(self.charged);
        format!("{amounts}{reserved}; to {}", self.budgets.join(", "))
    }
}

/// Tests the backend `name` with a real call, and prints the result.
pub(super) fn run(cli: &Cli<'_>, here: &LoadedProject, name: &str) -> Result<Exit, Failure> {
    let spec = super::configured(here, name)?;
    let home = cli.env;
    let began = home.wall()?;
    let me = ProcessIdentity::me();
    let mut store = home.store()?;
    here.register(&mut store, began)?;
    let levels: Vec<_> = budget::of_run(here, JOB, name, None, began)
        .into_iter()
        .map(|account| account.level)
        .collect();
    let mut actor = edit_actor(home, here, &me, &mut store)?;
    let admitted = AdmittedTest::admit(&mut actor, &levels, spec.kind.name());
    let test = match admitted.map_err(act_failure)? {
        Ok(test) => test,
        Err(outcome) => {
            let why = outcome.why().unwrap_or_default().to_owned();
            return Err(match outcome.class() {
                Some(Class::OverBudget) => Failure::refused(why).hint("runner budget"),
                _ => Failure::environment(why),
            });
        }
    };
    let folder = home.run_folder(test.run().as_str());
    let (request, model, containment, asked) = match prepared(home, here, spec, &folder) {
        Ok((request, Ok(backend))) => {
            let request = Request { id: format!("{}/1", test.run()), ..request };
            let described = backend.describe();
            let spending = budget::spending(home, here, name);
            let paid = PaidBackend { backend, spending };
            let asked = test.ask(&mut actor, paid, &folder, &request);
            (request, described.model, described.containment, asked)
        }
        Ok((request, Err(error))) => (request, None, String::new(), Err(error.into())),
        Err(failure) => {
            let error = BackendError::Unavailable { why: failure.to_string() };
            test.settle(&mut actor, Some(error.into())).map_err(act_failure)?;
            let _not_needed_any_more = fs::remove_dir_all(&folder);
            return Err(failure);
        }
    };
    let shown = |text: &str| Redacted::of(&plain(text)).head(2_000).into_string();
    let run = test.run().to_string();
    let (reply, failed) = match asked {
        Ok(reply) => (Some(reply), None),
        Err(error) => (None, Some(JobError::from(error))),
    };
    let error = failed.as_ref().map(|error| shown(&error.to_string()));
    let SettledTest { outcome, charged, reported } =
        test.settle(&mut actor, failed).map_err(act_failure)?;
    let _not_needed_any_more = fs::remove_dir_all(&folder);
    cli.ui.show(&BackendTest {
        name,
        kind: spec.kind.name(),
        model: model.or(spec.kind.model().map(str::to_owned)),
        containment,
        text: reply.as_ref().map(|reply| shown(&reply.text)),
        usage: reply.as_ref().and_then(|reply| reply.usage),
        notes: reply.as_ref().map(|reply| reply.notes.clone()).unwrap_or_default(),
        reply: reply.and_then(|reply| reply.value),
        class: outcome.class().map(Class::as_str),
        error,
        request,
        seconds: seconds(began, home.wall()?),
        run,
        budgets: levels.into_iter().map(|level| level.label).collect(),
        charged,
        charged_as_reserved: !reported,
    });
    Ok(outcome.exit(false))
}

/// A test's request, and the backend or the reason why it cannot be used.
type PreparedTest = (Request, Result<Arc<dyn Backend>, BackendError>);

/// Creates a test's folders in `folder`, and returns the test's request and the sandboxed backend.
fn prepared(
    home: &Env,
    here: &LoadedProject,
    spec: &BackendSpec,
    folder: &Path,
) -> Result<PreparedTest, Failure> {
    let (child, temp) = (folder.join("child"), folder.join("tmp"));
    for folder in [&child, &temp] {
        fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
    }
    let sandbox = sandbox(home, here, &child, &temp)?;
    let mut variables = env::child_environment();
    variables.extend(keyring::resolve_secrets(spec));
    let slots = slots_folder(home);
    let around = Surroundings {
        env: &variables,
        sandbox_start: Some(&sandbox),
        slots: Some(&slots),
        clock: &home.clock,
    };
    Ok((request(&child), build(spec, &around)))
}

fn request(child: &Path) -> Request {
    let schema = json!({
        "type": "object",
        "properties": { "letters": { "type": "integer" } },
        "required": ["letters"],
        "additionalProperties": false,
    });
    Request {
        id: String::new(),
        purpose: "test".to_owned(),
        instructions: QUESTION.into(),
        sources: Vec::new(),
        rule_answer: json!({ "letters": 6 }),
        offer: json!({}),
        schema: Some(schema),
        form: AnswerForm::default(),
        limits: RequestLimits {
            max_output_tokens: TOKENS,
            total: TOTAL,
            ..RequestLimits::default()
        },
        run_dir: Some(child.to_owned()),
        work: None,
    }
}

/// Returns the sandbox of a job that only sends requests. The sandbox allows network access, but
/// allows writing only to the folders `child` and `temp`.
fn sandbox(
    home: &Env,
    here: &LoadedProject,
    child: &Path,
    temp: &Path,
) -> Result<SandboxedStart, Failure> {
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| Failure::not_made(path, error));
    let state = real(&home.state)?;
    let mut sandbox = Sandbox {
        write: vec![real(child)?],
        hide: vec![state.clone()],
        network: true,
        temp: Some(real(temp)?),
        blockers: Some(state.join(FOLDER)),
        ..Sandbox::default()
    };
    let environment = env::child_environment();
    PrivateFolders::new(home, &here.config, &environment).hide(&mut sandbox, &[]);
    Ok(SandboxedStart { launcher: env::executable()?, sandbox })
}

fn seconds(began: Timestamp, ended: Timestamp) -> f64 {
    ended.duration_since(began).as_secs_f64()
}
