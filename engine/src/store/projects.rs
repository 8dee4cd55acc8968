//! Stores the registered projects.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::columns::{Query as _, millis};
use super::{Result, Store, StoreError};
use crate::ids::ProjectId;

/// A registered project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The project's id, from the project's git folder or from `runner.toml` (see `own`).
    pub id: ProjectId,
    /// The canonical path of the project's folder.
    pub path: PathBuf,
    /// The identity of the project's folder.
    pub node: Node,
    /// The stat data of the files from which the jobs were read. Empty before the first read.
    /// Begins with [`GONE`] if the project is missing or displaced.
    pub config_stamp: String,
    /// Whether the id is recorded in the project's git folder. An id that is only in `runner.toml`
    /// is shared by every clone.
    pub own: bool,
}

/// Identifies a folder independently of its path and content.
///
/// A file system may reuse the inode number of a removed folder. The identity therefore includes
/// the creation time, if the file system records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The device that contains the folder.
    pub device: u64,
    /// The folder's inode number on the device.
    pub inode: u64,
    /// The creation time in nanoseconds since the Unix epoch, if it is known.
    pub born: Option<i64>,
}

impl Node {
    /// Returns the identity of a folder with an unknown creation time.
    pub const fn new(device: u64, inode: u64) -> Self {
        Self { device, inode, born: None }
    }

    /// Returns the identity of the folder with the metadata `data`.
    pub fn of(data: &Metadata) -> Self {
        let born = data.created().ok();
        let born = born.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Self {
            device: data.dev(),
            inode: data.ino(),
            born: born.and_then(|span| i64::try_from(span.as_nanos()).ok()),
        }
    }

    /// Returns whether `self` and `other` identify the same folder. An unknown creation time
    /// matches every creation time.
    pub fn is(&self, other: &Self) -> bool {
        let born = self.born.is_none() || other.born.is_none() || self.born == other.born;
        (self.device, self.inode) == (other.device, other.inode) && born
    }
}

/// Prefix of the config stamp of a project that was missing at the last check or has been displaced
/// by another project. For a missing project, the reason follows the prefix.
pub const GONE: &str = "gone";

/// Returns the config stamp of a project that is missing for the reason `why`.
pub fn gone(why: &str) -> String {
    format!("{GONE}: {why}")
}

/// Returns the reason why a project with this config stamp is missing, or `None` if the project is
/// neither missing nor displaced.
pub fn why_gone(stamp: &str) -> Option<&str> {
    let rest = stamp.strip_prefix(GONE)?;
    Some(rest.strip_prefix(": ").unwrap_or("the project is gone"))
}

impl Project {
    /// Returns the path at which another project has replaced this one, or `None` if this project
    /// is not displaced.
    pub fn displaced_from(&self) -> Option<PathBuf> {
        let suffix = format!(" was {}", self.id);
        let path = self.path.to_str()?.strip_suffix(&suffix)?;
        Some(PathBuf::from(path))
    }
}

impl Store {
    /// Registers `project`, or updates its path and folder identity. Another project that was
    /// registered at this path is displaced: its history is kept under a placeholder path, and its
    /// jobs are not due until it is registered again and its configuration is read.
    ///
    /// # Errors
    /// Returns [`StoreError::NotText`] if the path is not UTF-8, or another [`StoreError`] if the
    /// database fails.
    pub fn register(&mut self, project: &Project, now: Timestamp) -> Result<()> {
        let path = text(&project.path)?;
        self.write(|tx| {
            tx.change(
                "UPDATE jobs SET enabled = 0, next_due = NULL WHERE project IN
                   (SELECT id FROM projects WHERE path = ?2 AND id <> ?1)",
                params![project.id, path],
            )?;
            tx.change(
                "UPDATE projects SET path = path || ' was ' || id, config_stamp = ?3
                 WHERE path = ?2 AND id <> ?1",
                params![project.id, path, GONE],
            )?;
            let (device, inode) =
                (project.node.device.cast_signed(), project.node.inode.cast_signed());
            let (owns, born) = (project.own, project.node.born);
            tx.change(
                "INSERT INTO projects (id, path, device, inode, created, owns_id, folder_created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO UPDATE SET path = ?2, device = ?3, inode = ?4,
                   owns_id = max(owns_id, ?6), folder_created = ?7",
                params![project.id, path, device, inode, millis(now), owns, born],
            )?;
            Ok(())
        })
    }

    /// Records that a project is missing, with a `stamp` from [`gone`]. Until the project
    /// reappears, its scheduled times are recorded as missed.
    pub fn set_config_stamp(&mut self, project: &ProjectId, stamp: &str) -> Result<()> {
        let sql = "UPDATE projects SET config_stamp = ?2 WHERE id = ?1";
        self.write(|tx| tx.change(sql, params![project, stamp]).map(drop))
    }

    /// Returns all projects that are not displaced, ordered by path.
    pub fn projects(&self) -> Result<Vec<Project>> {
        let sql = select("path NOT LIKE '% was ' || id ORDER BY path");
        self.view(|db| db.all(&sql, [], project))
    }

    /// Returns the stored projection of each project's configuration, or of the project `only`. A
    /// projection comes from the last configuration that could be read.
    pub fn projections(&self, only: Option<&ProjectId>) -> Result<BTreeMap<ProjectId, String>> {
        let sql = "SELECT id, projection FROM projects
                   WHERE projection IS NOT NULL AND (?1 IS NULL OR id = ?1)";
        let found: Vec<(ProjectId, String)> =
            self.view(|db| db.all(sql, [only], |row| row.try_into()))?;
        Ok(found.into_iter().collect())
    }

    /// Returns all projects, including displaced ones, ordered by path.
    pub fn every_project(&self) -> Result<Vec<Project>> {
        self.view(|db| db.all(&select("1 ORDER BY path"), [], project))
    }

    /// Returns the project that is registered at this exact path, if there is one.
    pub fn project_at(&self, path: &Path) -> Result<Option<Project>> {
        self.view(|db| db.first(&select("path = ?1"), [path.to_str()], project))
    }

    pub fn project(&self, wanted: &ProjectId) -> Result<Option<Project>> {
        self.view(|db| db.first(&select("id = ?1"), [wanted], project))
    }
}

/// Returns a query for the rows that match the condition `wheres`, with the columns for
/// [`project`].
fn select(wheres: &str) -> String {
    format!(
        "SELECT id, path, device, inode, folder_created, config_stamp, owns_id FROM projects
         WHERE {wheres}"
    )
}

fn project(row: &Row<'_>) -> rusqlite::Result<Project> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Project {
        id: row.get(0)?,
        path: PathBuf::from(row.get::<_, String>(1)?),
        node: Node { device: number(2)?, inode: number(3)?, born: row.get(4)? },
        config_stamp: row.get(5)?,
        own: row.get(6)?,
    })
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| StoreError::NotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_inode_is_a_different_folder() {
        let born = |born| Node { born, ..Node::new(1, 2) };
        assert!(born(Some(5)).is(&born(Some(5))));
        assert!(!born(Some(5)).is(&born(Some(6))));
        // An unknown creation time matches every creation time.
        assert!(born(None).is(&born(Some(6))) && born(Some(6)).is(&born(None)));
        assert!(!born(None).is(&Node::new(1, 3)) && !born(None).is(&Node::new(2, 2)));
    }
}
