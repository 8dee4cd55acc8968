//! The process of one run. It takes the job's lock, collects facts, requests admission, works and
//! settles the run, or dies along the way.

use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::admission::AdmissionFacts;
use runner_engine::failpoint::fail_commits_after;
use runner_engine::host::Battery;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::policy::Overlap;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{Driver, recover_locked, sweep};
use runner_engine::store::{
    Admission, Budget, BudgetLevel, DAY, Enter, Origin, RunRow, RunState, RunSummary, StoreError,
};
use runner_engine::tick::REPORT_JOB;

use super::injected_bugs::Bug;
use super::year::{Event, MINUTE, Micros, SECOND, Year};

/// An admitted run whose process is alive.
#[derive(Debug)]
pub struct LiveRun {
    pub run: RunId,
    pub job: String,
    pub group: String,
    /// The driver that started the run.
    pub parent: u32,
    pub fence: Fence,
    /// Whether the run was started from the queue and uses one of its group's slots.
    pub queued: bool,
    /// Whether the run's process was sent SIGTERM.
    pub asked: bool,
    /// Whether the run never finishes and ignores SIGTERM.
    pub hangs: bool,
    pub overruns: Micros,
}

const TURN_WAIT: SignedDuration = SignedDuration::from_secs(15);

impl Year {
    /// Starts a run's process if its driver is still alive.
    pub fn begin(&mut self, run: &RunId, parent: u32) {
        let Some(driver) = self.drivers.get_mut(&parent) else {
            return;
        };
        driver.coming -= 1;
        let me = self.host.spawn();
        driver.children.insert(me.pid, run.clone());
        let goes_on = !self.random.permille(10) && self.perform(run, parent, &me);
        if !goes_on {
            self.host.end(me.pid);
            self.child_ended(parent, me.pid);
        }
    }

    /// Starts a run's work. Returns `false` if its process must exit without doing any.
    fn perform(&mut self, run: &RunId, parent: u32, me: &ProcessIdentity) -> bool {
        let row = self.store.run(run).unwrap();
        if !matches!(row.state, RunState::Requested { .. }) {
            return false;
        }
        let job = row.job_name.clone();
        let overlap = self.jobs[&job].new.policy.overlap;
        let wall = self.wall();
        if !self.host.lock(&job, me.pid) {
            let waits = match row.origin {
                Origin::Manual => false,
                Origin::Queue => true,
                Origin::Clock | Origin::Event => overlap != Overlap::Skip,
            };
            let why = "the lock is held".to_owned();
            let outcome = if waits {
                let until = wall.saturating_add(TURN_WAIT).unwrap();
                Outcome::Deferred { until, why }
            } else {
                Outcome::skipped(SkipReason::Idle, why)
            };
            self.store.decline(run, &outcome, wall).unwrap();
            return false;
        }
        if !self.recover_stale_runs(&row, me) {
            return false;
        }
        let facts = self.facts(&row);
        let total = Duration::from_secs(self.random.spread(60, 8 * 3600).cast_unsigned());
        let levels = [BudgetLevel::new(
            DAY,
            wall.strftime("%F").to_string(),
            "today".to_owned(),
            Budget::default(),
        )];
        let fuse = self.random.permille(5).then_some(0);
        fail_commits_after(fuse);
        let admitted = self.store.admit(&Enter {
            run,
            owner: me,
            facts: &facts,
            want: Budget::default(),
            levels: &levels,
            total,
            staging: "staging",
            now: self.clock_reading(),
        });
        fail_commits_after(None);
        let admitted = match admitted {
            Ok(Admission::Admitted(admitted)) => admitted,
            Ok(Admission::Declined(_)) => return false,
            Err(StoreError::CannotWrite { .. }) if fuse.is_some() => {
                self.counts.blown += 1;
                return false;
            }
            Err(error) => panic!("{run} was not admitted: {error:?}"),
        };
        self.counts.runs += 1;
        let group = self.jobs[&job].new.policy.group.clone();
        let (manual, paused) = (row.manual(), self.paused(&job));
        assert!(manual || !paused, "run {run} was admitted although {job} is paused");
        let twin = self.running.values().find(|one| one.job == job);
        assert!(twin.is_none(), "{run} and {twin:?} run at the same time");
        let fence = admitted.fence();
        let known = self.jobs.get_mut(&job).unwrap();
        assert!(fence > known.fence, "{job}: {fence:?} does not exceed {:?}", known.fence);
        known.fence = fence;
        // Manual runs, replacements of lost runs and night reports do not use slots.
        let queued = !manual && job != REPORT_JOB && self.came_from_the_queue(&row);
        if queued {
            let beside = self.running.values().filter(|one| one.queued && one.group == group.name);
            let beside = u32::try_from(beside.count()).unwrap();
            assert!(beside < group.slots, "{run} exceeds the slots of {}", group.name);
        }
        let hangs = self.random.permille(8);
        self.running.insert(
            me.pid,
            LiveRun {
                run: run.clone(),
                job,
                group: group.name,
                parent,
                fence,
                queued,
                asked: false,
                hangs,
                overruns: self.overrun(total),
            },
        );
        let longest = Micros::try_from(total.as_micros()).unwrap();
        let lasts = self.random.spread(SECOND, longest);
        if self.random.permille(15) {
            self.in_future(lasts, Event::Die(me.pid));
        } else if !hangs {
            self.in_future(lasts, Event::End(me.pid));
        }
        true
    }

