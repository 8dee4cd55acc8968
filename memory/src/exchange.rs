//! Exports a store to JSON and imports it. An export without secrets that is imported into an empty
//! store is exported again as the same bytes.

use jiff::Timestamp;
use runner_text::redact::Redacted;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::{MemoryError, Result};
use crate::node::{NewNode, Node, NodeType, RECOMMENDED, token_estimate};
use crate::query::{Expr, Selection, Superseded};
use crate::store::{Change, Edge, Memory, View, is_tag_separator, valid_view_name};

/// A tag of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    pub node_id: String,
    pub tag: String,
    pub created_at: String,
}

/// A whole store. Nodes and edges are ordered by id, tags by node and tag, and views by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    pub nodes: Vec<ExportedNode>,
    pub edges: Vec<Edge>,
    pub tags: Vec<Tagged>,
    pub views: Vec<View>,
}

/// A node without its tags. An export lists the tags separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedNode {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: NodeType,
    pub content: String,
    #[serde(default)]
    pub summary: Option<String>,
    pub token_estimate: i64,
    #[serde(default)]
    pub superseded_by: Option<String>,
    #[serde(default)]
    pub project: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    #[serde(default = "empty")]
    pub metadata: String,
}

fn empty() -> String {
    "{}".to_owned()
}

/// The number of rows that an import added. The number of views includes replaced ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub nodes: usize,
    pub edges: usize,
    pub tags: usize,
    pub views: usize,
}

impl Memory {
    /// Returns the whole store.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn export(&self) -> Result<Export> {
        let selection = Selection {
            query: &Expr::All,
            scope: &crate::Scope::All,
            superseded: Superseded::Include,
            limit: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let (mut nodes, _) = selection.run(self.reader())?;
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        let tags = self.read(|db| {
            let mut statement =
                db.prepare("SELECT node_id, tag, created_at FROM tags ORDER BY node_id, tag")?;
            let tags = statement.query_map([], |row| {
                Ok(Tagged { node_id: row.get(0)?, tag: row.get(1)?, created_at: row.get(2)? })
            })?;
            tags.collect()
        })?;
        let edges = self.reader().edges_where("", [])?;
        Ok(Export {
            nodes: nodes.into_iter().map(exported).collect(),
            edges,
            tags,
            views: self.views()?,
        })
    }

    /// Adds the rows of an export. Secrets in the rows are replaced first. An invalid time is
    /// replaced by the current one, and characters that a tag must not contain by `-`. The ids of
    /// nodes are converted to upper case. Existing rows are not changed, except that a view is
    /// replaced if it was never edited.
    ///
    /// # Errors
    /// Returns an error and adds nothing if a row is invalid, such as an edge from or to a missing
    /// node.
    pub fn import(&mut self, export: &Export, now: Timestamp) -> Result<Imported> {
        self.change("import", now, |change| change.import(export))
    }
}

fn exported(node: Node) -> ExportedNode {
    ExportedNode {
        id: node.id,
        kind: node.kind,
        content: node.content,
        summary: node.summary,
        token_estimate: node.token_estimate,
        superseded_by: node.superseded_by,
        project: node.project,
        created_at: node.created_at,
        updated_at: node.updated_at,
        metadata: node.metadata,
    }
}

/// Returns whether a string is a time, with or without an offset from UTC.
fn is_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok() || text.parse::<jiff::civil::DateTime>().is_ok()
}

/// Joins the parts of an imported tag that is not valid, so that it cannot be mistaken for other
/// tags or lines.
fn one_tag(tag: &str) -> String {
    let parts = tag.split(is_tag_separator).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-")
}

impl Change<'_> {
    fn import(&mut self, export: &Export) -> Result<Imported> {
        if let Some(bad) =
            export.nodes.iter().find(|node| ulid::Ulid::from_string(&node.id).is_err())
        {
            return Err(MemoryError::Invalid(format!("{:?} is not a node id", bad.id)));
        }
        for view in &export.views {
            valid_view_name(&view.name)?;
        }
        self.begin()?;
        let cleaned = |text: &str| Redacted::of(text).into_string();
        let time = |text: &str| match is_time(text) {
            true => text.to_owned(),
            false => self.at.clone(),
        };
        let mut done = Imported::default();
        let rows = self.sql(|tx| {
            tx.execute_batch("PRAGMA defer_foreign_keys = ON")?;
            // An earlier version kept the lower case of an imported id.
            let node_id = |id: &str| -> rusqlite::Result<String> {
                let known = tx.prepare_cached("SELECT 1 FROM nodes WHERE id = ?1")?.exists([id])?;
                Ok(if known { id.to_owned() } else { id.to_ascii_uppercase() })
            };
            for it in &export.nodes {
                let content = cleaned(&it.content);
                let summary = it.summary.as_deref().map(cleaned);
                done.nodes += tx
                    .prepare_cached("INSERT OR IGNORE INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?
                    .execute(params![
                        node_id(&it.id)?, it.kind.as_str(), content, summary,
                        token_estimate(&content), it.superseded_by.as_deref().map(node_id).transpose()?,
                        it.project, time(&it.created_at), time(&it.updated_at),
                        cleaned(&it.metadata)
                    ])?;
            }
            for it in &export.edges {
                done.edges += tx
                    .prepare_cached("INSERT OR IGNORE INTO edges VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                    .execute(params![
                        it.id, node_id(&it.from_id)?, node_id(&it.to_id)?, it.kind.as_str(),
                        time(&it.created_at), cleaned(&it.metadata)
                    ])?;
            }
            for it in &export.tags {
                let tag = one_tag(&cleaned(&it.tag));
                if !tag.is_empty() {
                    done.tags += tx
                        .prepare_cached("INSERT OR IGNORE INTO tags VALUES (?1, ?2, ?3)")?
                        .execute(params![node_id(&it.node_id)?, tag, time(&it.created_at)])?;
                }
            }
            for it in &export.views {
                done.views += tx
                    .prepare_cached(
                        "INSERT INTO views VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE SET \
                         query = ?2, budget = ?3, created_at = ?4, updated_at = ?5 \
                         WHERE created_at = updated_at",
                    )?
                    .execute(params![
                        cleaned(&it.name), cleaned(&it.query), it.budget, time(&it.created_at),
                        time(&it.updated_at)
                    ])?;
            }
            tx.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get::<_, i64>(0))
        })?;
        match rows {
            0 => Ok(done),
            rows => Err(MemoryError::Invalid(format!(
                "{rows} edges, tags or superseded nodes name a node that does not exist"
            ))),
        }
    }

    /// Adds the nodes whose content is not in their project yet, except for empty and very large
    /// ones. Returns the ids of the new nodes.
    ///
    /// # Errors
    /// Returns an error if a tag is invalid or the store cannot be written.
    pub fn add_missing(&mut self, nodes: &[NewNode]) -> Result<Vec<String>> {
        let mut added = Vec::new();
        for node in nodes {
            let content = Redacted::of(node.content.trim()).into_string();
            let sql = "SELECT id FROM nodes WHERE content = ?1 AND project IS ?2 LIMIT 1";
            let known: Option<String> = self.one(sql, params![content, node.project])?;
            if known.is_none() && !content.is_empty() && content.len() <= 20 * RECOMMENDED {
                added.push(self.add(node)?);
            }
        }
        Ok(added)
    }
}

