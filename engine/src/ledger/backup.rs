//! Copies of the ledger: whole, as of one moment, made while others write, and looked at before
//! anybody relies on them. Must never write over a file that is there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::Connection;

use super::{Fault, LedgerError, Result};

/// Writes a copy of an open ledger to `target`, which must not be there, and makes it durable. The
/// name is not yet: see [`sync_folder_of`].
pub(super) fn copy_into(db: &Connection, path: &Path, target: &Path) -> Result<()> {
    let cannot = |why: String| LedgerError::CannotWrite {
        path: target.to_owned(),
        why,
    };
    let name = target
        .to_str()
        .ok_or_else(|| cannot("the path is not UTF-8".to_owned()))?;
    // The copy holds whole pages of a consistent view, so writers go on.
    db.execute("VACUUM INTO ?1", [name])
        .map_err(|error| match Fault::Sql(error).at(path) {
            LedgerError::CannotWrite { why, .. } => cannot(why),
            other => other,
        })?;
    private(target)
        .and_then(|()| File::open(target)?.sync_all())
        .map_err(|error| cannot(error.to_string()))
}

/// Nobody else reads what the ledger holds.
fn private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// Makes the names in a file's folder durable.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
