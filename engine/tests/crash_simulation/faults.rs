//! Takeovers, errors and damaged staged files at every operation.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use runner_engine::digest::Digest;
use runner_engine::publish::{LogError, PublishError};

use super::scenarios::{OTHER_STAGING, place_other, take_over};
use super::trial::{Trial, TrialResult, ensure, fingerprint, held};
use super::world::{CrashPoint, Failure, World};

/// How another process takes over a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    /// The fence is increased, and the recovery starts after the old run has ended.
    Later,
    /// The recovery happens during the old run, which then continues.
    AtOnce,
    /// Like `AtOnce`, but another run publishes to the same targets before the old run continues.
    WithNextRun,
}

impl Trial<'_> {
    /// Takes over a run before each operation. Checks that the old run succeeds if its outcome was
    /// already committed and fails otherwise, and that the next process finds a consistent tree.
    pub fn take_overs(&mut self) -> TrialResult {
        let world = World::new(self.prepared.start.clone());
        self.prepared
            .perform_in(&world)
            .map_err(|error| format!("an undisturbed publication failed: {}", error))?;
        for at in 0..=world.operations() {
            for by in [Takeover::Later, Takeover::AtOnce, Takeover::WithNextRun] {
                self.taken(at, by).map_err(|why| format!("{by:?} before operation {at}: {why}"))?;
            }
        }
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        let mut seen = HashSet::new();
        for point in world.take() {
            if point.log.manifest.is_some()
                && !point.log.settled
                && seen.insert(fingerprint(&point))
            {
                self.recoverer_taken(&point)?;
            }
        }
        Ok(())
    }

    fn taken(&mut self, at: usize, by: Takeover) -> TrialResult {
        let world = World::new(self.prepared.start.clone());
        let settled = Rc::new(Cell::new(None));
        let mark = settled.clone();
        let scenario = self.prepared.scenario;
        world.interrupt(at, move |world| {
            mark.set(Some(world.now().log.settled));
            match by {
                Takeover::Later => world.with(|now| now.log.fence.0 += 1),
                Takeover::AtOnce | Takeover::WithNextRun => {
                    take_over(scenario, world).expect("the takeover runs without faults");
                }
            }
            if by == Takeover::WithNextRun {
                for (path, _) in scenario.changes {
                    let change = [(*path, Some("the next run's"))];
                    let changes: &'static [_] = Box::leak(Box::new(change));
                    place_other(world, changes).expect("nothing disturbs the next run");
                }
            }
        });
        let result = self.prepared.perform_in(&world);
        let Some(was_settled) = settled.get() else {
            return Ok(());
        };
        self.counts.fence += 1;
        match &result {
            Ok(_) => ensure!(was_settled, "a run reported success after it was taken over"),
            Err(error) if was_settled => return Err(error.to_string()),
            Err(_) => {}
        }
        if by == Takeover::Later
            && let Err(error) = &result
        {
            let stale = matches!(error, PublishError::Log(LogError::StaleFence { .. }));
            ensure!(stale, "the old run failed with {}", error);
        }
        if by != Takeover::WithNextRun {
            self.take_over(&world).map_err(|error| error.to_string())?;
            return self.ended(&world.now());
        }
        self.take_over(&world).map_err(|error| error.to_string())?;
        let now = world.now();
        let theirs = Some(Digest::of(b"the next run's"));
        for target in self.prepared.targets.iter().filter(|target| !target.already) {
            ensure!(held(&now.disk, target.path) == theirs, "the next run lost {}", target.path);
        }
        ensure!(
            now.disk.list(self.prepared.scenario.staging).is_none(),
            "the staging folder was not removed"
        );
        ensure!(
            now.disk.list(OTHER_STAGING).is_none(),
            "the next run's staging folder was not removed"
        );
        Ok(())
    }

    /// Checks that a recovery does not commit after it has been taken over.
    fn recoverer_taken(&mut self, crashed: &CrashPoint) -> TrialResult {
        let undisturbed = World::new(crashed.clone());
        let _ = self.take_over(&undisturbed);
        for at in 0..=undisturbed.operations() {
            let world = World::new(crashed.clone());
            let settled = Rc::new(Cell::new(None));
            let mark = settled.clone();
            world.interrupt(at, move |world| {
                mark.set(Some(world.now().log.settled));
                world.with(|now| now.log.fence.0 += 1);
            });
            let result = self.take_over(&world);
            let Some(was_settled) = settled.get() else {
                continue;
            };
            self.counts.fence += 1;
            let stale = matches!(&result, Err(PublishError::Log(LogError::StaleFence { .. })));
            ensure!(stale != was_settled, "recovery taken over before operation {at}: {result:?}");
            self.take_over(&world).map_err(|error| error.to_string())?;
            self.ended(&world.now())?;
        }
        Ok(())
    }

    /// Makes each operation fail: once, from then on, or (for a commit) only apparently.
    pub fn errors(&mut self) -> TrialResult {
        let kinds = [Failure::Once, Failure::From, Failure::Unacknowledged];
        let undisturbed = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&undisturbed);
        for at in 0..undisturbed.operations() {
            for failure in kinds.map(|kind| kind(at)) {
                let world = World::new(self.prepared.start.clone());
                world.fail(Some(failure));
                let result = self.prepared.perform_in(&world);
                self.recovers_after_error(&world, result.is_ok())
                    .map_err(|why| format!("{failure:?}: {why}"))?;
            }
        }
        let mut seen = HashSet::new();
        for point in undisturbed.take() {
            if !seen.insert(fingerprint(&point)) {
                continue;
            }
            let undisturbed = World::new(point.clone());
            let _ = self.take_over(&undisturbed);
            for at in 0..undisturbed.operations() {
                for failure in kinds.map(|kind| kind(at)) {
                    let world = World::new(point.clone());
                    world.fail(Some(failure));
                    let result = self.take_over(&world);
                    self.recovers_after_error(&world, result.is_ok())
                        .map_err(|why| format!("recovery, {failure:?}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    /// Checks the invariants after an error, and again after a recovery without errors.
    fn recovers_after_error(&mut self, world: &World, done: bool) -> TrialResult {
        self.counts.errors += 1;
        self.live(&world.now())?;
        ensure!(
            !done || world.now().log.settled || world.now().log.manifest.is_none(),
            "success was reported without an outcome"
        );
        world.fail(None);
        self.take_over(world).map_err(|error| error.to_string())?;
        self.ended(&world.now())
    }

    /// Damages a staged file after the manifest is recorded. Checks that recovery reports the file
    /// and does not publish it.
    pub fn rot(&mut self) -> TrialResult {
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        for (at, point) in world.take().into_iter().enumerate() {
            let Some(manifest) = point.log.manifest.clone().filter(|_| !point.log.settled) else {
                continue;
            };
            self.vanished(&point).map_err(|why| format!("staging folder lost at {at}: {why}"))?;
            for (entry, target) in manifest.entries.iter().zip(&self.prepared.targets) {
                let Some(staged) = entry.staged.as_ref().map(|staged| staged.as_str()) else {
                    continue;
                };
                let waiting = held(&point.disk, staged).is_some()
                    && held(&point.disk, staged) == target.after
                    && held(&point.disk, target.path) == target.before;
                if !waiting {
                    continue;
                }
                self.counts.rot += 1;
                let mut point = point.clone();
                point.disk.rewrite_durably(staged, b"rotten");
                let world = World::new(point);
                for _ in 0..2 {
                    let result = self.take_over(&world);
                    let refused = matches!(&result, Err(PublishError::Staged { .. }));
                    ensure!(refused, "{staged} was damaged at {at}: {result:?}");
                    self.live(&world.now())?;
                }
            }
        }
        Ok(())
    }

    /// Removes the staging folder. Checks that recovery succeeds if all targets have their new
    /// content, and fails otherwise.
    fn vanished(&mut self, point: &CrashPoint) -> TrialResult {
        self.counts.rot += 1;
        let mut point = point.clone();
        let staging = self.prepared.scenario.staging;
        for name in point.disk.list(staging).unwrap_or_default() {
            point.disk.delete_durably(&format!("{staging}/{name}"));
        }
        let _ = point.disk.remove_dir(staging);
        let complete = self
            .prepared
            .targets
            .iter()
            .all(|target| held(&point.disk, target.path) == target.after);
        let world = World::new(point);
        for _ in 0..2 {
            let result = self.take_over(&world);
            ensure!(result.is_ok() == complete, "{result:?}");
            self.live(&world.now())?;
        }
        Ok(())
    }
}
