//! Decides which waiting runs may start.
//!
//! ```text
//! queued, ready ──job live or group full──> continues to wait
//!       │      └──start deadline passed──> expired
//!       └──> start
//! ```
//!
//! The store omits the runs of paused jobs, except in nights that the user started. This module
//! must never do I/O, read a clock or start a process.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::ids::RunId;
use crate::store::JobId;

/// A queued run whose start time has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRun {
    pub run: RunId,
    /// The run's job. A job never has two live runs at the same time.
    pub job: JobId,
    pub group: String,
    /// Maximum number of live runs in the group, as configured for the job.
    pub slots: u32,
    /// The priority. Runs with a higher value start first.
    pub priority: i32,
    /// The scheduled time of the run's occurrence. Among runs of equal priority, the oldest starts
    /// first.
    pub due: Timestamp,
    /// The start deadline, if there is one.
    pub start_by: Option<Timestamp>,
}

/// A run that has been requested and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    pub job: JobId,
    pub group: String,
    /// Maximum number of live runs in the group, as configured for the job.
    pub slots: u32,
    /// Number of the group's slots that the run occupies: 0 while it waits for its turn in a night
    /// that the user started, otherwise 1.
    pub occupied: u32,
}

/// The runs that leave the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The runs to start now, in order.
    pub start: Vec<RunId>,
    /// The runs whose start deadline has passed, each with its deadline.
    pub expired: Vec<(RunId, Timestamp)>,
}

struct QueueGroup {
    slots: u32,
    occupied: u32,
}

impl Default for QueueGroup {
    fn default() -> Self {
        Self { slots: u32::MAX, occupied: 0 }
    }
}

/// Chooses the runs in `waiting` that start or expire. Runs start by priority, then by age, then by
/// input order.
pub fn choose(mut waiting: Vec<QueuedRun>, live: &[LiveRun], now: Timestamp) -> Choice {
    waiting.sort_by(|a, b| b.priority.cmp(&a.priority).then(a.due.cmp(&b.due)));
    let mut jobs: BTreeSet<JobId> = live.iter().map(|live| live.job).collect();
    // Projects may configure different numbers of slots for the same group. The smallest number
    // applies, so no project exceeds another project's limit.
    let mut groups: BTreeMap<String, QueueGroup> = BTreeMap::new();
    let asked = waiting.iter().map(|one| (&one.group, one.slots, 0));
    for (name, slots, occupied) in
        asked.chain(live.iter().map(|one| (&one.group, one.slots, one.occupied)))
    {
        let group = groups.entry(name.clone()).or_default();
        group.slots = group.slots.min(slots.max(1));
        group.occupied += occupied;
    }
    let mut choice = Choice::default();
    for one in waiting {
        if let Some(start_by) = one.start_by.filter(|start_by| *start_by < now) {
            choice.expired.push((one.run, start_by));
            continue;
        }
        let group = groups.entry(one.group).or_default();
        if jobs.contains(&one.job) || group.occupied >= group.slots {
            continue;
        }
        group.occupied += 1;
        jobs.insert(one.job);
        choice.start.push(one.run);
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn waiting(job: i64, group: &str, priority: i32, due: i64) -> QueuedRun {
        QueuedRun {
            run: RunId::new(at(due)),
            job: JobId(job),
            group: group.to_owned(),
            slots: 2,
            priority,
            due: at(due),
            start_by: None,
        }
    }

    #[test]
    fn choice_follows_priority_then_age() {
        let all = [
            waiting(1, "a", 0, 3),
            waiting(2, "a", 0, 1),
            waiting(3, "a", 5, 9),
            waiting(4, "b", -1, 0),
        ];
        let names = |runs: Vec<RunId>| -> Vec<usize> {
            let place = |run| all.iter().position(|one| one.run == run).unwrap();
            runs.into_iter().map(place).collect()
        };
        assert_eq!(
            names(choose(all.to_vec(), &[], at(10)).start),
            [2, 1, 3],
            "two runs of group a and one run of group b start"
        );
        let occupied = LiveRun { job: JobId(9), group: "a".to_owned(), slots: 2, occupied: 1 };
        assert_eq!(
            names(choose(all.to_vec(), std::slice::from_ref(&occupied), at(10)).start),
            [2, 3]
        );
        let occupied = vec![occupied; 2];
        assert_eq!(names(choose(all.to_vec(), &occupied, at(10)).start), [3]);
        let idle: Vec<LiveRun> =
            occupied.into_iter().map(|occupied| LiveRun { occupied: 0, ..occupied }).collect();
        assert_eq!(names(choose(all.to_vec(), &idle, at(10)).start), [2, 1, 3]);
    }

    #[test]
    fn smallest_slot_count_limits_the_group() {
        let mut all = vec![waiting(1, "a", 9, 0), waiting(2, "a", 0, 1)];
        all[0].slots = 100;
        all[1].slots = 1;
        assert_eq!(choose(all.clone(), &[], at(9)).start.len(), 1);
        let narrow = LiveRun { job: JobId(7), group: "a".to_owned(), slots: 1, occupied: 1 };
        assert_eq!(choose(all, &[narrow], at(9)), Choice::default());
    }

    #[test]
    fn a_job_starts_one_run_at_a_time() {
        let all = vec![waiting(1, "a", 0, 2), waiting(1, "a", 0, 1)];
        assert_eq!(choose(all.clone(), &[], at(10)).start, [all[1].run.clone()]);
        let live =
            [LiveRun { job: JobId(1), group: "elsewhere".to_owned(), slots: 1, occupied: 1 }];
        assert_eq!(choose(all, &live, at(10)), Choice::default());
    }

    #[test]
    fn passed_start_deadline_expires_in_full_group() {
        let mut late = waiting(1, "a", 0, 1);
        late.start_by = Some(at(5));
        let occupied =
            vec![LiveRun { job: JobId(7), group: "a".to_owned(), slots: 2, occupied: 1 }; 2];
        assert_eq!(choose(vec![late.clone()], &occupied, at(5)), Choice::default());
        let choice = choose(vec![late.clone()], &occupied, at(6));
        assert_eq!(choice.expired, [(late.run, at(5))]);
    }
}