impl Export {
    /// Reads the nodes, edges and tags of a database created by another program, without changing
    /// it. Nodes without an id or content, edges without an id or an end, and tags without a node
    /// or name are skipped. Other missing columns get default values. Unknown node types become
    /// facts, and unknown edge types become `RELATES_TO`.
    ///
    /// # Errors
    /// Returns an error if the file is not a database with tables of nodes, edges and tags, or if
    /// its write-ahead log contains changes.
    pub fn of_store(path: &std::path::Path) -> Result<Self> {
        use rusqlite::OpenFlags;
        let wrong = |error| MemoryError::of(path, error);
        let log = format!("{}-wal", path.display());
        if std::fs::metadata(&log).is_ok_and(|data| data.len() > 0) {
            return Err(MemoryError::Invalid(format!(
                "{log} has changes that are not in the store yet: end the program that uses \
                 the store, or run sqlite3 {} 'PRAGMA wal_checkpoint(TRUNCATE)'",
                path.display()
            )));
        }
        // `immutable` keeps SQLite from creating files beside the store.
        let escaped = path.display().to_string().replace('%', "%25");
        let escaped = escaped.replace('?', "%3f").replace('#', "%23");
        let uri = format!("file:{}?immutable=1", escaped);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let db = rusqlite::Connection::open_with_flags(uri, flags).map_err(wrong)?;
        let text = |row: &rusqlite::Row<'_>, name: &str| -> Option<String> {
            match row.get_ref(name).ok()? {
                rusqlite::types::ValueRef::Text(text) => {
                    Some(String::from_utf8_lossy(text).into_owned())
                }
                rusqlite::types::ValueRef::Integer(number) => Some(number.to_string()),
                _ => None,
            }
        };
        let rows = |table: &str| -> Result<Vec<Vec<Option<String>>>> {
            let columns: &[&str] = match table {
                "nodes" => &[
                    "id",
                    "type",
                    "content",
                    "summary",
                    "superseded_by",
                    "created_at",
                    "updated_at",
                    "metadata",
                ],
                "edges" => &["id", "from_id", "to_id", "type", "created_at", "metadata"],
                _ => &["node_id", "tag", "created_at"],
            };
            let mut statement = db.prepare(&format!("SELECT * FROM {table}")).map_err(wrong)?;
            let rows = statement.query_map([], |row| {
                Ok(columns.iter().map(|name| text(row, name)).collect::<Vec<_>>())
            });
            rows.map_err(wrong)?.collect::<rusqlite::Result<_>>().map_err(wrong)
        };
        let mut out = Self::default();
        for mut row in rows("nodes")? {
            let mut take = |at: usize| row[at].take();
            let (Some(id), kind, Some(content)) = (take(0), take(1), take(2)) else { continue };
            let created_at = take(5).unwrap_or_default();
            out.nodes.push(ExportedNode {
                kind: kind.and_then(|kind| kind.parse().ok()).unwrap_or(NodeType::Fact),
                token_estimate: token_estimate(&content),
                summary: take(3),
                superseded_by: take(4),
                project: None,
                updated_at: take(6).unwrap_or_else(|| created_at.clone()),
                metadata: take(7).filter(|text| text.starts_with('{')).unwrap_or_else(empty),
                id,
                content,
                created_at,
            });
        }
        for mut row in rows("edges")? {
            let mut take = |at: usize| row[at].take();
            let (Some(id), Some(from_id), Some(to_id)) = (take(0), take(1), take(2)) else {
                continue;
            };
            let kind = take(3).and_then(|kind| crate::EdgeType::parse(&kind).ok());
            out.edges.push(Edge {
                kind: kind.unwrap_or(crate::EdgeType::RelatesTo),
                created_at: take(4).unwrap_or_default(),
                metadata: take(5).unwrap_or_else(empty),
                id,
                from_id,
                to_id,
            });
        }
        for mut row in rows("tags")? {
            let mut take = |at: usize| row[at].take();
            let (Some(node_id), Some(tag)) = (take(0), take(1)) else { continue };
            out.tags.push(Tagged { node_id, tag, created_at: take(2).unwrap_or_default() });
        }
        Ok(out)
    }
}
