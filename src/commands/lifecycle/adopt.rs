//! `runner lifecycle adopt`: records that the user accepts an agent's entries as if runner had
//! published them here. This module must never adopt an entry without the user's consent.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use runner_engine::error_chain::whole;
use runner_engine::outcome::Exit;
use runner_engine::scope::{Expect, Scope};
use runner_engine::store::Store;
use runner_jobs::lifecycle::manifest::{self, ReadManifest};
use runner_jobs::lifecycle::provenance::adopt_command;
use serde::Serialize;

use super::AgentArg;
use crate::commands::{Cli, trust};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// Show the dream entries that are not recorded in the database, and accept them
///
/// Runner acts only on entries that it published or that you accepted, because a forged entry could
/// move tasks and mislead the next run. In another clone, or after the database is lost, none of
/// the entries are recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle adopt")]
pub(super) struct AdoptArgs {
    #[command(flatten)]
    agent: AgentArg,
    /// Accept the entries without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct AdoptView {
    /// The path of the list of entries, relative to the project.
    list: String,
    /// The number of entries in the list.
    listed: usize,
    /// Whether the list and all its valid entries are recorded in the database.
    adopted: bool,
    entries: Vec<UnrecordedEntry>,
}

/// An entry that is not recorded in the database.
#[derive(Debug, Serialize)]
struct UnrecordedEntry {
    path: String,
    /// The first line of the tale.
    tale: String,
    verdicts: Vec<String>,
    carry: Vec<String>,
}

impl View for AdoptView {
    fn print(&self, ui: Ui) {
        if self.listed == 0 {
            return ui.info(&format!("there are no entries: {} lists none", self.list));
        }
        if self.entries.is_empty() && self.adopted {
            return ui.info("every valid entry is recorded in the database");
        }
        for entry in &self.entries {
            show::out(&format!("{}: {}\n", safe::line(&entry.path), safe::line(&entry.tale)));
            let lines = [("verdict", &entry.verdicts), ("carry", &entry.carry)];
            for (word, line) in
                lines.iter().flat_map(|(word, all)| all.iter().map(move |it| (word, it)))
            {
                show::out(&format!("    {word}: {}\n", safe::line(line)));
            }
        }
    }
}

impl AdoptArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let scope = Scope::open(&here.root, &[], ".runner/staging/look")
            .map_err(|error| Failure::environment(whole(&error)))?;
        let mut store = cli.env.store()?;
        here.register(&mut store, cli.env.wall()?)?;
        let (mut view, unrecorded) = find(&scope, &store, here, &self.agent.agent)?;
        if view.adopted {
            cli.ui.show(&view);
            return Ok(Exit::Done);
        }
        trust::refuse_in_run()?;
        cli.ui.show_part(&view);
        view.adopted = self.yes || (cli.ui.may_ask() && cli.ui.confirm("Accept these entries?"));
        if view.adopted {
            store.adopt_files(&here.id, &unrecorded, cli.env.wall()?)?;
            cli.ui.info("the entries are accepted");
        } else {
            let command = adopt_command(&self.agent.agent);
            cli.ui.info(&format!("nothing was accepted; to accept: {command} --yes"));
        }
        if cli.ui.json {
            cli.ui.show(&view);
        }
        Ok(if view.adopted { Exit::Done } else { Exit::Failed })
    }
}

/// Finds the listed entries that differ from the database's records, and the list itself if it
/// differs.
fn find(
    scope: &Scope,
    store: &Store,
    here: &LoadedProject,
    agent: &str,
) -> Result<(AdoptView, BTreeMap<String, Digest>), Failure> {
    if !agent.is_empty() && !manifest::is_agent_name(agent) {
        let why = "letters, digits, - and _, not beginning with _, at most 64 characters";
        return Err(Failure::usage(format!("{agent:?} is not a valid agent name ({why})"))
            .hint("runner lifecycle adopt --agent NAME"));
    }
    let folder = manifest::folder_of(agent);
    let bad = |error: runner_jobs::JobError| Failure::data(safe::line(&error.whole()));
    let ReadManifest { manifest, expect } = manifest::read(scope, &folder).map_err(bad)?;
    let mut files = BTreeMap::new();
    let mut entries = Vec::new();
    for listed in &manifest.entries {
        let path = format!("{folder}/{}", listed.file);
        // A missing or malformed entry has no effect, so it cannot be accepted.
        let Ok((entry, text)) = manifest::entry_of(scope, &folder, listed) else { continue };
        files.insert(path.clone(), Digest::of(text.as_bytes()));
        let tale = entry.sections.tale.lines().next().unwrap_or_default().to_owned();
        let verdicts = entry.sections.verdicts.iter();
        let verdicts = verdicts.map(|it| format!("{}: {}", it.act.describe(), it.said)).collect();
        entries.push(UnrecordedEntry { path, tale, verdicts, carry: entry.sections.carry });
    }
    if let Expect::Digest(list) = expect {
        files.insert(format!("{folder}/{}", manifest::FILE), list);
    }
    let paths: Vec<String> = files.keys().cloned().collect();
    let known = store.published_files(&here.id, &paths)?;
    files.retain(|path, digest| known.get(path) != Some(digest));
    entries.retain(|entry| files.contains_key(&entry.path));
    let list = format!("{folder}/{}", manifest::FILE);
    let listed = manifest.entries.len();
    Ok((AdoptView { list, listed, adopted: files.is_empty(), entries }, files))
}
