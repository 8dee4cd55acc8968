//! The drivers: a daemon and the processes started by the host timer, which run ticks, and the
//! processes in which a user waits for one run. A driver may die between two transactions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use runner_engine::failpoint::fail_commits_after;
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{Driver, OVERRUN_GRACE, Recovered, recover};
use runner_engine::store::{MissedReasons, RunState, StoreError};
use runner_engine::tick::tick;

use super::year::{DAY, Event, HOUR, MINUTE, Micros, SECOND, Year};

/// A process that runs ticks or waits for one run.
#[derive(Debug)]
pub struct Driving {
    pub me: ProcessIdentity,
    pub daemon: bool,
    /// The runs of the child processes, by process id.
    pub children: BTreeMap<u32, RunId>,
    /// The number of runs that are assigned to the driver and that it has not started yet.
    pub coming: u32,
    /// The time of the next tick.
    pub wakes: Micros,
    /// Whether the process runs ticks. A process in which a user waits for one run does not.
    pub ticks: bool,
}

const NEVER: Micros = Micros::MAX;
/// Once users can refer to this many runs, each run assigned to a driver replaces the oldest one.
const SEEN: usize = 40;

impl Year {
    pub fn start_daemon(&mut self) {
        if self.drivers.values().any(|driver| driver.daemon) {
            return;
        }
        let pid = self.new_driver(true, true);
        if !self.resting && self.random.permille(700) {
            let lives = self.random.spread(HOUR, 200 * DAY);
            self.in_future(lives, Event::Die(pid));
        }
    }

    /// Starts a driver for the host timer. Schedules the next timer event for the first
    /// quarter-hour mark after the next time at which work may be due, or after one day if that is
    /// earlier.
    pub fn start_timer(&mut self) {
        self.new_driver(false, true);
        let next = self.store.next_moment(self.wall()).unwrap();
        let next = next.map_or(self.now + DAY, |next| self.at_wall(next));
        let next = next.clamp(self.now, self.now + DAY);
        let quarter = 15 * MINUTE;
        let next = (next / quarter + 1) * quarter;
        self.in_future(next - self.now, Event::Timer);
    }

    pub fn new_driver(&mut self, daemon: bool, ticks: bool) -> u32 {
        let me = self.host.spawn();
        let pid = me.pid;
        let driver = Driving {
            me,
            daemon,
            children: BTreeMap::new(),
            coming: 0,
            wakes: if ticks { self.now } else { NEVER },
            ticks,
        };
        self.drivers.insert(pid, driver);
        pid
    }

    pub fn driver_dies(&mut self, pid: u32) {
        self.counts.crashes += 1;
        self.host.end(pid);
        if self.drivers.remove(&pid).is_some_and(|driver| driver.daemon) {
            let wait = self.random.spread(SECOND, if self.resting { MINUTE } else { 20 * DAY });
            self.in_future(wait, Event::Daemon);
        }
    }

    pub fn wake_all(&mut self) {
        for driver in self.drivers.values_mut().filter(|driver| driver.ticks) {
            driver.wakes = self.now;
        }
    }

    /// Runs one tick, and terminates or hands out the runs that it returns.
    pub fn drive(&mut self, pid: u32) {
        self.counts.ticks += 1;
        let me = self.drivers[&pid].me.clone();
        self.read();
        let ahead = self.ahead();
        if let Some(bug) = self.bug {
            self.plant(bug);
        }
        let fuse =
            self.random.permille(20).then(|| u32::try_from(self.random.between(0, 8)).unwrap());
        if self.random.permille(50) {
            self.host.0.borrow_mut().unkillable = true;
        }
        fail_commits_after(fuse);
        let driver = Driver {
            world: Box::new(self.host.clone()),
            me: &me,
            retries_lost: &|kind| kind != "command",
            last_tick: None,
        };
        let reading = self.clock_reading();
        let ticked = tick(&mut self.store, &driver, reading);
        drop(driver);
        fail_commits_after(None);
        self.host.0.borrow_mut().unkillable = false;
        match ahead {
            Some(before) => self.set_back(before, ticked.is_ok()),
            None => self.ticked(),
        }
        self.forget_killed();
        let reported = match ticked {
            Ok(reported) => reported,
            Err(StoreError::CannotWrite { .. }) if fuse.is_some() => {
                self.counts.blown += 1;
                self.driver_dies(pid);
                return;
            }
            Err(error) => panic!("a tick failed: {error:?}"),
        };
        for trouble in &reported.troubles {
            let known = trouble.contains("ahead of the clock")
                || trouble.starts_with("the clock was set back")
                || (fuse.is_some() && trouble.contains("fuse"));
            assert!(known, "{trouble}");
        }
        for run in reported.end {
            self.terminate(&run);
        }
        let dies = self.random.permille(5);
        for run in reported.start {
            if dies && self.random.permille(500) {
                self.driver_dies(pid);
                return;
            }
            self.hand_out(pid, &run);
        }
        self.plan(pid);
    }

    /// Occasionally reads the live runs and due jobs, for [`Year::act_late`].
    fn read(&mut self) {
        if self.read.is_some() || !self.random.permille(20) {
            return;
        }
        let due = self.store.due_jobs(self.wall()).unwrap();
        self.read = Some((self.store.live().unwrap(), due));
        let wait = self.random.spread(SECOND, HOUR);
        self.in_future(wait, Event::Late);
    }

