//! Defines the format of the database file. Numbered SQL steps create a file, and migrate an older
//! file to the current format.
//!
//! ```text
//! none ──all steps──> current        (under another name, then renamed: `open`)
//! older ──copy kept beside it──> all further steps in one transaction ──> current
//! newer ──> refused
//! ```
//!
//! A released step is never changed. The database stores the digest of the steps that created it,
//! and a file created by other steps is refused. A file must never be migrated while another
//! process has it open for writing. Tests can pass their own steps.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Transaction};
use rusqlite_migration::{M, Migrations};

use super::database_file::{copy_into, remove, sync_folder_of};
use super::{Result, StoreError, cannot_write, sql_error};
use crate::digest::Digest;
use crate::failpoint;

/// "rnnr", the application id of runner's SQLite files.
pub(super) const APPLICATION_ID: i64 = 0x726e_6e72;
/// The migration steps. Step 1 creates format 1, step 2 migrates format 1 to format 2, and so on.
pub(super) const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("format_2.sql"),
    include_str!("format_3.sql"),
    include_str!("format_4.sql"),
    include_str!("format_5.sql"),
    include_str!("format_6.sql"),
];
/// The current format.
pub(super) const PRESENT: i64 = STEPS.len() as i64;

pub(super) fn schema_digest(steps: &[&str]) -> String {
    Digest::of(steps.join("\n").as_bytes()).to_string()
}

/// Checks that an open file was created by these steps, and returns its format.
pub(super) fn read(db: &Connection, path: &Path, steps: &[&str]) -> Result<i64> {
    let pragma = |name: &str| -> Result<i64> {
        db.pragma_query_value(None, name, |row| row.get(0)).map_err(sql_error(path))
    };
    if pragma("application_id")? != APPLICATION_ID {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            why: "it is another program's SQLite file".to_owned(),
        });
    }
    let (found, known) = (pragma("user_version")?, steps.len() as i64);
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    let made_by = usize::try_from(found).ok().and_then(|found| steps.get(..found));
    let digest: Option<String> = db
        .query_row("SELECT detail FROM maintenance WHERE task = 'schema'", [], |row| row.get(0))
        .optional()
        .map_err(sql_error(path))?;
    match made_by {
        Some(steps) if found > 0 && digest == Some(schema_digest(steps)) => Ok(found),
        _ => Err(StoreError::Stranger { path: path.to_owned(), format: found }),
    }
}

/// Applies all missing `steps` to an open file in one transaction.
pub(super) fn migrate(db: &mut Connection, path: &Path, steps: &[&str]) -> Result<()> {
    // A step may drop and recreate a table. With foreign keys enabled, SQLite would then delete the
    // rows that refer to the table or refuse the step. Instead, the foreign keys are checked after
    // each step.
    db.pragma_update(None, "foreign_keys", false).map_err(sql_error(path))?;
    let record = |digest: String| {
        move |tx: &Transaction<'_>| {
            let sql =
                "INSERT OR REPLACE INTO maintenance (task, done, detail) VALUES ('schema', 0, ?1)";
            tx.execute(sql, [&digest])?;
            Ok(())
        }
    };
    let all: Migrations<'_> = (1..=steps.len())
        .map(|format| {
            let hook = record(schema_digest(&steps[..format]));
            M::up_with_hook(steps[format - 1], hook).foreign_key_check()
        })
        .collect();
    all.to_latest(db).map_err(|error| match error {
        rusqlite_migration::Error::RusqliteError { err, .. } => sql_error(path)(err),
        other => StoreError::Damaged { path: path.to_owned(), why: other.to_string() },
    })?;
    db.pragma_update(None, "foreign_keys", true).map_err(sql_error(path))
}

/// Migrates a file with an older format. The caller must hold the database's lock exclusively. A
/// copy of the old file is kept next to the database. If the process dies, the file has either the
/// old or the new format.
pub(super) fn migrate_file(db: &mut Connection, path: &Path, steps: &[&str]) -> Result<()> {
    let kept = kept_as(path, read(db, path, steps)?);
    let draft = kept.with_extension("bak.new");
    failpoint::before("copy the old format");
    remove(&draft).map_err(cannot_write(&kept))?;
    copy_into(db, path, &draft)?;
    failpoint::before("name the copy of the old format");
    fs::rename(&draft, &kept).map_err(cannot_write(&kept))?;
    sync_folder_of(&kept).map_err(cannot_write(&kept))?;
    failpoint::before("migrate");
    migrate(db, path, steps)?;
    failpoint::before("continue with the new format");
    Ok(())
}

/// Returns the path of the copy that is made before a migration, such as `database.format-1.bak`.
pub(super) fn kept_as(path: &Path, format: i64) -> PathBuf {
    path.with_extension(format!("format-{format}.bak"))
}