    /// Returns whether the run was started from the queue. The process that finds a lost run starts
    /// its replacement directly.
    fn came_from_the_queue(&self, row: &RunRow) -> bool {
        row.attempt == 1 || self.store.lost_runs_of(&row.occurrence).unwrap() == 0
    }

    fn recover_stale_runs(&mut self, row: &RunRow, me: &ProcessIdentity) -> bool {
        let dead: Vec<RunRow> = self.store.live().unwrap();
        for dead in dead {
            if dead.job == row.job
                && dead.id != row.id
                && matches!(dead.state, RunState::Running { .. })
            {
                let driver = Driver {
                    world: Box::new(self.host.clone()),
                    me,
                    retries_lost: &|_| false,
                    last_tick: None,
                };
                let reading = self.clock_reading();
                recover_locked(&mut self.store, &driver, &dead.id, reading).unwrap();
                let state = self.store.run(&dead.id).unwrap().state;
                assert!(matches!(state, RunState::Settled { .. }));
            }
        }
        true
    }

    fn facts(&mut self, row: &RunRow) -> AdmissionFacts {
        let now = self.wall();
        let policy = &self.jobs[&row.job_name].new.policy;
        let mut facts = AdmissionFacts {
            manual: row.manual(),
            paused_until: self.store.job_by_id(row.job).unwrap().paused_until,
            free_bytes: if self.random.permille(3) { 0 } else { u64::MAX },
            ..AdmissionFacts::default()
        };
        if self.bug == Some(Bug::PauseNotSeen) {
            facts.paused_until = None;
        }
        if self.breaker {
            facts.streak = self.store.streak(row.job).unwrap();
        }
        if let Some(within) = policy.start_within
            && matches!(row.origin, Origin::Clock | Origin::Event)
            && !self.store.began(&row.occurrence).unwrap()
        {
            facts.start_by = row.due.saturating_add(within).ok();
        }
        match self.random.between(0, 120) {
            0 => facts.dirty = vec!["a".to_owned()],
            1 => {
                let wait = SignedDuration::from_mins(self.random.spread(1, 600));
                facts.quiet_until = now.saturating_add(wait).ok();
            }
            2 => {
                facts.min_battery = 50;
                facts.battery = Some(Battery { percent: 20, discharging: true });
            }
            3 => facts.nothing_to_do = Some("nothing".to_owned()),
            4 => {
                let class =
                    *self.random.one_of(&[Class::Auth, Class::RateLimited, Class::NotInstalled]);
                facts.preflight = Some((class, "preflight".to_owned()));
            }
            _ => {}
        }
        facts
    }

