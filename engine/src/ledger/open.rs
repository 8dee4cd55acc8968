//! Opening, making and migrating the file.
//!
//! A new ledger is made under another name and renamed into place whole, so that an empty file
//! under its own name is always damage and never a birth that was interrupted.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{M, Migrations};

use super::{Fault, Ledger, LedgerError, Result};

/// "rnnr": tells our files from any other SQLite database.
const APPLICATION_ID: i64 = 0x726e_6e72;
/// The first release with the fix for the WAL-reset corruption.
const OLDEST_SQLITE: i32 = 3_051_003;
/// How long a writer waits for another's transaction; each of ours is short.
pub(super) const BUSY: Duration = Duration::from_secs(20);
/// All of a tick's statements are kept prepared: preparing one costs several times its execution.
pub(super) const STATEMENTS: usize = 128;
pub(super) const STEPS: &[M<'_>] = &[M::up(include_str!("schema.sql"))];

impl Ledger {
    /// Opens the ledger for writing, making or migrating it where that is needed.
    ///
    /// # Errors
    /// See [`LedgerError`]; a damaged or newer ledger is left exactly as it is.
    pub fn open(path: &Path) -> Result<Self> {
        assert!(
            rusqlite::version_number() >= OLDEST_SQLITE,
            "built with an SQLite that can corrupt its log; build with the bundled one"
        );
        let cannot = |error: std::io::Error| LedgerError::CannotWrite {
            path: path.to_owned(),
            why: error.to_string(),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(cannot)?;
        let lock = folder.join("ledger.lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(lock)
            .map_err(cannot)?;
        lock.lock_shared().map_err(cannot)?;
        let known = STEPS.len() as i64;
        if path.exists() {
            let (db, found) = connect_existing(path)?;
            if found > known {
                return Err(LedgerError::Newer {
                    path: path.to_owned(),
                    found,
                    known,
                });
            }
            if found == known {
                return Ok(Self {
                    db,
                    path: path.to_owned(),
                    _open: Some(lock),
                    fuse: None,
                });
            }
        }
        alone(&lock, path, || make_or_migrate(path))?;
        let (db, _) = connect_existing(path)?;
        Ok(Self {
            db,
            path: path.to_owned(),
            _open: Some(lock),
            fuse: None,
        })
    }

    /// Opens the ledger for reading only; never makes or changes anything.
    ///
    /// # Errors
    /// See [`LedgerError`]; [`LedgerError::Missing`] when there is none.
    pub fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(LedgerError::Missing {
                path: path.to_owned(),
            });
        }
        let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|f| f.at(path))?;
        let known = STEPS.len() as i64;
        match read_format(&db, path)? {
            found if found > known => Err(LedgerError::Newer {
                path: path.to_owned(),
                found,
                known,
            }),
            _ => Ok(Self {
                db,
                path: path.to_owned(),
                _open: None,
                fuse: None,
            }),
        }
    }

    /// A ledger that lives in memory, for simulations.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn in_memory() -> Result<Self> {
        let path = Path::new(":memory:");
        let sql = |error| Fault::Sql(error).at(path);
        let mut db = Connection::open_in_memory_with_flags(
            OpenFlags::default() | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(sql)?;
        db.pragma_update(None, "foreign_keys", true).map_err(sql)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        migrate(&mut db, path)?;
        Ok(Self {
            db,
            path: path.to_owned(),
            _open: None,
            fuse: None,
        })
    }

    /// Lets the simulated process that uses this ledger die after `commits` further transactions:
    /// every later one fails. `None` is the next process, which lives.
    pub fn set_fuse(&mut self, commits: Option<u32>) {
        self.fuse = commits;
    }

    /// Writes a whole copy, as of one moment, into a file that is not there yet.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        self.view(|db| {
            db.execute("VACUUM INTO ?1", [path.to_string_lossy()])?;
            Ok(())
        })
    }

    /// SQLite's own check of the whole file.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`] with the first finding.
    pub fn check(&self) -> Result<()> {
        let finding: String =
            self.view(|db| Ok(db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?))?;
        if finding == "ok" {
            Ok(())
        } else {
            Err(LedgerError::Damaged {
                path: self.path.clone(),
                why: finding,
            })
        }
    }
}

/// Trades the shared lock for the exclusive one around `work`.
fn alone(lock: &File, path: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let cannot = |error: std::io::Error| LedgerError::CannotWrite {
        path: path.to_owned(),
        why: error.to_string(),
    };
    lock.unlock().map_err(cannot)?;
    // A birth is over in milliseconds, and those who wait for it want the same; a migration that
    // meets a process with the old format open would wait for that process's whole life.
    if path.exists() {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LedgerError::InUse {
                    path: path.to_owned(),
                });
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
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    if path.exists() {
        // Another process made it while we waited, or it has an older format.
        let mut db = connect(path, flags).map_err(|fault| fault.at(path))?;
        return migrate(&mut db, path);
    }
    let unborn = path.with_extension("new");
    let cannot = |error: std::io::Error| LedgerError::CannotWrite {
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
    migrate(&mut db, path)?;
    db.close()
        .map_err(|(_, error)| Fault::Sql(error).at(path))?;
    // A log of an earlier ledger that was moved away must not be replayed onto this one.
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
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(cannot)
}

pub(super) fn migrate(db: &mut Connection, path: &Path) -> Result<()> {
    Migrations::from_slice(STEPS)
        .to_latest(db)
        .map_err(|error| match error {
            rusqlite_migration::Error::RusqliteError { err, .. } => Fault::Sql(err).at(path),
            other => LedgerError::Damaged {
                path: path.to_owned(),
                why: other.to_string(),
            },
        })
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Fault> {
    let writes = flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    if writes {
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "foreign_keys", true)?;
    }
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}

/// Opens an existing file and reads its format, after making sure that it is ours.
fn connect_existing(path: &Path) -> Result<(Connection, i64)> {
    let size = fs::metadata(path).map(|data| data.len()).unwrap_or(0);
    if size == 0 {
        return Err(LedgerError::Damaged {
            path: path.to_owned(),
            why: "it is empty".to_owned(),
        });
    }
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|fault| fault.at(path))?;
    let format = read_format(&db, path)?;
    Ok((db, format))
}

pub(super) fn read_format(db: &Connection, path: &Path) -> Result<i64> {
    let pragma = |name: &str| -> Result<i64> {
        db.pragma_query_value(None, name, |row| row.get(0))
            .map_err(|error| Fault::Sql(error).at(path))
    };
    if pragma("application_id")? != APPLICATION_ID {
        return Err(LedgerError::Damaged {
            path: path.to_owned(),
            why: "it is an SQLite file of something else".to_owned(),
        });
    }
    pragma("user_version")
}