    /// Acts on rows that were read earlier. Other processes may have acted on them in the meantime.
    pub fn act_late(&mut self) {
        let Some((live, due)) = self.read.take() else {
            return;
        };
        self.counts.late += 1;
        let pid = self.new_driver(false, true);
        let me = self.drivers[&pid].me.clone();
        let reading = self.clock_reading();
        let mut start = Vec::new();
        for run in live {
            let driver = Driver {
                world: Box::new(self.host.clone()),
                me: &me,
                retries_lost: &|kind| kind != "command",
                last_tick: None,
            };
            match recover(&mut self.store, &driver, &run, reading).unwrap() {
                Recovered::Alone => {}
                Recovered::Start(run) => start.push(run),
                Recovered::Settled { retry, .. } => start.extend(retry),
            }
        }
        self.forget_killed();
        for due_job in due {
            let job = &due_job.job;
            // The model does not predict the result for these jobs.
            if job.paused_until.is_some() || job.schedule.night.is_some() || self.paused(&job.name)
            {
                continue;
            }
            let rule = &job.policy.catch_up;
            let due = job.schedule.due(due_job.watermark, reading.wall, rule).unwrap();
            self.store
                .enter_due(&due_job, &due, MissedReasons::default(), None, reading.wall)
                .unwrap();
        }
        self.ticked();
        for run in start {
            self.hand_out(pid, &run);
        }
    }

    /// Assigns a run to a driver, which starts it soon.
    pub fn hand_out(&mut self, pid: u32, run: &RunId) {
        let order = self.started.len();
        self.started.entry(run.clone()).or_insert(order);
        self.seen.push_back(run.clone());
        if self.seen.len() > SEEN {
            self.seen.pop_front();
        }
        if let Some(driver) = self.drivers.get_mut(&pid) {
            driver.coming += 1;
        }
        let wait = self.random.between(0, 2 * SECOND);
        self.in_future(wait, Event::Begin(run.clone(), pid));
    }

    /// Schedules the driver's next tick, or ends the driver if it has nothing left to do.
    fn plan(&mut self, pid: u32) {
        let Some(driver) = self.drivers.get(&pid) else {
            return;
        };
        if !driver.ticks {
            return;
        }
        let (daemon, busy) = (driver.daemon, !driver.children.is_empty() || driver.coming > 0);
        let now = self.wall();
        let next = self.store.next_moment(now).unwrap();
        let mut wakes = next.map_or(NEVER, |next| self.at_wall(next));
        for run in self.running.values() {
            wakes = wakes.min(run.overruns);
        }
        let fallback = self.now + 30 * MINUTE;
        if (!daemon && !busy) || wakes > fallback {
            let next = self.store.next_ready(now).unwrap();
            let soon = |at: Timestamp| at.duration_since(now) <= SignedDuration::from_secs(90);
            if !daemon && !busy && !next.is_some_and(soon) {
                self.host.end(pid);
                self.drivers.remove(&pid);
                return;
            }
            let first = self.store.next_ready(Timestamp::MIN).unwrap();
            let overdue = first.is_some_and(|at| at <= now);
            if overdue || !self.running.is_empty() || !self.store.live().unwrap().is_empty() {
                wakes = wakes.min(fallback);
            }
        }
        let soonest = self.now + SECOND;
        self.drivers.get_mut(&pid).unwrap().wakes = wakes.max(soonest);
    }

    /// Notifies a driver that a child process has exited.
    pub fn child_ended(&mut self, parent: u32, child: u32) {
        let Some(driver) = self.drivers.get_mut(&parent) else {
            return;
        };
        let Some(run) = driver.children.remove(&child) else {
            return;
        };
        let me = driver.me.clone();
        if driver.ticks {
            driver.wakes = self.now;
        }
        let row = self.store.run(&run).unwrap();
        let again = match row.state {
            RunState::Settled { .. } | RunState::Queued { .. } => None,
            RunState::Requested { .. } => {
                let why = "its process ended before it began".to_owned();
                let now = self.wall();
                self.store.decline(&run, &Outcome::Lost { why }, now).unwrap();
                None
            }
            RunState::Running { .. } => {
                let driver = Driver {
                    world: Box::new(self.host.clone()),
                    me: &me,
                    retries_lost: &|kind| kind != "command",
                    last_tick: None,
                };
                let reading = self.clock_reading();
                match recover(&mut self.store, &driver, &row, reading).unwrap() {
                    Recovered::Settled { retry, .. } => retry,
                    _ => None,
                }
            }
        };
        if let Some(again) = again {
            self.hand_out(parent, &again);
        }
        let gone = self.drivers.get(&parent);
        if gone.is_some_and(|one| !one.ticks && one.children.is_empty() && one.coming == 0) {
            self.host.end(parent);
            self.drivers.remove(&parent);
        }
        self.wake_daemon();
    }

    /// Notifies the daemon of a change. Some notifications are lost.
    pub fn wake_daemon(&mut self) {
        if self.random.permille(950) || self.resting {
            for driver in self.drivers.values_mut().filter(|driver| driver.daemon) {
                driver.wakes = driver.wakes.min(self.now + SECOND / 2);
            }
        }
    }

    /// Removes the processes that recovery has killed.
    pub fn forget_killed(&mut self) {
        let killed = std::mem::take(&mut self.host.0.borrow_mut().killed);
        for pid in killed {
            self.counts.killed += 1;
            if let Some(run) = self.running.remove(&pid) {
                self.stale.push((run.run.clone(), run.fence));
                self.child_ended(run.parent, pid);
            }
        }
    }

    /// Returns the time from which recovery may kill a run that starts now.
    pub fn overrun(&self, total: std::time::Duration) -> Micros {
        let after = total + OVERRUN_GRACE;
        self.now + Micros::try_from(after.as_micros()).unwrap() + SECOND
    }
}
