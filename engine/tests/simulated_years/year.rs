//! One simulated year: the clocks, the future events and the model.
//!
//! Simulated time advances from one event to the next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::ids::{Fence, ProjectId, RunId};
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::store::{AHEAD, DueJob, JobId, NewJob, Node, Project, RunRow, Store};
use runner_engine::tick::report_job;
use runner_engine::time::ClockReading;

use super::drivers::Driving;
use super::execute::LiveRun;
use super::host::Host;
use super::injected_bugs::Bug;
use super::jobs;
use super::random::Random;
use super::shares::Counts;

/// Simulated time in microseconds since the start of the year. It includes suspended time, and
/// clock changes do not affect it.
pub type Micros = i64;
pub const SECOND: Micros = 1_000_000;
pub const MINUTE: Micros = 60 * SECOND;
pub const HOUR: Micros = 60 * MINUTE;
pub const DAY: Micros = 24 * HOUR;

/// A future event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A run's process starts. The number is the driver's process id.
    Begin(RunId, u32),
    /// The process with this id exits.
    End(u32),
    /// The process with this id dies.
    Die(u32),
    /// A daemon starts.
    Daemon,
    /// The host timer starts a driver.
    Timer,
    /// A user acts.
    Hand,
    /// A driver acts on rows that it read earlier.
    Late,
    /// A host fault occurs.
    Fault,
}

/// A period in which a job's schedule did not change and its watermark only increased.
#[derive(Clone, Debug)]
pub struct Segment {
    pub schedule: Schedule,
    /// The watermark at the start of the segment.
    pub start: Timestamp,
    /// The watermark at the end of the segment, or `None` while the segment is open.
    pub end: Option<Timestamp>,
    /// The number of recorded occurrences at the start of the segment.
    pub mark: usize,
}

/// The model of a job.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub new: NewJob,
    pub segments: Vec<Segment>,
    /// The end of the job's pause, or `None` if it is not paused. The time may have passed.
    pub paused_until: Option<Timestamp>,
    /// The starts and the actual ends of all pauses.
    pub pauses: Vec<(Timestamp, Timestamp)>,
    pub fence: Fence,
}

pub struct Year {
    pub store: Store,
    pub random: Random,
    pub host: Host,
    pub project: ProjectId,
    pub jobs: BTreeMap<String, Job>,
    /// Rows that a slow driver has read and will act on.
    pub read: Option<(Vec<RunRow>, Vec<DueJob>)>,
    pub all_paused: Option<Timestamp>,
    pub all_pauses: Vec<(Timestamp, Timestamp)>,
    pub now: Micros,
    /// Wall-clock time minus simulated time.
    pub offset: i64,
    pub booted: Micros,
    pub queue: BTreeMap<(Micros, u64), Event>,
    events: u64,
    pub drivers: BTreeMap<u32, Driving>,
    pub running: BTreeMap<u32, LiveRun>,
    /// Runs that a user may refer to.
    pub seen: VecDeque<RunId>,
    pub keys: Vec<String>,
    /// The fences of runs that were killed.
    pub stale: Vec<(RunId, Fence)>,
    /// Occurrences retried by a user, with one entry per retry.
    pub retried: Vec<String>,
    /// The order in which runs were first assigned to a driver.
    pub started: BTreeMap<RunId, usize>,
    pub counts: Counts,
    pub bug: Option<Bug>,
    pub timers: bool,
    pub breaker: bool,
    pub set_backs: bool,
    pub resting: bool,
    /// The highest possible watermark.
    high: Timestamp,
    copies: u32,
}

