//! Creates and removes the copies of projects in which runs work on claims, one folder per claim.
//!
//! ```text
//! make ──> maker recorded ──> folder ──> run ──settled and reported──> sweep removes it
//!             └─ dies before the run is recorded ─────────────────────> sweep removes it
//! ```
//!
//! A host can have two claims on one job at the same time, for example after it slept past the end
//! of a lease. This module must never remove a folder in which a live process is working.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use runner_engine::files::{SMALL, read_text_host, remove_tree, write_atomic};
use runner_engine::ids::RunId;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{FleetNote, Project, Store, StoreError};
use runner_fleet::Claim;

use crate::env::Env;
use crate::project;
use crate::ui::Failure;

/// How long the copy of a run that published nothing is kept, so that the user can examine it.
const KEEP: SignedDuration = SignedDuration::from_hours(24);

/// How long any other copy is kept while the process that made it is alive, because that process
/// may still report the copy's run.
const KEEP_FOR_MAKER: SignedDuration = SignedDuration::from_hours(1);

/// The finished copies to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those that the user or the process that made them may still need.
    ForADay,
    /// None, because the host is leaving the fleet.
    Nothing,
}

/// Creates the empty folder for a claim. `me` is the process that records the claim's run.
pub fn make(
    home: &Env,
    (fleet, claim): (&str, &Claim),
    me: &ProcessIdentity,
) -> Result<PathBuf, Failure> {
    let is_plain = |name: &str| Path::new(name).file_name() == Some(OsStr::new(name));
    if claim.occurrence.parse::<RunId>().is_err() || !is_plain(&claim.job) {
        return Err(Failure::data(format!("the claim of {} has an invalid name", claim.job)));
    }
    let name = format!("{}.{}.{}", claim.job, claim.occurrence, claim.fence);
    let root = project::copies(home).join(fleet).join(name);
    let parent = root.parent().unwrap_or(&root);
    fs::create_dir_all(parent).map_err(|error| Failure::not_made(parent, error))?;
    let text = serde_json::to_string(me).map_err(|error| Failure::internal(error.to_string()))?;
    write_atomic(&maker(&root), text.as_bytes(), 0o600)
        .map_err(|error| Failure::cannot_write(error.to_string()))?;
    fs::create_dir(&root).map_err(|error| Failure::not_made(&root, error))?;
    fs::canonicalize(&root).map_err(|error| Failure::unreadable(&root, error))
}

/// Returns the path of the file beside a copy that identifies the process that made the copy.
fn maker(root: &Path) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(".maker");
    name.into()
}

/// Removes a fleet's copies whose runs have finished and been reported, along with their database
/// rows, and copies for which no run was recorded. Returns a message for each copy that cannot be
/// removed.
pub fn sweep(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    fleet: &str,
    (keep, now): (Keep, Timestamp),
) -> Result<Vec<String>, Failure> {
    let mut troubles = Vec::new();
    let Ok(entries) = fs::read_dir(project::copies(home).join(fleet)) else { return Ok(troubles) };
    for entry in entries.flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(root) = fs::canonicalize(&path) else { continue };
        let live = live_maker(&root);
        let other = live.as_ref().is_some_and(|maker| maker != me);
        match store.project_at(&root)? {
            // Another process on this host is still recording the copy's run.
            Some(known) if other && store.forgetting(&known.id)?.runs.is_empty() => continue,
            Some(known) if !forget(home, store, (&known, live.is_some()), (keep, now))? => continue,
            // Everything that this process made is recorded or has failed.
            None if other => continue,
            _ => {}
        }
        for gone in [&root, &maker(&root)] {
            match remove_tree(gone) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    troubles.push(format!("cannot remove {}: {error}", gone.display()));
                }
                _ => {}
            }
        }
    }
    Ok(troubles)
}

/// Returns the process that made a copy, if it is alive.
fn live_maker(root: &Path) -> Option<ProcessIdentity> {
    let text = read_text_host(maker(root), SMALL).ok()?;
    serde_json::from_str(&text).ok().filter(ProcessIdentity::is_alive)
}

/// Removes a finished copy from the database. Returns false if the copy is still needed.
fn forget(
    home: &Env,
    store: &mut Store,
    (copy, has_maker): (&Project, bool),
    (keep, now): (Keep, Timestamp),
) -> Result<bool, Failure> {
    let plan = store.forgetting(&copy.id)?;
    for run in &plan.runs {
        if !has_ended(store, (run, has_maker), (keep, now))? {
            return Ok(false);
        }
    }
    match store.forget(&plan) {
        Ok(()) => {}
        Err(StoreError::Changed { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let runs = plan.runs.iter().map(|run| home.run_folder(run.as_str()));
    for folder in runs.chain([home.cache_folder(&copy.id)]) {
        // A remaining folder is only a cache, or a log without a row.
        let _maybe_absent = remove_tree(&folder);
    }
    Ok(true)
}

/// Reports whether a run no longer needs its copy's folder.
fn has_ended(
    store: &Store,
    (run, has_maker): (&RunId, bool),
    (keep, now): (Keep, Timestamp),
) -> Result<bool, StoreError> {
    let row = store.run(run)?;
    let Some(outcome) = row.outcome() else { return Ok(false) };
    let claimed = store.fleet_note(run, FleetNote::Claimed)?.is_some();
    let reported = store.fleet_note(run, FleetNote::Reported)?.is_some();
    let span = match (keep, outcome.published(), has_maker) {
        (Keep::Nothing, ..) | (_, true, false) => SignedDuration::ZERO,
        (Keep::ForADay, false, _) => KEEP,
        (Keep::ForADay, true, true) => KEEP_FOR_MAKER,
    };
    let until = row.finished().and_then(|end| end.checked_add(span).ok());
    let kept = until.is_some_and(|until| now < until);
    let reported = reported || !claimed || keep == Keep::Nothing;
    Ok(!kept && reported && !row.owner().is_some_and(ProcessIdentity::is_alive))
}
