//! The `runner tick` command: starts everything that is due in all projects, and waits until the
//! started runs have ended.

use std::collections::BTreeMap;

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::env::Env;
use crate::maintenance;
use crate::spawn::{self, NextAction, SpawnMode};
use crate::tick::{self, Reread, TickResult};

#[derive(Debug, Default, Serialize)]
struct TickJson {
    started: Vec<StartedJson>,
    settled_for_the_dead: BTreeMap<String, String>,
    unreadable_projects: BTreeMap<String, String>,
    troubles: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StartedJson {
    run: String,
    job: String,
    outcome: String,
}

/// Ticks until all runs that it started have ended.
pub fn run(home: &Env, manner: SpawnMode, listing: Listing) -> Result<Exit, Failure> {
    let me = ProcessIdentity::me();
    let mut store = home.store()?;
    let mut reported = TickJson::default();
    let manner = SpawnMode { watched: false, ..manner };
    let started = spawn::run_all(home, &mut store, &me, manner, |store| {
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
            soon: match ending {
                true => Some(spawn::LOOK),
                false => spawn::soon(store, home.wall()?)?,
            },
        })
    })?;
    reported.troubles.extend(maintenance::daily(home, &mut store)?);
    let mut worst = Exit::Done;
    for run in started {
        let row = store.run(&run)?;
        let outcome = row.outcome().map_or_else(|| "running".to_owned(), ToString::to_string);
        worst = worst.max(row.outcome().map_or(Exit::Internal, |outcome| outcome.exit(true)));
        let line = format!("{}: {outcome}", row.job_name);
        let well = row.outcome().is_some_and(|it| it.exit(true) == Exit::Done);
        if !well {
            show::complain(&line);
        } else if !listing.json {
            manner.ui.info(&line);
        }
        reported.started.push(StartedJson { run: run.to_string(), job: row.job_name, outcome });
    }
    for (path, why) in &reported.unreadable_projects {
        show::complain(&format!("{path}: {why}"));
        worst = worst.max(Exit::Configuration);
    }
    for trouble in &reported.troubles {
        show::complain(trouble);
        worst = worst.max(Exit::Failed);
    }
    if listing.json {
        show::json(&reported);
    } else {
        for (run, word) in &reported.settled_for_the_dead {
            manner.ui.info(&format!("run {run} was settled for its dead owner: {word}"));
        }
    }
    Ok(worst)
}
