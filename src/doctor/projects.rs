//! The ledger and the projects in it: what failed and was not mended, what is locked, what never
//! succeeded, how long nobody has looked through the ledger.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::git::is_inside;
use runner_engine::ledger::{Filter, Ledger, Project};
use runner_engine::locks::{ContractLock, LockError};
use runner_engine::outcome::Outcome;
use runner_engine::schedule::Trigger;
use runner_engine::tick::REPORT_JOB;
use runner_jobs::KindSpec;

use super::{Finding, surroundings, word};
use crate::cli::{Failure, show};
use crate::filesystem;
use crate::home::{self, Home};
use crate::project::projection::Projection;
use crate::project::{self, Here};

/// The whole ledger is looked through once a day.
const CHECKED: SignedDuration = SignedDuration::from_hours(72);
/// A job that its clock starts, and that has not succeeded for so long.
const SUCCESS: SignedDuration = SignedDuration::from_hours(24 * 7);
/// So many runs back are looked at.
const BACK: u32 = 200;

/// What is wrong with them.
pub fn findings(home: &Home, ledger: Option<&Ledger>, here: &Path) -> Vec<Finding> {
    let Some(ledger) = ledger else {
        let repository = here.ancestors().any(|folder| folder.join(".git").exists());
        let mend = match repository {
            true => "runner init",
            false => "git init && runner init",
        };
        return vec![Finding::note("ledger", "there is none yet").mend(mend)];
    };
    look(home, ledger).unwrap_or_else(|failure| vec![Finding::failure("ledger", &failure)])
}

fn look(home: &Home, ledger: &Ledger) -> Result<Vec<Finding>, Failure> {
    let now = home.wall()?;
    let mut found = Vec::new();
    if let Some(until) = ledger.paused_until(now)? {
        let until = show::moment(until);
        found.push(
            Finding::note("pause", format!("everything is paused until {until}"))
                .mend("runner resume --all"),
        );
    }
    let looked = ledger.cared_for("daily")?;
    if home.last_tick().is_some() && looked.is_none_or(|at| now.duration_since(at) > CHECKED) {
        let since = looked.map_or_else(
            || "ever".to_owned(),
            |at| format!("since {}", show::moment(at)),
        );
        found.push(
            Finding::warning("ledger", format!("nobody has looked through it {since}"))
                .mend("runner ledger check"),
        );
    }
    for known in ledger.projects()? {
        found.extend(one(home, ledger, &known, now)?);
    }
    Ok(found)
}

fn one(
    home: &Home,
    ledger: &Ledger,
    known: &Project,
    now: Timestamp,
) -> Result<Vec<Finding>, Failure> {
    let root = known.path.display().to_string();
    let mut found = Vec::new();
    if let Some((what, mend)) = project::standing_of_row(known).trouble(&known.path, &known.id) {
        return Ok(vec![Finding::error(root, what).mend(mend)]);
    }
    let path = home::setting("PATH").unwrap_or_default();
    let path = path.to_string_lossy();
    let mut entries = path.split(':').filter(|_| !path.is_empty());
    if let Some(entry) = entries.find(|entry| is_inside(entry, &known.path)) {
        let what = format!(
            "PATH has {entry:?}, which leads into a project: an agent could put programs there; \
             runner looks for its programs elsewhere"
        );
        found.push(
            Finding::warning(root.clone(), what)
                .mend("take that folder out of PATH, then: runner setup --apply"),
        );
    }
    let here = match Here::at(home, Some(ledger), &known.path) {
        Ok(here) => here,
        Err(failure) => return Ok(vec![Finding::failure(root, &failure)]),
    };
    if let Some((what, mend)) = project::contradiction(known) {
        found.push(Finding::warning(&root, what).mend(mend));
    }
    if let Some(kind) = filesystem::shared(&known.path) {
        found.push(Finding::warning(
            &root,
            format!("lies on {kind}: what other machines do there is not seen"),
        ));
    }
    found.extend(surroundings::room_at(&known.path));
    for mark in Projection::of(&here.config).marks(&known.path) {
        found.push(
            Finding::error(
                format!("job {} of {root}", mark.job),
                format!(
                    "failed at {}: {}; {}, then acknowledge it",
                    show::moment(mark.at),
                    mark.message,
                    mark.hint
                ),
            )
            .mend(format!("runner -C {} ack {}", word(&known.path), mark.job)),
        );
    }
    for job in here.config.jobs.values() {
        let KindSpec::Dream(dream) = &job.spec.kind else {
            continue;
        };
        let path = known.path.join(&dream.dreams).join(".lock");
        match ContractLock::look(&path, now) {
            Err(LockError::Foreign { path, content }) => found.push(Finding::note(
                path.display().to_string(),
                format!("another program ({content}) holds it; it is respected for an hour"),
            )),
            // One of ours is taken over under the deciding lock; one that is old is another's.
            Ok(true) if ledger.live()?.is_empty() => found.push(
                Finding::warning(
                    path.display().to_string(),
                    "a lock file that nobody seems to hold; the next run takes it over",
                )
                .mend(format!("rm {}", word(&path))),
            ),
            _ => {}
        }
    }
    for job in ledger.jobs(&known.id)? {
        let clocked =
            job.enabled && !matches!(job.schedule.trigger, Trigger::Manual | Trigger::After(_));
        if !clocked || job.name == REPORT_JOB {
            continue;
        }
        let runs = ledger.runs(&Filter {
            project: Some(known.id.clone()),
            job: Some(job.id),
            limit: BACK,
            ..Filter::default()
        })?;
        let done = |outcome: &Option<Outcome>| {
            matches!(outcome, Some(Outcome::Succeeded | Outcome::Degraded { .. }))
        };
        let last = runs.iter().find(|run| done(&run.outcome));
        let place = format!("job {} of {root}", job.name);
        match (last, runs.last()) {
            (Some(run), _) if now.duration_since(run.requested) > SUCCESS => found.push(
                Finding::warning(
                    place,
                    format!("last succeeded at {}", show::moment(run.requested)),
                )
                .mend(format!("runner -C {} run {}", word(&known.path), job.name)),
            ),
            (None, Some(first)) if now.duration_since(first.requested) > SUCCESS => found.push(
                Finding::warning(
                    place,
                    format!(
                        "has not succeeded in {}",
                        show::count(runs.len() as u64, "run")
                    ),
                )
                .mend(format!("runner -C {} run {}", word(&known.path), job.name)),
            ),
            _ => {}
        }
    }
    Ok(found)
}
