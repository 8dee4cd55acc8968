//! Replays a run from its recording and compares the artifacts.
//!
//! ```text
//! Recording ──> scratch folder, database in memory, inputs from the recording, recorded replies
//!                    └──> execute, the same code ──> artifacts ──compared──> equal | drift
//! ```
//!
//! A replay must never call a model, start a program, read the project, or access the user's
//! database.

use std::collections::BTreeMap;
use std::sync::Arc;

use runner_backends::Replay;
use runner_backends::replay::question::line_of;
use runner_engine::digest::Digest;
use runner_engine::outcome::Outcome;
use runner_engine::process::Cancel;
use runner_engine::recording::{InputRecording, RecordingData};
use runner_engine::scope::ScopeError;
use runner_engine::store::{ReplayRun, Store, StoreError};
use runner_engine::time::Clock;
use runner_text::redact::Redactor;
use serde::Serialize;

use crate::recording::{RecordedJob, Recording};
use crate::{
    Context, ContextParts, ExecuteError, Folders, JobSpec, RunBackends, RunMode, Silent, execute,
    kinds,
};

#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// True if the replay matches the recorded run.
    pub equal: bool,
    pub recorded: Outcome,
    pub outcome: Outcome,
    /// The artifacts of the recorded run and of the replay.
    pub artifacts: Vec<Compared>,
    /// Descriptions of the points where the replay differed from the recording.
    pub drift: Vec<String>,
    /// Number of requests that the replay made.
    pub requests: usize,
    /// Number of recorded contents from which a secret was redacted. Results that depend on them
    /// may differ.
    pub redacted: usize,
}

