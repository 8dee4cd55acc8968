//! Tests of the recovery of dead runs, with a real database and disk.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::admission::AdmissionFacts;
use runner_engine::ids::{Fence, ProjectId, RunId};
use runner_engine::locks::{JobLock, LockError, job_lock_path};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::policy::Policy;
use runner_engine::process::tree;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::publish::{LogError, PublishLog as _};
use runner_engine::recover::{self, BEGIN_LIMIT, Driver, Host, OVERRUN_GRACE};
use runner_engine::schedule::Schedule;
use runner_engine::scope::{Expect, FinishedScope, Scope};
use runner_engine::store::{
    Admission, Admitted, Budget, CommitGuard, Enter, FOREVER, FleetNote, NewJob, NewOccurrence,
    Node, Origin, Project, Recorded, RunState, RunSummary, Store,
};
use runner_engine::tick::{Tick, report_job, tick};
use runner_engine::time::{ClockReading, boot_time};

struct World {
    folder: tempfile::TempDir,
    store: Store,
    project: ProjectId,
    me: ProcessIdentity,
}

const STAGING: &str = "out/.staging/r";

fn now() -> Timestamp {
    "2026-11-21T22:00:00Z".parse().unwrap()
}

/// Returns the identity of a process that does not exist.
fn nobody() -> ProcessIdentity {
    ProcessIdentity { pid: 4_000_000, start: 1, boot: tree::boot_id().unwrap_or_default() }
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("project");
    fs::create_dir_all(root.join("out")).unwrap();
    let mut store = Store::open(&folder.path().join("state/database.sqlite")).unwrap();
    let project = ProjectId::new(now());
    store
        .register(
            &Project {
                id: project.clone(),
                path: root,
                node: Node::new(1, 1),
                config_stamp: String::new(),
                own: false,
            },
            now(),
        )
        .unwrap();
    let job = |name: &str, kind: &str| NewJob {
        name: name.into(),
        kind: kind.into(),
        schedule: Schedule::manual(),
        policy: Policy::default(),
        enabled: true,
    };
    let jobs = [job("dream", "dream"), job("tidy", "command"), report_job()];
    store.project_jobs(&project, "s", "", &jobs, now()).unwrap();
    World { folder, store, project, me: ProcessIdentity::me() }
}

impl World {
    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn request(&mut self, job: &str, starter: &ProcessIdentity, manual: bool) -> RunId {
        let job = self.store.job(&self.project, job).unwrap().id;
        let new = NewOccurrence {
            origin: if manual { Origin::Manual } else { Origin::Clock },
            ..NewOccurrence::manual(job, "k".into(), now())
        };
        match self.store.enter(&new, starter, now()).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("the occurrence was already known"),
        }
    }

    fn admit(&mut self, run: &RunId, owner: &ProcessIdentity, boot: Duration) -> Admitted {
        let facts = AdmissionFacts { free_bytes: u64::MAX, ..AdmissionFacts::default() };
        let enter = Enter {
            run,
            owner,
            facts: &facts,
            want: Budget::default(),
            levels: &[],
            total: Duration::from_secs(60),
            staging: STAGING,
            now: ClockReading { wall: now(), boot },
        };
        match self.store.admit(&enter).unwrap() {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => panic!("{outcome}"),
        }
    }

    /// Creates a run that died after it staged its artifacts.
    fn staged(&mut self, job: &str) -> (Admitted, FinishedScope) {
        let run = self.request(job, &nobody(), false);
        let admitted = self.admit(&run, &nobody(), boot_time());
        let mut scope = Scope::open(&self.root(), &["out"], STAGING).unwrap();
        scope.stage("out/a.txt", b"new a", Expect::Current).unwrap();
        scope.stage("out/b.txt", b"new b", Expect::Current).unwrap();
        let outcome = Outcome::Degraded { why: "half".into() };
        let ready = scope.finish(run, admitted.fence(), outcome).unwrap();
        (admitted, ready)
    }

    fn tick(&mut self, boot: Duration) -> Tick {
        let state = self.folder.path().join("state");
        let driver = Driver {
            world: Box::new(Host { state: &state }),
            me: &self.me,
            retries_lost: &|kind| kind != "command",
            last_tick: None,
        };
        tick(&mut self.store, &driver, ClockReading { wall: now(), boot }).unwrap()
    }

    fn outcome(&self, run: &RunId) -> Outcome {
        self.store.run(run).unwrap().outcome().cloned().unwrap()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }
}

