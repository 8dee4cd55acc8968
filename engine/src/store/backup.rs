//! Makes complete and consistent copies of the database. Other processes can write during a backup,
//! and each copy is checked before it is used. This module must never overwrite an existing file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::database_file::{copy_into, full_check, sync_folder_of};
use super::maintenance::{self, Task};
use super::{Result, Store, StoreError, cannot_write, format, sql_error};
use crate::failpoint;

/// A checked copy of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupCopy {
    pub path: PathBuf,
    /// The database format of the copy.
    pub format: i64,
    /// The length of the copy in bytes.
    pub bytes: u64,
    /// The time at which the copy was made, if the copy records this time.
    pub made: Option<Timestamp>,
}

/// Checks that a copy is an intact database in a known format, and returns its properties.
///
/// # Errors
/// Returns [`StoreError::NoBackup`] if the copy is inaccessible or not a file,
/// [`StoreError::Damaged`] if it is not an intact database, [`StoreError::Newer`] or
/// [`StoreError::Stranger`] if its format is unknown, or another [`StoreError`] if SQLite cannot
/// read it.
pub fn inspect_copy(path: &Path) -> Result<BackupCopy> {
    let cannot =
        |error: io::Error| StoreError::NoBackup { path: path.to_owned(), why: error.to_string() };
    let data = fs::metadata(path).map_err(cannot)?;
    if !data.is_file() {
        return Err(cannot(io::Error::other("it is not a file")));
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(sql_error(path))?;
    let format = format::read(&db, path, format::STEPS)?;
    full_check(&db, path)?;
    let made = maintenance::last(&db, Task::Copied).map_err(|fault| fault.at(path))?;
    Ok(BackupCopy { path: path.to_owned(), format, bytes: data.len(), made })
}

impl Store {
    /// Writes a copy, checks it, and then names it `target`. Other processes can read and write
    /// during the backup.
    ///
    /// # Errors
    /// Returns [`StoreError::CannotWrite`] if the copy cannot be written or `target` already
    /// exists, [`StoreError::Damaged`] if the database is damaged, in which case no copy is kept,
    /// or another [`StoreError`].
    pub fn backup(&mut self, target: &Path, now: Timestamp) -> Result<BackupCopy> {
        let cannot = cannot_write(target);
        if target.symlink_metadata().is_ok() {
            return Err(cannot(io::Error::other("it already exists")));
        }
        let name = target
            .file_name()
            .ok_or_else(|| cannot(io::Error::other("the path does not name a file")))?;
        // The time is recorded first, so the copy contains it.
        failpoint::before("note the time of the copy");
        self.record_maintenance(Task::Copied, "", now)?;
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}.new", std::process::id()));
        let draft = target.with_file_name(draft);
        let _of_a_dead_process = fs::remove_file(&draft);
        failpoint::before("write the copy");
        let done = copy_into(&self.db, &self.path, &draft)
            .and_then(|()| inspect_copy(&draft))
            .map_err(|error| match error {
                // Damage in the copy means that the original is damaged.
                StoreError::Damaged { why, .. } => {
                    StoreError::Damaged { path: self.path.clone(), why }
                }
                error => error,
            })
            .and_then(|copy| {
                failpoint::before("name the copy");
                // Unlike a rename, a hard link never replaces an existing file.
                fs::hard_link(&draft, target).map_err(&cannot)?;
                Ok(copy)
            });
        failpoint::before("remove the draft of the copy");
        let _may_remain = fs::remove_file(&draft);
        let copy = done?;
        sync_folder_of(target).map_err(cannot)?;
        failpoint::before("note the copy");
        self.record_maintenance(Task::Backup, &target.to_string_lossy(), now)?;
        Ok(BackupCopy { path: target.to_owned(), ..copy })
    }
}
