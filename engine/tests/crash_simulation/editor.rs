//! Lets another program edit a target before every operation of a publication or a recovery.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Debug;
use std::rc::Rc;

use runner_engine::digest::Digest;
use runner_engine::publish::{PathState, PublishError};

use super::damage::{Random, few};
use super::disk::Disk;
use super::scenarios::Target;
use super::trial::{Trial, TrialResult, bystander, ensure, fingerprint, held};
use super::world::{CrashPoint, OperationKind, World};

/// A change to a target by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A new file is renamed over the target.
    Replace,
    /// The existing file is rewritten.
    Rewrite,
    /// The target is deleted.
    Delete,
}

const FOREIGN: &[u8] = b"somebody else's words";

impl Edit {
    /// Applies the edit. Returns `false` if there was nothing to change.
    pub fn apply(self, disk: &mut Disk, path: &str, text: &[u8]) -> bool {
        match self {
            Self::Delete => disk.delete_durably(path),
            Self::Rewrite => disk.rewrite_durably(path, text),
            Self::Replace => {
                disk.put_durably(path, text);
                true
            }
        }
    }

    /// Schedules the edit before operation `at`. The returned flag is set when the edit changes
    /// something.
    fn before(self, world: &World, path: &'static str, at: usize) -> Rc<Cell<bool>> {
        let edited = Rc::new(Cell::new(false));
        let mark = edited.clone();
        world.interrupt(at, move |world| {
            world.mark();
            mark.set(world.with(|now| self.apply(&mut now.disk, path, FOREIGN)));
        });
        edited
    }

    fn survives(self, point: &CrashPoint, target: &Target) -> TrialResult {
        let held = held(&point.disk, target.path);
        let spared = match self {
            Self::Replace | Self::Rewrite => held == Some(Digest::of(FOREIGN)),
            // If a new file is deleted right after its publication, recovery cannot distinguish it
            // from a file that has not been published yet, and may publish it again.
            Self::Delete => held.is_none() || target.before.is_none() && held == target.after,
        };
        ensure!(spared, "the edit of {} was lost", target.path);
        Ok(())
    }
}

