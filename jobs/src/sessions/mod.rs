//! Analyzes the sessions that coding agents leave behind, and keeps the findings that are useful in
//! the next session.
//!
//! ```text
//! transcript ──transcript──> SessionEvent ──event──> Event ──tasks──> findings of the session
//!                                                                        │
//! findings of all sessions ──fold──> artifacts ──resume──> packet for the next session
//! ```
//!
//! A session is analyzed when it has been idle for the time that the settings specify, by default
//! one minute. The whole transcript is read again, and its findings replace the earlier ones in a
//! single atomic update, so every event is counted once even if a process dies. No model is called.
//! The text of a session is untrusted data and must never be used as an instruction. This module
//! must never write to, lock or delay a running session.

pub mod active;
pub mod artifact;
mod decide;
pub mod event;
pub mod fold;
pub mod folder;
mod forks;
pub mod hints;
mod imports;
mod kind;
mod merge;
mod parts;
pub mod record;
pub mod resume;
mod retired;
mod shell;
mod signature;
pub mod sources;
pub mod spec;
pub mod tasks;
pub mod transcript;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read as _};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::open_host;
use runner_engine::outcome::Class;
use runner_engine::scope::{Expect, FileLook};
use runner_text::{counted, shell_word};
use serde_json::json;

use crate::{Context, Finished, JobError};
use event::Collector;
pub use folder::{Digests, SessionFolder, resume_packet};
use forks::Rows;
use parts::Parts;
use record::SessionRecord;
use sources::{Source, SourcePlaces, wanted_sources};
pub use spec::SessionsSpec;
use tasks::Task;
use transcript::{LineGap, SessionEvent, Transcript};

/// The name of this job kind.
pub const KIND: &str = "sessions";
/// The age at which a session's findings are removed.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 90);
/// The amount by which a run raises the nice value of its process.
const NICENESS: i32 = 10;

/// Analyzes one transcript, up to the size that it had when it was found, and the transcripts of
/// its sub-agents. Rows that also belong to one of the `known` sessions count only for that
/// session.
///
/// # Errors
/// Returns an error if a file cannot be read, or an error of kind `Interrupted` if `cancelled`
/// returns true.
pub fn analyze(
    source: &Source,
    skip: &[Task],
    known: &BTreeMap<String, SessionRecord>,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<SessionRecord> {
    let file = open_host(&source.path)?.take(source.size);
    let reader = BufReader::with_capacity(256 << 10, file);
    let mut transcript = Transcript::new(reader, LineGap::default());
    let mut parts = Parts::of(source)?;
    let mut collector = Collector::default();
    let mut rows = Rows::default();
    let mut line = 1;
    for event in transcript.by_ref() {
        let event = event?;
        if let Some(at) = event.at {
            while let Some(part) = parts.next_until(at)? {
                collector.take(SessionEvent { line, ..part });
            }
        }
        line = event.line;
        rows.add(&event);
        collector.take(event);
        if cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    while let Some(part) = parts.next_until(Timestamp::MAX)? {
        collector.take(SessionEvent { line, ..part });
    }
    let mut tally = transcript.tally().clone();
    parts.count(&mut tally);
    let mut session = collector.done();
    // The result of an earlier analysis remains valid, because forks that were analyzed since then
    // do not count the rows that count for this session.
    session.shared_until = match known.get(&source.id).and_then(|it| it.shared_until) {
        Some(line) => line,
        None => {
            let others = known.values().filter(|it| it.session != source.id);
            rows.shared_until(others, cancelled)?
        }
    };
    let record = SessionRecord::of(&source.id, &session, skip);
    Ok(record.counted(source, tally, transcript.place()))
}

/// Returns the idle sessions whose newest events have not been analyzed. The transcript of an
/// analyzed session is not opened, because the file with its findings has the same modification
/// time.
pub fn due(places: SourcePlaces<'_>, spec: &SessionsSpec, now: Timestamp) -> Vec<Source> {
    let known = |source: &Source| {
        let path =
            places.root.join(&spec.folder).join("sessions").join(format!("{}.json", source.id));
        let modified = fs::symlink_metadata(path).and_then(|data| data.modified()).ok();
        modified.is_some_and(|modified| modified == SystemTime::from(source.modified))
    };
    wanted_sources(places, now, &|source| is_idle(source, spec, now) && !known(source))
}

/// Returns whether a session has been idle for long enough, but is not so old that its findings
/// would be removed.
fn is_idle(source: &Source, spec: &SessionsSpec, now: Timestamp) -> bool {
    let age = now.duration_since(source.modified);
    age >= SignedDuration::from_secs(i64::from(spec.idle)) && age < KEPT
}

/// Returns the places where a run searches for the project's transcripts.
fn places<'a>(ctx: &'a Context<'_>, spec: &'a SessionsSpec) -> SourcePlaces<'a> {
    SourcePlaces::of(ctx.files.root(), ctx.files.agents(), spec)
}

