//! Executes commands from elements and from users, each as part of one change.

use std::fmt::Write as _;

use crate::element::Element;
use crate::error::{MemoryError, Result};
use crate::node::{EdgeType, NewNode, Node, NodeType, RECOMMENDED, Scope, Tier};
use crate::query;
use crate::rank;
use crate::store::{Change, Reader, valid_tag};
use jiff::Timestamp;
use runner_text::redact::Redacted;
use rusqlite::params;
use serde::{Deserialize, Serialize};

/// Maximum number of nodes that a recall shows.
pub const RECALLED: usize = 20;
/// Maximum number of nodes that one session may remember.
const PER_SESSION: i64 = 500;
/// The tag for nodes of a finished task that the user or a model should summarize.
const NEEDS_SUMMARY: &str = "needs:summary";

/// Names of the values stored for a session.
pub mod key {
    /// A JSON array of recalls.
    pub const RECALL: &str = "recall_results";
    /// The text of the last status.
    pub const STATUS: &str = "status_output";
    /// A JSON array of ids.
    pub const EXPAND: &str = "expand_nodes";
    /// The name of the current task.
    pub const TASK: &str = "current_task";
    /// A JSON object: the turn whose rows were not all read within the time limit.
    pub const TURN: &str = "open_turn";
}

/// The session for which commands are executed.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The id under which the session's values are stored.
    pub session: String,
    /// The session to record as the source of new nodes, or `None` if it is not known.
    pub source: Option<String>,
    pub scope: Scope,
}

/// The result of a recall, which is stored for the session's next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    pub query: String,
    /// The number of matching nodes. A search by rank counts at most [`rank::DEPTH`].
    pub found: usize,
    /// The ids of the first [`RECALLED`] nodes.
    pub nodes: Vec<String>,
}

/// A summary to store, and how to treat the nodes that it summarizes.
#[derive(Clone, Debug, Default)]
pub struct Summarize {
    pub nodes: Vec<String>,
    pub content: String,
    pub tags: Vec<String>,
    /// Whether the nodes leave the context.
    pub archive: bool,
}

