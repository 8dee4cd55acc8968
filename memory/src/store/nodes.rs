//! Creates, reads, changes and deletes nodes.

use std::collections::HashMap;

use runner_text::redact::Redacted;
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use ulid::Ulid;

use super::{Change, Memory, Reader};
use crate::error::{MemoryError, Result};
use crate::node::{NewNode, Node, Scope, token_estimate};

/// Minimum length of a short id.
const SHORT: usize = 8;
/// Maximum number of candidates that an ambiguous prefix lists.
const CANDIDATES: i64 = 6;

const COLUMNS: &str = "n.id, n.type, n.content, n.summary, n.token_estimate, n.superseded_by, \
    n.project, n.created_at, n.updated_at, n.metadata";

/// The id that a prefix resolves to.
pub type Resolved = String;

/// The changes to a node. `None` keeps a field's value.
#[derive(Clone, Debug, Default)]
pub struct NodeEdit {
    pub kind: Option<crate::NodeType>,
    pub content: Option<String>,
    pub summary: Option<String>,
    pub metadata: Option<String>,
}

pub(crate) fn node_of(row: &Row<'_>) -> rusqlite::Result<Node> {
    let kind: String = row.get(1)?;
    Ok(Node {
        id: row.get(0)?,
        kind: kind.parse().map_err(|_| {
            rusqlite::Error::FromSqlConversionFailure(
                1,
                rusqlite::types::Type::Text,
                FromSqlError::Other(format!("unknown node type {kind:?}").into()).into(),
            )
        })?,
        content: row.get(2)?,
        summary: row.get(3)?,
        token_estimate: row.get(4)?,
        superseded_by: row.get(5)?,
        project: row.get(6)?,
        created_at: row.get(7)?,
        updated_at: row.get(8)?,
        metadata: row.get(9)?,
        tags: Vec::new(),
    })
}

