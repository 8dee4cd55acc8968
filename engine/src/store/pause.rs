//! Pauses a job or all jobs, until a given time or until the user resumes them.
//!
//! During a pause, no waiting run of a paused job starts, except as part of a night that the user
//! starts. After a pause, the scheduled times that passed during the pause are recorded as missed
//! and are never caught up.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{Query as _, millis, time};
use super::{Fault, JobId, Result, Store};

/// The time stored as the end of an indefinite pause.
pub const FOREVER: Timestamp = Timestamp::constant(253_402_207_200, 0);

impl Store {
    /// Pauses `job` until `until`, or all jobs if `job` is `None`.
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

    /// Ends the pause of `job` at `now`, or the pause of all jobs if `job` is `None`. Returns
    /// `false` if there was no such pause.
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

    /// Returns the end of the pause of all jobs, or `None` if there is no such pause at `now`.
    pub fn paused_until(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        Ok(self.view(all)?.filter(|until| *until > now))
    }
}

/// Returns the end of the last pause of all jobs, even if that time has already passed.
pub(super) fn all(db: &Connection) -> Result<Option<Timestamp>, Fault> {
    db.first("SELECT until FROM pause", [], |row| time(row, 0))
}
