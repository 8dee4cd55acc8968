//! The `runner lifecycle` commands: show an agent's cycle and the agent's position in it, and make
//! one manual step.

use runner_text::counted;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::error_chain::whole;
use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::scope::{Expect, Scope};
use runner_engine::store::RunFilter;
use runner_jobs::failmark;
use runner_jobs::lifecycle::cycle::{BUILT_IN, BadCycle, CycleSpec, declared};
use runner_jobs::lifecycle::orient::orient;
use runner_jobs::lifecycle::position::{self, Position};
use runner_jobs::lifecycle::spec::{CycleState, Spec, SpecError, StateKind};
use runner_jobs::lifecycle::step::{CycleStep, TickFacts, step};
use runner_jobs::manual_edit::{self, ManualEdit};
use serde_json::json;

use super::{board, run as by_hand};
use crate::commands::args::lifecycle::LifecycleCommand;
use crate::cycles;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui, safe, show};

/// Job name of a run that sets a position manually. No configured job can have this name.
pub const GOTO: &str = "lifecycle:goto";

/// Carries out a `lifecycle` command.
pub fn run(
    home: &Env,
    here: &Path,
    command: &LifecycleCommand,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
    match command {
        LifecycleCommand::Check { file, agent, .. } => {
            let file = file.as_ref().map(|file| home.here.join(file));
            let file = match file {
                Some(file) => Some(file.display().to_string()),
                None => cycles::file(&of_agent(&here, &agent.agent).1),
            };
            check(&here, file.as_deref(), manner.ui)
        }
        LifecycleCommand::Show { agent, .. } => states(home, &here, &agent.agent, manner.ui),
        LifecycleCommand::Tick { agent, .. } => {
            let (job, _) = named(&here, &agent.agent)?;
            let how = by_hand::ManualRun {
                manner,
                follow: false,
                deferral_is_normal: true,
                settings: Vec::new(),
            };
            by_hand::once(home, &here, job, None, how)
        }
        LifecycleCommand::Goto { state, agent, .. } => {
            goto(home, &here, state, &agent.agent, manner.ui)
        }
        LifecycleCommand::Orient { kind, which, .. } => {
            let scope = Scope::open(&here.root, &[], ".runner/staging/look")
                .map_err(|error| Failure::environment(whole(&error)))?;
            let reported = orient(&scope, &board::path(&here, which), &which.agent);
            if manner.ui.json {
                show::json(&reported);
            } else {
                for line in reported.lines((*kind).into(), None) {
                    show::out(&format!("{}\n", safe::line(&line)));
                }
            }
            Ok(Exit::Done)
        }
        LifecycleCommand::History { limit, agent, .. } => {
            history(home, &here, &agent.agent, *limit, manner.ui)
        }
    }
}

/// Returns the job that is the cycle of an agent, and its settings. Without such a job it returns
/// the settings of the built-in cycle.
fn of_agent(here: &LoadedProject, agent: &str) -> (Option<String>, CycleSpec) {
    let found = here.config.jobs.iter().find_map(|(name, job)| {
        let cycle = job.spec.kind.of::<CycleSpec>()?;
        (cycle.agent == agent).then(|| (name.clone(), cycle.clone()))
    });
    match found {
        Some((name, cycle)) => (Some(name), cycle),
        None => {
            let cycle = CycleSpec { agent: agent.to_owned(), ..CycleSpec::default() };
            (None, cycle)
        }
    }
}

/// Returns the job that is the cycle of an agent, or an error if there is none.
fn named<'h>(here: &'h LoadedProject, agent: &str) -> Result<(&'h str, &'h CycleSpec), Failure> {
    let cycles = || {
        here.config
            .jobs
            .iter()
            .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<CycleSpec>()?)))
    };
    if let Some(found) = cycles().find(|(_, cycle)| cycle.agent == agent) {
        return Ok(found);
    }
    let agents: Vec<&str> = cycles().map(|(_, cycle)| cycle.agent.as_str()).collect();
    Err(if agents.is_empty() {
        Failure::configuration("this project has no job of kind lifecycle")
            .hint("runner config set jobs.lifecycle.kind lifecycle")
    } else {
        let whose = if agent.is_empty() {
            "no cycle of an agent without a name".to_owned()
        } else {
            format!("no cycle of an agent {agent:?}")
        };
        Failure::usage(format!("this project has {whose}; it has: {}", agents.join(", ")))
            .hint(format!("add --agent {}", agents[0]))
    })
}