/// Analyzes the project's idle sessions or the session that the settings name, or applies the
/// decision in the settings.
///
/// # Errors
/// Returns an error if there is nothing to do, if the decision or the named session is not valid,
/// if the run was cancelled, or if a file cannot be written. A transcript that cannot be read does
/// not fail the run.
pub fn run(ctx: &mut Context<'_>, spec: &SessionsSpec) -> Result<Finished, JobError> {
    // The work can wait, so it yields to everything else on the host.
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "the run keeps its priority");
    }
    let (root, state) = (ctx.files.root(), ctx.files.cache());
    let mut digests = Digests::load(state);
    let mut folder = SessionFolder::load(root, &spec.folder, &digests);
    let now = ctx.clock.now();
    let mut finished = Finished::default();
    let changed = match &spec.change {
        Some(_) if folder.are_decisions_unknown => {
            let path = format!("{}/decisions.json", spec.folder);
            return Err(JobError::failed(
                Class::Guard,
                format!(
                    "runner did not record the content of {path}; to begin without it: mv {0} {0}.old",
                    shell_word(&path)
                ),
            ));
        }
        Some(change) => {
            finished.headline = decide::apply(&mut folder, change, now)?;
            Vec::new()
        }
        None => analyze_due(ctx, spec, &mut folder, &mut finished)?,
    };
    if folder.are_decisions_unknown {
        let what = format!("{}/decisions.json is not used, so no decision counts", spec.folder);
        finished.degraded.get_or_insert(what);
    }
    retired::remove_old(&mut folder, now);
    let (old, decisions) = (folder.artifacts.clone(), folder.decisions.clone());
    let folded = fold::fold(&folder.in_order(), &old, &decisions);
    folder.artifacts.clone_from(&folded.artifacts);
    let project = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.packet = match spec.skip.contains(&Task::ResumePacket) {
        true => None,
        false => resume::packet(&folder.in_order(), &folder.artifacts, &project),
    };
    let files = content(&mut folder, spec);
    publish(ctx, spec, &folder, &files, &mut digests)?;
    for (what, count) in [
        ("sessions", changed.len() as u64),
        ("artifacts", folder.artifacts.len() as u64),
        ("evicted", folded.evicted),
        ("too_large", folded.too_large),
    ] {
        finished.facts.insert(what.to_owned(), json!(count));
    }
    if finished.headline.is_empty() {
        finished.headline = format!(
            "{} analyzed; {} kept, {} evicted",
            counted(changed.len(), "session"),
            counted(folder.artifacts.len(), "artifact"),
            folded.evicted
        );
    }
    finished.lines.extend(folder.problems);
    Ok(finished)
}

/// Analyzes the sessions that are due, and returns the ids of those whose transcripts can be read.
fn analyze_due(
    ctx: &mut Context<'_>,
    spec: &SessionsSpec,
    folder: &mut SessionFolder,
    finished: &mut Finished,
) -> Result<Vec<String>, JobError> {
    let now = ctx.clock.now();
    let mut all = match &spec.session {
        Some(wanted) => vec![find(ctx, spec, wanted)?],
        None => {
            let unchanged = |source: &Source| {
                folder.records.get(&source.id).is_some_and(|known| {
                    known.size == source.size && known.modified == Some(source.modified)
                })
            };
            wanted_sources(places(ctx, spec), now, &|source| {
                is_idle(source, spec, now) && (spec.all || !unchanged(source))
            })
        }
    };
    if spec.session.is_none() && !spec.all {
        all.truncate(spec.batch as usize);
    }
    sources::find_agents(&mut all);
    let mut done = Vec::new();
    let total = all.len() as u64;
    for (at, source) in all.iter().enumerate() {
        ctx.progress.step("sessions", at as u64, total);
        let cancel = &ctx.cancel;
        match analyze(source, &spec.skip, &folder.records, &|| cancel.is_cancelled()) {
            Ok(mut record) => {
                record.note_end(spec.ended, folder.records.get(&source.id));
                finished.lines.push(line(&record));
                // The artifacts are derived only from the content of the record's file, so a
                // later run derives the same ones.
                record.file();
                done.push(source.id.clone());
                folder.records.insert(source.id.clone(), record);
            }
            Err(_) if cancel.is_cancelled() => {
                let why = cancel.why().unwrap_or_default();
                return Err(JobError::Cancelled { why });
            }
            Err(error) => {
                let what = format!("{}: {error}", source.path.display());
                finished.degraded.get_or_insert(what);
            }
        }
    }
    if done.is_empty() && finished.degraded.is_none() {
        return Err(JobError::Nothing("no idle session has new events".to_owned()));
    }
    Ok(done)
}

