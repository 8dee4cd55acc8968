//! `runner journal`: shows the entries that dreams wrote, as text, JSON or one static page.
//!
//! This module writes only the page, and only into the given folder. It must never show a file
//! whose name begins with an underscore.

mod gather;
mod history;
mod model;
mod page;

use std::path::PathBuf;

use runner_engine::error_chain::{error_chain, whole};
use runner_engine::files::write_atomic;
use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_engine::store::RunFilter;
use runner_text::redact::Redactor;

use super::Cli;
use super::board::agent_and_board;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};
use gather::JournalSource;
use model::{Journal, TimelineItem};

/// The file name of the exported page.
const PAGE: &str = "index.html";

/// Show the journal: the dreams between the runs, their effects, and the reason for each missing entry
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner journal --json | jq '.items[0]'"
)]
pub struct JournalArgs {
    /// Print the journal as one page that needs no scripts and no network access
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// The subcommand; without one, the journal is shown.
    #[command(subcommand)]
    command: Option<JournalCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum JournalCommand {
    /// Write the journal as one static page that needs no scripts and no network access
    #[command(after_help = "Example: runner journal export public/rem")]
    Export {
        /// The folder for index.html; it is created if it does not exist
        dir: PathBuf,
    },
}

impl JournalArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?;
        let git = Git::new(&here.root, &env::child_environment(), &env::marker()?);
        let all = RunFilter { project: Some(here.id.clone()), ..RunFilter::default() };
        let store = cli.env.store_to_read()?;
        let runs = store.as_ref().map(|store| store.runs(&all)).transpose()?.unwrap_or_default();
        let name = here.root.file_name().map(|it| it.to_string_lossy().into_owned());
        let boards = boards(&here);
        let source = JournalSource {
            root: &here.root,
            project: name.unwrap_or_default(),
            files: &here.config.lifecycle,
            boards: &boards,
            git: &git,
            runs: &runs,
            store: store.as_ref().map(|store| (store, &here.id)),
            now: cli.env.wall()?,
        };
        let journal = source.journal().map_err(|error| Failure::environment(error.whole()))?;
        match &self.command {
            None if self.html => show::out(&page::html(&journal)),
            None => cli.ui.show(&journal),
            Some(JournalCommand::Export { dir }) => {
                let path = export(&journal, cli.here.join(dir))?;
                cli.ui.info(&format!("wrote {}", path.display()));
            }
        }
        Ok(Exit::Done)
    }
}

/// Writes the page into a folder, and returns the page's path.
fn export(journal: &Journal, dir: PathBuf) -> Result<PathBuf, Failure> {
    let cannot = |why: String| {
        Failure::cannot_write(format!("cannot write {}: {why}", dir.display()))
            .hint("runner journal export /a/folder/that/you/may/write")
    };
    std::fs::create_dir_all(&dir).map_err(|error| cannot(error_chain(&error)))?;
    let html = page::html(journal);
    let html = Redactor::new(Vec::new()).redact(&html).into_owned();
    write_atomic(&dir.join(PAGE), html.as_bytes(), 0o644).map_err(|error| cannot(whole(&error)))?;
    Ok(dir.join(PAGE))
}

/// Returns the agent and the board of each lifecycle job.
fn boards(here: &LoadedProject) -> Vec<(String, String)> {
    let all = here.config.jobs.values().filter_map(|job| agent_and_board(&*job.spec.kind));
    all.map(|(agent, board)| (agent.to_owned(), board.to_owned())).collect()
}

impl View for Journal {
    fn print(&self, _ui: Ui) {
        if self.items.is_empty() {
            show::out("No dreams here yet.\n");
        }
        for item in &self.items {
            let at = show::format_time(item.at());
            match item {
                TimelineItem::Entry(entry) => {
                    let agent = match entry.agent.as_str() {
                        "" => String::new(),
                        agent => format!(" {agent}"),
                    };
                    let line = entry.tale.lines().next().unwrap_or_default();
                    show::out(&format!("{at}{agent}  {}\n", safe::line(line)));
                    if !entry.published {
                        show::out("  not published by runner\n");
                    }
                    for verdict in &entry.verdicts {
                        let done = verdict.resolved.as_ref();
                        let done = done.map_or_else(String::new, |it| format!(" ({})", it.short));
                        show::out(&format!("  {}{done}\n", safe::line(&verdict.text)));
                    }
                    for fact in &entry.facts {
                        show::out(&format!("  {}\n", safe::line(fact)));
                    }
                    for what in &entry.unseen {
                        show::out(&format!("  no source showed: {}\n", safe::line(what)));
                    }
                    for claim in &entry.failed_claims {
                        show::out(&format!("  found false: {}\n", safe::line(claim)));
                    }
                }
                TimelineItem::Gap(gap) => {
                    let times = match gap.count {
                        1 => String::new(),
                        many => format!(" ({many} times)"),
                    };
                    let job = safe::line(&gap.job);
                    show::out(&format!("{at}  {job}: {}{times}\n", safe::line(&gap.why)));
                }
                TimelineItem::Commit(commit) => {
                    show::out(&format!("{at}  {} {}\n", commit.short, safe::line(&commit.subject)));
                }
            }
        }
    }
}
