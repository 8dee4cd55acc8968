//! Contents by their SHA-256: sources and results.

use runner_engine::digest::Digest;

use super::Postgres;
use crate::store::{FleetError, Result};

/// Maximum size of a content in bytes.
pub const MOST: usize = 64 * 1024 * 1024;

impl Postgres {
    /// Stores a content and returns its digest. A content that is stored already only becomes new again, so
    /// that pruning keeps it.
    ///
    /// # Errors
    /// Returns a [`FleetError`], also for a content that is larger than 64 MiB.
    pub fn put_blob(&mut self, content: &[u8]) -> Result<Digest> {
        if content.len() > MOST {
            return Err(FleetError::Database(format!(
                "a content has {} bytes, but the fleet stores at most {MOST}",
                content.len()
            )));
        }
        let digest = Digest::of(content);
        let name = digest.to_string();
        self.write(|step| {
            let known =
                "UPDATE runner_fleet.blobs SET stored = runner_fleet.clock() WHERE digest = $1";
            if step.change(known, &[&name])? == 0 {
                step.change(
                    "INSERT INTO runner_fleet.blobs (digest, stored, content)
                     VALUES ($1, runner_fleet.clock(), $2)
                     ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored",
                    &[&name, &content],
                )?;
            }
            Ok(())
        })?;
        Ok(digest)
    }

    /// Returns a content, whose digest is checked.
    ///
    /// # Errors
    /// Returns a [`FleetError`], also if there is no such content or if it has another digest.
    pub fn blob(&mut self, digest: Digest) -> Result<Vec<u8>> {
        let name = digest.to_string();
        let found = self.write(|step| {
            let sql = "SELECT content FROM runner_fleet.blobs WHERE digest = $1";
            let row = step.first(sql, &[&name])?;
            Ok(row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?)
        })?;
        let content = found
            .ok_or_else(|| FleetError::Database(format!("the content {name} is not stored")))?;
        match Digest::of(&content) == digest {
            true => Ok(content),
            false => Err(FleetError::Database(format!("the content {name} has another digest"))),
        }
    }
}
