//! Commits that are recorded in a marker. The test crashes at every operation, with every kind of
//! damage, and in every recovery by the next process.

use std::collections::{HashSet, VecDeque};
use std::io::Write as _;

use runner_engine::digest::Digest;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Outcome;
use runner_engine::publish::marker::{
    self, Marker, MarkerFs, MarkerLog, MarkerOutcome, MarkerState, finish, settle,
};
use runner_engine::publish::{Draft, FsError, LogError, PublishError, RelPath, discard, publish};
use runner_engine::time::boot_time;

use super::damage::{Random, damages};
use super::disk::{Disk, Order};
use super::scenarios::{rel, run};
use super::world::{CrashPoint, Failure, Log, SimFs, World};

const FOLDER: &str = ".agents/overnight";
const MARKER: &str = ".agents/overnight/COMMIT-MARKER.1";
const PREV: &str = ".agents/overnight/prev.1";

/// The files that exist before the iteration.
const FILES: &[(&str, &str)] = &[
    (".agents/overnight/run.lock", ""),
    (".agents/learnings/a.md", "old a"),
    (".agents/learnings/b.md", "old b"),
    (".agents/rpi/next-work.jsonl", "{}"),
    (".agents/other.md", "untouched"),
];

/// The changes of the iteration: a replaced file, a removed file, a file in a new folder and
/// another replaced file.
const CHANGES: &[(&str, Option<&str>)] = &[
    (".agents/learnings/a.md", Some("new a")),
    (".agents/learnings/b.md", None),
    (".agents/patterns/p.md", Some("new p")),
    (".agents/rpi/next-work.jsonl", Some("{\"new\":1}")),
];

impl MarkerFs for SimFs {
    fn read(&self, path: &RelPath, _: u64) -> Result<Option<Vec<u8>>, FsError> {
        self.content(path)
    }
}

