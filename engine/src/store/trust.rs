//! Stores the project files that the user has accepted, with the digest of each file.
//!
//! This module must never decide whether a file is trusted. It only stores what the user accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::columns::{Query as _, free_json, json, millis, time, to_json};
use super::{Result, Store};
use crate::digest::Digest;
use crate::ids::ProjectId;

/// The state of a project's files when the user accepted them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// The time at which the user accepted the files.
    pub at: Timestamp,
    /// The digest of each file, keyed by its path relative to the project.
    pub files: BTreeMap<String, Digest>,
    /// The digest of everything in these files that affects a job, keyed by job name.
    pub jobs: BTreeMap<String, Digest>,
    /// The digest of the settings outside the job tables.
    pub common: Digest,
    /// The contents of each file, keyed by path. Secrets in the contents are redacted when the
    /// record is stored.
    pub texts: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Digests {
    files: BTreeMap<String, Digest>,
    jobs: BTreeMap<String, Digest>,
    common: Digest,
}

impl Store {
    /// Returns the project files that the user last accepted, or `None` if the user has not
    /// accepted any.
    pub fn trust(&self, project: &ProjectId) -> Result<Option<TrustRecord>> {
        let sql = "SELECT at, digests, texts FROM trust WHERE project = ?1";
        self.view(|db| {
            db.first(sql, [project], |row| {
                let Digests { files, jobs, common } = json(row, 1)?;
                Ok(TrustRecord { at: time(row, 0)?, files, jobs, common, texts: json(row, 2)? })
            })
        })
    }

    /// Records the project files that the user has accepted. They replace the files that were
    /// accepted before.
    pub fn set_trust(&mut self, project: &ProjectId, record: &TrustRecord) -> Result<()> {
        let TrustRecord { files, jobs, common, .. } = record.clone();
        let digests = Digests { files, jobs, common };
        let digests = to_json(&digests);
        let sql = "INSERT OR REPLACE INTO trust (project, at, digests, texts)
                   VALUES (?1, ?2, ?3, ?4)";
        let texts = free_json(&record.texts);
        self.write(|tx| {
            tx.change(sql, params![project, millis(record.at), digests, texts]).map(drop)
        })
    }
}
