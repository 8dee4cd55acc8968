//! Implements [`Kind`] for the overnight run.

use std::path::Path;

use jiff::SignedDuration;
use runner_engine::outcome::Class;
use runner_engine::publish::RelPath;
use serde_json::{Value, json};

use super::{KIND, OvernightSpec, corpus, lock, ownership};
use crate::dry_run::DryRunPlan;
use crate::kind::{BadSetting, Kind, ProjectSettings, Targets, given_input};
use crate::reserved::{reserved, target};
use crate::{Context, Finished, JobError};

impl Kind for OvernightSpec {
    fn name(&self) -> &'static str {
        KIND
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        Ok(DryRunPlan {
            notes: super::plan(ctx, self),
            checks: vec![
                "fitness of the staged corpus, before any of it is committed".to_owned(),
                "no file of the corpus has changed since it was copied".to_owned(),
                format!("the report is written only below {}", self.output_dir),
            ],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![self.output_dir.clone()])
    }

    fn check(&self) -> Result<(), BadSetting> {
        let output = |why| ("output_dir", why);
        ownership::parse(&self.output_dir).map_err(|error| output(error.to_string()))?;
        target(&self.output_dir).map_err(output)?;
        if !self.queue.is_empty() {
            RelPath::new(&self.queue).map_err(|error| ("queue", error.to_string()))?;
            if reserved(&self.queue, &[]).is_some() {
                return Err(("queue", format!("{:?} belongs to git", self.queue)));
            }
        }
        let earlier = |(at, name): (usize, &String)| self.runners[..at].contains(name);
        if let Some((_, name)) = self.runners.iter().enumerate().find(|it| earlier(*it)) {
            return Err(("runners", format!("{name:?} is named twice")));
        }
        if self.council_timeout == 0 {
            return Err(("council_timeout", "it must be at least 1s".to_owned()));
        }
        if self.morning_command.trim().is_empty() {
            return Err(("morning_command", "it is empty".to_owned()));
        }
        Ok(())
    }

    fn belongs_to_night(&self) -> bool {
        true
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        self.worker_dir.clone_from(&project.curator.worker_dir);
    }

    fn given(&self) -> Value {
        json!({ "worker_dir": self.worker_dir })
    }

    fn give(&mut self, given: Value) -> Result<(), String> {
        self.worker_dir = given_input(&given, "worker_dir")?;
        Ok(())
    }

    fn set_keep_awake(&mut self, keep_awake: bool) {
        self.keep_awake = keep_awake;
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_hours(8)
    }

    fn panel(&self) -> &[String] {
        &self.runners
    }

    fn refusal(&self, root: &Path) -> Option<(Class, String)> {
        let error = ownership::inspect(root, &self.output_dir).err()?;
        Some((Class::Environment, error.to_string()))
    }

    fn touches(&self) -> Vec<String> {
        let corpus = corpus::SUBPATHS.map(|path| format!("{}/{path}", corpus::FOLDER));
        let own = [lock::FOLDER.to_owned(), self.output_dir.clone()];
        corpus.into_iter().chain(own).collect()
    }

    fn shared_folders(&self) -> &[&'static str] {
        // `bd` keeps its issues in this folder.
        &[".beads"]
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("output_dir", self.output_dir.clone()), ("queue", self.queue.clone())]
    }

    fn staging(&self) -> String {
        format!("{}/.staging", lock::FOLDER)
    }
}