fn check(here: &LoadedProject, file: Option<&str>, ui: Ui) -> Result<Exit, Failure> {
    let path = file.unwrap_or(BUILT_IN).to_owned();
    let mistakes = match declared(&here.root, file) {
        Ok(spec) => of_project(here, &spec),
        Err(BadCycle::Mistakes { mistakes, .. }) => mistakes,
        Err(error @ BadCycle::Unreadable { .. }) => return Err(Failure::data(error.to_string())),
    };
    if ui.json {
        show::json(&json!({ "file": path, "mistakes": mistakes }));
    } else {
        for SpecError { line, why } in &mistakes {
            show::out(&format!("{path}:{line}: {}\n", safe::line(why)));
        }
        if mistakes.is_empty() {
            show::out("ok\n");
        }
    }
    Ok(if mistakes.is_empty() { Exit::Done } else { Exit::Configuration })
}

/// Lists the parts of a cycle that do not fit this project.
fn of_project(here: &LoadedProject, spec: &Spec) -> Vec<SpecError> {
    let mut found = Vec::new();
    for CycleState { backend, prompt, line, .. } in &spec.states {
        if let Some(backend) = backend.as_ref().filter(|it| !here.config.backends.contains_key(*it))
        {
            let known: Vec<&str> = here.config.backends.keys().map(String::as_str).collect();
            let why = format!("there is no [backends.{backend}] (there are: {})", known.join(", "));
            found.push(SpecError { line: *line, why });
        }
        let file = prompt.as_ref().filter(|it| !it.contains(char::is_whitespace));
        let file = file.filter(|it| it.contains(['.', '/']));
        if let Some(file) = file.filter(|it| !here.root.join(it).is_file()) {
            let why = format!("PROMPT names {file}, but there is no such file");
            found.push(SpecError { line: *line, why });
        }
    }
    found
}

fn states(home: &Env, here: &LoadedProject, agent: &str, ui: Ui) -> Result<Exit, Failure> {
    let (job, cycle) = of_agent(here, agent);
    let spec = cycles::cycle_of(&here.root, &cycle)?;
    let at = position::read(&here.root, agent, &spec).map_err(|error| bad(&error, &spec))?;
    let now = home.wall()?;
    let failures = match (&job, home.store_to_read()?) {
        (Some(job), Some(store)) => match store.job(&here.id, job) {
            Ok(row) => store.streak(row.id)?.failures,
            Err(_) => 0,
        },
        _ => 0,
    };
    let failed = job.as_deref().map(failmark::of_job);
    let failed = failed.and_then(|mark| failmark::read_at(&here.root, &mark));
    let mut rows = Vec::new();
    let mut reported = Vec::new();
    for state in &spec.states {
        let here_now = state.name == at.state;
        let ran =
            position::ran(&here.root, agent, &state.name).map_err(|error| bad(&error, &spec))?;
        let facts = TickFacts {
            ran,
            failures: if here_now { failures } else { 0 },
            failed: failed.as_ref().map(|mark| mark.at),
        };
        let gate = match step(state, &facts, now) {
            CycleStep::Gate { until, .. } => Some(until),
            CycleStep::Go => None,
        };
        let mark = if here_now { "→" } else { " " };
        let times = match (state.repeat, here_now) {
            (1, _) => String::new(),
            (most, true) => format!("{} of {most}", at.hits),
            (most, false) => format!("×{most}"),
        };
        let said = [
            ran.map(|ran| format!("ran {}", show::format_time(ran))),
            gate.map(|until| format!("gate until {}", show::format_time(until))),
        ];
        rows.push(vec![
            format!("{mark} {}", state.name),
            state.kind.as_str().to_owned(),
            times,
            format!("then {}", state.next),
            said.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]);
        reported.push(json!({
            "name": state.name, "kind": state.kind, "next": state.next, "repeat": state.repeat,
            "min_interval_s": state.min_interval.map(|it| it.as_secs()),
            "backend": state.backend, "line": state.line,
            "ran": ran.map(|ran: Timestamp| ran.to_string()),
            "gate_until": gate.map(|until: Timestamp| until.to_string()),
        }));
    }
    if ui.json {
        show::json(&json!({
            "file": cycles::file(&cycle).unwrap_or_else(|| BUILT_IN.to_owned()),
            "job": job, "agent": agent, "failures": failures,
            "position": { "state": at.state, "hits": at.hits },
            "states": reported,
        }));
        return Ok(Exit::Done);
    }
    show::out(&show::table(&rows));
    if failures > 0 {
        let why =
            failed.map_or_else(String::new, |mark| format!(": {}", safe::line(&mark.message)));
        show::out(&format!("held after {} in a row{why}\n", counted(failures, "failure")));
    }
    if job.is_none() {
        show::out("no job runs it: there is no job of kind lifecycle\n");
    }
    Ok(Exit::Done)
}

