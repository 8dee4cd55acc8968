//! Stores the content of sources and results under its SHA-256 digest. A large blob is stored in
//! several parts.

use runner_engine::digest::Digest;

use super::Postgres;
use super::connection::LONG;
use crate::store::{FleetError, Result};

/// Maximum size of a blob in bytes. The whole blob is kept in memory while it is transferred.
pub const LARGEST_CONTENT: u64 = 256 * 1024 * 1024;

/// Maximum size of a part in bytes.
const PART: usize = 16 * 1024 * 1024;

impl Postgres {
    /// Stores a blob and returns its digest. If the blob already exists, only its time is updated,
    /// so that pruning keeps it.
    ///
    /// # Errors
    /// Returns a [`FleetError`], including when `content` is larger than [`LARGEST_CONTENT`].
    pub fn put_blob(&mut self, content: &[u8]) -> Result<Digest> {
        if content.len() as u64 > LARGEST_CONTENT {
            return Err(FleetError::Database(format!(
                "a blob has {} bytes, but the fleet stores at most {LARGEST_CONTENT}",
                content.len()
            )));
        }
        let digest = Digest::of(content);
        let name = digest.to_string();
        self.write_within(LONG, |step| {
            let known =
                "UPDATE runner_fleet.blobs SET stored = runner_fleet.clock() WHERE digest = $1";
            if step.change(known, &[&name])? == 0 {
                // An empty blob has one part.
                let parts = content.len().div_ceil(PART).max(1);
                for (number, part) in (0_i32..).zip(0..parts) {
                    let bytes = content.get(part * PART..).unwrap_or_default();
                    let bytes = bytes.get(..PART).unwrap_or(bytes);
                    step.change(
                        "INSERT INTO runner_fleet.blobs (digest, part, stored, content)
                         VALUES ($1, $2, runner_fleet.clock(), $3)
                         ON CONFLICT (digest, part) DO UPDATE SET stored = excluded.stored",
                        &[&name, &number, &bytes],
                    )?;
                }
            }
            Ok(())
        })?;
        Ok(digest)
    }

    /// Returns the content of a blob after checking its digest.
    ///
    /// # Errors
    /// Returns a [`FleetError`], including when the blob does not exist or its content has a
    /// different digest.
    pub fn blob(&mut self, digest: Digest) -> Result<Vec<u8>> {
        let name = digest.to_string();
        let found = self.write_within(LONG, |step| {
            let sql = "SELECT content FROM runner_fleet.blobs WHERE digest = $1 ORDER BY part";
            let rows = step.query(sql, &[&name])?;
            let mut content = Vec::new();
            for row in &rows {
                content.extend_from_slice(row.try_get::<_, &[u8]>(0)?);
            }
            Ok((!rows.is_empty()).then_some(content))
        })?;
        let content =
            found.ok_or_else(|| FleetError::Database(format!("the blob {name} is not stored")))?;
        match Digest::of(&content) == digest {
            true => Ok(content),
            false => Err(FleetError::Database(format!(
                "the content of blob {name} has a different digest"
            ))),
        }
    }
}
