//! `runner backends`: lists the backends, checks whether a backend is ready, tests one with a small
//! question, and shows prices. Only the test calls a model. These commands must never show a key.

mod prices;
mod test;

use std::path::Path;

use runner_backends::check::{self, CheckItem};
use runner_backends::{BackendSpec, Surroundings, build};
use runner_engine::error_chain::plain;
use runner_engine::outcome::{Class, Exit, Outcome};
use serde::Serialize;

use super::Cli;
use super::execute::slots_folder;
use crate::config;
use crate::doctor;
use crate::env::{self, Env};
use crate::keyring;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// List the backends, check whether one is ready, or test one with a small question
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner backends check claude")]
pub struct BackendsArgs {
    #[command(subcommand)]
    command: BackendsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BackendsCommand {
    /// List the project's backends with their program, model and fallbacks
    #[command(after_help = "Example: runner backends list --json | jq -r '.[].name'")]
    List,
    /// Check whether a backend is ready: program, version, login, folders; exit code 69, 77 or 78
    /// if not
    #[command(after_help = "Example: runner backends check claude-haiku")]
    Check {
        /// The backend's name in runner.toml
        name: String,
    },
    /// Ask a backend one small question; show the request, the reply, the usage and the time
    ///
    /// The call is real and may cost money: an answer of at most 1000 tokens within two minutes. It
    /// is made in the sandbox of a job that only sends requests. It reserves 100000 tokens and
    /// $0.50 (nothing for the built-in backend), and the reported usage counts toward the budgets
    /// of the project's day and of the backend's pool.
    #[command(after_help = "Example: runner backends test claude-haiku")]
    Test {
        /// The backend's name in runner.toml
        name: String,
    },
    /// Show what the tokens of each backend's model cost, and where each price comes from
    ///
    /// The prices come from runner's own dated list. The file `prices.json` beside your config.toml
    /// overrides it and has the format of LiteLLM's model_prices_and_context_window.json. Prices set
    /// in config.toml override both. A model listed in none of them has no price: each request is
    /// charged the amount reserved for it.
    #[command(after_help = "Example: runner backends prices --json | jq '.backends'")]
    Prices,
}

impl BackendsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?.trusted_outside_jobs()?;
        match &self.command {
            BackendsCommand::List => {
                let specs = here.config.backends.values();
                cli.ui.show(&Backends(specs.map(|spec| Backend::of(cli.env, spec)).collect()));
                Ok(Exit::Done)
            }
            BackendsCommand::Check { name, .. } => check(cli, &here, name),
            BackendsCommand::Test { name } => test::run(cli, &here, name),
            BackendsCommand::Prices => prices::run(cli, &here),
        }
    }
}

/// The configured backends.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Backends<'a>(Vec<Backend<'a>>);

#[derive(Debug, Serialize)]
struct Backend<'a> {
    name: &'a str,
    kind: &'a str,
    model: Option<&'a str>,
    program: Option<String>,
    containment: Option<String>,
    fallback: &'a [String],
    /// The error from creating the backend or from its preflight check; `None` if the backend is
    /// ready.
    problem: Option<String>,
}

impl<'a> Backend<'a> {
    fn of(home: &Env, spec: &'a BackendSpec) -> Self {
        among(home, spec, |around| {
            let built = build(spec, around);
            let ready = built.as_ref().map_err(Clone::clone);
            let ready = ready.and_then(|backend| backend.preflight());
            Self {
                name: &spec.name,
                kind: spec.kind.name(),
                model: spec.kind.model(),
                program: check::program(spec, around).map(|path| path.display().to_string()),
                containment: built.ok().map(|backend| backend.describe().containment),
                fallback: &spec.fallback,
                problem: ready.err().map(|error| plain(&error.to_string())),
            }
        })
    }
}

impl View for Backends<'_> {
    fn print(&self, _ui: Ui) {
        let lines: Vec<Vec<String>> = (self.0.iter())
            .map(|one| {
                let mut about = one.problem.clone().unwrap_or_else(|| {
                    let found = one.program.as_deref().unwrap_or_default();
                    format!("ready {found}").trim_end().to_owned()
                });
                if !one.fallback.is_empty() {
                    about.push_str(&format!("; fallback: {}", one.fallback.join(", ")));
                }
                show::row([one.name, one.kind, one.model.unwrap_or("-"), &about])
            })
            .collect();
        show::out(&show::table(&lines));
    }
}

/// The result of checking one backend.
#[derive(Debug, Serialize)]
struct BackendCheck<'a> {
    name: &'a str,
    kind: &'a str,
    ready: bool,
    findings: Vec<CheckItem>,
}

impl View for BackendCheck<'_> {
    fn print(&self, _ui: Ui) {
        let lines: Vec<Vec<String>> = (self.findings.iter())
            .map(|one| {
                let mark = if one.problem.is_none() { "ok" } else { "FAILED" };
                show::row([mark, one.what, &one.said])
            })
            .collect();
        show::out(&show::table(&lines));
        for fix in self.findings.iter().filter_map(|one| one.fix.as_deref()) {
            show::out(&format!("  fix: {fix}\n"));
        }
    }
}

/// Calls `inspect` with the environment that a run would give to this backend, without the sandbox.
fn among<T>(home: &Env, spec: &BackendSpec, inspect: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let mut env = env::child_environment();
    env.extend(keyring::resolve_secrets(spec));
    let slots = slots_folder(home);
    let clock = &home.clock;
    inspect(&Surroundings { env: &env, sandbox_start: None, slots: Some(&slots), clock })
}

fn configured<'h>(here: &'h LoadedProject, name: &str) -> Result<&'h BackendSpec, Failure> {
    let backends = &here.config.backends;
    backends.get(name).ok_or_else(|| {
        let near = config::did_you_mean(name, backends.keys().map(String::as_str));
        let what = format!("there is no [backends.{name}]{near}");
        Failure::configuration(what).hint("runner backends list")
    })
}

fn check(cli: &Cli<'_>, here: &LoadedProject, name: &str) -> Result<Exit, Failure> {
    let spec = configured(here, name)?;
    let marker = env::marker()?;
    let mut findings = among(cli.env, spec, |around| check::check(spec, around, &marker));
    findings.push(state(cli.env));
    findings.push(describe_sandbox(spec));
    for finding in &mut findings {
        finding.said = plain(&finding.said);
    }
    let worst = findings.iter().find_map(|finding| finding.problem);
    let ready = worst.is_none();
    cli.ui.show(&BackendCheck { name, kind: spec.kind.name(), ready, findings });
    Ok(worst.map_or(Exit::Done, |class| {
        let why = String::new();
        Outcome::Failed { class, why }.exit(true)
    }))
}

/// Checks that runner's state folder, or its nearest existing ancestor, is writable.
fn state(home: &Env) -> CheckItem {
    let there = home.state.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let writable = rustix::fs::access(there, rustix::fs::Access::WRITE_OK);
    CheckItem {
        what: "runner",
        said: match &writable {
            Ok(()) => home.state.display().to_string(),
            Err(error) => format!("{} cannot be written: {error}", there.display()),
        },
        problem: writable.err().map(|_| Class::Environment),
        fix: None,
    }
}

/// Describes the sandbox that a run would get. The built-in backend starts no process, so it needs
/// no sandbox.
fn describe_sandbox(spec: &BackendSpec) -> CheckItem {
    let (said, missing) = match doctor::sandbox::describe() {
        Ok(said) => (said, false),
        Err(why) => (why, true),
    };
    CheckItem {
        what: "sandbox",
        problem: (missing && !spec.is_builtin()).then_some(Class::Environment),
        said,
        fix: None,
    }
}
