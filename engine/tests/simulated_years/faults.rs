//! Faults of the simulated host: suspensions, reboots, clock changes, edited schedules and process
//! deaths.

use runner_engine::store::NewJob;
use runner_engine::tick::report_job;

use super::jobs;
use super::year::{DAY, Event, HOUR, MINUTE, Micros, SECOND, Year};

impl Year {
    /// Applies a random fault and schedules the next one.
    pub fn fault(&mut self) {
        let wait = self.random.spread(2 * HOUR, 40 * DAY);
        self.in_future(wait, Event::Fault);
        match self.random.between(0, 10) {
            0..=2 => {
                self.counts.suspends += 1;
                let asleep = self.random.spread(MINUTE, 21 * DAY);
                self.sleep(asleep);
            }
            3..=4 => {
                self.counts.reboots += 1;
                self.reboot();
            }
            5 => {
                self.counts.jumps += 1;
                let far = self.random.spread(SECOND, 3 * DAY);
                self.set_clock(far);
            }
            6 if self.set_backs => {
                self.counts.jumps += 1;
                let far = self.random.spread(SECOND, 3 * DAY);
                self.set_clock(-far);
            }
            7 => self.edit(),
            8 => self.kill_some(true),
            _ => self.kill_some(false),
        }
    }

    /// Suspends the host. In half of the suspensions, the starts and exits of runs and the deaths
    /// of daemons are delayed by the time asleep. All other events that fall within the suspension
    /// occur when the host wakes.
    fn sleep(&mut self, asleep: Micros) {
        let shift = self.random.permille(500);
        let wakes = self.now + asleep;
        let old = std::mem::take(&mut self.queue);
        for ((at, number), event) in old {
            let at = match &event {
                Event::End(_) | Event::Die(_) | Event::Begin(..) if shift => at + asleep,
                _ => at.max(wakes),
            };
            self.queue.insert((at, number), event);
        }
        for driver in self.drivers.values_mut() {
            driver.wakes = driver.wakes.max(wakes);
        }
        self.now = wakes;
    }

    fn reboot(&mut self) {
        self.host.reboot();
        self.drivers.clear();
        self.running.clear();
        self.queue.retain(|_, event| {
            matches!(event, Event::Hand | Event::Fault | Event::Timer | Event::Daemon)
        });
        let down = self.random.spread(MINUTE, 3 * DAY);
        self.sleep(down);
        self.booted = self.now;
        self.queue.retain(|_, event| !matches!(event, Event::Daemon));
        let wait = self.random.between(SECOND, 5 * MINUTE);
        self.in_future(wait, Event::Daemon);
    }

    fn set_clock(&mut self, by: Micros) {
        // In the model, a pause that has ended does not apply again after a clock change. In the
        // database, it may apply again: a job's pause if nothing has been due since, and the pause
        // for all jobs in any case.
        let now = self.wall();
        let jobs = self.jobs.values_mut().map(|job| &mut job.paused_until);
        for paused in jobs.chain([&mut self.all_paused]) {
            *paused = paused.filter(|until| *until > now);
        }
        self.offset += by;
        self.wake_all();
    }

    /// Changes a job's schedule, as a user would.
    fn edit(&mut self) {
        let name = self.random.one_of(&self.names()).clone();
        if !self.jobs[&name].has_clock() {
            return;
        }
        let mut all: Vec<NewJob> = self.jobs.values().map(|job| job.new.clone()).collect();
        all.retain(|new| new.name != report_job().name);
        let trigger = jobs::trigger(&mut self.random, None);
        for new in &mut all {
            if new.name == name {
                new.schedule.trigger = trigger.clone();
            }
        }
        self.describe(all);
        self.counts.edits += 1;
        self.wake_all();
    }

    /// Kills a random subset of the runs and, if `drivers` is true, all drivers.
    fn kill_some(&mut self, drivers: bool) {
        let runs: Vec<u32> = self.running.keys().copied().collect();
        let share = self.random.between(0, 1001).cast_unsigned();
        for pid in runs {
            if self.random.permille(share) {
                self.die(pid);
            }
        }
        if drivers {
            for pid in self.drivers.keys().copied().collect::<Vec<_>>() {
                self.driver_dies(pid);
            }
        }
    }
}
