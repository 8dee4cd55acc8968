//! The record of ticks: the time of the last one, and their number. It is a fixed-length file in
//! the state folder, so that a tick without work writes nothing to the database.
//!
//! No decision may depend on the number.

use std::fs;
use std::os::unix::fs::FileExt as _;

use jiff::Timestamp;
use runner_engine::files::{SMALL, open_with, read_text_host};
use rustix::fs::FlockOperation;

use crate::env::Env;

impl Env {
    /// Records the time of a tick, and counts the tick. Errors are ignored, because the record
    /// affects only reports and the reasons of missed occurrences.
    pub fn note_tick(&self, now: Timestamp) {
        let mut options = fs::File::options();
        options.create(true).read(true).write(true).truncate(false);
        let Ok(file) = open_with(&mut options, self.tick_stamp()) else { return };
        // If another tick holds the lock, it is recording nearly the same time. This tick does not
        // wait for the lock, so no tick can delay another one.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let count = self.ticks().unwrap_or_default().saturating_add(1);
        // The record always has the same length, so the new one replaces the old one completely.
        let record = format!("{}\n{count:020}\n", now.strftime("%Y-%m-%dT%H:%M:%SZ"));
        let _only_reported = file.write_all_at(record.as_bytes(), 0);
    }

    /// Returns the time of the last tick, if one is recorded.
    pub fn last_tick(&self) -> Option<Timestamp> {
        self.tick_record()?.lines().next()?.trim().parse().ok()
    }

    /// Returns the number of recorded ticks, if there is a record.
    pub fn ticks(&self) -> Option<u64> {
        self.tick_record()?.lines().nth(1)?.trim().parse().ok()
    }

    fn tick_record(&self) -> Option<String> {
        read_text_host(self.tick_stamp(), SMALL).ok()
    }
}

#[cfg(test)]
mod tests {
    use runner_engine::time::Clock;

    use super::*;

    #[test]
    fn ticks_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let home = Env {
            state: folder.path().to_owned(),
            user_config: folder.path().join("config.toml"),
            clock: Clock::Host,
            here: folder.path().to_owned(),
            overrides: crate::config::Overrides::default(),
            flags: Vec::new(),
        };
        assert_eq!((home.last_tick(), home.ticks()), (None, None));
        // A record without a number, as written by an earlier version.
        fs::write(home.tick_stamp(), "2026-11-22T02:30:00Z\n").unwrap();
        let at: Timestamp = "2026-11-22T02:30:00Z".parse().unwrap();
        assert_eq!((home.last_tick(), home.ticks()), (Some(at), None));
        for number in 1..=3 {
            let now: Timestamp = format!("2026-11-22T02:3{number}:00Z").parse().unwrap();
            home.note_tick(now);
            assert_eq!((home.last_tick(), home.ticks()), (Some(now), Some(number)));
        }
    }
}
