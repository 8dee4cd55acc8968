//! Moves a project to another folder, and deletes a project from the database exactly as planned.

use std::path::Path;

use rusqlite::{Connection, params};

use super::columns::{Count, Query as _};
use super::{Fault, Node, Result, Store, StoreError};
use crate::ids::{ProjectId, RunId};

/// The plan for deleting a project: the rows to delete, and the runs that prevent the deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectDeletion {
    pub project: ProjectId,
    /// The project's requested and running runs. The deletion is refused if there are any.
    pub live: Vec<RunId>,
    /// The queued runs of other projects that are waiting for a run of this project. The deletion
    /// is refused if there are any.
    pub awaited_by: Vec<RunId>,
    pub runs: Vec<RunId>,
    pub jobs: u64,
    pub occurrences: u64,
    pub nights: u64,
}

/// Returns the statement that deletes the rows for the project's nights from a table. Night ids are
/// reused, so a remaining row could apply to another night.
fn of_its_nights(table: &str) -> String {
    format!(
        "DELETE FROM {table} WHERE level = 'night'
           AND key IN (SELECT CAST(id AS TEXT) FROM nights WHERE project = ?1)"
    )
}

/// Returns the statement that deletes the rows for the days of the project and its jobs from a
/// table. The keys of these rows begin with the project's id.
fn of_its_days(table: &str) -> String {
    format!("DELETE FROM {table} WHERE level IN ('day', 'job') AND key GLOB ?1 || ' *'")
}

const ITS_JOBS: &str = "(SELECT id FROM jobs WHERE project = ?1)";
const ITS_RUNS: &str =
    "(SELECT id FROM runs WHERE job IN (SELECT id FROM jobs WHERE project = ?1))";

impl Store {
    /// Plans the deletion of `project`.
    pub fn forgetting(&self, project: &ProjectId) -> Result<ProjectDeletion> {
        self.view(|db| plan(db, project))
    }

    /// Executes the plan. The deletion is refused if the project's rows have changed or if a run
    /// prevents it.
    ///
    /// # Errors
    /// Returns [`StoreError::Changed`] with the reason for the refusal.
    pub fn forget(&mut self, planned: &ProjectDeletion) -> Result<()> {
        let project = &planned.project;
        self.write(|tx| {
            let found = plan(tx, project)?;
            if !found.live.is_empty() || !found.awaited_by.is_empty() {
                let why = "some of its runs are live or awaited by other projects";
                return Err(changed(project, why));
            }
            if found != *planned {
                return Err(changed(project, "it has changed since the plan was made"));
            }
            for sql in [
                of_its_nights("budget_usage"),
                of_its_nights("grants"),
                of_its_days("budget_usage"),
                of_its_days("grants"),
                format!("DELETE FROM requests WHERE run IN {ITS_RUNS}"),
                format!("DELETE FROM reservations WHERE run IN {ITS_RUNS}"),
                format!("DELETE FROM publications WHERE run IN {ITS_RUNS}"),
                format!("DELETE FROM events WHERE run IN {ITS_RUNS} OR project = ?1"),
                format!("DELETE FROM runs WHERE job IN {ITS_JOBS}"),
                format!("DELETE FROM occurrences WHERE job IN {ITS_JOBS}"),
                "DELETE FROM nights WHERE project = ?1".to_owned(),
                "DELETE FROM jobs WHERE project = ?1".to_owned(),
                "DELETE FROM trust WHERE project = ?1".to_owned(),
                "DELETE FROM published_files WHERE project = ?1".to_owned(),
                "DELETE FROM projects WHERE id = ?1".to_owned(),
            ] {
                tx.change(&sql, [project])?;
            }
            Ok(())
        })
    }

    /// Records that a project has moved to another folder. The project's configuration files are
    /// then read again.
    ///
    /// # Errors
    /// Returns [`StoreError::Changed`] if another project is registered at the path or the project
    /// has requested or running runs, or [`StoreError::NotText`] if the path is not UTF-8.
    pub fn relocate(&mut self, project: &ProjectId, to: &Path, node: Node) -> Result<()> {
        let path = super::projects::text(to)?;
        self.write(|tx| {
            let other = "SELECT 1 FROM projects WHERE path = ?1 AND id <> ?2";
            if tx.exists(other, params![path, project])? {
                return Err(changed(project, &format!("another project is registered at {path}")));
            }
            if !live(tx, project)?.is_empty() {
                return Err(changed(project, "it has unfinished runs"));
            }
            let (device, inode) = (node.device.cast_signed(), node.inode.cast_signed());
            tx.change(
                "UPDATE projects SET path = ?2, device = ?3, inode = ?4, folder_created = ?5,
                   owns_id = 1, config_stamp = '' WHERE id = ?1",
                params![project, path, device, inode, node.born],
            )?;
            Ok(())
        })
    }
}

fn changed(project: &ProjectId, why: &str) -> Fault {
    Fault::Known(StoreError::Changed { what: format!("project {project}"), why: why.to_owned() })
}

fn live(db: &Connection, project: &ProjectId) -> Result<Vec<RunId>, Fault> {
    db.values(
        "SELECT r.id FROM runs r INDEXED BY runs_live JOIN jobs j ON j.id = r.job
         WHERE r.state IN ('requested', 'running') AND j.project = ?1 ORDER BY r.rowid",
        [project],
    )
}

fn plan(db: &Connection, project: &ProjectId) -> Result<ProjectDeletion, Fault> {
    let count = |from: &str| -> Result<u64, Fault> {
        let sql = format!("SELECT count(*) FROM {from}");
        db.value(&sql, [project]).map(|Count(count)| count)
    };
    Ok(ProjectDeletion {
        project: project.clone(),
        live: live(db, project)?,
        awaited_by: db.values(
            "SELECT r.id FROM runs r INDEXED BY runs_waiting JOIN occurrences o ON o.id = r.waits_for
             WHERE r.waits_for IS NOT NULL AND o.job IN (SELECT id FROM jobs WHERE project = ?1)
               AND r.job NOT IN (SELECT id FROM jobs WHERE project = ?1) ORDER BY r.rowid",
            [project],
        )?,
        runs: db.values(
            &format!("SELECT id FROM runs WHERE job IN {ITS_JOBS} ORDER BY rowid"),
            [project],
        )?,
        jobs: count("jobs WHERE project = ?1")?,
        occurrences: count(&format!("occurrences WHERE job IN {ITS_JOBS}"))?,
        nights: count("nights WHERE project = ?1")?,
    })
}
