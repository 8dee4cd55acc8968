//! `runner tick`: do what is due, in all projects; stay while the runs that were started live.

use std::collections::BTreeMap;

use runner_engine::outcome::Exit;
use runner_engine::owner::Owner;
use serde::Serialize;

use crate::care;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::drive::{self, Manner, Next};
use crate::home::Home;
use crate::tick::{self, Done, Reread};

/// What a tick did, for scripts.
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

/// Ticks until nothing that it started runs any more.
pub fn run(home: &Home, manner: Manner, listing: Listing) -> Result<Exit, Failure> {
    let me = Owner::me();
    let mut ledger = home.ledger()?;
    let mut told = TickJson::default();
    let manner = Manner {
        watched: false,
        ..manner
    };
    let started = drive::run_all(home, &mut ledger, &me, manner, |ledger| {
        let Done {
            start,
            settled,
            troubles,
            unreadable,
            ending,
        } = tick::once(home, ledger, &me, Reread::WhatChanged)?;
        told.unreadable_projects.extend(unreadable);
        for trouble in troubles {
            if !told.troubles.contains(&trouble) {
                told.troubles.push(trouble);
            }
        }
        told.settled_for_the_dead.extend(
            settled
                .into_iter()
                .map(|(run, word)| (run.to_string(), word)),
        );
        let now = home.wall()?;
        let due = ledger.next_moment(now)?;
        Ok(Next {
            start,
            due: due.map(|at| at.duration_since(now).try_into().unwrap_or_default()),
            soon: match ending {
                true => Some(drive::LOOK),
                false => drive::soon(ledger, home.wall()?)?,
            },
        })
    })?;
    told.troubles.extend(care::daily(home, &mut ledger)?);
    let mut worst = Exit::Done;
    for run in started {
        let row = ledger.run(&run)?;
        let outcome = row
            .outcome
            .as_ref()
            .map_or_else(|| "running".to_owned(), ToString::to_string);
        worst = worst.max(
            row.outcome
                .as_ref()
                .map_or(Exit::Internal, |outcome| outcome.exit(true)),
        );
        let line = format!("{}: {outcome}", row.job_name);
        let well = row
            .outcome
            .as_ref()
            .is_some_and(|it| it.exit(true) == Exit::Done);
        if !well {
            show::complain(&line);
        } else if !listing.json {
            show::say(manner.quiet, &line);
        }
        told.started.push(StartedJson {
            run: run.to_string(),
            job: row.job_name,
            outcome,
        });
    }
    for (path, why) in &told.unreadable_projects {
        show::complain(&format!("{path}: {why}"));
        worst = worst.max(Exit::Configuration);
    }
    for trouble in &told.troubles {
        show::complain(trouble);
        worst = worst.max(Exit::Failed);
    }
    if listing.json {
        show::json(&told);
    } else {
        for (run, word) in &told.settled_for_the_dead {
            show::say(
                manner.quiet,
                &format!("run {run} was settled for its dead owner: {word}"),
            );
        }
    }
    Ok(worst)
}
