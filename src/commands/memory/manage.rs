//! Implements the `runner memory` commands that work on summaries, tasks and the whole store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, read_host, read_text_host, write_atomic};
use runner_memory::apply::{Actor, Summarize, key, list};
use runner_memory::exchange::{Export, Imported};
use runner_memory::folders::{NoteSource, nodes_of};
use runner_memory::node::Tier;
use runner_memory::query::{Selection, Superseded, parse};
use runner_memory::store::Undone;
use runner_text::near::{Doc, neighbours};
use runner_text::redact::Redacted;
use runner_text::shell_word;
use serde::Serialize;

use super::MemoryCli;
use super::nodes::content;
use crate::ui::{Failure, Ui, View, show};

/// Minimum similarity of nodes that `status` proposes to merge.
const SIMILAR: f64 = 0.7;
/// Maximum number of nodes to compare.
const COMPARED: usize = 5_000;
/// Maximum number of pairs to show.
const PAIRS: usize = 10;
/// Maximum size of an export to read, in bytes.
const LARGEST: u64 = 1 << 30;

/// Store a summary of nodes, with an edge to each of them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner memory summarize 01HQ1A2B,01HQ5678 \"Login uses PKCE\" --archive"
)]
pub struct SummarizeArgs {
    /// The ids of the nodes, separated by commas
    nodes: String,
    /// The summary, or - for standard input
    content: String,
    /// A tag of the summary (may be repeated)
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Exclude the nodes from session contexts
    #[arg(long)]
    archive: bool,
}

impl SummarizeArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let summary = Summarize {
            nodes: list(&self.nodes),
            content: content(&self.content)?,
            tags: self.tags.clone(),
            archive: self.archive,
        };
        let scope = on.found.scope.clone();
        let actor = Actor { session: String::new(), source: None, scope };
        let id = on.memory.change("summarize", on.now, |it| it.summarize(&summary, &actor))?;
        on.done("added", id)
    }
}

/// Start, end or show a session's task
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory task start login && runner memory task end login")]
pub struct TaskArgs {
    /// The action
    #[arg(value_enum, default_value = "show")]
    action: TaskAction,
    /// The name of the task [default for end: the current task]
    name: Option<String>,
    /// The session [default: the newest session of this folder]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Tag the ended task's nodes with needs:summary
    #[arg(long)]
    summarize: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TaskAction {
    Start,
    End,
    Show,
}

#[derive(Debug, Serialize)]
struct TaskView {
    session: String,
    task: Option<String>,
}

impl View for TaskView {
    fn print(&self, ui: Ui) {
        match &self.task {
            Some(task) => show::out(&format!("{task}\n")),
            None => ui.info("the session has no task"),
        }
    }
}

impl TaskArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let session = on.session(self.session.as_deref())?.id;
        let scope = on.found.scope.clone();
        let actor = Actor { session: session.clone(), source: None, scope };
        let current = on.memory.reader().pending(&session, key::TASK)?;
        let missing = || Failure::usage("name the task").hint("runner memory task start NAME");
        match self.action {
            TaskAction::Start => {
                let name = self.name.as_deref().ok_or_else(missing)?;
                on.memory.change("start task", on.now, |it| it.start_task(name, &actor))?;
            }
            TaskAction::End => {
                let name = self.name.clone().or(current).ok_or_else(missing)?;
                on.memory
                    .change("end task", on.now, |it| it.end_task(&name, self.summarize, &actor))?;
            }
            TaskAction::Show => {}
        }
        let task = on.memory.reader().pending(&session, key::TASK)?;
        on.ui.show(&TaskView { session, task });
        Ok(())
    }
}

/// Undo the last change to the store, even one made by a session
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory undo")]
pub struct UndoArgs {}

impl View for Undone {
    fn print(&self, _: Ui) {
        show::out(&format!("undid change {}: {} of {}\n", self.change, self.what, self.at));
    }
}

