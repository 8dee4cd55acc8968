//! Opening, making and migrating the file.
//!
//! A new database is made under another name and renamed into place whole, so that an empty file
//! under its own name is always damage and never a birth that was interrupted.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::crash_points::CrashPoints;
use super::format::{self, APPLICATION_ID, PRESENT, STEPS};
use super::maintenance::LOG_KEPT;
use super::{Fault, Result, Store, StoreError, file_length, restore};
use crate::files::{open_with, sync_folder};

/// The first release with the fix for the WAL-reset corruption.
const OLDEST_SQLITE: i32 = 3_051_003;
/// How long a writer waits for another's transaction; each of ours is short.
pub(super) const BUSY: Duration = Duration::from_secs(20);
/// All of a tick's statements are kept prepared: preparing one costs several times its execution.
pub(super) const STATEMENTS: usize = 128;

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
        let lock = lock_file(path)?;
        lock.lock_shared().map_err(|error| StoreError::CannotWrite {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        if path.exists() && !restore::is_half_done(path) {
            let (db, found) = connect_existing(path)?;
            if found == PRESENT {
                return Ok(Self { db, path: path.to_owned(), _open: Some(lock), fuse: None });
            }
        }
        alone(&lock, path, || make_or_migrate(path))?;
        let (db, _) = connect_existing(path)?;
        Ok(Self { db, path: path.to_owned(), _open: Some(lock), fuse: None })
    }

    /// Opens the database for reading only; never makes or changes anything.
    ///
    /// # Errors
    /// See [`StoreError`]; [`StoreError::Missing`] when there is none.
    pub fn read(path: &Path) -> Result<Self> {
        if restore::is_half_done(path) {
            return Err(StoreError::HalfRestored { path: path.to_owned() });
        }
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => {
                return Err(StoreError::Missing { path: path.to_owned() });
            }
            // A folder that cannot be read does not mean that the file is missing.
            Err(error) => {
                return Err(StoreError::CannotWrite {
                    path: path.to_owned(),
                    why: format!("cannot read its folder: {error}"),
                });
            }
        }
        let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|f| f.at(path))?;
        let found = format::read(&db, path)?;
        format::recognise(&db, path, found)?;
        not_short(&db, path)?;
        if found < PRESENT {
            return Err(StoreError::Older { path: path.to_owned(), found, known: PRESENT });
        }
        Ok(Self { db, path: path.to_owned(), _open: None, fuse: None })
    }

    /// Creates a database in memory, for simulations.
    ///
    /// # Errors
    /// Returns [`StoreError`].
    pub fn in_memory() -> Result<Self> {
        let path = Path::new(":memory:");
        let sql = |error| Fault::Sql(error).at(path);
        let mut db = Connection::open_in_memory_with_flags(
            OpenFlags::default() | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(sql)?;
        db.pragma_update(None, "foreign_keys", true).map_err(sql)?;
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
        self.view(|db| {
            db.execute("VACUUM INTO ?1", [path.to_string_lossy()])?;
            Ok(())
        })
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

/// Opens the file by whose lock processes show each other that they have the database open.
pub(super) fn lock_file(path: &Path) -> Result<File> {
    let cannot = |error: std::io::Error| StoreError::CannotWrite {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(cannot)?;
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    open_with(&mut options, folder.join("database.lock")).map_err(cannot)
}

fn quick_check(db: &Connection, path: &Path) -> Result<()> {
    let finding: String = db
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| Fault::Sql(error).at(path))?;
    if finding == "ok" {
        return Ok(());
    }
    Err(StoreError::Damaged { path: path.to_owned(), why: finding })
}

/// Checks a file that is shorter than its header states: pages may be missing, or may still be on
/// their way from the log.
fn not_short(db: &Connection, path: &Path) -> Result<()> {
    let writes = !db.is_readonly("main").unwrap_or(true);
    looked_through_if_short(db, path, writes)
}

/// Checks a file that is shorter than its header states, as `not_short` does. Only a caller that
/// `writes` completes the pending write-back from the log.
pub(super) fn looked_through_if_short(db: &Connection, path: &Path, writes: bool) -> Result<()> {
    let lengths = || {
        file_length::lengths(path).map_err(|error| StoreError::CannotWrite {
            path: path.to_owned(),
            why: error.to_string(),
        })
    };
    let mut seen = lengths()?;
    if !seen.is_short() {
        return Ok(());
    }
    quick_check(db, path)?;
    let damaged = StoreError::Damaged {
        path: path.to_owned(),
        why: "it is shorter than its own header says".to_owned(),
    };
    if !writes {
        // Without a log nothing is on its way.
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let no_log = fs::metadata(log).map_or(true, |data| data.len() == 0);
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
            .map_err(|error| Fault::Sql(error).at(path))?;
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

/// Trades the shared lock for the exclusive one around `work`.
fn alone(lock: &File, path: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let cannot = |error: std::io::Error| StoreError::CannotWrite {
        path: path.to_owned(),
        why: error.to_string(),
    };
    lock.unlock().map_err(cannot)?;
    // A birth is over in milliseconds, and those who wait for it want the same; a migration that
    // meets a process with the old format open would wait for that process's whole life.
    if path.exists() || restore::is_half_done(path) {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
    } else {
        lock.lock().map_err(cannot)?;
    }
    let done = work();
    lock.unlock().map_err(cannot)?;
    lock.lock_shared().map_err(cannot)?;
    done
}

fn make_or_migrate(path: &Path) -> Result<()> {
    if restore::is_half_done(path) {
        restore::finish(path, &mut CrashPoints::default())?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    if path.exists() {
        // Another process made it while we waited, or it has an older format.
        let mut db = connect(path, flags).map_err(|fault| fault.at(path))?;
        if format::read(&db, path)? == PRESENT {
            return format::recognise(&db, path, PRESENT);
        }
        return format::migrate_file(&mut db, path, STEPS, &mut CrashPoints::default());
    }
    let unborn = path.with_extension("new");
    let cannot = |error: std::io::Error| StoreError::CannotWrite {
        path: path.to_owned(),
        why: error.to_string(),
    };
    match fs::remove_file(&unborn) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    let mut db = connect(&unborn, flags).map_err(|fault| fault.at(path))?;
    db.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(|error| Fault::Sql(error).at(path))?;
    format::migrate(&mut db, path, STEPS)?;
    db.close().map_err(|(_, error)| Fault::Sql(error).at(path))?;
    // A log of an earlier database that was moved away must not be replayed onto this one.
    for ending in ["-wal", "-shm"] {
        let mut stale = path.as_os_str().to_owned();
        stale.push(ending);
        let stale = Path::new(&stale);
        if stale.exists() {
            let mut kept = stale.as_os_str().to_owned();
            kept.push(".orphaned");
            fs::rename(stale, kept).map_err(cannot)?;
        }
    }
    fs::rename(&unborn, path).map_err(cannot)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    sync_folder(folder).map_err(cannot)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Fault> {
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
fn connect_existing(path: &Path) -> Result<(Connection, i64)> {
    let size = fs::metadata(path).map(|data| data.len()).unwrap_or(0);
    if size == 0 {
        return Err(StoreError::Damaged { path: path.to_owned(), why: "it is empty".to_owned() });
    }
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|fault| fault.at(path))?;
    let format = format::read(&db, path)?;
    format::recognise(&db, path, format)?;
    not_short(&db, path)?;
    Ok((db, format))
}
