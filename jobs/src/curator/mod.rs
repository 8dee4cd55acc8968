//! Keeps notes tidy during the day by working through a queue of job files, with the help of a
//! model.
//!
//! Any program may put a job file into `queue/`. One run of a `curator` job processes a batch of
//! job files within the run's budgets, and reports one line for each file. No table mirrors the
//! files. A design with one occurrence for each file was rejected, because the folder and the
//! database could then record different states for the same file.
//!
//! ```text
//!              claim: record the start in hour.jsonl, write the owner, rename
//! queue/ID ─────────────────────────────────> processing/ID
//!    ^                                           │  │  │
//!    │   owner dead, first time; retry left      │  │  └─ work fails ──────> failed/ID + reason
//!    └───────────────────────────────────────────┘  └─ work done: one publication adds the artifacts and
//!                                                      done/ID, and removes processing/ID
//! ```
//!
//! One publication writes `done/ID` and its artifacts. If the process dies, recovery completes or
//! discards the publication as a whole, so a job in `done/` is never repeated. A model only selects
//! from the findings of rules and adds text to them, so a job completes even if no model answers.
//! The curator must never edit a note. It writes findings, drafts and learnings to separate files.

pub mod ask;
pub mod compact;
mod diagnosis;
pub mod events;
pub mod handle;
pub mod ingest;
pub mod job;
mod kind;
mod learning;
pub mod lint;
pub mod queue;
pub mod seed;
pub mod spec;
pub mod worker_status;

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::ids::RunId;
use runner_engine::outcome::Class;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::scope::Expect;
use runner_engine::store::{RunState, StoreError};
use runner_text::counted;
use serde_json::json;

use crate::{Context, Finished, JobError};
use job::CuratorJobKind;
pub use job::{JobFile, Source};
use queue::{Claim, Claimed, Consumer, MovedFile, Worker};
pub use spec::CuratorSpec;
use worker_status::{WorkerState, WorkerStatus};

/// The name of this kind of job.
pub const KIND: &str = "curator";

/// The result of one job file.
#[derive(Debug, Default)]
pub struct JobProduct {
    /// New project files, with their content.
    pub artifacts: Vec<(String, Vec<u8>)>,
    /// A human-readable summary, on one line.
    pub headline: String,
    /// Why the model's contribution is missing, or `None` if nothing is missing.
    pub without: Option<String>,
}

