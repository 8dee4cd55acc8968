//! Kills nights before their steps, sometimes several times in a row, and checks the recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::{
    JOB, LATEST, Tree, WORK_FILE, copy, corpus, run_ok, start, summary_of, surroundings, tree,
    untouched, words,
};
use crate::fixture::{CommandOutput, Fixture, Random, print_line, scaled_from};

/// The number of parallel workers, each in its own fixture.
const LANES: usize = 2;

/// Creates a fixture in memory if possible. A kill does not lose written data, so no disk is
/// needed.
fn fixture() -> Fixture {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let fixture = Fixture::at(folder.unwrap());
    fixture.run(&["init"]).ends(0);
    fixture.configure(JOB);
    corpus(&fixture);
    // Commit more learnings than one iteration may harvest, so a second iteration commits too.
    for number in 0..6 {
        let lesson = format!("Change {number}\n\nLearned: check it because {}", words(number + 60));
        fixture.git(&["commit", "--quiet", "--allow-empty", "-m", &lesson]);
    }
    fixture.set_clock("2026-11-22T02:30:00Z");
    keep(&fixture);
    fixture
}

/// Saves the corpus in its current state for [`reset`].
pub(super) fn keep(fixture: &Fixture) {
    copy(&fixture.path(".agents"), &fixture.root().join("kept"));
}

/// Restores the corpus to the state that [`keep`] saved.
pub(super) fn reset(fixture: &Fixture) {
    // The folder itself may be a mount point, so only its content is removed.
    for entry in fs::read_dir(fixture.path(".agents")).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    copy(&fixture.root().join("kept"), &fixture.path(".agents"));
}

/// The states that an uninterrupted night may show to a reader.
pub(super) struct States {
    trees: BTreeSet<Tree>,
    works: BTreeSet<String>,
    /// The number of steps before which a night can be killed.
    acts: u64,
}

/// Returns the work file with `RUN` in place of the run ids in the packets' paths.
fn work_of(fixture: &Fixture) -> String {
    const RUNS: &str = ".agents/overnight/runs/";
    let work = fixture.read(WORK_FILE);
    let mut parts = work.split(RUNS);
    let mut bare = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find('/').map_or(part, |at| &part[at..]);
        bare.push_str(&format!("{RUNS}RUN{rest}"));
    }
    bare
}

impl States {
    /// Collects the states that nights in the fixture may show, and resets the fixture. Counts
    /// `acts` only if `count` is set.
    pub(super) fn of(fixture: &Fixture, count: bool) -> Self {
        let mut trees = BTreeSet::from([tree(fixture)]);
        let mut works = BTreeSet::from([work_of(fixture)]);
        start(fixture, &[]).ends(0);
        let iterations = summary_of(fixture)["iterations"].as_array().unwrap().len();
        for most in (1..=iterations).rev() {
            trees.insert(tree(fixture));
            works.insert(work_of(fixture));
            reset(fixture);
            start(fixture, &["--max-iterations", &most.to_string()]).ends(0);
        }
        trees.insert(tree(fixture));
        works.insert(work_of(fixture));
        let (mut dies, mut lives) = (0, 4096);
        while count && lives - dies > 1 {
            let middle = u64::midpoint(dies, lives);
            reset(fixture);
            match killed_at(fixture, middle).code {
                0 => lives = middle,
                _ => dies = middle,
            }
        }
        reset(fixture);
        Self { trees, works, acts: lives }
    }

    /// Checks only the corpus. The work file also records a night's failures.
    pub(super) fn hold_tree(&self, fixture: &Fixture, after: &str) {
        assert!(self.trees.contains(&tree(fixture)), "a commit is incomplete {after}");
    }

    /// Checks that the corpus and the work file are in states that an uninterrupted night may show.
    pub(super) fn hold(&self, fixture: &Fixture, after: &str) {
        self.hold_tree(fixture, after);
        let work = work_of(fixture);
        assert!(self.works.contains(&work), "the work file is incomplete {after}:\n{work}");
    }
}

/// Starts a night that kills itself before step `act`.
fn killed_at(fixture: &Fixture, act: u64) -> CommandOutput {
    let mut command = fixture.runner_with_clock(&["--quiet", "overnight", "start"]);
    command.env("RUNNER_TEST_KILL", act.to_string());
    CommandOutput::of(command.output().unwrap())
}

pub(super) fn is_ready(fixture: &Fixture) -> bool {
    let entries = fs::read_dir(fixture.path(".agents/overnight"));
    entries.into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("COMMIT-MARKER.")
            && fs::read_to_string(entry.path()).is_ok_and(|it| it.contains("\"state\":\"READY\""))
    })
}

/// Returns the id and current step of the unfinished run in the output folder, if there is one.
fn unfinished(fixture: &Fixture) -> Option<(String, String)> {
    let ended = fs::read(fixture.path(&format!("{LATEST}/summary.json"))).ok();
    let ended: Option<Value> = ended.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let entries = fs::read_dir(fixture.path(LATEST)).ok()?;
    entries.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("run.json")).ok()?;
        let state: Value = serde_json::from_str(&text).unwrap();
        let over = ended.as_ref().is_some_and(|it| {
            it["run_id"] == state["run_id"]
                && matches!(it["status"].as_str(), Some("done" | "failed"))
        });
        let step = state["at_step"].as_str().unwrap_or("open");
        (!over).then(|| (state["run_id"].as_str().unwrap().to_owned(), step.to_owned()))
    })
}

