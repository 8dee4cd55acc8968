//! `runner sessions list`: lists the project's sessions.

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_jobs::sessions::sources::{SourcePlaces, sources};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::Cli;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// One session of the project.
#[derive(Debug, JsonSchema, Serialize)]
struct ListedSession {
    session: String,
    /// The path of the transcript.
    path: String,
    /// The size of the transcript in bytes.
    bytes: u64,
    /// The time of the last change to the transcript.
    modified: Timestamp,
    /// `analyzed`, `new`, or `changed` since it was analyzed.
    state: &'static str,
    calls: Option<u32>,
    failed: Option<u32>,
    unresolved: Option<usize>,
}

#[derive(JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct SessionList(Vec<ListedSession>);

impl View for SessionList {
    fn print(&self, ui: Ui) {
        if self.0.is_empty() {
            return ui.info("this project has no sessions that runner can find");
        }
        let number = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let mut rows =
            vec![show::row(["SESSION", "LAST EVENT", "STATE", "CALLS", "FAILED", "OPEN"])];
        for one in &self.0 {
            let open = one.unresolved.map_or_else(|| "-".to_owned(), |it| it.to_string());
            let at = show::format_minute(one.modified);
            let (calls, failed) = (number(one.calls), number(one.failed));
            rows.push(show::row([&one.session, &at, one.state, &calls, &failed, &open]));
        }
        show::out(&show::table(&rows));
    }
}

pub(super) fn run(cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
    let (spec, _) = super::settings(project);
    let agents = env::agent_folders();
    let folder = super::load(cli, project, &spec);
    let places = SourcePlaces::of(&project.root, &agents, &spec);
    let listed = sources(places, cli.env.wall()?).into_iter().map(|source| {
        let record = folder.records.get(&source.id);
        let state = match record {
            None => "new",
            Some(it) if it.size == source.size && it.modified == Some(source.modified) => {
                "analyzed"
            }
            Some(_) => "changed",
        };
        ListedSession {
            session: source.id,
            path: source.path.to_string_lossy().into_owned(),
            bytes: source.size,
            modified: source.modified,
            state,
            calls: record.map(|it| it.calls),
            failed: record.map(|it| it.failed),
            unresolved: record.map(|it| it.unresolved.len()),
        }
    });
    cli.ui.show(&SessionList(listed.collect()));
    Ok(Exit::Done)
}
