//! `runner backends test NAME`: asks a backend one small question, and shows the request, the reply,
//! the usage and the time.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::{
    AnswerForm, BackendError, NullSink, Reply, Request, RequestLimits, Surroundings, build,
};
use runner_engine::error_chain::plain;
use runner_engine::ids::RunId;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::process::Cancel;
use runner_engine::sandbox::placeholders::FOLDER;
use runner_engine::sandbox::{Sandbox, SandboxedStart};
use runner_text::redact::Redacted;
use serde::Serialize;
use serde_json::{Value, json};

use super::slots_folder;
use crate::commands::Cli;
use crate::env::{self, Env};
use crate::guard::private_paths::PrivateFolders;
use crate::keyring;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// The question. Its answer by rule is the correct answer.
const QUESTION: &str = "Count the letters of the word \"runner\".";
/// Maximum length of the answer in tokens.
const TOKENS: u64 = 1_000;
/// Maximum time for the answer.
const TOTAL: Duration = Duration::from_secs(120);

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
}

/// Asks the backend `name`. The call is real; no budget counts it.
pub(super) fn run(cli: &Cli<'_>, here: &LoadedProject, name: &str) -> Result<Exit, Failure> {
    let spec = super::configured(here, name)?;
    let home = cli.env;
    let began = home.wall()?;
    let id = RunId::new(began);
    let folder = home.run_folder(id.as_str());
    let (child, temp) = (folder.join("child"), folder.join("tmp"));
    for folder in [&child, &temp] {
        fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
    }
    let request = request(&id, &child);
    let sandbox = sandbox(home, &child, &temp)?;
    let mut variables = env::child_environment();
    variables.extend(keyring::resolve_secrets(spec));
    let slots = slots_folder(home);
    let around = Surroundings {
        env: &variables,
        sandbox_start: Some(&sandbox),
        slots: Some(&slots),
        clock: &home.clock,
    };
    let (described, asked) = match build(spec, &around) {
        Ok(backend) => {
            let asked = ask(&*backend, &request);
            (Some(backend.describe()), asked)
        }
        Err(error) => (None, Err(error)),
    };
    let _not_needed_any_more = fs::remove_dir_all(&folder);
    let shown = |text: &str| Redacted::of(&plain(text)).head(2_000).into_string();
    let failed = asked.as_ref().err().map(BackendError::class);
    let test = BackendTest {
        name,
        kind: &spec.kind,
        model: described.as_ref().and_then(|it| it.model.clone()).or(spec.model.clone()),
        containment: described.map(|it| it.containment).unwrap_or_default(),
        reply: asked.as_ref().ok().and_then(|reply| reply.value.clone()),
        text: asked.as_ref().ok().map(|reply| shown(&reply.text)),
        usage: asked.as_ref().ok().and_then(|reply| reply.usage),
        notes: asked.as_ref().map_or_else(|_| Vec::new(), |reply| reply.notes.clone()),
        class: failed.map(runner_engine::outcome::Class::as_str),
        error: asked.as_ref().err().map(|error| shown(&error.to_string())),
        request,
        seconds: seconds(began, home.wall()?),
    };
    cli.ui.show(&test);
    Ok(failed.map_or(Exit::Done, |class| Outcome::Failed { class, why: String::new() }.exit(true)))
}

fn request(id: &RunId, child: &std::path::Path) -> Request {
    let schema = json!({
        "type": "object",
        "properties": { "letters": { "type": "integer" } },
        "required": ["letters"],
        "additionalProperties": false,
    });
    Request {
        id: format!("{id}/1"),
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

/// Returns the sandbox of a job that only asks: it may write its own folder, and use the network.
fn sandbox(
    home: &Env,
    child: &std::path::Path,
    temp: &std::path::Path,
) -> Result<SandboxedStart, Failure> {
    let real = |path: &std::path::Path| {
        fs::canonicalize(path).map_err(|error| Failure::not_made(path, error))
    };
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
    let person = environment.get("HOME").map(std::path::Path::new);
    PrivateFolders { home: person, user_config: &home.user_config }.hide(&mut sandbox, &[]);
    Ok(SandboxedStart { launcher: env::executable()?, sandbox })
}

fn ask(backend: &dyn runner_backends::Backend, request: &Request) -> Result<Reply, BackendError> {
    backend.preflight()?;
    let unavailable = |what: &str, error: &std::io::Error| BackendError::Unavailable {
        why: format!("cannot create {what}: {error}"),
    };
    let cancel = Cancel::new().map_err(|error| unavailable("a cancel token", &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unavailable("a runtime", &error))?;
    runtime.block_on(backend.run(request, &mut NullSink, &cancel))
}

fn seconds(began: Timestamp, ended: Timestamp) -> f64 {
    ended.duration_since(began).as_secs_f64()
}
