//! Crashes at every operation of publications and recoveries, with and without a journal.

use std::collections::{HashSet, VecDeque};

use runner_engine::publish::{PublishError, Recovery};

use super::damage::{Damage, Random, damages};
use super::disk::Order;
use super::trial::{Trial, TrialResult, ensure, fingerprint};
use super::world::{CrashPoint, World};

impl Trial<'_> {
    /// Crashes at every operation with every kind of damage, then in every recovery from such a
    /// crash, and so on until no new disk state appears.
    pub fn crashes(&mut self) -> TrialResult {
        let mut random = Random(self.seed);
        let world = World::recording(self.prepared.start.clone());
        let published = self.prepared.perform_in(&world);
        let published =
            published.map_err(|error| format!("an undisturbed publication failed: {}", error))?;
        ensure!(
            published.leftover.is_none(),
            "an undisturbed publication left files behind: {published:?}"
        );
        ensure!(world.now().log.settled, "an undisturbed publication committed no outcome");
        self.ended(&world.now())?;

        let mut seen = HashSet::new();
        let mut waiting = VecDeque::new();
        let mut crash = |trial: &mut Self,
                         points: Vec<CrashPoint>,
                         trail: &[(usize, Damage)],
                         waiting: &mut VecDeque<(CrashPoint, Vec<(usize, Damage)>)>|
         -> TrialResult {
            for (at, point) in points.iter().enumerate() {
                trial.counts.points += 1;
                let show = |damage: &Damage| format!("{trail:?} then {at} {damage:?}");
                trial
                    .live(point)
                    .map_err(|why| format!("{}, before damage: {why}", show(&Damage::Killed)))?;
                for (damage, left) in damages(point, Order::Journaled, &mut random, trial.scale) {
                    trial.counts.cases += 1;
                    trial.counts.doubles += u64::from(!trail.is_empty());
                    trial.live(&left).map_err(|why| format!("{}: {why}", show(&damage)))?;
                    if seen.insert(fingerprint(&left)) {
                        let trail = trail.iter().cloned().chain([(at, damage)]).collect();
                        waiting.push_back((left, trail));
                    }
                }
            }
            Ok(())
        };
        crash(self, world.take(), &[], &mut waiting)?;
        while let Some((point, trail)) = waiting.pop_front() {
            self.counts.disks += 1;
            self.counts.chain = self.counts.chain.max(trail.len() as u64);
            let points = self
                .recovers(&point)
                .map_err(|why| format!("crashes (operation, damage) {trail:?}: {why}"))?;
            crash(self, points, &trail, &mut waiting)?;
        }
        Ok(())
    }

    /// Recovers without interference and returns the crash points of the recovery. Checks that its
    /// result is correct and that a second recovery changes nothing.
    fn recovers(&self, crashed: &CrashPoint) -> Result<Vec<CrashPoint>, String> {
        let world = World::recording(crashed.clone());
        let recovery = self.take_over(&world).map_err(|error| error.to_string())?;
        let points = world.take();
        let wanted = match &crashed.log {
            log if log.manifest.is_none() => Recovery::Nothing,
            log if log.settled => Recovery::Cleaned,
            _ => Recovery::RolledForward(self.prepared.outcome.clone()),
        };
        if recovery != wanted {
            return Err(format!("the recovery returned {recovery:?} instead of {wanted:?}"));
        }
        let end = world.now();
        self.ended(&end)?;
        let changes = world.changes();
        let again = self.take_over(&world).map_err(|error| error.to_string())?;
        let settled = if end.log.settled { Recovery::Cleaned } else { Recovery::Nothing };
        if again != settled || world.changes() != changes {
            return Err(format!("a second recovery was not idle: {again:?}"));
        }
        Ok(points)
    }

    /// Cuts the power of a disk without a journal, where a rename may lose a staged file. Checks
    /// that no target is torn or lost, and that a publication that cannot be completed is reported.
    pub fn unjournaled(&mut self) -> TrialResult {
        let mut random = Random(self.seed ^ 2);
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        let mut seen = HashSet::new();
        for (at, point) in world.take().iter().enumerate() {
            for (damage, crashed) in damages(point, Order::Unjournaled, &mut random, self.scale) {
                if !seen.insert(fingerprint(&crashed)) {
                    continue;
                }
                self.counts.unjournaled += 1;
                let show = |why: String| format!("operation {at} {damage:?}: {why}");
                let world = World::new(crashed);
                let first = self.take_over(&world);
                self.live(&world.now()).map_err(show)?;
                let second = self.take_over(&world);
                self.live(&world.now()).map_err(show)?;
                match (first, second) {
                    (Ok(_), Ok(_)) => self.ended(&world.now()).map_err(show)?,
                    (Err(PublishError::Staged { .. }), Err(PublishError::Staged { .. })) => {}
                    other => return Err(show(format!("{other:?}"))),
                }
            }
        }
        Ok(())
    }
}
