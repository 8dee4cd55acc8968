//! `runner db prune`: plans the removal of old data, and carries out the plan.

use std::collections::BTreeMap;

use runner_engine::outcome::Exit;
use runner_engine::store::PrunePlan;
use serde::Serialize;

use crate::commands::Cli;
use crate::maintenance;
use crate::ui::{Failure, Ui, View, show};

/// Remove data older than `[retention]` allows; a tick does so once a day
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner db prune --dry-run")]
pub struct PruneArgs {
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// The removed data, or the data that would be removed.
#[derive(Debug, Serialize)]
struct Pruned {
    done: bool,
    #[serde(flatten)]
    plan: PrunePlan,
}

impl View for Pruned {
    fn print(&self, _ui: Ui) {
        // A plan is printed before it is carried out.
        if !self.done {
            show::out(&describe_plan(&self.plan));
        }
    }
}

impl PruneArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let retention = maintenance::retention(cli.env)?;
        if self.dry_run {
            let store = cli.env.store_for_dry_run()?;
            let plan = maintenance::plan(cli.env, &store, &retention, now)?;
            cli.ui.show(&Pruned { done: false, plan });
            return Ok(Exit::Done);
        }
        let mut store = cli.env.store()?;
        let plan = maintenance::plan(cli.env, &store, &retention, now)?;
        cli.ui.info(describe_plan(&plan).trim_end());
        maintenance::carry_out(&mut store, &plan)?;
        store.cut_log(0)?;
        cli.ui.show(&Pruned { done: true, plan });
        Ok(Exit::Done)
    }
}

fn describe_plan(plan: &PrunePlan) -> String {
    let rows = &plan.rows;
    let mut text = format!(
        "data past its retention period (database rows: before {}):\n",
        show::format_time(plan.limit)
    );
    let mut line = |count: u64, one: &str, more: &str| {
        if count > 0 {
            text.push_str(&format!("  remove  {}{more}\n", show::count(count, one)));
        }
    };
    line(rows.occurrences.len() as u64, "occurrence", "");
    line(rows.runs, "run", " of these occurrences");
    let between = " between the first and the last deferred run of an occurrence";
    line(rows.deferrals.len() as u64, "deferred run", between);
    line(rows.nights.len() as u64, "night", "");
    line(rows.budget_usage.len() as u64, "record", " of budget usage");
    line(rows.events, "event", "");
    line(rows.alerts.len() as u64, "ended alert", " with its messages");
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for file in &plan.files {
        *kinds.entry(format!("{:?}", file.kind).to_lowercase()).or_default() += 1;
    }
    for (kind, count) in kinds {
        line(count, "item", &format!(" of kind {kind}"));
    }
    for kept in &plan.kept {
        text.push_str(&format!("  keep    {} ({})\n", show::count(kept.count, "item"), kept.why));
    }
    if plan.is_empty() {
        text.push_str("  nothing to remove\n");
    }
    text
}
