//! `--dry-run` of `run`, `dream run` and `night`: what would happen, what it would cost at most, and
//! what would keep it from happening.
//!
//! The runs are gone through in `perform::rehearsal`; here they are put in order and shown. Must
//! never write a file or ask a backend.

mod view;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use runner_engine::ids::OccurrenceId;
use runner_engine::ledger::Amounts;
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::schedule::Trigger;
use runner_engine::tick::civil_date;

use super::perform::rehearsal::{Left, Rehearsed, Stage, Stands};
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::config::When;
use crate::home::Home;
use crate::project::Here;

/// Goes through one job by name.
pub fn run(
    home: &Home,
    here: &Path,
    job: &str,
    key: Option<&str>,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = Here::load_for_dry_run(home, here)?;
    project.config.job(job)?;
    once(home, &project, job, key, Vec::new(), false, listing)
}

/// Goes through a dream job, with these settings for once.
pub fn dream(
    home: &Home,
    project: &Here,
    job: &str,
    settings: Vec<(String, String)>,
    listing: Listing,
) -> Result<Exit, Failure> {
    once(home, project, job, None, settings, true, listing)
}

fn once(
    home: &Home,
    project: &Here,
    job: &str,
    key: Option<&str>,
    settings: Vec<(String, String)>,
    deferral_is_normal: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let mut stage = Stage::of(home, project)?;
    let own = OccurrenceId::new(stage.now).to_string();
    let key = key.map_or(own, |key| format!("key {key}"));
    let Some(run) = stage.enter(project, job, &key, None, settings)? else {
        let why = "it was asked for with this key before: nothing would be run";
        if listing.json {
            show::json(&serde_json::json!({ "dry_run": true, "job": job, "known": why }));
        } else {
            show::out(&format!("{job}: {why}\n"));
        }
        return Ok(Exit::Done);
    };
    let told = stage.rehearse(&run, true)?;
    if listing.json {
        show::json(&view::json(&told, &project.root));
    } else {
        show::out(&view::text(&told));
    }
    Ok(exit(&told, deferral_is_normal))
}

/// How the command ends: as the run would that ends before it asks, else well.
fn exit(told: &Rehearsed, deferral_is_normal: bool) -> Exit {
    match (&told.stands, &told.plan) {
        (Stands::Declined(outcome), _) | (_, Some(Err(outcome))) => {
            outcome.exit(deferral_is_normal)
        }
        _ => Exit::Done,
    }
}

/// A run of a night.
pub struct Turn {
    /// With everything before it charged at its most.
    pub told: Rehearsed,
    /// Whether the night's budget has room for it.
    pub fits: Fits,
}

/// Whether there is budget left when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// Whatever those before it spend.
    Yes,
    /// Unless those before it spend all that they may.
    Perhaps,
    /// No.
    No,
}

/// Goes through a night by hand.
pub fn night(home: &Home, here: &Path, listing: Listing) -> Result<Exit, Failure> {
    let project = Here::load_for_dry_run(home, here)?;
    let (name, worst, account) = all(home, &project, true)?;
    let over = |told: &Rehearsed| matches!(&told.stands, Stands::Declined(outcome) if outcome.class() == Some(Class::OverBudget));
    // Only who would be refused at the worst is worth a second look.
    let best: BTreeMap<String, bool> = if worst.iter().any(over) {
        let (_, best, _) = all(home, &project, false)?;
        let fits = best.iter().map(|it| (it.row.job_name.clone(), !over(it)));
        fits.collect()
    } else {
        BTreeMap::new()
    };
    let turns: Vec<Turn> = worst
        .into_iter()
        .map(|told| Turn {
            fits: match (over(&told), best.get(&told.row.job_name)) {
                (false, _) => Fits::Yes,
                (true, Some(true)) => Fits::Perhaps,
                (true, _) => Fits::No,
            },
            told,
        })
        .collect();
    if listing.json {
        show::json(&view::night_json(&name, &turns, &account, &project.root));
    } else {
        show::out(&view::night_text(&name, &turns, &account));
    }
    let worst = turns.iter().filter(|turn| turn.fits != Fits::Perhaps);
    Ok(worst
        .map(|turn| exit(&turn.told, true))
        .max()
        .unwrap_or(Exit::Done))
}

/// All runs of the night in their order, and the night's account after them.
fn all(home: &Home, project: &Here, most: bool) -> Result<(String, Vec<Rehearsed>, Left), Failure> {
    let mut stage = Stage::of(home, project)?;
    let settings = &project.config.night;
    let (now, date) = (stage.now, civil_date(stage.now, &settings.zone));
    let closes = now.saturating_add(settings.length).unwrap_or(now);
    let night = stage.ledger.open_night(&project.id, &date, now, closes)?;
    let mut queue = VecDeque::new();
    for (name, job) in project.config.jobs.iter().filter(|(_, job)| job.enabled) {
        // As a real one: what follows another comes after it, and a cycle's job when it is its turn.
        if matches!(job.when, When::Clock(Trigger::After(_)) | When::Lifecycle) {
            continue;
        }
        let key = format!("night-{}", night.id.0);
        queue.extend(stage.enter(project, name, &key, Some(night.id), Vec::new())?);
    }
    let mut all = Vec::new();
    while let Some(run) = queue.pop_front() {
        all.push(stage.rehearse(&run, most)?);
        queue.extend(stage.ready(night.id)?);
    }
    let used: Amounts = stage.ledger.account("night", &night.id.0.to_string())?;
    let account = Left {
        label: format!("night {}", night.name),
        cap: settings.budget,
        used,
    };
    Ok((night.name, all, account))
}

/// Why a run would not begin, or would end before it asks.
fn why_not(told: &Rehearsed) -> Option<&Outcome> {
    match (&told.stands, &told.plan) {
        (Stands::Declined(outcome), _) | (_, Some(Err(outcome))) => Some(outcome),
        _ => None,
    }
}
