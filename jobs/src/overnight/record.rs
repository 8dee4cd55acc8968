//! Records a night in progress: its log, its position, and the results of its steps.
//!
//! A step that does not end the night is recorded as `done`, as `skipped` or as a soft failure,
//! which is also listed in `degraded`. Text is redacted before it is logged. A log line that cannot
//! be written is lost and never ends the run.

use std::time::Duration;

use runner_engine::time::boot_time;
use serde::Serialize;

use super::state::Night;
use super::state::disk;
use super::summary::StepStatus;
use crate::JobError;

/// The hard steps. A night fails if the artifact of one of them cannot be written.
const HARD: [&str; 3] = ["close-loop", "metrics-health", "morning-packets"];

impl Night<'_, '_> {
    /// Records the step in progress, with the summary so far. If the run dies, its final summary is
    /// built from these records.
    pub(super) fn at(&mut self, step: &str) {
        self.state.at_step = Some(step.to_owned());
        self.state.last_step = self.summary.last_step().map(str::to_owned);
        let total = self.summary.steps.len() as u64;
        let done = self.summary.steps.iter().filter(|it| it.status != StepStatus::Planned);
        self.ctx.progress.step(step, done.count() as u64, total);
        let id = &self.summary.run_id;
        let kept = self
            .out
            .json(&format!("{id}/run.json"), &self.state)
            .and_then(|()| self.out.json(&format!("{id}/partial.json"), &self.summary));
        if let Err(error) = kept {
            tracing::warn!(%error, "the progress of the run could not be recorded");
        }
    }

    /// Writes a step's artifact. The night is degraded if the artifact of a soft step cannot be
    /// written.
    ///
    /// # Errors
    /// Returns an error if the artifact of a hard step cannot be written.
    pub(super) fn artifact(
        &mut self,
        step: &str,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), JobError> {
        if let Err(error) = self.out.json(name, value) {
            if HARD.contains(&step) {
                return Err(disk(error));
            }
            self.soft(step, &runner_engine::error_chain::whole(&error));
            return Ok(());
        }
        self.finish(step, Some(name), None);
        self.at(step);
        Ok(())
    }

    pub(super) fn finish(&mut self, name: &str, artifact: Option<&str>, note: Option<String>) {
        if let Some(artifact) = artifact {
            self.summary.artifacts.insert(name.to_owned(), artifact.to_owned());
        }
        if let Some(step) = self.summary.step(name) {
            step.status = StepStatus::Done;
            step.artifact = artifact.map(str::to_owned);
            step.note = note;
        }
        self.log(&format!("{name}: done"));
    }

    pub(super) fn skip(&mut self, name: &str, why: &str) {
        if let Some(step) = self.summary.step(name) {
            step.status = StepStatus::Skipped;
            step.note = Some(why.to_owned());
        }
        self.log(&format!("{name}: skipped, {why}"));
    }

    pub(super) fn soft(&mut self, name: &str, why: &str) {
        if let Some(step) = self.summary.step(name) {
            step.status = StepStatus::SoftFail;
            step.note = Some(why.to_owned());
        }
        self.degrade(&format!("{name}: {why}"));
    }

    pub(super) fn degrade(&mut self, what: &str) {
        let what = self.ctx.redactor.redact(what).into_owned();
        self.log(&what);
        if !self.summary.degraded.contains(&what) {
            self.summary.degraded.push(what);
        }
    }

    pub(super) fn log(&self, line: &str) {
        tracing::info!("{line}");
        let line = self.ctx.redactor.redact(line);
        if let Err(error) = self.out.log(self.ctx.clock.wall(), &line) {
            tracing::warn!(%error, "a line could not be written to the night's log");
        }
    }

    pub(super) fn timestamp(&self) -> String {
        format!("{:.0}", self.ctx.clock.wall())
    }

    /// Returns the time left for the loop.
    pub(super) fn time_left(&self) -> Duration {
        self.until.saturating_sub(boot_time())
    }

    pub(super) fn check_cancelled(&self) -> Result<(), JobError> {
        if self.ctx.cancel.is_cancelled() {
            let why = self.ctx.cancel.why().unwrap_or_else(|| "cancelled".to_owned());
            return Err(JobError::Cancelled { why });
        }
        if self.ctx.clock.left().is_zero() {
            return Err(JobError::TimedOut {
                why: "the run's total deadline has passed".to_owned(),
            });
        }
        Ok(())
    }
}
