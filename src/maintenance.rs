//! Daily maintenance of the database, and of the files that runs leave in the state folder and in
//! projects.
//!
//! Once a day, the process that ticks checks the database, makes a backup and prunes data that is
//! past its `[retention]` period. The daemon does this on a separate thread, and `runner tick` does
//! it last, so runs do not wait for it. This module must never remove a file that a plan does not
//! list.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use runner_engine::error_chain::whole;
use runner_engine::failpoint;
use runner_engine::files::{beneath, remove_tree};
use runner_engine::ids::RunId;
use runner_engine::store::{
    FileKind, LOG_CEILING, OldFile, PrunableFile, PrunePlan, Retention, Store, StoreError,
    StoreHealth, Task,
};
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::review;
use runner_jobs::{recording, report};

use crate::config;
use crate::env::{Env, SCRATCH};
use crate::fleet;
use crate::project::LoadedProject;
use crate::ui::Failure;

pub fn retention(home: &Env) -> Result<Retention, Failure> {
    Ok(config::load(&home.stack(None))?.retention)
}

/// Runs the daily maintenance if it is due and no other process is running it. Returns the problems
/// found, except damage to the database, which is an error.
pub fn daily(home: &Env, store: &mut Store) -> Result<Vec<String>, Failure> {
    store.cut_log(LOG_CEILING)?;
    let now = home.wall()?;
    if !store.claim_maintenance(now)? {
        return Ok(Vec::new());
    }
    let health = examine(home, store)?;
    if let Some(first) = health.findings.first().filter(|_| !health.whole) {
        let (path, why) = (home.store_path(), first.place.clone());
        return Err(StoreError::Damaged { path, why }.into());
    }
    let mut troubles: Vec<String> = health
        .findings
        .iter()
        .map(|one| format!("the database: {}: {} (runner db check)", one.what, one.place))
        .collect();
    let rows = troubles.len();
    let parts: [(Task, &str, MaintenanceTask); 2] = [
        (Task::DailyBackup, "the daily backup of the database", back_up),
        (Task::DailyPruning, "pruning old data", prune),
    ];
    let mut pruned = false;
    for (task, what, part) in parts {
        // Each task has its own record, so that the failure of one does not cause the other to run
        // again.
        if !store.maintenance_due(task, now)? {
            continue;
        }
        match part(home, store, now) {
            Ok(()) => {
                store.record_maintenance(task, "", now)?;
                pruned |= task == Task::DailyPruning;
            }
            Err(failure) if failure.is_damage() => {
                home.mark_damage(Some(&failure));
                return Err(failure);
            }
            Err(failure) => troubles.push(format!("{what}: {failure}")),
        }
    }
    // Contradictory rows do not make the maintenance due again, because another check would not
    // repair them.
    if troubles.len() == rows {
        store.record_maintenance(Task::Daily, "", now)?;
    }
    if pruned {
        // A fleet that cannot be reached is pruned the next day, and does not make the rest due
        // again.
        troubles.extend(fleet::prune(home, retention(home)?.rows));
    }
    Ok(troubles)
}

type MaintenanceTask = fn(&Env, &mut Store, Timestamp) -> Result<(), Failure>;

fn back_up(home: &Env, store: &mut Store, now: Timestamp) -> Result<(), Failure> {
    let target = new_backup(home, now)?;
    store.backup(&target, now)?;
    Ok(())
}

fn prune(home: &Env, store: &mut Store, now: Timestamp) -> Result<(), Failure> {
    let retention = retention(home)?;
    let plan = plan(home, store, &retention, now)?;
    carry_out(store, &plan)
}

/// Checks the whole database, and marks it as damaged or removes the mark.
pub fn examine(home: &Env, store: &Store) -> Result<StoreHealth, Failure> {
    let health = store.examine()?;
    match health.findings.first() {
        Some(first) if !health.whole => {
            home.mark_found(&format!("{}: {}", first.what, first.place));
        }
        _ => home.unmark_damage(),
    }
    Ok(health)
}

/// Creates the folder for backups, and returns an unused path in it.
pub fn new_backup(home: &Env, now: Timestamp) -> Result<PathBuf, Failure> {
    let folder = home.backups();
    fs::create_dir_all(&folder).map_err(|error| Failure::not_made(&folder, error))?;
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    let names = (1..).map(|n| match n {
        1 => folder.join(format!("{PREFIX}{stamp}{ENDING}")),
        n => folder.join(format!("{PREFIX}{stamp}-{n}{ENDING}")),
    });
    let free = |path: &PathBuf| path.symlink_metadata().is_err();
    Ok(names.into_iter().find(free).unwrap_or_default())
}

const PREFIX: &str = "database-";
const ENDING: &str = ".sqlite";

