//! The repositories that runner looks after.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};

use super::{Fault, Result, Store, StoreError, id, millis};
use crate::ids::ProjectId;

/// A registered repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its id, as `runner.toml` names it.
    pub id: ProjectId,
    /// Its canonical path when it was registered.
    pub path: PathBuf,
    /// Which folder it was.
    pub node: Node,
    /// The stat of the files that its jobs were read from; empty before the first reading.
    pub config_stamp: String,
    /// The id was seen in its own git folder: it is not only the seed that every clone is born with.
    pub own: bool,
}

/// Identifies a folder, whatever its path is and whatever it contains.
///
/// A file system gives the inode of a removed folder to the next one that is made, so the time at which
/// the folder was made counts too, where the file system keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The device that it lies on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; `None` where that is not known.
    pub born: Option<i64>,
}

impl Node {
    /// Returns the folder of this inode, whenever it was made.
    pub const fn new(device: u64, inode: u64) -> Self {
        Self { device, inode, born: None }
    }

    /// Returns the folder that `data` describes.
    pub fn of(data: &Metadata) -> Self {
        let born = data.created().ok();
        let born = born.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Self {
            device: data.dev(),
            inode: data.ino(),
            born: born.and_then(|span| i64::try_from(span.as_nanos()).ok()),
        }
    }

    /// Returns whether both are one folder, as far as both are known.
    pub fn is(&self, other: &Self) -> bool {
        let born = self.born.is_none() || other.born.is_none() || self.born == other.born;
        (self.device, self.inode) == (other.device, other.inode) && born
    }
}

/// How the stamp of a project begins whose folder was not there when it was last looked for; behind it
/// stands why, in words.
pub const GONE: &str = "gone";

/// Returns the config stamp of a project that is missing for this reason.
pub fn gone(why: &str) -> String {
    format!("{GONE}: {why}")
}

/// Returns the reason why a project with this stamp is missing; `None` for one that exists.
pub fn why_gone(stamp: &str) -> Option<&str> {
    let rest = stamp.strip_prefix(GONE)?;
    Some(rest.strip_prefix(": ").unwrap_or("the project is gone"))
}

impl Project {
    /// Returns the path that another project has taken over, if this project was displaced from it.
    pub fn displaced_from(&self) -> Option<PathBuf> {
        let suffix = format!(" was {}", self.id);
        let path = self.path.to_str()?.strip_suffix(&suffix)?;
        Some(PathBuf::from(path))
    }
}

