//! Backup copies of the database: complete, consistent as of one time, made while other processes
//! write, and checked before anything relies on them. This module must never overwrite an existing
//! file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::crash_points::CrashPoints;
use super::database_file::{copy_into, full_check, sync_folder_of};
use super::maintenance::{self, Task};
use super::{Result, Store, StoreError, cannot_write, format, sql_error};

/// A backup copy that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupCopy {
    /// Where it lies.
    pub path: PathBuf,
    /// Its format.
    pub format: i64,
    /// How long it is.
    pub bytes: u64,
    /// The time whose state the copy holds, where the copy records it.
    pub made: Option<Timestamp>,
}

/// Looks at a copy without changing it: that it is a database, whole, and of a format that we know.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Newer`], [`StoreError::Stranger`], each about the copy.
pub fn inspect_copy(path: &Path) -> Result<BackupCopy> {
    let cannot =
        |error: io::Error| StoreError::NoBackup { path: path.to_owned(), why: error.to_string() };
    let data = fs::metadata(path).map_err(cannot)?;
    if !data.is_file() {
        return Err(cannot(io::Error::other("it is no file")));
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(sql_error(path))?;
    let format = format::read(&db, path, format::STEPS)?;
    full_check(&db, path)?;
    let made = maintenance::last(&db, Task::Copied).map_err(|fault| fault.at(path))?;
    Ok(BackupCopy { path: path.to_owned(), format, bytes: data.len(), made })
}

impl Store {
    /// Writes a whole copy as of `now` to `target`, looks at it, and only then gives it its name.
    /// Other processes go on reading and writing.
    ///
    /// # Errors
    /// [`StoreError::CannotWrite`], also when `target` is there; [`StoreError::Damaged`] when what
    /// was copied is damaged: there is no copy then.
    pub fn backup(
        &mut self,
        target: &Path,
        now: Timestamp,
        dying: &mut CrashPoints,
    ) -> Result<BackupCopy> {
        let cannot = cannot_write(target);
        if target.symlink_metadata().is_ok() {
            return Err(cannot(io::Error::other("it is there already")));
        }
        let name =
            target.file_name().ok_or_else(|| cannot(io::Error::other("the path names no file")))?;
        // The copy itself records the time whose state it holds.
        dying.before("note the time of the copy");
        self.record_maintenance(Task::Copied, "", now)?;
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}.new", std::process::id()));
        let draft = target.with_file_name(draft);
        let _of_a_dead_process = fs::remove_file(&draft);
        dying.before("write the copy");
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
                dying.before("name the copy");
                // A link, for it never takes the place of a file that is there.
                fs::hard_link(&draft, target).map_err(&cannot)?;
                Ok(copy)
            });
        dying.before("remove the draft of the copy");
        let _gone_or_in_the_way_of_nobody = fs::remove_file(&draft);
        let copy = done?;
        sync_folder_of(target).map_err(cannot)?;
        dying.before("note the copy");
        self.record_maintenance(Task::Backup, &target.to_string_lossy(), now)?;
        Ok(BackupCopy { path: target.to_owned(), ..copy })
    }
}