impl Trial<'_> {
    /// Edits a target before each operation of a publication or a recovery, then checks the next
    /// recovery, with and without a crash in between.
    pub fn editor(&mut self) -> TrialResult {
        let world = World::recording(self.prepared.start.clone());
        let undisturbed = self.prepared.perform_in(&world);
        let total = world.operations();
        let snapshots = world.take();
        // In some scenarios, another program also writes the new content to a target. Such targets
        // are omitted, because that write would undo the edit.
        for target in self.prepared.targets.iter().filter(|target| !target.already) {
            for edit in [Edit::Replace, Edit::Rewrite, Edit::Delete] {
                for at in 0..=total {
                    self.edit_in_place(target, edit, at).map_err(|why| {
                        format!("{edit:?} of {} before operation {at}: {why}", target.path)
                    })?;
                }
            }
        }
        if undisturbed.is_err() {
            return Ok(());
        }
        let mut random = Random(self.seed ^ 1);
        let mut seen = HashSet::new();
        for (at, snapshot) in snapshots.iter().enumerate() {
            if snapshot.log.manifest.is_none() || snapshot.log.settled {
                continue;
            }
            for (damage, crashed) in few(snapshot, &mut random) {
                if seen.insert(fingerprint(&crashed)) {
                    self.edit_in_recovery(&crashed)
                        .map_err(|why| format!("crash at {at} {damage:?}, then {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn edit_in_place(&mut self, target: &Target, edit: Edit, at: usize) -> TrialResult {
        let world = World::recording(self.prepared.start.clone());
        let edited = edit.before(&world, target.path, at);
        let result = self.prepared.perform_in(&world);
        if !edited.get() {
            return Ok(());
        }
        self.counts.editor += 1;
        if self.in_window(&world) {
            return Ok(());
        }
        let mut points = world.take();
        self.check_result(&points, target, &result)?;
        points.drain(..world.marked());
        let last = &points[points.len() - 1];
        edit.survives(last, target).map_err(|why| format!("{result:?}; {why}"))?;
        let mut random = Random(self.seed ^ at as u64);
        for (damage, crashed) in few(last, &mut random) {
            edit.survives(&crashed, target).map_err(|why| format!("{damage:?}: {why}"))?;
        }
        self.settles(&world, target, edit)?;

        let mut seen = HashSet::new();
        for (number, point) in points.iter().enumerate() {
            for (damage, crashed) in few(point, &mut random) {
                if !seen.insert(fingerprint(&crashed)) {
                    continue;
                }
                self.counts.editor += 1;
                let world = World::new(crashed);
                self.settles(&world, target, edit).map_err(|why| {
                    format!("crash at snapshot {number} after the edit, {damage:?}: {why}")
                })?;
            }
        }
        Ok(())
    }

    /// Checks the result of a disturbed publication or recovery. After a success, the target must
    /// have had its new content at some crash point. A failure must be one that the edit explains.
    fn check_result<T: Debug>(
        &self,
        points: &[CrashPoint],
        target: &Target,
        result: &Result<T, PublishError>,
    ) -> TrialResult {
        match result {
            Ok(_) => {
                let published =
                    points.iter().any(|now| held(&now.disk, target.path) == target.after);
                ensure!(
                    published,
                    "the publication succeeded, but {} was never published",
                    target.path
                );
            }
            Err(PublishError::Changed(_) | PublishError::Conflict(_)) => {}
            // If a new target is deleted after its publication, its staged file no longer exists,
            // so the target cannot be published again. The error reports the missing staged file.
            Err(PublishError::Staged { found: PathState::Absent, .. })
                if target.before.is_none() => {}
            Err(error) => return Err(format!("an unexpected error: {}", error)),
        }
        Ok(())
    }

    fn edit_in_recovery(&mut self, crashed: &CrashPoint) -> TrialResult {
        let undisturbed = World::new(crashed.clone());
        let _ = self.take_over(&undisturbed);
        for target in &self.prepared.targets {
            for edit in [Edit::Replace, Edit::Delete] {
                for at in 0..=undisturbed.operations() {
                    let world = World::recording(crashed.clone());
                    let edited = edit.before(&world, target.path, at);
                    let result = self.take_over(&world);
                    if !edited.get() {
                        continue;
                    }
                    self.counts.editor += 1;
                    if self.in_window(&world) {
                        continue;
                    }
                    let points = world.take();
                    self.check_result(&points, target, &result)
                        .and_then(|()| edit.survives(&world.now(), target))
                        .and_then(|()| self.settles(&world, target, edit))
                        .map_err(|why| {
                            format!("{edit:?} of {} before operation {at}: {why}", target.path)
                        })?;
                }
            }
        }
        Ok(())
    }

    /// Recovers twice after an edit. Checks that both recoveries complete or both stop with the
    /// same kind of error, that the second one changes nothing, and that the edit survives.
    fn settles(&self, world: &World, target: &Target, edit: Edit) -> TrialResult {
        let first = self.take_over(world);
        edit.survives(&world.now(), target)?;
        let changes = world.changes();
        let second = self.take_over(world);
        edit.survives(&world.now(), target)?;
        ensure!(world.changes() == changes, "a second recovery changed something: {second:?}");
        let now = world.now();
        bystander(&now.disk)?;
        for other in self.prepared.targets.iter().filter(|other| other.path != target.path) {
            let held = held(&now.disk, other.path);
            ensure!(held == other.before || held == other.after, "{} is torn", other.path);
        }
        match (&first, &second) {
            (Ok(_), Ok(_)) => {
                ensure!(
                    now.disk.list(self.prepared.scenario.staging).is_none(),
                    "the staging folder was not removed"
                );
                Ok(())
            }
            (Err(PublishError::Conflict(first)), Err(PublishError::Conflict(second))) => {
                ensure!(first == second, "the conflict was first {first}, then {second}");
                ensure!(
                    now.disk.list(self.prepared.scenario.staging).is_some(),
                    "the staging folder of a conflict was removed"
                );
                Ok(())
            }
            // This is the case of a deleted target in `check_result`.
            (Err(PublishError::Staged { .. }), Err(PublishError::Staged { .. }))
                if edit == Edit::Delete =>
            {
                Ok(())
            }
            _ => Err(format!("the recoveries returned {first:?}, then {second:?}")),
        }
    }

    /// Returns whether the edit was made between the last check and the plain rename on a disk
    /// without exchanges.
    fn in_window(&mut self, world: &World) -> bool {
        let inside = !self.prepared.scenario.modern && world.met() == Some(OperationKind::Replace);
        self.counts.window += u64::from(inside);
        inside
    }

    /// Lets another program write a target's new content without syncing it, and checks that the
    /// content still becomes durable.
    pub fn twins(&mut self) -> TrialResult {
        let world = World::new(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        let mut random = Random(self.seed ^ 4);
        for (path, content) in self.prepared.scenario.changes {
            let Some(content) = content else { continue };
            for at in 0..world.operations() {
                let world = World::recording(self.prepared.start.clone());
                world.interrupt(at, move |world| {
                    world.with(|now| now.disk.scribble(path, content.as_bytes()));
                });
                let result = self.prepared.perform_in(&world);
                result.map_err(|error| format!("{path} at {at}: {error}"))?;
                self.counts.twins += 1;
                for point in world.take() {
                    // If the content is written before the first operation, it is synced before the
                    // manifest is committed. Otherwise, it is synced before the outcome is
                    // committed.
                    let lasts = point.log.settled || at == 0 && point.log.manifest.is_some();
                    for (damage, crashed) in few(&point, &mut random) {
                        let show = |why| format!("{path} at {at} {damage:?}: {why}");
                        if lasts {
                            self.live(&crashed).map_err(show)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
