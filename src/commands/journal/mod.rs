//! `runner journal`: shows the entries that dreams wrote, on the terminal, as JSON or as one static
//! page.
//!
//! It reads the entries, git and the database. It writes only the page, and only to the given
//! folder. It must never show a file whose name begins with an underscore.

mod model;
mod page;

use std::path::Path;

use runner_engine::error_chain::{error_chain, whole};
use runner_engine::files::write_atomic;
use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_engine::store::RunFilter;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::rem::RemSpec;
use runner_text::redact::Redactor;

use crate::cli::args::Listing;
use crate::cli::journal::JournalCommand;
use crate::cli::{Failure, Ui, safe, show};
use crate::env::{self, Env};
use crate::project::LoadedProject;
use model::{Journal, TimelineItem};

/// The file name of the exported page.
const PAGE: &str = "index.html";

/// Shows the journal, or exports it.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&JournalCommand>,
    listing: Listing,
    ui: Ui,
) -> Result<Exit, Failure> {
    let here_dir = here;
    let here = LoadedProject::load(home, here)?;
    let git = Git::new(&here.root, &env::child_environment(), &env::marker()?);
    let runs = match home.store_to_read()? {
        Some(store) => {
            store.runs(&RunFilter { project: Some(here.id.clone()), ..RunFilter::default() })?
        }
        None => Vec::new(),
    };
    let name = here.root.file_name().map(|it| it.to_string_lossy().into_owned());
    let journal = Journal::of(
        &here.root,
        name.unwrap_or_default(),
        &here.config.lifecycle,
        &boards(&here),
        &git,
        &runs,
        home.wall()?,
    )
    .map_err(|error| Failure::environment(error.whole()))?;
    match command {
        Some(JournalCommand::Export { dir }) => {
            let dir = here_dir.join(dir);
            let cannot = |why: String| {
                Failure::cannot_write(format!("cannot write {}: {why}", dir.display()))
                    .hint("runner journal export /a/folder/that/you/may/write")
            };
            std::fs::create_dir_all(&dir).map_err(|error| cannot(error_chain(&error)))?;
            let html = page::html(&journal);
            let html = Redactor::new(Vec::new()).redact(&html).into_owned();
            write_atomic(&dir.join(PAGE), html.as_bytes(), 0o644)
                .map_err(|error| cannot(whole(&error)))?;
            let path = dir.join(PAGE);
            ui.info(&format!("wrote {}", path.display()));
        }
        None if listing.json => show::json(&journal),
        None => text(&journal),
    }
    Ok(Exit::Done)
}

/// Lists the board of each agent's jobs. The default agent has an empty name.
fn boards(here: &LoadedProject) -> Vec<(String, String)> {
    let boards = here.config.jobs.values().filter_map(|job| {
        let kind = &job.spec.kind;
        let cycle = kind.of::<CycleSpec>();
        let cycle = cycle.map(|cycle| (cycle.agent.clone(), cycle.board.clone()));
        cycle.or_else(|| {
            let rem = kind.of::<RemSpec>()?;
            Some((rem.agent.clone().unwrap_or_default(), rem.board.clone()))
        })
    });
    boards.collect()
}

fn text(journal: &Journal) {
    if journal.items.is_empty() {
        show::out("No dreams here yet.\n");
    }
    for item in &journal.items {
        let at = show::format_time(item.at());
        match item {
            TimelineItem::Entry(entry) => {
                let agent = match entry.agent.as_str() {
                    "" => String::new(),
                    agent => format!(" {agent}"),
                };
                let line = entry.tale.lines().next().unwrap_or_default();
                show::out(&format!("{at}{agent}  {}\n", safe::line(line)));
                for verdict in &entry.verdicts {
                    let done = verdict.resolved.as_ref();
                    let done = done.map_or_else(String::new, |it| format!(" ({})", it.short));
                    show::out(&format!("  {}{done}\n", safe::line(&verdict.text)));
                }
                for claim in &entry.failed_claims {
                    show::out(&format!("  does not hold: {}\n", safe::line(claim)));
                }
            }
            TimelineItem::Gap(gap) => {
                let times = match gap.count {
                    1 => String::new(),
                    many => format!(" ({many} times)"),
                };
                show::out(&format!("{at}  no entry: {}{times}\n", safe::line(&gap.why)));
            }
            TimelineItem::Commit(commit) => {
                show::out(&format!("{at}  {} {}\n", commit.short, safe::line(&commit.subject)));
            }
        }
    }
}
