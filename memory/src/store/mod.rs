//! Opens and migrates the store, and groups writes into changes that can be undone.
//!
//! Every change is one transaction. No transaction may stay open while other files are read or
//! written. Another program's file must never be changed.

mod links;
mod nodes;
mod undo;
mod views;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};

use crate::error::{MemoryError, Result};

pub use links::Edge;
pub(crate) use links::{is_tag_separator, valid_tag};
pub use nodes::{NodeEdit, Resolved};
pub(crate) use nodes::{scope_arguments, select as select_nodes};
pub use undo::Undone;
pub(crate) use views::valid_view_name;
pub use views::{DEFAULT_BUDGET, DEFAULT_VIEW, View};

/// Marks the file as runner's memory store: "RNmm" in ASCII.
pub const APPLICATION_ID: i64 = 0x524e_6d6d;
/// The steps that bring a store to the current schema version.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    // A session receives a node again after its content has changed.
    "CREATE TRIGGER nodes_content_updated AFTER UPDATE OF content ON nodes
        WHEN old.content IS NOT new.content BEGIN
        DELETE FROM delivered WHERE node_id = new.id;
    END;",
];
/// Name of the store in its folder.
pub const STORE: &str = "store.db";
/// Name of the store if another program's store is named [`STORE`].
pub const OWN_STORE: &str = "runner.db";

/// How durable the writes of a connection are, and how long it waits for other writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For commands: each commit is on disk when it returns, and the connection waits up to 5 s for
    /// a lock.
    Command,
    /// For hooks that execute the commands in an answer: like `Command`, but closing the connection
    /// leaves the write-ahead log in place, which avoids most waits for the disk.
    Answer,
    /// For hooks that delay a session or a prompt: a power failure may lose the last commits, and
    /// the connection waits up to 1 s for a lock. Closing it also leaves the write-ahead log in
    /// place.
    Prompt,
}

/// An open memory store.
#[derive(Debug)]
pub struct Memory {
    db: Connection,
    path: PathBuf,
}

/// The location of the store in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The store to use.
    pub path: PathBuf,
    /// The store of another program in the same folder, if there is one.
    pub foreign: Option<PathBuf>,
}

/// Returns the location of the store in a folder: `store.db`, or `runner.db` if `store.db` is the
/// store of another program. The store need not exist.
pub fn locate(folder: &Path) -> Location {
    let usual = folder.join(STORE);
    match is_foreign(&usual) {
        true => Location { path: folder.join(OWN_STORE), foreign: Some(usual) },
        false => Location { path: usual, foreign: None },
    }
}

/// Returns whether another program's database is at `path`. Reads only the header, so SQLite
/// creates no files beside the database. A file without a complete SQLite header is treated as
/// runner's.
fn is_foreign(path: &Path) -> bool {
    let mut header = [0_u8; 72];
    let read = runner_engine::files::open_host(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut header));
    read.is_ok()
        && header.starts_with(b"SQLite format 3\0")
        && header[68..72] != (APPLICATION_ID as u32).to_be_bytes()
}

