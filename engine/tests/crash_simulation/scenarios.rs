//! The scenarios: a small set of trees and changes that require all kinds of operations.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Outcome;
use runner_engine::publish::{
    Draft, FsError, Manifest, MemoryLog, PublishError, PublishFs, PublishLog, Published, Recovery,
    RelPath, inject, publish, recover,
};

use super::disk::Disk;
use super::world::{CrashPoint, Log, World};

/// The staging folder in most scenarios.
const STAGING: &str = "d/.staging/RUN";
/// A staging folder whose parents do not exist.
const FAR_STAGING: &str = ".runner/staging/RUN";
/// The staging folder of another run.
pub const OTHER_STAGING: &str = "d/.staging/OTHER";
/// A file that no scenario changes.
pub const BYSTANDER: (&str, &str) = ("d/keep", "untouched");

/// The paths and contents of a tree.
pub type Files = &'static [(&'static str, &'static str)];
/// Targets with their new content. `None` removes the target.
pub type Changes = &'static [(&'static str, Option<&'static str>)];

pub struct Scenario {
    pub name: &'static str,
    pub staging: &'static str,
    pub files: Files,
    /// Changes that another run publishes first.
    pub earlier: Changes,
    pub changes: Changes,
    /// Targets to which another program writes the new content after the draft.
    pub already: &'static [&'static str],
    pub degraded: bool,
    /// Whether the disk supports exchanges and no-replace renames.
    pub modern: bool,
}

const fn plain(name: &'static str, files: Files, changes: Changes) -> Scenario {
    Scenario {
        name,
        staging: STAGING,
        files,
        earlier: &[],
        changes,
        already: &[],
        degraded: false,
        modern: true,
    }
}

const fn old_disk(name: &'static str, files: Files, changes: Changes) -> Scenario {
    Scenario { modern: false, ..plain(name, files, changes) }
}

const AB: Files = &[("d/a", "old a"), ("d/b", "old b")];
const ABC: Files = &[("d/a", "old a"), ("d/b", "old b"), ("e/c", "old c")];

pub const ALL: &[Scenario] = &[
    plain("put new", &[], &[("d/a", Some("new a"))]),
    plain("put new at the root", &[], &[("a", Some("new a"))]),
    plain("put over", AB, &[("d/a", Some("new a"))]),
    plain("put an empty file", AB, &[("d/a", Some("")), ("d/n", Some(""))]),
    plain("put over an empty file", &[("d/a", "")], &[("d/a", Some("new a"))]),
    plain("remove", AB, &[("d/a", None)]),
    plain("put over, put new", AB, &[("d/a", Some("new a")), ("d/n", Some("new n"))]),
    plain("put over two", AB, &[("d/a", Some("new a")), ("d/b", Some("new b"))]),
    plain("put new two", &[], &[("d/a", Some("new a")), ("d/b", Some("new b"))]),
    plain("several folders", ABC, &[("d/a", Some("new a")), ("e/c", Some("new c"))]),
    plain("a new folder", &[], &[("n/a", Some("new a"))]),
    plain("new folders", &[], &[("n/m/a", Some("new a")), ("n/o/b", Some("new b"))]),
    plain("a new folder and an old one", AB, &[("n/m/x", Some("x")), ("d/a", Some("new a"))]),
    plain("remove two", AB, &[("d/a", None), ("d/b", None)]),
    plain("archive", AB, &[("d/old/a", Some("old a")), ("d/a", None)]),
    plain(
        "an accepted proposal: backup, merge, archive, state, decision",
        &[("d/a", "idea"), ("d/b", "other"), ("e/state", "old"), ("e/ledger", "- 1")],
        &[
            ("e/.undo/1/0", Some("other")),
            ("d/b", Some("other idea")),
            ("d/done/a", Some("idea")),
            ("d/a", None),
            ("e/state", Some("new")),
            ("e/ledger", Some("- 1 - 2")),
        ],
    ),
    plain("archive, remove first", AB, &[("d/a", None), ("d/old/a", Some("old a"))]),
    plain("swap two contents", AB, &[("d/a", Some("old b")), ("d/b", Some("old a"))]),
    plain("mixed", ABC, &[("d/a", Some("new a")), ("d/n", Some("new n")), ("e/c", None)]),
    plain(
        "four entries",
        ABC,
        &[("d/a", Some("new a")), ("d/b", None), ("e/c", Some("new c")), ("e/n", Some("new n"))],
    ),
    plain(
        "five entries",
        ABC,
        &[
            ("d/a", Some("new a")),
            ("n/x", Some("new x")),
            ("d/b", None),
            ("e/c", Some("new c")),
            ("e/n", Some("new n")),
        ],
    ),
    Scenario {
        degraded: true,
        ..plain("degraded", AB, &[("d/a", Some("new a")), ("d/n", Some("new n"))])
    },
    Scenario {
        already: &["d/a"],
        ..plain(
            "one target already has its content",
            AB,
            &[("d/a", Some("new a")), ("d/n", Some("new n"))],
        )
    },
    Scenario {
        already: &["d/a", "n/x"],
        ..plain(
            "all targets already have their content",
            AB,
            &[("d/a", Some("new a")), ("n/x", Some("new x"))],
        )
    },
    Scenario {
        earlier: &[("d/a", Some("first a")), ("d/n", Some("first n"))],
        ..plain("the second run", AB, &[("d/a", Some("new a")), ("d/n", None)])
    },
    Scenario {
        earlier: &[("d/a", Some("first a")), ("d/b", None)],
        ..plain("restore the old contents", AB, &[("d/a", Some("old a")), ("d/b", Some("old b"))])
    },
    Scenario {
        staging: FAR_STAGING,
        ..plain("staging elsewhere, put new", &[], &[("a", Some("new a"))])
    },
    Scenario {
        staging: FAR_STAGING,
        ..plain(
            "staging elsewhere, mixed",
            ABC,
            &[("d/a", Some("new a")), ("e/c", None), ("n/x", Some("new x"))],
        )
    },
    old_disk("no exchange: put new", &[], &[("d/a", Some("new a"))]),
    old_disk("no exchange: put over", AB, &[("d/a", Some("new a")), ("d/b", Some("new b"))]),
    old_disk("no exchange: archive", AB, &[("d/old/a", Some("old a")), ("d/a", None)]),
    old_disk(
        "no exchange: mixed",
        ABC,
        &[("d/a", Some("new a")), ("n/x", Some("new x")), ("e/c", None)],
    ),
];

