//! Tags of nodes, and edges between them.

use std::collections::BTreeSet;

use runner_text::redact::Redacted;
use rusqlite::params;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::{Change, Reader};
use crate::error::{MemoryError, Result};
use crate::node::{EdgeType, Tier};

/// Maximum length of a tag in characters.
const LONGEST_TAG: usize = 200;

/// An edge between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub id: String,
    pub from_id: String,
    pub to_id: String,
    #[serde(rename = "type")]
    pub kind: EdgeType,
    pub created_at: String,
    /// A JSON object.
    pub metadata: String,
}

impl Reader<'_> {
    /// Returns the edges that begin or end at a node, ordered by id.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn edges(self, id: &str) -> Result<Vec<Edge>> {
        self.edges_where("WHERE from_id = ?1 OR to_id = ?1", [id])
    }

    pub(crate) fn edges_where(
        self,
        condition: &str,
        arguments: impl rusqlite::Params,
    ) -> Result<Vec<Edge>> {
        let sql = format!(
            "SELECT id, from_id, to_id, type, created_at, metadata FROM edges {condition} ORDER BY id"
        );
        self.read(|db| {
            let mut statement = db.prepare_cached(&sql)?;
            let edges = statement.query_map(arguments, |row| {
                let kind: String = row.get(3)?;
                Ok(Edge {
                    id: row.get(0)?,
                    from_id: row.get(1)?,
                    to_id: row.get(2)?,
                    kind: kind.parse().unwrap_or(EdgeType::RelatesTo),
                    created_at: row.get(4)?,
                    metadata: row.get(5)?,
                })
            })?;
            edges.collect()
        })
    }
}

/// Returns a redacted tag.
///
/// # Errors
/// Returns an error if the tag is empty, too long or contains a comma, white space or a control
/// character.
pub(crate) fn valid_tag(tag: &str) -> Result<String> {
    let tag = Redacted::of(tag.trim()).into_string();
    match tag.is_empty() || tag.chars().count() > LONGEST_TAG || tag.contains(is_tag_separator) {
        false => Ok(tag),
        true => Err(MemoryError::Invalid(format!(
            "{tag:?} is not a valid tag: use 1 to {LONGEST_TAG} characters without commas or spaces"
        ))),
    }
}

/// Returns whether a character cannot be part of a tag.
pub(crate) fn is_tag_separator(c: char) -> bool {
    c == ',' || c.is_whitespace() || c.is_control()
}

impl Change<'_> {
    /// Adds a tag to a node. Returns whether the tag is new to the node.
    ///
    /// # Errors
    /// Returns an error if the tag is empty, too long or contains a comma, white space or a control
    /// character.
    pub fn tag(&mut self, id: &str, tag: &str) -> Result<bool> {
        let tag = valid_tag(tag)?;
        self.begin()?;
        let sql = "INSERT OR IGNORE INTO tags VALUES (?1, ?2, ?3)";
        let added = self.sql(|tx| tx.prepare_cached(sql)?.execute((id, &tag, &self.at)))?;
        Ok(added > 0)
    }

    /// Removes a tag from a node. Returns whether the node had it.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn untag(&mut self, id: &str, tag: &str) -> Result<bool> {
        self.begin()?;
        let sql = "DELETE FROM tags WHERE node_id = ?1 AND tag = ?2";
        Ok(self.sql(|tx| tx.prepare_cached(sql)?.execute((id, tag.trim())))? > 0)
    }

    /// Replaces the tier of a node.
    pub(crate) fn set_tier(&mut self, id: &str, tier: Tier) -> Result<()> {
        self.begin()?;
        let sql = "DELETE FROM tags WHERE node_id = ?1 AND tag LIKE 'tier:%'";
        self.sql(|tx| tx.execute(sql, [id]))?;
        self.tag(id, &tier.tag()).map(drop)
    }

    /// Creates an edge. Returns whether it is new.
    ///
    /// # Errors
    /// Returns an error if a prefix matches no node or several nodes, or if both match the same
    /// node.
    pub fn link(&mut self, from: &str, to: &str, kind: EdgeType) -> Result<bool> {
        let (from, to) = (self.resolve(from)?, self.resolve(to)?);
        if from == to {
            return Err(MemoryError::Invalid(format!("{from} cannot have an edge to itself")));
        }
        self.begin()?;
        let millis = u64::try_from(self.now.as_millisecond()).unwrap_or(0);
        let id = Ulid::from_parts(millis, Ulid::new().random()).to_string();
        let sql = "INSERT OR IGNORE INTO edges VALUES (?1, ?2, ?3, ?4, ?5, '{}')";
        let added =
            self.sql(|tx| tx.execute(sql, params![id, from, to, kind.as_str(), self.at]))?;
        Ok(added > 0)
    }

    /// Removes the edges from one node to another, of one type or of all types. Returns the number
    /// of edges removed.
    ///
    /// # Errors
    /// Returns an error if a prefix matches no node or several nodes.
    pub fn unlink(&mut self, from: &str, to: &str, kind: Option<EdgeType>) -> Result<usize> {
        let (from, to) = (self.resolve(from)?, self.resolve(to)?);
        self.begin()?;
        let sql =
            "DELETE FROM edges WHERE from_id = ?1 AND to_id = ?2 AND type = coalesce(?3, type)";
        self.sql(|tx| tx.execute(sql, params![from, to, kind.map(EdgeType::as_str)]))
    }

    /// Records that one node replaces another, and adds a corresponding edge. By default, queries
    /// and hooks no longer return the old node.
    ///
    /// # Errors
    /// Returns an error if a prefix matches no node or several nodes, if both match the same node,
    /// or if the old node already replaces the new one, directly or indirectly.
    pub fn supersede(&mut self, old: &str, new: &str) -> Result<(String, String)> {
        let (old, new) = (self.resolve(old)?, self.resolve(new)?);
        let mut next = Some(new.clone());
        let mut seen = BTreeSet::new();
        // Imported nodes may replace each other in a circle.
        while let Some(id) = next.filter(|id| seen.insert(id.clone())) {
            if id == old {
                return Err(MemoryError::Invalid(format!(
                    "{old} and {new} are the same node, or {old} already replaces {new}"
                )));
            }
            let sql = "SELECT superseded_by FROM nodes WHERE id = ?1";
            next = self.one::<Option<String>>(sql, [&id])?.flatten();
        }
        self.begin()?;
        let sql = "UPDATE nodes SET superseded_by = ?2, updated_at = ?3 WHERE id = ?1";
        self.sql(|tx| tx.execute(sql, (&old, &new, &self.at)))?;
        self.link(&new, &old, EdgeType::Supersedes)?;
        Ok((old, new))
    }
}
