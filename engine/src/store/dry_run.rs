//! Copies the database into memory, where a dry run registers jobs, admits runs and reserves budget
//! with the same code as a real run.
//!
//! Copying leaves no trace, not even the files that SQLite normally creates next to a database that
//! it reads. The copy must never be written back.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::database_file::beside;
use super::format::{self, STEPS, migrate};
use super::open::{BUSY, PendingLog, STATEMENTS, check_length};
use super::{Result, Store, StoreError, restore, sql_error};

/// Maximum number of attempts to copy a file that changes during the copy.
const TRIES: u32 = 20;
/// Number of pages copied per step.
const PAGES: i32 = 4096;

impl Store {
    /// Copies the current state of the database at `path` into memory and migrates the copy to the
    /// current format. The copy is empty if the file does not exist.
    ///
    /// # Errors
    /// Returns [`StoreError::Unsteady`] if the file changed during each attempt to copy it.
    /// Otherwise, returns the errors of [`Store::read`], except [`StoreError::Missing`] and
    /// [`StoreError::Older`].
    pub fn dry_run_copy(path: &Path) -> Result<Self> {
        // The next writer finishes an interrupted restore, which replaces the file.
        if restore::is_half_done(path) {
            return Err(StoreError::HalfRestored { path: path.to_owned() });
        }
        undisturbed(path, copy)
    }
}

/// Copies the database with `copy`. If the files change during a copy, the copy may be
/// inconsistent, so it is discarded and made again.
fn undisturbed(
    path: &Path,
    mut copy: impl FnMut(&Path, SideFiles) -> Result<Store>,
) -> Result<Store> {
    for _ in 0..TRIES {
        let Some(before) = stamp(path)? else {
            return Store::in_memory();
        };
        let found = SideFiles::of(path);
        let copied = copy(path, found);
        // If both the log and its index exist, SQLite's own locks keep the copy consistent.
        if found == SideFiles::Both
            || (stamp(path)? == Some(before) && SideFiles::of(path) == found)
        {
            return copied;
        }
    }
    Err(StoreError::Unsteady { path: path.to_owned() })
}

/// SQLite's files next to the database. They determine how the database can be read without
/// creating files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideFiles {
    /// There is no log, so the database is read as an immutable file.
    Nothing,
    /// There is a log without its index, for example after a machine crash. Reading a log requires
    /// an index, which a reader with exclusive access can keep in memory.
    Journal,
    /// Both files exist, and another process may have the database open.
    Both,
}

impl SideFiles {
    fn of(path: &Path) -> Self {
        match (beside(path, "-wal").exists(), beside(path, "-shm").exists()) {
            (false, _) => Self::Nothing,
            (true, false) => Self::Journal,
            (true, true) => Self::Both,
        }
    }
}

fn connect(path: &Path, found: SideFiles) -> rusqlite::Result<Connection> {
    let (how, access) = match found {
        SideFiles::Nothing => ("?immutable=1", OpenFlags::SQLITE_OPEN_READ_ONLY),
        // Exclusive access requires a write lock, which a process with only read permission cannot
        // get.
        SideFiles::Journal => ("?mode=rw", OpenFlags::SQLITE_OPEN_READ_WRITE),
        SideFiles::Both => ("?mode=ro&readonly_shm=1", OpenFlags::SQLITE_OPEN_READ_ONLY),
    };
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(uri(path, how), flags)?;
    if found == SideFiles::Journal {
        // These settings must precede any read. Otherwise, SQLite changes the log when it closes
        // the connection.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "query_only", true)?;
        db.pragma_update(None, "locking_mode", "exclusive")?;
    }
    Ok(db)
}

fn copy(path: &Path, found: SideFiles) -> Result<Store> {
    let at = sql_error(path);
    if fs::metadata(path).is_ok_and(|data| data.len() == 0) {
        return Err(StoreError::Damaged { path: path.to_owned(), why: "it is empty".to_owned() });
    }
    let from = connect(path, found).map_err(&at)?;
    if found == SideFiles::Journal && from.is_readonly("main").map_err(&at)? {
        return Err(StoreError::CannotWrite {
            path: path.to_owned(),
            why: "it was not closed properly, and reading its log requires write access".to_owned(),
        });
    }
    from.busy_timeout(BUSY).map_err(&at)?;
    format::read(&from, path, STEPS)?;
    check_length(&from, path, PendingLog::Leave)?;
    let mut db = Connection::open_in_memory().map_err(&at)?;
    Backup::new(&from, &mut db)
        .and_then(|copy| copy.run_to_completion(PAGES, std::time::Duration::ZERO, None))
        .map_err(&at)?;
    db.pragma_update(None, "foreign_keys", true).map_err(&at)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    migrate(&mut db, path, STEPS)?;
    Ok(Store { db, path: path.to_owned(), _open: None, guard: None })
}

