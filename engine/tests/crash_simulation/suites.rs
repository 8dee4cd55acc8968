//! The suites: what is done to a placement at each of its operations, and what must hold after.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::AddAssign;
use std::rc::Rc;

use runner_engine::digest::Digest;
use runner_engine::placement::{Found, LogError, PlaceError, Planted, Recovery};

use super::damage::{Damage, Random, damages, few};
use super::disk::{Disk, Order};
use super::scenarios::{BYSTANDER, OTHER_STAGING, Prepared, Target, place_other, take_over};
use super::world::{Failure, Kind, Moment, World};

/// What went wrong, with all that repeats it.
pub type Verdict = Result<(), String>;

/// How much was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Operations at which a crash was tried, in placements and in recoveries.
    pub points: u64,
    /// Pairs of a point and a damage.
    pub cases: u64,
    /// Of these, the ones where a recovery crashed.
    pub doubles: u64,
    /// Of these, the disks that differ; each was recovered.
    pub disks: u64,
    /// The longest chain of crashes, one in the recovery from another, until no new disk appeared.
    pub chain: u64,
    /// Another program's edits.
    pub editor: u64,
    /// Edits in the window that a disk without exchange leaves open.
    pub window: u64,
    /// Take-overs.
    pub fence: u64,
    /// Errors of the disk and of the log.
    pub errors: u64,
    /// Staged files that rotted.
    pub rot: u64,
    /// Power cuts of a disk without a journal.
    pub unjournaled: u64,
    /// Drawn sequences of edits, crashes and recoveries.
    pub unruly: u64,
    /// The same content, written by another program.
    pub twins: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.cases += other.cases;
        self.doubles += other.doubles;
        self.disks += other.disks;
        self.chain = self.chain.max(other.chain);
        self.editor += other.editor;
        self.window += other.window;
        self.fence += other.fence;
        self.errors += other.errors;
        self.rot += other.rot;
        self.unjournaled += other.unjournaled;
        self.unruly += other.unruly;
        self.twins += other.twins;
    }
}

/// One scenario under one (or no) planted bug.
pub struct Trial<'a> {
    pub prepared: &'a Prepared,
    pub faults: Planted,
    pub seed: u64,
    pub scale: f64,
    pub counts: Counts,
}

/// The suites, in the order in which planted bugs are looked for.
pub const SUITES: [(&str, fn(&mut Trial) -> Verdict); 8] = [
    ("take-over", |trial| trial.take_overs()),
    ("errors", |trial| trial.errors()),
    ("rot", |trial| trial.rot()),
    ("twins", |trial| trial.twins()),
    ("editor", |trial| trial.editor()),
    ("crashes", |trial| trial.crashes()),
    ("unjournaled", |trial| trial.unjournaled()),
    ("unruly", |trial| trial.unruly()),
];

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

