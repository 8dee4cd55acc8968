//! Implements the `runner memory` commands that work on single nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};

use runner_memory::node::{NewNode, RECOMMENDED};
use runner_memory::store::{Edge, NodeEdit};
use runner_memory::{EdgeType, Node, NodeType};
use serde::Serialize;

use super::{MemoryCli, NodeView};
use crate::ui::{Failure, Ui, View, show};

/// Maximum size of a text on standard input, in bytes.
const LARGEST: u64 = 16 << 20;

/// Maximum depth of a trace.
const DEEPEST: usize = 20;

/// Returns `text`, or the content of standard input if `text` is `-`.
pub(super) fn content(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = Vec::new();
    match io::stdin().lock().take(LARGEST + 1).read_to_end(&mut read) {
        Ok(length) if length as u64 > LARGEST => {
            Err(Failure::data(format!("standard input has more than {LARGEST} bytes")))
        }
        Ok(_) => String::from_utf8(read)
            .map_err(|error| Failure::data(format!("standard input: {error}"))),
        Err(error) => Err(Failure::data(format!("standard input: {error}"))),
    }
}

fn node_type(text: &str) -> Result<NodeType, String> {
    NodeType::parse(text).map_err(|error| error.to_string())
}

fn edge_type(text: &str) -> Result<EdgeType, String> {
    EdgeType::parse(text).map_err(|error| error.to_string())
}

/// Add a node
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner memory add --type decision --tag tier:reference \"We use SQLite\""
)]
pub struct AddArgs {
    /// The text, or - for standard input
    content: String,
    /// The type: fact, decision, pattern, observation, hypothesis, task, summary, source or
    /// open-question
    #[arg(long = "type", value_name = "TYPE", default_value = "fact", value_parser = node_type)]
    kind: NodeType,
    /// A tag (may be repeated); a tier is one of tier:pinned, tier:reference and tier:working
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Make the node available to all projects
    #[arg(long)]
    global: bool,
    /// The origin of the text; the origins tool and web mark text that others have written
    #[arg(long, value_name = "TEXT")]
    origin: Option<String>,
}

impl AddArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let content = content(&self.content)?;
        if content.len() > RECOMMENDED {
            show::notice(&format!("warning: large content ({} bytes)", content.len()));
        }
        let node = NewNode {
            kind: Some(self.kind),
            content,
            tags: self.tags.clone(),
            project: on.project(self.global),
            origin: self.origin.clone(),
            ..NewNode::default()
        };
        let id = on.memory.change("add", on.now, |change| change.add(&node))?;
        on.done("added", id)
    }
}

/// Change a node's text, type, summary or metadata
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory update 01HQ1A2B --content \"We use SQLite 3.51\"")]
pub struct UpdateArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
    /// The new text, or - for standard input
    #[arg(long, value_name = "TEXT")]
    content: Option<String>,
    /// The new type
    #[arg(long = "type", value_name = "TYPE", value_parser = node_type)]
    kind: Option<NodeType>,
    /// The new summary
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// The new metadata, a JSON object
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
}

impl UpdateArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let edit = NodeEdit {
            kind: self.kind,
            content: self.content.as_deref().map(content).transpose()?,
            summary: self.summary.clone(),
            metadata: self.metadata.clone(),
        };
        let id = on.memory.change("update", on.now, |change| change.edit(&self.id, &edit))?;
        on.done("updated", id)
    }
}

/// Delete a node; `undo` restores it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory delete 01HQ1A2B")]
pub struct DeleteArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
}

impl DeleteArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let id = on.memory.change("delete", on.now, |change| change.delete(&self.id))?;
        on.done("deleted", id)
    }
}

/// Show a node in full, with its edges and its provenance
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory show 01HQ1A2B")]
pub struct ShowArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
}

#[derive(Debug, Serialize)]
struct WholeView {
    #[serde(flatten)]
    node: NodeView,
    edges: Vec<Edge>,
}

impl View for WholeView {
    fn print(&self, _: Ui) {
        let node = &self.node.node;
        let mut rows = vec![
            show::row(["id", &node.id]),
            show::row(["type", node.kind.as_str()]),
            show::row(["tags", &node.tags.join(", ")]),
            show::row(["project", node.project.as_deref().unwrap_or("all")]),
            show::row(["created", &node.created_at]),
            show::row(["updated", &node.updated_at]),
            show::row(["tokens", &node.token_estimate.to_string()]),
        ];
        let mut add = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                rows.push(show::row([name, value]));
            }
        };
        add("replaced by", &node.superseded_by);
        add("summary", &node.summary);
        add("origin", &node.meta("origin"));
        for edge in &self.edges {
            let end = match edge.from_id == node.id {
                true => format!("{} {}", edge.kind.as_str(), edge.to_id),
                false => format!("{} of {}", edge.kind.as_str(), edge.from_id),
            };
            rows.push(show::row(["edge", &end]));
        }
        show::out(&show::table(&rows));
        show::out(&format!("\n{}\n", node.content));
    }
}

impl ShowArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let node = on.memory.node(&self.id)?;
        let reader = on.memory.reader();
        let edges = reader.edges(&node.id)?;
        let short = reader.short_ids([&node.id])?;
        on.ui.show(&WholeView { node: NodeView::of(node, &short), edges });
        Ok(())
    }
}

/// Show the nodes that a summary was derived from
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory expand 01HQ1A2B")]
pub struct ExpandArgs {
    /// The id of the summary, or an unambiguous prefix of it
    id: String,
}

