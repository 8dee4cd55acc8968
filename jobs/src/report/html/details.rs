//! The lower half of the page: budget usage, refusals, and the runs' sandboxes and sleep
//! inhibition.

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::sandbox::SandboxLevel;
use serde::Serialize;

use super::Tone;
use crate::report::budget_usage::UnitUsage;
use crate::report::model::NightReport;
use crate::report::refusals::Refusal;
use crate::report::run_line::RunLine;

/// Returns whether a run started a program without a sandbox.
pub(super) fn is_unconfined(run: &RunLine) -> bool {
    run.sandbox == Some(SandboxLevel::Off)
}

/// The usage of one unit, with the spent and planned shares of the limit in percent, at most 100.
#[derive(Serialize)]
pub(super) struct BudgetView<'a> {
    usage: &'a UnitUsage,
    limit: Option<u64>,
    spent_percent: u128,
    planned_percent: u128,
}

impl<'a> BudgetView<'a> {
    pub(super) fn of(usage: &'a UnitUsage) -> Self {
        let limit = usage.limit();
        let whole = u128::from(limit.unwrap_or(0)).max(1);
        let percent = |amount: u64| (u128::from(amount) * 100 / whole).min(100);
        Self {
            usage,
            limit,
            spent_percent: percent(usage.spent),
            planned_percent: percent(usage.planned),
        }
    }
}

#[derive(Serialize)]
pub(super) struct RefusalView<'a> {
    by: &'static str,
    refusal: &'a Refusal,
}

impl<'a> RefusalView<'a> {
    pub(super) fn of(refusal: &'a Refusal) -> Self {
        Self { by: refusal.by.describe(), refusal }
    }
}

/// The sandboxes of the runs, and whether the host stayed awake: each distinct description once,
/// with its jobs.
#[derive(Serialize)]
pub(super) struct SandboxView<'a> {
    levels: Vec<JobsOf<'a>>,
    gaps: Vec<JobsOf<'a>>,
    awake: Vec<JobsOf<'a>>,
}

#[derive(Serialize)]
struct JobsOf<'a> {
    text: String,
    tone: Option<Tone>,
    jobs: BTreeSet<&'a str>,
}

impl<'a> SandboxView<'a> {
    pub(super) fn of(report: &'a NightReport) -> Self {
        let runs = || report.runs.iter();
        let held = runs().filter(|run| !run.containment.is_empty());
        let gaps = runs().flat_map(|run| {
            run.gaps.iter().map(move |gap| (run, format!("limitation: {gap}"), Some(Tone::Warn)))
        });
        Self {
            levels: jobs_of(held.map(|run| {
                (run, run.containment.clone(), is_unconfined(run).then_some(Tone::Bad))
            })),
            gaps: jobs_of(gaps),
            awake: jobs_of(
                runs().filter_map(|run| Some((run, run.awake.as_ref()?.to_string(), None))),
            ),
        }
    }
}

fn jobs_of<'a>(all: impl Iterator<Item = (&'a RunLine, String, Option<Tone>)>) -> Vec<JobsOf<'a>> {
    let mut found: BTreeMap<(String, Option<Tone>), BTreeSet<&'a str>> = BTreeMap::new();
    for (run, text, tone) in all {
        found.entry((text, tone)).or_default().insert(&run.job);
    }
    found.into_iter().map(|((text, tone), jobs)| JobsOf { text, tone, jobs }).collect()
}
