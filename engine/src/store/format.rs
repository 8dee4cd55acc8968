//! The format of the file: numbered steps of SQL that make it, and how an older one is brought to the
//! present one.
//!
//! ```text
//! none ──all steps──> present        (under another name, renamed whole: `open`)
//! older ──copy kept beside it──> all further steps in one transaction ──> present
//! newer ──> refused
//! ```
//!
//! A step that was ever released is never changed: the database keeps the digest of the steps that made
//! it, and one made by other steps is not ours to touch. It must never bring a file to a format while
//! another process has it open.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use rusqlite_migration::{M, Migrations};

use super::backup::copy_into;
use super::crash_points::CrashPoints;
use super::{Fault, Result, StoreError};
use crate::digest::Digest;

/// "rnnr", the id that distinguishes our files from any other SQLite database.
pub(super) const APPLICATION_ID: i64 = 0x726e_6e72;
/// The migration steps: the first creates format 1, the second turns format 1 into format 2, and so
/// on.
pub(super) const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
];
/// The present format.
pub(super) const PRESENT: i64 = STEPS.len() as i64;

/// Returns the digest of the steps up to a format.
pub(super) fn shape(steps: &[&str], format: usize) -> String {
    Digest::of(steps[..format].join("\n").as_bytes()).to_string()
}

/// Returns the format of an open file after checking that the file is a database of runner.
pub(super) fn read(db: &Connection, path: &Path) -> Result<i64> {
    let pragma = |name: &str| -> Result<i64> {
        db.pragma_query_value(None, name, |row| row.get(0))
            .map_err(|error| Fault::Sql(error).at(path))
    };
    if pragma("application_id")? != APPLICATION_ID {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            why: "it is an SQLite file of something else".to_owned(),
        });
    }
    let format = pragma("user_version")?;
    if format > PRESENT {
        return Err(StoreError::Newer { path: path.to_owned(), found: format, known: PRESENT });
    }
    Ok(format)
}

/// Makes sure that a file of a known format was made by the steps that we know.
pub(super) fn recognise(db: &Connection, path: &Path, format: i64) -> Result<()> {
    let stranger = || StoreError::Stranger { path: path.to_owned(), format };
    let steps = usize::try_from(format).ok().filter(|steps| *steps > 0);
    let steps = steps.ok_or_else(stranger)?;
    let said = db
        .query_row("SELECT said FROM care WHERE task = 'shape'", [], |row| row.get::<_, String>(0))
        .optional();
    match said {
        Ok(Some(said)) if said == shape(STEPS, steps) => Ok(()),
        Ok(_) => Err(stranger()),
        Err(error) => Err(Fault::Sql(error).at(path)),
    }
}

/// Brings an open file to the last of `steps`, in one transaction.
pub(super) fn migrate(db: &mut Connection, path: &Path, steps: &[&str]) -> Result<()> {
    // A step may make a table anew, which must not take what refers to it along; each step is checked
    // as a whole at its end.
    db.pragma_update(None, "foreign_keys", false).map_err(|error| Fault::Sql(error).at(path))?;
    let record = |shape: String| {
        move |tx: &Transaction<'_>| {
            tx.execute(
                "INSERT OR REPLACE INTO care (task, done, said) VALUES ('shape', 0, ?1)",
                params![shape],
            )?;
            Ok(())
        }
    };
    let all: Migrations<'_> = steps
        .iter()
        .enumerate()
        .map(|(at, sql)| M::up_with_hook(sql, record(shape(steps, at + 1))).foreign_key_check())
        .collect();
    all.to_latest(db).map_err(|error| match error {
        rusqlite_migration::Error::RusqliteError { err, .. } => Fault::Sql(err).at(path),
        other => StoreError::Damaged { path: path.to_owned(), why: other.to_string() },
    })?;
    db.pragma_update(None, "foreign_keys", true).map_err(|error| Fault::Sql(error).at(path))
}

/// Brings a file of an older format to the last of `steps`. The caller has it alone. The file as it
/// was is kept beside it; a process that dies here leaves the old format or the new one.
pub(super) fn migrate_file(
    db: &mut Connection,
    path: &Path,
    steps: &[&str],
    dying: &mut CrashPoints,
) -> Result<()> {
    let format = read(db, path)?;
    recognise(db, path, format)?;
    let kept = kept_as(path, format);
    let draft = kept.with_extension("bak.new");
    let cannot = |error: std::io::Error| StoreError::CannotWrite {
        path: kept.clone(),
        why: error.to_string(),
    };
    dying.before("copy the old format");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    copy_into(db, path, &draft)?;
    dying.before("name the copy of the old format");
    fs::rename(&draft, &kept).map_err(cannot)?;
    super::backup::sync_folder_of(&kept).map_err(cannot)?;
    dying.before("migrate");
    migrate(db, path, steps)?;
    dying.before("go on with the new format");
    Ok(())
}

/// Returns the path of the file's backup from before a migration: `database.format-1.bak`.
pub(super) fn kept_as(path: &Path, format: i64) -> PathBuf {
    path.with_extension(format!("format-{format}.bak"))
}