/// Processes the waiting job files.
///
/// # Errors
/// Returns an error if there is nothing to do, if a job waited and none was done or failed, if the
/// worker's folder or the database cannot be used, if a result cannot be staged, or if the run was
/// cancelled or timed out. A job file that cannot be processed does not fail the run. If the
/// settings name an event, also returns the errors of handling the event.
pub fn run(ctx: &mut Context<'_>, spec: &CuratorSpec) -> Result<Finished, JobError> {
    let worker = Worker::of(ctx.files.root(), &spec.worker_dir)
        .map_err(|why| JobError::failed(Class::Environment, why))?;
    worker.make().map_err(|error| io("make", &worker, error))?;
    if let Some(event) = &spec.event {
        return handle::run(ctx, &worker, event);
    }
    let kinds = spec.enqueue.iter().filter(|kind| spec.kinds.contains(kind));
    let kinds: Vec<CuratorJobKind> = kinds.copied().collect();
    let added = worker.enqueue_missing(&kinds, ctx.clock.wall());
    added.map_err(|error| io("use", &worker, error))?;
    let mut reported = RunCounts::default();
    let mut status = WorkerStatus::new(ProcessIdentity::me(), ctx.clock.now());
    let mut consumer = Consumer::new(&worker, spec).of_run(ctx.admitted.run().as_str());
    let mut capped = None;
    for at in 0..spec.batch {
        if ctx.cancel.is_cancelled() {
            break;
        }
        let now = ctx.clock.wall();
        let is_over = |run: &str| is_over(ctx, run);
        let first = (at == 0).then_some(&is_over as queue::IsOver<'_>);
        let Claim { moved, found } =
            consumer.claim(now, first).map_err(|error| io("use", &worker, error))?;
        for MovedFile { name, to, why } in moved {
            reported.failed += u64::from(to == "failed");
            reported.lines.push(format!("{name} -> {to}: {why}"));
        }
        let claimed = match found {
            queue::NextFile::Claimed(claimed) => claimed,
            queue::NextFile::Empty => break,
            queue::NextFile::Capped { until } => {
                capped = Some(until);
                break;
            }
        };
        status.begin(&worker, &claimed.job.id, now);
        ctx.progress.step("job files", u64::from(at), u64::from(spec.batch));
        if let Err(error) = one(ctx, spec, &worker, &claimed, &mut reported) {
            // This run publishes nothing, so the jobs that it completed are returned to the queue.
            for claimed in &reported.claimed {
                worker.put_back(claimed, None).map_err(|error| io("use", &worker, error))?;
            }
            status.last_error = Some(ctx.redactor.redact(&whole(&error)).into_owned());
            status.set(&worker, WorkerState::Idle, ctx.clock.wall());
            return Err(error);
        }
        // A returned job may have killed its earlier process, so the run ends after it.
        if claimed.job.returned > 0 {
            break;
        }
    }
    let now = ctx.clock.wall();
    status.done_this_hour = worker.started_within_hour(now).unwrap_or_default();
    status.last_error.clone_from(&reported.last_error);
    status.set(&worker, WorkerState::Idle, now);
    let _also_in_the_report = worker_status::audit(&worker, now, &reported.lines);
    if reported.lines.is_empty() && ctx.cancel.is_cancelled() {
        let why = ctx.cancel.why().unwrap_or_default();
        return Err(JobError::Cancelled { why });
    }
    if reported.lines.is_empty() {
        let why = match capped {
            Some(until) => format!(
                "hourly_cap allows no more than {} within an hour; the next may begin at {until}",
                counted(spec.hourly_cap, "job")
            ),
            None => "the queue is empty".to_owned(),
        };
        return Err(JobError::Nothing(why));
    }
    // A run in which a job waited and none was done or failed is deferred. Otherwise, a worker
    // would repeat the run immediately.
    if let (0, 0, Some((until, why))) = (reported.done, reported.failed, reported.waits.take()) {
        return Err(JobError::Wait { until, why });
    }
    let mut finished = Finished {
        headline: format!(
            "{} done, {} failed, {} returned to the queue",
            reported.done, reported.failed, reported.back
        ),
        lines: reported.lines,
        ..Finished::default()
    };
    for (name, count) in
        [("done", reported.done), ("failed", reported.failed), ("put_back", reported.back)]
    {
        finished.facts.insert(name.to_owned(), json!(count));
    }
    finished.degraded = match (reported.failed, reported.without) {
        (0, without) => without,
        (failed, _) => Some(format!("{} failed", counted(failed, "job file"))),
    };
    Ok(finished)
}

/// Returns whether a run is settled. A run without a row in the database is also considered over.
fn is_over(ctx: &Context<'_>, run: &str) -> bool {
    let Ok(run) = run.parse::<RunId>() else {
        return true;
    };
    match ctx.spender.store().run(&run) {
        Ok(row) => matches!(row.state, RunState::Settled { .. }),
        Err(StoreError::NotFound { .. }) => true,
        Err(_) => false,
    }
}

/// Describes the waiting work without changing anything.
pub fn dry_run(root: &std::path::Path, spec: &CuratorSpec) -> Vec<String> {
    match Worker::of(root, &spec.worker_dir) {
        Ok(worker) => vec![format!(
            "{} in the queue; at most {} handled in one run and {} within an hour",
            counted(worker.depths().queue, "job file"),
            spec.batch,
            spec.hourly_cap
        )],
        Err(why) => vec![why],
    }
}

#[derive(Default)]
struct RunCounts {
    done: u64,
    failed: u64,
    back: u64,
    lines: Vec<String>,
    without: Option<String>,
    last_error: Option<String>,
    /// The time until which a job waits, with the reason.
    waits: Option<(Timestamp, String)>,
    /// The jobs whose results are staged.
    claimed: Vec<Claimed>,
    /// The artifacts of those jobs, with their redacted content.
    made: Vec<(String, String)>,
}

/// Processes one claimed file and stages the results.
fn one(
    ctx: &mut Context<'_>,
    spec: &CuratorSpec,
    worker: &Worker,
    claimed: &Claimed,
    reported: &mut RunCounts,
) -> Result<(), JobError> {
    let job = &claimed.job;
    let made = match job.kind {
        CuratorJobKind::LintWiki => lint::run(ctx, spec, job),
        CuratorJobKind::DreamSeed => seed::run(ctx, spec, job, &reported.made),
        CuratorJobKind::IngestClaudeSession => ingest::run(ctx, spec, job, &reported.made),
    };
    match made.and_then(|product| unused(ctx, product)) {
        Ok(product) => {
            let without = product.without.clone();
            match stage(ctx, worker, claimed, &product) {
                Ok(made) => reported.made.extend(made),
                // The staged part of the job's results must not be published, so the run ends.
                Err(error) => {
                    let why = ctx.redactor.redact(&whole(&error)).into_owned();
                    let done = match job.attempts < job.max_retries {
                        true => worker.put_back(claimed, Some(&why)),
                        false => worker.fail(claimed, &why, ctx.clock.now()),
                    };
                    done.map_err(|error| io("use", worker, error))?;
                    return Err(error);
                }
            }
            reported.done += 1;
            reported.claimed.push(claimed.clone());
            reported.without = reported.without.take().or(without);
            reported.lines.push(format!("{}: {}", job.id, product.headline));
            Ok(())
        }
        Err(
            error @ (JobError::Cancelled { .. } | JobError::TimedOut { .. } | JobError::Ledger(_)),
        ) => {
            worker.put_back(claimed, None).map_err(|error| io("use", worker, error))?;
            Err(error)
        }
        // The job has not failed, so no attempt is counted.
        Err(JobError::Wait { until, why }) => {
            reported.back += 1;
            reported.lines.push(format!("{} waits: {why}", job.id));
            reported.waits = Some((until, why));
            let now = ctx.clock.wall();
            let back = worker.put_back(claimed, None).and_then(|()| worker.forget(&job.id, now));
            back.map_err(|error| io("use", worker, error))
        }
        // A cancelled job is put back without counting a failed attempt.
        Err(error) if ctx.cancel.is_cancelled() => {
            worker.put_back(claimed, None).map_err(|error| io("use", worker, error))?;
            Err(error)
        }
        Err(error) => {
            let why = ctx.redactor.redact(&whole(&error)).into_owned();
            reported.last_error = Some(format!("{}: {why}", job.id));
            // An I/O error may be temporary, but an error in the job file is not.
            let again = matches!(error, JobError::Io { .. }) && job.attempts < job.max_retries;
            let done = if again {
                reported.back += 1;
                reported.lines.push(format!("{} -> queue: {why}", job.id));
                worker.put_back(claimed, Some(&why))
            } else {
                reported.failed += 1;
                reported.lines.push(format!("{} -> failed: {why}", job.id));
                worker.fail(claimed, &why, ctx.clock.now())
            };
            done.map_err(|error| io("use", worker, error))
        }
    }
}

/// Returns the product if none of its paths is in use.
fn unused(ctx: &Context<'_>, product: JobProduct) -> Result<JobProduct, JobError> {
    let exists = |path: &str| ctx.files.root().join(path).symlink_metadata().is_ok();
    match product.artifacts.iter().find(|(path, _)| !ctx.recording.replays() && exists(path)) {
        Some((path, _)) => {
            Err(JobError::failed(Class::Environment, format!("{path} already exists")))
        }
        None => Ok(product),
    }
}

/// Stages a job's artifacts and its record. Returns the redacted artifacts.
fn stage(
    ctx: &mut Context<'_>,
    worker: &Worker,
    claimed: &Claimed,
    product: &JobProduct,
) -> Result<Vec<(String, String)>, JobError> {
    let mut made = Vec::new();
    for (target, bytes) in &product.artifacts {
        let bytes = String::from_utf8_lossy(bytes);
        let clean = ctx.redactor.redact(&bytes).into_owned();
        ctx.files.stage(target, clean.as_bytes(), Expect::Absent)?;
        made.push((target.clone(), clean));
    }
    let record = claimed.record(product, ctx.clock.now());
    ctx.files.stage(&worker.below("done", &claimed.job.id), &record, Expect::Absent)?;
    ctx.files.remove(&worker.below("processing", &claimed.job.id), claimed.digest)?;
    Ok(made)
}

fn io(doing: &'static str, worker: &Worker, source: std::io::Error) -> JobError {
    JobError::Io { doing, path: worker.folder().to_owned(), source }
}

#[cfg(test)]
mod tests;
