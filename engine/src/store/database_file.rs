//! Opens the lock file, copies the database and runs SQLite's checks. This module must never change
//! a row.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{Result, StoreError, cannot_write, sql_error};
use crate::files::{open_host, open_with, sync_folder};

/// Returns the path of one of SQLite's files next to the database. `ending` is `-wal` or `-shm`.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Opens the lock file, which every writer locks. Creates the file and its folder if needed.
pub(super) fn lock_file(path: &Path) -> Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(cannot_write(path))?;
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    open_with(&mut options, folder.join("database.lock")).map_err(cannot_write(path))
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Syncs the folder that contains a file.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Makes a file accessible only to its owner.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// Writes a copy of an open database to `target`, which must not exist yet, and syncs the copy. The
/// copy's name is durable only after [`sync_folder_of`].
pub(super) fn copy_into(db: &Connection, path: &Path, target: &Path) -> Result<()> {
    let cannot = |why: String| StoreError::CannotWrite { path: target.to_owned(), why };
    let name = target.to_str().ok_or_else(|| cannot("the path is not UTF-8".to_owned()))?;
    // `VACUUM INTO` reads a consistent snapshot, so other processes can continue to write.
    db.execute("VACUUM INTO ?1", [name]).map_err(|error| match sql_error(path)(error) {
        StoreError::CannotWrite { why, .. } => cannot(why),
        other => other,
    })?;
    make_private(target)
        .and_then(|()| open_host(target)?.sync_all())
        .map_err(|error| cannot(error.to_string()))
}

/// Runs SQLite's quick check of the whole file, which does not compare indexes with their tables.
pub(super) fn quick_check(db: &Connection, path: &Path) -> Result<()> {
    run_check(db, path, "PRAGMA quick_check(1)")
}

/// Runs SQLite's full check of every page, row and index. It does not check foreign keys.
pub(super) fn full_check(db: &Connection, path: &Path) -> Result<()> {
    run_check(db, path, "PRAGMA integrity_check(1)")
}

fn run_check(db: &Connection, path: &Path, pragma: &str) -> Result<()> {
    let finding: String = db.query_row(pragma, [], |row| row.get(0)).map_err(sql_error(path))?;
    if finding == "ok" {
        return Ok(());
    }
    Err(StoreError::Damaged { path: path.to_owned(), why: finding })
}
