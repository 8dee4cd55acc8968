//! Random sequences of edits, process deaths, power cuts and conflict resolutions.

use std::cell::RefCell;
use std::rc::Rc;

use runner_engine::digest::Digest;
use runner_engine::publish::PublishError;

use super::damage::{Random, few};
use super::editor::Edit;
use super::trial::{Trial, TrialResult, bystander, ensure, held};
use super::world::{CrashPoint, Failure, OperationKind, World};

/// Number of sequences per scenario at scale 1.
const SEQUENCES: f64 = 400.0;

/// The content that other programs have written and that no later foreign edit has overwritten or
/// deleted. It must still exist.
#[derive(Clone, Debug, Default)]
struct ForeignBytes(Rc<RefCell<Vec<Vec<u8>>>>);

/// A change to a target by another program or the user.
#[derive(Clone, Debug)]
enum ForeignEdit {
    /// An edit, with the content that it writes unless it is a deletion.
    Edit(Edit, Vec<u8>),
    /// Restores the target's original content, as a user would to resolve a conflict.
    Undo(Option<Vec<u8>>),
}

impl ForeignEdit {
    fn apply_to(&self, world: &World, path: &str, foreign: &ForeignBytes) {
        let mut expected = foreign.0.borrow_mut();
        world.with(|now| {
            if let Some(old) = now.disk.read(path) {
                expected.retain(|content| *content != old.bytes);
            }
            match self {
                Self::Undo(Some(first)) => now.disk.put_durably(path, first),
                Self::Undo(None) => {
                    now.disk.delete_durably(path);
                }
                Self::Edit(edit, content) => {
                    if edit.apply(&mut now.disk, path, content) && *edit != Edit::Delete {
                        expected.push(content.clone());
                    }
                }
            }
        });
    }
}

impl Trial<'_> {
    /// Performs a publication and two recoveries. Each may be disturbed by up to two foreign edits,
    /// may die at any operation, and may be followed by a power cut. Checks that the foreign content
    /// still exists in a target or in the staging folder.
    pub fn unruly(&mut self) -> TrialResult {
        let mut random = Random(self.seed ^ 3);
        let world = World::new(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        let operations = world.operations();
        for _ in 0..(SEQUENCES * self.scale).ceil() as usize {
            let seed = random.next();
            self.sequence(&mut Random(seed), operations)
                .map_err(|why| format!("sequence {seed}: {why}"))?;
        }
        Ok(())
    }

    fn sequence(&mut self, random: &mut Random, operations: usize) -> TrialResult {
        let free: Vec<_> = self.prepared.targets.iter().filter(|target| !target.already).collect();
        if free.is_empty() {
            return Ok(());
        }
        self.counts.unruly += 1;
        let foreign = ForeignBytes::default();
        let mut window = false;
        let mut point = self.prepared.start.clone();
        for phase in 0..3 {
            let world = World::new(point);
            let path = free[random.below(free.len())].path;
            let edits = [
                self.foreign_edit(random, path, phase),
                self.foreign_edit(random, path, phase + 3),
            ];
            let (first, second) = (random.below(operations), 1 + random.below(6));
            let twice = random.flip();
            if phase < 2 || random.flip() {
                let foreign = foreign.clone();
                world.interrupt(first, move |world| {
                    edits[0].apply_to(world, path, &foreign);
                    if twice {
                        world.interrupt(first + second, move |world| {
                            edits[1].apply_to(world, path, &foreign);
                        });
                    }
                });
            }
            let dies = random.flip().then(|| Failure::From(random.below(operations)));
            world.fail(dies);
            let result = match phase {
                0 => self.prepared.perform_in(&world).map(drop),
                _ => self.take_over(&world).map(drop),
            };
            window |= !self.prepared.scenario.modern && world.met() == Some(OperationKind::Replace);
            let now = world.now();
            let what = format!("phase {phase}, {result:?}");
            if !window {
                self.keeps(&foreign, &now).map_err(|why| format!("{what}: {why}"))?;
            }
            bystander(&now.disk)?;
            let reported = match &result {
                // Two foreign edits can create a file and remove it again between two operations.
                Err(PublishError::Fs(error)) => dies.is_some() || error.is_missing(),
                Err(PublishError::Log(_)) => dies.is_some(),
                _ => true,
            };
            ensure!(reported, "{what}: an unexpected error");
            let mut crashes = few(&now, random);
            point = crashes.swap_remove(random.below(crashes.len())).1;
        }
        Ok(())
    }

    fn foreign_edit(&self, random: &mut Random, path: &str, number: usize) -> ForeignEdit {
        let content = format!("words {number}").into_bytes();
        match random.below(4) {
            0 => ForeignEdit::Edit(Edit::Replace, content),
            1 => ForeignEdit::Edit(Edit::Rewrite, content),
            2 => ForeignEdit::Edit(Edit::Delete, content),
            _ => {
                ForeignEdit::Undo(self.prepared.start.disk.read(path).map(|old| old.bytes.clone()))
            }
        }
    }

    fn keeps(&self, foreign: &ForeignBytes, now: &CrashPoint) -> TrialResult {
        let staging = self.prepared.scenario.staging;
        let staged = now.disk.list(staging).unwrap_or_default();
        let staged = staged.iter().map(|name| format!("{staging}/{name}"));
        let targets = self.prepared.targets.iter().map(|target| target.path.to_owned());
        let there: Vec<_> = staged.chain(targets).map(|path| held(&now.disk, &path)).collect();
        for content in foreign.0.borrow().iter() {
            let kept = there.contains(&Some(Digest::of(content)));
            ensure!(kept, "{:?} was lost", String::from_utf8_lossy(content));
        }
        Ok(())
    }
}