#[test]
fn a_recorded_publication_is_rolled_forward() {
    let mut world = world();
    fs::write(world.root().join("out/a.txt"), "old a").unwrap();
    let (admitted, ready) = world.staged("tidy");
    let summary = RunSummary { headline: "kept".into(), ..RunSummary::default() };
    world
        .store
        .publish_log(Some(&summary), now())
        .commit_manifest(admitted.run(), admitted.fence(), &ready.manifest)
        .unwrap();
    let reported = world.tick(boot_time());
    assert_eq!(reported.settled, [(admitted.run().clone(), "degraded".to_owned())]);
    assert!(reported.start.is_empty());
    assert_eq!(world.read("out/a.txt").as_deref(), Some("new a"));
    assert_eq!(world.read("out/b.txt").as_deref(), Some("new b"));
    assert_eq!(world.store.run(admitted.run()).unwrap().summary.headline, "kept");
    assert!(!world.root().join(STAGING).exists());
    assert_eq!(world.tick(boot_time()), Tick::default(), "a second tick found something");
}

#[test]
fn staged_files_of_lost_runs_are_discarded() {
    let mut world = world();
    let (admitted, _ready) = world.staged("tidy");
    let reported = world.tick(boot_time());
    assert_eq!(reported.settled, [(admitted.run().clone(), "lost".to_owned())]);
    assert!(reported.start.is_empty(), "a lost command was retried");
    assert_eq!(world.read("out/a.txt"), None);
    assert!(!world.root().join(STAGING).exists());
}

#[test]
fn lost_dream_is_retried_exactly_once() {
    let mut world = world();
    let (admitted, _ready) = world.staged("dream");
    let reported = world.tick(boot_time());
    assert_eq!(reported.start.len(), 1);
    let again = reported.start[0].clone();
    assert_eq!(world.store.run(&again).unwrap().attempt, 2);
    world.admit(&again, &nobody(), boot_time());
    let reported = world.tick(boot_time());
    assert_eq!(reported.settled, [(again.clone(), "lost".to_owned())]);
    assert!(reported.start.is_empty());
    let occurrence = world.store.run(&again).unwrap().occurrence;
    assert!(world.store.occurrence(&occurrence).unwrap().outcome.is_some());
    assert_eq!(world.store.run(admitted.run()).unwrap().occurrence, occurrence);
}

#[test]
fn a_changed_target_is_never_overwritten() {
    let mut world = world();
    let (admitted, ready) = world.staged("dream");
    world
        .store
        .publish_log(None, now())
        .commit_manifest(admitted.run(), admitted.fence(), &ready.manifest)
        .unwrap();
    fs::write(world.root().join("out/a.txt"), "a person's own words").unwrap();
    let reported = world.tick(boot_time());
    let outcome = world.outcome(admitted.run());
    assert_eq!(outcome.class(), Some(Class::Guard));
    assert!(
        outcome.to_string().contains("out/a.txt") && outcome.to_string().contains(STAGING),
        "{outcome}"
    );
    assert_eq!(reported.settled.len(), 1);
    assert_eq!(world.read("out/a.txt").as_deref(), Some("a person's own words"));
    world.tick(boot_time());
    assert!(world.root().join(STAGING).is_dir(), "the staging folder was removed");
}

/// A fleet's commit guard that refuses every fence as stale.
struct Forgotten;