impl Store {
    /// Registers `project`, or brings its place up to date. Another project that had this path is no
    /// more: its history stays under a path that cannot exist, and nothing of it is due again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn register(&mut self, project: &Project, now: Timestamp) -> Result<()> {
        let path = text(&project.path)?;
        self.write(|tx| {
            tx.prepare_cached("UPDATE jobs SET enabled = 0, next_due = NULL WHERE project IN
                   (SELECT id FROM projects WHERE path = ?2 AND id <> ?1)")?.execute(params![project.id.as_str(), path],
            )?;
            tx.prepare_cached("UPDATE projects SET path = path || ' was ' || id, config_stamp = ?3
                 WHERE path = ?2 AND id <> ?1")?.execute(params![project.id.as_str(), path, GONE],
            )?;
            tx.prepare_cached("INSERT INTO projects (id, path, device, inode, created, owns_id, folder_created) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO UPDATE SET path = ?2, device = ?3, inode = ?4, owns_id = max(owns_id, ?6), folder_created = ?7")?.execute(params![
                    project.id.as_str(),
                    path,
                    project.node.device.cast_signed(),
                    project.node.inode.cast_signed(),
                    millis(now),
                    project.own,
                    project.node.born
                ],
            )?;
            Ok(())
        })
    }

    /// Notes that a project is not there: `stamp` is what [`gone`] makes of the reason. Its jobs stay,
    /// and what is due of them is missed until it is back.
    pub fn mark_gone(&mut self, project: &ProjectId, stamp: &str) -> Result<()> {
        self.write(|tx| {
            tx.prepare_cached("UPDATE projects SET config_stamp = ?2 WHERE id = ?1")?
                .execute(params![project.as_str(), stamp])?;
            Ok(())
        })
    }

    /// Returns all projects, by path.
    pub fn projects(&self) -> Result<Vec<Project>> {
        self.view(|db| {
            let mut statement = db.prepare(
                "SELECT id, path, device, inode, config_stamp, owns_id, folder_created FROM projects
                 WHERE path NOT LIKE '% was ' || id ORDER BY path",
            )?;
            let rows = statement.query_map([], raw)?;
            rows.map(|row| project(row?)).collect()
        })
    }

    /// Returns the stored projection of each project's configuration, made from the files with the
    /// project's stamp or from the last ones before. `only` selects one project.
    pub fn projections(&self, only: Option<&ProjectId>) -> Result<BTreeMap<ProjectId, String>> {
        self.view(|db| {
            let some = match only {
                Some(_) => "AND id = ?1",
                None => "AND ?1 IS NULL",
            };
            let mut statement = db.prepare(&format!(
                "SELECT id, projection FROM projects WHERE projection IS NOT NULL {some}"
            ))?;
            let rows = statement.query_map([only.map(ProjectId::as_str)], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?))
            })?;
            rows.map(|row| {
                let (project, kept) = row?;
                Ok((id(project)?, kept))
            })
            .collect()
        })
    }

    /// Returns all projects by path, including those whose path another project has taken over.
    pub fn every_project(&self) -> Result<Vec<Project>> {
        self.view(|db| {
            let mut statement = db.prepare(
                "SELECT id, path, device, inode, config_stamp, owns_id, folder_created FROM projects ORDER BY path",
            )?;
            let rows = statement.query_map([], raw)?;
            rows.map(|row| project(row?)).collect()
        })
    }

    /// Returns the project that is registered at exactly this path.
    pub fn project_at(&self, path: &Path) -> Result<Option<Project>> {
        let Some(path) = path.to_str() else {
            return Ok(None);
        };
        self.view(|db| {
            db.prepare_cached(
                "SELECT id, path, device, inode, config_stamp, owns_id, folder_created FROM projects WHERE path = ?1",
            )?
            .query_row([path], raw)
            .optional()?
            .map(project)
            .transpose()
        })
    }

    /// Returns one project.
    pub fn project(&self, wanted: &ProjectId) -> Result<Option<Project>> {
        self.view(|db| {
            db.prepare_cached(
                "SELECT id, path, device, inode, config_stamp, owns_id, folder_created FROM projects WHERE id = ?1",
            )?
            .query_row([wanted.as_str()], raw)
            .optional()?
            .map(project)
            .transpose()
        })
    }
}

type ProjectColumns = (String, String, i64, i64, String, bool, Option<i64>);

fn raw(row: &Row<'_>) -> rusqlite::Result<ProjectColumns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
}

fn project(
    (name, path, device, inode, config_stamp, own, born): ProjectColumns,
) -> Result<Project, Fault> {
    Ok(Project {
        id: id(name)?,
        path: PathBuf::from(path),
        node: Node { device: device.cast_unsigned(), inode: inode.cast_unsigned(), born },
        config_stamp,
        own,
    })
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| StoreError::Nonsense {
        path: path.to_owned(),
        why: "a project's path must be UTF-8".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_given_again_is_another_folder() {
        let born = |born| Node { born, ..Node::new(1, 2) };
        assert!(born(Some(5)).is(&born(Some(5))));
        assert!(!born(Some(5)).is(&born(Some(6))));
        // A birth time that is unknown on one side does not decide the comparison.
        assert!(born(None).is(&born(Some(6))) && born(Some(6)).is(&born(None)));
        assert!(!born(None).is(&Node::new(1, 3)) && !born(None).is(&Node::new(2, 2)));
    }
}
