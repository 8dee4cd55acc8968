//! `runner replay`: replays a recorded run and compares the results.
//!
//! This module must never write to the project. It writes only to a temporary folder in the state
//! folder and to the paths in the arguments.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::files::{RECORD, read_host, write_atomic};
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_jobs::recording::{FOLDER, Recording, RecordingError, run_named};
use runner_jobs::replay::{ReplayError, Replayed, replay};
use runner_jobs::{AgentFolders, Folders, kinds};
use runner_text::{counted, shell_word};
use serde::Serialize;

use super::{Cli, runs};
use crate::env::Env;
use crate::ui::{Failure, Ui, View, show};

/// Replay a recorded run without its project or its model, and compare the results
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The data that the run read and the answers that it received come from its recording: no model is asked, no \
                  program is started, and the project no longer needs to exist. Exit code 0: the requests, the \
                  outcome and every artifact are the same; 1: something differs, and the \
                  differences are printed; 65: there is no complete recording.\n\
                  \n\
                  Example: runner replay 01K5 && runner replay 01K5 --export tests/night.jsonl"
)]
pub struct ReplayArgs {
    /// The run's id or a prefix of it, or the path of a recording
    #[arg(value_name = "RUN")]
    run: String,
    /// Write the results to this folder, which must not exist yet
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Write the recording to this file, which must not exist yet, and replay nothing
    #[arg(long, value_name = "FILE", conflicts_with = "into")]
    export: Option<PathBuf>,
}

/// The comparison of a run with its replay.
#[derive(Debug, Serialize)]
struct ReplayView {
    schema_version: u32,
    run: RunId,
    job: String,
    kind: String,
    into: Option<PathBuf>,
    #[serde(flatten)]
    replayed: Replayed,
    /// The time of the recorded run.
    #[serde(skip)]
    at: Timestamp,
}

impl ReplayArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let path = find(cli.env, cli.here, &self.run)?;
        let recording = Recording::read(&path).map_err(|error| unusable(&error))?;
        if let Some(file) = &self.export {
            return export(&path, &cli.here.join(file), cli.ui);
        }
        let into = self.into.as_ref().map(|into| cli.here.join(into));
        let scratch = Folder::make(cli.env, into.as_deref())?;
        let lent = Folders {
            root: &scratch.root,
            cache: &scratch.aside.join(CACHE),
            run_dir: &scratch.aside.join(RUN),
            state: None,
            agents: &AgentFolders::default(),
        };
        let done = replay(&recording, lent, &cli.env.clock);
        let replayed = done.map_err(|error| unreplayable(&path, &error))?;
        let exit = if replayed.equal { Exit::Done } else { Exit::Failed };
        let head = recording.head;
        cli.ui.show(&ReplayView {
            schema_version: 1,
            run: head.run,
            job: head.spec.name,
            kind: head.spec.kind,
            into,
            replayed,
            at: head.now,
        });
        Ok(exit)
    }
}

impl View for ReplayView {
    fn print(&self, _ui: Ui) {
        let replayed = &self.replayed;
        let total = replayed.artifacts.len();
        let same = replayed.artifacts.iter().filter(|one| one.equal).count();
        let verdict = match (replayed.equal, total) {
            (true, 0) => {
                format!("no artifacts, as in the recorded run ({})", replayed.outcome)
            }
            (true, 1) => "the only artifact is byte for byte the same".to_owned(),
            (true, _) => format!("all {total} artifacts are byte for byte the same"),
            (false, _) => format!("the result differs; {same} of {total} artifacts are the same"),
        };
        let mut text = format!(
            "run {} of {} ({}): {verdict}\n",
            self.run,
            self.job,
            show::format_time(self.at)
        );
        for drift in &replayed.drift {
            text.push_str(&format!("  drift    {}\n", show::printable(drift)));
        }
        for one in &replayed.artifacts {
            let target = show::printable(&one.target);
            match &one.differs {
                None => text.push_str(&format!("  same     {target}\n")),
                Some(how) => {
                    text.push_str(&format!("  differs  {target}: {}\n", show::printable(how)));
                }
            }
        }
        if replayed.redacted > 0 && !replayed.equal {
            text.push_str(&format!(
            "  note     secrets were removed from {} of the recording: results based on them may differ\n",
            counted(replayed.redacted, "input")
        ));
        }
        show::out(&text);
    }
}