/// Prints the steps of the cycle with the result of each tick, the newest first.
fn history(
    home: &Env,
    here: &LoadedProject,
    agent: &str,
    limit: u32,
    ui: Ui,
) -> Result<Exit, Failure> {
    let (job, _) = named(here, agent)?;
    let mut rows = Vec::new();
    if let Some(store) = home.store_to_read()? {
        let known = store.jobs(&here.id)?.into_iter().find(|row| row.name == job);
        if let Some(row) = known {
            let filter = RunFilter {
                project: Some(here.id.clone()),
                job: Some(row.id),
                limit,
                ..RunFilter::default()
            };
            rows = store.runs(&filter)?;
        }
    }
    if ui.json {
        let reported: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "run": row.id, "at": row.requested, "outcome": row.outcome(),
                    "headline": row.summary.headline, "facts": row.summary.facts,
                })
            })
            .collect();
        show::json(&reported);
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        show::out("no step was made yet; `runner lifecycle tick` makes the first\n");
        return Ok(Exit::Done);
    }
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let outcome = row.outcome();
            let word = outcome.map_or("open", |outcome| outcome.as_str());
            let said = match row.summary.headline.as_str() {
                "" => outcome.and_then(|outcome| outcome.why()).unwrap_or_default(),
                headline => headline,
            };
            vec![show::format_time(row.requested), word.to_owned(), safe::line(said)]
        })
        .collect();
    show::out(&show::table(&lines));
    Ok(Exit::Done)
}

fn bad(error: &position::BadPosition, spec: &Spec) -> Failure {
    Failure::environment(safe::line(&runner_engine::error_chain::whole(error)))
        .hint(format!("runner lifecycle goto {}", spec.first().name))
}

fn goto(
    home: &Env,
    here: &LoadedProject,
    wanted: &str,
    agent: &str,
    ui: Ui,
) -> Result<Exit, Failure> {
    let (_, cycle) = named(here, agent)?;
    let spec = cycles::cycle_of(&here.root, cycle)?;
    let Some(state) = spec.state(wanted) else {
        let names: Vec<&str> = spec.states.iter().map(|it| it.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "the cycle has no state {wanted:?} (it has: {})",
            names.join(", ")
        )));
    };
    let mut store = home.store()?;
    here.register(&mut store, home.wall()?)?;
    let me = ProcessIdentity::me();
    let mut hand = board::hand(home, here, &me, &mut store)?;
    let mut held = hand.lock(GOTO).map_err(board::act_failure)?;
    let path = position::path(agent);
    let position = Position::at(&state.name);
    let act = ManualEdit {
        job: GOTO,
        allowed: &[".runner"],
        staging: manual_edit::STAGING,
        headline: format!("set to {}", state.name),
        lines: Vec::new(),
    };
    let run = hand
        .place(&mut held, &act, &mut |scope, _, _| {
            // The position is set anew whatever the file contains now, even if it is invalid.
            let seen = scope.inspect(&path, 1 << 20)?;
            let expect =
                seen.map_or(Expect::Absent, |(bytes, _)| Expect::Digest(Digest::of(&bytes)));
            scope.stage(&path, format!("{position}\n").as_bytes(), expect)?;
            Ok(())
        })
        .map_err(board::act_failure)?;
    if ui.json {
        show::json(&json!({ "state": state.name, "hits": 0, "run": run.to_string() }));
    } else {
        let kind = if state.kind == StateKind::Rem { "the dream" } else { "a run" };
        ui.info(&format!("{} is next ({kind})", state.name));
    }
    Ok(Exit::Done)
}
