//! Random sequences of edits, process deaths, power cuts and conflict resolutions.

use std::cell::RefCell;
use std::rc::Rc;

use runner_engine::digest::Digest;
use runner_engine::publish::PublishError;

use super::damage::{Random, few};
use super::editor::Edit;
use super::trial::{Trial, TrialFailure, bystander, ensure, held};
use super::world::{CrashPoint, Failure, OperationKind, World};

/// Number of sequences per scenario at scale 1.
const NIGHTS: f64 = 400.0;

/// The content that other programs have written and that no other program has overwritten since. It
/// must still exist.
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
    fn happen(&self, world: &World, path: &str, account: &ForeignBytes) {
        let mut expected = account.0.borrow_mut();
        world.with(|now| {
            if let Some(old) = now.disk.read(path) {
                expected.retain(|words| *words != old.bytes);
            }
            match self {
                Self::Undo(Some(first)) => now.disk.put_durably(path, first),
                Self::Undo(None) => {
                    now.disk.delete_durably(path);
                }
                Self::Edit(edit, words) => {
                    if edit.apply(&mut now.disk, path, words) && *edit != Edit::Delete {
                        expected.push(words.clone());
                    }
                }
            }
        });
    }
}

impl Trial<'_> {
    /// Performs a publication and two recoveries. Each may be disturbed by two foreign changes, may
    /// die at any operation, and may be followed by a power cut. Checks that all foreign content
    /// still exists in the tree or in the staging folder.
    pub fn unruly(&mut self) -> TrialFailure {
        let mut random = Random(self.seed ^ 3);
        let world = World::new(self.prepared.start.clone());
        let _ = self.prepared.perform_in(&world);
        let operations = world.operations();
        for _ in 0..(NIGHTS * self.scale).ceil() as usize {
            let seed = random.next();
            self.night(&mut Random(seed), operations)
                .map_err(|why| format!("sequence {seed}: {why}"))?;
        }
        Ok(())
    }

    fn night(&mut self, random: &mut Random, operations: usize) -> TrialFailure {
        let free: Vec<_> = self.prepared.targets.iter().filter(|target| !target.already).collect();
        if free.is_empty() {
            return Ok(());
        }
        self.counts.unruly += 1;
        let account = ForeignBytes::default();
        let mut window = false;
        let mut point = self.prepared.start.clone();
        for phase in 0..3 {
            let world = World::new(point);
            let path = free[random.below(free.len())].path;
            let deeds = [self.deed(random, path, phase), self.deed(random, path, phase + 3)];
            let (first, second) = (random.below(operations), 1 + random.below(6));
            let twice = random.flip();
            if phase < 2 || random.flip() {
                let account = account.clone();
                world.interrupt(first, move |world| {
                    deeds[0].happen(world, path, &account);
                    if twice {
                        world.interrupt(first + second, move |world| {
                            deeds[1].happen(world, path, &account);
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
                self.keeps(&account, &now).map_err(|why| format!("{what}: {why}"))?;
            }
            bystander(&now.disk)?;
            let reported = match &result {
                // Two foreign changes can create a file and remove it again between two operations.
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

    fn deed(&self, random: &mut Random, path: &str, number: usize) -> ForeignEdit {
        let words = format!("words {number}").into_bytes();
        match random.below(4) {
            0 => ForeignEdit::Edit(Edit::Replace, words),
            1 => ForeignEdit::Edit(Edit::Rewrite, words),
            2 => ForeignEdit::Edit(Edit::Delete, words),
            _ => {
                ForeignEdit::Undo(self.prepared.start.disk.read(path).map(|old| old.bytes.clone()))
            }
        }
    }

    fn keeps(&self, account: &ForeignBytes, now: &CrashPoint) -> TrialFailure {
        let staging = self.prepared.scenario.staging;
        let staged = now.disk.list(staging).unwrap_or_default();
        let staged = staged.iter().map(|name| format!("{staging}/{name}"));
        let targets = self.prepared.targets.iter().map(|target| target.path.to_owned());
        let there: Vec<_> = staged.chain(targets).map(|path| held(&now.disk, &path)).collect();
        for words in account.0.borrow().iter() {
            let kept = there.contains(&Some(Digest::of(words)));
            ensure!(kept, "{:?} was lost", String::from_utf8_lossy(words));
        }
        Ok(())
    }
}
