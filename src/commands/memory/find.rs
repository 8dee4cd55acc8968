//! Implements the `runner memory` commands that find nodes.

use runner_memory::compose::{Composition, Request};
use runner_memory::query::{Selection, Superseded, parse};
use runner_memory::store::DEFAULT_BUDGET;
use runner_memory::{NodeType, apply, rank};
use serde::Serialize;

use super::{MemoryCli, NodeView};
use crate::env;
use crate::ui::{Failure, Ui, View, show};

fn superseded(include: bool) -> Superseded {
    if include { Superseded::Include } else { Superseded::Omit }
}

/// List nodes, by tier and type
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory list --type decision")]
pub struct ListArgs {
    /// Only nodes of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only nodes with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Include nodes that have been superseded
    #[arg(long)]
    include_superseded: bool,
    /// Maximum number of nodes
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

impl ListArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let mut query = String::new();
        if let Some(kind) = &self.kind {
            query.push_str(&format!("type:{} ", NodeType::parse(kind)?.as_str()));
        }
        if let Some(tag) = &self.tag {
            query.push_str(&format!("tag:\"{}\"", tag.replace('"', "")));
        }
        select(on, &query, superseded(self.include_superseded), self.limit)
    }
}

fn select(
    on: &MemoryCli,
    query: &str,
    superseded: Superseded,
    limit: usize,
) -> Result<(), Failure> {
    let query = parse(query)?;
    let selection =
        Selection { query: &query, scope: &on.scope, superseded, limit: Some(limit), now: on.now };
    let (nodes, found) = selection.run(on.memory.reader())?;
    on.show_nodes(nodes, found)
}

/// Find nodes with the query language
///
/// Fields: type: tag: text: id: since: created: updated: tokens: project: has: from: to:. NOT binds
/// tighter than AND, and AND tighter than OR; adjacent terms are joined by AND. tag:auth also
/// matches the part of a tag after its last colon. Times are 2026-01-31, 2026-01-31T08:00:00Z, 12h,
/// 7d or 2w, and may follow <, <=, > or >=. has: accepts summary, tags, tier, edges, project or
/// superseded.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner memory query 'type:decision AND (tag:auth OR text:\"refresh token\") since:30d'"
)]
pub struct QueryArgs {
    /// The query
    query: String,
    /// Include nodes that have been superseded
    #[arg(long)]
    include_superseded: bool,
    /// Maximum number of nodes
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

impl QueryArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        select(on, &self.query, superseded(self.include_superseded), self.limit)
    }
}

/// Find nodes relevant to the given words, most relevant first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory search how do we refresh tokens")]
pub struct SearchArgs {
    /// The words
    #[arg(required = true)]
    words: Vec<String>,
    /// Maximum number of nodes
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    limit: usize,
}

#[derive(Debug, Serialize)]
struct HitsView {
    hits: Vec<HitView>,
}

#[derive(Debug, Serialize)]
struct HitView {
    score: f64,
    /// The fraction of the query's information that the node contains, from 0 to 1.
    share: f64,
    /// Whether a hook would add the node to a prompt that consists of the query.
    relevant: bool,
    #[serde(flatten)]
    node: NodeView,
}

impl View for HitsView {
    fn print(&self, ui: Ui) {
        if self.hits.is_empty() {
            return ui.info("no matching nodes");
        }
        let mut rows = vec![show::row(["SCORE", "ID", "TYPE", "CONTENT"])];
        rows.extend(self.hits.iter().map(|hit| {
            let node = &hit.node.node;
            let score = format!("{:.2}", hit.score);
            show::row([&score, &hit.node.short_id, node.kind.as_str(), &node.preview()])
        }));
        show::out(&show::table(&rows));
    }
}

impl SearchArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let reader = on.memory.reader();
        let hits = rank::search(reader, &self.words.join(" "), &on.scope, self.limit)?;
        let ids: Vec<String> = hits.iter().map(|hit| hit.id.clone()).collect();
        let short = reader.short_ids(&ids)?;
        // Another process may have deleted a node since the search.
        let hits = reader.nodes(&ids)?.into_iter().filter_map(|node| {
            let hit = hits.iter().find(|hit| hit.id == node.id)?;
            Some(HitView {
                score: hit.score,
                share: hit.share,
                relevant: hit.is_relevant(),
                node: NodeView::of(node, &short),
            })
        });
        on.ui.show(&HitsView { hits: hits.collect() });
        Ok(())
    }
}

/// Show what a session gets when it recalls nodes with this query
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory recall 'type:fact AND tag:auth'")]
pub struct RecallArgs {
    /// A query, or words
    #[arg(required = true)]
    query: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RecallView {
    query: String,
    /// The number of matching nodes; a search for words counts at most [`rank::DEPTH`].
    found: usize,
    nodes: Vec<NodeView>,
    #[serde(skip)]
    markdown: String,
}

impl View for RecallView {
    fn print(&self, _: Ui) {
        show::out(&self.markdown);
    }
}

impl RecallArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let query = self.query.join(" ");
        let reader = on.memory.reader();
        let (nodes, found) = apply::recall(reader, &query, &on.scope, on.now)?;
        let markdown = reader.recall_markdown(&query, &nodes, found)?;
        let short = reader.short_ids(nodes.iter().map(|node| &node.id))?;
        let nodes = nodes.into_iter().map(|node| NodeView::of(node, &short)).collect();
        on.ui.show(&RecallView { query, found, nodes, markdown });
        Ok(())
    }
}

/// Print the nodes of the default view, or of a query, as a single document
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory compose --query 'tag:auth' --budget 20000")]
pub struct ComposeArgs {
    /// The query [default: the default view's query]
    #[arg(long, value_name = "QUERY")]
    query: Option<String>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Include nodes that have been superseded
    #[arg(long)]
    include_superseded: bool,
}

/// A token limit.
#[derive(Debug, clap::Args)]
pub struct BudgetArgs {
    /// Maximum number of tokens, estimated as bytes divided by 4 [default: $CTX_DEFAULT_BUDGET, or
    /// the view's budget]
    #[arg(long, value_name = "TOKENS")]
    budget: Option<i64>,
}

impl BudgetArgs {
    /// Returns the budget, which is `usual` if neither a flag nor the environment sets it.
    ///
    /// # Errors
    /// Returns an error if the environment's value is not a number.
    pub fn tokens(&self, usual: i64) -> Result<i64, Failure> {
        if let Some(budget) = self.budget {
            return Ok(budget);
        }
        let Some(set) = env::setting("CTX_DEFAULT_BUDGET") else { return Ok(usual) };
        let number = set.to_str().and_then(|text| text.parse().ok());
        number.ok_or_else(|| Failure::environment("CTX_DEFAULT_BUDGET is not a number of tokens"))
    }
}

impl View for Composition {
    fn print(&self, _: Ui) {
        show::out(&self.markdown);
    }
}

impl ComposeArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let view = on.memory.view("default")?;
        let usual = if self.query.is_some() { DEFAULT_BUDGET } else { view.budget };
        let request = Request {
            query: self.query.as_deref().unwrap_or(&view.query),
            budget: self.budget.tokens(usual)?,
            scope: &on.scope,
            superseded: superseded(self.include_superseded),
        };
        on.ui.show(&on.memory.reader().compose(&request, on.now)?);
        Ok(())
    }
}