impl Memory {
    /// Opens a store. Creates or migrates it if necessary.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, in use, newer than this program or owned by another
    /// program, or if it cannot be opened.
    pub fn open(path: &Path, access: Access, now: Timestamp) -> Result<Self> {
        if is_foreign(path) {
            return Err(MemoryError::Foreign { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags);
        let db = db.map_err(|error| MemoryError::of(path, error))?;
        let mut memory = Self { db, path: path.to_owned() };
        memory.configure(access).map_err(|error| memory.wrong(error))?;
        if memory.version()? < MIGRATIONS.len() as i64 {
            memory.migrate(now)?;
        }
        Ok(memory)
    }

    /// Opens a store for reading. Returns `None` if the file does not exist, belongs to another
    /// program or has an older schema version.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, in use, or newer than this program.
    pub fn open_to_read(path: &Path) -> Result<Option<Self>> {
        if !path.is_file() || is_foreign(path) {
            return Ok(None);
        }
        // Even a reader writes to the files beside a database in WAL mode.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags);
        let db = db.map_err(|error| MemoryError::of(path, error))?;
        let memory = Self { db, path: path.to_owned() };
        memory.configure(Access::Prompt).map_err(|error| memory.wrong(error))?;
        memory.read(|db| db.pragma_update(None, "query_only", true))?;
        Ok((memory.version()? == MIGRATIONS.len() as i64).then_some(memory))
    }

    fn configure(&self, access: Access) -> rusqlite::Result<()> {
        let wait = match access {
            Access::Command | Access::Answer => Duration::from_secs(5),
            Access::Prompt => Duration::from_secs(1),
        };
        self.db.busy_timeout(wait)?;
        match access {
            Access::Command | Access::Answer => {
                self.db.pragma_update(None, "synchronous", "full")?;
            }
            Access::Prompt => self.db.pragma_update(None, "synchronous", "normal")?,
        }
        if access != Access::Command {
            self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        self.db.pragma_update(None, "foreign_keys", true)?;
        self.db.pragma_update(None, "trusted_schema", false)
    }

    /// Returns the schema version, which is 0 for an empty file.
    fn version(&self) -> Result<i64> {
        let sql = "SELECT max(version) FROM schema_version";
        let found = match self.db.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)) {
            Ok(found) => found.unwrap_or(0),
            Err(
                rusqlite::Error::SqlInputError { .. } | rusqlite::Error::SqliteFailure(_, Some(_)),
            ) if self.is_empty()? => 0,
            Err(error) => return Err(self.wrong(error)),
        };
        let known = MIGRATIONS.len() as i64;
        match found > known {
            true => Err(MemoryError::Newer { path: self.path.clone(), found, known }),
            false => Ok(found),
        }
    }

    fn is_empty(&self) -> Result<bool> {
        let sql = "SELECT count(*) = 0 FROM sqlite_schema";
        self.db.query_row(sql, [], |row| row.get(0)).map_err(|error| self.wrong(error))
    }

    fn migrate(&mut self, now: Timestamp) -> Result<()> {
        let path = self.path.clone();
        let run = |db: &mut Connection| -> rusqlite::Result<()> {
            // The id is written before the log is enabled, because `is_foreign` reads only the
            // file's header.
            let owner: i64 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
            if owner != APPLICATION_ID {
                db.pragma_update(None, "application_id", APPLICATION_ID)?;
            }
            db.pragma_update(None, "journal_mode", "wal")?;
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute_batch(
                "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)",
            )?;
            let found: Option<i64> =
                tx.query_row("SELECT max(version) FROM schema_version", [], |row| row.get(0))?;
            let at = now.to_string();
            for (version, step) in (1_i64..).zip(MIGRATIONS) {
                if version > found.unwrap_or(0) {
                    tx.execute_batch(step)?;
                    tx.execute("INSERT INTO schema_version VALUES (?1, ?2)", (version, &at))?;
                }
            }
            if found.unwrap_or(0) == 0 {
                tx.execute(
                    "INSERT INTO views VALUES ('default', ?1, ?2, ?3, ?3)",
                    (DEFAULT_VIEW, DEFAULT_BUDGET, &at),
                )?;
            }
            tx.commit()
        };
        run(&mut self.db).map_err(|error| MemoryError::of(&path, error))?;
        use std::os::unix::fs::PermissionsExt as _;
        // Only the owner may read the notes.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| MemoryError::Unusable { path: path.clone(), why: error.to_string() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs SQLite's quick check on the whole file.
    ///
    /// # Errors
    /// Returns [`MemoryError::Damaged`] with the first problem found.
    pub fn check(&self) -> Result<()> {
        let found: String =
            self.read(|db| db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(MemoryError::Damaged { path: self.path.clone(), why: found }),
        }
    }

    pub(crate) fn wrong(&self, error: rusqlite::Error) -> MemoryError {
        MemoryError::of(&self.path, error)
    }

    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.reader().read(query)
    }

    /// Begins a group of reads, which all see the same state and take the lock only once. The group
    /// ends when the result is dropped.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub(crate) fn begin_reads(&self) -> Result<Transaction<'_>> {
        self.db.unchecked_transaction().map_err(|error| self.wrong(error))
    }

