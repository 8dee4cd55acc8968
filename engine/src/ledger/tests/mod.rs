//! The ledger against the promises that others build on.

mod accounts;
mod alerts;
mod backwards;
mod budgets;
mod cancel;
mod care;
mod chain;
mod entering;
mod files;
mod follow;
mod formats;
mod glance;
mod house;
mod overlap;
mod pause;
mod prune;
mod queue;
mod restore;
mod retry;
mod settle;

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use super::*;
use crate::admission::Facts;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::{Class, Outcome};
use crate::owner::Owner;
use crate::placement::{LogError, Manifest, PlacementLog as _, RelPath};
use crate::policy::{CatchUp, Policy, Which};
use crate::schedule::{After, On, Schedule, Trigger};
use crate::time::Moment;

struct House {
    _folder: tempfile::TempDir,
    ledger: Ledger,
    project: ProjectId,
    me: Owner,
}

fn now() -> Timestamp {
    "2026-11-21T22:00:00Z".parse().unwrap()
}

fn later(minutes: i64) -> Timestamp {
    now()
        .saturating_add(SignedDuration::from_mins(minutes))
        .unwrap()
}

fn house() -> House {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&folder.path().join("ledger.sqlite")).unwrap();
    furnished(folder, ledger)
}

/// One that only this thread can look at, for many steps.
fn quick_house() -> House {
    furnished(tempfile::tempdir().unwrap(), Ledger::in_memory().unwrap())
}

fn furnished(folder: tempfile::TempDir, mut ledger: Ledger) -> House {
    let project = ProjectId::new(now());
    let row = Project {
        id: project.clone(),
        path: PathBuf::from("/p"),
        node: Node::new(u64::MAX, 7),
        config_stamp: String::new(),
        own: false,
    };
    ledger.register(&row, now()).unwrap();
    let jobs = [job("dream", Schedule::manual()), job("tidy", every(15))];
    ledger
        .project_jobs(&project, "stamp", "", &jobs, now())
        .unwrap();
    House {
        _folder: folder,
        ledger,
        project,
        me: Owner::me(),
    }
}

fn job(name: &str, schedule: Schedule) -> NewJob {
    NewJob {
        name: name.to_owned(),
        kind: "command".to_owned(),
        schedule,
        policy: Policy::default(),
        enabled: true,
    }
}

fn every(minutes: i64) -> Schedule {
    Schedule {
        trigger: Trigger::Every(SignedDuration::from_mins(minutes)),
        ..Schedule::manual()
    }
}

impl House {
    fn request(&mut self, name: &str, key: &str) -> Recorded {
        let job = self.ledger.job(&self.project, name).unwrap().id;
        let new = NewOccurrence::by_hand(job, key.to_owned(), now());
        self.ledger.enter(&new, &self.me, now()).unwrap()
    }

    fn requested(&mut self, name: &str, key: &str) -> RunId {
        match self.request(name, key) {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("{key} was known"),
        }
    }

    fn admit(&mut self, run: &RunId, want: Budget, levels: &[Level]) -> Result<Admission> {
        self.admit_with(
            run,
            want,
            levels,
            &Facts {
                free_bytes: u64::MAX,
                ..Facts::default()
            },
        )
    }

    fn admit_with(
        &mut self,
        run: &RunId,
        want: Budget,
        levels: &[Level],
        facts: &Facts,
    ) -> Result<Admission> {
        self.ledger.admit(&Enter {
            run,
            owner: &self.me,
            facts,
            want,
            levels,
            total: Duration::from_secs(60),
            staging: ".runner/staging/x",
            now: Moment {
                wall: now(),
                boot: Duration::from_secs(100),
            },
        })
    }

    fn admitted(&mut self, key: &str) -> Admitted {
        let run = self.requested("dream", key);
        match self.admit(&run, Budget::default(), &[]).unwrap() {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => panic!("declined: {outcome}"),
        }
    }
}

fn with(name: &str, schedule: Schedule, policy: Policy) -> NewJob {
    NewJob {
        policy,
        ..job(name, schedule)
    }
}

fn after(name: &str, first: &str, on: On) -> NewJob {
    let trigger = Trigger::After(After {
        job: first.to_owned(),
        on,
    });
    let schedule = Schedule {
        trigger,
        ..Schedule::manual()
    };
    job(name, schedule)
}

fn failed(class: Class) -> Outcome {
    Outcome::Failed {
        class,
        why: "x".to_owned(),
    }
}

fn why(outcome: Option<Outcome>) -> String {
    outcome.map_or_else(|| "open".to_owned(), |outcome| outcome.to_string())
}
