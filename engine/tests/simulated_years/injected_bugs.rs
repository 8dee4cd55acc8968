//! Bugs that the simulation must detect: mistakes made by a driver or a run's process, and a host
//! that reports a wrong state.

use runner_engine::schedule::Missed;
use runner_engine::store::{DueJob, MissedReasons, NewOccurrence, Origin};

use super::year::Year;

/// An injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A watermark advances even though nothing is recorded.
    WatermarkAlone,
    /// The missed scheduled times before a run are not recorded.
    MissedForgotten,
    /// The count of a missed stretch is one too high.
    CountOff,
    /// A missed scheduled time is also run.
    MissedAndRun,
    /// One scheduled time is recorded under two keys.
    TwoKeys,
    /// Scheduled times during a pause are run.
    PauseIgnored,
    /// More scheduled times are caught up than the rule permits.
    CapIgnored,
    /// An attempt is repeated without a reason.
    TriedAgain,
    /// Two processes hold the same lock.
    LockShared,
    /// Dead processes seem to be alive.
    DeadLive,
    /// Runs are admitted even though their job is paused.
    PauseNotSeen,
}

impl Bug {
    pub const ALL: [Self; 11] = [
        Self::WatermarkAlone,
        Self::MissedForgotten,
        Self::CountOff,
        Self::MissedAndRun,
        Self::TwoKeys,
        Self::PauseIgnored,
        Self::CapIgnored,
        Self::TriedAgain,
        Self::LockShared,
        Self::DeadLive,
        Self::PauseNotSeen,
    ];
}

impl Year {
    /// Injects the bug if the current state permits it. Some bugs are injected only with a low
    /// probability.
    pub fn plant(&mut self, bug: Bug) {
        match bug {
            Bug::LockShared => self.host.0.borrow_mut().locks_always_free = true,
            Bug::DeadLive => self.host.0.borrow_mut().dead_live = true,
            // `Year::facts` injects this bug.
            Bug::PauseNotSeen => {}
            Bug::TriedAgain => {
                let seen = self.seen.back().cloned();
                if let Some(run) = seen.filter(|_| self.random.permille(50)) {
                    let now = self.wall();
                    let _still_open = self.store.retry(&run, now);
                }
            }
            _ => self.plant_in_due(bug),
        }
    }

    fn plant_in_due(&mut self, bug: Bug) {
        let now = self.wall();
        for due_job in self.store.due_jobs(now).unwrap() {
            self.enter_wrongly(bug, &due_job);
        }
    }

    fn enter_wrongly(&mut self, bug: Bug, due_job: &DueJob) {
        let now = self.wall();
        let job = &due_job.job;
        let paused = job.paused_until.is_some_and(|until| until > due_job.watermark);
        if paused != (bug == Bug::PauseIgnored) {
            return;
        }
        let mut rule = job.policy.catch_up.clone();
        if bug == Bug::CapIgnored {
            (rule.which, rule.cap) = (runner_engine::policy::CatchUpScope::All, 1_000);
            rule.window = jiff::SignedDuration::from_hours(1_000);
        }
        let mut due = job.schedule.due(due_job.watermark, now, &rule).unwrap();
        let applies = match bug {
            Bug::WatermarkAlone | Bug::TwoKeys => self.random.permille(20) && !due.fire.is_empty(),
            Bug::PauseIgnored => !due.fire.is_empty(),
            Bug::CapIgnored => due.fire.len() > 1,
            _ => due.missed.is_some() && (bug != Bug::MissedAndRun || !due.fire.is_empty()),
        };
        if !applies {
            return;
        }
        let mut second = None;
        match (bug, &mut due.missed) {
            (Bug::WatermarkAlone, _) => due.fire.clear(),
            (Bug::MissedForgotten, missed) => *missed = None,
            (Bug::CountOff, Some(Missed { count, .. })) => *count += 1,
            (Bug::MissedAndRun, Some(Missed { last, .. })) => due.fire.insert(0, *last),
            (Bug::TwoKeys, _) => second = due.fire.last().copied(),
            _ => {}
        }
        self.store.enter_due(due_job, &due, MissedReasons::default(), None, now).unwrap();
        if let Some(due) = second {
            let new = NewOccurrence {
                origin: Origin::Clock,
                due,
                ..NewOccurrence::manual(job.id, format!("again {due}"), now)
            };
            self.store.enqueue(&new, now, None, now).unwrap();
        }
    }
}