/// Returns the summary that recovery wrote for a killed run, or `None` if it wrote none.
fn recovery_report(fixture: &Fixture, run: &str) -> Option<Value> {
    let files = fixture.tree(".agents/overnight").into_iter();
    files
        .filter(|(path, _)| {
            path.ends_with("summary.json")
                || (path.contains("/interrupted-") && path.ends_with(".json"))
        })
        .filter_map(|(_, bytes)| serde_json::from_slice::<Value>(&bytes).ok())
        .find(|it| it["run_id"] == run && it["status"] == "failed")
}

#[derive(Default)]
struct Tally {
    killed: usize,
    twice: usize,
    mid_commit: usize,
    by_readers: usize,
    reports: usize,
    starts: usize,
    at: BTreeMap<String, usize>,
}

/// Kills nights `kills` times, beginning before step `first`. Completes a night after each kill or
/// series of kills.
fn lane(fixture: &Fixture, states: &States, kills: usize, first: u64, mut dice: Random) -> Tally {
    let around = surroundings(fixture);
    let mut tally = Tally::default();
    let mut act = first;
    while tally.killed < kills {
        // The workers try the steps in turn. After a random quarter of the kills, the next start is
        // killed too.
        let mut died = killed_at(fixture, act % states.acts);
        let place = format!("after a kill at step {}", act % states.acts);
        act += LANES as u64;
        assert_ne!(died.code, 0, "{place}: the step was not reached");
        let mut dead = BTreeSet::new();
        loop {
            tally.killed += 1;
            assert!(died.code == -1 || died.err.contains("lost"), "not killed: {died:?}");
            let step = unfinished(fixture);
            let name = step.as_ref().map_or("none yet", |(_, step)| step.as_str());
            *tally.at.entry(name.to_owned()).or_default() += 1;
            dead.extend(step.map(|(run, _)| run));
            if is_ready(fixture) {
                tally.mid_commit += 1;
                if dice.roll(2) == 0 {
                    tally.by_readers += 1;
                    run_ok(fixture, &["corpus", "brief", "--goal", "retry"]).ends(0);
                    assert!(!is_ready(fixture), "the next reader did not finish the commit");
                }
            }
            if !is_ready(fixture) {
                states.hold(fixture, &place);
            }
            if tally.killed >= kills || dice.roll(4) > 0 {
                break;
            }
            died = killed_at(fixture, dice.roll(states.acts));
            if died.code == 0 {
                break;
            }
            tally.twice += 1;
        }
        if died.code != 0 {
            fixture.run_with_clock(&["overnight", "start"]).ends(0);
        }
        tally.starts += 1;
        let done = summary_of(fixture);
        assert_eq!(done["status"], "done", "{place}");
        assert!(!is_ready(fixture), "{place}");
        states.hold(fixture, &format!("after a start {place}"));
        let reported = done["degraded"].to_string();
        for run in dead {
            assert!(
                reported.contains(&format!("run {run} died at")),
                "{place}: no {run}: {reported}"
            );
            let report = recovery_report(fixture, &run);
            let report = report.unwrap_or_else(|| panic!("{run} has no report {place}"));
            let why = report["failure_reason"].as_str().unwrap();
            assert!(why.contains("last completed step"), "{place}: {why}");
            assert!(report["artifacts"]["log"].is_string(), "{place}");
            tally.reports += 1;
        }
        untouched(fixture, &around, &place);
        reset(fixture);
    }
    tally
}

#[test]
fn killed_night_leaves_corpus_and_report_intact() {
    let mut dice = Random::new("overnight kills");
    let (kills, began) = (scaled_from(1_000, 0.1), Instant::now());
    let seeds: Vec<u64> = (0..LANES).map(|_| dice.roll(u64::MAX)).collect();
    let tallies: Vec<(Tally, u64)> = std::thread::scope(|scope| {
        let lanes: Vec<_> = seeds
            .into_iter()
            .enumerate()
            .map(|(number, seed)| {
                scope.spawn(move || {
                    let fixture = fixture();
                    let states = States::of(&fixture, true);
                    assert!(states.trees.len() >= 3 && states.works.len() >= 2);
                    let share = (kills + number) / LANES;
                    let tally = lane(&fixture, &states, share, number as u64, Random(seed));
                    let open = "SELECT count(*) FROM runs WHERE state IN ('running', 'requested')";
                    assert_eq!(fixture.count(open), 0);
                    (tally, states.acts)
                })
            })
            .collect();
        lanes.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let sum = |of: fn(&Tally) -> usize| tallies.iter().map(|(it, _)| of(it)).sum::<usize>();
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    for (step, count) in tallies.iter().flat_map(|(it, _)| &it.at) {
        *at.entry(step).or_default() += count;
    }
    assert_eq!(sum(|it| it.killed), kills);
    print_line(&format!(
        "overnight kills: {kills} nights killed before {} steps, {} of them in recovery, {} during a commit ({} finished by a reader), \
         {} complete nights, {} reports of killed nights; {at:?}; {:.0} s",
        tallies[0].1,
        sum(|it| it.twice),
        sum(|it| it.mid_commit),
        sum(|it| it.by_readers),
        sum(|it| it.starts),
        sum(|it| it.reports),
        began.elapsed().as_secs_f64()
    ));
}
