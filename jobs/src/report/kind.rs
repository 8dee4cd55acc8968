//! Implements [`Kind`] for the report of a night.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FOLDER;
use crate::dry_run::DryRunPlan;
use crate::kind::{Asks, Kind, Targets};
use crate::{Context, Finished, JobError};

/// The settings of a `report` job, which has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportSpec {}

impl Kind for ReportSpec {
    fn name(&self) -> &'static str {
        "report"
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx)
    }

    fn dry_run(&self, _ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        Ok(DryRunPlan {
            checks: vec![format!("{FOLDER}: built from the database")],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![FOLDER.to_owned()])
    }

    fn is_unattended(&self) -> bool {
        false
    }

    fn asks(&self) -> Asks {
        Asks::Never
    }

    fn is_exempt(&self) -> bool {
        true
    }
}