/// Splits a list of tags or ids at commas and white space.
pub fn list(text: &str) -> Vec<String> {
    let items = text.split(|c: char| c == ',' || c.is_whitespace());
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Returns the first [`RECALLED`] nodes for a recall, and the number of matching nodes. Text that
/// consists only of words is searched by rank, and any other text is a query.
///
/// # Errors
/// Returns an error if the query has a syntax error or the store cannot be read.
pub fn recall(
    memory: Reader<'_>,
    text: &str,
    scope: &Scope,
    now: Timestamp,
) -> Result<(Vec<Node>, usize)> {
    let expr = query::parse(text)?;
    if let Some(words) = expr.words() {
        let hits = rank::search(memory, &words.join(" "), scope, rank::DEPTH)?;
        let ids: Vec<String> = hits.iter().take(RECALLED).map(|hit| hit.id.clone()).collect();
        return Ok((memory.nodes(&ids)?, hits.len()));
    }
    let selection = query::Selection {
        query: &expr,
        scope,
        superseded: query::Superseded::Omit,
        limit: Some(RECALLED),
        now,
    };
    selection.run(memory)
}

impl Change<'_> {
    /// Executes the command of one element, which can name only nodes in the actor's scope. The
    /// caller executes recalls and status requests, whose results it stores for the session's next
    /// prompt. Returns a warning for the user, if there is one.
    ///
    /// # Errors
    /// Returns an error if the command is invalid or the store cannot be written.
    pub fn execute(&mut self, element: &Element, actor: &Actor) -> Result<Option<String>> {
        let required = |name: &str| {
            element.attribute(name).ok_or_else(|| {
                MemoryError::Invalid(format!("<ctx:{}> needs the attribute {name}", element.name))
            })
        };
        let node = |change: &Self, name: &str| change.resolve_in(required(name)?, &actor.scope);
        let tags = element.attribute("tags").map(list).unwrap_or_default();
        match element.name.as_str() {
            "remember" => {
                let node = NewNode {
                    kind: Some(NodeType::parse(element.attribute("type").unwrap_or("fact"))?),
                    content: element.content.clone(),
                    tags,
                    origin: element.attribute("origin").map(str::to_owned),
                    ..NewNode::default()
                };
                self.remember(node, actor)?;
                let size = element.content.len();
                return Ok((size > RECOMMENDED)
                    .then(|| format!("large content ({size} bytes) in a remember command")));
            }
            "summarize" => {
                let nodes = list(required("nodes")?);
                let nodes = nodes.iter().map(|id| self.resolve_in(id, &actor.scope));
                let summary = Summarize {
                    nodes: nodes.collect::<Result<_>>()?,
                    content: element.content.clone(),
                    tags,
                    archive: element.is_set("archive"),
                };
                self.summarize(&summary, actor)?;
            }
            "link" => {
                let kind = EdgeType::parse(element.attribute("type").unwrap_or("RELATES_TO"))?;
                self.link(&node(self, "from")?, &node(self, "to")?, kind)?;
            }
            "supersede" => drop(self.supersede(&node(self, "old")?, &node(self, "new")?)?),
            "expand" => self.expand(&node(self, "node")?, actor)?,
            "task" => {
                let name = required("name")?;
                match required("action")? {
                    "start" => self.start_task(name, actor)?,
                    "end" => self.end_task(name, element.is_set("summarize"), actor)?,
                    other => {
                        return Err(MemoryError::Invalid(format!(
                            "the action of a task is start or end, not {other:?}"
                        )));
                    }
                }
            }
            other => return Err(MemoryError::Invalid(format!("there is no command {other}"))),
        }
        Ok(None)
    }

    /// Stores a node for the actor's session, and returns the node's id. A working node gets the
    /// tag of the session's task.
    ///
    /// # Errors
    /// Returns an error if the content is empty, a tag is invalid, the session has remembered too
    /// many nodes, or the store cannot be written.
    pub fn remember(&mut self, mut node: NewNode, actor: &Actor) -> Result<String> {
        let sql = "SELECT count(*) FROM node_index WHERE session = ?1";
        if self.one::<i64>(sql, [&actor.source])?.unwrap_or(0) >= PER_SESSION {
            let why = format!("a session can remember at most {PER_SESSION} nodes");
            return Err(MemoryError::Invalid(why));
        }
        if node.tags.contains(&Tier::Working.tag())
            && let Some(task) = self.pending(&actor.session, key::TASK)?
        {
            node.tags.push(format!("task:{task}"));
        }
        node.project = actor.scope.project().map(str::to_owned);
        node.session.clone_from(&actor.source);
        let id = self.add(&node)?;
        // The session that wrote the content already has it in its context.
        self.deliver(&actor.session, std::slice::from_ref(&id))?;
        Ok(id)
    }

    /// Stores a summary of nodes with an edge to each, removes the nodes' `needs:summary` tag, and
    /// returns the summary's id. A summary without a tier gets the highest tier of the nodes. If
    /// a node comes from an untrusted source, the summary gets that origin.
    ///
    /// # Errors
    /// Returns an error if there are no nodes, an id matches no node or several nodes, the content
    /// is empty, a tag is invalid, or the store cannot be written.
    pub fn summarize(&mut self, summary: &Summarize, actor: &Actor) -> Result<String> {
        let ids: Result<Vec<String>> = summary.nodes.iter().map(|id| self.resolve(id)).collect();
        let ids = ids?;
        if ids.is_empty() {
            return Err(MemoryError::Invalid("a summary needs at least one node".to_owned()));
        }
        let sources = self.reader().nodes(&ids)?;
        let mut tags = summary.tags.clone();
        if Tier::of(&tags).is_none() {
            tags.extend(sources.iter().filter_map(Node::tier).min().map(Tier::tag));
        }
        let untrusted = sources.iter().find(|node| node.is_by_stranger());
        let id = self.add(&NewNode {
            kind: Some(NodeType::Summary),
            content: summary.content.clone(),
            tags,
            project: actor.scope.project().map(str::to_owned),
            session: actor.source.clone(),
            origin: untrusted.and_then(|node| node.meta("origin")),
            ..NewNode::default()
        })?;
        for source in &ids {
            self.link(&id, source, EdgeType::DerivedFrom)?;
            self.untag(source, NEEDS_SUMMARY)?;
            if summary.archive {
                self.set_tier(source, Tier::OffContext)?;
            }
        }
        Ok(id)
    }

    /// Requests that the session's next prompt show the sources of a summary.
    fn expand(&mut self, id: &str, actor: &Actor) -> Result<()> {
        let sources = self.sources(id)?;
        let mut waiting: Vec<String> = self
            .pending(&actor.session, key::EXPAND)?
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        waiting.extend(sources);
        waiting.sort();
        waiting.dedup();
        let value = serde_json::to_string(&waiting).unwrap_or_default();
        self.set_pending(&actor.session, key::EXPAND, &value)
    }

    /// Returns the nodes that a summary was derived from.
    ///
    /// # Errors
    /// Returns an error if the node is not a summary or the store cannot be read.
    fn sources(&self, id: &str) -> Result<Vec<String>> {
        let kind: Option<String> = self.one("SELECT type FROM nodes WHERE id = ?1", [id])?;
        if kind.as_deref() != Some(NodeType::Summary.as_str()) {
            return Err(MemoryError::Invalid(format!(
                "{id} is not a summary, so there is nothing to expand"
            )));
        }
        self.sql(|tx| {
            let sql = "SELECT to_id FROM edges WHERE from_id = ?1 AND type = 'DERIVED_FROM' ORDER BY to_id";
            tx.prepare(sql)?.query_map([id], |row| row.get(0))?.collect()
        })
    }

    /// Starts a task, and tags the working nodes of the actor's project with it, except for nodes
    /// that are tagged with another session's current task.
    ///
    /// # Errors
    /// Returns an error if the name cannot be part of a tag, or the store cannot be written.
    pub fn start_task(&mut self, name: &str, actor: &Actor) -> Result<()> {
        let name = &*Redacted::of(name.trim());
        let tag = valid_tag(&format!("task:{name}"))?;
        let others = "NOT EXISTS (SELECT 1 FROM tags o JOIN pending p ON o.tag = 'task:' || p.value \
            WHERE o.node_id = n.id AND p.key = 'current_task' AND p.session <> ?2)";
        for id in self.working(others, &actor.session, actor)? {
            self.tag(&id, &tag)?;
        }
        self.set_pending(&actor.session, key::TASK, name)
    }

    /// Ends a task. Its working nodes in the actor's project leave the context, and are tagged for
    /// a summary if `summarize` is set.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn end_task(&mut self, name: &str, summarize: bool, actor: &Actor) -> Result<()> {
        let name = &*Redacted::of(name);
        let mine = "EXISTS (SELECT 1 FROM tags o WHERE o.node_id = n.id AND o.tag = 'task:' || ?2)";
        for id in self.working(mine, name, actor)? {
            self.set_tier(&id, Tier::OffContext)?;
            if summarize {
                self.tag(&id, NEEDS_SUMMARY)?;
            }
        }
        if self.pending(&actor.session, key::TASK)?.as_deref() == Some(name) {
            self.clear_pending(&actor.session, &[key::TASK])?;
        }
        Ok(())
    }

    /// Returns the ids of the working nodes of the actor's project that satisfy a condition on
    /// `?2`.
    fn working(&self, condition: &str, argument: &str, actor: &Actor) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT n.id FROM tags t JOIN nodes n ON n.id = t.node_id WHERE t.tag = 'tier:working' \
             AND n.superseded_by IS NULL AND n.project IS ?1 AND {condition} ORDER BY n.id"
        );
        self.sql(|tx| {
            let mut statement = tx.prepare(&sql)?;
            let ids =
                statement.query_map(params![actor.scope.project(), argument], |row| row.get(0))?;
            ids.collect()
        })
    }
}

