//! Lists missing projects, and records their scheduled times as missed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::params;

use super::columns::{Query as _, free_json, json_opt, millis};
use super::occurrences::{MissedCause, MissedRow};
use super::projects::{GONE, why_gone};
use super::{DueJob, Result, Store, jobs, occurrences};
use crate::ids::{OccurrenceId, ProjectId};
use crate::outcome::Outcome;
use crate::schedule::{Due, Missed};

impl Store {
    /// Returns the projects that were missing at the last check or have been displaced, each with
    /// the reason.
    pub fn absent(&self) -> Result<BTreeMap<ProjectId, String>> {
        let sql = "SELECT id, config_stamp FROM projects WHERE config_stamp GLOB ?1 || '*'";
        let found: Vec<(ProjectId, String)> =
            self.view(|db| db.all(sql, [GONE], |row| row.try_into()))?;
        let why = |(project, stamp): (ProjectId, String)| {
            why_gone(&stamp).map(|why| (project, why.to_owned()))
        };
        Ok(found.into_iter().filter_map(why).collect())
    }

    /// Records all due scheduled times of a job as missed and advances its watermark. Consecutive
    /// stretches with the same reason share one row, unless another occurrence of the job was
    /// recorded between them. Returns `false` if another process has moved the watermark.
    pub fn miss_due(
        &mut self,
        due_job: &DueJob,
        due: &Due,
        stretch: &Missed,
        why: &str,
        now: Timestamp,
    ) -> Result<bool> {
        self.write(|tx| {
            if !jobs::advance(tx, due_job, due, now)? {
                return Ok(false);
            }
            let last = "SELECT id, outcome FROM occurrences WHERE job = ?1 ORDER BY rowid DESC LIMIT 1";
            let last: Option<(OccurrenceId, Option<Outcome>)> =
                tx.first(last, [due_job.job.id], |row| Ok((row.get(0)?, json_opt(row, 1)?)))?;
            if let Some((id, Some(Outcome::Missed { first, count, why: before, .. }))) = last
                && before == why
            {
                let longer = Outcome::Missed {
                    first,
                    last: stretch.last,
                    count: count.saturating_add(stretch.count),
                    why: before,
                };
                tx.change(
                    "UPDATE occurrences SET outcome = ?2, recorded = ?3, settled = ?3 WHERE id = ?1",
                    params![id, free_json(&longer), millis(now)],
                )?;
                return Ok(true);
            }
            let cause = MissedCause::Problem(why);
            let row = MissedRow { job: due_job.job.id, night: None, cause, stretch };
            occurrences::missed(tx, &row, now)?;
            Ok(true)
        })
    }
}
