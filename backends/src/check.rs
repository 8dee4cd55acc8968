//! Checks everything that a backend instance needs, for `runner backends check`, without calling a
//! model.
//!
//! A check may start the program to read its version, or contact the API. A check must never spend
//! anything and never reveal a key.

use runner_text::counted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::outcome::Class;
use runner_engine::process::{
    Cancel, ChildSandbox, ChildSpec, ExitStatus, Limits, OutputVerdict, Stdin, find_program, run,
};
use serde::Serialize;

use crate::agent::AgentPlan;
pub use crate::api::probe::ListedModel;
use crate::api::{plan, probe};
use crate::registry::{Surroundings, agent_plan, build};
use crate::{BackendError, BackendKind, BackendSpec, child, credentials};

/// Maximum time for a program to print its version.
const VERSION: Duration = Duration::from_secs(10);

/// A checked item and the result of its check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckItem {
    /// The name of the item: `program`, `version`, `login`, `state`, `settings`, `endpoint`, `key`,
    /// `model`, `window`.
    pub what: &'static str,
    /// The finding, as text.
    pub said: String,
    /// The problem's failure class, if there is a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Class>,
    /// The command that fixes the problem, if one command can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl CheckItem {
    fn good(what: &'static str, said: impl Into<String>) -> Self {
        Self { what, said: said.into(), problem: None, fix: None }
    }

    fn of(what: &'static str, error: &BackendError) -> Self {
        Self { what, said: error.to_string(), problem: Some(error.class()), fix: None }
    }
}

/// Checks everything that this backend needs. `marker` marks the processes that the check starts.
pub fn check(spec: &BackendSpec, around: &Surroundings<'_>, marker: &str) -> Vec<CheckItem> {
    check_and_list(spec, around, marker).0
}

/// Checks everything that this backend needs, and returns the models that an API lists.
pub fn check_and_list(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
    marker: &str,
) -> (Vec<CheckItem>, Vec<ListedModel>) {
    let mut models = Vec::new();
    (findings(spec, around, marker, &mut models), models)
}

fn findings(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
    marker: &str,
    models: &mut Vec<ListedModel>,
) -> Vec<CheckItem> {
    match &spec.kind {
        BackendKind::Api(..) => endpoint(spec, around, models),
        BackendKind::Agent(kind, settings, child) => {
            match agent_plan(spec, (kind, settings, child), around) {
                Ok(plan) => agent(&plan, marker),
                Err(error) => vec![CheckItem::of("settings", &error)],
            }
        }
        // Other kinds are checked only by their preflight check.
        BackendKind::Builtin | BackendKind::Command(..) | BackendKind::Replay(_) => {
            let backend = match build(spec, around) {
                Ok(backend) => backend,
                Err(error) => return vec![CheckItem::of("settings", &error)],
            };
            vec![match backend.preflight() {
                Ok(()) => {
                    CheckItem::good("program", program_name(spec).unwrap_or("none is needed"))
                }
                Err(error) => CheckItem::of("program", &error),
            }]
        }
    }
}

/// Checks an agent's variables, program, login and state folder.
fn agent(plan: &AgentPlan, marker: &str) -> Vec<CheckItem> {
    let mut findings = Vec::new();
    if !plan.missing.is_empty() {
        let why = format!("these variables are not set: {}", plan.missing.join(", "));
        findings.push(CheckItem::of("settings", &BackendError::Rejected { why }));
    }
    match plan.find() {
        Ok(path) => {
            findings.push(CheckItem::good("program", path.display().to_string()));
            findings.push(version(plan, &path, marker));
        }
        Err(error) => findings.push(CheckItem::of("program", &error)),
    }
    findings.push(match credentials::plausible(plan) {
        Ok(found) => CheckItem::good("login", found),
        Err(error) => CheckItem::of("login", &error),
    });
    findings.push(state(plan));
    findings
}

