//! `runner memory view`: manages views, which are named queries with a budget.

use runner_memory::compose::Request;
use runner_memory::query::Superseded;
use runner_memory::store::{self, DEFAULT_BUDGET};
use serde::Serialize;

use super::MemoryCli;
use super::find::BudgetArgs;
use crate::ui::{Failure, Ui, View, show};

/// Manage views: named queries with a budget
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory view list")]
pub struct ViewArgs {
    #[command(subcommand)]
    command: ViewCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ViewCommand {
    /// Create a view
    #[command(after_help = "Example: runner memory view create auth 'tag:auth' --budget 8000")]
    Create {
        /// The name
        name: String,
        /// The query
        query: String,
        /// Maximum number of tokens
        #[arg(long, value_name = "TOKENS", default_value_t = DEFAULT_BUDGET)]
        budget: i64,
    },
    /// List the views
    #[command(after_help = "Example: runner memory view list --json")]
    List,
    /// Change a view's query or budget
    #[command(after_help = "Example: runner memory view update default --budget 80000")]
    Update {
        /// The name
        name: String,
        /// The new query
        #[arg(long, value_name = "QUERY")]
        query: Option<String>,
        /// The new budget in tokens
        #[arg(long, value_name = "TOKENS")]
        budget: Option<i64>,
    },
    /// Delete a view
    #[command(after_help = "Example: runner memory view delete auth")]
    Delete {
        /// The name
        name: String,
    },
    /// Print a view's nodes as a single document
    #[command(after_help = "Example: runner memory view render default")]
    Render {
        /// The name
        #[arg(default_value = "default")]
        name: String,
        #[command(flatten)]
        budget: BudgetArgs,
    },
}

#[derive(Debug, Serialize)]
struct ViewsView {
    views: Vec<store::View>,
}

impl View for ViewsView {
    fn print(&self, _: Ui) {
        let mut rows = vec![show::row(["NAME", "BUDGET", "QUERY"])];
        let row = |it: &store::View| show::row([&it.name, &it.budget.to_string(), &it.query]);
        rows.extend(self.views.iter().map(row));
        show::out(&show::table(&rows));
    }
}

impl ViewArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        match &self.command {
            ViewCommand::Create { name, query, budget } => {
                on.memory
                    .change("create view", on.now, |it| it.create_view(name, query, *budget))?;
            }
            ViewCommand::Update { name, query, budget } => {
                on.memory.change("update view", on.now, |it| {
                    it.update_view(name, query.as_deref(), *budget)
                })?;
            }
            ViewCommand::Delete { name } => {
                on.memory.change("delete view", on.now, |it| it.delete_view(name))?;
            }
            ViewCommand::List => {}
            ViewCommand::Render { name, budget } => {
                let view = on.memory.view(name)?;
                let request = Request {
                    query: &view.query,
                    budget: budget.tokens(view.budget)?,
                    scope: &on.scope,
                    superseded: Superseded::Omit,
                };
                on.ui.show(&on.memory.reader().compose(&request, on.now)?);
                return Ok(());
            }
        }
        on.ui.show(&ViewsView { views: on.memory.views()? });
        Ok(())
    }
}
