//! Renders nodes as Markdown and as JSON, for people and programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;

use crate::element::{BEGIN, END};
use crate::error::Result;
use crate::node::{EdgeType, Node, NodeType, Scope, Tier};
use crate::query::{Selection, Superseded, parse};
use crate::store::Reader;

/// Nodes that were selected within a budget.
#[derive(Clone, Debug, Serialize)]
pub struct Composition {
    pub meta: Meta,
    pub nodes: Vec<ComposedNode>,
    /// The Markdown form.
    #[serde(skip)]
    pub markdown: String,
}

/// The totals of a composition.
#[derive(Clone, Debug, Serialize)]
pub struct Meta {
    pub node_count: usize,
    /// The sum of the token estimates.
    pub token_count: i64,
    /// The number of selected nodes that did not fit the budget.
    pub omitted: usize,
    /// The time in RFC 3339 format.
    pub rendered_at: String,
}

/// A node with its tags and the ids of the nodes that its edges point to, keyed by lower-case edge
/// type.
#[derive(Clone, Debug, Serialize)]
pub struct ComposedNode {
    #[serde(flatten)]
    pub node: Node,
    pub edges: BTreeMap<String, Vec<String>>,
}

/// The selection for a composition.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    pub query: &'r str,
    /// Maximum sum of the token estimates.
    pub budget: i64,
    pub scope: &'r Scope,
    pub superseded: Superseded,
}

impl Reader<'_> {
    /// Selects the nodes that fit the budget, in the order of tier, type and id. A node that is too
    /// large for the remaining budget is omitted; smaller nodes may still follow.
    ///
    /// # Errors
    /// Returns an error if the query has a syntax error or the store cannot be read.
    pub fn compose(self, request: &Request<'_>, now: Timestamp) -> Result<Composition> {
        let query = parse(request.query)?;
        let selection = Selection {
            query: &query,
            scope: request.scope,
            superseded: request.superseded,
            limit: None,
            now,
        };
        let (all, _) = selection.run(self)?;
        let (mut nodes, mut token_count, found) = (Vec::new(), 0, all.len());
        for node in all {
            if token_count + node.token_estimate <= request.budget {
                token_count += node.token_estimate;
                let mut edges: BTreeMap<String, Vec<String>> =
                    ["depends_on", "derived_from"].map(|kind| (kind.to_owned(), vec![])).into();
                for edge in self.edges_where("WHERE from_id = ?1", [&node.id])? {
                    let kind = edge.kind.as_str().to_ascii_lowercase();
                    edges.entry(kind).or_default().push(edge.to_id);
                }
                nodes.push(ComposedNode { node, edges });
            }
        }
        let meta = Meta {
            node_count: nodes.len(),
            token_count,
            omitted: found - nodes.len(),
            rendered_at: now.to_string(),
        };
        let markdown = self.markdown(&nodes, &meta)?;
        Ok(Composition { meta, nodes, markdown })
    }

    fn markdown(self, nodes: &[ComposedNode], meta: &Meta) -> Result<String> {
        let ids = nodes
            .iter()
            .flat_map(|it| std::iter::once(&it.node.id).chain(it.edges.values().flatten()));
        let short = self.short_ids(ids)?;
        let mut out =
            format!("{BEGIN} {} nodes, {} tokens -->\n", meta.node_count, meta.token_count);
        let of = |tier: Option<Tier>| -> Vec<&ComposedNode> {
            nodes.iter().filter(|it| it.node.tier() == tier).collect()
        };
        let line = |it: &ComposedNode| {
            let node = &it.node;
            let mut text = index_line(node, &short[&node.id]);
            if let Some(rationale) = node.meta("rationale") {
                let _ = writeln!(text, "  - Rationale: {}", crate::node::preview(&rationale));
            }
            let depends = EdgeType::DependsOn.as_str().to_ascii_lowercase();
            if let Some(ids) = it.edges.get(&depends).filter(|ids| !ids.is_empty()) {
                let ids: Vec<&str> = ids.iter().map(|id| short[id].as_str()).collect();
                let _ = writeln!(text, "  - Depends on: [{}]", ids.join(", "));
            }
            text
        };
        for (tier, title) in [
            (Some(Tier::Pinned), "Pinned"),
            (Some(Tier::Reference), "Reference"),
            (Some(Tier::Working), "Working Context"),
            (Some(Tier::OffContext), "Off Context"),
            (None, "Other"),
        ] {
            let nodes = of(tier);
            if nodes.is_empty() {
                continue;
            }
            let _ = write!(out, "\n## {title}\n");
            if tier != Some(Tier::Reference) {
                out.push('\n');
                nodes.iter().for_each(|node| out.push_str(&line(node)));
                continue;
            }
            let known = [
                (Some(NodeType::Fact), "Facts"),
                (Some(NodeType::Decision), "Decisions"),
                (Some(NodeType::Pattern), "Patterns"),
                (None, "Others"),
            ];
            for (kind, title) in known {
                let in_group = |it: &&&ComposedNode| match kind {
                    Some(kind) => it.node.kind == kind,
                    None => !known.iter().any(|(known, _)| *known == Some(it.node.kind)),
                };
                let group: Vec<_> = nodes.iter().filter(in_group).collect();
                if !group.is_empty() {
                    let _ = write!(out, "\n### {title}\n\n");
                    group.iter().for_each(|node| out.push_str(&line(node)));
                }
            }
        }
        if meta.omitted > 0 {
            let _ = write!(out, "\n{} more exceed the budget: runner memory list\n", meta.omitted);
        }
        let _ = write!(out, "\n{END}\n");
        Ok(out)
    }

    /// Renders the results of a recall.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn recall_markdown(self, query: &str, nodes: &[Node], found: usize) -> Result<String> {
        let parts = self.recall_parts(query, nodes, found)?;
        Ok(parts.head + &parts.nodes.concat() + &parts.tail)
    }

    pub(crate) fn recall_parts(
        self,
        query: &str,
        nodes: &[Node],
        found: usize,
    ) -> Result<RecallParts> {
        let query = query.replace('`', "'").split_whitespace().collect::<Vec<_>>().join(" ");
        let summary = match nodes.is_empty() {
            true => "No matching nodes found.\n".to_owned(),
            false => format!("Found {}:\n\n", runner_text::counted(found, "node")),
        };
        let short = self.short_ids(nodes.iter().map(|node| &node.id))?;
        let more = match found > nodes.len() && !nodes.is_empty() {
            true => format!("\n{} more: runner memory list\n", found - nodes.len()),
            false => String::new(),
        };
        Ok(RecallParts {
            head: format!("## Recall Results\n\nQuery: `{query}`\n\n{summary}"),
            nodes: nodes.iter().map(|node| index_line(node, &short[&node.id])).collect(),
            tail: format!("{more}\n---\n"),
        })
    }
}

/// The results of a recall as Markdown.
pub(crate) struct RecallParts {
    pub head: String,
    /// The lines of each node.
    pub nodes: Vec<String>,
    pub tail: String,
}

/// Returns the preview of a node with its tags, as list items.
fn index_line(node: &Node, short: &str) -> String {
    let (kind, mark) = (node.kind.as_str(), node.source_mark());
    let mut text = format!("- [{kind}:{short}] {}{mark}\n", node.preview());
    if !node.tags.is_empty() {
        let _ = writeln!(text, "  - Tags: {}", node.tags.join(", "));
    }
    text
}