/// Returns the path of a recording, given that path or a prefix of its run's id.
fn find(home: &Env, here: &Path, wanted: &str) -> Result<PathBuf, Failure> {
    if wanted.contains('/') || run_named(wanted).is_some() || wanted.ends_with(".jsonl") {
        return Ok(here.join(wanted));
    }
    let start = wanted.trim().to_ascii_uppercase();
    if start.is_empty() {
        return Err(
            Failure::usage("expected a run id or the beginning of a run id").hint("runner runs")
        );
    }
    let folder = home.state.join(FOLDER);
    let names = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut runs: Vec<RunId> = names
        .filter_map(|entry| run_named(entry.file_name().to_str()?))
        .filter(|run| run.as_str().starts_with(&start))
        .collect();
    runs.sort();
    match runs.as_slice() {
        [run] => Ok(home.recording(run)),
        [] => Err(none(home, wanted)),
        [first, .., last] => Err(Failure::data(format!(
            "the ids of {} recorded runs begin with {wanted}: {first} … {last}",
            runs.len()
        ))
        .hint("runner runs")),
    }
}

/// Creates the failure for a missing recording. The run is unknown, was not recorded, or no longer
/// has its recording.
fn none(home: &Env, wanted: &str) -> Failure {
    let known = home.store_to_read().ok().flatten();
    match known.map(|store| runs::find(&store, wanted)) {
        Some(Ok(row)) if kinds::unrecorded(&row.kind).is_some() => Failure::data(format!(
            "run {} ({}) is of kind {}, which cannot be replayed: {}",
            row.id,
            row.job_name,
            row.kind,
            kinds::unrecorded(&row.kind).unwrap_or_default()
        )),
        Some(Ok(row)) => Failure::data(format!(
            "run {} ({}) has no recording: only runs that completed their work are recorded, and \
             retention.recordings limits how long recordings are kept",
            row.id, row.job_name
        ))
        .hint("runner config show   (retention.recordings)"),
        Some(Err(failure)) => failure,
        None => Failure::data(format!("there is no run {wanted}")).hint("runner runs"),
    }
}

fn unusable(error: &RecordingError) -> Failure {
    let failure = Failure::data(whole(error));
    match error {
        RecordingError::File(_) => failure.hint("runner runs   (lists other runs)"),
        RecordingError::TooLong { .. } => failure,
    }
}

/// Creates the failure for a replay that could not run. An unusable job is a fault in the
/// recording; all other errors are internal.
fn unreplayable(path: &Path, error: &ReplayError) -> Failure {
    match error {
        ReplayError::Job(_) => Failure::data(format!("{}: {}", path.display(), whole(error)))
            .hint("runner runs   (lists other runs)"),
        ReplayError::Ledger(_)
        | ReplayError::Scope(_)
        | ReplayError::Perform(_)
        | ReplayError::Cancel(_) => Failure::internal(whole(error)),
    }
}

fn export(from: &Path, to: &Path, ui: Ui) -> Result<Exit, Failure> {
    let cannot = |error: &dyn std::error::Error| Failure::cannot_write(whole(error));
    if to.symlink_metadata().is_ok() {
        return Err(Failure::data(format!("{} already exists", to.display()))
            .hint(format!("rm {}", shell_word(to.display()))));
    }
    let bytes = read_host(from, RECORD).map_err(|error| cannot(&error))?;
    write_atomic(to, &bytes, 0o600).map_err(|error| cannot(&error))?;
    ui.info(&format!("wrote {} ({} bytes)", to.display(), bytes.len()));
    Ok(Exit::Done)
}

/// The folders of a replay.
struct Folder {
    root: PathBuf,
    /// The temporary folder, which is removed at the end.
    aside: PathBuf,
}

const CACHE: &str = "cache";
const RUN: &str = "run";

impl Folder {
    fn make(home: &Env, into: Option<&Path>) -> Result<Self, Failure> {
        let scratch = home.scratch("replay");
        let folder = Self {
            root: into.map_or_else(|| scratch.join("project"), Path::to_path_buf),
            aside: scratch,
        };
        if folder.root.symlink_metadata().is_ok() {
            return Err(Failure::data(format!("{} already exists", folder.root.display()))
                .hint("runner replay RUN --into ANOTHER"));
        }
        home.make_state()?;
        let parts = [CACHE, RUN].map(|name| folder.aside.join(name));
        for part in parts.iter().chain([&folder.root]) {
            fs::create_dir_all(part).map_err(|error| Failure::not_made(part, error))?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Daily pruning removes anything that cannot be removed now.
        let _ = fs::remove_dir_all(&self.aside);
    }
}
