//! The report of a night: made from the ledger and the artifacts alone, so that it can be made again.
//!
//! One model, several forms. The job places `report.md` and `report.json`; the command prints the
//! same from the ledger. Must never ask a model or tell what no row says.

mod markdown;
mod model;

pub use markdown::render as markdown;
pub use model::{NightReport, RunLine, gather};

use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use serde_json::json;

use crate::{Context, Finished, JobError};

/// Where the reports of a project lie.
pub const FOLDER: &str = ".runner/reports";

/// Makes the report of the night that this run belongs to.
///
/// # Errors
/// The ledger cannot be read, or the report cannot be staged.
pub fn run(ctx: &mut Context<'_>) -> Result<Finished, JobError> {
    let Some(night) = ctx.admitted.night() else {
        return Err(JobError::failed(
            Class::Internal,
            "a report belongs to a night, and this run has none",
        ));
    };
    let report = gather(ctx.ledger, night, ctx.root, ctx.now)?;
    let folder = format!("{FOLDER}/{}", report.night);
    let mut json = serde_json::to_vec_pretty(&report).map_err(|error| {
        JobError::failed(
            Class::Internal,
            format!("the report does not serialise: {error}"),
        )
    })?;
    json.push(b'\n');
    ctx.scope
        .stage(&format!("{folder}/report.json"), &json, Expect::Current)?;
    ctx.scope.stage(
        &format!("{folder}/report.md"),
        markdown(&report).as_bytes(),
        Expect::Current,
    )?;
    let mut finished = Finished {
        headline: report.headline(),
        ..Finished::default()
    };
    finished
        .facts
        .insert("runs".to_owned(), json!(report.runs.len()));
    finished
        .facts
        .insert("worst".to_owned(), json!(report.worst));
    Ok(finished)
}
