//! `runner tick`: starts everything that is due in all projects, and waits for the started runs to
//! finish.

use std::collections::BTreeMap;
use std::path::PathBuf;

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::StoreError;
use serde::Serialize;

use super::Cli;
use crate::maintenance;
use crate::spawn::{self, NextAction, SpawnMode};
use crate::tick::{self, Reread, TickResult};
use crate::ui::{Failure, Ui, View, show};

/// Run everything that is due in all projects; called by a host timer
#[derive(Debug, clap::Args)]
#[command(after_help = "Example (crontab): */15 * * * * runner tick --quiet")]
pub struct TickArgs {
    /// Use the environment that `runner setup` saved in this file; a host scheduler passes this
    /// flag
    #[arg(long, value_name = "FILE")]
    pub(super) environment: Option<PathBuf>,
}

/// The result of a tick.
#[derive(Debug, Default, Serialize)]
struct TickReport {
    started: Vec<StartedRun>,
    settled_for_the_dead: BTreeMap<String, String>,
    unreadable_projects: BTreeMap<String, String>,
    troubles: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StartedRun {
    run: String,
    job: String,
    outcome: String,
}

impl View for TickReport {
    fn print(&self, ui: Ui) {
        for (run, word) in &self.settled_for_the_dead {
            ui.info(&format!("run {run}, whose process died, was settled: {word}"));
        }
    }
}

impl TickArgs {
    /// Ticks until all started runs have finished.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let home = cli.env;
        let me = ProcessIdentity::me();
        let mut store = home.store()?;
        let mut reported = TickReport::default();
        let mode = SpawnMode { watched: false, awaited: false, ..cli.spawn_mode() };
        let started = spawn::run_all(home, &mut store, &me, mode, |store, _| {
            let TickResult { start, settled, troubles, unreadable, ending } =
                tick::once(home, store, &me, Reread::WhatChanged)?;
            reported.unreadable_projects.extend(unreadable);
            for trouble in troubles {
                if !reported.troubles.contains(&trouble) {
                    reported.troubles.push(trouble);
                }
            }
            reported
                .settled_for_the_dead
                .extend(settled.into_iter().map(|(run, word)| (run.to_string(), word)));
            let now = home.wall()?;
            let due = store.next_moment(now)?;
            Ok(NextAction {
                start,
                due: due.map(|at| at.duration_since(now).try_into().unwrap_or_default()),
                soon: if ending { Some(spawn::LOOK) } else { spawn::soon(store, home.wall()?)? },
            })
        })?;
        reported.troubles.extend(maintenance::daily(home, &mut store)?);
        let mut worst = Exit::Done;
        for run in started {
            let row = match store.run(&run) {
                Ok(row) => row,
                // The run belonged to a fleet's copy of a project, which another process removed
                // after the copy's runs had finished.
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let outcome = row.outcome().map_or_else(|| "running".to_owned(), ToString::to_string);
            worst = worst.max(row.outcome().map_or(Exit::Internal, |outcome| outcome.exit(true)));
            let line = format!("{}: {outcome}", row.job_name);
            let well = row.outcome().is_some_and(|it| it.exit(true) == Exit::Done);
            if !well {
                show::complain(&line);
            } else {
                cli.ui.info(&line);
            }
            reported.started.push(StartedRun { run: run.to_string(), job: row.job_name, outcome });
        }
        for (path, why) in &reported.unreadable_projects {
            show::complain(&format!("{path}: {why}"));
            worst = worst.max(Exit::Configuration);
        }
        for trouble in &reported.troubles {
            show::complain(trouble);
            worst = worst.max(Exit::Failed);
        }
        cli.ui.show(&reported);
        Ok(worst)
    }
}