impl CommitGuard for Forgotten {
    fn check(&mut self, run: &RunId, held: Fence) -> Result<(), LogError> {
        Err(LogError::StaleFence { run: run.clone(), held, current: Fence(held.0 + 1) })
    }
}

#[test]
fn publication_refused_by_fleet_is_settled() {
    for note in [FleetNote::Applies, FleetNote::Claimed] {
        let mut world = world();
        let (admitted, ready) = world.staged("tidy");
        world
            .store
            .publish_log(None, now())
            .commit_manifest(admitted.run(), admitted.fence(), &ready.manifest)
            .unwrap();
        world.store.note_fleet(admitted.run(), note, "{}", now()).unwrap();
        world.store.set_commit_guard(Box::new(Forgotten));
        let reported = world.tick(boot_time());
        assert_eq!(reported.settled.len(), 1, "{note:?}: {reported:?}");
        let outcome = world.outcome(admitted.run());
        match note {
            FleetNote::Applies => {
                assert_eq!(outcome.class(), Some(Class::Guard), "{outcome}");
                assert!(outcome.to_string().contains(STAGING), "{outcome}");
                world.tick(boot_time());
                assert!(world.root().join(STAGING).is_dir(), "the staging folder was removed");
            }
            _ => assert!(matches!(outcome, Outcome::Lost { .. }), "{outcome}"),
        }
        assert_eq!(
            world.tick(boot_time()),
            Tick::default(),
            "{note:?}: a later tick found something"
        );
    }
}

#[test]
fn publication_to_missing_project_fails() {
    let mut world = world();
    let (admitted, ready) = world.staged("tidy");
    world
        .store
        .publish_log(None, now())
        .commit_manifest(admitted.run(), admitted.fence(), &ready.manifest)
        .unwrap();
    fs::remove_dir_all(world.root()).unwrap();
    world.tick(boot_time());
    assert_eq!(world.outcome(admitted.run()).class(), Some(Class::Environment));
}

#[test]
fn only_scheduled_runs_are_started_again() {
    let mut world = world();
    let clock = world.request("dream", &nobody(), false);
    let person = world.request("tidy", &nobody(), true);
    let reported = world.tick(boot_time());
    assert_eq!(reported.start, std::slice::from_ref(&clock));
    assert!(matches!(world.outcome(&person), Outcome::Lost { .. }));
    // This process is now the starter, so the next tick does not return the run again.
    assert!(world.tick(boot_time()).start.is_empty());
    assert!(matches!(world.store.run(&clock).unwrap().state, RunState::Requested { .. }));
}

#[test]
fn locked_run_is_not_recovered() {
    let mut world = world();
    let (admitted, _ready) = world.staged("dream");
    let path = job_lock_path(&world.folder.path().join("state"), &world.project, "dream");
    let lock = JobLock::try_take(&path).unwrap();
    assert_eq!(world.tick(boot_time()), Tick::default());
    drop(lock);
    assert_eq!(world.tick(boot_time()).settled.len(), 1);
    assert!(matches!(world.outcome(admitted.run()), Outcome::Lost { .. }));
}

