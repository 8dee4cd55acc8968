//! The `runner overnight` commands: run a night over the corpus manually, show its report, and set
//! it up.

mod report;
mod setup;

use std::path::Path;

use runner_engine::git::Git;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::lock::RunLock;
use runner_jobs::overnight::{OvernightSpec, ownership, preview, schema};
use runner_text::nearest::nearest;

use super::{corpus, run as by_hand};
use crate::commands::args::overnight::{OvernightCommand, StartArgs};
use crate::config::{self, Config};
use crate::env::{self, Env};
use crate::project::{FILE, LoadedProject};
use crate::spawn::SpawnMode;
use crate::ui::{Failure, show};

/// Carries out an `overnight` command.
pub fn run(
    home: &Env,
    here: &Path,
    command: &OvernightCommand,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    match command {
        OvernightCommand::Setup { apply, scheduler, at, runner, .. } => {
            let wish = setup::SetupRequest {
                apply: *apply,
                scheduler,
                at: at.as_deref(),
                runners: runner,
            };
            setup::run(home, here, &wish, manner.ui)
        }
        OvernightCommand::Start(args) => start(home, here, args, manner),
        OvernightCommand::Report { from, markdown, validate, .. } => {
            report::run(home, here, from.as_deref(), *markdown, *validate, manner.ui)
        }
        OvernightCommand::Schema { name: None } => {
            let names: Vec<String> =
                schema::SCHEMAS.iter().map(|(name, _)| format!("{name}\n")).collect();
            show::out(&names.concat());
            Ok(Exit::Done)
        }
        OvernightCommand::Schema { name: Some(name) } => match schema::text(name) {
            Some(text) => {
                show::out(text);
                Ok(Exit::Done)
            }
            None => {
                let known: Vec<&str> = schema::SCHEMAS.iter().map(|(name, _)| *name).collect();
                Err(Failure::usage(format!(
                    "there is no schema {name:?}; the schemas are {}",
                    known.join(", ")
                )))
            }
        },
    }
}

/// Returns the named overnight job, or the only one.
fn night_job<'h>(
    here: &'h LoadedProject,
    wanted: Option<&str>,
) -> Result<(&'h str, &'h OvernightSpec), Failure> {
    let nights: Vec<(&str, &OvernightSpec)> = here
        .config
        .jobs
        .iter()
        .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<OvernightSpec>()?)))
        .collect();
    if let Some(wanted) = wanted {
        here.config.job(wanted)?;
        let found = nights.into_iter().find(|(name, _)| *name == wanted);
        return found.ok_or_else(|| Failure::usage(format!("{wanted} is not an overnight job")));
    }
    match nights.as_slice() {
        [only] => Ok(*only),
        [] => Err(Failure::configuration("this project has no job of kind overnight")
            .hint("runner overnight setup --apply")),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            let what =
                format!("this project has {} overnight jobs: {}", names.len(), names.join(", "));
            Err(Failure::usage(what).hint(format!("add --job {}", names[0])))
        }
    }
}

/// Checks that each `--runner` is a backend. The error names the one that is none.
fn known(config: &Config, runners: &[String]) -> Result<(), String> {
    match (runners.iter()).find(|name| !config.backends.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = config.backends.keys().map(String::as_str).collect();
            let near = nearest(name, known.iter().copied())
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            Err(format!("--runner {name}: there is no such backend ({}){near}", known.join(", ")))
        }
    }
}

/// Converts the flags to the settings that they change, as configuration text.
fn settings(args: &StartArgs) -> Vec<(String, String)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    let quoted = |text: &String| toml::Value::String(text.clone()).to_string();
    let texts = [
        ("goal", &args.goal),
        ("output_dir", &args.output_dir),
        ("timeout", &args.run_timeout),
        ("queue", &args.queue),
    ];
    for (key, value) in texts {
        all.extend(value.as_ref().map(|text| (key, quoted(text))));
    }
    if args.keep_awake || args.no_keep_awake {
        all.push(("keep_awake", args.keep_awake.to_string()));
    }
    if !args.runner.is_empty() {
        let names: Vec<String> = args.runner.iter().map(quoted).collect();
        all.push(("runners", format!("[{}]", names.join(", "))));
    }
    if args.creative_lane {
        all.push(("creative_lane", "true".to_owned()));
    }
    let numbers = [
        ("max_iterations", args.max_iterations),
        ("plateau_window", args.plateau_window),
        ("checkpoint_max_mb", args.checkpoint_max_mb),
    ];
    for (key, value) in numbers {
        all.extend(value.map(|number| (key, number.to_string())));
    }
    all.extend(args.plateau_epsilon.map(|it| ("plateau_epsilon", format!("{it:?}"))));
    all.extend(args.warn_only.map(|it| ("warn_only", it.to_string())));
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Checks, before anything starts, that the output folder was made by runner.
pub(super) fn own_output(root: &Path, spec: &OvernightSpec) -> Result<(), Failure> {
    let usual = OvernightSpec::default().output_dir;
    match ownership::inspect(root, &spec.output_dir) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::configuration(error.to_string())
            .hint(format!("name a folder that only nights use: --output-dir {usual}"))),
    }
}

fn start(home: &Env, here: &Path, args: &StartArgs, manner: SpawnMode) -> Result<Exit, Failure> {
    let project = match args.dry_run {
        true => LoadedProject::load_for_dry_run(home, here)?,
        false => LoadedProject::load(home, here)?,
    };
    let (job, _) = night_job(&project, args.job.as_deref())?;
    known(&project.config, &args.runner).map_err(Failure::usage)?;
    let settings = settings(args);
    // Invalid settings are reported before anything begins.
    let changed = config::load_with(&home.stack(Some(&project.root.join(FILE))), job, &settings)?;
    let Some(spec) = changed.job(job)?.spec.kind.of::<OvernightSpec>() else {
        unreachable!("a flag does not change the kind")
    };
    own_output(&project.root, spec)?;
    if args.dry_run {
        let git = Git::new(&project.root, &env::child_environment(), &env::marker()?);
        let now = home.wall()?;
        let id = RunId::new(now);
        let seen = preview::NightPreview {
            root: &project.root,
            git: &git,
            spec,
            now,
            run_id: id.as_str(),
        };
        let summary =
            preview::preview(&seen).map_err(|error| Failure::environment(error.whole()))?;
        match manner.ui.json {
            true => show::json(&summary),
            false => show::out(&show::printable(&(preview::describe(&summary).join("\n") + "\n"))),
        }
        return Ok(Exit::Done);
    }
    RunLock::inspect(&project.root).map_err(corpus::locked)?;
    let how = by_hand::ManualRun { manner, follow: false, deferral_is_normal: false, settings };
    match by_hand::once(home, &project, job, None, how)? {
        // Another night took the lock first.
        Exit::Done if RunLock::inspect(&project.root).is_err() => Ok(Exit::TryLater),
        exit => Ok(exit),
    }
}
