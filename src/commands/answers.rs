//! The schemas of the JSON that commands print, for the API description. They are derived from the
//! printed types.
//!
//! This module must never define a schema itself.

use schemars::{Schema, SchemaGenerator};

#[cfg(feature = "fleet")]
use super::fleet;
use super::{
    alerts, board, budget, config, dream, jobs, memory, pause, projects, queue, report, runs,
    sessions, status,
};

/// Returns the schema of a command's `--json` output, or `None` for a command that is neither a
/// view nor an action of the API.
pub fn answer(command: &[&str], generator: &mut SchemaGenerator) -> Option<Schema> {
    Some(match command {
        ["status", ..] => generator.subschema_for::<status::model::Status>(),
        ["projects", "list"] => generator.subschema_for::<projects::list::ProjectList>(),
        ["runs", "show", ..] => generator.subschema_for::<runs::details::RunDetails>(),
        ["runs", ..] => generator.subschema_for::<runs::list::RunList>(),
        ["jobs", "list"] => generator.subschema_for::<jobs::list::JobList>(),
        ["jobs", "reset", ..] => generator.subschema_for::<jobs::reset::Resets>(),
        ["report", "--list"] => generator.subschema_for::<report::index::NightIndex>(),
        ["report", ..] => generator.subschema_for::<report::ReportView>(),
        ["dream", "list"] => generator.subschema_for::<dream::list::ProposalList<'_>>(),
        ["dream", "show", ..] => generator.subschema_for::<dream::details::ProposalDetails<'_>>(),
        ["dream", ..] => generator.subschema_for::<dream::decide::DecisionView>(),
        ["alerts", "list", ..] => generator.subschema_for::<alerts::list::Alerts>(),
        ["alerts", "ack", ..] => generator.subschema_for::<alerts::ack::SilencedAlerts<'_>>(),
        #[cfg(feature = "fleet")]
        ["fleet", "list"] => generator.subschema_for::<fleet::FleetList>(),
        ["budget", "show"] => generator.subschema_for::<budget::standings::Budgets>(),
        ["config", "show", "--origin"] => generator.subschema_for::<config::SourcedSettings<'_>>(),
        ["board", "show"] => generator.subschema_for::<board::tasks::BoardTasks<'_>>(),
        ["memory", "list"] => generator.subschema_for::<memory::NodesView>(),
        ["sessions", "list"] => generator.subschema_for::<sessions::list::SessionList>(),
        ["enqueue" | "retry", ..] => generator.subschema_for::<queue::QueuedRun>(),
        ["cancel", ..] => generator.subschema_for::<queue::CancelledRun>(),
        ["pause" | "resume", ..] => generator.subschema_for::<pause::PauseState>(),
        _ => return None,
    })
}
