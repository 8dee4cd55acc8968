//! `runner alerts ack`: silences alerts.

use runner_engine::outcome::Exit;
use runner_engine::store::AlertSelection;
use schemars::JsonSchema;
use serde::Serialize;

use super::list::Alert;
use crate::commands::Cli;
use crate::env;
use crate::ui::{Failure, Ui, View};

/// The silenced alerts, without their messages.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct SilencedAlerts<'a> {
    alerts: Vec<Alert>,
    #[serde(skip)]
    wanted: &'a str,
}

impl View for SilencedAlerts<'_> {
    fn print(&self, ui: Ui) {
        if self.alerts.is_empty() {
            ui.info(&format!("{}: nothing to silence", self.wanted));
        }
        for Alert { job, kind, .. } in &self.alerts {
            ui.info(&format!(
                "{job} ({kind}): silenced; no further message is sent until the alert ends"
            ));
        }
    }
}

/// Silences one alert, or all open alerts of a job.
pub fn ack(cli: &Cli<'_>, wanted: &str) -> Result<Exit, Failure> {
    let mut store = cli.env.store()?;
    let who = env::person();
    let now = cli.env.wall()?;
    // A job's name identifies a job only within its project.
    let of_job = match super::project(cli, &store) {
        Ok(project) if store.jobs(&project)?.iter().any(|job| job.name == wanted) => store
            .alerts(Some(&project), AlertSelection::Open)?
            .into_iter()
            .filter(|alert| alert.job_name == wanted)
            .collect(),
        _ => vec![super::find(&store, wanted)?],
    };
    let mut alerts = Vec::new();
    for alert in of_job {
        if store.silence(&alert.id, &who, now)? {
            alerts.push(Alert::new(store.alert(&alert.id)?, Vec::new()));
        }
    }
    cli.ui.show(&SilencedAlerts { alerts, wanted });
    Ok(Exit::Done)
}
