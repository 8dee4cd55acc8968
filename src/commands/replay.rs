//! The `runner replay` command: replays a recorded run and compares the results.
//!
//! This module must never write to the project, nor to any of the user's folders except the one
//! that the command names.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{RECORD, read_host, write_atomic};
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_jobs::Folders;
use runner_jobs::kinds;
use runner_jobs::recording::{FOLDER, Recording, RecordingError, run_named};
use runner_jobs::replay::{Replayed, replay};
use serde::Serialize;

use super::runs;
use crate::commands::args::replay::ReplayArgs;
use crate::env::Env;
use crate::ui::show;
use crate::ui::{Failure, Ui};

#[derive(Debug, Serialize)]
struct ReplayJson<'a> {
    schema_version: u32,
    run: &'a RunId,
    job: &'a str,
    kind: &'a str,
    into: Option<&'a Path>,
    #[serde(flatten)]
    replayed: &'a Replayed,
}

/// Replays the run, or exports its recording.
pub fn run(home: &Env, here: &Path, args: &ReplayArgs, ui: Ui) -> Result<Exit, Failure> {
    let path = find(home, here, &args.run)?;
    let recording = Recording::read(&path).map_err(|error| unusable(&error))?;
    if let Some(file) = &args.export {
        return export(&path, &here.join(file), ui);
    }
    let into = args.into.as_ref().map(|into| here.join(into));
    let scratch = Folder::make(home, into.as_deref())?;
    let lent = Folders {
        root: &scratch.root,
        cache: &scratch.aside.join(CACHE),
        run_dir: &scratch.aside.join(RUN),
        state: None,
    };
    let done = replay(&recording, lent, &home.clock);
    let replayed = done.map_err(|error| Failure::internal(whole(&error)))?;
    let head = &recording.head;
    if ui.json {
        show::json(&ReplayJson {
            schema_version: 1,
            run: &head.run,
            job: &head.spec.name,
            kind: &head.spec.kind,
            into: into.as_deref(),
            replayed: &replayed,
        });
    } else {
        print_comparison(&recording, &replayed);
    }
    Ok(match replayed.equal {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

fn print_comparison(recording: &Recording, replayed: &Replayed) {
    let head = &recording.head;
    let total = replayed.artifacts.len();
    let same = replayed.artifacts.iter().filter(|one| one.equal).count();
    let verdict = match (replayed.equal, total) {
        (true, 0) => {
            format!("it produced no artifacts, like the recorded run ({})", replayed.outcome)
        }
        (true, _) => format!("all {total} artifacts are byte for byte the same"),
        (false, _) => format!("the result differs; {same} of {total} artifacts are the same"),
    };
    let mut text = format!(
        "run {} of {} ({}): {verdict}\n",
        head.run,
        head.spec.name,
        show::format_time(head.now)
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
            "  note     secrets were removed from {} contents of the recording: results made from them may differ\n",
            replayed.redacted
        ));
    }
    show::out(&text);
}

/// Returns the recording's path, given a file or a run.
fn find(home: &Env, here: &Path, wanted: &str) -> Result<PathBuf, Failure> {
    if wanted.contains('/') || run_named(wanted).is_some() || wanted.ends_with(".jsonl") {
        return Ok(here.join(wanted));
    }
    let start = wanted.trim().to_ascii_uppercase();
    if start.is_empty() {
        return Err(
            Failure::usage("expected the id of a run, or the beginning of one").hint("runner runs")
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
            "{} recorded runs begin with {wanted}: {first} … {last}",
            runs.len()
        ))
        .hint("runner runs")),
    }
}

/// Creates the failure for a missing recording: the run is unknown, or it was not recorded.
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
            "run {} ({}) has no recording: only runs that did their work have one, for as long as \
             retention.recordings keeps it",
            row.id, row.job_name
        ))
        .hint("runner config show   (retention.recordings)"),
        Some(Err(failure)) => failure,
        None => Failure::data(format!("no run {wanted}")).hint("runner runs"),
    }
}

fn unusable(error: &RecordingError) -> Failure {
    let failure = Failure::data(whole(error));
    match error {
        RecordingError::File(_) => failure.hint("runner runs   (lists other runs)"),
        RecordingError::TooLong { .. } => failure,
    }
}

fn export(from: &Path, to: &Path, ui: Ui) -> Result<Exit, Failure> {
    let cannot = |error: &dyn std::error::Error| Failure::cannot_write(whole(error));
    if to.symlink_metadata().is_ok() {
        return Err(Failure::data(format!("{} is there already", to.display()))
            .hint(format!("rm {}", to.display())));
    }
    let bytes = read_host(from, RECORD).map_err(|error| cannot(&error))?;
    write_atomic(to, &bytes, 0o600).map_err(|error| cannot(&error))?;
    ui.info(&format!("wrote {} ({} bytes)", to.display(), bytes.len()));
    Ok(Exit::Done)
}

/// The folder that a replay works in.
struct Folder {
    root: PathBuf,
    /// The folder for files that belong to no project. It is removed with the replay's folder, or
    /// alone if that folder is kept.
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
            return Err(Failure::data(format!("{} is there already", folder.root.display()))
                .hint("runner replay RUN --into ANOTHER"));
        }
        home.make_state()?;
        let parts = [CACHE, RUN].map(|name| folder.aside.join(name));
        for part in parts.iter().chain([&folder.root]) {
            fs::create_dir_all(part).map_err(|error| {
                Failure::cannot_write(format!("cannot make {}: {error}", part.display()))
            })?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The daily pruning removes anything that cannot be removed now.
        let _ = fs::remove_dir_all(&self.aside);
    }
}