/// Returns the backups in the state folder, newest first.
pub fn backups(home: &Env) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = entries(&home.backups())
        .into_iter()
        .filter(|name| name.starts_with(PREFIX) && name.ends_with(ENDING))
        .map(|name| home.backups().join(name))
        .collect();
    // `database-STAMP.sqlite` sorts before `database-STAMP-2.sqlite`.
    found.sort_by_key(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut parts = name.trim_start_matches(PREFIX).split('-');
        let stamp = parts.next().unwrap_or_default().to_owned();
        (stamp, parts.next().and_then(|n| n.parse::<u32>().ok()))
    });
    found.reverse();
    found
}

/// Plans the removal of all data that is past its retention period.
pub fn plan(
    home: &Env,
    store: &Store,
    retention: &Retention,
    now: Timestamp,
) -> Result<PrunePlan, Failure> {
    let mut facts = store.old_rows(retention, now)?;
    let mut found = Vec::new();
    logs(home, store, &mut found)?;
    kept_backups(home, &mut found);
    recordings(home, &mut found);
    scratch(home, &mut found);
    for project in store.projects()? {
        let root = &project.path;
        let dreams = LoadedProject::at(home, Some(store), root)
            .and_then(LoadedProject::trusted)
            .map(|project| dreams_of(&project.config))
            .unwrap_or_default();
        let folders = dreams
            .iter()
            .map(|dreams| Path::new(dreams).join(".staging"))
            .chain([PathBuf::from(".runner/staging")]);
        for folder in folders {
            staging(store, root, &folder, &mut found)?;
        }
        for dreams in &dreams {
            undos(root, &Path::new(dreams).join(review::BACKUPS), &mut found);
        }
        reports(root, &mut found);
    }
    facts.files = found;
    Ok(retention.plan(facts, now))
}

fn dreams_of(config: &config::Config) -> Vec<String> {
    let dreams = (config.jobs.values()).filter_map(|job| job.spec.kind.of::<DreamSpec>());
    dreams.map(|dream| dream.dreams.clone()).collect()
}

fn logs(home: &Env, store: &Store, found: &mut Vec<PrunableFile>) -> Result<(), Failure> {
    let folder = Path::new("runs");
    for name in entries_below(&home.state, folder) {
        let Ok(run) = name.parse::<RunId>() else { continue };
        let over = store.over_since(&run)?;
        let needed = over.is_none().then_some("with an unfinished run");
        found.extend(prunable(
            FileKind::Log,
            &home.state,
            &folder.join(&name),
            over.or(run.at()),
            needed,
        ));
    }
    Ok(())
}

fn kept_backups(home: &Env, found: &mut Vec<PrunableFile>) {
    let folder = Path::new("backups");
    for name in entries_below(&home.state, folder) {
        let kind = match name.as_str() {
            name if name.starts_with(PREFIX) && name.ends_with(ENDING) => FileKind::Backup,
            name if name.starts_with('.') && name.ends_with(".new") => FileKind::Draft,
            _ => continue,
        };
        found.extend(prunable(kind, &home.state, &folder.join(&name), None, None));
    }
}

fn recordings(home: &Env, found: &mut Vec<PrunableFile>) {
    let folder = Path::new(recording::FOLDER);
    for name in entries_below(&home.state, folder) {
        let below = folder.join(&name);
        match recording::run_named(&name) {
            // A recording is never changed, so its age is that of its run.
            Some(run) => {
                found.extend(prunable(FileKind::Recording, &home.state, &below, run.at(), None))
            }
            // A process that dies leaves its temporary file.
            None if name.starts_with('.') => {
                found.extend(prunable(FileKind::Draft, &home.state, &below, None, None));
            }
            None => {}
        }
    }
}

/// Adds all scratch folders. A command that dies does not remove its own.
fn scratch(home: &Env, found: &mut Vec<PrunableFile>) {
    let folder = Path::new(SCRATCH);
    for name in entries_below(&home.state, folder) {
        let below = folder.join(name);
        found.extend(prunable(FileKind::Staging, &home.state, &below, None, None));
    }
}

fn staging(
    store: &Store,
    root: &Path,
    folder: &Path,
    found: &mut Vec<PrunableFile>,
) -> Result<(), Failure> {
    for name in entries_below(root, folder) {
        let Ok(run) = name.parse::<RunId>() else { continue };
        // Only the staging folders of swept runs are removed. Files left by a conflict belong to
        // the user.
        if store.is_swept(&run)? {
            found.extend(prunable(FileKind::Staging, root, &folder.join(&name), None, None));
        }
    }
    Ok(())
}

/// Adds the backups of files replaced by decisions, grouped by proposal and then by run.
fn undos(root: &Path, folder: &Path, found: &mut Vec<PrunableFile>) {
    for proposal in entries_below(root, folder) {
        let folder = folder.join(proposal);
        for name in entries_below(root, &folder) {
            if let Ok(run) = name.parse::<RunId>() {
                found.extend(prunable(FileKind::Undo, root, &folder.join(&name), run.at(), None));
            }
        }
    }
}