    /// Returns a reader of the store's current state.
    pub fn reader(&self) -> Reader<'_> {
        Reader { db: &self.db, path: &self.path }
    }

    /// Runs `work` as one change. If `work` fails, nothing is written.
    ///
    /// # Errors
    /// Returns the error from `work`, or a store error.
    pub fn change<T>(
        &mut self,
        what: &str,
        now: Timestamp,
        work: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        let path = self.path.clone();
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate);
        let tx = tx.map_err(|error| MemoryError::of(&path, error))?;
        // All times have the same length, so they sort as text.
        let at = format!("{now:.6}");
        let mut change = Change { tx, path: &path, now, at, begun: false, what };
        let done = work(&mut change)?;
        change.tx.commit().map_err(|error| MemoryError::of(&path, error))?;
        Ok(done)
    }
}

/// Reads the store through an open connection or within an unfinished change.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'r> {
    db: &'r Connection,
    path: &'r Path,
}

impl Reader<'_> {
    /// Returns the number of the last change to nodes, tags, edges and views.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn generation(self) -> Result<i64> {
        let sql = "SELECT generation FROM state";
        self.read(|db| db.query_row(sql, [], |row| row.get(0)))
    }

    pub(crate) fn read<T>(
        self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        query(self.db).map_err(|error| MemoryError::of(self.path, error))
    }
}

/// A transaction that changes the store.
#[derive(Debug)]
pub struct Change<'m> {
    pub(crate) tx: Transaction<'m>,
    pub(crate) path: &'m Path,
    pub(crate) now: Timestamp,
    /// `now` in RFC 3339 format, with microseconds.
    pub(crate) at: String,
    /// Whether this change already has a number.
    begun: bool,
    what: &'m str,
}

impl Change<'_> {
    /// Assigns the change its number and generation, before its first write to nodes, tags, edges
    /// or views.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        self.sql(|tx| {
            tx.execute("UPDATE state SET generation = generation + 1", [])?;
            tx.prepare_cached("INSERT INTO changes(at, what) VALUES (?1, ?2)")?
                .execute((&self.at, self.what))?;
            undo::prune(tx)
        })
    }

    /// Returns a reader that also sees the writes of this change.
    pub fn reader(&self) -> Reader<'_> {
        Reader { db: &self.tx, path: self.path }
    }

    /// Runs `work`. If `work` refuses its input, its writes are rolled back. Any other error is a
    /// store error and fails the whole change.
    pub(crate) fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<std::result::Result<T, MemoryError>> {
        self.sql(|tx| tx.execute_batch("SAVEPOINT attempt"))?;
        let begun = self.begun;
        let done = match work(self) {
            Err(error) if !error.is_refusal() => return Err(error),
            done => done,
        };
        if done.is_err() {
            self.begun = begun;
            self.sql(|tx| tx.execute_batch("ROLLBACK TO attempt"))?;
        }
        self.sql(|tx| tx.execute_batch("RELEASE attempt"))?;
        Ok(done)
    }

    pub(crate) fn sql<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        work(&self.tx).map_err(|error| MemoryError::of(self.path, error))
    }

    pub(crate) fn one<T: rusqlite::types::FromSql>(
        &self,
        sql: &str,
        arguments: impl rusqlite::Params,
    ) -> Result<Option<T>> {
        self.sql(|tx| tx.prepare_cached(sql)?.query_row(arguments, |row| row.get(0)).optional())
    }
}
