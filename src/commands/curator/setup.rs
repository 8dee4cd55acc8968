//! `runner curator setup`: shows or writes the settings that the curator needs.

use runner_backends::spec::KINDS;
use runner_engine::outcome::Exit;
use runner_engine::schedule::Trigger;
use runner_text::shell_line;

use super::model::job_of;
use crate::commands::config::{self, ConfigFile};
use crate::commands::{Cli, default_job};
use crate::config::{SettingChange, TriggerSpec};
use crate::project::LoadedProject;
use crate::ui::{Failure, show};

/// The trigger of the job that processes the queue.
const TRIGGER: &str = "every 5m";

/// Show the settings that make the curator run; --apply writes them into runner.toml
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner curator setup --apply && runner curator diagnose")]
pub struct SetupArgs {
    /// Write the settings
    #[arg(long)]
    apply: bool,
}

impl SetupArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let wanted = settings(project);
        if wanted.is_empty() {
            show::out("the curator is set up: runner curator status\n");
            return Ok(Exit::Done);
        }
        if !self.apply {
            let all = shell_line(wanted.iter().flat_map(|(key, value)| [key, value]));
            show::out(&format!("runner config set {all}\n"));
        }
        if self.apply {
            let changes: Vec<SettingChange> =
                wanted.into_iter().map(|(key, value)| SettingChange::Set(key, value)).collect();
            let there = Cli { here: &project.root, ..*cli };
            config::change(&there, &changes, ConfigFile::Project)?;
            match super::worker(project) {
                Ok(worker) => worker.make().map_err(|error| super::disk(&worker, &error))?,
                // The settings are already written, so an invalid `worker_dir` is only a warning.
                Err(failure) => show::complain(&failure.message()),
            }
            cli.ui.info(
            "the queue is processed by runner tick or runner daemon, and by runner curator work",
        );
        }
        Ok(Exit::Done)
    }
}

/// Adds a curator job with default settings that runs only manually.
///
/// # Errors
/// Returns an error if the settings cannot be changed or the project cannot be reloaded.
pub(super) fn add_manual(cli: &Cli<'_>, project: &LoadedProject) -> Result<LoadedProject, Failure> {
    let mut wanted = settings(project);
    for (key, value) in &mut wanted {
        if key == "jobs.curator.trigger" {
            *value = "manual".to_owned();
        }
    }
    default_job::add(cli, &project.root, &wanted)
}

fn settings(project: &LoadedProject) -> Vec<(String, String)> {
    let config = &project.config;
    let curator = &config.curator;
    let mut wanted = Vec::new();
    let mut add = |key: &str, value: &str| wanted.push((key.to_owned(), value.to_owned()));
    let backend = match curator.engine.as_str() {
        engine if config.backends.contains_key(engine) => engine.to_owned(),
        engine if engine != "builtin" && KINDS.contains(&engine) => {
            if !config.backends.contains_key("curator") {
                add("backends.curator.type", engine);
                add("backends.curator.model", &curator.model);
                if engine == "ollama" {
                    add("backends.curator.base_url", &curator.endpoint);
                }
                add("backends.curator.fallback", "[\"builtin\"]");
            }
            "curator".to_owned()
        }
        _ => "builtin".to_owned(),
    };
    let Some(name) = job_of(project) else {
        add("jobs.curator.kind", "curator");
        add("jobs.curator.trigger", TRIGGER);
        add("jobs.curator.backend", &backend);
        return wanted;
    };
    let job = &config.jobs[name];
    if !job.enabled {
        add(&format!("jobs.{name}.enabled"), "true");
    }
    // A timer never starts a job that runs only manually.
    if job.when == TriggerSpec::Clock(Trigger::Manual) {
        add(&format!("jobs.{name}.trigger"), TRIGGER);
    }
    wanted
}
