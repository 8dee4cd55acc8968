//! `runner curator`: shows the state of the local curator, fills its queue and processes it.
//!
//! The processing itself is done by runs of the job of kind `curator`; this module handles no job
//! file. It must never wait for an engine longer than the two seconds that a status check may take.

mod diagnose;
mod events;
mod model;
mod probe;
mod setup;
mod text;
mod work;

use std::io;
use std::path::Path;

use runner_engine::outcome::Exit;
use runner_jobs::curator::queue::Worker;
use runner_jobs::curator::{Source, compact};
use serde_json::json;

use crate::commands::args::curator::CuratorCommand;
use crate::config::curator::kind as kind_of;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui, show};

const SCHEMA: &str = include_str!("../../../config/schemas/curator-status.schema.json");

/// Carries out one of the `curator` commands.
pub fn run(
    home: &Env,
    here: &Path,
    command: &CuratorCommand,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    if let CuratorCommand::Status { schema: true, .. } = command {
        show::out(SCHEMA);
        return Ok(Exit::Done);
    }
    let project = LoadedProject::load(home, here)?;
    match command {
        CuratorCommand::Status { .. } => {
            let standing = model::gather(&project, home.wall()?);
            match manner.ui.json {
                true => show::json(&standing),
                false => show::out(&text::text(&standing)),
            }
            Ok(Exit::Done)
        }
        CuratorCommand::Diagnose { .. } => diagnose::run(home, &project, manner.ui),
        CuratorCommand::Enqueue { kind, source, chunk_start, chunk_end, priority, .. } => {
            let source = match source {
                None => None,
                Some(path) => Some(Source {
                    path: named(home, path)?,
                    chunk_start: *chunk_start,
                    chunk_end: *chunk_end,
                }),
            };
            enqueue(home, &project, kind, source, *priority, manner.ui)
        }
        CuratorCommand::Work { once, watch, job, .. } => {
            work::run(home, &project, job.as_deref(), (*once, *watch), manner)
        }
        CuratorCommand::Compact { how, .. } => compact(home, &project, how.apply, manner.ui),
        CuratorCommand::Event {
            source,
            severity,
            desired_action,
            escalation_target,
            budget,
            note,
            ..
        } => {
            let wish = runner_jobs::curator::events::NewEvent {
                source: source.clone(),
                severity: events::severity(*severity),
                desired_action: desired_action.clone(),
                escalation_target: escalation_target.clone(),
                budget: *budget,
                note: note.clone(),
            };
            events::raise(home, &project, wish, manner.ui)
        }
        CuratorCommand::Events { command, all, .. } => {
            events::run(home, &project, command.as_ref(), *all, manner)
        }
        CuratorCommand::Setup { apply } => setup::run(home, &project, *apply, manner.ui),
    }
}

fn worker(project: &LoadedProject) -> Result<Worker, Failure> {
    let dir = &project.config.curator.spec.worker_dir;
    Worker::of(&project.root, dir).map_err(|why| {
        Failure::configuration(why).hint("runner config set curator.worker_dir .runner/curator")
    })
}

fn disk(worker: &Worker, error: &io::Error) -> Failure {
    let folder = worker.folder().display();
    Failure::cannot_write(format!("the worker's folder {folder} cannot be used: {error}"))
        .hint(format!("ls -ld {folder}"))
}

/// Resolves a path so that it means the same in every working directory.
fn named(home: &Env, path: &Path) -> Result<String, Failure> {
    let whole = std::fs::canonicalize(home.here.join(path))
        .map_err(|error| Failure::data(format!("--source {}: {error}", path.display())))?;
    whole.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::data(format!("--source {}: the path must be UTF-8", whole.display()))
    })
}

fn enqueue(
    home: &Env,
    project: &LoadedProject,
    kind: &str,
    source: Option<Source>,
    priority: i32,
    ui: Ui,
) -> Result<Exit, Failure> {
    let listed = &project.config.curator.spec.kinds;
    let known = kind_of(kind).map_err(|why| Failure::usage(format!("--kind: {why}")))?;
    if !listed.contains(&known) {
        let words: Vec<&str> = listed.iter().map(|kind| kind.as_str()).collect();
        return Err(Failure::usage(format!(
            "--kind {kind}: [curator] kinds lists only {}",
            words.join(", ")
        ))
        .hint("runner config show curator.kinds"));
    }
    if known == runner_jobs::curator::job::CuratorJobKind::IngestClaudeSession && source.is_none() {
        return Err(Failure::usage(format!(
            "--kind {kind} needs --source, the path of the transcript"
        )));
    }
    if let Some(source) = &source
        && let (Some(start), Some(end)) = (source.chunk_start, source.chunk_end)
        && end < start
    {
        return Err(Failure::usage(format!(
            "--chunk-end {end} comes before --chunk-start {start}"
        )));
    }
    let worker = worker(project)?;
    let job = worker
        .enqueue(known, source, priority, home.wall()?)
        .map_err(|error| disk(&worker, &error))?;
    if ui.json {
        show::json(&job);
    } else {
        ui.info(&format!("{} waits", job.id));
        if model::job_of(project).is_none() {
            show::complain("no job processes the queue\n  fix: runner curator setup --apply");
        }
    }
    Ok(Exit::Done)
}

fn compact(home: &Env, project: &LoadedProject, apply: bool, ui: Ui) -> Result<Exit, Failure> {
    let worker = worker(project)?;
    let broken = |error: io::Error| disk(&worker, &error);
    worker.make().map_err(broken)?;
    let _held = worker.lock().map_err(broken)?;
    let keep = project.config.curator.keep;
    let plan = compact::plan(&worker, keep, home.wall()?).map_err(broken)?;
    if apply {
        compact::apply(&worker, &plan, &mut || Ok(())).map_err(broken)?;
    }
    match ui.json {
        true => show::json(&json!({ "acts": plan.acts })),
        false => show::out(&plan.text()),
    }
    Ok(Exit::Done)
}
