//! A simulated disk and log. Before each operation, the simulation can save a snapshot, make a
//! foreign change, take over the run or inject an error.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use runner_engine::ids::{Fence, RunId};
use runner_engine::publish::{
    FsError, FsFailure, LogError, Manifest, PathState, PublishFs, PublishLog, RecordedManifest,
    RelPath,
};

use super::disk::{Disk, Refusal};

/// Maximum number of operations. No publication in these scenarios reaches this number.
const ENDLESS: usize = 2_000;

/// The log of the run under test, and the job's fence.
#[derive(Clone, Debug)]
pub struct Log {
    pub manifest: Option<Rc<Manifest>>,
    pub settled: bool,
    pub fence: Fence,
}

/// The disk and the log at the time of a crash.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    pub disk: Disk,
    pub log: Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    Read,
    Change,
    Replace,
    Sync,
    Commit,
}

type Hook = Box<dyn FnOnce(&World)>;

/// The operations that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The operation with this number fails and has no effect.
    Once(usize),
    /// The operation with this number and all later operations fail.
    From(usize),
    /// The operation with this number takes effect but returns an error, if it is a commit.
    Unacknowledged(usize),
}

struct Inner {
    now: CrashPoint,
    operations: usize,
    changes: usize,
    snapshots: Option<Vec<CrashPoint>>,
    mark: usize,
    hook: Option<(usize, Hook)>,
    met: Option<OperationKind>,
    failure: Option<Failure>,
}

/// A handle to a simulated world, shared by its clones.
#[derive(Clone)]
pub struct World(Rc<RefCell<Inner>>);

impl World {
    pub fn new(now: CrashPoint) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            now,
            operations: 0,
            changes: 0,
            snapshots: None,
            mark: 0,
            hook: None,
            met: None,
            failure: None,
        })))
    }

    /// Creates a world that saves a snapshot before every operation that is not a read.
    pub fn recording(now: CrashPoint) -> Self {
        let world = Self::new(now);
        world.0.borrow_mut().snapshots = Some(Vec::new());
        world
    }

    /// Calls `hook` before operation `at`.
    pub fn interrupt(&self, at: usize, hook: impl FnOnce(&World) + 'static) {
        self.0.borrow_mut().hook = Some((at, Box::new(hook)));
    }

    pub fn fail(&self, failure: Option<Failure>) {
        self.0.borrow_mut().failure = failure;
    }

    /// Returns the kind of operation before which the hook was called, if it was called.
    pub fn met(&self) -> Option<OperationKind> {
        self.0.borrow().met
    }

    pub fn now(&self) -> CrashPoint {
        self.0.borrow().now.clone()
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut CrashPoint) -> T) -> T {
        act(&mut self.0.borrow_mut().now)
    }

    /// Saves a snapshot and records the number of snapshots so far.
    pub fn mark(&self) {
        let mut inner = self.0.borrow_mut();
        let inner = &mut *inner;
        if let Some(snapshots) = &mut inner.snapshots {
            snapshots.push(inner.now.clone());
            inner.mark = snapshots.len();
        }
    }

    /// Returns the number of snapshots that [`World::mark`] recorded.
    pub fn marked(&self) -> usize {
        self.0.borrow().mark
    }

    /// Stops recording and returns the snapshots, followed by the current state.
    pub fn take(&self) -> Vec<CrashPoint> {
        let mut inner = self.0.borrow_mut();
        let mut all = inner.snapshots.take().unwrap_or_default();
        all.push(inner.now.clone());
        all
    }

    pub fn operations(&self) -> usize {
        self.0.borrow().operations
    }

    /// Returns the number of operations that changed the disk. Syncs are not counted.
    pub fn changes(&self) -> usize {
        self.0.borrow().changes
    }

    pub fn fs(&self) -> SimFs {
        SimFs(self.clone())
    }

    pub fn log(&self) -> SimLog {
        SimLog(self.clone())
    }

    /// Starts an operation and returns the failure to inject, if any.
    fn step(&self, kind: OperationKind) -> Option<Failure> {
        let hook = {
            let mut inner = self.0.borrow_mut();
            let at = inner.operations;
            inner.operations += 1;
            assert!(at < ENDLESS, "the operations do not end");
            match inner.hook.take() {
                Some((when, hook)) if when == at => {
                    // If hooks are called before several operations, a replacement takes
                    // precedence.
                    if inner.met != Some(OperationKind::Replace) {
                        inner.met = Some(kind);
                    }
                    Some(hook)
                }
                other => {
                    inner.hook = other;
                    None
                }
            }
        };
        if let Some(hook) = hook {
            hook(self);
        }
        let mut inner = self.0.borrow_mut();
        let inner = &mut *inner;
        if kind != OperationKind::Read
            && let Some(snapshots) = &mut inner.snapshots
        {
            snapshots.push(inner.now.clone());
        }
        let at = inner.operations - 1;
        inner.failure.filter(|failure| match *failure {
            Failure::Once(when) => when == at,
            Failure::From(when) => when <= at,
            Failure::Unacknowledged(when) => when == at && kind == OperationKind::Commit,
        })
    }
}

pub struct SimFs(World);

