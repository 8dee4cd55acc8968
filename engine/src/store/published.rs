//! Stores the digests of the files that runner published or the user adopted.
//!
//! This module must never interpret the difference between a stored digest and a file.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::columns::{Query as _, millis};
use super::{Fault, Result, Store};
use crate::digest::Digest;
use crate::ids::{ProjectId, RunId};
use crate::publish::Manifest;

/// Records or replaces the digest of one file.
const RECORD: &str = "INSERT OR REPLACE INTO published_files (project, path, digest, at)
                      VALUES (?1, ?2, ?3, ?4)";

impl Store {
    /// Returns the stored digests of those `paths` that runner published or the user adopted. Paths
    /// are relative to the project.
    pub fn published_files(
        &self,
        project: &ProjectId,
        paths: &[String],
    ) -> Result<BTreeMap<String, Digest>> {
        let sql = "SELECT digest FROM published_files WHERE project = ?1 AND path = ?2";
        self.view(|db| {
            let mut found = BTreeMap::new();
            for path in paths {
                let hex: Option<String> =
                    db.first(sql, params![project, path], |row| row.get(0))?;
                if let Some(digest) = hex.and_then(|hex| Digest::parse(&hex)) {
                    found.insert(path.clone(), digest);
                }
            }
            Ok(found)
        })
    }

    /// Records files adopted by the user as if runner had published them.
    pub fn adopt_files(
        &mut self,
        project: &ProjectId,
        files: &BTreeMap<String, Digest>,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            for (path, digest) in files {
                tx.change(RECORD, params![project, path, digest.to_string(), millis(now)])?;
            }
            Ok(())
        })
    }
}

/// Records the digests of the files that a publication wrote, and removes the digests of the files
/// that it deleted. The caller passes the transaction that settles the run.
pub(super) fn record(
    tx: &Transaction<'_>,
    run: &RunId,
    manifest: &Manifest,
    now: Timestamp,
) -> std::result::Result<(), Fault> {
    let sql = "SELECT j.project FROM runs r JOIN jobs j ON j.id = r.job WHERE r.id = ?1";
    let project: ProjectId = tx.value(sql, [run])?;
    for entry in &manifest.entries {
        let path = entry.target.as_str();
        match entry.after {
            Some(digest) => {
                tx.change(RECORD, params![project, path, digest.to_string(), millis(now)])?
            }
            None => tx.change(
                "DELETE FROM published_files WHERE project = ?1 AND path = ?2",
                params![project, path],
            )?,
        };
    }
    Ok(())
}
