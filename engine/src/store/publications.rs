//! Stores the publication log in the database. The manifest is committed before the first rename,
//! and the outcome is committed after the last sync. Each commit is one transaction that also
//! checks the fence.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{Query as _, free_json, json, json_opt, millis, time, time_opt, to_json};
use super::{Fault, Result, RunSummary, Store, StoreError, published, settle};
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use crate::publish::{LogError, Manifest, PublishLog, RecordedManifest};

/// A check that precedes each commit of a publication, and the settlement of a run that publishes
/// nothing. It is for runs that also hold a fence in another database.
pub trait CommitGuard: Send {
    /// Checks that the run may still commit.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`] if the run may not commit, or [`LogError::Store`] if this
    /// cannot be determined.
    fn check(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError>;
}

/// The publication log of one run, with the summary for the run's row.
pub struct RunLog<'a> {
    store: &'a mut Store,
    summary: Option<&'a RunSummary>,
    now: Timestamp,
}

/// The times of a run's publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationTimes {
    /// The time at which the manifest was committed, before the first file was moved.
    pub committed: Timestamp,
    /// The time at which the outcome was committed, or `None` if it has not been committed.
    pub published: Option<Timestamp>,
}

impl Store {
    /// Returns the times of a run's publication, or `None` if the run has not committed a manifest.
    pub fn publication_times(&self, run: &RunId) -> Result<Option<PublicationTimes>> {
        let sql = "SELECT committed, published FROM publications WHERE run = ?1";
        self.view(|db| {
            db.first(sql, [run], |row| {
                Ok(PublicationTimes { committed: time(row, 0)?, published: time_opt(row, 1)? })
            })
        })
    }

    /// Returns the log for a run's publication. `summary` is stored with the manifest. If `summary`
    /// is `None`, as in a recovery, the stored summary is kept.
    pub fn publish_log<'a>(
        &'a mut self,
        summary: Option<&'a RunSummary>,
        now: Timestamp,
    ) -> RunLog<'a> {
        RunLog { store: self, summary, now }
    }

    /// Sets the check that precedes each commit of a publication through this store, and each call
    /// of [`Store::settle_unpublished`].
    pub fn set_commit_guard(&mut self, guard: Box<dyn CommitGuard>) {
        self.guard = Some(guard);
    }

    fn guarded(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.guard.as_mut().map_or(Ok(()), |guard| guard.check(run, fence))
    }

    /// Settles a run that publishes nothing and has no staging folder, in one transaction.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`] if the run has been taken over or the commit guard refuses,
    /// or [`LogError::Store`] if the database fails or the guard cannot decide.
    pub fn settle_unpublished(
        &mut self,
        run: &RunId,
        fence: Fence,
        outcome: &Outcome,
        summary: &RunSummary,
        now: Timestamp,
    ) -> Result<(), LogError> {
        self.guarded(run, fence)?;
        let done = self.write(|tx| {
            if let Err(refused) = fenced(tx, run, fence)? {
                return Ok(Err(refused));
            }
            tx.change("UPDATE runs SET staging = NULL WHERE id = ?1", [run])?;
            settle::settle_row(tx, run, outcome, summary, now)?;
            Ok(Ok(()))
        });
        done.map_err(store)?
    }

    /// Checks that the run is running and that `fence` is still its job's current fence. A
    /// publication whose log is not in the database calls this method before both of its commits.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`] if the check fails, or [`LogError::Store`] if the database
    /// fails.
    pub fn holds(&self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.view(|db| fenced(db, run, fence)).map_err(store)?
    }

    /// Takes over a dead run and returns its new fence. The old fence becomes stale. The caller
    /// must hold the deciding lock, and the run's processes must have ended.
    pub fn take_over(&mut self, run: &RunId) -> Result<Fence> {
        self.write(|tx| {
            let fence: Fence = tx.value(
                "UPDATE jobs SET fence = fence + 1 WHERE id = (SELECT job FROM runs WHERE id = ?1)
                 RETURNING fence",
                [run],
            )?;
            let sql = "UPDATE runs SET fence = ?2 WHERE id = ?1 AND state <> 'settled'";
            tx.change(sql, params![run, fence])?;
            Ok(fence)
        })
    }
}

impl PublishLog for RunLog<'_> {
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError> {
        let sql = "SELECT manifest, published IS NOT NULL FROM publications WHERE run = ?1";
        let found = self.store.view(|db| {
            db.first(sql, [run], |row| {
                Ok(RecordedManifest { manifest: json(row, 0)?, settled: row.get(1)? })
            })
        });
        found.map_err(store)
    }

    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        self.store.guarded(run, fence)?;
        let (summary, now) = (self.summary, self.now);
        let done = self.store.write(|tx| {
            if let Err(refused) = fenced(tx, run, fence)? {
                return Ok(Err(refused));
            }
            let added = tx.change(
                "INSERT INTO publications (run, fence, manifest, committed) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (run) DO NOTHING",
                params![run, fence, to_json(manifest), millis(now)],
            )?;
            if added == 0 {
                return Ok(Err(LogError::ManifestExists { run: run.clone() }));
            }
            if let Some(summary) = summary {
                let sql = "UPDATE runs SET summary = ?2 WHERE id = ?1";
                tx.change(sql, params![run, free_json(summary)])?;
            }
            Ok(Ok(()))
        });
        done.map_err(store)?
    }

    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.store.guarded(run, fence)?;
        let now = self.now;
        let done = self.store.write(|tx| {
            let found: Option<(Manifest, bool, Option<RunSummary>)> = tx.first(
                "SELECT p.manifest, p.published IS NOT NULL, r.summary
                 FROM publications p JOIN runs r ON r.id = p.run WHERE p.run = ?1",
                [run],
                |row| Ok((json(row, 0)?, row.get(1)?, json_opt(row, 2)?)),
            )?;
            let Some((manifest, published, summary)) = found else {
                return Ok(Err(LogError::NoManifest { run: run.clone() }));
            };
            if published {
                return Ok(Err(LogError::Settled { run: run.clone() }));
            }
            if let Err(refused) = fenced(tx, run, fence)? {
                return Ok(Err(refused));
            }
            let sql = "UPDATE publications SET published = ?2 WHERE run = ?1";
            tx.change(sql, params![run, millis(now)])?;
            published::record(tx, run, &manifest, now)?;
            let summary = summary.unwrap_or_default();
            settle::settle_row(tx, run, &manifest.outcome, &summary, now)?;
            Ok(Ok(()))
        });
        done.map_err(store)?
    }
}

/// Checks that `fence` is the job's current fence and that the run is running.
fn fenced(db: &Connection, run: &RunId, fence: Fence) -> Result<Result<(), LogError>, Fault> {
    match settle::check_fence(db, run, Some(fence)) {
        Ok(()) => Ok(Ok(())),
        Err(Fault::Known(StoreError::StaleFence { .. })) => {
            let sql = "SELECT j.fence FROM runs r JOIN jobs j ON j.id = r.job WHERE r.id = ?1";
            let current = db.value(sql, [run])?;
            Ok(Err(LogError::StaleFence { run: run.clone(), held: fence, current }))
        }
        Err(fault) => Err(fault),
    }
}

fn store(error: StoreError) -> LogError {
    LogError::Store(Box::new(error))
}
