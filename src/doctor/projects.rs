//! Checks the database and its projects: unresolved failures, leftover locks, jobs that have not
//! succeeded, and the time since the database was last checked.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::git::is_inside;
use runner_engine::locks::{ContractLock, LockError};
use runner_engine::outcome::{Outcome, SkipReason};
use runner_engine::schedule::Trigger;
use runner_engine::store::{Project, RunFilter, Store, Task};
use runner_engine::tick::REPORT_JOB;
use runner_text::shell_word;

use super::{DoctorFinding, surroundings};
use crate::env::{self, Env};
use crate::filesystem;
use crate::project::projection::Projection;
use crate::project::{self, LoadedProject, identity};
use crate::setup::ticks;
use crate::ui::{Failure, show};

/// Maximum age of the last full database check, which normally runs once a day.
const CHECKED: SignedDuration = SignedDuration::from_hours(72);
/// How long a scheduled job may go without a success before it is reported.
const SUCCESS: SignedDuration = SignedDuration::from_hours(24 * 7);
/// Number of a job's most recent runs to examine.
const BACK: u32 = 200;

pub fn findings(home: &Env, store: Option<&Store>, here: &Path) -> Vec<DoctorFinding> {
    let Some(store) = store else {
        return vec![
            DoctorFinding::note("database", "there is none yet").hint(identity::init_command(here)),
        ];
    };
    check_projects(home, store)
        .unwrap_or_else(|failure| vec![DoctorFinding::failure("database", &failure)])
}

fn check_projects(home: &Env, store: &Store) -> Result<Vec<DoctorFinding>, Failure> {
    let now = home.wall()?;
    let mut found = Vec::new();
    if let Some(until) = store.paused_until(now)? {
        let until = show::format_time(until);
        found.push(
            DoctorFinding::note("pause", format!("everything is paused until {until}"))
                .hint("runner resume --all"),
        );
    }
    let looked = store.last_maintenance(Task::Daily)?;
    if home.last_tick().is_some() && looked.is_none_or(|at| now.duration_since(at) > CHECKED) {
        let since = looked
            .map_or_else(|| "yet".to_owned(), |at| format!("since {}", show::format_time(at)));
        found.push(
            DoctorFinding::warning("database", format!("no check has run {since}"))
                .hint("runner db check"),
        );
    }
    for known in store.projects()? {
        found.extend(one(home, store, &known, now)?);
    }
    Ok(found)
}

fn one(
    home: &Env,
    store: &Store,
    known: &Project,
    now: Timestamp,
) -> Result<Vec<DoctorFinding>, Failure> {
    let root = known.path.display().to_string();
    let mut found = Vec::new();
    if let Some((what, hint)) = project::standing_of_row(known).trouble(&known.path, &known.id) {
        return Ok(vec![DoctorFinding::error(root, what).hint(hint)]);
    }
    found.extend(path_entry(known));
    let here = LoadedProject::at(home, Some(store), &known.path);
    let here = match here.and_then(LoadedProject::trusted) {
        Ok(here) => here,
        Err(failure) => return Ok(vec![DoctorFinding::failure(root, &failure)]),
    };
    if let Some((what, hint)) = project::contradiction(known) {
        found.push(DoctorFinding::warning(&root, what).hint(hint));
    }
    if let Some(kind) = filesystem::shared(&known.path) {
        found.push(DoctorFinding::warning(
            &root,
            format!("is on {kind}: changes by other machines are not noticed"),
        ));
    }
    found.extend(surroundings::disk_at(&known.path));
    found.extend(
        ticks::disagreements(home, &here.config)
            .into_iter()
            .map(|it| DoctorFinding::warning(&root, it.what).hint(it.hint)),
    );
    found.extend(failure_markers(&here, known));
    found.extend(stale_locks(&here, store, now)?);
    found.extend(overdue_jobs(store, known, now)?);
    Ok(found)
}