impl Year {
    /// Creates a year that has not started.
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut random = Random(seed);
        runner_engine::ids::draw_from(Some(seed));
        let begins =
            Timestamp::from_second(1_704_067_200 + random.between(0, 400_000_000)).unwrap();
        let mut store = Store::in_memory().unwrap();
        let project = ProjectId::new(begins);
        let registered = Project {
            id: project.clone(),
            path: "/no such project".into(),
            node: Node::new(1, 1),
            config_stamp: String::new(),
            own: false,
        };
        store.register(&registered, begins).unwrap();
        let mut year = Self {
            store,
            project,
            host: Host::default(),
            jobs: BTreeMap::new(),
            read: None,
            all_paused: None,
            all_pauses: Vec::new(),
            now: 0,
            offset: begins.as_microsecond() + random.between(0, SECOND),
            booted: 0,
            queue: BTreeMap::new(),
            events: 0,
            drivers: BTreeMap::new(),
            running: BTreeMap::new(),
            seen: VecDeque::new(),
            keys: Vec::new(),
            stale: Vec::new(),
            retried: Vec::new(),
            started: BTreeMap::new(),
            counts: Counts::default(),
            bug,
            timers: random.permille(300),
            breaker: random.permille(300),
            set_backs: random.permille(500),
            resting: false,
            high: begins,
            random,
            copies: 0,
        };
        let drawn = jobs::draw(&mut year.random);
        year.describe(drawn);
        year
    }

    pub fn wall(&self) -> Timestamp {
        Timestamp::from_microsecond(self.now + self.offset).unwrap()
    }

    /// Returns the wall-clock time in whole milliseconds, as in the database.
    pub fn wall_millis(&self) -> Timestamp {
        Timestamp::from_millisecond(self.wall().as_millisecond()).unwrap()
    }

    pub fn clock_reading(&self) -> ClockReading {
        ClockReading {
            wall: self.wall(),
            boot: Duration::from_micros((self.now - self.booted).cast_unsigned()),
        }
    }

    /// Converts a wall-clock time to simulated time.
    pub fn at_wall(&self, wall: Timestamp) -> Micros {
        // The result is rounded up, so the wall clock has reached the time.
        wall.as_microsecond().saturating_add(1).saturating_sub(self.offset)
    }

    pub fn in_future(&mut self, wait: Micros, event: Event) {
        self.events += 1;
        self.queue.insert((self.now + wait, self.events), event);
    }

    /// Simulates the year, and then continues until all runs are settled.
    pub fn live(&mut self) {
        self.in_future(0, Event::Daemon);
        if self.timers {
            self.in_future(MINUTE, Event::Timer);
        }
        let first = self.random.between(0, 3 * DAY);
        self.in_future(first, Event::Hand);
        let first = self.random.between(0, 20 * DAY);
        self.in_future(first, Event::Fault);
        self.until(365 * DAY);
        self.rest();
        self.counts.years += 1;
    }

    fn until(&mut self, end: Micros) {
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Processes the next event up to `end`. Returns `false` if there is none.
    fn step(&mut self, end: Micros) -> bool {
        let wake = self.drivers.iter().map(|(pid, one)| (one.wakes, *pid)).min();
        let event = self.queue.first_key_value().map(|(key, _)| *key);
        let next = match (wake, event) {
            (Some((wake, pid)), event) if event.is_none_or(|(at, _)| wake < at) => {
                if wake > end {
                    return false;
                }
                self.now = self.now.max(wake);
                self.drive(pid);
                return true;
            }
            (_, Some(event)) => event,
            _ => return false,
        };
        if next.0 > end {
            return false;
        }
        let event = self.queue.remove(&next).unwrap();
        self.now = self.now.max(next.0);
        match event {
            Event::Begin(run, driver) => self.begin(&run, driver),
            Event::End(pid) => self.end(pid),
            Event::Die(pid) => self.die(pid),
            Event::Daemon => self.start_daemon(),
            Event::Timer => self.start_timer(),
            Event::Hand => self.hand(),
            Event::Late => self.act_late(),
            Event::Fault => self.fault(),
        }
        true
    }

    /// Stops the events that would recur forever, and continues until nothing is open.
    fn rest(&mut self) {
        self.resting = true;
        self.queue.retain(|_, event| !matches!(event, Event::Hand | Event::Fault | Event::Timer));
        self.resume(None);
        for name in self.names() {
            self.resume(Some(&name));
        }
        if !self.drivers.values().any(|driver| driver.daemon) {
            self.start_daemon();
        }
        self.wake_all();
        self.until(self.now + MINUTE);
        self.all_is_recorded();
        let wall = self.wall_millis();
        let silent = self.jobs.values().map(|job| {
            let mut new = job.new.clone();
            if job.has_clock() {
                new.schedule = Schedule::manual();
            }
            new
        });
        let silent = silent.collect();
        self.describe(silent);
        assert!(self.wall_millis() == wall);
        for _ in 0..4_000 {
            let waiting = self.store.next_ready(Timestamp::MIN).unwrap().is_some();
            let open = waiting || !self.store.live().unwrap().is_empty();
            if !open && self.running.is_empty() {
                // Nights may still have to close.
                let next = self.store.next_moment(self.wall()).unwrap();
                let Some(next) = next else { return };
                self.until(self.at_wall(next) + MINUTE);
                continue;
            }
            self.until(self.now + HOUR);
        }
        panic!("the year does not come to an end; live runs: {:?}", self.store.live().unwrap());
    }

    /// Checks that every past scheduled time is recorded.
    fn all_is_recorded(&mut self) {
        let now = self.wall();
        for job in self.store.jobs(&self.project).unwrap() {
            let late = job.next_due.filter(|due| *due <= now);
            assert!(late.is_none(), "{}: {late:?} was due but is not recorded at {now}", job.name);
        }
    }

    /// Updates the jobs in the database and in the model.
    pub fn describe(&mut self, mut new: Vec<NewJob>) {
        let marks = self.watermarks();
        let mark = self.occurrences();
        let wall = self.wall();
        let start = self.wall_millis();
        new.push(report_job());
        self.store.project_jobs(&self.project, "s", "", &new, wall).unwrap();
        for new in new {
            let id = self.store.job(&self.project, &new.name).unwrap().id;
            let job = self.jobs.entry(new.name.clone()).or_insert_with(|| Job {
                id,
                new: new.clone(),
                segments: Vec::new(),
                paused_until: None,
                pauses: Vec::new(),
                fence: Fence(0),
            });
            let fresh = job.segments.is_empty() || job.new.schedule != new.schedule;
            job.new = new;
            if fresh {
                if let Some(open) = job.segments.last_mut().filter(|open| open.end.is_none()) {
                    open.end = marks.get(&job.new.name).copied();
                }
                if job.has_clock() {
                    job.segments.push(Segment {
                        schedule: job.new.schedule.clone(),
                        start,
                        end: None,
                        mark,
                    });
                }
            }
        }
        self.high = self.high.max(wall);
    }

    pub fn names(&self) -> Vec<String> {
        self.jobs.keys().cloned().collect()
    }

    /// Returns the watermarks of the jobs with schedules.
    pub fn watermarks(&self) -> BTreeMap<String, Timestamp> {
        let all = self.store.due_jobs(Timestamp::MAX).unwrap();
        all.into_iter().map(|due| (due.job.name, due.watermark)).collect()
    }

    /// Returns the watermarks if a schedule may be ahead of the clock.
    pub fn ahead(&self) -> Option<BTreeMap<String, Timestamp>> {
        let limit = self.wall().checked_add(AHEAD).unwrap();
        (self.high > limit).then(|| self.watermarks())
    }

    /// Checks that a tick restarted only schedules that were ahead of the clock, and all of them if
    /// the tick completed (`whole`).
    pub fn set_back(&mut self, before: BTreeMap<String, Timestamp>, whole: bool) {
        let after = self.watermarks();
        let limit = self.wall().checked_add(AHEAD).unwrap();
        let limit = Timestamp::from_millisecond(limit.as_millisecond()).unwrap();
        let start = self.wall_millis();
        let mark = after.iter().any(|(name, at)| *at < before[name]).then(|| self.occurrences());
        for (name, after) in &after {
            let before = before[name];
            if *after < before {
                assert!(
                    before > limit && *after == start,
                    "{name}: wrongly set back from {before} to {after}"
                );
                self.counts.restarts += 1;
                let job = self.jobs.get_mut(name).unwrap();
                let open = job.segments.last_mut().unwrap();
                open.end = Some(before);
                let schedule = open.schedule.clone();
                job.segments.push(Segment { schedule, start, end: None, mark: mark.unwrap() });
            } else {
                assert!(!whole || before <= limit, "{name} is still ahead, at {before}");
            }
        }
        self.high = after.values().copied().max().unwrap_or(start).max(self.wall());
    }

    /// Raises the highest possible watermark to the current time.
    pub fn ticked(&mut self) {
        self.high = self.high.max(self.wall());
    }

    /// Copies the database into a separate connection for an independent check.
    pub fn copy(&mut self) -> rusqlite::Connection {
        self.copies += 1;
        let name = format!("file:{}-{}?mode=memory&cache=shared", self.project, self.copies);
        let copy = rusqlite::Connection::open(&name).unwrap();
        self.store.copy_to(name.as_ref()).unwrap();
        copy
    }

    fn occurrences(&mut self) -> usize {
        let count: i64 = self
            .copy()
            .query_row("SELECT count(*) FROM occurrences", [], |row| row.get(0))
            .unwrap();
        usize::try_from(count).unwrap()
    }

    /// Returns the jobs whose lock is held by a dead process. There must be none.
    pub fn orphans(&self) -> BTreeSet<String> {
        let state = self.host.0.borrow();
        let held = state.locks.iter().filter(|(_, pid)| !state.alive.contains(pid));
        held.map(|(job, _)| job.clone()).collect()
    }
}

impl Job {
    pub fn has_clock(&self) -> bool {
        !matches!(self.new.schedule.trigger, Trigger::Manual | Trigger::After(_))
    }
}