impl UndoArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let undone = on.memory.undo(on.now)?;
        on.ui.show(&undone);
        Ok(())
    }
}

/// Print the whole store as JSON that `import` can read
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory export memory.json")]
pub struct ExportArgs {
    /// The file to write [default: standard output]
    file: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ExportedView {
    file: String,
    nodes: usize,
}

impl View for ExportedView {
    fn print(&self, ui: Ui) {
        let count = show::count(self.nodes as u64, "node");
        ui.info(&format!("exported {count} to {}", self.file));
    }
}

impl ExportArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let export = on.memory.export()?;
        let text =
            Redacted::pretty_json(&export).map_err(|it| Failure::internal(it.to_string()))?;
        let text = text.into_string() + "\n";
        let Some(file) = &self.file else {
            show::own(&text);
            return Ok(());
        };
        let done = write_atomic(file, text.as_bytes(), 0o600);
        done.map_err(|error| Failure::cannot_write(error.to_string()))?;
        on.ui.show(&ExportedView { file: file.display().to_string(), nodes: export.nodes.len() });
        Ok(())
    }
}

/// Import an export, another program's store, a Markdown file such as CLAUDE.md, or a folder of notes
///
/// The format is detected from the file: JSON, an SQLite database with the tables nodes, edges and tags, or
/// Markdown. Markdown is split at its headings, and nodes that the store already contains are not added again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory import CLAUDE.md --tier reference")]
pub struct ImportArgs {
    /// The file or folder
    path: PathBuf,
    /// The tier of nodes from Markdown: pinned, reference, working or off-context
    #[arg(long, value_name = "TIER")]
    tier: Option<Tier>,
    /// Make the nodes from Markdown available to all projects
    #[arg(long)]
    global: bool,
}

impl View for Imported {
    fn print(&self, _: Ui) {
        let Imported { nodes, edges, tags, views } = self;
        let nodes = show::count(*nodes as u64, "node");
        show::out(&format!("imported {nodes}, {edges} edges, {tags} tags and {views} views\n"));
    }
}

impl ImportArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let done = match self.path.is_dir() {
            true => self.notes(on, &markdown_files(&self.path))?,
            false => {
                let bytes = read_host(&self.path, LARGEST);
                let bytes = bytes.map_err(|error| cannot_read(&self.path, &error))?;
                if bytes.starts_with(b"SQLite format 3\0") {
                    let export = Export::of_store(&self.path)?;
                    on.memory.import(&export, on.now)?
                } else if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
                    let export: Export = serde_json::from_slice(&bytes).map_err(|error| {
                        let what = format!("{} is not an export: {error}", self.path.display());
                        Failure::data(what).hint("runner memory export FILE")
                    })?;
                    on.memory.import(&export, on.now)?
                } else {
                    self.notes(on, std::slice::from_ref(&self.path))?
                }
            }
        };
        on.ui.show(&done);
        Ok(())
    }

    fn notes(&self, on: &mut MemoryCli, files: &[PathBuf]) -> Result<Imported, Failure> {
        let project = on.project(self.global);
        let mut nodes = Vec::new();
        for file in files {
            let text = read_text_host(file, DOCUMENT).map_err(|error| cannot_read(file, &error))?;
            let path = file.display().to_string();
            let source = NoteSource { path: &path, project: project.as_deref(), tier: self.tier };
            nodes.extend(nodes_of(&text, &source));
        }
        let added = on.memory.change("import notes", on.now, |it| it.add_missing(&nodes))?;
        Ok(Imported { nodes: added.len(), ..Imported::default() })
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::data(format!("cannot read {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound => {
            failure.hint("name a file or folder that exists: runner memory import PATH")
        }
        io::ErrorKind::PermissionDenied => {
            failure.hint(format!("ls -l {}", shell_word(path.display())))
        }
        _ => failure.hint("runner memory import --help"),
    }
}