/// Checks that a stopped process that holds the lock past its deadline is killed.
#[test]
fn stopped_run_past_deadline_is_killed() {
    let mut world = world();
    let path = job_lock_path(&world.folder.path().join("state"), &world.project, "dream");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    // The holder takes the lock, reports that it has the lock, and stops itself.
    let mut holder = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "echo held; kill -STOP $$"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0_u8; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"held\n");
    let owner = ProcessIdentity {
        pid: holder.id(),
        start: tree::start_time(holder.id()).unwrap(),
        boot: tree::boot_id().unwrap_or_default(),
    };
    let run = world.request("dream", &nobody(), false);
    world.admit(&run, &owner, boot_time());
    let deadline = boot_time() + Duration::from_secs(60);
    assert_eq!(world.tick(deadline + OVERRUN_GRACE - Duration::from_secs(2)), Tick::default());
    let reported = world.tick(deadline + OVERRUN_GRACE + Duration::from_secs(2));
    assert_eq!(reported.settled, [(run.clone(), "timed-out".to_owned())]);
    let status = holder.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn run_hanging_before_admission_is_killed() {
    let mut world = world();
    let mut hung = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let run = world.request("tidy", &world.me.clone(), false);
    let begun = boot_time();
    let owner = ProcessIdentity::of(hung.id());
    assert!(owner.is_alive());
    let deadline = begun + BEGIN_LIMIT;
    assert!(world.store.spawned(&run, &owner, deadline).unwrap());
    let over = deadline + OVERRUN_GRACE;
    let second = Duration::from_secs(1);
    assert_eq!(world.tick(over - second), Tick::default());
    // The deadline applies even though the starter is alive.
    let reported = world.tick(over + second);
    assert_eq!(reported.settled, [(run.clone(), "timed-out".to_owned())]);
    let status = hung.wait().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9));
    let why = world.outcome(&run).to_string();
    assert!(why.contains("not admitted within 5 minutes"), "{why}");
    assert_eq!(world.tick(over + second), Tick::default());
}

#[test]
fn admission_replaces_the_start_deadline() {
    let mut world = world();
    let me = world.me.clone();
    let run = world.request("tidy", &me, false);
    let deadline = boot_time() + BEGIN_LIMIT;
    assert!(world.store.spawned(&run, &me, deadline).unwrap());
    world.admit(&run, &me, deadline);
    assert!(!world.store.spawned(&run, &me, boot_time()).unwrap());
    assert_eq!(world.tick(deadline + OVERRUN_GRACE), Tick::default());
}

#[test]
fn a_spawned_run_outlives_its_starter() {
    let mut world = world();
    let me = world.me.clone();
    for (job, manual) in [("tidy", false), ("dream", true)] {
        let run = world.request(job, &nobody(), manual);
        let deadline = boot_time() + BEGIN_LIMIT;
        assert!(world.store.spawned(&run, &me, deadline).unwrap());
        assert_eq!(world.tick(boot_time()), Tick::default());
        // After the run's process has died too, a scheduled run starts again and a manual run is
        // lost.
        world.store.spawned(&run, &nobody(), deadline).unwrap();
        let reported = world.tick(boot_time());
        assert_eq!(
            (reported.start.len(), reported.settled.len()),
            match manual {
                false => (1, 0),
                true => (0, 1),
            }
        );
        let row = world.store.run(&run).unwrap();
        if !manual {
            assert!(matches!(row.state, RunState::Requested { spawned: None, .. }));
            let outcome = Outcome::Lost { why: "over".into() };
            assert!(world.store.decline(&run, &outcome, now()).unwrap());
        }
    }
}

/// A host on which another process always takes the lock first.
struct Overtaken;

impl recover::World for Overtaken {
    fn try_lock(
        &self,
        _: &ProjectId,
        _: &str,
    ) -> Result<Option<Box<dyn std::any::Any>>, LockError> {
        Ok(None)
    }

    fn is_alive(&self, _: &ProcessIdentity) -> bool {
        true
    }

    fn kill(&self, _: &ProcessIdentity) {}

    fn kill_marked(&self, _: &RunId) -> tree::Killed {
        tree::Killed::default()
    }
}

#[test]
fn overdue_run_is_settled_as_timed_out() {
    let mut world = world();
    let run = world.request("dream", &nobody(), false);
    world.admit(&run, &nobody(), boot_time());
    let late = boot_time() + Duration::from_secs(60) + OVERRUN_GRACE + Duration::from_secs(2);
    for _ in 0..2 {
        let driver = Driver {
            world: Box::new(Overtaken),
            me: &world.me,
            retries_lost: &|_| true,
            last_tick: None,
        };
        let reading = ClockReading { wall: now(), boot: late };
        assert_eq!(tick(&mut world.store, &driver, reading).unwrap(), Tick::default());
    }
    assert_eq!(world.store.events_of(&run).unwrap().len(), 1, "not reported exactly once");
    let reported = world.tick(boot_time());
    assert_eq!(reported.settled, [(run.clone(), "timed-out".to_owned())]);
    assert!(matches!(world.outcome(&run), Outcome::TimedOut { .. }));
}