/// Returns the nodes selected by `rest`, which is a FROM clause that contains `nodes n` and any
/// clauses after it.
pub(crate) fn select(
    db: &Connection,
    rest: &str,
    arguments: impl rusqlite::Params,
) -> rusqlite::Result<Vec<Node>> {
    let sql = format!("SELECT {COLUMNS} {rest}");
    let mut statement = db.prepare_cached(&sql)?;
    let nodes: rusqlite::Result<Vec<Node>> = statement.query_map(arguments, node_of)?.collect();
    let mut nodes = nodes?;
    let mut tags = db.prepare_cached("SELECT tag FROM tags WHERE node_id = ?1 ORDER BY tag")?;
    for node in &mut nodes {
        node.tags =
            tags.query_map([&node.id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    }
    Ok(nodes)
}

/// Returns the id that a prefix resolves to, if the prefix is unique in the scope.
pub(crate) fn resolve(db: &Connection, prefix: &str, scope: &Scope) -> Result<Resolved> {
    let mut wanted = prefix.trim().to_ascii_uppercase();
    let (all, project) = scope_arguments(scope);
    let found = |wanted: &str| -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT id FROM nodes WHERE id >= ?1 AND id < ?1 || '~' \
            AND (?3 OR project IS NULL OR project = ?4) ORDER BY id LIMIT ?2";
        let mut statement = db.prepare_cached(sql)?;
        let arguments = params![wanted, CANDIDATES, all, project];
        statement.query_map(arguments, |row| row.get(0))?.collect()
    };
    let mut found = match wanted.is_empty() {
        true => Vec::new(),
        false => found(&wanted)
            .and_then(|upper| match upper.is_empty() {
                // An earlier version imported ids in lower case.
                true => {
                    wanted.make_ascii_lowercase();
                    found(&wanted)
                }
                false => Ok(upper),
            })
            .map_err(|error| MemoryError::of(std::path::Path::new(""), error))?,
    };
    let exact = found.iter().position(|id| *id == wanted);
    match (exact, found.len()) {
        (Some(at), _) => Ok(found.swap_remove(at)),
        (None, 0) => Err(MemoryError::NotFound { what: "node", name: prefix.to_owned() }),
        (None, 1) => Ok(found.remove(0)),
        _ => Err(MemoryError::Ambiguous { prefix: prefix.to_owned(), candidates: found }),
    }
}

/// Returns the first 8 characters of an id, or more if that is necessary to make it unique in the
/// store.
pub(crate) fn short(db: &Connection, id: &str) -> rusqlite::Result<String> {
    let near = |sql: &str| -> rusqlite::Result<Option<String>> {
        db.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()
    };
    let before = near("SELECT id FROM nodes WHERE id < ?1 ORDER BY id DESC LIMIT 1")?;
    let after = near("SELECT id FROM nodes WHERE id > ?1 ORDER BY id LIMIT 1")?;
    let shared = |other: &String| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let shared = before.iter().chain(&after).map(shared).max().unwrap_or(0);
    Ok(id.chars().take((shared + 1).max(SHORT)).collect())
}

impl Memory {
    /// Returns the node that a unique prefix resolves to.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes match.
    pub fn node(&self, prefix: &str) -> Result<Node> {
        self.node_in(prefix, &Scope::All)
    }

    /// Returns the node of a scope that a unique prefix resolves to.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes of the scope match.
    pub fn node_in(&self, prefix: &str, scope: &Scope) -> Result<Node> {
        let id = resolve(&self.db, prefix, scope)?;
        let found = self.read(|db| select(db, "FROM nodes n WHERE n.id = ?1", [&id]))?;
        found.into_iter().next().ok_or(MemoryError::NotFound { what: "node", name: id })
    }

    /// Resolves a unique prefix of an id.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes match.
    pub fn resolve(&self, prefix: &str) -> Result<Resolved> {
        resolve(&self.db, prefix, &Scope::All)
    }
}

impl Reader<'_> {
    /// Returns the nodes with these ids, in this order. Deleted nodes are omitted.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn nodes(self, ids: &[String]) -> Result<Vec<Node>> {
        let list = serde_json::to_string(ids).unwrap_or_default();
        let rest = "FROM json_each(?1) j JOIN nodes n ON n.id = j.value ORDER BY j.key";
        self.read(|db| select(db, rest, [list]))
    }

    /// Returns the short ids of nodes, keyed by id.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn short_ids<'a>(
        self,
        ids: impl IntoIterator<Item = &'a String>,
    ) -> Result<HashMap<String, String>> {
        let ids = ids.into_iter();
        self.read(|db| ids.map(|id| Ok((id.clone(), short(db, id)?))).collect())
    }

    /// Counts the nodes in a scope that have not been replaced by another node.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn count(self, scope: &Scope) -> Result<i64> {
        let (all, project) = scope_arguments(scope);
        let sql = "SELECT count(*) FROM nodes WHERE superseded_by IS NULL \
            AND (?1 OR project IS NULL OR project = ?2)";
        self.read(|db| db.query_row(sql, params![all, project], |row| row.get(0)))
    }
}

/// Returns whether a scope includes all projects, and the scope's project, if any.
pub(crate) fn scope_arguments(scope: &Scope) -> (bool, Option<&str>) {
    (*scope == Scope::All, scope.project())
}

