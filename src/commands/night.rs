//! The `runner night` command: runs every enabled job once, one after the other, under one budget
//! and with one report.

use std::collections::VecDeque;
use std::path::Path;

use runner_engine::outcome::{Exit, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::schedule::Trigger;
use runner_engine::store::{NewOccurrence, Recorded};
use runner_engine::tick::{civil_date, close_nights};
use runner_jobs::report;

use super::run::print_outcome;
use crate::cli::args::{AwakeFlags, Listing};
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::config::TriggerSpec;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::spawn::{self, SpawnMode};

/// Runs a night manually.
pub fn run(
    home: &Env,
    here: &Path,
    manner: SpawnMode,
    awake: AwakeFlags,
    listing: Listing,
) -> Result<Exit, Failure> {
    with_steps(home, here, &[], manner, awake, listing)
}

/// Runs a night in which some jobs run more than once: `steps` names each such job and the number
/// of its additional runs.
pub fn with_steps(
    home: &Env,
    here: &Path,
    steps: &[(&str, u32)],
    manner: SpawnMode,
    awake: AwakeFlags,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    let now = home.wall()?;
    let mut store = home.store()?;
    store.check()?;
    project.register(&mut store, now)?;
    let me = ProcessIdentity::me();
    // A job of a cycle runs when its turn comes, and a job that follows another job runs after it.
    let due: Vec<_> = (project.config.jobs.iter())
        .filter(|(_, job)| job.enabled)
        .filter(|(_, job)| {
            !matches!(job.when, TriggerSpec::Clock(Trigger::After(_)) | TriggerSpec::Lifecycle)
        })
        .collect();
    if due.is_empty() {
        return Ok(nothing_due(&project, manner.ui, listing));
    }
    let settings = &project.config.night;
    let closes = now.saturating_add(settings.length).unwrap_or(now);
    let night = store.open_night(&project.id, &civil_date(now, &settings.zone), now, closes)?;
    manner.ui.beside(listing).info(&format!("night {}", night.name));
    // All jobs are recorded before the first one starts: if this process dies, the next tick runs
    // the rest. A job that follows another job is recorded when that job has ended.
    let mut queue = VecDeque::new();
    for (name, job) in due {
        let more = steps.iter().find(|(step, _)| step == name);
        for number in 0..=more.map_or(0, |(_, more)| *more) {
            let key = match number {
                0 => format!("night-{}", night.id.0),
                further => format!("night-{}-{further}", night.id.0),
            };
            let new = NewOccurrence {
                night: Some(night.id),
                settings: awake.settings(),
                ..NewOccurrence::manual(store.job(&project.id, name)?.id, key, now)
            };
            if let Recorded::New(run) = store.enter(&new, &me, now)? {
                tracing::debug!(job = name, kind = job.spec.kind.name(), "recorded");
                queue.push_back(run);
            }
        }
    }
    let mut worst = Exit::Done;
    while let Some(run) = queue.pop_front() {
        let row = spawn::run_to_end(home, &mut store, &me, &run, manner)?;
        let exit = row.outcome().map_or(Exit::Internal, |outcome| outcome.exit(true));
        worst = worst.max(exit);
        if !listing.json {
            print_outcome(&row, manner, Listing::default());
        }
        if exit == Exit::Cancelled {
            break;
        }
        queue.extend(store.start_ready(Some(night.id), &me, home.wall()?)?);
    }
    for run in queue {
        let outcome =
            Outcome::Cancelled { why: "the night was cancelled before its turn".to_owned() };
        store.decline(&run, &outcome, home.wall()?)?;
    }
    let driver = spawn::driver(home, &me);
    let mut reported = false;
    for run in close_nights(&mut store, &driver, home.now()?, Some(&project.id))? {
        let row = spawn::run_to_end(home, &mut store, &me, &run, manner)?;
        let published = row.outcome().is_some_and(Outcome::published);
        reported |= published && row.night == Some(night.id);
        if !published {
            worst = worst.max(Exit::Failed);
            print_outcome(&row, manner, Listing::default());
        }
    }
    let open = store.occurrences_of(night.id)?;
    let open = open.iter().filter(|one| one.outcome.is_none()).count();
    let report = report::whole(&store, night.id, &project.root, home.wall()?)?;
    if listing.json {
        show::json(&report);
    } else if reported {
        let folder = store.report_folder(night.id)?;
        let path = project
            .root
            .join(report::FOLDER)
            .join(folder.as_ref().unwrap_or(&report.night))
            .join("report.md");
        manner.ui.info(&format!("{} — {}", report.headline(), path.display()));
    } else if open > 0 {
        manner.ui.info(&format!(
            "{}; the report is written when the remaining runs have finished, at the latest at {}",
            report.headline(),
            show::format_time(closes)
        ));
    } else {
        show::complain(&format!(
            "{}; the report of the night could not be written",
            report.headline()
        ));
        worst = worst.max(Exit::Failed);
    }
    Ok(worst)
}

/// Reports a night in which nothing is due. Such a night is not opened, so it has no report and
/// does not count as missed.
fn nothing_due(project: &LoadedProject, ui: Ui, listing: Listing) -> Exit {
    let why = match project.config.jobs.len() {
        0 => "this project has no job".to_owned(),
        jobs => format!(
            "none of {} is enabled and begins a night (`runner config show` lists them)",
            show::count(jobs as u64, "job")
        ),
    };
    if listing.json {
        show::json(&serde_json::json!({ "night": null, "why": why, "runs": [] }));
    } else {
        ui.info(&format!("nothing is due: {why}; no night is opened and no report written"));
    }
    Exit::Done
}
