//! Reads notes of the project's coding sessions from the memory: open points, and notes relevant to
//! a given string.
//!
//! The store is only read, never created. Notes are data written by a session: they may support a
//! proposal, but must never decide one.

use std::path::Path;

use runner_memory::node::preview;
use runner_memory::query::{Selection, Superseded, parse};
use runner_memory::rank;
use runner_memory::store::locate;
use runner_memory::{Memory, MemoryError, Node, NodeType, Scope};
use serde::{Deserialize, Serialize};

use crate::Context;

/// The folder of the memory store, inside the home folder.
const FOLDER: &str = ".ctx";
/// Maximum number of notes to return for one string.
const ABOUT: usize = 3;
/// Maximum number of open points.
const OPEN: usize = 200;
/// Maximum length of a search string, in characters.
const ASKED: usize = 300;

/// A note from a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// The short id, for `runner memory show`.
    pub id: String,
    pub kind: NodeType,
    /// The date of the note in UTC.
    pub day: String,
    /// A one-line preview of the text.
    pub text: String,
    /// The whole text.
    pub content: String,
}

/// Read-only access to the memory of one project.
pub(crate) struct ProjectMemory {
    memory: Memory,
    project: String,
}

impl ProjectMemory {
    /// Opens the user's default store. Returns `None` if there is no store, if the store belongs to
    /// another program or an older version, or if the home folder or the project is unknown.
    ///
    /// # Errors
    /// Returns an error if the store is damaged, in use or from a newer version.
    pub fn open(ctx: &Context<'_>) -> Result<Option<Self>, MemoryError> {
        let Some(home) = ctx.programs.env().get("HOME") else { return Ok(None) };
        let Ok(row) = ctx.spender.store().run(ctx.admitted.run()) else { return Ok(None) };
        let place = locate(&Path::new(home).join(FOLDER));
        let memory = Memory::open_to_read(&place.path)?;
        Ok(memory.map(|memory| Self { memory, project: row.project.to_string() }))
    }

    /// Returns the project's nodes that are open questions, tasks or hypotheses, newest first, at
    /// most [`OPEN`]. Nodes that are superseded, that have the tier `off-context`, or that an
    /// untrusted party may have written are left out.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn open_points(&self, now: jiff::Timestamp) -> Result<Vec<SessionNote>, MemoryError> {
        let query = parse(
            "(type:open-question OR type:task OR type:hypothesis) AND has:project \
             AND NOT tag:\"tier:off-context\"",
        )?;
        let selection = Selection {
            query: &query,
            scope: &Scope::Project(self.project.clone()),
            superseded: Superseded::Omit,
            limit: None,
            now,
        };
        let (mut nodes, _) = selection.run(self.memory.reader())?;
        nodes.retain(|node| !node.is_by_stranger());
        nodes.sort_by(|a, b| b.id.cmp(&a.id));
        nodes.truncate(OPEN);
        self.notes(nodes)
    }

    /// Returns at most [`ABOUT`] notes relevant to a string, best first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn about(&self, text: &str) -> Result<Vec<SessionNote>, MemoryError> {
        let text: String = text.chars().take(ASKED).collect();
        let reader = self.memory.reader();
        let scope = Scope::Project(self.project.clone());
        let hits = rank::relevant(reader, &text, &scope)?;
        let ids: Vec<String> = hits.into_iter().map(|hit| hit.id).take(ABOUT).collect();
        self.notes(reader.nodes(&ids)?)
    }

    fn notes(&self, nodes: Vec<Node>) -> Result<Vec<SessionNote>, MemoryError> {
        let short = self.memory.reader().short_ids(nodes.iter().map(|node| &node.id))?;
        let note = |node: Node| SessionNote {
            id: short[&node.id].clone(),
            kind: node.kind,
            day: node.created_at.get(..10).unwrap_or_default().to_owned(),
            text: preview(&node.content),
            content: node.content,
        };
        Ok(nodes.into_iter().map(note).collect())
    }
}
