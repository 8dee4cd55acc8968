//! One scenario with at most one injected fault, and its counts and invariants.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::AddAssign;

use runner_engine::digest::Digest;
use runner_engine::publish::{PublishError, Recovery};

use super::disk::Disk;
use super::scenarios::{BYSTANDER, Prepared, take_over};
use super::world::{CrashPoint, World};

/// The result of a check. The error describes the problem and the steps that led to it.
pub type TrialResult = Result<(), String>;

/// Counts of tested cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Operations of publications and recoveries before which a crash was tested.
    pub points: u64,
    /// Pairs of a crash point and a kind of damage.
    pub cases: u64,
    /// Cases in which a recovery crashed.
    pub doubles: u64,
    /// Distinct disk states, each of which was recovered.
    pub disks: u64,
    /// The longest chain of crashes in which each crash hit the recovery from the previous one.
    pub chain: u64,
    /// Edits by another program.
    pub editor: u64,
    /// Edits between the last check and the plain rename on a disk without exchanges.
    pub window: u64,
    /// Takeovers.
    pub fence: u64,
    /// Disk and log errors.
    pub errors: u64,
    /// Damaged or missing staged files.
    pub rot: u64,
    /// Power cuts on a disk without a journal.
    pub unjournaled: u64,
    /// Random sequences of edits, crashes and recoveries.
    pub unruly: u64,
    /// Writes of the same content by another program.
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

pub struct Trial<'a> {
    pub prepared: &'a Prepared,
    pub seed: u64,
    pub scale: f64,
    pub counts: Counts,
}

/// The tests of one kind of disturbance.
type Suite = fn(&mut Trial) -> TrialResult;

/// The suites in execution order.
pub const SUITES: [(&str, Suite); 8] = [
    ("crashes", |trial| trial.crashes()),
    ("take-over", |trial| trial.take_overs()),
    ("errors", |trial| trial.errors()),
    ("rot", |trial| trial.rot()),
    ("editor", |trial| trial.editor()),
    ("twins", |trial| trial.twins()),
    ("unruly", |trial| trial.unruly()),
    ("unjournaled", |trial| trial.unjournaled()),
];

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}
pub(crate) use ensure;

impl Trial<'_> {
    pub fn take_over(&self, world: &World) -> Result<Recovery, PublishError> {
        take_over(self.prepared.scenario, world)
    }

    /// Checks the invariants of every crash point: no file is torn, no new content appears before
    /// the manifest, and no old content remains after the outcome.
    pub fn live(&self, point: &CrashPoint) -> TrialResult {
        for target in &self.prepared.targets {
            let held = held(&point.disk, target.path);
            let (old, new) = (held == target.before, held == target.after);
            ensure!(old || new, "{} is torn or lost", target.path);
            if point.log.manifest.is_none() && !target.already {
                ensure!(old, "{} changed without a manifest", target.path);
            }
            if point.log.settled {
                ensure!(new, "{} is old, but the outcome is committed", target.path);
            }
        }
        bystander(&point.disk)
    }

    /// Checks the invariants after a completed recovery.
    pub fn ended(&self, point: &CrashPoint) -> TrialResult {
        self.live(point)?;
        for target in &self.prepared.targets {
            let wanted = match point.log.manifest.is_some() {
                true => target.after,
                false if target.already => continue,
                false => target.before,
            };
            let held = held(&point.disk, target.path);
            ensure!(held == wanted, "{} has the wrong content", target.path);
        }
        let settled = point.log.settled == point.log.manifest.is_some();
        ensure!(settled, "the manifest has no outcome");
        let staging = self.prepared.scenario.staging;
        ensure!(point.disk.list(staging).is_none(), "the staging folder was not removed");
        let lost = point.disk.cut(&[], &[]);
        ensure!(lost.list(staging).is_none(), "the staging folder reappears after a power cut");
        Ok(())
    }
}

/// Returns the digest of a file's content, if the file exists.
pub fn held(disk: &Disk, path: &str) -> Option<Digest> {
    disk.read(path).map(|content| content.digest)
}

/// Checks that the file outside the publication is unchanged.
pub fn bystander(disk: &Disk) -> TrialResult {
    let (path, content) = BYSTANDER;
    let untouched = held(disk, path) == Some(Digest::of(content.as_bytes()));
    ensure!(untouched, "{path} was changed");
    Ok(())
}

/// Returns a hash that is equal for two crash points if no later step can distinguish them.
pub fn fingerprint(point: &CrashPoint) -> u64 {
    let mut hasher = DefaultHasher::new();
    (point.disk.fingerprint(), point.log.manifest.is_some(), point.log.settled).hash(&mut hasher);
    hasher.finish()
}