/// A target, with its content before and after the publication.
#[derive(Clone, Debug)]
pub struct Target {
    pub path: &'static str,
    pub before: Option<Digest>,
    pub after: Option<Digest>,
    pub already: bool,
}

/// A scenario and its initial state.
pub struct Prepared {
    pub scenario: &'static Scenario,
    pub start: CrashPoint,
    pub targets: Vec<Target>,
    pub outcome: Outcome,
}

pub fn rel(path: &str) -> RelPath {
    RelPath::new(path).expect("the path is valid")
}

pub fn run() -> RunId {
    "00000000000000000000000001".parse().expect("the id is valid")
}

pub fn other_run() -> RunId {
    "00000000000000000000000002".parse().expect("the id is valid")
}

impl Prepared {
    pub fn new(scenario: &'static Scenario) -> Self {
        let mut disk = Disk::new(scenario.modern);
        for (path, content) in scenario.files.iter().chain([&BYSTANDER]) {
            disk.put_durably(path, content.as_bytes());
        }
        let log = Log { manifest: None, settled: false, fence: Fence(1) };
        let world = World::new(CrashPoint { disk, log });
        if !scenario.earlier.is_empty() {
            place_other(&world, scenario.earlier).expect("the earlier run is undisturbed");
        }
        let start = world.now();
        let holds = |path: &str| start.disk.read(path).map(|content| content.digest);
        let targets = scenario.changes.iter().map(|(path, content)| Target {
            path,
            before: holds(path),
            after: content.map(|text| Digest::of(text.as_bytes())),
            already: scenario.already.contains(path),
        });
        let outcome = match scenario.degraded {
            true => Outcome::Degraded { why: "one of two".to_owned() },
            false => Outcome::Succeeded,
        };
        Self { scenario, targets: targets.collect(), outcome, start }
    }

    /// Stages the changes as a scope does.
    pub fn draft(&self, fs: &impl PublishFs, fence: Fence) -> Result<Manifest, FsError> {
        let mut draft = Draft::new(rel(self.scenario.staging));
        for (target, (_, content)) in self.targets.iter().zip(self.scenario.changes) {
            match (content, target.before) {
                (Some(text), before) => {
                    draft.put(fs, rel(target.path), before, text.as_bytes(), 0o644)?;
                }
                (None, Some(before)) => draft.remove(fs, rel(target.path), before)?,
                (None, None) => unreachable!("a scenario removes only existing files"),
            }
        }
        draft.seal(fs, run(), fence, self.outcome.clone())
    }

    /// Performs a run: stages the changes and publishes them. Calls `meanwhile` for the changes
    /// that another program makes between the two steps.
    pub fn perform(
        &self,
        fs: &impl PublishFs,
        log: &mut impl PublishLog,
        meanwhile: impl Fn(&str, &str),
    ) -> Result<Published, PublishError> {
        let manifest = self.draft(fs, Fence(1))?;
        for (path, content) in self.scenario.changes {
            if let (true, Some(content)) = (self.scenario.already.contains(path), content) {
                meanwhile(path, content);
            }
        }
        publish(fs, log, &manifest)
    }

    /// Performs the run in a simulated world.
    pub fn perform_in(&self, world: &World) -> Result<Published, PublishError> {
        self.perform(&world.fs(), &mut world.log(), |path, content| {
            world.with(|now| now.disk.put_durably(path, content.as_bytes()));
        })
    }
}

/// Takes over the run and recovers it, as a tick does.
pub fn take_over(scenario: &Scenario, world: &World) -> Result<Recovery, PublishError> {
    let fence = world.with(|now| {
        now.log.fence.0 += 1;
        now.log.fence
    });
    recover(&world.fs(), &mut world.log(), &run(), fence, &rel(scenario.staging))
}

/// Publishes changes as another run, without an injected fault.
pub fn place_other(world: &World, changes: Changes) -> Result<Published, PublishError> {
    let owned: BTreeMap<_, _> = changes.iter().map(|(path, text)| (*path, *text)).collect();
    let fault = inject(None);
    let fs = world.fs();
    let mut draft = Draft::new(rel(OTHER_STAGING));
    for (path, content) in owned {
        let before = world.with(|now| now.disk.read(path).map(|content| content.digest));
        match (content, before) {
            (Some(text), _) => {
                draft.put(&fs, rel(path), before, text.as_bytes(), 0o644)?;
            }
            (None, Some(before)) => draft.remove(&fs, rel(path), before)?,
            (None, None) => {}
        }
    }
    let manifest = draft.seal(&fs, other_run(), Fence(1), Outcome::Succeeded)?;
    let published = publish(&fs, &mut MemoryLog::new(Fence(1)), &manifest);
    inject(fault);
    published
}
