//! `runner budget`: shows budgets and usage, and grants extra amounts.

mod grant;
mod history;
pub(super) mod standings;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::outcome::Exit;
use runner_engine::store::Amounts;
use runner_engine::zones;
use serde_json::{Map, Value, json};

use super::Cli;
use crate::budget::UNITS;
use crate::config::OverrideScope;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// Show budgets and usage, or grant an extra amount once [default: show]
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner budget --json | jq '.budgets[] | {label, left}'"
)]
pub struct BudgetArgs {
    #[command(subcommand)]
    command: Option<BudgetCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum BudgetCommand {
    /// Show each budget: its limit, the amounts used, reserved and left, and when it resets
    #[command(after_help = "Example: runner budget show")]
    Show,
    History(history::HistoryArgs),
    Grant(grant::GrantArgs),
}

impl BudgetArgs {
    /// Returns the settings that `--config` may change for this command, or `None` if the command
    /// accepts no overrides.
    pub fn override_scope(&self) -> Option<OverrideScope> {
        match self.command {
            None | Some(BudgetCommand::Show) => Some(OverrideScope::Look),
            Some(BudgetCommand::History(_) | BudgetCommand::Grant(_)) => None,
        }
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?;
        match &self.command {
            None | Some(BudgetCommand::Show) => standings::run(cli, &here),
            Some(BudgetCommand::History(args)) => args.run(cli, &here),
            Some(BudgetCommand::Grant(args)) => args.run(cli, &here),
        }
    }
}

/// Returns the values keyed by unit name. A unit without a value is absent. Money is in dollars,
/// time in seconds.
fn bounded(values: [Option<u64>; 5]) -> Map<String, Value> {
    UNITS
        .iter()
        .zip(values)
        .enumerate()
        .filter_map(|(unit, (name, value))| {
            let value = value?;
            #[allow(clippy::cast_precision_loss, reason = "the amount is only displayed")]
            let value = match unit {
                2 => json!(value as f64 / 1e6),
                _ => json!(value),
            };
            Some(((*name).to_owned(), value))
        })
        .collect()
}

fn all(amounts: Amounts) -> Map<String, Value> {
    bounded(amounts.array().map(Some))
}

/// Returns the time zone of the project's nights, in which times are shown.
fn zone(here: &LoadedProject) -> TimeZone {
    zones::get(&here.config.night.zone).unwrap_or(TimeZone::UTC)
}

fn in_zone(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string()
}
