//! Implements [`Kind`] for the curator.

use super::job::CuratorJobKind;
use super::{CuratorSpec, KIND};
use crate::dry_run::DryRunPlan;
use crate::kind::{Asks, BadSetting, Kind, ProjectSettings, Targets};
use crate::{Context, Finished, JobError};

impl Kind for CuratorSpec {
    fn name(&self) -> &'static str {
        KIND
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        Ok(DryRunPlan {
            notes: super::dry_run(ctx.files.root(), self),
            checks: vec![
                "a job file is of a listed kind, and its id matches its file name".to_owned(),
                "an answer only selects from what the rules found and adds text".to_owned(),
            ],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        let folders = [&self.worker_dir, &self.ideas, &self.learnings];
        Targets::Folders(folders.map(Clone::clone).to_vec())
    }

    fn check(&self) -> Result<(), BadSetting> {
        match self.enqueue.contains(&CuratorJobKind::IngestClaudeSession) {
            true => {
                Err(("enqueue", "ingest-claude-session needs the path of a transcript".to_owned()))
            }
            false => Ok(()),
        }
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        *self = Self {
            batch: self.batch,
            enqueue: std::mem::take(&mut self.enqueue),
            event: self.event.take(),
            ..project.curator.clone()
        };
    }

    fn is_unattended(&self) -> bool {
        false
    }

    fn asks(&self) -> Asks {
        Asks::Optionally
    }

    fn falls_back_to_rules(&self) -> bool {
        // Only an event's target may answer the event, so the rules must not replace the target.
        self.event.is_none()
    }
}
