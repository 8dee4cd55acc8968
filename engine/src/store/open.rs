//! Opens, creates and migrates the database file.
//!
//! A new database is created under another name and renamed once it is complete. An empty file with
//! the database's name is therefore always a sign of damage.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::database_file::{beside, lock_file, quick_check, remove, sync_folder_of};
use super::format::{self, APPLICATION_ID, STEPS};
use super::{Result, Store, StoreError, cannot_write, file_length, restore, sql_error};

/// The first SQLite release that fixes the WAL-reset corruption bug.
const OLDEST_SQLITE: i32 = 3_051_003;
/// Maximum time that a connection waits for another connection's lock on the database.
pub(super) const BUSY: Duration = Duration::from_secs(20);
/// Number of cached prepared statements, enough for all statements that a tick executes. Preparing
/// a statement costs several times as much as executing it.
pub(super) const STATEMENTS: usize = 128;
/// Length in bytes to which SQLite truncates a longer log after writing it back.
const LOG_KEPT: i64 = 16 << 20;

impl Store {
    /// Opens the database for writing, and creates or migrates it if needed.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] if a migration or the completion of a restore is needed while
    /// another process is using the database, or another [`StoreError`]. A damaged or newer
    /// database is neither replaced nor migrated.
    ///
    /// # Panics
    /// Panics if the linked version of SQLite is older than 3.51.3, which fixes the WAL-reset
    /// corruption bug.
    pub fn open(path: &Path) -> Result<Self> {
        assert!(
            rusqlite::version_number() >= OLDEST_SQLITE,
            "this build uses a version of SQLite that can corrupt the database; build with the bundled version"
        );
        Self::open_with(path, STEPS)
    }

    /// Opens the database like [`Store::open`], but with the migration steps `steps`.
    pub(super) fn open_with(path: &Path, steps: &[&str]) -> Result<Self> {
        let lock = lock_file(path)?;
        lock.lock_shared().map_err(cannot_write(path))?;
        if path.exists() && !restore::is_half_done(path) {
            let (db, found) = connect_existing(path, steps)?;
            if found == steps.len() as i64 {
                return Ok(Self { db, path: path.to_owned(), _open: Some(lock), guard: None });
            }
        }
        exclusively(&lock, path, || make_or_migrate(path, steps))?;
        let (db, _) = connect_existing(path, steps)?;
        Ok(Self { db, path: path.to_owned(), _open: Some(lock), guard: None })
    }

    /// Opens the database read-only. SQLite may create its log and index files next to the
    /// database.
    ///
    /// # Errors
    /// Returns [`StoreError::Missing`] if there is no database, [`StoreError::HalfRestored`] if a
    /// restore was interrupted, [`StoreError::Older`] if the database must be migrated first, or
    /// another [`StoreError`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, STEPS)
    }

    /// Opens the database like [`Store::read`], but with the migration steps `steps`.
    pub(super) fn read_with(path: &Path, steps: &[&str]) -> Result<Self> {
        if restore::is_half_done(path) {
            return Err(StoreError::HalfRestored { path: path.to_owned() });
        }
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Missing { path: path.to_owned() }),
            // The file may exist, but its folder cannot be read.
            Err(error) => {
                return Err(StoreError::CannotRead {
                    path: path.to_owned(),
                    why: error.to_string(),
                });
            }
        }
        let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sql_error(path))?;
        let (found, known) = (format::read(&db, path, steps)?, steps.len() as i64);
        check_length(&db, path, PendingLog::WriteBack)?;
        if found < known {
            return Err(StoreError::Older { path: path.to_owned(), found, known });
        }
        Ok(Self { db, path: path.to_owned(), _open: None, guard: None })
    }

    /// Creates a database in memory, for dry runs, replays and tests.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if SQLite cannot create the database.
    pub fn in_memory() -> Result<Self> {
        let path = Path::new(":memory:");
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_in_memory_with_flags(flags).map_err(sql_error(path))?;
        db.pragma_update(None, "foreign_keys", true).map_err(sql_error(path))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        format::migrate(&mut db, path, STEPS)?;
        Ok(Self { db, path: path.to_owned(), _open: None, guard: None })
    }

    /// Writes a consistent copy of the database to `path`, which must not exist yet.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the copy cannot be written.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let done = self.db.execute("VACUUM INTO ?1", [path.to_string_lossy()]);
        done.map(drop).map_err(sql_error(&self.path))
    }

    /// Runs SQLite's quick check on the whole file.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] with the first problem found, or another [`StoreError`] if
    /// the check cannot run.
    pub fn check(&self) -> Result<()> {
        quick_check(&self.db, &self.path)
    }
}

