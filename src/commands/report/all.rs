//! `runner report` outside a project: shows the last night of every project on this host, and each
//! fleet's usage.

use std::path::PathBuf;

use runner_engine::outcome::Exit;
use runner_jobs::report::fleet_usage::{self, FleetUsage};
use runner_jobs::report::{self, RunLine};
use schemars::JsonSchema;
use serde::Serialize;

use super::index::tone;
use crate::commands::Cli;
use crate::ui::show::List;
use crate::ui::{Failure, Ui, View, show};

/// The last or the named night of every project on this host.
#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct LastNights {
    /// The projects that had such a night, ordered by path.
    projects: Vec<ProjectNight>,
    /// Each fleet's usage for the runs of these nights, across all of its hosts.
    fleets: Vec<FleetUsage>,
}

/// A project's last or named night.
#[derive(Debug, JsonSchema, Serialize)]
struct ProjectNight {
    path: PathBuf,
    /// The night's name.
    night: String,
    /// The name of the worst outcome.
    worst: String,
    summary: String,
}

impl View for LastNights {
    fn print(&self, _ui: Ui) {
        if self.projects.is_empty() {
            return show::out("no project has had a night yet\n");
        }
        let rows = self.projects.iter().map(|it| {
            let path = it.path.display().to_string();
            (tone(Some(&it.worst)), show::row([&path, &it.night, &it.worst, &it.summary]))
        });
        let header = &["PROJECT", "NIGHT", "WORST", "SUMMARY"];
        List { header, toned: 2, rows: rows.collect() }.print();
        for fleet in &self.fleets {
            show::out(&format!("\nfleet {}\n", fleet.fleet));
            for line in fleet.lines() {
                show::out(&format!("  {line}\n"));
            }
        }
    }
}

/// Prints every project's last night, or the night with this name.
pub(super) fn run(cli: &Cli<'_>, name: Option<&str>) -> Result<Exit, Failure> {
    let mut all = LastNights { projects: Vec::new(), fleets: Vec::new() };
    let mut runs: Vec<RunLine> = Vec::new();
    if let Some(store) = cli.env.store_to_read()? {
        let now = cli.env.wall()?;
        for project in store.projects()? {
            let nights = store.nights(&project.id, if name.is_some() { 400 } else { 1 })?;
            let night = nights.into_iter().find(|night| name.is_none_or(|name| night.name == name));
            let Some(night) = night else { continue };
            let report = report::whole(&store, night.id, &project.path, now)?;
            let summary = report.headline();
            let (path, worst) = (project.path, report.worst);
            all.projects.push(ProjectNight { path, night: night.name, worst, summary });
            runs.extend(report.runs);
        }
    }
    all.fleets = fleet_usage::of_runs(&runs);
    cli.ui.show(&all);
    Ok(Exit::Done)
}