impl Trial<'_> {
    /// A crash at every operation, with every damage; then the same in every recovery, and in
    /// every recovery from that, until no new disk appears.
    fn crashes(&mut self) -> Verdict {
        let mut random = Random(self.seed);
        let world = World::recording(self.prepared.start.clone());
        let placed = self.prepared.perform_in(self.faults, &world);
        let placed = placed.map_err(|error| format!("undisturbed: {}", error))?;
        ensure!(placed.leftover.is_none(), "undisturbed: {placed:?}");
        ensure!(world.now().log.settled, "undisturbed: no outcome");
        self.ended(&world.now())?;

        let mut seen = HashSet::new();
        let mut waiting = VecDeque::new();
        let mut crash = |trial: &mut Self,
                         moments: Vec<Moment>,
                         trail: &[(usize, Damage)],
                         waiting: &mut VecDeque<(Moment, Vec<(usize, Damage)>)>|
         -> Verdict {
            for (at, moment) in moments.iter().enumerate() {
                trial.counts.points += 1;
                let show = |damage: &Damage| format!("{trail:?} then {at} {damage:?}");
                trial
                    .live(moment)
                    .map_err(|why| format!("{} before: {why}", show(&Damage::Killed)))?;
                for (damage, left) in damages(moment, Order::Journaled, &mut random, trial.scale) {
                    trial.counts.cases += 1;
                    trial.counts.doubles += u64::from(!trail.is_empty());
                    trial
                        .live(&left)
                        .map_err(|why| format!("{}: {why}", show(&damage)))?;
                    if seen.insert(fingerprint(&left)) {
                        let trail = trail.iter().cloned().chain([(at, damage)]).collect();
                        waiting.push_back((left, trail));
                    }
                }
            }
            Ok(())
        };
        crash(self, world.take(), &[], &mut waiting)?;
        while let Some((moment, trail)) = waiting.pop_front() {
            self.counts.disks += 1;
            self.counts.chain = self.counts.chain.max(trail.len() as u64);
            let moments = self
                .recovers(&moment)
                .map_err(|why| format!("crashes (operation, damage) {trail:?}: {why}"))?;
            crash(self, moments, &trail, &mut waiting)?;
        }
        Ok(())
    }

    fn take_over(&self, world: &World) -> Result<Recovery, PlaceError> {
        take_over(self.faults, self.prepared.scenario, world)
    }

    /// Recovers undisturbed and comes to the one right end, and a second time does nothing.
    fn recovers(&self, crashed: &Moment) -> Result<Vec<Moment>, String> {
        let world = World::recording(crashed.clone());
        let recovery = self.take_over(&world).map_err(|error| error.to_string())?;
        let moments = world.take();
        let wanted = match &crashed.log {
            log if log.manifest.is_none() => Recovery::Nothing,
            log if log.settled => Recovery::Cleaned,
            _ => Recovery::RolledForward(self.prepared.outcome.clone()),
        };
        if recovery != wanted {
            return Err(format!("recovery says {recovery:?}, not {wanted:?}"));
        }
        let end = world.now();
        self.ended(&end)?;
        let changes = world.changes();
        let again = self.take_over(&world).map_err(|error| error.to_string())?;
        let settled = if end.log.settled {
            Recovery::Cleaned
        } else {
            Recovery::Nothing
        };
        if again != settled || world.changes() != changes {
            return Err(format!("a second recovery is not idle: {again:?}"));
        }
        Ok(moments)
    }

    /// What must hold at any moment: whole files, nothing new before the manifest, nothing old
    /// after the outcome.
    fn live(&self, moment: &Moment) -> Verdict {
        for target in &self.prepared.targets {
            let held = held(&moment.disk, target.path);
            let (old, new) = (held == target.before, held == target.after);
            ensure!(old || new, "{} is torn or lost", target.path);
            if moment.log.manifest.is_none() && !target.already {
                ensure!(old, "{} changed without a manifest", target.path);
            }
            if moment.log.settled {
                ensure!(new, "{} is old and the outcome is committed", target.path);
            }
        }
        bystander(&moment.disk)
    }

    /// What must hold when nothing is left to be done.
    fn ended(&self, moment: &Moment) -> Verdict {
        self.live(moment)?;
        for target in &self.prepared.targets {
            let wanted = match moment.log.manifest.is_some() {
                true => target.after,
                false if target.already => continue,
                false => target.before,
            };
            ensure!(
                held(&moment.disk, target.path) == wanted,
                "{} is half-way",
                target.path
            );
        }
        let settled = moment.log.settled == moment.log.manifest.is_some();
        ensure!(settled, "a manifest without an outcome");
        let staging = self.prepared.scenario.staging;
        ensure!(moment.disk.list(staging).is_none(), "staging is left");
        let lost = moment.disk.cut(&[], &[]);
        ensure!(
            lost.list(staging).is_none(),
            "staging comes back after a power cut"
        );
        Ok(())
    }

    /// Another program edits a target before any operation of the placement, or of a recovery;
    /// then nothing, or a crash and a recovery.
    fn editor(&mut self) -> Verdict {
        let world = World::recording(self.prepared.start.clone());
        let undisturbed = self.prepared.perform_in(self.faults, &world);
        let total = world.operations();
        let snapshots = world.take();
        // Where another program writes the new content itself, it would undo the edit.
        for target in self
            .prepared
            .targets
            .iter()
            .filter(|target| !target.already)
        {
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

    fn edit_in_place(&mut self, target: &Target, edit: Edit, at: usize) -> Verdict {
        let world = World::recording(self.prepared.start.clone());
        let edited = edit.before(&world, target.path, at);
        let result = self.prepared.perform_in(self.faults, &world);
        if !edited.get() {
            return Ok(());
        }
        self.counts.editor += 1;
        if self.in_window(&world) {
            return Ok(());
        }
        let mut moments = world.take();
        self.answers(&moments, target, &result)?;
        moments.drain(..world.marked());
        let last = &moments[moments.len() - 1];
        edit.survives(last, target)
            .map_err(|why| format!("{result:?}; {why}"))?;
        let mut random = Random(self.seed ^ at as u64);
        for (damage, crashed) in few(last, &mut random) {
            edit.survives(&crashed, target)
                .map_err(|why| format!("{damage:?}: {why}"))?;
        }
        self.settles(&world, target, edit)?;

        let mut seen = HashSet::new();
        for (point, moment) in moments.iter().enumerate() {
            for (damage, crashed) in few(moment, &mut random) {
                if !seen.insert(fingerprint(&crashed)) {
                    continue;
                }
                self.counts.editor += 1;
                let world = World::new(crashed);
                self.settles(&world, target, edit).map_err(|why| {
                    format!("crash {point} changes after the edit, {damage:?}: {why}")
                })?;
            }
        }
        Ok(())
    }

    /// Done is said only of a target that held the new content; anything else is a conflict.
    fn answers<T: Debug>(
        &self,
        moments: &[Moment],
        target: &Target,
        result: &Result<T, PlaceError>,
    ) -> Verdict {
        match result {
            Ok(_) => {
                let placed = moments
                    .iter()
                    .any(|now| held(&now.disk, target.path) == target.after);
                ensure!(placed, "it says done and {} was never placed", target.path);
            }
            Err(PlaceError::Changed(_) | PlaceError::Conflict(_)) => {}
            // What was placed and deleted at once cannot be placed again: it says so.
            Err(PlaceError::Staged { found: Found::Absent, .. }) if target.before.is_none() => {}
            Err(error) => return Err(format!("not a conflict: {}", error)),
        }
        Ok(())
    }

    fn edit_in_recovery(&mut self, crashed: &Moment) -> Verdict {
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
                    let moments = world.take();
                    self.answers(&moments, target, &result)
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

    /// After an edit, recovery stops or ends, says the same again, and spares the edit.
    fn settles(&self, world: &World, target: &Target, edit: Edit) -> Verdict {
        let first = self.take_over(world);
        edit.survives(&world.now(), target)?;
        let changes = world.changes();
        let second = self.take_over(world);
        edit.survives(&world.now(), target)?;
        ensure!(
            world.changes() == changes,
            "a second recovery is not idle: {second:?}"
        );
        let now = world.now();
        bystander(&now.disk)?;
        for other in self
            .prepared
            .targets
            .iter()
            .filter(|other| other.path != target.path)
        {
            let held = held(&now.disk, other.path);
            ensure!(
                held == other.before || held == other.after,
                "{} is torn",
                other.path
            );
        }
        match (&first, &second) {
            (Ok(_), Ok(_)) => {
                ensure!(
                    now.disk.list(self.prepared.scenario.staging).is_none(),
                    "staging is left"
                );
                Ok(())
            }
            (Err(PlaceError::Conflict(first)), Err(PlaceError::Conflict(second))) => {
                ensure!(first == second, "first {first}, then {second}");
                ensure!(
                    now.disk.list(self.prepared.scenario.staging).is_some(),
                    "a conflict without its staging"
                );
                Ok(())
            }
            // As in `answers`.
            (Err(PlaceError::Staged { .. }), Err(PlaceError::Staged { .. }))
                if edit == Edit::Delete =>
            {
                Ok(())
            }
            _ => Err(format!("first {first:?}, then {second:?}")),
        }
    }

    /// Whether the edit fell between the last look and the plain rename of an old disk.
    fn in_window(&mut self, world: &World) -> bool {
        let inside = !self.prepared.scenario.modern && world.met() == Some(Kind::Replace);
        self.counts.window += u64::from(inside);
        inside
    }

    /// A take-over before any operation: the old run stops or is refused, and whoever comes later
    /// finds one consistent tree.
    fn take_overs(&mut self) -> Verdict {
        let world = World::new(self.prepared.start.clone());
        self.prepared
            .perform_in(self.faults, &world)
            .map_err(|error| format!("undisturbed: {}", error))?;
        for at in 0..=world.operations() {
            for by in [Taker::Later, Taker::AtOnce, Taker::WithNextRun] {
                self.taken(at, by)
                    .map_err(|why| format!("{by:?} before operation {at}: {why}"))?;
            }
        }
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &world);
        let mut seen = HashSet::new();
        for moment in world.take() {
            if moment.log.manifest.is_some()
                && !moment.log.settled
                && seen.insert(fingerprint(&moment))
            {
                self.recoverer_taken(&moment)?;
            }
        }
        Ok(())
    }

    fn taken(&mut self, at: usize, by: Taker) -> Verdict {
        let world = World::new(self.prepared.start.clone());
        let settled = Rc::new(Cell::new(None));
        let (faults, mark) = (self.faults, settled.clone());
        let scenario = self.prepared.scenario;
        world.interrupt(at, move |world| {
            mark.set(Some(world.now().log.settled));
            match by {
                Taker::Later => world.with(|now| now.log.fence.0 += 1),
                Taker::AtOnce | Taker::WithNextRun => {
                    take_over(faults, scenario, world).expect("nothing disturbs the taker");
                }
            }
            if by == Taker::WithNextRun {
                for (path, _) in scenario.changes {
                    let change = [(*path, Some("the next run's"))];
                    let changes: &'static [_] = Box::leak(Box::new(change));
                    place_other(world, changes).expect("nothing disturbs the next run");
                }
            }
        });
        let result = self.prepared.perform_in(self.faults, &world);
        let Some(was_settled) = settled.get() else {
            return Ok(());
        };
        self.counts.fence += 1;
        match &result {
            Ok(_) => ensure!(was_settled, "a run that was taken over says done"),
            Err(error) if was_settled => return Err(error.to_string()),
            Err(_) => {}
        }
        if by == Taker::Later
            && let Err(error) = &result
        {
            let stale = matches!(error, PlaceError::Log(LogError::StaleFence { .. }));
            ensure!(stale, "it ends with {}", error);
        }
        if by != Taker::WithNextRun {
            self.take_over(&world).map_err(|error| error.to_string())?;
            return self.ended(&world.now());
        }
        self.take_over(&world).map_err(|error| error.to_string())?;
        let now = world.now();
        let theirs = Some(Digest::of(b"the next run's"));
        for target in self
            .prepared
            .targets
            .iter()
            .filter(|target| !target.already)
        {
            ensure!(
                held(&now.disk, target.path) == theirs,
                "the next run lost {}",
                target.path
            );
        }
        ensure!(
            now.disk.list(self.prepared.scenario.staging).is_none(),
            "staging is left"
        );
        ensure!(
            now.disk.list(OTHER_STAGING).is_none(),
            "the next run's staging is left"
        );
        Ok(())
    }

    /// A recovery that is itself taken over must not commit.
    fn recoverer_taken(&mut self, crashed: &Moment) -> Verdict {
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
            let stale = matches!(&result, Err(PlaceError::Log(LogError::StaleFence { .. })));
            ensure!(
                stale != was_settled,
                "a stale recovery, before operation {at}: {result:?}"
            );
            self.take_over(&world).map_err(|error| error.to_string())?;
            self.ended(&world.now())?;
        }
        Ok(())
    }

    /// Each operation fails: once, from then on, or (a commit) only seems to.
    fn errors(&mut self) -> Verdict {
        let kinds = [Failure::Once, Failure::From, Failure::Unacknowledged];
        let undisturbed = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &undisturbed);
        for at in 0..undisturbed.operations() {
            for failure in kinds.map(|kind| kind(at)) {
                let world = World::new(self.prepared.start.clone());
                world.fail(Some(failure));
                let result = self.prepared.perform_in(self.faults, &world);
                self.mends(&world, result.is_ok())
                    .map_err(|why| format!("{failure:?}: {why}"))?;
            }
        }
        let mut seen = HashSet::new();
        for moment in undisturbed.take() {
            if !seen.insert(fingerprint(&moment)) {
                continue;
            }
            let undisturbed = World::new(moment.clone());
            let _ = self.take_over(&undisturbed);
            for at in 0..undisturbed.operations() {
                for failure in kinds.map(|kind| kind(at)) {
                    let world = World::new(moment.clone());
                    world.fail(Some(failure));
                    let result = self.take_over(&world);
                    self.mends(&world, result.is_ok())
                        .map_err(|why| format!("recovery, {failure:?}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn mends(&mut self, world: &World, done: bool) -> Verdict {
        self.counts.errors += 1;
        self.live(&world.now())?;
        ensure!(
            !done || world.now().log.settled || world.now().log.manifest.is_none(),
            "not settled"
        );
        world.fail(None);
        self.take_over(world).map_err(|error| error.to_string())?;
        self.ended(&world.now())
    }

    /// A staged file rots after the manifest: recovery says so and does not place it.
    fn rot(&mut self) -> Verdict {
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &world);
        for (at, moment) in world.take().into_iter().enumerate() {
            let Some(manifest) = moment.log.manifest.clone().filter(|_| !moment.log.settled) else {
                continue;
            };
            self.vanished(&moment)
                .map_err(|why| format!("staging vanished at {at}: {why}"))?;
            for (entry, target) in manifest.entries.iter().zip(&self.prepared.targets) {
                let Some(staged) = entry.staged.as_ref().map(|staged| staged.as_str()) else {
                    continue;
                };
                let waiting = held(&moment.disk, staged).is_some()
                    && held(&moment.disk, staged) == target.after
                    && held(&moment.disk, target.path) == target.before;
                if !waiting {
                    continue;
                }
                self.counts.rot += 1;
                let mut moment = moment.clone();
                moment.disk.rewrite_durably(staged, b"rotten");
                let world = World::new(moment);
                for _ in 0..2 {
                    let result = self.take_over(&world);
                    let refused = matches!(&result, Err(PlaceError::Staged { .. }));
                    ensure!(refused, "rot at {at} of {staged}: {result:?}");
                    self.live(&world.now())?;
                }
            }
        }
        Ok(())
    }

    /// Somebody removes the staging folder: what is in place is settled, else it is said.
    fn vanished(&mut self, moment: &Moment) -> Verdict {
        self.counts.rot += 1;
        let mut moment = moment.clone();
        let staging = self.prepared.scenario.staging;
        for name in moment.disk.list(staging).unwrap_or_default() {
            moment.disk.delete_durably(&format!("{staging}/{name}"));
        }
        let _ = moment.disk.remove_dir(staging);
        let complete = self
            .prepared
            .targets
            .iter()
            .all(|target| held(&moment.disk, target.path) == target.after);
        let world = World::new(moment);
        for _ in 0..2 {
            let result = self.take_over(&world);
            ensure!(result.is_ok() == complete, "{result:?}");
            self.live(&world.now())?;
        }
        Ok(())
    }

    /// Another program writes the very same content and syncs nothing: once the outcome is
    /// committed, the content lasts all the same.
    fn twins(&mut self) -> Verdict {
        let world = World::new(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &world);
        let mut random = Random(self.seed ^ 4);
        for (index, (path, content)) in self.prepared.scenario.changes.iter().enumerate() {
            let Some(content) = content else { continue };
            for at in 0..world.operations() {
                let world = World::recording(self.prepared.start.clone());
                world.interrupt(at, move |world| {
                    world.with(|now| now.disk.scribble(path, content.as_bytes()));
                });
                let result = self.prepared.perform_in(self.faults, &world);
                let placed = result.map_err(|error| format!("{path} at {at}: {}", error));
                self.counts.twins += u64::from(placed?.entries > index);
                for moment in world.take().iter().filter(|moment| moment.log.settled) {
                    for (damage, crashed) in few(moment, &mut random) {
                        self.live(&crashed)
                            .map_err(|why| format!("{path} at {at} {damage:?}: {why}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A disk without a journal may lose a file in a rename: then nothing is overwritten or torn,
    /// and what cannot be completed is said, every time.
    fn unjournaled(&mut self) -> Verdict {
        let mut random = Random(self.seed ^ 2);
        let world = World::recording(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &world);
        let mut seen = HashSet::new();
        for (at, moment) in world.take().iter().enumerate() {
            for (damage, crashed) in damages(moment, Order::Unjournaled, &mut random, self.scale) {
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
                    (Err(PlaceError::Staged { .. }), Err(PlaceError::Staged { .. })) => {}
                    other => return Err(show(format!("{other:?}"))),
                }
            }
        }
        Ok(())
    }

    /// Drawn at random: a placement and two recoveries, each with up to two edits, each dying
    /// anywhere or not, each followed by a power cut or not. Whatever another program wrote, and did not overwrite itself, is still there: in
    /// the tree, or in staging, which is kept with the conflict.
    fn unruly(&mut self) -> Verdict {
        let mut random = Random(self.seed ^ 3);
        let world = World::new(self.prepared.start.clone());
        let _ = self.prepared.perform_in(self.faults, &world);
        let operations = world.operations();
        for _ in 0..(UNRULY * self.scale).ceil() as usize {
            let seed = random.next();
            self.night(&mut Random(seed), operations)
                .map_err(|why| format!("night {seed}: {why}"))?;
        }
        Ok(())
    }

    fn night(&mut self, random: &mut Random, operations: usize) -> Verdict {
        let scenario = self.prepared.scenario;
        let free: Vec<_> = self
            .prepared
            .targets
            .iter()
            .filter(|target| !target.already)
            .collect();
        if free.is_empty() {
            return Ok(());
        }
        self.counts.unruly += 1;
        // What other programs wrote and expect to find.
        let written: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let mut window = false;
        let mut world = World::new(self.prepared.start.clone());
        for phase in 0..3 {
            let path = free[random.below(free.len())].path;
            let kinds = [Edit::Replace, Edit::Rewrite, Edit::Delete, Edit::Mend];
            let (edit, second) = (kinds[random.below(4)], kinds[random.below(4)]);
            let old = self
                .prepared
                .start
                .disk
                .read(path)
                .map(|content| content.bytes.clone());
            let text = format!("words {phase}").into_bytes();
            if phase < 2 || random.flip() {
                let written = written.clone();
                let at = random.below(operations);
                let again = random.flip().then(|| at + random.below(4));
                world.interrupt(at, move |world| {
                    edit.apply(world, path, &text, old.as_deref(), &written);
                    if let Some(again) = again {
                        let text = [&text[..], b" again"].concat();
                        world.interrupt(again, move |world| {
                            second.apply(world, path, &text, old.as_deref(), &written);
                        });
                    }
                });
            }
            if random.flip() {
                // From here on it does nothing: it died.
                world.fail(Some(Failure::From(random.below(operations))));
            }
            let result = match phase {
                0 => self.prepared.perform_in(self.faults, &world).map(drop),
                _ => self.take_over(&world).map(drop),
            };
            window |= !scenario.modern && world.met() == Some(Kind::Replace);
            let now = world.now();
            for text in written.borrow().iter().filter(|_| !window) {
                let digest = Some(Digest::of(text));
                let names = now.disk.list(scenario.staging).unwrap_or_default();
                let mut staged = names
                    .iter()
                    .map(|name| format!("{}/{name}", scenario.staging));
                let kept = self
                    .prepared
                    .targets
                    .iter()
                    .any(|target| held(&now.disk, target.path) == digest)
                    || staged.any(|path| held(&now.disk, &path) == digest);
                let text = String::from_utf8_lossy(text);
                ensure!(kept, "phase {phase}, {text:?} is lost: {result:?}");
            }
            bystander(&now.disk)?;
            let mut crashes = few(&now, random);
            let (_, crashed) = crashes.swap_remove(random.below(crashes.len()));
            world = World::new(crashed);
        }
        Ok(())
    }
}

/// Who takes over, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    /// The fence moves; the recovery comes when the old run has ended.
    Later,
    /// The recovery comes in the midst of the old run, which then goes on.
    AtOnce,
    /// And another run places over the same targets before the old one goes on.
    WithNextRun,
}

/// What another program does to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// A new file, renamed over it.
    Replace,
    /// The same file, written anew.
    Rewrite,
    /// It is deleted.
    Delete,
    /// It is brought back to what it was at first, as a person would to mend a conflict.
    Mend,
}

const FOREIGN: &[u8] = b"somebody else's words";
/// So many drawn sequences a scenario, at scale 1.
const UNRULY: f64 = 400.0;

impl Edit {
    /// Lets it happen before operation `at`; the flag tells whether it changed anything.
    fn before(self, world: &World, path: &'static str, at: usize) -> Rc<Cell<bool>> {
        let edited = Rc::new(Cell::new(false));
        let mark = edited.clone();
        world.interrupt(at, move |world| {
            world.mark();
            mark.set(world.with(|now| match self {
                Self::Delete => now.disk.delete_durably(path),
                Self::Rewrite => now.disk.rewrite_durably(path, FOREIGN),
                Self::Replace | Self::Mend => {
                    now.disk.put_durably(path, FOREIGN);
                    true
                }
            }));
        });
        edited
    }

    /// Lets it happen now, and keeps the account of what must not be lost.
    fn apply(
        self,
        world: &World,
        path: &str,
        text: &[u8],
        old: Option<&[u8]>,
        written: &RefCell<Vec<Vec<u8>>>,
    ) {
        world.with(|now| {
            if let Some(old) = now.disk.read(path) {
                written.borrow_mut().retain(|text| *text != old.bytes);
            }
            let wrote = match self {
                Self::Mend if old.is_some() => {
                    now.disk.put_durably(path, old.unwrap_or_default());
                    false
                }
                Self::Delete | Self::Mend => {
                    now.disk.delete_durably(path);
                    false
                }
                Self::Rewrite => now.disk.rewrite_durably(path, text),
                Self::Replace => {
                    now.disk.put_durably(path, text);
                    true
                }
            };
            if wrote {
                written.borrow_mut().push(text.to_vec());
            }
        });
    }

    fn survives(self, moment: &Moment, target: &Target) -> Verdict {
        let held = held(&moment.disk, target.path);
        let spared = match self {
            Self::Replace | Self::Rewrite | Self::Mend => held == Some(Digest::of(FOREIGN)),
            // A new file that is deleted again at once may come back: nothing was there before.
            Self::Delete => held.is_none() || target.before.is_none() && held == target.after,
        };
        ensure!(spared, "the edit of {} is lost", target.path);
        Ok(())
    }
}

fn held(disk: &Disk, path: &str) -> Option<Digest> {
    disk.read(path).map(|content| content.digest)
}

fn bystander(disk: &Disk) -> Verdict {
    let (path, content) = BYSTANDER;
    let held = held(disk, path);
    ensure!(
        held == Some(Digest::of(content.as_bytes())),
        "{path} was touched"
    );
    Ok(())
}

fn fingerprint(moment: &Moment) -> u64 {
    let mut hasher = DefaultHasher::new();
    let log = &moment.log;
    (
        moment.disk.fingerprint(),
        log.manifest.is_some(),
        log.settled,
    )
        .hash(&mut hasher);
    hasher.finish()
}