#[test]
fn dead_cancelled_run_is_not_retried() {
    let mut world = world();
    let (admitted, _ready) = world.staged("dream");
    world.store.cancel(admitted.run(), "manually", now()).unwrap();
    let reported = world.tick(boot_time());
    assert_eq!(reported.end, [admitted.run().clone()]);
    assert!(reported.start.is_empty());
    assert_eq!(world.outcome(admitted.run()).to_string(), "cancelled: manually");
    assert!(!world.root().join(STAGING).exists());
    assert_eq!(world.tick(boot_time()), Tick::default());
}

#[test]
fn a_stuck_publication_can_be_cancelled() {
    let mut world = world();
    let (admitted, ready) = world.staged("dream");
    world
        .store
        .publish_log(None, now())
        .commit_manifest(admitted.run(), admitted.fence(), &ready.manifest)
        .unwrap();
    // The publication can be neither completed nor checked for conflicts, because its manifest
    // cannot be read.
    let db = rusqlite::Connection::open(world.store.path()).unwrap();
    db.execute("UPDATE publications SET manifest = 'torn'", ()).unwrap();
    for _ in 0..2 {
        assert!(world.tick(boot_time()).settled.is_empty());
    }
    assert_eq!(
        world.store.events_of(admitted.run()).unwrap().len(),
        1,
        "not reported exactly once"
    );
    assert!(matches!(world.store.run(admitted.run()).unwrap().state, RunState::Running { .. }));
    world.store.cancel(admitted.run(), "manually", now()).unwrap();
    assert_eq!(world.tick(boot_time()).settled.len(), 1);
    let outcome = world.outcome(admitted.run());
    assert_eq!(outcome.class(), Some(Class::Guard));
    let reported = outcome.to_string();
    assert!(reported.contains("given up (manually)") && reported.contains(STAGING), "{reported}");
    world.tick(boot_time());
    assert!(world.root().join(STAGING).is_dir(), "the staging folder was removed");
}

#[test]
fn dead_night_continues_within_its_slots() {
    let mut world = world();
    let mut policy = Policy::default();
    policy.group.slots = 1;
    let jobs = ["dream", "tidy"].map(|name| NewJob {
        name: name.into(),
        policy: policy.clone(),
        ..report_job()
    });
    world.store.project_jobs(&world.project, "t", "", &jobs, now()).unwrap();
    let night = world.store.open_night(&world.project, "2026-11-21", now(), FOREVER).unwrap();
    let runs = jobs.map(|job| {
        let job = world.store.job(&world.project, &job.name).unwrap().id;
        let new = NewOccurrence {
            night: Some(night.id),
            ..NewOccurrence::manual(job, "k".into(), now())
        };
        match world.store.enter(&new, &nobody(), now()).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("the occurrence was already known"),
        }
    });
    let [first, second] = &runs;
    // A tick starts nothing during a pause, even if the user started the night in spite of it.
    world.store.pause(None, FOREVER).unwrap();
    assert!(world.tick(boot_time()).start.is_empty());
    assert!(world.store.resume(None, now()).unwrap());
    assert_eq!(world.tick(boot_time()).start, std::slice::from_ref(first));
    let me = world.me.clone();
    world.store.spawned(first, &me, boot_time() + BEGIN_LIMIT).unwrap();
    assert!(world.tick(boot_time()).start.is_empty());
    let summary = RunSummary::default();
    world.store.settle(first, None, &Outcome::Succeeded, &summary, now()).unwrap();
    assert_eq!(world.tick(boot_time()).start, std::slice::from_ref(second));
}
