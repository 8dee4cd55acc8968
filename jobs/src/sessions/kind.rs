//! Implements [`Kind`] for session analysis.

use std::time::Duration;

use super::{KIND, SessionsSpec, due, places};
use crate::dry_run::DryRunPlan;
use crate::kind::{Asks, BadSetting, Kind, ProjectSettings, Targets};
use crate::reserved::reserved;
use crate::{Context, Finished, JobError};
use runner_text::counted;

/// How long a manual run waits for another run of its job.
const MANUAL_WAIT: Duration = Duration::from_secs(300);

impl Kind for SessionsSpec {
    fn name(&self) -> &'static str {
        KIND
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let waiting = due(places(ctx, self), self, ctx.clock.now()).len();
        Ok(DryRunPlan {
            notes: vec![format!("{} to analyze", counted(waiting, "idle session"))],
            checks: vec!["the artifacts stay within their limits on size and number".to_owned()],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![self.folder.clone()])
    }

    fn check(&self) -> Result<(), BadSetting> {
        let git = [".git", ".claude", ".codex", "runner.toml", ".ctxrc"];
        match reserved(&self.folder, &git) {
            Some(name) => Err(("folder", format!("a job cannot write to {name}"))),
            None if self.idle == 0 => Err(("idle", "it must be at least 1".to_owned())),
            None if self.batch == 0 => Err(("batch", "it must be at least 1".to_owned())),
            None => Ok(()),
        }
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        self.steps.clone_from(&project.lifecycle.steps);
    }

    /// A manual run delivers the end of a session or a decision, which would otherwise be lost.
    fn manual_wait(&self) -> Duration {
        MANUAL_WAIT
    }

    fn is_unattended(&self) -> bool {
        false
    }

    fn asks(&self) -> Asks {
        Asks::Never
    }

    fn protects(&self) -> Vec<String> {
        vec![self.folder.clone()]
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("folder", self.folder.clone())]
    }
}