/// Adds the report folders that are named after a night. The newest one is always kept.
fn reports(root: &Path, found: &mut Vec<PrunableFile>) {
    let folder = Path::new(report::FOLDER);
    let mut nights: Vec<((Date, u32), PathBuf)> = entries_below(root, folder)
        .into_iter()
        .filter_map(|name| Some((night_named(&name)?, folder.join(name))))
        .filter(|(_, below)| fs::symlink_metadata(root.join(below)).is_ok_and(|data| data.is_dir()))
        .collect();
    nights.sort();
    nights.reverse();
    for (place, (_, below)) in nights.iter().enumerate() {
        let needed = (place == 0).then_some("the newest night of its project");
        found.extend(prunable(FileKind::Report, root, below, None, needed));
    }
}

/// Parses a night's name, such as `2026-01-31` or `2026-01-31-2`, into its date and number.
fn night_named(name: &str) -> Option<(Date, u32)> {
    let (date, rest) = name.split_at_checked(10)?;
    let day: Date = date.parse().ok()?;
    let number = match rest.strip_prefix('-') {
        None if rest.is_empty() => 1,
        None => return None,
        Some(digits) => digits.parse().ok().filter(|number| *number > 1)?,
    };
    let written = match number {
        1 => day.to_string(),
        number => format!("{day}-{number}"),
    };
    (written == name).then_some((day, number))
}

/// Returns a file or folder with the time from which its age is counted, or `None` if it is
/// missing, a link or of the wrong type. The time is the modification time unless `at` is given.
fn prunable(
    kind: FileKind,
    root: &Path,
    below: &Path,
    at: Option<Timestamp>,
    needed: Option<&'static str>,
) -> Option<PrunableFile> {
    let data = fs::symlink_metadata(root.join(below)).ok()?;
    let folder = !matches!(kind, FileKind::Backup | FileKind::Draft | FileKind::Recording);
    if data.is_symlink() || data.is_dir() != folder {
        return None;
    }
    let changed = data.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
    let at = at.or(changed)?;
    Some(PrunableFile { kind, root: root.to_owned(), below: below.to_owned(), at, needed })
}

/// Returns the names in a folder, or none if the folder cannot be read or its path contains a
/// symbolic link.
fn entries_below(root: &Path, folder: &Path) -> Vec<String> {
    beneath(root, folder).map_or_else(|_| Vec::new(), |path| entries(&path))
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Carries out a plan. A file that cannot be removed does not prevent the removal of the others.
///
/// # Errors
/// Returns an error if the database cannot be written, or if a file cannot be removed. The latter
/// error lists every remaining file with the reason.
pub fn carry_out(store: &mut Store, plan: &PrunePlan) -> Result<(), Failure> {
    store.prune_rows(plan)?;
    let mut left = Vec::new();
    for file in &plan.files {
        failpoint::before("remove a file or a folder");
        if let Err(error) = remove(file) {
            let path = file.root.join(&file.below);
            left.push(format!("cannot remove {}: {}", path.display(), whole(&error)));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(Failure::cannot_write(left.join("; "))) }
}

/// Removes one file or folder without following links.
fn remove(file: &OldFile) -> io::Result<()> {
    let path = beneath(&file.root, &file.below)?;
    let done = match file.kind {
        FileKind::Backup | FileKind::Draft | FileKind::Recording => fs::remove_file(&path),
        FileKind::Log | FileKind::Staging | FileKind::Report | FileKind::Undo => remove_tree(&path),
    };
    if let (FileKind::Undo, Some(proposal)) = (file.kind, path.parent()) {
        // `remove_dir` removes the proposal's folder only if it is empty.
        let _not_empty = fs::remove_dir(proposal);
    }
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_report_folder_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let names = [
            "2026-01-09",
            "2026-01-09-2",
            "2026-01-09-10",
            "2026-01-09-1",
            "2026-01-09-02",
            "2026-01-32",
            "notes",
            "2026-01-09x",
            "20260109",
        ];
        for name in names {
            fs::create_dir_all(root.path().join(report::FOLDER).join(name)).unwrap();
        }
        fs::write(root.path().join(report::FOLDER).join("2027-01-01"), "").unwrap();
        let mut found = Vec::new();
        reports(root.path(), &mut found);
        let found: Vec<(&str, bool)> = found
            .iter()
            .map(|one| {
                let name = one.below.file_name().unwrap().to_str().unwrap();
                (name, one.needed.is_some())
            })
            .collect();
        let nights = [("2026-01-09-10", true), ("2026-01-09-2", false), ("2026-01-09", false)];
        assert_eq!(found, nights);
    }
}
