//! Adds a job with default settings to a project that has no job of its kind.
//!
//! [`overnight`] never changes a configured job. The job that it adds has the trigger `manual`, so
//! it runs only when the user starts it. [`add`] writes exactly the given settings.

use std::path::Path;

use super::config::{self, ConfigFile};
use super::init::{self, IdChoice, Notes};
use super::{Cli, corpus};
use crate::config::SettingChange;
use crate::project::{self, LoadedProject};
use crate::ui::Failure;

/// Adds a job with these settings, and returns the reloaded project.
///
/// # Errors
/// Returns an error if the settings cannot be changed or the project cannot be reloaded.
pub fn add(
    cli: &Cli<'_>,
    root: &Path,
    settings: &[(String, String)],
) -> Result<LoadedProject, Failure> {
    let inside = Cli { here: root, ..*cli };
    let change = |(key, value): &(String, String)| SettingChange::Set(key.clone(), value.clone());
    let changes: Vec<SettingChange> = settings.iter().map(change).collect();
    config::change(&inside, &changes, ConfigFile::Project)?;
    LoadedProject::load(cli.env, root)
}

/// Loads the project that an overnight run works on. A repository with a corpus becomes a project,
/// and a project without an overnight job gets one with default settings, unless another job is
/// already named `overnight`.
///
/// # Errors
/// Returns an error if there is neither a project nor a corpus, or if the project cannot be
/// created, changed or loaded.
pub fn overnight(cli: &Cli<'_>) -> Result<LoadedProject, Failure> {
    if let (Err(_), Ok(root)) = (project::find(cli.here), corpus::find(cli.here)) {
        let (_, written) = init::make(cli.env, &root, IdChoice::Known, Notes::AsTheyAre)?;
        for line in &written {
            cli.ui.info(&format!("  {line}"));
        }
    }
    let project = LoadedProject::load(cli.env, cli.here)?;
    let jobs = &project.config.jobs;
    let kind = runner_jobs::overnight::KIND;
    if jobs.contains_key(kind) || jobs.values().any(|job| job.spec.kind.name() == kind) {
        return Ok(project);
    }
    let settings = [("kind", kind), ("trigger", "manual")];
    let settings = settings.map(|(key, value)| (format!("jobs.{kind}.{key}"), value.to_owned()));
    add(cli, &project.root, &settings)
}
