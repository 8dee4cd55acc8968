//! Contains the store's tests and the fixture that they share.

mod alerts;
mod budgets;
mod cancel;
mod chain;
mod clock_set_back;
mod entering;
mod files;
mod fixture;
mod follow;
mod formats;
mod maintenance;
mod overlap;
mod overview;
mod pause;
mod prune;
mod queue;
mod restore;
mod retry;
mod run_list;
mod settle;
mod totals;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::columns::millis;
use super::*;
use crate::admission::AdmissionFacts;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::{Class, Outcome, SkipReason};
use crate::policy::{CatchUp, CatchUpScope, Policy};
use crate::process_id::ProcessIdentity;
use crate::publish::{LogError, Manifest, PublishLog as _, RelPath};
use crate::schedule::{After, On, Schedule, Trigger};
use crate::time::ClockReading;

struct Fixture {
    _folder: tempfile::TempDir,
    store: Store,
    project: ProjectId,
    me: ProcessIdentity,
}

fn now() -> Timestamp {
    "2026-11-21T22:00:00Z".parse().unwrap()
}

fn later(minutes: i64) -> Timestamp {
    now().saturating_add(SignedDuration::from_mins(minutes)).unwrap()
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("database.sqlite")).unwrap();
    furnished(folder, store)
}

/// Creates a fixture with an in-memory database, for tests with many steps.
fn in_memory_fixture() -> Fixture {
    furnished(tempfile::tempdir().unwrap(), Store::in_memory().unwrap())
}

fn furnished(folder: tempfile::TempDir, mut store: Store) -> Fixture {
    let project = ProjectId::new(now());
    let row = Project {
        id: project.clone(),
        path: PathBuf::from("/p"),
        node: Node::new(u64::MAX, 7),
        config_stamp: String::new(),
        own: false,
    };
    store.register(&row, now()).unwrap();
    let jobs = [job("dream", Schedule::manual()), job("tidy", every(15))];
    store.project_jobs(&project, "stamp", "", &jobs, now()).unwrap();
    Fixture { _folder: folder, store, project, me: ProcessIdentity::me() }
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
    Schedule { trigger: Trigger::Every(SignedDuration::from_mins(minutes)), ..Schedule::manual() }
}

impl Fixture {
    fn request(&mut self, name: &str, key: &str) -> Recorded {
        let job = self.store.job(&self.project, name).unwrap().id;
        let new = NewOccurrence::manual(job, key.to_owned(), now());
        self.store.enter(&new, &self.me, now()).unwrap()
    }

    fn requested(&mut self, name: &str, key: &str) -> RunId {
        match self.request(name, key) {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("{key} was already recorded"),
        }
    }

    fn admit(&mut self, run: &RunId, want: Budget, levels: &[BudgetLevel]) -> Result<Admission> {
        self.admit_with(
            run,
            want,
            levels,
            &AdmissionFacts { free_bytes: u64::MAX, ..AdmissionFacts::default() },
        )
    }

    fn admit_with(
        &mut self,
        run: &RunId,
        want: Budget,
        levels: &[BudgetLevel],
        facts: &AdmissionFacts,
    ) -> Result<Admission> {
        self.store.admit(&Enter {
            run,
            owner: &self.me,
            facts,
            want,
            levels,
            total: Duration::from_secs(60),
            staging: ".runner/staging/x",
            now: ClockReading { wall: now(), boot: Duration::from_secs(100) },
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
    NewJob { policy, ..job(name, schedule) }
}

fn after(name: &str, first: &str, on: On) -> NewJob {
    let trigger = Trigger::After(After { job: first.to_owned(), on });
    let schedule = Schedule { trigger, ..Schedule::manual() };
    job(name, schedule)
}

fn failed(class: Class) -> Outcome {
    Outcome::Failed { class, why: "x".to_owned() }
}

fn why(outcome: Option<Outcome>) -> String {
    outcome.map_or_else(|| "open".to_owned(), |outcome| outcome.to_string())
}
