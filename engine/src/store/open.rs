//! Opens, creates and migrates the database file.
//!
//! A new database is created under another name, and renamed once it is complete. An empty file
//! under the database's name is therefore always damage, never an interrupted creation.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::database_file::{beside, lock_file, quick_check, remove, sync_folder_of};
use super::format::{self, APPLICATION_ID, STEPS};
use super::{Result, Store, StoreError, cannot_write, file_length, restore, sql_error};

/// The first release with the fix for the WAL-reset corruption.
const OLDEST_SQLITE: i32 = 3_051_003;
/// Maximum time that a writer waits for another transaction. All of runner's transactions are
/// short.
pub(super) const BUSY: Duration = Duration::from_secs(20);
/// Number of statements that stay prepared, enough for all statements of a tick. Preparing a
/// statement costs several times as much as executing it.
pub(super) const STATEMENTS: usize = 128;
/// The length in bytes to which SQLite truncates a log after writing it back.
const LOG_KEPT: i64 = 16 << 20;

impl Store {
    /// Opens the database for writing. Creates or migrates the database if needed.
    ///
    /// # Errors
    /// Returns a [`StoreError`]. A damaged or newer database is not changed.
    pub fn open(path: &Path) -> Result<Self> {
        assert!(
            rusqlite::version_number() >= OLDEST_SQLITE,
            "built with an SQLite that can corrupt its log; build with the bundled one"
        );
        Self::open_with(path, STEPS)
    }

    /// Opens the database for writing with the migration steps `steps`.
    pub(super) fn open_with(path: &Path, steps: &[&str]) -> Result<Self> {
        let lock = lock_file(path)?;
        lock.lock_shared().map_err(cannot_write(path))?;
        if path.exists() && !restore::is_half_done(path) {
            let (db, found) = connect_existing(path, steps)?;
            if found == steps.len() as i64 {
                return Ok(Self { db, path: path.to_owned(), _open: Some(lock) });
            }
        }
        exclusively(&lock, path, || make_or_migrate(path, steps))?;
        let (db, _) = connect_existing(path, steps)?;
        Ok(Self { db, path: path.to_owned(), _open: Some(lock) })
    }

    /// Opens the database read-only, and never creates or changes a file.
    ///
    /// # Errors
    /// Returns a [`StoreError`], which is [`StoreError::Missing`] if there is no database.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, STEPS)
    }

    /// Opens the database read-only with the migration steps `steps`.
    pub(super) fn read_with(path: &Path, steps: &[&str]) -> Result<Self> {
        if restore::is_half_done(path) {
            return Err(StoreError::HalfRestored { path: path.to_owned() });
        }
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Missing { path: path.to_owned() }),
            // If the folder cannot be read, the file may still exist.
            Err(error) => {
                return Err(StoreError::CannotWrite {
                    path: path.to_owned(),
                    why: format!("cannot read its folder: {error}"),
                });
            }
        }
        let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sql_error(path))?;
        let (found, known) = (format::read(&db, path, steps)?, steps.len() as i64);
        check_length(&db, path, PendingLog::WriteBack)?;
        if found < known {
            return Err(StoreError::Older { path: path.to_owned(), found, known });
        }
        Ok(Self { db, path: path.to_owned(), _open: None })
    }

    /// Creates a database in memory, for simulations.
    ///
    /// # Errors
    /// Returns a [`StoreError`].
    pub fn in_memory() -> Result<Self> {
        let path = Path::new(":memory:");
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_in_memory_with_flags(flags).map_err(sql_error(path))?;
        db.pragma_update(None, "foreign_keys", true).map_err(sql_error(path))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        format::migrate(&mut db, path, STEPS)?;
        Ok(Self { db, path: path.to_owned(), _open: None })
    }

    /// Writes a complete copy, consistent as of one time, to a file that must not exist.
    ///
    /// # Errors
    /// Returns a [`StoreError`].
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let done = self.db.execute("VACUUM INTO ?1", [path.to_string_lossy()]);
        done.map(drop).map_err(sql_error(&self.path))
    }

    /// Runs SQLite's quick check on the whole file.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] with the first finding.
    pub fn check(&self) -> Result<()> {
        quick_check(&self.db, &self.path)
    }
}

/// Maximum number of checks of a file that seems too short, before it is left to the daily check.
const SHORT_LOOKS: u32 = 20;

/// How pages that are only in the log are handled while the length of the file is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingLog {
    /// The pages are written back if the connection can write.
    WriteBack,
    /// The file is not changed.
    Leave,
}

/// Checks whether a file that is shorter than its header states has missing pages, or whether these
/// pages are still in the log.
pub(super) fn check_length(db: &Connection, path: &Path, pending: PendingLog) -> Result<()> {
    let lengths = || file_length::lengths(path).map_err(cannot_write(path));
    let mut seen = lengths()?;
    if !seen.is_short() {
        return Ok(());
    }
    quick_check(db, path)?;
    let damaged = StoreError::Damaged {
        path: path.to_owned(),
        why: "it is shorter than its own header says".to_owned(),
    };
    if pending == PendingLog::Leave || db.is_readonly("main").unwrap_or(true) {
        // Without a log, no page can be pending.
        let no_log = fs::metadata(beside(path, "-wal")).map_or(true, |data| data.len() == 0);
        return match no_log && lengths()? == seen {
            true => Err(damaged),
            false => Ok(()),
        };
    }
    for _ in 0..SHORT_LOOKS {
        // After a complete checkpoint, every page from the log is in the file, but a page that was
        // never written is still missing. A concurrent write by another process would change the
        // length in the header.
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

/// Runs `work` with an exclusive lock in place of the shared lock.
fn exclusively(lock: &File, path: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    lock.unlock().map_err(cannot_write(path))?;
    // Waiting is acceptable while the file is created: that takes milliseconds, and all waiting
    // processes need the file. A migration would have to wait as long as another process has the
    // old format open.
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
        // Another process has created the file in the meantime, or the file has an older format.
        let mut db = connect(path, flags).map_err(sql_error(path))?;
        if format::read(&db, path, steps)? == steps.len() as i64 {
            return Ok(());
        }
        return format::migrate_file(&mut db, path, steps);
    }
    let draft = path.with_extension("new");
    remove(&draft).map_err(cannot_write(path))?;
    let mut db = connect(&draft, flags).map_err(sql_error(path))?;
    db.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql_error(path))?;
    format::migrate(&mut db, path, steps)?;
    db.close().map_err(|(_, error)| sql_error(path)(error))?;
    // The log of an earlier database that was moved away must not be replayed on this database.
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
    let writes = flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    if writes {
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
        db.pragma_update(None, "foreign_keys", true)?;
    }
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}

/// Opens an existing file and reads its format after checking that it is a runner database.
fn connect_existing(path: &Path, steps: &[&str]) -> Result<(Connection, i64)> {
    if fs::metadata(path).map_or(0, |data| data.len()) == 0 {
        return Err(StoreError::Damaged { path: path.to_owned(), why: "it is empty".to_owned() });
    }
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sql_error(path))?;
    let format = format::read(&db, path, steps)?;
    check_length(&db, path, PendingLog::WriteBack)?;
    Ok((db, format))
}