/// Returns the file's inode, size and modification time, or `None` if the file does not exist.
fn stamp(path: &Path) -> Result<Option<(u64, u64, i64, i64)>> {
    match fs::metadata(path) {
        Ok(data) => Ok(Some((data.ino(), data.size(), data.mtime(), data.mtime_nsec()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::CannotRead { path: path.to_owned(), why: error.to_string() }),
    }
}

fn uri(path: &Path, how: &str) -> String {
    let mut text = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text + how
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::digest::Digest;
    use crate::ids::ProjectId;
    use crate::store::{Node, Project};

    fn listing(folder: &Path) -> BTreeMap<String, (String, i64, i64)> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let data = fs::metadata(&path).unwrap();
                let digest = Digest::of(&fs::read(&path).unwrap()).to_string();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, (digest, data.mtime(), data.mtime_nsec()))
            })
            .collect()
    }

    fn project(now: Timestamp) -> Project {
        Project {
            id: ProjectId::new(now),
            path: "/p".into(),
            node: Node::new(1, 2),
            config_stamp: String::new(),
            own: false,
        }
    }

    #[test]
    fn dry_run_copy_leaves_the_original_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd ?#%40 name/database.sqlite");
        let now = Timestamp::UNIX_EPOCH;
        assert!(Store::dry_run_copy(&path).unwrap().projects().unwrap().is_empty());
        assert!(!path.parent().unwrap().exists());
        let mut real = Store::open(&path).unwrap();
        real.register(&project(now), now).unwrap();
        // The database is open elsewhere, so its log is read too. SQLite shares the mapped index
        // within a process, so this test ignores the index, and a test of the whole program checks
        // that it stays unchanged.
        let but_shared = || {
            let mut all = listing(path.parent().unwrap());
            all.remove("database.sqlite-shm");
            all
        };
        let before = but_shared();
        let mut copy = Store::dry_run_copy(&path).unwrap();
        assert_eq!(copy.projects().unwrap().len(), 1);
        copy.register(&project(now), now).unwrap();
        drop(copy);
        assert!(beside(&path, "-wal").exists());
        assert_eq!(but_shared(), before);
        assert_eq!(real.projects().unwrap().len(), 1, "the original is unchanged");
        drop(real);
        // The database is closed, and there is no log.
        let before = listing(path.parent().unwrap());
        assert!(!beside(&path, "-wal").exists());
        let copy = Store::dry_run_copy(&path).unwrap();
        assert_eq!(copy.projects().unwrap().len(), 1);
        assert_eq!(listing(path.parent().unwrap()), before);
        // A reader leaves a log and an index behind.
        drop(Store::read(&path).unwrap().projects().unwrap());
        let before = listing(path.parent().unwrap());
        let copy = Store::dry_run_copy(&path).unwrap();
        assert_eq!(copy.projects().unwrap().len(), 1);
        assert_eq!(listing(path.parent().unwrap()), before);
    }

    #[test]
    fn unreadable_database_is_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database.sqlite");
        std::os::unix::fs::symlink("database.sqlite", &path).unwrap();
        let copied = Store::dry_run_copy(&path).map(|_| ());
        assert!(matches!(copied, Err(StoreError::CannotRead { .. })), "{copied:?}");
    }

    /// After a machine crash, or if only the database and its log were copied, the log has no
    /// index.
    #[test]
    fn log_without_index_is_read_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let live = folder.path().join("live/database.sqlite");
        let now = Timestamp::UNIX_EPOCH;
        let mut real = Store::open(&live).unwrap();
        real.register(&project(now), now).unwrap();
        let left = folder.path().join("left");
        fs::create_dir(&left).unwrap();
        let path = left.join("database.sqlite");
        for ending in ["", "-wal"] {
            fs::copy(beside(&live, ending), beside(&path, ending)).unwrap();
        }
        drop(real);
        let before = listing(&left);
        assert_eq!(before.len(), 2, "{before:?}");
        for _ in 0..2 {
            let copy = Store::dry_run_copy(&path).unwrap();
            let known = copy.projects().unwrap();
            assert_eq!(known.len(), 1, "the rows in the log are read");
            assert_eq!(listing(&left), before);
        }
        // Other processes can still open the database.
        let real = Store::open(&path).unwrap();
        assert_eq!(real.projects().unwrap().len(), 1);
    }

    #[test]
    fn copies_of_changing_files_are_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database.sqlite");
        let now = Timestamp::UNIX_EPOCH;
        Store::open(&path).unwrap().register(&project(now), now).unwrap();
        // Another process writes to the closed database while it is being copied.
        let attempts = |disturbed: u32| {
            let mut count = 0;
            let done = undisturbed(&path, |path, found| {
                assert_eq!(found, SideFiles::Nothing);
                let copied = copy(path, found);
                count += 1;
                if count <= disturbed {
                    let file = fs::File::options().append(true).open(path).unwrap();
                    let later = file.metadata().unwrap().modified().unwrap()
                        + std::time::Duration::from_secs(1);
                    file.set_modified(later).unwrap();
                }
                copied
            });
            (count, done)
        };
        for disturbed in [0, 1, TRIES - 1] {
            let (count, done) = attempts(disturbed);
            assert_eq!(count, disturbed + 1);
            assert_eq!(done.unwrap().projects().unwrap().len(), 1);
        }
        let (count, done) = attempts(TRIES);
        assert_eq!(count, TRIES);
        assert!(matches!(done, Err(StoreError::Unsteady { .. })));
    }

    #[test]
    fn non_databases_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database.sqlite");
        for bad in ["", "not a database, but long enough to be inspected as one"] {
            fs::write(&path, bad).unwrap();
            let error = Store::dry_run_copy(&path).err().unwrap();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
    }

    #[test]
    fn unreadable_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        // A file in place of the folder fails for every user, even for root.
        let copy = Store::dry_run_copy(&file.join("database.sqlite"));
        assert!(matches!(copy, Err(StoreError::CannotRead { .. })));
        let absent = Store::dry_run_copy(&folder.path().join("database.sqlite"));
        assert!(absent.is_ok());
    }
}
