//! Scheduled times of a project whose folder is missing: they are recorded as missed, never run and
//! never dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use super::projects::{GONE, why_gone};
use super::{DueJob, Result, Store, from_json, id, millis, occurrences, to_json};
use crate::ids::ProjectId;
use crate::outcome::Outcome;
use crate::schedule::{Due, Missed};

impl Store {
    /// Returns the projects that were missing when they were last checked, with the reason.
    pub fn absent(&self) -> Result<BTreeMap<ProjectId, String>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT id, config_stamp FROM projects WHERE config_stamp GLOB ?1 || '*'",
            )?;
            let rows = statement.query_map([GONE], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut absent = BTreeMap::new();
            for row in rows {
                let (project, stamp) = row?;
                if let Some(why) = why_gone(&stamp) {
                    absent.insert(id(project)?, why.to_owned());
                }
            }
            Ok(absent)
        })
    }

    /// Records all that is due of a job as missed and moves its watermark. A stretch that goes on is
    /// one row, however many ticks find it; false when another driver moved the watermark first.
    pub fn miss_due(
        &mut self,
        due_job: &DueJob,
        due: &Due,
        stretch: &Missed,
        why: &str,
        now: Timestamp,
    ) -> Result<bool> {
        self.write(|tx| {
            let moved = tx
                .prepare_cached(
                    "UPDATE jobs SET watermark = ?3, next_due = ?4,
                            paused_until = CASE WHEN paused_until > ?5 THEN paused_until END
                     WHERE id = ?1 AND watermark = ?2",
                )?
                .execute(params![
                    due_job.job.id.0,
                    millis(due_job.watermark),
                    millis(due.watermark),
                    due.next.map(millis),
                    millis(now)
                ])?;
            if moved == 0 {
                return Ok(false);
            }
            let last: Option<(String, Option<String>)> = tx
                .prepare_cached(
                    "SELECT id, outcome FROM occurrences WHERE job = ?1 ORDER BY rowid DESC LIMIT 1",
                )?
                .query_row([due_job.job.id.0], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if let Some((row, Some(outcome))) = last
                && let Outcome::Missed {
                    first,
                    count,
                    why: before,
                    ..
                } = from_json(&outcome)?
                && before == why
            {
                let longer = Outcome::Missed {
                    first,
                    last: stretch.last,
                    count: count.saturating_add(stretch.count),
                    why: before,
                };
                tx.prepare_cached(
                    "UPDATE occurrences SET outcome = ?2, recorded = ?3, settled = ?3 WHERE id = ?1",
                )?
                .execute(params![row, to_json(&longer), millis(now)])?;
                return Ok(true);
            }
            occurrences::missed(tx, due_job.job.id, None, why, stretch, now)?;
            Ok(true)
        })
    }
}