impl Change<'_> {
    /// Creates a node and returns its id. Secrets in its text are replaced first.
    ///
    /// # Errors
    /// Returns an error if the content is empty, a tag is invalid or the store cannot be written.
    pub fn add(&mut self, new: &NewNode) -> Result<String> {
        let content = Redacted::of(new.content.trim()).into_string();
        if content.trim().is_empty() {
            return Err(MemoryError::Invalid("the content of a node must not be empty".to_owned()));
        }
        self.begin()?;
        let millis = u64::try_from(self.now.as_millisecond()).unwrap_or(0);
        let id = Ulid::from_parts(millis, Ulid::new().random()).to_string();
        let kind = new.kind.unwrap_or(crate::NodeType::Fact).as_str();
        let summary = new.summary.as_deref().map(|text| Redacted::of(text.trim()).into_string());
        let metadata = match &new.origin {
            Some(origin) => serde_json::json!({ "origin": &*Redacted::of(origin) }).to_string(),
            None => "{}".to_owned(),
        };
        self.sql(|tx| {
            tx.prepare_cached(
                "INSERT INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7, ?7, ?8)",
            )?
            .execute(params![
                id,
                kind,
                content,
                summary,
                token_estimate(&content),
                new.project,
                self.at,
                metadata
            ])?;
            if let Some(session) = &new.session {
                tx.prepare_cached("UPDATE node_index SET session = ?2 WHERE node_id = ?1")?
                    .execute((&id, session))?;
            }
            Ok(())
        })?;
        for tag in &new.tags {
            self.tag(&id, tag)?;
        }
        Ok(id)
    }

    /// Changes fields of a node. New metadata without an origin keeps the node's origin.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes match the prefix, if the content would be
    /// empty, or if the metadata is not a JSON object.
    pub fn edit(&mut self, prefix: &str, edit: &NodeEdit) -> Result<String> {
        let id = self.resolve(prefix)?;
        self.begin()?;
        let clean = |text: &Option<String>| {
            text.as_deref().map(|text| Redacted::of(text.trim()).into_string())
        };
        let (content, summary) = (clean(&edit.content), clean(&edit.summary));
        if content.as_deref().is_some_and(str::is_empty) {
            return Err(MemoryError::Invalid("the content of a node must not be empty".to_owned()));
        }
        let origin = match &edit.metadata {
            Some(_) => self.reader().nodes(std::slice::from_ref(&id))?.remove(0).meta("origin"),
            None => None,
        };
        let metadata = edit.metadata.as_deref().map(|text| {
            match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
                Ok(mut fields) => {
                    if let Some(origin) = &origin {
                        fields.entry("origin").or_insert_with(|| origin.as_str().into());
                    }
                    Ok(Redacted::json(&fields).map(Redacted::into_string))
                }
                Err(error) => {
                    Err(MemoryError::Invalid(format!("the metadata is not a JSON object: {error}")))
                }
            }
        });
        let metadata = metadata.transpose()?.transpose();
        let metadata = metadata.map_err(|error| MemoryError::Invalid(error.to_string()))?;
        let sql = "UPDATE nodes SET type = coalesce(?2, type), content = coalesce(?3, content), \
            summary = coalesce(?4, summary), token_estimate = coalesce(?5, token_estimate), \
            metadata = coalesce(?6, metadata), updated_at = ?7 WHERE id = ?1";
        self.sql(|tx| {
            tx.execute(
                sql,
                params![
                    id,
                    edit.kind.map(crate::NodeType::as_str),
                    content,
                    summary,
                    content.as_deref().map(token_estimate),
                    metadata,
                    self.at
                ],
            )
        })?;
        Ok(id)
    }

    /// Deletes a node with its tags and edges, and returns its id.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes match the prefix.
    pub fn delete(&mut self, prefix: &str) -> Result<String> {
        let id = self.resolve(prefix)?;
        self.begin()?;
        self.sql(|tx| tx.execute("DELETE FROM nodes WHERE id = ?1", [&id]))?;
        Ok(id)
    }

    /// Resolves a unique prefix of an id.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes match.
    pub fn resolve(&self, prefix: &str) -> Result<Resolved> {
        self.resolve_in(prefix, &Scope::All)
    }

    /// Resolves a prefix of an id that is unique in a scope.
    ///
    /// # Errors
    /// Returns an error if no node or several nodes of the scope match.
    pub fn resolve_in(&self, prefix: &str, scope: &Scope) -> Result<Resolved> {
        resolve(&self.tx, prefix, scope)
    }
}
