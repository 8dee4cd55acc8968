//! Pauses: a job, or everything, is held until a given time or until a person resumes it.
//!
//! While a pause lasts, no waiting run is started. The scheduled times that a clock reached
//! meanwhile are recorded as missed when the pause is over and never caught up, because they were
//! not wanted.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{Query as _, millis, time};
use super::{Fault, JobId, Result, Store};

/// The end of a pause without an end; the tables can store this timestamp exactly.
pub const FOREVER: Timestamp = Timestamp::constant(253_402_207_200, 0);

impl Store {
    /// Pauses a job, or everything, until `until`.
    pub fn pause(&mut self, job: Option<JobId>, until: Timestamp) -> Result<()> {
        let until = millis(until);
        self.write(|tx| {
            match job {
                Some(job) => tx.change(
                    "UPDATE jobs SET paused_until = ?2 WHERE id = ?1",
                    params![job, until],
                )?,
                None => tx.change("INSERT OR REPLACE INTO pause VALUES (1, ?1)", [until])?,
            };
            Ok(())
        })
    }

    /// Ends the pause of a job, or of everything, at `now`; false when there was none.
    pub fn resume(&mut self, job: Option<JobId>, now: Timestamp) -> Result<bool> {
        let now = millis(now);
        let of_job = "UPDATE jobs SET paused_until = ?2 WHERE id = ?1 AND paused_until > ?2";
        self.write(|tx| {
            let ended = match job {
                Some(job) => tx.change(of_job, params![job, now])?,
                None => tx.change("UPDATE pause SET until = ?1 WHERE until > ?1", [now])?,
            };
            Ok(ended > 0)
        })
    }

    /// Returns the end of the pause of everything, if one lasts at `now`.
    pub fn paused_until(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        Ok(self.view(all)?.filter(|until| *until > now))
    }
}

/// Returns the end of the pause of everything, past or future.
pub(super) fn all(db: &Connection) -> Result<Option<Timestamp>, Fault> {
    db.first("SELECT until FROM pause", [], |row| time(row, 0))
}