impl Reader<'_> {
    /// Returns the number of nodes in the actor's scope, in total and by type and tier, and the
    /// session's current task.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn status_text(self, actor: &Actor) -> Result<String> {
        let mut text = format!("Nodes: {}\n", self.count(&actor.scope)?);
        let (all, project) = crate::store::scope_arguments(&actor.scope);
        let groups = |sql: &str| {
            self.read(|db| {
                let mut statement = db.prepare(sql)?;
                let rows = statement.query_map(params![all, project], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
                })?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
        };
        let types = "SELECT type, count(*), sum(token_estimate) FROM nodes WHERE superseded_by IS NULL \
            AND (?1 OR project IS NULL OR project = ?2) GROUP BY type ORDER BY type";
        let tiers = "SELECT t.tag, count(*), sum(n.token_estimate) FROM tags t JOIN nodes n ON n.id = t.node_id \
            WHERE t.tag LIKE 'tier:%' AND n.superseded_by IS NULL \
            AND (?1 OR n.project IS NULL OR n.project = ?2) GROUP BY t.tag ORDER BY t.tag";
        for sql in [types, tiers] {
            for (name, count, tokens) in groups(sql)? {
                let _ = writeln!(text, "- {name}: {count} ({tokens} tokens)");
            }
        }
        if let Some(task) = self.pending(&actor.session, key::TASK)? {
            let _ = writeln!(text, "Current task: {task}");
        }
        Ok(text)
    }
}
