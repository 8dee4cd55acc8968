//! Describes a run's usage and reservations.

use runner_engine::store::{Amounts, RunRow, Store, budget_seconds};
use runner_text::counted;
use schemars::JsonSchema;
use serde::Serialize;

use crate::budget;
use crate::ui::{Failure, show};

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct RunSpending {
    spent: Amounts,
    /// The number of calls that have reported no usage and are charged the reserved amounts.
    unstated_calls: u64,
    /// The number of calls that reported tokens without a known price, and are charged the reserved
    /// cost.
    unpriced_calls: u64,
    /// The number of calls that reported a cost higher than the run's remaining budget. Each is
    /// charged only the remaining amount.
    limited_calls: u64,
    /// The run whose reservation includes this run's reservation, if there is one.
    parent: Option<String>,
    usage: Vec<BudgetUse>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct BudgetUse {
    level: String,
    key: String,
    reserved: Amounts,
    /// Whether the reservation is still active.
    held: bool,
}

impl RunSpending {
    pub(super) fn of(store: &Store, row: &RunRow) -> Result<Self, Failure> {
        let mut spent = store.spent_by(&row.id)?;
        if let (Some(started), Some(finished)) = (row.started(), row.finished()) {
            spent.seconds = budget_seconds(started, finished);
        }
        Ok(Self {
            spent,
            unstated_calls: store.unstated_calls(&row.id)?,
            unpriced_calls: store.unpriced_calls(&row.id)?,
            limited_calls: store.limited_calls(&row.id)?,
            parent: store.parent_of(&row.id)?.map(|parent| parent.to_string()),
            usage: store
                .held_by(&row.id)?
                .into_iter()
                .map(|held| BudgetUse {
                    level: held.level,
                    key: held.key,
                    reserved: held.reserved,
                    held: held.open,
                })
                .collect(),
        })
    }

    /// Formats the usage and the reservations as table rows.
    pub(super) fn lines(&self) -> Vec<Vec<String>> {
        let mut text = budget::format_amounts(self.spent);
        let limited =
            "with a reported cost above the remaining budget, charged at the remaining budget";
        for (count, why) in [
            (self.unstated_calls, "charged at the reserved maximum"),
            (self.unpriced_calls, "without a known price, charged at the reserved maximum cost"),
            (self.limited_calls, limited),
        ] {
            match count {
                0 => {}
                n => text.push_str(&format!("; {} {why}", counted(n, "call"))),
            }
        }
        let mut lines = vec![show::row(["spent", &text])];
        if let Some(parent) = &self.parent {
            lines.push(show::row(["paid by", &format!("run {parent}")]));
        }
        for used in &self.usage {
            // These keys begin with the project's id, which readers do not need.
            let key = match used.level.as_str() {
                "day" | "job" => used.key.split_once(' ').map_or("", |(_, rest)| rest),
                _ => &used.key,
            };
            let what = if used.held { "reserves" } else { "had reserved" };
            let amounts = budget::format_amounts(used.reserved);
            lines.push(show::row(["budget", &format!("{} {key}: {what} {amounts}", used.level)]));
        }
        lines
    }
}