/// The comparison of one artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// The path of the artifact, relative to the project.
    pub target: String,
    /// True if the bytes are the same.
    pub equal: bool,
    /// A description of the difference, if the contents differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// Why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The in-memory database could not be used.
    #[error(transparent)]
    Ledger(#[from] StoreError),
    /// The scratch folder could not be used.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The run could not be settled.
    #[error(transparent)]
    Perform(#[from] ExecuteError),
    /// The cancel token could not be created.
    #[error("cannot create a cancel token")]
    Cancel(#[source] std::io::Error),
    /// This version of runner does not support the recorded job.
    #[error("the recording's job cannot be used: {0}")]
    Job(String),
}

fn job(recorded: &RecordedJob) -> Result<JobSpec, String> {
    let row = kinds::find_recorded(&recorded.kind)
        .ok_or_else(|| format!("there is no kind {:?}", recorded.kind))?;
    let mut kind = (row.restore)(recorded.settings.clone()).map_err(|error| error.to_string())?;
    kind.give(recorded.given.clone())?;
    Ok(JobSpec {
        name: recorded.name.clone(),
        kind,
        backend: recorded.backend.clone(),
        budget: recorded.budget,
        total: recorded.total,
    })
}

/// Replays a recorded run in folders outside the project.
///
/// # Errors
/// Returns a [`ReplayError`] if the run cannot be replayed. The failure of a replayed run is an
/// outcome, not an error.
pub fn replay(
    recording: &Recording,
    folders: Folders<'_>,
    clock: &Clock,
) -> Result<Replayed, ReplayError> {
    let head = &recording.head;
    let spec = job(&head.spec).map_err(ReplayError::Job)?;
    let (mut store, admitted) = Store::again(&ReplayRun {
        run: &head.run,
        seed: head.seed,
        manual: head.manual,
        project: &head.project,
        root: folders.root,
        job: &head.spec.name,
        kind: &head.spec.kind,
        started: head.now,
        boot: runner_engine::time::boot_time(),
        reserved: head.reserved,
        total: head.spec.total,
        staging: &head.staging,
    })?;
    let backend = Replay::new(&head.backend, recording.asked.clone());
    let backend = Arc::new(backend.standing_in(head.described.clone()));
    let env = BTreeMap::new();
    let inputs = InputRecording::replaying(&recording.data, folders.root);
    let mut unwatched = Silent;
    let context = Context::new(ContextParts {
        admitted: &admitted,
        folders,
        writes: &head.writes,
        staging: &head.staging,
        env: &env,
        // A replay starts no program.
        sandbox: None,
        clock,
        cancel: Cancel::new().map_err(ReplayError::Cancel)?,
        progress: &mut unwatched,
        redactor: Redactor::new(Vec::new()),
        store: &mut store,
        backends: RunBackends { passed: head.passed.clone(), ..RunBackends::only(backend.clone()) },
        keeper: None,
        mode: RunMode::Replay(inputs.clone()),
    })?;
    let settled = execute(context, &spec)?;
    let artifacts = compare(&recording.data, &inputs.data());
    let mut drift = edited(recording);
    for one in backend.drift() {
        drift.push(one.to_string());
    }
    if backend.asked() < recording.asked.len() {
        let (now, then) = (backend.asked(), recording.asked.len());
        drift.push(format!("the replay made {now} requests, but the recorded run made {then}"));
    }
    drift.extend(inputs.missing().iter().map(ToString::to_string));
    if settled.outcome != recording.outcome {
        drift.push(format!(
            "the replay's outcome is {}, but the recorded outcome is {}",
            settled.outcome, recording.outcome
        ));
    }
    Ok(Replayed {
        equal: drift.is_empty() && artifacts.iter().all(|artifact| artifact.equal),
        recorded: recording.outcome.clone(),
        outcome: settled.outcome,
        artifacts,
        drift,
        requests: backend.asked(),
        redacted: recording.redacted,
    })
}

/// Lists the replies that were edited after the run was recorded.
fn edited(recording: &Recording) -> Vec<String> {
    let replies = recording.asked.iter().enumerate().filter_map(|(at, one)| {
        let text = &one.reply.as_ref()?.text;
        let changed = one.reply_digest != Some(Digest::of(text.as_bytes()));
        changed.then(|| format!("the reply to request {} is not the recorded one", at + 1))
    });
    replies.collect()
}

/// Compares the artifacts of both recordings, in order of first occurrence.
fn compare(then: &RecordingData, now: &RecordingData) -> Vec<Compared> {
    let content = |data: &RecordingData, target: &str| {
        let mut all = data.made.iter().filter(|made| made.target == target);
        all.next_back().map(|made| made.content)
    };
    let mut targets: Vec<&str> = Vec::new();
    for made in then.made.iter().chain(&now.made) {
        if !targets.contains(&made.target.as_str()) {
            targets.push(&made.target);
        }
    }
    let compared = targets.into_iter().map(|target| {
        let differs = match (content(then, target), content(now, target)) {
            (Some(old), Some(new)) if old == new => None,
            (Some(Some(old)), Some(Some(new))) => Some(first_difference(then, now, &old, &new)),
            (Some(_), Some(None)) => Some("the replay removed it".to_owned()),
            (Some(None), Some(_)) => Some("the recorded run removed it".to_owned()),
            (Some(_), None) => Some("the replay did not write it".to_owned()),
            (None, _) => Some("the recorded run did not write it".to_owned()),
        };
        Compared { target: target.to_owned(), equal: differs.is_none(), differs }
    });
    compared.collect()
}

/// Describes the first difference between the recorded and the replayed content.
fn first_difference(
    then: &RecordingData,
    now: &RecordingData,
    old: &Digest,
    new: &Digest,
) -> String {
    const SHOWN: usize = 120;
    let (Some(old), Some(new)) = (then.contents.get(old), now.contents.get(new)) else {
        return format!("{} then, {} now", old.short(), new.short());
    };
    let same = old.iter().zip(new).take_while(|(one, two)| one == two);
    let byte = same.count() + 1;
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let Some(line) = line_of(&old, &new) else {
        return format!("byte {byte}");
    };
    let shown = |text: &str| {
        let line = text.split('\n').nth(line - 1).unwrap_or_default().trim();
        let end = line.floor_char_boundary(SHOWN);
        format!("{:?}{}", &line[..end], if end < line.len() { "…" } else { "" })
    };
    let (old, new) = (shown(&old), shown(&new));
    format!("line {line} (byte {byte}): {old} then, {new} now")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(made: &[(&str, Option<&str>)]) -> RecordingData {
        let recording = InputRecording::recording(1000);
        for (target, content) in made {
            recording.made(target, content.map(str::as_bytes));
        }
        recording.data()
    }

    #[test]
    fn artifact_differences_are_described() {
        let then = data(&[("a", Some("x")), ("b", Some("1\n2\n")), ("c", None), ("d", Some("d"))]);
        let now = data(&[("a", Some("x")), ("b", Some("1\n3\n")), ("c", Some("c")), ("e", None)]);
        let compared = compare(&then, &now);
        let differs = |target: &str| {
            let one = compared.iter().find(|one| one.target == target).unwrap();
            assert_eq!(one.equal, one.differs.is_none());
            one.differs.clone()
        };
        assert_eq!(differs("a"), None);
        let b = differs("b").unwrap();
        assert_eq!(b, "line 2 (byte 3): \"2\" then, \"3\" now");
        assert_eq!(differs("c").as_deref(), Some("the recorded run removed it"));
        assert_eq!(differs("d").as_deref(), Some("the replay did not write it"));
        assert_eq!(differs("e").as_deref(), Some("the recorded run did not write it"));
    }
}
