//! The files that a pass publishes: their paths, and the checks before anything is written.

use runner_engine::outcome::Class;
use serde_json::json;

use super::leak;
use super::spec::DreamSpec;
use crate::{Context, JobError};

/// The recording key for whether a folder exists.
const TAKEN: &str = "taken";

/// Checks that writing the proposals and the state would not overwrite canonical files, and that
/// neither file could be committed.
pub(super) fn check_targets(
    ctx: &Context<'_>,
    spec: &DreamSpec,
    folder: &str,
) -> Result<(), JobError> {
    for target in [&proposals_path(folder), &spec.state_path()] {
        if let Some(canonical) = spec.canonical_over(target) {
            let why = format!("{target} would be written, but {canonical} is canonical");
            return Err(JobError::failed(Class::Guard, why));
        }
        leak::check(&ctx.git, target).map_err(|leak| match leak {
            leak::Leak::Git(error) => JobError::Git(error),
            leak => JobError::failed(Class::Guard, leak.to_string()),
        })?;
    }
    Ok(())
}

pub(super) fn proposals_path(folder: &str) -> String {
    format!("{folder}/proposals.json")
}

/// Returns the folder of this pass: `dreams/<UTC time of the pass>`, with a number if that name is
/// taken.
pub(super) fn pass_folder(ctx: &Context<'_>, spec: &DreamSpec) -> String {
    let stamp = ctx.clock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let named = |number: u32| match number {
        1 => format!("{}/{stamp}", spec.dreams),
        number => format!("{}/{stamp}-{number}", spec.dreams),
    };
    let taken = |folder: &String| {
        if ctx.recording.replays() {
            let answer = ctx.recording.recall(TAKEN, folder);
            return answer.is_ok_and(|answer| answer.facts == true);
        }
        let taken = ctx.files.root().join(folder).symlink_metadata().is_ok();
        ctx.recording.note(TAKEN, folder, json!(taken), None);
        taken
    };
    (1..).map(named).find(|folder| !taken(folder)).expect("there are more numbers than folders")
}
