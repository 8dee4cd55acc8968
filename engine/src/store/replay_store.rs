//! Creates an in-memory database for replaying a finished run.
//!
//! The run's recorded id and seed are written directly. The run is then admitted as usual, with the
//! recorded start time and reservation. This module must never access the user's database.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use super::columns::Query as _;
use super::{
    Admission, Admitted, Amounts, Budget, Enter, NewJob, NewOccurrence, Node, Origin, Project,
    Recorded, Result, Store, StoreError,
};
use crate::admission::AdmissionFacts;
use crate::ids::{ProjectId, RunId};
use crate::policy::Policy;
use crate::process_id::ProcessIdentity;
use crate::schedule::Schedule;
use crate::time::ClockReading;

/// The recorded data of a run, and the parameters of its replay.
#[derive(Clone, Debug)]
pub struct ReplayRun<'a> {
    pub run: &'a RunId,
    /// The recorded seed.
    pub seed: u64,
    /// Whether the recorded run was manual (see [`Admitted::manual`]).
    pub manual: bool,
    pub project: &'a ProjectId,
    /// The folder of the replay, which is registered as the project's folder.
    pub root: &'a Path,
    /// The name of the recorded run's job.
    pub job: &'a str,
    pub kind: &'a str,
    /// The recorded start time.
    pub started: Timestamp,
    /// The boot-clock reading at the start of the replay, from which its deadline is measured (see
    /// [`ClockReading::boot`]).
    pub boot: Duration,
    /// The recorded reservation.
    pub reserved: Amounts,
    /// The timeout of the replayed run.
    pub total: Duration,
    /// The staging folder, relative to `root`.
    pub staging: &'a str,
}

impl Store {
    /// Creates the database for a replay and admits the run.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`] if the run is not admitted, or another [`StoreError`] if
    /// the database cannot be created or changed.
    pub fn again(again: &ReplayRun<'_>) -> Result<(Self, Admitted)> {
        let mut store = Self::in_memory()?;
        let (now, me) = (again.started, ProcessIdentity::me());
        let project = Project {
            id: again.project.clone(),
            path: again.root.to_owned(),
            node: Node::new(0, 0),
            config_stamp: String::new(),
            own: true,
        };
        store.register(&project, now)?;
        let job = NewJob {
            name: again.job.to_owned(),
            kind: again.kind.to_owned(),
            schedule: Schedule::manual(),
            policy: Policy::default(),
            enabled: true,
        };
        store.project_jobs(&project.id, "again", "", &[job], now)?;
        let origin = match again.manual {
            true => Origin::Manual,
            false => Origin::Clock,
        };
        let new = NewOccurrence {
            origin,
            ..NewOccurrence::manual(store.job(&project.id, again.job)?.id, "again".into(), now)
        };
        let Recorded::New(run) = store.enter(&new, &me, now)? else {
            unreachable!("the database was empty")
        };
        store.write(|tx| {
            let sql = "UPDATE runs SET id = ?2, seed = ?3 WHERE id = ?1";
            tx.change(sql, params![run, again.run, again.seed.cast_signed()])?;
            Ok(())
        })?;
        let admission = store.admit(&Enter {
            run: again.run,
            owner: &me,
            facts: &AdmissionFacts {
                manual: true,
                free_bytes: u64::MAX,
                ..AdmissionFacts::default()
            },
            want: as_budget(again.reserved),
            levels: &[],
            total: again.total,
            staging: again.staging,
            now: ClockReading { wall: now, boot: again.boot },
        })?;
        match admission {
            Admission::Admitted(admitted) => Ok((store, admitted)),
            Admission::Declined(_) => {
                Err(StoreError::NotFound { what: "budget for run", name: again.run.to_string() })
            }
        }
    }
}

fn as_budget(amounts: Amounts) -> Budget {
    Budget {
        calls: Some(amounts.calls),
        tokens: Some(amounts.tokens),
        micros: Some(amounts.micros),
        seconds: Some(amounts.seconds),
        ideas: Some(amounts.ideas),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_recreates_the_admitted_run() {
        let started: Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
        let (run, project) = (RunId::new(started), ProjectId::new(started));
        let reserved = Amounts { calls: 1, tokens: 1000, seconds: 60, ..Amounts::default() };
        for manual in [true, false] {
            let again = ReplayRun {
                run: &run,
                seed: u64::MAX - 7,
                manual,
                project: &project,
                root: Path::new("/nowhere"),
                job: "dream",
                kind: "dream",
                started,
                boot: Duration::from_secs(5),
                reserved,
                total: Duration::from_secs(1800),
                staging: "dreams/.staging/x",
            };
            let (store, admitted) = Store::again(&again).unwrap();
            assert_eq!((admitted.run(), admitted.seed()), (&run, u64::MAX - 7));
            assert_eq!((admitted.started(), admitted.manual()), (started, manual));
            assert_eq!(admitted.reserved(), reserved);
            assert_eq!(admitted.deadline(), Duration::from_secs(65));
            assert_eq!(store.run(&run).unwrap().id, run);
        }
    }
}