/// Maximum number of times to check the length of a short file. After that, the file is left to the
/// daily check.
const SHORT_CHECKS: u32 = 20;

/// Specifies how the length check treats pages that are only in the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingLog {
    /// The check writes the pages back if the connection can write.
    WriteBack,
    /// The check changes nothing.
    Leave,
}

/// Checks whether pages are missing from a file that is shorter than its header indicates. A short
/// file can be complete, because its last pages may still be only in the log.
pub(super) fn check_length(db: &Connection, path: &Path, pending: PendingLog) -> Result<()> {
    let lengths = || file_length::lengths(path).map_err(cannot_write(path));
    let mut seen = lengths()?;
    if !seen.is_short() {
        return Ok(());
    }
    quick_check(db, path)?;
    let damaged = StoreError::Damaged {
        path: path.to_owned(),
        why: "it is shorter than its header states".to_owned(),
    };
    if pending == PendingLog::Leave || db.is_readonly("main").unwrap_or(true) {
        // Without a log, no pages can be pending.
        let no_log = fs::metadata(beside(path, "-wal")).map_or(true, |data| data.len() == 0);
        return match no_log && lengths()? == seen {
            true => Err(damaged),
            false => Ok(()),
        };
    }
    for _ in 0..SHORT_CHECKS {
        // After a complete checkpoint, the file contains every page of the log. If the file is
        // still short and no other process has changed it, pages are missing.
        let whole = db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                let (busy, log, moved): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(!busy && log == moved)
            })
            .map_err(sql_error(path))?;
        let now = lengths()?;
        if !now.is_short() {
            return Ok(());
        }
        if whole && now == seen {
            return Err(damaged);
        }
        seen = now;
        std::thread::yield_now();
    }
    Ok(())
}

/// Runs `work` while holding `lock` exclusively, and then takes the shared lock again.
fn exclusively(lock: &File, path: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    lock.unlock().map_err(cannot_write(path))?;
    // Creating a file takes only milliseconds, so all processes wait for it. A migration, or the
    // completion of a restore, would have to wait until all other processes close the database, so
    // it fails instead.
    if path.exists() || restore::is_half_done(path) {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(cannot_write(path)(error)),
        }
    } else {
        lock.lock().map_err(cannot_write(path))?;
    }
    let done = work();
    lock.unlock().map_err(cannot_write(path))?;
    lock.lock_shared().map_err(cannot_write(path))?;
    done
}

fn make_or_migrate(path: &Path, steps: &[&str]) -> Result<()> {
    if restore::is_half_done(path) {
        restore::finish(path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    if path.exists() {
        // The file has an older format, unless another process created it or a restore has just
        // been completed.
        let mut db = connect(path, flags).map_err(sql_error(path))?;
        if format::read(&db, path, steps)? == steps.len() as i64 {
            return Ok(());
        }
        prepare_writes(&db).map_err(sql_error(path))?;
        return format::migrate_file(&mut db, path, steps);
    }
    let draft = path.with_extension("new");
    remove(&draft).map_err(cannot_write(path))?;
    let mut db = connect(&draft, flags).map_err(sql_error(path))?;
    prepare_writes(&db).map_err(sql_error(path))?;
    db.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql_error(path))?;
    format::migrate(&mut db, path, steps)?;
    db.close().map_err(|(_, error)| sql_error(path)(error))?;
    // The new database must not replay the log of an earlier database that was moved away.
    for ending in ["-wal", "-shm"] {
        let stale = beside(path, ending);
        if stale.exists() {
            fs::rename(&stale, beside(&stale, ".orphaned")).map_err(cannot_write(path))?;
        }
    }
    fs::rename(&draft, path).map_err(cannot_write(path))?;
    sync_folder_of(path).map_err(cannot_write(path))
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}

/// Sets the connection's options for writing. The first option changes the file.
fn prepare_writes(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
    db.pragma_update(None, "foreign_keys", true)
}

/// Opens an existing database for writing. Returns the connection and the file's format.
fn connect_existing(path: &Path, steps: &[&str]) -> Result<(Connection, i64)> {
    if fs::metadata(path).map_or(0, |data| data.len()) == 0 {
        return Err(StoreError::Damaged { path: path.to_owned(), why: "it is empty".to_owned() });
    }
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sql_error(path))?;
    // A database of another program or of a later format must stay as it is.
    let format = format::read(&db, path, steps)?;
    prepare_writes(&db).map_err(sql_error(path))?;
    check_length(&db, path, PendingLog::WriteBack)?;
    Ok((db, format))
}
