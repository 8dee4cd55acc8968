//! The files of a project that a person has accepted, with the digest of each.
//!
//! This module must never decide whether a file is trusted. It only stores what a person accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::columns::{Query as _, free_json, json, millis, time, to_json};
use super::{Result, Store};
use crate::digest::Digest;
use crate::ids::ProjectId;

/// The state of a project's files when a person accepted them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// The time at which a person accepted the files.
    pub at: Timestamp,
    /// The digest of each file, by its path below the project.
    pub files: BTreeMap<String, Digest>,
    /// The digest of everything in these files that affects a job, by the job's name.
    pub jobs: BTreeMap<String, Digest>,
    /// The digest of the settings outside of the jobs' tables.
    pub common: Digest,
    /// The text of each file, by path. In a record that was read from the database, secrets in the
    /// texts are replaced.
    pub texts: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Digests {
    files: BTreeMap<String, Digest>,
    jobs: BTreeMap<String, Digest>,
    common: Digest,
}

impl Store {
    /// Returns the files of a project that a person last accepted, or `None` if there are none.
    pub fn trust(&self, project: &ProjectId) -> Result<Option<TrustRecord>> {
        let sql = "SELECT at, digests, texts FROM trust WHERE project = ?1";
        self.view(|db| {
            db.first(sql, [project], |row| {
                let Digests { files, jobs, common } = json(row, 1)?;
                Ok(TrustRecord { at: time(row, 0)?, files, jobs, common, texts: json(row, 2)? })
            })
        })
    }

    /// Records the files of a project that a person accepts, in place of those accepted before.
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
