//! `runner memory`: manages the notes that coding sessions leave for later sessions.
//!
//! Without `--db`, all commands except `runner memory model` open the same store as the hooks. No
//! command may call a model.

mod find;
mod host_file;
pub mod install;
mod manage;
mod mcp;
mod model;
mod nodes;
mod views;

use std::collections::HashMap;
use std::path::PathBuf;

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_memory::session::Session;
use runner_memory::store::{Access, Location};
use runner_memory::{Memory, Node, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::hooks::scope::{self, FolderMemory};
use crate::ui::{Failure, Ui, View, show};

/// Keep notes from coding sessions for later sessions: install the hooks, find, add and change
/// notes
///
/// A note is a node: a piece of text with a type, tags and edges to other nodes. Hooks give a
/// session its project's nodes and extract new ones from its answers. By default, the store is
/// ~/.ctx/store.db.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory install")]
pub struct MemoryArgs {
    /// The memory store [default: $CTX_DB, or ~/.ctx/store.db]
    #[arg(long, value_name = "FILE", global = true)]
    db: Option<PathBuf>,
    /// Include the nodes of all projects
    #[arg(long, global = true)]
    all_projects: bool,
    #[command(subcommand)]
    command: MemoryCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MemoryCommand {
    Install(install::InstallArgs),
    Add(nodes::AddArgs),
    Update(nodes::UpdateArgs),
    Delete(nodes::DeleteArgs),
    List(find::ListArgs),
    Show(nodes::ShowArgs),
    Search(find::SearchArgs),
    Recall(find::RecallArgs),
    Query(find::QueryArgs),
    Compose(find::ComposeArgs),
    Summarize(manage::SummarizeArgs),
    Expand(nodes::ExpandArgs),
    Trace(nodes::TraceArgs),
    View(views::ViewArgs),
    Link(nodes::LinkArgs),
    Unlink(nodes::UnlinkArgs),
    Tag(nodes::TagArgs),
    Untag(nodes::UntagArgs),
    Supersede(nodes::SupersedeArgs),
    Task(manage::TaskArgs),
    Undo(manage::UndoArgs),
    Export(manage::ExportArgs),
    Import(manage::ImportArgs),
    Status(manage::StatusArgs),
    Mcp(mcp::McpArgs),
    Model(model::ModelArgs),
}

/// An open store with the command's context.
pub struct MemoryCli {
    ui: Ui,
    memory: Memory,
    location: Location,
    found: FolderMemory,
    scope: Scope,
    now: Timestamp,
}

impl MemoryArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if !cli.here.is_dir() {
            return Err(Failure::environment(format!("{} is not a folder", cli.here.display())));
        }
        if let MemoryCommand::Model(args) = &self.command {
            return args.run(cli);
        }
        if let (MemoryCommand::Install(_), Some(_)) = (&self.command, &self.db) {
            let why =
                "--db has no effect on hooks: they use the store in $CTX_DB or ~/.ctx/store.db";
            return Err(Failure::usage(why).hint(
                "set CTX_DB in the environment of the agent, and run: runner memory install",
            ));
        }
        let location = scope::store(self.db.as_deref())?;
        let now = cli.env.wall()?;
        let memory = Memory::open(&location.path, Access::Command, now)?;
        let found = scope::find(cli.here);
        let scope = if self.all_projects { Scope::All } else { found.scope.clone() };
        let mut on = MemoryCli { ui: cli.ui, memory, location, found, scope, now };
        dispatch!(&self.command, MemoryCommand: Install Add Update Delete List Show Search Recall Query
            Compose Summarize Expand Trace View Link Unlink Tag Untag Supersede Task Undo Export Import
            Status Mcp => run (&mut on);
            MemoryCommand::Model(_) => Ok(()))?;
        Ok(Exit::Done)
    }
}

impl MemoryCli {
    /// Returns the project for new nodes, or `None` if they are for all projects.
    fn project(&self, global: bool) -> Option<String> {
        self.found.scope.project().filter(|_| !global).map(str::to_owned)
    }

    /// Returns the session named by `--session`, or the newest one for this folder.
    fn session(&self, named: Option<&str>) -> Result<Session, Failure> {
        let found = match named {
            Some(id) => self.memory.session(id)?,
            None => self.memory.newest_session(&self.found.folder)?,
        };
        found.ok_or_else(|| match named {
            Some(id) => Failure::data(format!("the memory has no session {id:?}")),
            None => Failure::data(format!("no session has run in {} yet", self.found.folder))
                .hint("runner memory install, then start a session"),
        })
    }

    fn show_nodes(&self, nodes: Vec<Node>, found: usize) -> Result<(), Failure> {
        let short = self.memory.reader().short_ids(nodes.iter().map(|node| &node.id))?;
        let nodes = nodes.into_iter().map(|node| NodeView::of(node, &short)).collect();
        self.ui.show(&NodesView { found, nodes });
        Ok(())
    }

    /// Reports that a node was changed.
    fn done(&self, what: &'static str, id: String) -> Result<(), Failure> {
        let short = self.memory.reader().short_ids([&id])?;
        self.ui.show(&DoneView { what, short: short[&id].clone(), id });
        Ok(())
    }
}

/// A node with its short id.
#[derive(Debug, JsonSchema, Serialize)]
struct NodeView {
    short_id: String,
    #[serde(flatten)]
    node: Node,
}

impl NodeView {
    fn of(node: Node, short: &HashMap<String, String>) -> Self {
        Self { short_id: short.get(&node.id).cloned().unwrap_or_default(), node }
    }
}

/// A list of nodes.
#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct NodesView {
    /// The total number of matching nodes.
    found: usize,
    nodes: Vec<NodeView>,
}

impl View for NodesView {
    fn print(&self, ui: Ui) {
        if self.nodes.is_empty() {
            return ui.info("no matching nodes");
        }
        let mut rows = vec![show::row(["ID", "TYPE", "TAGS", "CONTENT"])];
        rows.extend(self.nodes.iter().map(|it| {
            let tags = it.node.tags.join(", ");
            show::row([&it.short_id, it.node.kind.as_str(), &tags, &it.node.preview()])
        }));
        show::out(&show::table(&rows));
        if self.found > self.nodes.len() {
            ui.info(&format!(
                "{} more; increase --limit to show them",
                self.found - self.nodes.len()
            ));
        }
    }
}

/// A change to one node.
#[derive(Debug, Serialize)]
struct DoneView {
    #[serde(skip)]
    what: &'static str,
    id: String,
    #[serde(rename = "short_id")]
    short: String,
}

impl View for DoneView {
    fn print(&self, _: Ui) {
        show::out(&format!("{} {}\n", self.what, self.short));
    }
}
