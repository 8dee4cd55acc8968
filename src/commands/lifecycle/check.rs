//! `runner lifecycle check`: lists the mistakes in a declared cycle.

use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::cycle::{BUILT_IN, BadCycle, CycleSpec, declared};
use runner_jobs::lifecycle::spec::{CycleState, Spec, SpecError};
use serde::Serialize;

use super::{AgentArg, of_agent};
use crate::commands::Cli;
use crate::config::Config;
use crate::cycles;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// Print "ok", or every mistake in the declared cycle with its line
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle check --file lifecycle.org")]
pub(super) struct CheckArgs {
    /// Check this file instead of the agent's cycle
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArg,
}

#[derive(Debug, Serialize)]
struct CheckedCycle {
    file: String,
    mistakes: Vec<SpecError>,
}

impl View for CheckedCycle {
    fn print(&self, _ui: Ui) {
        for SpecError { line, why } in &self.mistakes {
            show::out(&format!("{}:{line}: {}\n", self.file, safe::line(why)));
        }
        if self.mistakes.is_empty() {
            show::out("ok\n");
        }
    }
}

impl CheckArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let file = match &self.file {
            Some(file) => Some(cli.env.here.join(file).display().to_string()),
            None => cycles::file(&of_agent(here, &self.agent.agent).1),
        };
        let mistakes = match declared(&here.root, file.as_deref()) {
            Ok(spec) => of_project(&here.root, &here.config, &spec),
            Err(BadCycle::Mistakes { mistakes, .. }) => mistakes,
            Err(error @ BadCycle::Unreadable { .. }) => {
                return Err(Failure::data(error.to_string()));
            }
        };
        let exit = if mistakes.is_empty() { Exit::Done } else { Exit::Configuration };
        cli.ui.show(&CheckedCycle { file: file.unwrap_or_else(|| BUILT_IN.to_owned()), mistakes });
        Ok(exit)
    }
}

/// Returns the mistakes in the cycles that a project's jobs use, each as one line.
pub fn of_jobs(root: &Path, config: &Config) -> Vec<String> {
    let cycles = config.jobs.values().filter_map(|job| job.spec.kind.of::<CycleSpec>());
    let checked = cycles.flat_map(|cycle| {
        let file = cycles::file(cycle);
        let path = file.clone().unwrap_or_else(|| BUILT_IN.to_owned());
        let mistakes = match declared(root, file.as_deref()) {
            Ok(spec) => of_project(root, config, &spec),
            Err(BadCycle::Mistakes { mistakes, .. }) => mistakes,
            Err(error @ BadCycle::Unreadable { .. }) => {
                return vec![safe::line(&error.to_string())];
            }
        };
        let lines = mistakes.iter();
        lines.map(|SpecError { line, why }| format!("{path}:{line}: {}", safe::line(why))).collect()
    });
    checked.collect()
}

/// Returns a mistake for each backend or prompt file that a state names but the project lacks.
fn of_project(root: &Path, config: &Config, spec: &Spec) -> Vec<SpecError> {
    let mut found = Vec::new();
    for CycleState { backend, prompt, line, .. } in &spec.states {
        if let Some(backend) = backend.as_ref().filter(|it| !config.backends.contains_key(*it)) {
            let known: Vec<&str> = config.backends.keys().map(String::as_str).collect();
            let why = format!(
                "there is no [backends.{backend}] (configured backends: {})",
                known.join(", ")
            );
            found.push(SpecError { line: *line, why });
        }
        let file = prompt.as_ref().filter(|it| !it.contains(char::is_whitespace));
        let file = file.filter(|it| it.contains(['.', '/']));
        if let Some(file) = file.filter(|it| !root.join(it).is_file()) {
            let why = format!("PROMPT names {file}, which does not exist");
            found.push(SpecError { line: *line, why });
        }
    }
    found
}
