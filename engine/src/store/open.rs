//! Opening, making and migrating the file.
//!
//! A new database is made under another name and renamed into place whole, so that an empty file
//! under its own name is always damage and never a birth that was interrupted.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::crash_points::CrashPoints;
use super::database_file::{beside, lock_file, quick_check, remove, sync_folder_of};
use super::format::{self, APPLICATION_ID, STEPS};
use super::{Result, Store, StoreError, cannot_write, file_length, restore, sql_error};

/// The first release with the fix for the WAL-reset corruption.
const OLDEST_SQLITE: i32 = 3_051_003;
/// How long a writer waits for another's transaction; each of ours is short.
pub(super) const BUSY: Duration = Duration::from_secs(20);
/// All of a tick's statements are kept prepared: preparing one costs several times its execution.
pub(super) const STATEMENTS: usize = 128;
/// The length in bytes to which SQLite cuts a log that it has written back.
const LOG_KEPT: i64 = 16 << 20;

impl Store {
    /// Opens the database for writing, making or migrating it where that is needed.
    ///
    /// # Errors
    /// See [`StoreError`]; a damaged or newer database is left exactly as it is.
    pub fn open(path: &Path) -> Result<Self> {
        assert!(
            rusqlite::version_number() >= OLDEST_SQLITE,
            "built with an SQLite that can corrupt its log; build with the bundled one"
        );
        Self::open_with(path, STEPS)
    }

    /// Opens the database as a program that knows these steps.
    pub(super) fn open_with(path: &Path, steps: &[&str]) -> Result<Self> {
        let lock = lock_file(path)?;
        lock.lock_shared().map_err(cannot_write(path))?;
        if path.exists() && !restore::is_half_done(path) {
            let (db, found) = connect_existing(path, steps)?;
            if found == steps.len() as i64 {
                return Ok(Self { db, path: path.to_owned(), _open: Some(lock), fuse: None });
            }
        }
        exclusively(&lock, path, || make_or_migrate(path, steps))?;
        let (db, _) = connect_existing(path, steps)?;
        Ok(Self { db, path: path.to_owned(), _open: Some(lock), fuse: None })
    }

    /// Opens the database for reading only; never makes or changes anything.
    ///
    /// # Errors
    /// See [`StoreError`]; [`StoreError::Missing`] when there is none.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, STEPS)
    }

    /// Opens the database for reading as a program that knows these steps.
    pub(super) fn read_with(path: &Path, steps: &[&str]) -> Result<Self> {
        if restore::is_half_done(path) {
            return Err(StoreError::HalfRestored { path: path.to_owned() });
        }
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Missing { path: path.to_owned() }),
            // A folder that cannot be read does not mean that the file is missing.
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
        Ok(Self { db, path: path.to_owned(), _open: None, fuse: None })
    }

    /// Creates a database in memory, for simulations.
    ///
    /// # Errors
    /// Returns [`StoreError`].
    pub fn in_memory() -> Result<Self> {
        let path = Path::new(":memory:");
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_in_memory_with_flags(flags).map_err(sql_error(path))?;
        db.pragma_update(None, "foreign_keys", true).map_err(sql_error(path))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        format::migrate(&mut db, path, STEPS)?;
        Ok(Self { db, path: path.to_owned(), _open: None, fuse: None })
    }

    /// Lets the simulated process that uses this database die after `commits` further transactions:
    /// every later one fails. `None` is the next process, which lives.
    pub fn set_fuse(&mut self, commits: Option<u32>) {
        self.fuse = commits;
    }

    /// Writes a complete copy, consistent as of one time, to a file that does not exist yet.
    ///
    /// # Errors
    /// Returns [`StoreError`].
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let done = self.db.execute("VACUUM INTO ?1", [path.to_string_lossy()]);
        done.map(drop).map_err(sql_error(&self.path))
    }

    /// Runs SQLite's quick check of the whole file.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] with the first finding.
    pub fn check(&self) -> Result<()> {
        quick_check(&self.db, &self.path)
    }
}

/// How often a file that looks too short is looked at before it is left to the daily check.
const SHORT_LOOKS: u32 = 20;

/// The treatment of pages that are still in the log while the length of the file is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingLog {
    /// They are written back where the connection may write.
    WriteBack,
    /// The file stays exactly as it is.
    Leave,
}

/// Checks a file that is shorter than its header states: pages may be missing, or may still be on
/// their way from the log.
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
        // Without a log nothing is on its way.
        let no_log = fs::metadata(beside(path, "-wal")).map_or(true, |data| data.len() == 0);
        return match no_log && lengths()? == seen {
            true => Err(damaged),
            false => Ok(()),
        };
    }
    for _ in 0..SHORT_LOOKS {
        // After a complete checkpoint every page that was on its way is in the file; a page that
        // was never written is not. A write that another process begins meanwhile changes the
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

/// Exchanges the shared lock for the exclusive one around `work`.
fn exclusively(lock: &File, path: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    lock.unlock().map_err(cannot_write(path))?;
    // Creating the file takes milliseconds, and every process that waits for it wants the same. A
    // migration would wait for as long as another process has the old format open.
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
        restore::finish(path, &mut CrashPoints::default())?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    if path.exists() {
        // Another process made it meanwhile, or it has an older format.
        let mut db = connect(path, flags).map_err(sql_error(path))?;
        if format::read(&db, path, steps)? == steps.len() as i64 {
            return Ok(());
        }
        return format::migrate_file(&mut db, path, steps, &mut CrashPoints::default());
    }
    let draft = path.with_extension("new");
    remove(&draft).map_err(cannot_write(path))?;
    let mut db = connect(&draft, flags).map_err(sql_error(path))?;
    db.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql_error(path))?;
    format::migrate(&mut db, path, steps)?;
    db.close().map_err(|(_, error)| sql_error(path)(error))?;
    // A log of an earlier database that was moved away must not be replayed onto this one.
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

/// Opens an existing file and reads its format, after making sure that it is ours.
fn connect_existing(path: &Path, steps: &[&str]) -> Result<(Connection, i64)> {
    if fs::metadata(path).map_or(0, |data| data.len()) == 0 {
        return Err(StoreError::Damaged { path: path.to_owned(), why: "it is empty".to_owned() });
    }
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sql_error(path))?;
    let format = format::read(&db, path, steps)?;
    check_length(&db, path, PendingLog::WriteBack)?;
    Ok((db, format))
}