/// Returns the transcript with this id or path.
///
/// # Errors
/// Returns an error if there is none, or if it is so old that its findings would be removed
/// immediately.
fn find(ctx: &Context<'_>, spec: &SessionsSpec, wanted: &str) -> Result<Source, JobError> {
    let found = match wanted.contains('/') {
        true => sources::source(ctx.files.root().join(wanted)),
        false => {
            let named = |it: &Source| sources::is_named(&it.id, wanted);
            let all = wanted_sources(places(ctx, spec), ctx.clock.now(), &named);
            all.into_iter().next()
        }
    };
    let bad = |why: String| JobError::failed(Class::Environment, why);
    let found =
        found.ok_or_else(|| bad(format!("there is no session {wanted:?} in this project")))?;
    if ctx.clock.now().duration_since(found.modified) >= KEPT {
        return Err(bad(format!(
            "session {wanted:?} was last changed at {}, and findings are kept for {} days",
            found.modified,
            KEPT.as_hours() / 24
        )));
    }
    Ok(found)
}

/// Describes an analyzed session in one line.
fn line(record: &SessionRecord) -> String {
    let transcript::Tally { lines, foreign, bad, too_long, torn, .. } = &record.tally;
    let mut text = format!(
        "{}: {}, {}, {} failed",
        record.session,
        counted(*lines, "line"),
        counted(record.calls, "call"),
        record.failed
    );
    for (count, what) in [
        (foreign, "in another format"),
        (bad, "damaged"),
        (too_long, "too long"),
        (torn, "unfinished"),
        (&record.left_out, "of the oldest events left out"),
        (
            &record.shared_until.unwrap_or_default(),
            "at the beginning that count for another session",
        ),
    ] {
        if *count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

/// An analysis file: its path relative to the project, its content and its modification time.
struct NewFile {
    path: String,
    bytes: Vec<u8>,
    modified: Option<Timestamp>,
}

/// Returns all analysis files.
fn content(folder: &mut SessionFolder, spec: &SessionsSpec) -> Vec<NewFile> {
    let base = &spec.folder;
    let hints = hints::hints(&folder.in_order(), &folder.artifacts);
    let mut files = Vec::new();
    for (id, record) in &mut folder.records {
        let path = format!("{base}/sessions/{id}.json");
        files.push(NewFile { path, bytes: record.file(), modified: record.modified });
    }
    let mut add = |name: String, bytes| {
        files.push(NewFile { path: format!("{base}/{name}"), bytes, modified: None });
    };
    for artifact in &folder.artifacts {
        add(format!("artifacts/{}.json", artifact.id), fold::bytes(artifact));
    }
    if !folder.are_decisions_unknown {
        add("decisions.json".to_owned(), record::compact(&folder.decisions));
    }
    if !folder.retired.is_empty() {
        add("retired.json".to_owned(), record::compact(&folder.retired));
    }
    if let Some(packet) = &folder.packet {
        add("resume.json".to_owned(), record::compact(packet));
    }
    if !hints.is_empty() {
        add("hints.json".to_owned(), record::compact(&hints));
    }
    files
}

/// Stages the files that changed and the removal of those that are no longer needed, and saves the
/// digests of all files.
fn publish(
    ctx: &mut Context<'_>,
    spec: &SessionsSpec,
    folder: &SessionFolder,
    files: &[NewFile],
    digests: &mut Digests,
) -> Result<(), JobError> {
    for NewFile { path, bytes, modified } in files {
        let current = folder.files.get(path).copied();
        if current == Some(Digest::of(bytes)) {
            continue;
        }
        digests.note(path, bytes, current);
        let nanos = |at: &Timestamp| i64::try_from(at.as_nanosecond()).unwrap_or(0);
        let look = modified.as_ref().map(|at| FileLook { mode: 0o644, modified: nanos(at) });
        ctx.files.stage_as(path, bytes, Expect::Current, look)?;
    }
    let kept = |path: &str| files.iter().any(|file| file.path == path);
    for (path, digest) in folder.files.iter().filter(|(path, _)| !kept(path)) {
        ctx.files.remove(path, *digest)?;
    }
    // Another job may have files in another folder.
    let own = format!("{}/", spec.folder);
    digests.retain(|path| kept(path) || folder.files.contains_key(path) || !path.starts_with(&own));
    let state = ctx.files.cache();
    digests.save(state).map_err(|source| JobError::Io {
        doing: "write",
        path: state.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
