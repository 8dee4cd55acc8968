//! `--dry-run` of `run`, `jobs run`, `dream run` and `night`: shows what would happen, and the
//! maximum cost.
//!
//! `execute::dry_run` simulates the runs, and this module prints them. This module must never write
//! a file or call a backend.

mod view;

use std::collections::{BTreeMap, VecDeque};

use runner_engine::ids::OccurrenceId;
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::schedule::Trigger;
use runner_engine::store::Amounts;
use runner_engine::tick::civil_date;

use super::Cli;
use super::execute::dry_run::{Charge, DryRun, DryRunOutcome, DryRunStore, RemainingBudget};
use crate::config::TriggerSpec;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// A run to simulate.
#[derive(Clone, Debug)]
pub struct DryRunRequest<'a> {
    pub job: &'a str,
    /// The key under which the job runs only once.
    pub key: Option<&'a str>,
    /// Settings of the job that apply to this run only.
    pub settings: Vec<(String, String)>,
    /// Whether a deferral exits with code 0.
    pub deferral_is_normal: bool,
}

/// Simulates one run of a job and prints the result.
pub fn run(
    cli: &Cli<'_>,
    project: &LoadedProject,
    request: DryRunRequest<'_>,
) -> Result<Exit, Failure> {
    let DryRunRequest { job, key, settings, deferral_is_normal } = request;
    let mut stage = DryRunStore::of(cli.env, project)?;
    let own = OccurrenceId::new(stage.now).to_string();
    let key = key.map_or(own, |key| format!("key {key}"));
    let Some(run) = stage.enter(project, job, &key, None, settings)? else {
        let known = "already requested with this key: nothing would run";
        cli.ui.show(&view::KnownRequest { dry_run: true, job, known });
        return Ok(Exit::Done);
    };
    let reported = stage.dry_run(&run, Charge::AtMost)?;
    let why_not = why_not(&reported);
    let exit = why_not.map_or(Exit::Done, |outcome| outcome.exit(deferral_is_normal));
    cli.ui.show(&view::SimulatedRun { project: &project.root, reported });
    Ok(exit)
}

/// A simulated run in a night.
pub struct NightTurn {
    /// The result, with every earlier run charged its maximum.
    pub reported: DryRun,
    /// Whether the budget is sufficient for the run.
    pub fits: BudgetFit,
}

/// Whether the budget is sufficient for a run after the earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetFit {
    /// The budget is sufficient even if all earlier runs spend their maximum.
    Yes,
    /// The budget is sufficient only if the earlier runs spend less than their maximum.
    Perhaps,
    /// The budget is not sufficient.
    No,
}

/// Simulates a night that starts now, and prints the result.
pub fn night(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let project = LoadedProject::load_for_dry_run(cli.env, cli.here)?;
    let (name, worst, account) = all(cli.env, &project, Charge::AtMost)?;
    let over = |reported: &DryRun| matches!(&reported.stands, DryRunOutcome::Declined(outcome) if outcome.class() == Some(Class::OverBudget));
    // The second simulation is only necessary if a run exceeds a budget in the worst case.
    let best: BTreeMap<String, bool> = if worst.iter().any(over) {
        let (_, best, _) = all(cli.env, &project, Charge::Nothing)?;
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
    let night = view::SimulatedNight { project: &project.root, name, turns, account };
    cli.ui.show(&night);
    let worst = night.turns.iter().filter(|turn| turn.fits != BudgetFit::Perhaps);
    let worst = worst.filter_map(|turn| Some(why_not(&turn.reported)?.exit(true)));
    Ok(worst.max().unwrap_or(Exit::Done))
}

/// Simulates all runs of the night in order. Returns the night's name, the runs, and the remaining
/// budget after them.
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
        // As in a real night, jobs that follow other jobs and the jobs of cycles are recorded
        // later.
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
    let account = RemainingBudget {
        label: format!("night {}", night.name),
        limit: settings.budget.array(),
        used,
    };
    Ok((night.name, all, account))
}

/// Returns the outcome of a run that would not begin, or that would end before its first request.
/// Returns `None` for any other run.
fn why_not(reported: &DryRun) -> Option<&Outcome> {
    match (&reported.stands, &reported.plan) {
        (DryRunOutcome::Declined(outcome), _) | (_, Some(Err(outcome))) => Some(outcome),
        _ => None,
    }
}
