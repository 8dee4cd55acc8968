//! `runner backends`: lists the backends and checks whether one is ready. These commands must never
//! ask a model, and never show a key.

mod prices;

use std::path::Path;

use runner_backends::check::{self, CheckItem};
use runner_backends::{BackendSpec, Surroundings, build};
use runner_engine::error_chain::plain;
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_text::nearest::nearest;
use serde::Serialize;

use super::execute::slots_folder;
use crate::cli::Failure;
use crate::cli::args::{BackendsCommand, Listing};
use crate::cli::show;
use crate::doctor;
use crate::env::{self, Env};
use crate::keyring;
use crate::project::LoadedProject;

/// The JSON form of a backend.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    kind: &'a str,
    model: Option<&'a str>,
    program: Option<String>,
    containment: Option<String>,
    fallback: &'a [String],
    /// The result of the preflight, if it failed.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct CheckResult<'a> {
    name: &'a str,
    kind: &'a str,
    ready: bool,
    findings: &'a [CheckItem],
}

/// Carries out one of the `backends` commands.
pub fn run(home: &Env, here: &Path, command: &BackendsCommand) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
    match command {
        BackendsCommand::List { listing } => list(home, &here, *listing),
        BackendsCommand::Check { name, listing } => check(home, &here, name, *listing),
        BackendsCommand::Prices { listing } => prices::run(home, &here, *listing),
    }
}

/// Calls `look` with the environment that a run would give to this backend.
fn among<T>(home: &Env, spec: &BackendSpec, look: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let mut env = env::child_environment();
    env.extend(keyring::resolve_secrets(spec));
    let slots = slots_folder(home);
    look(&Surroundings { env: &env, sandbox_start: None, slots: Some(&slots), clock: &home.clock })
}

fn list(home: &Env, here: &LoadedProject, listing: Listing) -> Result<Exit, Failure> {
    let all: Vec<Listed<'_>> = (here.config.backends.values())
        .map(|spec| {
            among(home, spec, |around| {
                let built = build(spec, around);
                let ready = built.as_ref().map_err(Clone::clone);
                let ready = ready.and_then(|backend| backend.preflight());
                Listed {
                    name: &spec.name,
                    kind: &spec.kind,
                    model: spec.model.as_deref(),
                    program: check::program(spec, around).map(|path| path.display().to_string()),
                    containment: built.ok().map(|backend| backend.describe().containment),
                    fallback: &spec.fallback,
                    problem: ready.err().map(|error| plain(&error.to_string())),
                }
            })
        })
        .collect();
    if listing.json {
        show::json(&all);
        return Ok(Exit::Done);
    }
    let lines: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let mut about = one.problem.clone().unwrap_or_else(|| {
                let found = one.program.clone().unwrap_or_default();
                format!("ready {found}").trim_end().to_owned()
            });
            if !one.fallback.is_empty() {
                about.push_str(&format!("; else {}", one.fallback.join(", ")));
            }
            vec![
                one.name.to_owned(),
                one.kind.to_owned(),
                one.model.unwrap_or("-").to_owned(),
                about,
            ]
        })
        .collect();
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

fn check(home: &Env, here: &LoadedProject, name: &str, listing: Listing) -> Result<Exit, Failure> {
    let backends = &here.config.backends;
    let Some(spec) = backends.get(name) else {
        let near = nearest(name, backends.keys().map(String::as_str))
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        let what = format!("there is no [backends.{name}]{near}");
        return Err(Failure::configuration(what).hint("runner backends list"));
    };
    let marker = env::marker()?;
    let mut findings = among(home, spec, |around| check::check(spec, around, &marker));
    findings.push(state(home));
    findings.push(describe_sandbox(&spec.kind));
    for finding in &mut findings {
        finding.said = plain(&finding.said);
    }
    let worst = findings.iter().find_map(|finding| finding.problem);
    if listing.json {
        show::json(&CheckResult {
            name,
            kind: &spec.kind,
            ready: worst.is_none(),
            findings: &findings,
        });
    } else {
        let lines: Vec<Vec<String>> = findings
            .iter()
            .map(|one| {
                let mark = if one.problem.is_none() { "ok" } else { "FAILED" };
                [mark, one.what, &one.said].map(str::to_owned).into()
            })
            .collect();
        show::out(&show::table(&lines));
    }
    Ok(worst.map_or(Exit::Done, |class| {
        let why = String::new();
        Outcome::Failed { class, why }.exit(true)
    }))
}

/// Checks that runner's own folder can be written.
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
    }
}

/// Describes the sandbox that a run would get. A backend within this program starts no process.
fn describe_sandbox(kind: &str) -> CheckItem {
    let (said, missing) = match doctor::sandbox::describe() {
        Ok(said) => (said, false),
        Err(why) => (why, true),
    };
    CheckItem {
        what: "sandbox",
        problem: (missing && kind != "builtin").then_some(Class::Environment),
        said,
    }
}
