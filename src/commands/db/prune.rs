//! `runner db prune`: shows the plan, or carries out the same plan.

use std::collections::BTreeMap;

use runner_engine::outcome::Exit;
use runner_engine::store::{PruneFacts, PrunePlan};
use serde::Serialize;

use crate::env::Env;
use crate::maintenance;
use crate::ui::show;
use crate::ui::{Failure, Ui};

#[derive(Debug, Serialize)]
struct PruneJson<'a> {
    done: bool,
    #[serde(flatten)]
    plan: &'a PrunePlan,
}

pub fn run(home: &Env, dry_run: bool, ui: Ui) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let retention = maintenance::retention(home)?;
    if dry_run {
        // The dry run only reads: it neither creates a database nor migrates one to this format.
        let plan = match home.store_to_read()? {
            Some(store) => maintenance::plan(home, &store, &retention, now)?,
            None => retention.plan(PruneFacts::default(), now),
        };
        match ui.json {
            true => print_plan(&plan, false),
            false => show::out(&describe_plan(&plan)),
        }
        return Ok(Exit::Done);
    }
    let mut store = home.store()?;
    let plan = maintenance::plan(home, &store, &retention, now)?;
    if !ui.json {
        ui.info(describe_plan(&plan).trim_end());
    }
    maintenance::carry_out(&mut store, &plan, &mut Env::dying())?;
    store.cut_log(0)?;
    if ui.json {
        print_plan(&plan, true);
    }
    Ok(Exit::Done)
}

fn print_plan(plan: &PrunePlan, done: bool) {
    show::json(&PruneJson { done, plan });
}

fn describe_plan(plan: &PrunePlan) -> String {
    let rows = &plan.rows;
    let mut text = format!("older than {}:\n", show::format_time(plan.limit));
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            text.push_str(&format!("  remove  {count} {what}\n"));
        }
    };
    line(rows.occurrences.len() as u64, "occurrences");
    line(rows.runs, "runs of those");
    line(rows.deferrals.len() as u64, "deferrals between the first and the last of their chains");
    line(rows.nights.len() as u64, "nights");
    line(rows.budget_usage.len() as u64, "budgets of days, weeks and windows");
    line(rows.events, "events");
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for file in &plan.files {
        *kinds.entry(format!("{:?}", file.kind).to_lowercase()).or_default() += 1;
    }
    for (kind, count) in kinds {
        line(count, &format!("files or folders of kind {kind}"));
    }
    for kept in &plan.kept {
        text.push_str(&format!("  keep    {} ({})\n", kept.count, kept.why));
    }
    if plan.is_empty() {
        text.push_str("  nothing to remove\n");
    }
    text
}
