//! The repositories that runner looks after.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};

use super::{Fault, Ledger, LedgerError, Result, id, millis};
use crate::ids::ProjectId;

/// A registered repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its id, as `runner.toml` names it.
    pub id: ProjectId,
    /// Its canonical path when it was registered.
    pub path: PathBuf,
    /// The device it lay on.
    pub device: u64,
    /// The inode of its folder.
    pub inode: u64,
    /// The stat of the files that its jobs were read from; empty before the first reading.
    pub config_stamp: String,
}

/// The stamp of a project whose folder was not there when it was last looked for.
pub const GONE: &str = "gone";

impl Ledger {
    /// Registers `project`, or brings its place up to date. Another project that had this path is no
    /// more: its history stays under a path that cannot exist, and nothing of it is due again.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn register(&mut self, project: &Project, now: Timestamp) -> Result<()> {
        let path = text(&project.path)?;
        self.write(|tx| {
            tx.prepare_cached("UPDATE jobs SET enabled = 0, next_due = NULL WHERE project IN
                   (SELECT id FROM projects WHERE path = ?2 AND id <> ?1)")?.execute(params![project.id.as_str(), path],
            )?;
            tx.prepare_cached("UPDATE projects SET path = path || ' was ' || id, config_stamp = ?3
                 WHERE path = ?2 AND id <> ?1")?.execute(params![project.id.as_str(), path, GONE],
            )?;
            tx.prepare_cached("INSERT INTO projects (id, path, device, inode, created) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET path = ?2, device = ?3, inode = ?4")?.execute(params![
                    project.id.as_str(),
                    path,
                    project.device.cast_signed(),
                    project.inode.cast_signed(),
                    millis(now)
                ],
            )?;
            Ok(())
        })
    }

    /// All projects, by path.
    pub fn projects(&self) -> Result<Vec<Project>> {
        self.view(|db| {
            let mut statement = db.prepare(
                "SELECT id, path, device, inode, config_stamp FROM projects
                 WHERE path NOT LIKE '% was ' || id ORDER BY path",
            )?;
            let rows = statement.query_map([], raw)?;
            rows.map(|row| project(row?)).collect()
        })
    }

    /// One project.
    pub fn project(&self, wanted: &ProjectId) -> Result<Option<Project>> {
        self.view(|db| {
            db.prepare_cached(
                "SELECT id, path, device, inode, config_stamp FROM projects WHERE id = ?1",
            )?
            .query_row([wanted.as_str()], raw)
            .optional()?
            .map(project)
            .transpose()
        })
    }
}

type Raw = (String, String, i64, i64, String);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
    ))
}

fn project((name, path, device, inode, config_stamp): Raw) -> Result<Project, Fault> {
    Ok(Project {
        id: id(name)?,
        path: PathBuf::from(path),
        device: device.cast_unsigned(),
        inode: inode.cast_unsigned(),
        config_stamp,
    })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| LedgerError::Nonsense {
        path: path.to_owned(),
        why: "a project's path must be UTF-8".to_owned(),
    })
}