impl ExpandArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let node = on.memory.node(&self.id)?;
        if node.kind != NodeType::Summary {
            let what = format!("{} is not a summary, so there is nothing to expand", node.id);
            return Err(Failure::data(what).hint("runner memory trace ID"));
        }
        let reader = on.memory.reader();
        let edges = reader.edges(&node.id)?;
        let from =
            edges.iter().filter(|it| it.kind == EdgeType::DerivedFrom && it.from_id == node.id);
        let ids: Vec<String> = from.map(|it| it.to_id.clone()).collect();
        let nodes = reader.nodes(&ids)?;
        if on.ui.json {
            let found = nodes.len();
            return on.show_nodes(nodes, found);
        }
        let short = reader.short_ids(&ids)?;
        for node in &nodes {
            show::out(&format!(
                "[{}:{}]\n{}\n\n",
                node.kind.as_str(),
                short[&node.id],
                node.content
            ));
        }
        Ok(())
    }
}

/// Show a node's origins by following the edges that begin at it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory trace 01HQ1A2B")]
pub struct TraceArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
}

#[derive(Debug, Serialize)]
struct TraceView {
    nodes: Vec<TracedNode>,
}

#[derive(Debug, Serialize)]
struct TracedNode {
    /// The number of edges followed from the first node to this one.
    depth: usize,
    /// The type of the edge from the parent node; `None` for the first node.
    edge: Option<EdgeType>,
    #[serde(flatten)]
    node: NodeView,
}

impl View for TraceView {
    fn print(&self, _: Ui) {
        for it in &self.nodes {
            let edge = it.edge.map_or(String::new(), |edge| format!("{} ", edge.as_str()));
            let indent = "  ".repeat(it.depth);
            let node = &it.node.node;
            let line = format!(
                "{indent}{edge}[{}:{}] {}",
                node.kind.as_str(),
                it.node.short_id,
                node.preview()
            );
            show::out(&(line + "\n"));
        }
    }
}

impl TraceArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let first = on.memory.node(&self.id)?;
        let reader = on.memory.reader();
        let mut seen = BTreeSet::from([first.id.clone()]);
        let mut order: Vec<(usize, Option<EdgeType>, String)> = Vec::new();
        let mut open = vec![(0, None, first.id)];
        while let Some((depth, edge, id)) = open.pop() {
            let mut next: Vec<_> = reader.edges(&id)?;
            next.retain(|it| it.from_id == id && depth < DEEPEST && seen.insert(it.to_id.clone()));
            open.extend(next.into_iter().rev().map(|it| (depth + 1, Some(it.kind), it.to_id)));
            order.push((depth, edge, id));
        }
        let ids: Vec<String> = order.iter().map(|(_, _, id)| id.clone()).collect();
        let short = reader.short_ids(&ids)?;
        let found = reader.nodes(&ids)?.into_iter().map(|node| (node.id.clone(), node));
        let mut found: BTreeMap<String, Node> = found.collect();
        let nodes = order.into_iter().filter_map(|(depth, edge, id)| {
            Some(TracedNode { depth, edge, node: NodeView::of(found.remove(&id)?, &short) })
        });
        on.ui.show(&TraceView { nodes: nodes.collect() });
        Ok(())
    }
}

/// Create an edge between two nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory link 01HQ1A2B 01HQ5678 --type DEPENDS_ON")]
pub struct LinkArgs {
    /// The node where the edge begins
    from: String,
    /// The node where the edge ends
    to: String,
    /// DERIVED_FROM, DEPENDS_ON, SUPERSEDES, RELATES_TO or CHILD_OF
    #[arg(long = "type", value_name = "TYPE", default_value = "RELATES_TO", value_parser = edge_type)]
    kind: EdgeType,
}

impl LinkArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let id = on.memory.resolve(&self.from)?;
        on.memory.change("link", on.now, |change| change.link(&id, &self.to, self.kind))?;
        on.done("linked", id)
    }
}

/// Remove the edges between two nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory unlink 01HQ1A2B 01HQ5678")]
pub struct UnlinkArgs {
    /// The node where the edge begins
    from: String,
    /// The node where the edge ends
    to: String,
    /// Only the edge of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = edge_type)]
    kind: Option<EdgeType>,
}

impl UnlinkArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let id = on.memory.resolve(&self.from)?;
        let count = on.memory.change("unlink", on.now, |it| it.unlink(&id, &self.to, self.kind))?;
        match count {
            0 => {
                Err(Failure::data("there is no such edge").hint(format!("runner memory show {id}")))
            }
            _ => on.done("unlinked", id),
        }
    }
}

/// Add tags to a node
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory tag 01HQ1A2B tier:pinned")]
pub struct TagArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
    /// The tags
    #[arg(required = true)]
    tags: Vec<String>,
}

impl TagArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let id = on.memory.resolve(&self.id)?;
        on.memory.change("tag", on.now, |change| {
            self.tags.iter().try_for_each(|tag| change.tag(&id, tag).map(drop))
        })?;
        on.done("tagged", id)
    }
}

/// Remove tags from a node
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory untag 01HQ1A2B tier:pinned")]
pub struct UntagArgs {
    /// The id, or an unambiguous prefix of it
    id: String,
    /// The tags
    #[arg(required = true)]
    tags: Vec<String>,
}

impl UntagArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let id = on.memory.resolve(&self.id)?;
        on.memory.change("untag", on.now, |change| {
            self.tags.iter().try_for_each(|tag| change.untag(&id, tag).map(drop))
        })?;
        on.done("untagged", id)
    }
}

/// Record that one node replaces another, so that searches and sessions omit the old one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory supersede 01HQ1A2B 01HQ5678")]
pub struct SupersedeArgs {
    /// The node that is replaced
    old: String,
    /// The node that replaces it
    new: String,
}

impl SupersedeArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let (old, _) =
            on.memory.change("supersede", on.now, |it| it.supersede(&self.old, &self.new))?;
        on.done("superseded", old)
    }
}