impl SimFs {
    fn act<T>(
        &self,
        kind: OperationKind,
        act: &'static str,
        path: &RelPath,
        run: impl FnOnce(&mut Disk) -> Result<T, Refusal>,
    ) -> Result<T, FsError> {
        let fail = |trouble| FsError { act, path: path.to_string(), trouble };
        if self.0.step(kind).is_some() {
            return Err(fail(io::Error::other("an injected error").into()));
        }
        let mut inner = self.0.0.borrow_mut();
        let done = run(&mut inner.now.disk);
        if done.is_ok() && matches!(kind, OperationKind::Change | OperationKind::Replace) {
            inner.changes += 1;
        }
        done.map_err(|refusal| {
            fail(match refusal {
                Refusal::Missing => FsFailure::Missing,
                Refusal::Exists => FsFailure::Exists,
                Refusal::Unsupported => FsFailure::Unsupported,
                Refusal::NotEmpty => io::Error::from(io::ErrorKind::DirectoryNotEmpty).into(),
            })
        })
    }
}

impl SimFs {
    pub fn content(&self, path: &RelPath) -> Result<Option<Vec<u8>>, FsError> {
        self.act(OperationKind::Read, "read", path, |disk| {
            Ok(disk.read(path.as_str()).map(|content| content.bytes.clone()))
        })
    }
}

impl PublishFs for SimFs {
    fn inspect(&self, path: &RelPath) -> Result<PathState, FsError> {
        self.act(OperationKind::Read, "read", path, |disk| {
            let name = path.as_str();
            Ok(match (disk.read(name), disk.list(name)) {
                (Some(content), _) => PathState::Content(content.digest),
                (None, Some(_)) => PathState::NotAFile("a folder"),
                (None, None) => PathState::Absent,
            })
        })
    }

    fn write_new(&self, path: &RelPath, bytes: &[u8], _: u32) -> Result<(), FsError> {
        self.act(OperationKind::Change, "write", path, |disk| disk.write_new(path.as_str(), bytes))
    }

    fn sync_file(&self, path: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Sync, "sync", path, |disk| disk.sync_file(path.as_str()))
    }

    fn create_dir(&self, path: &RelPath) -> Result<(), FsError> {
        // The operation changes the disk only if the folder does not exist.
        let there = self.0.with(|now| now.disk.list(path.as_str()).is_some());
        let kind = if there { OperationKind::Read } else { OperationKind::Change };
        self.act(kind, "make the folder", path, |disk| disk.create_dir(path.as_str()))
    }

    fn sync_dir(&self, dir: Option<&RelPath>) -> Result<(), FsError> {
        let root = RelPath::new("root").expect("the path is valid");
        let shown = dir.unwrap_or(&root);
        self.act(OperationKind::Sync, "sync the folder", shown, |disk| {
            disk.sync_dir(dir.map(RelPath::as_str))
        })
    }

    fn rename_noreplace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Change, "rename", from, |disk| {
            disk.rename(from.as_str(), to.as_str(), false)
        })
    }

    fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Change, "exchange", one, |disk| {
            disk.exchange(one.as_str(), other.as_str())
        })
    }

    fn rename_replace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Replace, "rename", from, |disk| {
            disk.rename(from.as_str(), to.as_str(), true)
        })
    }

    fn list(&self, dir: &RelPath) -> Result<Option<Vec<String>>, FsError> {
        self.act(OperationKind::Read, "list", dir, |disk| Ok(disk.list(dir.as_str())))
    }

    fn remove_file(&self, path: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Change, "remove", path, |disk| disk.remove_file(path.as_str()))
    }

    fn remove_dir(&self, path: &RelPath) -> Result<(), FsError> {
        self.act(OperationKind::Change, "remove the folder", path, |disk| {
            disk.remove_dir(path.as_str())
        })
    }
}

pub struct SimLog(World);

impl SimLog {
    fn commit(
        &self,
        run: &RunId,
        held: Fence,
        apply: impl FnOnce(&mut Log) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let failed = || LogError::Store(Box::new(io::Error::other("an injected error")));
        let failure = self.0.step(OperationKind::Commit);
        if matches!(failure, Some(Failure::Once(_) | Failure::From(_))) {
            return Err(failed());
        }
        self.0.with(|now| {
            if held != now.log.fence {
                let (run, current) = (run.clone(), now.log.fence);
                return Err(LogError::StaleFence { run, held, current });
            }
            apply(&mut now.log)
        })?;
        if failure.is_some() { Err(failed()) } else { Ok(()) }
    }
}

impl PublishLog for SimLog {
    fn manifest(&self, _: &RunId) -> Result<Option<RecordedManifest>, LogError> {
        if self.0.step(OperationKind::Read).is_some() {
            return Err(LogError::Store(Box::new(io::Error::other("an injected error"))));
        }
        Ok(self.0.with(|now| {
            let settled = now.log.settled;
            now.log
                .manifest
                .as_ref()
                .map(|manifest| RecordedManifest { manifest: (**manifest).clone(), settled })
        }))
    }

    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        self.commit(run, fence, |log| {
            if log.manifest.is_some() {
                return Err(LogError::ManifestExists { run: run.clone() });
            }
            log.manifest = Some(Rc::new(manifest.clone()));
            Ok(())
        })
    }

    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.commit(run, fence, |log| {
            if log.manifest.is_none() {
                return Err(LogError::NoManifest { run: run.clone() });
            }
            if log.settled {
                return Err(LogError::Settled { run: run.clone() });
            }
            log.settled = true;
            Ok(())
        })
    }
}
