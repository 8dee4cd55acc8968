//! `runner budget history`: shows past usage by day, night, job, backend or pool.

use runner_engine::outcome::Exit;
use runner_engine::store::{Amounts, GroupBy};
use serde::{Serialize, Serializer};

use crate::budget;
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Show the usage, added up by day, night, job, backend or pool
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner budget history --by job")]
pub struct HistoryArgs {
    /// The grouping
    #[arg(long, default_value = "day", value_parser = ["day", "night", "job", "backend", "pool"])]
    by: String,
    /// Maximum number of lines; 0 means all
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Spending(Vec<GroupSpending>);

#[derive(Serialize)]
struct GroupSpending {
    name: String,
    #[serde(serialize_with = "units")]
    spent: Amounts,
    /// The number of requests whose usage was not reported. Always 0 for days and pools.
    unstated_calls: u64,
}

fn units<S: Serializer>(amounts: &Amounts, serializer: S) -> Result<S::Ok, S::Error> {
    super::all(*amounts).serialize(serializer)
}

impl View for Spending {
    fn print(&self, _ui: Ui) {
        if self.0.is_empty() {
            return show::out("nothing has been spent yet\n");
        }
        let rows: Vec<Vec<String>> = (self.0.iter())
            .map(|row| {
                let mut text = budget::format_amounts(row.spent);
                if row.unstated_calls > 0 {
                    text.push_str(&format!(
                        "; {} charged at the reserved amount",
                        show::count(row.unstated_calls, "call")
                    ));
                }
                show::row([&row.name, &text])
            })
            .collect();
        show::out(&show::table(&rows));
    }
}

impl HistoryArgs {
    pub fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let by = match self.by.as_str() {
            "night" => GroupBy::Night,
            "job" => GroupBy::Job,
            "backend" => GroupBy::Backend,
            "pool" => GroupBy::Pool,
            _ => GroupBy::Day,
        };
        let sums = cli
            .env
            .store_to_read()?
            .map(|store| store.spending(&here.id, by, self.limit))
            .transpose()?
            .unwrap_or_default();
        let spending = sums.into_iter().map(|row| GroupSpending {
            name: row.name,
            spent: row.spent,
            unstated_calls: row.unstated_calls,
        });
        cli.ui.show(&Spending(spending.collect()));
        Ok(Exit::Done)
    }
}
