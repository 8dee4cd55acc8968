//! User actions: requesting, cancelling and retrying runs, and pausing and resuming jobs.

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::RunId;
use runner_engine::store::{Cancelled, NewOccurrence, Origin, Recorded, StoreError};

use super::year::{DAY, Event, HOUR, Year};

impl Year {
    /// Performs one random user action and schedules the next one.
    pub fn hand(&mut self) {
        let wait = self.random.spread(HOUR, 20 * DAY);
        self.in_future(wait, Event::Hand);
        let name = self.random.one_of(&self.names()).clone();
        match self.random.between(0, 12) {
            0..=2 => self.run_manually(&name),
            3..=6 => self.enqueue(&name),
            7 => self.cancel(),
            8 => self.retry(),
            9 | 10 => {
                let long = self.random.spread(60, 14 * 86_400);
                let job = self.random.permille(700).then_some(name.as_str());
                self.pause(job, SignedDuration::from_secs(long));
            }
            _ => {
                let job = self.random.permille(500).then_some(name.as_str());
                self.resume(job);
            }
        }
        self.wake_daemon();
    }

    fn run_manually(&mut self, job: &str) {
        let pid = self.new_driver(false, false);
        let me = self.drivers[&pid].me.clone();
        let now = self.wall();
        let key = format!("hand {}", self.random.next());
        let new = NewOccurrence::manual(self.jobs[job].id, key, now);
        let run = match self.store.enter(&new, &me, now).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("a new key was already known"),
        };
        assert!(matches!(self.store.enter(&new, &me, now).unwrap(), Recorded::Known(_)));
        self.counts.hands += 1;
        if self.random.permille(50) {
            self.driver_dies(pid);
        } else {
            self.hand_out(pid, &run);
        }
    }

    fn enqueue(&mut self, job: &str) {
        let now = self.wall();
        let key = if self.keys.is_empty() || self.random.permille(700) {
            let key = format!("key {}", self.random.next());
            self.keys.push(key.clone());
            key
        } else {
            self.random.one_of(&self.keys).clone()
        };
        let ready_at = if self.random.permille(400) {
            let later = SignedDuration::from_secs(self.random.spread(1, 30 * 86_400));
            now.saturating_add(later).unwrap()
        } else {
            now
        };
        let seen: Vec<RunId> = self.seen.iter().cloned().collect();
        let after = (!seen.is_empty() && self.random.permille(400))
            .then(|| self.random.one_of(&seen).clone())
            .map(|run| self.store.run(&run).unwrap().occurrence);
        let new = NewOccurrence {
            origin: Origin::Queue,
            priority: self.random.permille(300).then_some(5),
            ..NewOccurrence::manual(self.jobs[job].id, key, now)
        };
        let recorded = self.store.enqueue(&new, ready_at, after.as_ref(), now).unwrap();
        if let Recorded::New(run) = recorded {
            self.seen.push_back(run);
        }
        self.counts.hands += 1;
    }

    fn cancel(&mut self) {
        let Some(run) = self.one_seen() else { return };
        let now = self.wall();
        if let Cancelled::Asked(row) = self.store.cancel(&run, "by a person", now).unwrap() {
            self.terminate(&row.id);
        }
    }

    fn retry(&mut self) {
        let Some(run) = self.one_seen() else { return };
        let now = self.wall();
        let row = self.store.run(&run).unwrap();
        let open = self.store.occurrence(&row.occurrence).unwrap().outcome.is_none();
        match self.store.retry(&run, now) {
            Ok(again) => {
                assert!(!open);
                self.seen.push_back(again);
                self.retried.push(row.occurrence.to_string());
            }
            Err(error) => assert!(open && matches!(error, StoreError::NotFound { .. }), "{error}"),
        }
    }

    fn one_seen(&mut self) -> Option<RunId> {
        let seen: Vec<RunId> = self.seen.iter().cloned().collect();
        (!seen.is_empty()).then(|| self.random.one_of(&seen).clone())
    }

    /// Returns whether a job is currently paused, either by its own pause or by the pause of all
    /// jobs.
    pub fn paused(&self, job: &str) -> bool {
        let now = self.wall();
        let job = self.jobs[job].paused_until;
        [job, self.all_paused].into_iter().flatten().any(|until| until > now)
    }

    /// Pauses a job, or all jobs if `job` is `None`, for the duration `long`.
    pub fn pause(&mut self, job: Option<&str>, long: SignedDuration) {
        let now = self.wall();
        let until = Timestamp::from_millisecond(now.saturating_add(long).unwrap().as_millisecond())
            .unwrap();
        self.end_pause(job, now);
        let (id, (paused, pauses)) = match job {
            Some(name) => {
                let job = self.jobs.get_mut(name).unwrap();
                (Some(job.id), (&mut job.paused_until, &mut job.pauses))
            }
            None => (None, (&mut self.all_paused, &mut self.all_pauses)),
        };
        *paused = Some(until);
        pauses.push((now, until));
        self.store.pause(id, until).unwrap();
        self.counts.pauses += 1;
    }

    /// Ends a job's pause, or the pause of all jobs if `job` is `None`. Checks that the database
    /// and the model agree on whether the pause had already ended.
    pub fn resume(&mut self, job: Option<&str>) {
        let now = self.wall();
        let was = match job {
            Some(name) => self.jobs[name].paused_until,
            None => self.all_paused,
        };
        let id = job.map(|name| self.jobs[name].id);
        let ended = self.store.resume(id, now).unwrap();
        let millis = self.wall_millis();
        let expected = was.is_some_and(|until| until > millis);
        let known = ended == expected || self.set_backs;
        assert!(known, "{job:?}: paused until {was:?}, resumed at {now}");
        self.end_pause(job, now);
    }

    fn end_pause(&mut self, job: Option<&str>, now: Timestamp) {
        let (paused, pauses) = match job {
            Some(name) => {
                let job = self.jobs.get_mut(name).unwrap();
                (&mut job.paused_until, &mut job.pauses)
            }
            None => (&mut self.all_paused, &mut self.all_pauses),
        };
        *paused = None;
        if let Some((_, until)) = pauses.last_mut() {
            *until = (*until).min(now);
        }
    }
}