fn start(modern: bool) -> CrashPoint {
    let mut disk = Disk::new(modern);
    for (path, text) in FILES {
        disk.put_durably(path, text.as_bytes());
    }
    let log = Log { manifest: None, settled: false, fence: Fence(1) };
    CrashPoint { disk, log }
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn before(path: &str) -> Option<Digest> {
    let found = FILES.iter().find(|(name, _)| *name == path);
    found.map(|(_, text)| digest(text))
}

fn holds(disk: &Disk, path: &str) -> Option<Digest> {
    disk.read(path).map(|content| content.digest)
}

/// Commits an iteration with fence 1.
fn commit(world: &World) -> Result<(), PublishError> {
    let fs = world.fs();
    let mut draft = Draft::new(rel(PREV));
    for (path, text) in CHANGES {
        match (text, before(path)) {
            (Some(text), held) => {
                draft.put(&fs, rel(path), held, text.as_bytes(), 0o644)?;
            }
            (None, Some(held)) => draft.remove(&fs, rel(path), held)?,
            (None, None) => unreachable!("only existing files are removed"),
        }
    }
    let manifest = draft.seal(&fs, run(), Fence(1), Outcome::Succeeded)?;
    let guard = |run: &RunId, held: Fence| {
        let current = world.with(|now| now.log.fence);
        match held == current {
            true => Ok(()),
            false => Err(LogError::StaleFence { run: run.clone(), held, current }),
        }
    };
    let draft = Marker {
        state: MarkerState::Ready,
        iteration_id: "R-iter-1".to_owned(),
        started_at: "2026-11-22T02:30:00Z".to_owned(),
        record: serde_json::json!({"index": 1}),
        manifest: None,
        staging: None,
    };
    let mut log = MarkerLog::new(&fs, rel(MARKER), draft, &guard);
    publish(&fs, &mut log, &manifest)?;
    Ok(finish(&fs, &rel(FOLDER))?)
}

/// Settles the previous commit, as the next process does under the tree's lock.
fn next(world: &World) -> Result<Vec<MarkerOutcome>, PublishError> {
    let fs = world.fs();
    let settled = settle(&fs, &rel(FOLDER), &[rel(".agents")])?;
    finish(&fs, &rel(FOLDER))?;
    discard(&fs, &rel(PREV))?;
    Ok(settled)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TreeState {
    Old,
    New,
    /// The marker is READY, so no reader treats the tree as complete.
    Between,
}

/// Returns the tree's state for a reader that respects the marker. Returns an error if a file has
/// neither its old nor its new content, or if the tree seems complete but is not.
fn reader(point: &CrashPoint) -> Result<TreeState, String> {
    let world = World::new(point.clone());
    let marker = marker::inspect(&world.fs(), &rel(MARKER)).unwrap();
    let disk = &point.disk;
    if holds(disk, ".agents/other.md") != Some(digest("untouched")) {
        return Err("a file outside the iteration was changed".to_owned());
    }
    let mut olds = 0;
    let mut news = 0;
    for (path, text) in CHANGES {
        let held = holds(disk, path);
        let (old, new) = (held == before(path), held == text.map(digest));
        if !old && !new {
            return Err(format!("{path} is torn or lost"));
        }
        olds += usize::from(old);
        news += usize::from(new);
    }
    match marker.map(|marker| marker.state) {
        Some(MarkerState::Ready) => Ok(TreeState::Between),
        _ if news == CHANGES.len() => Ok(TreeState::New),
        None if olds == CHANGES.len() => Ok(TreeState::Old),
        state => Err(format!("{news} of {} are new, but the marker is {state:?}", CHANGES.len())),
    }
}

#[derive(Default)]
struct Counts {
    points: u64,
    cases: u64,
    doubles: u64,
    disks: u64,
    errors: u64,
}

fn crash_everywhere(modern: bool, scale: f64, counts: &mut Counts) {
    let mut random = Random(7);
    let world = World::recording(start(modern));
    commit(&world).unwrap();
    assert_eq!(reader(&world.now()), Ok(TreeState::New));
    let mut seen = HashSet::new();
    let mut waiting = VecDeque::new();
    let mut crash = |points: Vec<CrashPoint>,
                     depth: u64,
                     waiting: &mut VecDeque<(CrashPoint, u64)>,
                     counts: &mut Counts| {
        for (at, point) in points.iter().enumerate() {
            counts.points += 1;
            reader(point).unwrap_or_else(|why| panic!("killed at {at}, depth {depth}: {why}"));
            for (damage, left) in damages(point, Order::Journaled, &mut random, scale) {
                counts.cases += 1;
                counts.doubles += u64::from(depth > 0);
                reader(&left)
                    .unwrap_or_else(|why| panic!("{damage:?} at {at}, depth {depth}: {why}"));
                if seen.insert(left.disk.fingerprint()) {
                    waiting.push_back((left, depth + 1));
                }
            }
        }
    };
    crash(world.take(), 0, &mut waiting, counts);
    while let Some((left, depth)) = waiting.pop_front() {
        counts.disks += 1;
        let was = reader(&left).unwrap();
        let world = World::recording(left);
        let settled = next(&world).unwrap_or_else(|error| panic!("depth {depth}: {error}"));
        assert_eq!(
            settled.iter().any(|it| matches!(it, MarkerOutcome::RolledForward(_))),
            was == TreeState::Between
        );
        let end = world.now();
        let wanted = if was == TreeState::Old { TreeState::Old } else { TreeState::New };
        assert_eq!(reader(&end), Ok(wanted), "depth {depth}");
        assert!(end.disk.read(MARKER).is_none() && end.disk.list(PREV).is_none());
        let changes = world.changes();
        assert!(
            next(&world).unwrap().is_empty() && world.changes() == changes,
            "a second settlement changed something"
        );
        crash(world.take(), depth, &mut waiting, counts);
    }
}

/// Injects an error at every operation, once and permanently. Checks that the tree keeps its old
/// state or that the next process completes it.
fn errors_everywhere(modern: bool, counts: &mut Counts) {
    let world = World::new(start(modern));
    commit(&world).unwrap();
    let operations = world.operations();
    for at in 0..operations {
        for failure in [Failure::Once(at), Failure::From(at)] {
            counts.errors += 1;
            let world = World::new(start(modern));
            world.fail(Some(failure));
            let done = commit(&world);
            world.fail(None);
            let was = reader(&world.now()).unwrap_or_else(|why| panic!("{failure:?}: {why}"));
            if done.is_ok() {
                assert_eq!(was, TreeState::New, "{failure:?}");
            }
            next(&world).unwrap_or_else(|error| panic!("{failure:?}: {error}"));
            let end = reader(&world.now()).unwrap();
            assert_eq!(end == TreeState::Old, was == TreeState::Old, "{failure:?}");
            assert_ne!(end, TreeState::Between);
        }
    }
}

/// Checks that a run neither records nor settles a manifest after it has been taken over.
fn taken_over() {
    let world = World::new(start(true));
    commit(&world).unwrap();
    for at in 0..world.operations() {
        let world = World::new(start(true));
        world.interrupt(at, |world| world.with(|now| now.log.fence = Fence(2)));
        let done = commit(&world);
        let seen = reader(&world.now()).unwrap();
        match done {
            Ok(()) => assert_eq!(seen, TreeState::New),
            Err(PublishError::Log(LogError::StaleFence { .. })) => assert_ne!(seen, TreeState::New),
            Err(other) => panic!("{other}"),
        }
        next(&world).unwrap();
        assert_ne!(reader(&world.now()), Ok(TreeState::Between));
    }
}

/// Checks that a marker in an untrusted tree cannot make runner write outside the allowed folders.
#[test]
fn foreign_marker_is_left_alone() {
    let world = World::new(start(true));
    commit(&world).unwrap();
    let operations = world.operations();
    for at in 0..operations {
        let world = World::new(start(true));
        world.fail(Some(Failure::From(at)));
        let _half = commit(&world);
        world.fail(None);
        if reader(&world.now()) != Ok(TreeState::Between) {
            continue;
        }
        let changes = world.changes();
        let settled = settle(&world.fs(), &rel(FOLDER), &[rel(".agents/learnings")]).unwrap();
        assert!(matches!(settled[..], [MarkerOutcome::Foreign(_)]), "{settled:?}");
        assert_eq!(world.changes(), changes);
        return;
    }
    panic!("no commit was interrupted");
}

#[test]
fn marker_commits_are_atomic_for_readers() {
    let began = boot_time();
    let scale: f64 = super::setting("RUNNER_TEST_SCALE", 1.0);
    let mut counts = Counts::default();
    for modern in [true, false] {
        crash_everywhere(modern, scale, &mut counts);
        errors_everywhere(modern, &mut counts);
    }
    taken_over();
    let line = format!(
        "commit by marker: {} points, {} cases, {} double crashes, {} disks, {} errors, {:.1} s",
        counts.points,
        counts.cases,
        counts.doubles,
        counts.disks,
        counts.errors,
        (boot_time() - began).as_secs_f64()
    );
    println!("{line}");
    writeln!(std::io::stderr(), "{line}").unwrap();
}
