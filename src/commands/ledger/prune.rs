//! `runner ledger prune`: show the plan, or carry out the same.

use std::collections::BTreeMap;

use runner_engine::ledger::{PruneFacts, PrunePlan};
use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::care;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::home::Home;

#[derive(Debug, Serialize)]
struct PruneJson<'a> {
    done: bool,
    #[serde(flatten)]
    plan: &'a PrunePlan,
}

pub fn run(home: &Home, dry_run: bool, quiet: bool, listing: Listing) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let retention = care::retention(home)?;
    if dry_run {
        // Looked at through a reader: not even a ledger is made, and none is brought to this format.
        let plan = match home.ledger_to_read()? {
            Some(ledger) => care::plan(home, &ledger, &retention, now)?,
            None => retention.plan(PruneFacts::default(), now),
        };
        match listing.json {
            true => tell(&plan, false),
            false => show::out(&words(&plan)),
        }
        return Ok(Exit::Done);
    }
    let mut ledger = home.ledger()?;
    let plan = care::plan(home, &ledger, &retention, now)?;
    if !listing.json {
        show::say(quiet, words(&plan).trim_end());
    }
    care::carry_out(&mut ledger, &plan, &mut Home::dying())?;
    ledger.cut_log(0)?;
    if listing.json {
        tell(&plan, true);
    }
    Ok(Exit::Done)
}

fn tell(plan: &PrunePlan, done: bool) {
    show::json(&PruneJson { done, plan });
}

fn words(plan: &PrunePlan) -> String {
    let rows = &plan.rows;
    let mut text = format!("older than {}:\n", show::moment(plan.limit));
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            text.push_str(&format!("  remove  {count} {what}\n"));
        }
    };
    line(rows.occurrences.len() as u64, "occurrences");
    line(rows.runs, "runs of those");
    line(
        rows.deferrals.len() as u64,
        "deferrals between the first and the last of their chains",
    );
    line(rows.nights.len() as u64, "nights");
    line(
        rows.accounts.len() as u64,
        "accounts of days, weeks and windows",
    );
    line(rows.events, "events");
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for file in &plan.files {
        *kinds
            .entry(format!("{:?}", file.kind).to_lowercase())
            .or_default() += 1;
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