/// Checks which server answers at an API's address, whether the server accepts the key, and whether
/// it has the model.
fn endpoint(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
    models: &mut Vec<ListedModel>,
) -> Vec<CheckItem> {
    let mut named = spec.clone();
    // The list of models can be shown even if no model is configured.
    let unnamed = spec.kind.model().is_none_or(str::is_empty);
    if unnamed {
        named.kind.set_model("none".to_owned());
    }
    let plan = match plan::EndpointPlan::of(&named, around) {
        Ok(plan) => plan,
        Err(error) => return vec![CheckItem::of("settings", &error)],
    };
    let mut findings = Vec::new();
    match (plan.secret(), &plan.key) {
        (Ok(_), Some((name, _))) => {
            findings.push(CheckItem::good("key", format!("{name} is set, for {}", plan.host())));
        }
        (Ok(_), None) => findings.push(CheckItem::good("key", "none is sent")),
        (Err(error), _) => {
            // Without the key, further requests would reveal nothing more.
            findings.push(CheckItem::of("key", &error));
            return findings;
        }
    }
    let found = match probe::find(&plan) {
        Ok(found) => found,
        Err(error) => {
            let what = match &error {
                BackendError::Auth { .. } => "key",
                _ => "endpoint",
            };
            findings.push(CheckItem::of(what, &error));
            return findings;
        }
    };
    let count = match &found.models {
        Some(models) => format!("{}, {}", found.who, counted(models.len(), "model")),
        None => format!("{}, which does not list its models", found.who),
    };
    findings.push(CheckItem::good("endpoint", count));
    findings.push(match probe::has_model(&plan, &found) {
        Err(error) if unnamed => {
            let why = format!("backends.{}.model is not set: {error}", spec.name);
            CheckItem::of("model", &BackendError::Rejected { why })
        }
        Err(error) => CheckItem::of("model", &error),
        Ok(()) if unnamed => {
            let why = format!("backends.{}.model is not set", spec.name);
            CheckItem::of("model", &BackendError::Rejected { why })
        }
        Ok(()) if found.models.is_none() => CheckItem::good(
            "model",
            format!("{} (not verified: the endpoint does not list its models)", plan.model),
        ),
        Ok(()) => CheckItem::good("model", plan.model.clone()),
    });
    findings.extend(window(&plan, &found));
    models.extend(found.models.unwrap_or_default());
    findings
}

/// Compares the configured context window with the one that the server reports. Returns `None` if
/// the configured one fits, or if the server reports none.
fn window(plan: &plan::EndpointPlan, found: &probe::Endpoint) -> Option<CheckItem> {
    let listed = found.models.iter().flatten().find(|it| probe::is_model(plan, &it.name))?;
    let window = listed.window?;
    let setting = format!("backends.{}.context_window", plan.name);
    let fix = format!("runner config set {setting} {window}");
    match plan.context_window {
        Some(set) if set > window => Some(CheckItem {
            what: "window",
            said: format!("{setting} is {set}, but the server's window is {window} tokens"),
            problem: Some(Class::Environment),
            fix: Some(fix),
        }),
        None if window < crate::WINDOW => Some(CheckItem::good(
            "window",
            format!("the server's window is {window} tokens; to use all of it: {fix}"),
        )),
        _ => None,
    }
}

fn version(plan: &AgentPlan, program: &Path, marker: &str) -> CheckItem {
    let spec = ChildSpec {
        program: program.to_owned(),
        args: vec![OsString::from("--version")],
        cwd: PathBuf::from("/"),
        env: plan.env.clone(),
        stdin: Stdin::Null,
        limits: Limits { total: Some(VERSION), output_cap: 64 * 1024, ..Limits::default() },
        marker: marker.to_owned(),
        sandbox: ChildSandbox::Off,
    };
    let bad = |why: String| {
        let error = BackendError::NotInstalled {
            what: program.display().to_string(),
            hint: format!("{why}; {}", credentials::install(plan.kind)),
        };
        CheckItem::of("version", &error)
    };
    let ended = Cancel::new().map_err(|error| error.to_string()).and_then(|cancel| {
        run(&spec, &cancel, &mut |_, _| OutputVerdict::Continue)
            .map_err(|error| child::spawn_error(&error).to_string())
    });
    match ended {
        Ok(ended) if ended.is_success() && ended.status == ExitStatus::Exit(0) => {
            let said = String::from_utf8_lossy(&ended.stdout);
            let first = said.lines().next().unwrap_or_default().trim();
            CheckItem::good("version", first.chars().take(80).collect::<String>())
        }
        Ok(ended) => bad(format!("--version ended with {}", ended.status)),
        Err(why) => bad(why),
    }
}

/// Checks that the program can write to its state folder or create it.
fn state(plan: &AgentPlan) -> CheckItem {
    let Some(home) = credentials::home(plan) else {
        let why = "HOME is not set, so the program has no state folder".to_owned();
        return CheckItem::of("state", &BackendError::Rejected { why });
    };
    let existing = home.ancestors().find(|path| path.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    match rustix::fs::access(existing, rustix::fs::Access::WRITE_OK) {
        Ok(()) => CheckItem::good("state", home.display().to_string()),
        Err(error) => {
            let why = format!(
                "{} is not writable ({error}); set another folder with `state`",
                existing.display()
            );
            CheckItem::of("state", &BackendError::Rejected { why })
        }
    }
}

/// Returns the configured or default name of the program that the backend starts, if any.
pub fn program_name(spec: &BackendSpec) -> Option<&str> {
    match &spec.kind {
        BackendKind::Command(own, _) => Some(&own.program),
        BackendKind::Agent(kind, own, _) => Some(own.program.as_deref().unwrap_or(kind.name())),
        BackendKind::Builtin | BackendKind::Api(..) | BackendKind::Replay(_) => None,
    }
}

/// Returns the path of the backend's program, if the backend starts one and it is found.
pub fn program(spec: &BackendSpec, around: &Surroundings<'_>) -> Option<PathBuf> {
    let path = around.env.get("PATH").map_or("", String::as_str);
    find_program(Path::new(program_name(spec)?), Path::new("/"), path).ok()
}
