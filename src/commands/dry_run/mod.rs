//! `--dry-run` of `run`, `dream run` and `night`: shows what would happen, the maximum cost, and
//! what would prevent it.
//!
//! `execute::dry_run` simulates the runs; this module orders and prints them. It must never write a
//! file or ask a backend.

mod view;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use runner_engine::ids::OccurrenceId;
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::schedule::Trigger;
use runner_engine::store::Amounts;
use runner_engine::tick::civil_date;

use super::execute::dry_run::{Charge, DryRun, DryRunOutcome, DryRunStore, RemainingBudget};
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::config::TriggerSpec;
use crate::env::Env;
use crate::project::LoadedProject;

/// Makes a dry run of one job by name.
pub fn run(
    home: &Env,
    here: &Path,
    job: &str,
    key: Option<&str>,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load_for_dry_run(home, here)?;
    project.config.job(job)?;
    once(home, &project, job, key, Vec::new(), false, listing)
}

/// Makes a dry run of a dream job with these settings.
pub fn dream(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    settings: Vec<(String, String)>,
    listing: Listing,
) -> Result<Exit, Failure> {
    once(home, project, job, None, settings, true, listing)
}

fn once(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    key: Option<&str>,
    settings: Vec<(String, String)>,
    deferral_is_normal: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let mut stage = DryRunStore::of(home, project)?;
    let own = OccurrenceId::new(stage.now).to_string();
    let key = key.map_or(own, |key| format!("key {key}"));
    let Some(run) = stage.enter(project, job, &key, None, settings)? else {
        let why = "it was already requested with this key: nothing would be run";
        if listing.json {
            show::json(&serde_json::json!({ "dry_run": true, "job": job, "known": why }));
        } else {
            show::out(&format!("{job}: {why}\n"));
        }
        return Ok(Exit::Done);
    };
    let reported = stage.dry_run(&run, Charge::AtMost)?;
    if listing.json {
        show::json(&view::json(&reported, &project.root));
    } else {
        show::out(&view::text(&reported));
    }
    Ok(exit(&reported, deferral_is_normal))
}

/// Returns the exit code: that of a run that would end before it asks a backend, otherwise success.
fn exit(reported: &DryRun, deferral_is_normal: bool) -> Exit {
    match (&reported.stands, &reported.plan) {
        (DryRunOutcome::Declined(outcome), _) | (_, Some(Err(outcome))) => {
            outcome.exit(deferral_is_normal)
        }
        _ => Exit::Done,
    }
}

/// A run in the dry run of a night.
pub struct NightTurn {
    /// The dry run, with every earlier run charged its maximum.
    pub reported: DryRun,
    /// Whether the night's budget is sufficient for the run.
    pub fits: BudgetFit,
}

/// Whether the remaining budget is sufficient when a run's turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetFit {
    /// Yes, no matter how much the runs before it spend.
    Yes,
    /// Yes, unless the runs before it spend all that they may.
    Perhaps,
    /// No.
    No,
}

/// Makes a dry run of a manual night.
pub fn night(home: &Env, here: &Path, listing: Listing) -> Result<Exit, Failure> {
    let project = LoadedProject::load_for_dry_run(home, here)?;
    let (name, worst, account) = all(home, &project, Charge::AtMost)?;
    let over = |reported: &DryRun| matches!(&reported.stands, DryRunOutcome::Declined(outcome) if outcome.class() == Some(Class::OverBudget));
    // Only a run that is refused in the worst case needs the second calculation.
    let best: BTreeMap<String, bool> = if worst.iter().any(over) {
        let (_, best, _) = all(home, &project, Charge::Nothing)?;
        let fits = best.iter().map(|it| (it.row.job_name.clone(), !over(it)));
        fits.collect()
    } else {
        BTreeMap::new()
    };
    let turns: Vec<NightTurn> = worst
        .into_iter()
        .map(|reported| NightTurn {
            fits: match (over(&reported), best.get(&reported.row.job_name)) {
                (false, _) => BudgetFit::Yes,
                (true, Some(true)) => BudgetFit::Perhaps,
                (true, _) => BudgetFit::No,
            },
            reported,
        })
        .collect();
    if listing.json {
        show::json(&view::night_json(&name, &turns, &account, &project.root));
    } else {
        show::out(&view::night_text(&name, &turns, &account));
    }
    let worst = turns.iter().filter(|turn| turn.fits != BudgetFit::Perhaps);
    Ok(worst.map(|turn| exit(&turn.reported, true)).max().unwrap_or(Exit::Done))
}

/// Simulates all runs of the night in their order, and returns the night's remaining budget after
/// them.
fn all(
    home: &Env,
    project: &LoadedProject,
    charge: Charge,
) -> Result<(String, Vec<DryRun>, RemainingBudget), Failure> {
    let mut stage = DryRunStore::of(home, project)?;
    let settings = &project.config.night;
    let (now, date) = (stage.now, civil_date(stage.now, &settings.zone));
    let closes = now.saturating_add(settings.length).unwrap_or(now);
    let night = stage.store.open_night(&project.id, &date, now, closes)?;
    let mut queue = VecDeque::new();
    for (name, job) in project.config.jobs.iter().filter(|(_, job)| job.enabled) {
        // As in a real night, a job that follows another job is recorded after it, and a cycle's
        // job when its turn comes.
        if matches!(job.when, TriggerSpec::Clock(Trigger::After(_)) | TriggerSpec::Lifecycle) {
            continue;
        }
        let key = format!("night-{}", night.id.0);
        queue.extend(stage.enter(project, name, &key, Some(night.id), Vec::new())?);
    }
    let mut all = Vec::new();
    while let Some(run) = queue.pop_front() {
        all.push(stage.dry_run(&run, charge)?);
        queue.extend(stage.ready(night.id)?);
    }
    let used: Amounts = stage.store.account("night", &night.id.0.to_string())?;
    let account =
        RemainingBudget { label: format!("night {}", night.name), cap: settings.budget, used };
    Ok((night.name, all, account))
}

/// Returns the outcome of a run that would not begin or would end before it asks a backend.
fn why_not(reported: &DryRun) -> Option<&Outcome> {
    match (&reported.stands, &reported.plan) {
        (DryRunOutcome::Declined(outcome), _) | (_, Some(Err(outcome))) => Some(outcome),
        _ => None,
    }
}
