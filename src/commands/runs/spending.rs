//! The usage of one run, and the budgets that were charged for it.

use runner_engine::store::{Amounts, RunRow, Store};
use runner_text::counted;
use serde::Serialize;

use crate::budget;
use crate::ui::{Failure, show};

#[derive(Debug, Serialize)]
pub(super) struct RunSpending {
    spent: Amounts,
    /// Number of calls that did not report their usage; the reserved amounts count as their usage.
    unstated_calls: u64,
    /// Number of calls that reported their tokens but have no known price; the reserved amount
    /// counts as their cost.
    unpriced_calls: u64,
    /// The run from whose reservation this run's reservation was taken.
    parent: Option<String>,
    usage: Vec<BudgetUse>,
}

#[derive(Debug, Serialize)]
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
            let lasted = finished.duration_since(started).as_secs();
            spent.seconds = lasted.max(0).unsigned_abs();
        }
        Ok(Self {
            spent,
            unstated_calls: store.unstated_calls(&row.id)?,
            unpriced_calls: store.unpriced_calls(&row.id)?,
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

    /// Formats the usage for people.
    pub(super) fn lines(&self) -> Vec<Vec<String>> {
        let mut text = budget::format_amounts(self.spent);
        for (count, why) in [
            (self.unstated_calls, "charged at the reserved maximum"),
            (
                self.unpriced_calls,
                "without a known price, its cost charged at the reserved maximum",
            ),
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
        for account in &self.usage {
            // A project's key begins with the project's id, which readers do not need.
            let key = match account.level.as_str() {
                "day" | "job" => account.key.split_once(' ').map_or("", |(_, rest)| rest),
                _ => &account.key,
            };
            let what = if account.held { "reserves" } else { "had reserved" };
            let amounts = budget::format_amounts(account.reserved);
            lines
                .push(show::row(["budget", &format!("{} {key}: {what} {amounts}", account.level)]));
        }
        lines
    }
}