/// Returns the Markdown files in a folder and its subfolders, sorted. Hidden subfolders are
/// skipped, and links are not followed.
fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => open.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|it| it == "md") => {
                    out.push(path);
                }
                _ => {}
            }
        }
    }
    out.sort();
    out
}

/// Show what the store contains, the current task, and near-duplicate nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory status")]
pub struct StatusArgs {
    /// The session whose task is shown [default: the newest session of this folder]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

#[derive(Debug, Serialize)]
struct StatusView {
    store: String,
    /// Another program's store, which is never changed.
    foreign_store: Option<String>,
    nodes: i64,
    session: Option<String>,
    task: Option<String>,
    /// The number of skipped lines in the session's transcript.
    skipped_lines: i64,
    similar: Vec<SimilarPair>,
    #[serde(skip)]
    text: String,
}

/// Two near-duplicate nodes.
#[derive(Debug, Serialize)]
struct SimilarPair {
    old: String,
    new: String,
    similarity: f64,
    /// The command that merges the two nodes.
    command: String,
}

impl View for StatusView {
    fn print(&self, _: Ui) {
        show::out(&format!("Store: {}\n{}", self.store, self.text));
        if let Some(foreign) = &self.foreign_store {
            show::out(&format!(
                "{foreign} belongs to another program and is never changed. To copy its nodes: runner memory import {}\n",
                shell_word(foreign)
            ));
        }
        if self.skipped_lines > 0 {
            let lines = show::count(self.skipped_lines.unsigned_abs(), "line");
            show::out(&format!("Skipped in the transcript: {lines}\n"));
        }
        for pair in &self.similar {
            show::out(&format!("Near-duplicates; to merge them: {}\n", pair.command));
        }
    }
}

impl StatusArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        let session = match &self.session {
            Some(id) => Some(on.session(Some(id))?),
            None => on.memory.newest_session(&on.found.folder)?,
        };
        let id = session.as_ref().map(|it| it.id.clone()).unwrap_or_default();
        let actor = Actor { session: id.clone(), source: None, scope: on.scope.clone() };
        let reader = on.memory.reader();
        on.ui.show(&StatusView {
            store: on.location.path.display().to_string(),
            foreign_store: on.location.foreign.as_ref().map(|path| path.display().to_string()),
            nodes: reader.count(&on.scope)?,
            task: reader.pending(&id, key::TASK)?,
            skipped_lines: session.as_ref().map_or(0, |it| it.skipped),
            session: session.map(|it| it.id),
            similar: similar(on)?,
            text: reader.status_text(&actor)?,
        });
        Ok(())
    }
}

/// Returns at most [`PAIRS`] pairs of near-duplicate nodes. Both nodes of a pair have the same type
/// and project.
fn similar(on: &MemoryCli) -> Result<Vec<SimilarPair>, Failure> {
    let query = parse("")?;
    let selection = Selection {
        query: &query,
        scope: &on.scope,
        superseded: Superseded::Omit,
        limit: Some(COMPARED),
        now: on.now,
    };
    let (nodes, _) = selection.run(on.memory.reader())?;
    let docs: Vec<Doc<'_>> =
        nodes.iter().map(|node| Doc { key: &node.id, text: &node.content }).collect();
    let kind =
        |id: &str| nodes.iter().find(|node| node.id == id).map(|node| (node.kind, &node.project));
    let pairs = neighbours(&docs, SIMILAR);
    let pairs = pairs.iter().filter(|pair| kind(pair.a) == kind(pair.b)).take(PAIRS);
    let short = on.memory.reader().short_ids(nodes.iter().map(|node| &node.id))?;
    let pair = |pair: &runner_text::near::Pair<'_>| {
        let (old, new) = (pair.a.min(pair.b), pair.a.max(pair.b));
        SimilarPair {
            command: format!("runner memory supersede {} {}", short[old], short[new]),
            old: old.to_owned(),
            new: new.to_owned(),
            similarity: pair.similarity,
        }
    };
    Ok(pairs.map(pair).collect())
}
