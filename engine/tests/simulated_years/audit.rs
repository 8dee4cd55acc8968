//! Audits a year: reads the database independently and compares it with the model.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::policy::{CatchUpScope, retryable};
use runner_engine::schedule::{On, Trigger};

use super::year::{Job, Year};

/// An occurrence in the database.
struct Occurrence {
    number: usize,
    id: String,
    job: i64,
    key: String,
    due: Timestamp,
    recorded: i64,
    origin: String,
    outcome: Option<Outcome>,
}

impl Occurrence {
    /// Returns whether a schedule made the occurrence due. If a user retries the occurrence, its
    /// origin changes but its key does not.
    fn by_clock(&self) -> bool {
        self.origin == "clock" || self.key == self.due.to_string()
    }
}

/// A run in the database.
#[derive(Debug)]
struct Run {
    id: String,
    occurrence: String,
    attempt: u32,
    state: String,
    fence: Option<i64>,
    outcome: Option<Outcome>,
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn outcome(text: Option<String>) -> Option<Outcome> {
    text.map(|text| serde_json::from_str(&text).unwrap())
}

impl Year {
    /// Checks the database's invariants at the end of the year, and compares each job's occurrences
    /// and runs with the model.
    pub fn audit(&mut self) {
        let ends = self.watermarks();
        assert!(self.orphans().is_empty());
        let copy = self.copy();
        let none = |what: &str, sql: &str| {
            let mut statement = copy.prepare(sql).unwrap();
            let mut rows = statement.query([]).unwrap();
            if let Some(row) = rows.next().unwrap() {
                panic!("{what}: {:?}", row.get::<_, String>(0).unwrap());
            }
        };
        none(
            "an occurrence is open without an open run, or closed with one",
            "SELECT id FROM occurrences o WHERE (outcome IS NULL) <>
               EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND state <> 'settled')",
        );
        none(
            "a run is open at the end",
            "SELECT id || ' ' || state FROM runs WHERE state <> 'settled'",
        );
        none("a reservation is open at the end", "SELECT run FROM reservations WHERE open");
        none("a night is open at the end", "SELECT name FROM nights WHERE closed IS NULL");
        none(
            "a night does not have exactly one report",
            "SELECT n.name FROM nights n WHERE 1 <> (SELECT count(*) FROM occurrences o JOIN jobs j ON j.id = o.job
               WHERE o.night = n.id AND j.name = 'report' AND o.key = 'night-' || n.id)",
        );
        none(
            "two occurrences have the same key",
            "SELECT key FROM occurrences GROUP BY job, key HAVING count(*) > 1",
        );
        none(
            "two runs have the same fence",
            "SELECT min(id) FROM runs WHERE fence IS NOT NULL GROUP BY job, fence HAVING count(*) > 1",
        );
        let mut statement = copy
            .prepare("SELECT id, job, key, due, recorded, origin, outcome FROM occurrences ORDER BY rowid")
            .unwrap();
        let mut number = 0;
        let occurrences: Vec<Occurrence> = statement
            .query_map([], |row| {
                number += 1;
                Ok(Occurrence {
                    number: number - 1,
                    id: row.get(0)?,
                    job: row.get(1)?,
                    key: row.get(2)?,
                    due: at(row.get(3)?),
                    recorded: row.get(4)?,
                    origin: row.get(5)?,
                    outcome: outcome(row.get(6)?),
                })
            })
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let mut statement = copy
            .prepare("SELECT id, occurrence, attempt, state, fence, outcome FROM runs ORDER BY occurrence, attempt")
            .unwrap();
        let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
        let rows = statement
            .query_map([], |row| {
                Ok(Run {
                    id: row.get(0)?,
                    occurrence: row.get(1)?,
                    attempt: row.get(2)?,
                    state: row.get(3)?,
                    fence: row.get(4)?,
                    outcome: outcome(row.get(5)?),
                })
            })
            .unwrap();
        for run in rows {
            let run = run.unwrap();
            runs.entry(run.occurrence.clone()).or_default().push(run);
        }
        self.counts.occurrences += occurrences.len() as u64;
        let mut by_job: BTreeMap<i64, Vec<&Occurrence>> = BTreeMap::new();
        for occurrence in &occurrences {
            by_job.entry(occurrence.job).or_default().push(occurrence);
        }
        let jobs: Vec<Job> = self.jobs.values().cloned().collect();
        for job in &jobs {
            let mine = by_job.remove(&job.id.0).unwrap_or_default();
            let mut job = job.clone();
            if let Some(open) = job.segments.last_mut().filter(|open| open.end.is_none()) {
                open.end = ends.get(&job.new.name).copied();
            }
            self.every_time_is_recorded_once(&job, &mine);
            self.caught_up_in_order(&job, &mine, &runs);
            self.pauses_were_kept(&job, &mine);
            for occurrence in &mine {
                self.attempts_are_justified(&job, occurrence, runs.get(&occurrence.id));
            }
            self.followers(&job, &mine, &occurrences, &runs);
        }
    }

    /// Checks that each scheduled time in each segment was run or is part of exactly one missed
    /// stretch, and that nothing else was recorded.
    fn every_time_is_recorded_once(&mut self, job: &Job, mine: &[&Occurrence]) {
        let name = &job.new.name;
        let mut known: BTreeSet<Timestamp> = BTreeSet::new();
        let mut seen = 0;
        for (index, segment) in job.segments.iter().enumerate() {
            let until = job.segments.get(index + 1).map_or(usize::MAX, |next| next.mark);
            let mut fired: BTreeSet<Timestamp> = BTreeSet::new();
            let mut missed: BTreeMap<Timestamp, (Timestamp, u64)> = BTreeMap::new();
            for one in mine.iter().filter(|one| one.by_clock()) {
                if one.number < segment.mark || one.number >= until {
                    continue;
                }
                seen += 1;
                match one.outcome.as_ref().unwrap() {
                    Outcome::Missed { first, last, count, .. } => {
                        self.counts.missed += 1;
                        let twice = missed.insert(*first, (*last, *count));
                        assert!(twice.is_none(), "{name}: two missed stretches from {first}");
                    }
                    _ => {
                        assert_eq!(one.key, one.due.to_string());
                        assert!(fired.insert(one.due));
                    }
                }
            }
            let start = segment.start;
            let end = segment.end.unwrap_or(start);
            let next = |after| segment.schedule.next_after(after, start).unwrap();
            let mut time = next(start).filter(|at| *at <= end);
            while let Some(at) = time {
                self.counts.times += 1;
                time = next(at).filter(|at| *at <= end);
                if fired.remove(&at) {
                    assert!(!missed.contains_key(&at), "{name}: {at} was both run and missed");
                    known.insert(at);
                } else if let Some((last, count)) = missed.remove(&at) {
                    let mut here = at;
                    for _ in 1..count {
                        here = time.unwrap_or_else(|| {
                            panic!("{name}: too many missed times ({count}) are recorded from {at} to {last}")
                        });
                        self.counts.times += 1;
                        time = next(here).filter(|at| *at <= end);
                    }
                    assert_eq!(here, last, "{name}: {count} missed times are recorded from {at}");
                } else {
                    assert!(
                        known.contains(&at),
                        "{name}: nothing is recorded for {at}, in {segment:?}"
                    );
                }
            }
            assert!(fired.is_empty(), "{name}: run without being due: {fired:?} in {segment:?}");
            assert!(
                missed.is_empty(),
                "{name}: recorded as missed, but not due: {missed:?} in {segment:?}"
            );
        }
        let clocks = mine.iter().filter(|one| one.by_clock()).count();
        assert_eq!(seen, clocks, "{name}: occurrences are outside all segments");
    }

    /// Checks that the job's catch-up rule permits the number of scheduled times that one tick
    /// recorded as due, and that their runs started in order.
    fn caught_up_in_order(
        &self,
        job: &Job,
        mine: &[&Occurrence],
        runs: &BTreeMap<String, Vec<Run>>,
    ) {
        let mut together: BTreeMap<i64, Vec<&Occurrence>> = BTreeMap::new();
        for one in mine {
            let missed = matches!(one.outcome, Some(Outcome::Missed { .. }));
            if one.origin == "clock" && !missed {
                together.entry(one.recorded).or_default().push(one);
            }
        }
        let rule = &job.new.policy.catch_up;
        let most = match rule.which {
            CatchUpScope::All => rule.cap.max(1) as usize,
            CatchUpScope::None | CatchUpScope::Last => 1,
        };
        for (recorded, fired) in together {
            assert!(
                fired.len() <= most,
                "{}: {} scheduled times were caught up at once",
                job.new.name,
                fired.len()
            );
            let mut last = None;
            for one in &fired {
                let first = runs[&one.id]
                    .iter()
                    .filter_map(|run| self.started.get(&run.id.parse::<RunId>().unwrap()))
                    .min();
                if first.is_some() {
                    assert!(
                        last <= first,
                        "{}: recorded at {recorded}, {} began too early",
                        job.new.name,
                        one.due
                    );
                    last = first;
                }
            }
        }
    }

    /// Checks that no scheduled time during a pause was run. Skips years in which the clock may be
    /// set back, because the clock may then pass through a pause twice.
    fn pauses_were_kept(&self, job: &Job, mine: &[&Occurrence]) {
        if self.set_backs {
            return;
        }
        for one in mine.iter().filter(|one| one.by_clock()) {
            if matches!(one.outcome, Some(Outcome::Missed { .. })) {
                continue;
            }
            let mut pauses = job.pauses.iter().chain(&self.all_pauses);
            let within = pauses.find(|(from, until)| *from < one.due && one.due <= *until);
            assert!(
                within.is_none(),
                "{}: {} was run despite the pause {within:?}",
                job.new.name,
                one.due
            );
        }
    }

    /// Checks that each further attempt is justified by the previous attempt, or that a user
    /// requested it.
    fn attempts_are_justified(&self, job: &Job, one: &Occurrence, runs: Option<&Vec<Run>>) {
        let name = &job.new.name;
        if matches!(one.outcome, Some(Outcome::Missed { .. })) {
            assert!(runs.is_none(), "{name}: a missed stretch has runs");
            return;
        }
        let runs = runs.unwrap_or_else(|| panic!("{name}: {} has no run", one.key));
        let last = &runs.last().unwrap().outcome;
        let hides = one.outcome == hidden_failure(runs) && one.outcome.is_some();
        assert!(hides || one.outcome == *last, "{name}: {}: {:?}", one.key, one.outcome);
        let manual = self.retried.iter().filter(|id| **id == one.id).count();
        let (mut extra, mut failures, mut lost) = (0, 0, 0);
        for (index, run) in runs.iter().enumerate() {
            assert_eq!(run.attempt as usize, index + 1);
            assert_eq!(run.state, "settled");
            if index + 1 == runs.len() {
                break;
            }
            let outcome = run.outcome.as_ref().unwrap();
            if matches!(outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. }) {
                failures += 1;
            }
            let again = match outcome {
                Outcome::Deferred { .. } => one.origin != "manual",
                Outcome::Lost { .. } => {
                    lost += 1;
                    lost == 1 && job.new.kind != "command" && run.fence.is_some()
                }
                outcome => {
                    retryable(outcome)
                        && one.origin != "manual"
                        && failures <= job.new.policy.retry.count
                }
            };
            extra += usize::from(!again);
        }
        assert!(extra <= manual, "{name}: {} was tried {} times", one.key, runs.len());
    }

    /// Checks that a follower is recorded once each time the job it follows ends.
    fn followers(
        &self,
        job: &Job,
        mine: &[&Occurrence],
        all: &[Occurrence],
        runs: &BTreeMap<String, Vec<Run>>,
    ) {
        let Trigger::After(after) = &job.new.schedule.trigger else {
            return;
        };
        let parent = &self.jobs[&after.job];
        let mut keys: BTreeMap<&str, &Occurrence> = BTreeMap::new();
        for one in mine.iter().filter(|one| one.key.starts_with("after ")) {
            keys.insert(&one.key, one);
        }
        for one in all.iter().filter(|one| one.job == parent.id.0) {
            let Some(runs) = runs.get(&one.id) else {
                continue;
            };
            for (index, run) in runs.iter().enumerate() {
                let follower = keys.remove(format!("after {}", run.id).as_str());
                let last = index + 1 == runs.len();
                let Some(follower) = follower else {
                    assert!(!last, "{}: nothing follows {}", job.new.name, run.id);
                    continue;
                };
                assert!(
                    last || self.retried.contains(&one.id),
                    "{}: recorded too early after {}",
                    job.new.name,
                    run.id
                );
                let own = run.outcome.as_ref().unwrap();
                // The job may have succeeded between the failure and the skipped retry.
                let failure = hidden_failure(&runs[..=index]);
                let failure = failure.filter(|it| !last || one.outcome.as_ref() == Some(it));
                let outcome = failure.as_ref().unwrap_or(own);
                let began = match outcome {
                    Outcome::Skipped { .. } | Outcome::Deferred { .. } => false,
                    Outcome::Cancelled { .. } | Outcome::Lost { .. } => {
                        runs[..=index].iter().any(|run| run.fence.is_some())
                    }
                    _ => true,
                };
                let wanted = outcome.published() || (after.on == On::End && began);
                let skipped = matches!(&follower.outcome, Some(Outcome::Skipped { why, .. }) if why.contains(" ended as "));
                assert!(
                    wanted != skipped || self.retried.contains(&follower.id),
                    "{}: wrong outcome after {outcome}",
                    job.new.name
                );
            }
        }
        assert!(keys.is_empty(), "{}: followers without a run: {:?}", job.new.name, keys.keys());
    }
}

/// Returns an occurrence's last failure if its last run was skipped.
fn hidden_failure(runs: &[Run]) -> Option<Outcome> {
    let failed = |it: &&Outcome| {
        matches!(it, Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. })
    };
    let outcomes = || runs.iter().rev().filter_map(|run| run.outcome.as_ref());
    let is_skipped = matches!(outcomes().next(), Some(Outcome::Skipped { .. }));
    is_skipped.then(|| outcomes().find(failed).cloned()).flatten()
}
