//! `runner jobs add`: adds a job to the project's settings.

use runner_engine::outcome::Exit;
use runner_jobs::kinds::KINDS;

use crate::commands::Cli;
use crate::commands::config::{ConfigFile, change};
use crate::config::SettingChange;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// Add a job to the project's runner.toml
///
/// `runner config schema` and the "configuration" page of the guide describe the settings of each
/// kind.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner jobs add tidy --kind command program=make args='[\"tidy\"]' writes='[]'"
)]
pub(super) struct AddArgs {
    /// The name of the new job: letters, digits, - and _
    job: String,
    /// The kind of job
    #[arg(long, value_parser = KINDS.map(|kind| kind.name))]
    kind: String,
    /// When the job is due: night, manual, "every 15m", "daily 02:30", "cron 30 2 * * *", "after JOB"
    #[arg(long)]
    trigger: Option<String>,
    /// Additional job settings; write values as for `runner config set`
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl AddArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let job = &self.job;
        if project.config.jobs.contains_key(job) {
            return Err(Failure::data(format!("there is already a job {job:?}")).hint(format!(
                "runner jobs show {job}   (runner config set jobs.{job}.KEY VALUE changes it)"
            )));
        }
        let set = |key: &str, value: &str| {
            SettingChange::Set(format!("jobs.{job}.{key}"), value.to_owned())
        };
        let mut changes = vec![set("kind", &self.kind)];
        changes.extend(self.trigger.as_ref().map(|trigger| set("trigger", trigger)));
        for setting in &self.settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Failure::usage(format!("{setting}: expected KEY=VALUE"))
                    .hint(format!("runner jobs add {job} --kind {} program=make", self.kind)));
            };
            changes.push(set(key, value));
        }
        let there = Cli { here: &project.root, ..*cli };
        change(&there, &changes, ConfigFile::Project).map_err(|failure| {
            let kind = &self.kind;
            failure.hint(format!("runner jobs add {job} --kind {kind} KEY=VALUE ...   (all settings that the kind needs)"))
        })?;
        cli.ui.info(&format!("to try it: runner jobs run {job}"));
        Ok(Exit::Done)
    }
}
