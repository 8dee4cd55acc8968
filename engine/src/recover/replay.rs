//! Rolls the publication of a dead run forward, and removes the run's staged files.
//!
//! The caller holds the deciding lock of the run's job. This module must never publish under a
//! fence other than the one that the caller obtained for the run, and never remove staged files
//! that the user still needs.

use jiff::Timestamp;

use crate::error_chain::whole;
use crate::ids::Fence;
use crate::outcome::{Class, Outcome};
use crate::publish::{self, LogError, PublishError, PublishLog as _, RealFs, Recovery, RelPath};
use crate::store::{FleetNote, RunRow, RunState, Store, StoreError};

/// The result of recovering a dead run's publication.
pub(super) enum Replay {
    /// The publication has been completed, and the run is settled with this outcome.
    RolledForward(Outcome),
    /// The run had recorded no publication.
    Nothing,
    /// The project or the claim no longer exists, so the artifacts are useless.
    Gone(Outcome),
    /// The user must resolve the conflict. The staged files are kept.
    Conflict(Outcome),
}

/// Rolls the publication of a dead run forward, or discards its staged files.
pub(super) fn replay(
    store: &mut Store,
    run: &RunRow,
    staging: &str,
    fence: Fence,
    now: Timestamp,
) -> Result<Replay, String> {
    let Some(project) = store.project(&run.project).map_err(|error| whole(&error))? else {
        return Ok(Replay::Nothing);
    };
    let staging = RelPath::new(staging).map_err(|error| whole(&error))?;
    let fs = match RealFs::open(&project.path) {
        Ok(fs) => fs,
        Err(_) if !project.path.is_dir() => {
            let log = store.publish_log(None, now);
            return match log.manifest(&run.id).map_err(|error| whole(&error))? {
                None => Ok(Replay::Nothing),
                Some(_) => Ok(Replay::Gone(Outcome::Failed {
                    class: Class::Environment,
                    why: format!("its project is gone: {}", project.path.display()),
                })),
            };
        }
        Err(error) => return Err(whole(&error)),
    };
    let mut log = store.publish_log(None, now);
    match publish::recover(&fs, &mut log, &run.id, fence, &staging) {
        Ok(Recovery::Nothing) => Ok(Replay::Nothing),
        Ok(Recovery::RolledForward(outcome)) => Ok(Replay::RolledForward(outcome)),
        Ok(Recovery::Cleaned) => {
            let row = store.run(&run.id).map_err(|error| whole(&error))?;
            row.outcome()
                .cloned()
                .map(Replay::RolledForward)
                .ok_or_else(|| "settled without an outcome".to_owned())
        }
        Err(PublishError::Log(error @ LogError::StaleFence { .. })) => {
            let has = |kind| store.fleet_note(&run.id, kind).is_ok_and(|note| note.is_some());
            if has(FleetNote::Claimed) {
                let why = "its process died, and its claim in the fleet has ended".to_owned();
                return Ok(Replay::Gone(Outcome::Lost { why }));
            }
            if !has(FleetNote::Applies) {
                return Err(whole(&error));
            }
            // Some files may be in place, so the run must not be counted as having changed nothing.
            let why = format!(
                "its process died, and the fleet no longer accepts the result that it published; the artifacts \
                 that remain to be published are kept in {staging}"
            );
            Ok(Replay::Conflict(Outcome::Failed { class: Class::Guard, why }))
        }
        // A target contains another program's content, or a staged file is damaged or missing. Only
        // the user can fix that.
        Err(error @ (PublishError::Conflict(_) | PublishError::Staged { .. })) => {
            let why = format!(
                "{}; the artifacts that remain to be published are kept in {staging}",
                whole(&error)
            );
            Ok(Replay::Conflict(Outcome::Failed { class: Class::Guard, why }))
        }
        Err(error) => Err(whole(&error)),
    }
}

/// Removes a settled run's staged files. The caller must hold the deciding lock.
///
/// # Errors
/// Returns a [`StoreError`] if the database fails. If files cannot be removed yet, the next tick
/// tries again.
pub fn sweep(store: &mut Store, run: &RunRow, now: Timestamp) -> Result<(), StoreError> {
    let RunState::Settled { staging: Some(staging), execution: Some(execution), .. } = &run.state
    else {
        return Ok(());
    };
    let Some(project) = store.project(&run.project)? else {
        return store.swept(&run.id);
    };
    let (Ok(fs), Ok(staging)) = (RealFs::open(&project.path), RelPath::new(staging)) else {
        // If the project is gone, so are its staging folders.
        return if project.path.is_dir() { Ok(()) } else { store.swept(&run.id) };
    };
    let mut log = store.publish_log(None, now);
    let gone = match log.manifest(&run.id) {
        // The run was settled without its publication because of a conflict. Its staging folder is
        // kept for the user.
        Ok(Some(recorded)) if !recorded.settled => return store.swept(&run.id),
        Ok(_) => publish::recover(&fs, &mut log, &run.id, execution.fence, &staging).is_ok(),
        Err(_) => false,
    };
    if gone { store.swept(&run.id) } else { Ok(()) }
}
