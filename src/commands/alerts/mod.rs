//! `runner alerts`: lists alerts and the delivery state of their messages, tests channels, and
//! silences alerts.

pub(super) mod ack;
pub(super) mod list;
mod test;

use clap::builder::NonEmptyStringValueParser;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_engine::store::{AlertRow, AlertSelection, Store};

use super::Cli;
use crate::alerts::deliver;
use crate::project;
use crate::ui::{Failure, show};
use list::ListArgs;

/// List alerts and the delivery of their messages, test a channel, or silence an alert
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner alerts --json | jq -r '.[].why'"
)]
pub struct AlertsArgs {
    /// The subcommand [default: list]
    #[command(subcommand)]
    command: Option<AlertsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum AlertsCommand {
    List(ListArgs),
    /// Show one alert and the state of each of its messages
    #[command(after_help = "Example: runner alerts show 01KA5V7Q4B")]
    Show {
        /// The alert's id, or an unambiguous prefix of it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        alert: String,
    },
    /// Send a message now, through one channel or all channels of the project; exit code 69 if a
    /// channel did not accept it
    #[command(after_help = "Example: runner alerts test screen")]
    Test {
        /// The channel's name in runner.toml or the user's config.toml
        channel: Option<String>,
    },
    /// Silence an alert: no further message about it is sent until it ends; `runner jobs reset` records that a job is
    /// fixed
    #[command(after_help = "Example: runner alerts ack dream")]
    Ack {
        /// The alert's id or an unambiguous prefix of it, or a job's name to silence all its open
        /// alerts
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        alert: String,
    },
}

impl AlertsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            None => ListArgs::default().run(cli),
            Some(AlertsCommand::List(args)) => args.run(cli),
            Some(AlertsCommand::Show { alert, .. }) => list::show(cli, alert),
            Some(AlertsCommand::Test { channel, .. }) => test::test(cli, channel.as_deref()),
            Some(AlertsCommand::Ack { alert, .. }) => ack::ack(cli, alert),
        }
    }
}

/// Deliver alerts; ticks start this process
#[derive(Debug, clap::Args)]
pub struct DeliverArgs {
    /// Also report a successful tick
    #[arg(long)]
    beat: bool,
}

impl DeliverArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if self.beat {
            deliver::beat(cli.env);
        }
        deliver::run(cli.env)
    }
}

/// Returns the project whose alerts a command lists or silences. The project's files may be
/// invalid, because the alerts are in the database.
fn project(cli: &Cli<'_>, store: &Store) -> Result<ProjectId, Failure> {
    let kept = project::kept(cli.env, store, cli.here)?;
    if let Some(trouble) = &kept.trouble {
        show::complain(&trouble.to_string());
    }
    Ok(kept.row.id)
}

/// Returns the alert whose id begins with `wanted`, or an error if there is not exactly one.
fn find(store: &Store, wanted: &str) -> Result<AlertRow, Failure> {
    let start = wanted.to_ascii_uppercase();
    let mut found: Vec<AlertRow> = store
        .alerts(None, AlertSelection::All)?
        .into_iter()
        .filter(|alert| alert.id.as_str().starts_with(&start))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(alert), true) => Ok(alert),
        (Some(_), false) => Err(Failure::usage(format!("several alert ids begin with {wanted:?}"))
            .hint("runner alerts list --over --all")),
        (None, _) => Err(none(wanted)),
    }
}

fn none(wanted: &str) -> Failure {
    Failure::usage(format!("no alert id begins with {wanted:?}"))
        .hint("runner alerts list --over --all")
}