/// Reports the first PATH entry that points into the project, if there is one.
fn path_entry(known: &Project) -> Option<DoctorFinding> {
    let root = known.path.display().to_string();
    let path = env::setting("PATH").unwrap_or_default();
    let path = path.to_string_lossy();
    let mut entries = path.split(':').filter(|_| !path.is_empty());
    let entry = entries.find(|entry| is_inside(entry, &known.path))?;
    let what = format!(
        "PATH contains {entry:?}, which points into a project: an agent could put programs there; \
             runner looks for its programs elsewhere; remove that folder from PATH before you run setup again"
    );
    Some(DoctorFinding::warning(root, what).hint("runner setup --apply"))
}

/// Reports the failure markers of the project's jobs.
fn failure_markers(here: &LoadedProject, known: &Project) -> Vec<DoctorFinding> {
    let root = known.path.display().to_string();
    let mut found = Vec::new();
    for mark in Projection::of(here).marks(&known.path) {
        found.push(
            DoctorFinding::error(
                format!("job {} of {root}", mark.job),
                format!(
                    "failed at {}: {}; {}, then acknowledge it",
                    show::format_time(mark.at),
                    mark.message,
                    mark.hint
                ),
            )
            .hint(format!(
                "runner -C {} jobs reset {}",
                shell_word(known.path.display()),
                mark.job
            )),
        );
    }
    found
}

/// Reports the contract locks that another program holds, or that no process seems to hold.
fn stale_locks(
    here: &LoadedProject,
    store: &Store,
    now: Timestamp,
) -> Result<Vec<DoctorFinding>, Failure> {
    let mut found = Vec::new();
    for job in here.config.jobs.values() {
        let Some(lock) = job.spec.kind.lock_file() else {
            continue;
        };
        let path = here.root.join(lock);
        match ContractLock::inspect(&path, now) {
            Err(LockError::Foreign { path, content }) => found.push(DoctorFinding::note(
                path.display().to_string(),
                format!("is held by another program ({content}); runner respects it for an hour"),
            )),
            // While a run is live, the lock may be its own. Otherwise the next run replaces the
            // lock file, whether runner or another program wrote it.
            Ok(true) if store.live()?.is_empty() => found.push(
                DoctorFinding::warning(
                    path.display().to_string(),
                    "a lock file that no process seems to hold; the next run takes it over",
                )
                .hint(format!("rm {}", shell_word(path.display()))),
            ),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns whether a run did everything that its job had to do.
fn is_done(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Skipped { reason, .. } => *reason == SkipReason::Idle,
        outcome => outcome.published(),
    }
}

/// Reports the scheduled jobs that have not succeeded for a long time.
fn overdue_jobs(
    store: &Store,
    known: &Project,
    now: Timestamp,
) -> Result<Vec<DoctorFinding>, Failure> {
    let root = known.path.display().to_string();
    let mut found = Vec::new();
    for job in store.jobs(&known.id)? {
        let clocked =
            job.enabled && !matches!(job.schedule.trigger, Trigger::Manual | Trigger::After(_));
        if !clocked || job.name == REPORT_JOB {
            continue;
        }
        let runs = store.runs(&RunFilter {
            project: Some(known.id.clone()),
            job: Some(job.id),
            limit: BACK,
            ..RunFilter::default()
        })?;
        let last = runs.iter().find(|run| run.outcome().is_some_and(is_done));
        let place = format!("job {} of {root}", job.name);
        match (last, runs.last()) {
            (Some(run), _) if now.duration_since(run.requested) > SUCCESS => found.push(
                DoctorFinding::warning(
                    place,
                    format!(
                        "last succeeded or had nothing to do at {}",
                        show::format_time(run.requested)
                    ),
                )
                .hint(format!(
                    "runner -C {} run {}",
                    shell_word(known.path.display()),
                    job.name
                )),
            ),
            (None, Some(first)) if now.duration_since(first.requested) > SUCCESS => found.push(
                DoctorFinding::warning(
                    place,
                    format!("has not succeeded in {}", show::count(runs.len() as u64, "run")),
                )
                .hint(format!(
                    "runner -C {} run {}",
                    shell_word(known.path.display()),
                    job.name
                )),
            ),
            _ => {}
        }
    }
    Ok(found)
}
