//! `runner overnight start`: runs a night over the corpus now, or shows what it would do.

use std::path::Path;

use runner_engine::git::Git;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::lock::RunLock;
use runner_jobs::overnight::summary::Summary;
use runner_jobs::overnight::{OvernightSpec, preview};
use serde::Serialize;

use super::{known, night_job, own_output};
use crate::commands::{Cli, corpus, default_job, night};
use crate::config;
use crate::env;
use crate::project::{FILE, LoadedProject};
use crate::ui::{Failure, Ui, View, show};

/// Run a night now
///
/// Exits with code 75 if another night or a manual change to the corpus holds the lock.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner overnight start --goal 'fewer flaky tests' --max-iterations 5"
)]
pub(super) struct StartArgs {
    /// Goal for the night
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// The folder for the night's artifacts, inside the project
    #[arg(long, value_name = "P")]
    output_dir: Option<String>,
    /// Total time limit for the night
    #[arg(long, value_name = "D")]
    run_timeout: Option<String>,
    /// Keep the host awake where the host supports it
    #[arg(long, overrides_with = "no_keep_awake")]
    keep_awake: bool,
    /// Do not keep the host awake
    #[arg(long)]
    no_keep_awake: bool,
    /// A backend to ask for a short report (may be repeated)
    #[arg(long, value_name = "NAME")]
    runner: Vec<String>,
    /// Allow the backends to propose unrequested ideas
    #[arg(long)]
    creative_lane: bool,
    /// A Markdown list of the work to do first in the morning
    #[arg(long, value_name = "FILE")]
    queue: Option<String>,
    /// Maximum number of iterations; 0 means as many as the time allows
    #[arg(long, value_name = "N")]
    max_iterations: Option<u64>,
    /// Treat a fitness change smaller than this as no change
    #[arg(long, value_name = "F")]
    plateau_epsilon: Option<f64>,
    /// The number of consecutive changes below --plateau-epsilon that make a plateau; at least 2
    #[arg(long, value_name = "K")]
    plateau_window: Option<u64>,
    /// After a regression, use one of the available rescues and continue instead of stopping [default: the job's setting]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    warn_only: Option<bool>,
    /// Maximum size of a staged copy of the corpus, in MB
    #[arg(long, value_name = "N")]
    checkpoint_max_mb: Option<u64>,
    /// Show what the night would import, tidy and propose; change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The overnight job, if the project has several
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

impl StartArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = match self.dry_run {
            true => LoadedProject::load_for_dry_run(cli.env, cli.here)?,
            false => default_job::overnight(cli)?,
        };
        corpus::refuse_link(&project.root)?;
        let (job, _) = night_job(&project, self.job.as_deref())?;
        known(&project.config, &self.runner).map_err(Failure::usage)?;
        let settings = self.settings();
        // Invalid settings are reported before anything starts.
        let changed =
            config::load_with(&cli.env.stack(Some(&project.root.join(FILE))), job, &settings)?;
        let Some(spec) = changed.job(job)?.spec.kind.of::<OvernightSpec>() else {
            unreachable!("a flag does not change the kind")
        };
        own_output(&project.root, spec)?;
        if self.dry_run {
            return preview_night(cli, &project.root, spec);
        }
        RunLock::inspect(&project.root).map_err(corpus::locked)?;
        night::with_one(cli.env, &project, job, settings, cli.spawn_mode())
    }

    /// Converts the flags to settings, as configuration text.
    fn settings(&self) -> Vec<(String, String)> {
        let mut all: Vec<(&str, String)> = Vec::new();
        let quoted = |text: &String| toml::Value::String(text.clone()).to_string();
        let texts = [
            ("goal", &self.goal),
            ("output_dir", &self.output_dir),
            ("timeout", &self.run_timeout),
            ("queue", &self.queue),
        ];
        for (key, value) in texts {
            all.extend(value.as_ref().map(|text| (key, quoted(text))));
        }
        if self.keep_awake || self.no_keep_awake {
            all.push(("keep_awake", self.keep_awake.to_string()));
        }
        if !self.runner.is_empty() {
            let names: Vec<String> = self.runner.iter().map(quoted).collect();
            all.push(("runners", format!("[{}]", names.join(", "))));
        }
        if self.creative_lane {
            all.push(("creative_lane", "true".to_owned()));
        }
        let numbers = [
            ("max_iterations", self.max_iterations),
            ("plateau_window", self.plateau_window),
            ("checkpoint_max_mb", self.checkpoint_max_mb),
        ];
        for (key, value) in numbers {
            all.extend(value.map(|number| (key, number.to_string())));
        }
        all.extend(self.plateau_epsilon.map(|it| ("plateau_epsilon", format!("{it:?}"))));
        all.extend(self.warn_only.map(|it| ("warn_only", it.to_string())));
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Preview(Summary);

impl View for Preview {
    fn print(&self, _ui: Ui) {
        show::out(&show::printable(&(preview::describe(&self.0).join("\n") + "\n")));
    }
}

/// Shows what a night would do.
fn preview_night(cli: &Cli<'_>, root: &Path, spec: &OvernightSpec) -> Result<Exit, Failure> {
    let git = Git::new(root, &env::child_environment(), &env::marker()?);
    let now = cli.env.wall()?;
    let id = RunId::new(now);
    let agents = &env::agent_folders();
    let seen = preview::NightPreview { root, git: &git, spec, now, run_id: id.as_str(), agents };
    let summary = preview::preview(&seen).map_err(|error| Failure::environment(error.whole()))?;
    cli.ui.show(&Preview(summary));
    Ok(Exit::Done)
}
