//! Implements [`Kind`] for the dream between an agent's runs.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::files;
use super::{RemSpec, question};
use crate::dry_run::{DryRunPlan, priced};
use crate::kind::{BadSetting, Kind, ProjectSettings, Targets, given_input};
use crate::lifecycle::manifest;
use crate::{Context, Finished, JobError};

impl Kind for RemSpec {
    fn name(&self) -> &'static str {
        "rem"
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let (request, notes) = question(ctx, self)?;
        Ok(DryRunPlan {
            requests: vec![priced(&mut ctx.spender, request, 0)?],
            notes,
            checks: vec![
                "the answer has exactly the six headings, in this order".to_owned(),
                "every commit hash in the answer occurs in the sources that were shown".to_owned(),
                "every verdict that names a task names exactly one task on the board".to_owned(),
                "the tale does not repeat the previous one".to_owned(),
                "runner asks at most twice; if both answers fail, it publishes the rule-based entry"
                    .to_owned(),
            ],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![manifest::folder(self.agent.as_deref())])
    }

    fn check(&self) -> Result<(), BadSetting> {
        files::check(self.agent.as_deref().unwrap_or_default(), &self.board, None)
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        self.files = project.lifecycle.clone();
    }

    fn given(&self) -> Value {
        json!({ "files": self.files })
    }

    fn give(&mut self, given: Value) -> Result<(), String> {
        self.files = given_input(&given, "files")?;
        Ok(())
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_mins(5)
    }

    fn prompts(&self) -> Vec<String> {
        self.prompt.iter().cloned().collect()
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("board", self.board.clone())]
    }
}