    pub fn end(&mut self, pid: u32) {
        let Some(run) = self.running.get(&pid) else {
            return;
        };
        if !self.host.alive(pid) {
            return;
        }
        let (id, fence, parent) = (run.run.clone(), run.fence, run.parent);
        let outcome = if run.asked {
            let why = "TERM".to_owned();
            Outcome::Cancelled { why }
        } else {
            self.outcome()
        };
        let now = self.wall();
        self.stale_ones_are_refused();
        let fuse = self.random.permille(5).then_some(0);
        fail_commits_after(fuse);
        let settled = self.store.settle(&id, Some(fence), &outcome, &RunSummary::default(), now);
        fail_commits_after(None);
        match settled {
            Ok(()) if self.random.permille(950) => {
                let row = self.store.run(&id).unwrap();
                sweep(&mut self.store, &row, now).unwrap();
            }
            // The process dies before it sweeps its staging folder.
            Ok(()) => {}
            Err(StoreError::CannotWrite { .. }) if fuse.is_some() => self.counts.blown += 1,
            Err(error) => panic!("{id} cannot be settled: {error:?}"),
        }
        self.running.remove(&pid);
        self.host.end(pid);
        self.child_ended(parent, pid);
    }

    fn outcome(&mut self) -> Outcome {
        let why = "drawn".to_owned();
        let failed = |class| Outcome::Failed { class, why: "drawn".to_owned() };
        match self.random.between(0, 100) {
            0..=79 => Outcome::Succeeded,
            80..=84 => Outcome::Degraded { why },
            85..=87 => failed(Class::Crash),
            88 | 89 => failed(Class::Auth),
            90 | 91 => Outcome::TimedOut { why },
            92..=94 => Outcome::skipped(SkipReason::Idle, why),
            95..=97 => {
                let wait = SignedDuration::from_mins(self.random.spread(1, 600));
                let until = self.wall().saturating_add(wait).unwrap();
                Outcome::Deferred { until, why }
            }
            _ => failed(Class::RateLimited),
        }
    }

    /// Kills a run's process or a driver.
    pub fn die(&mut self, pid: u32) {
        if let Some(run) = self.running.remove(&pid) {
            self.counts.crashes += 1;
            self.host.end(pid);
            self.stale.push((run.run, run.fence));
            self.child_ended(run.parent, pid);
        } else if self.drivers.contains_key(&pid) {
            self.driver_dies(pid);
        }
    }

    /// Sends SIGTERM to a run's owner.
    pub fn terminate(&mut self, run: &RunId) {
        let Some((&pid, one)) = self.running.iter_mut().find(|(_, one)| one.run == *run) else {
            return;
        };
        if one.asked {
            return;
        }
        one.asked = true;
        // Recovery may kill the run after `CANCEL_GRACE`, which is less than a minute.
        one.overruns = one.overruns.min(self.now + MINUTE);
        if !one.hangs {
            let wait = self.random.between(0, 15 * SECOND);
            self.in_future(wait, Event::End(pid));
        }
    }

    /// Occasionally checks that a killed process cannot settle its run again after recovery.
    fn stale_ones_are_refused(&mut self) {
        if self.stale.is_empty() || !self.random.permille(50) {
            return;
        }
        let (run, fence) = self.random.one_of(&self.stale).clone();
        if !matches!(self.store.run(&run).unwrap().state, RunState::Settled { .. }) {
            return;
        }
        let now = self.wall();
        let reported =
            self.store.settle(&run, Some(fence), &Outcome::Succeeded, &RunSummary::default(), now);
        assert!(matches!(reported, Err(StoreError::StaleFence { .. })), "{reported:?}");
        self.counts.stale += 1;
    }
}
