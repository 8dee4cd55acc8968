//! Starts runs and waits for them.
//!
//! Each run is a separate `runner execute RUN` process, so a failing run does not affect the
//! others. If that process exits without settling its run, the process that started it recovers the
//! run. This module must never do a job's work itself.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runner_engine::admission::AT_WORK;
use runner_engine::ids::RunId;
use runner_engine::locks::{JobLock, LockHolder, job_lock_path};
use runner_engine::outcome::Outcome;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{BEGIN_LIMIT, Driver, Recovered, recover};
use runner_engine::store::{RunFilter, RunRow, RunState, RunSummary, Store};
use runner_jobs::failmark::RunEnd;
use runner_jobs::{JobSpec, failmark, kinds};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::ui::show;
use crate::ui::{Failure, Ui};

/// Options for a run's process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpawnMode {
    /// Whether the run's progress may be shown on this process's terminal.
    pub watched: bool,
    /// Whether the user waits for the runs, so that a signal cancels a manual run that has not
    /// begun.
    pub awaited: bool,
    /// The output options of this command. `quiet` is passed on to the run.
    pub ui: Ui,
    /// The number of `-v` flags to pass on to the run.
    pub verbose: u8,
    /// Whether the run gets its own process group, so that signals from the terminal do not reach
    /// it.
    pub apart: bool,
}

pub struct Started {
    pub run: RunId,
    /// The run's process, not yet reaped.
    pub child: Child,
}

/// Creates the driver for ticks and recovery in this process.
pub fn driver<'a>(home: &'a Env, me: &'a ProcessIdentity) -> Driver<'a> {
    Driver {
        retries_lost: &kinds::retries_lost,
        last_tick: home.last_tick(),
        ..Driver::on_host(&home.state, me)
    }
}

/// Starts a requested run's process. The run must be admitted within [`BEGIN_LIMIT`].
pub fn spawn(
    home: &Env,
    store: &mut Store,
    run: &RunId,
    manner: SpawnMode,
) -> Result<Started, Failure> {
    let deadline = home.now()?.boot.saturating_add(BEGIN_LIMIT);
    let mut command = Command::new(env::executable()?);
    let (name, folder) = home.state_variable();
    command.env(name, folder);
    // A daemon may outlive the folder in which it was started.
    command.arg0("runner").current_dir(&home.state);
    for name in env::MANAGERS {
        command.env_remove(name);
    }
    if manner.apart {
        command.process_group(0);
    }
    command.arg("execute").arg(run.as_str()).stdin(Stdio::null()).stdout(Stdio::null());
    // The child inherits settings from environment variables, but not from flags.
    for flag in &home.flags {
        command.arg(format!("--config={flag}"));
    }
    if !manner.watched {
        command.stderr(Stdio::null());
    }
    if manner.ui.quiet {
        command.arg("--quiet");
    }
    for _ in 0..manner.verbose {
        command.arg("--verbose");
    }
    let child = command.spawn().map_err(|error| {
        Failure::environment(format!("cannot start this program again for a run: {error}"))
    })?;
    let started = Started { run: run.clone(), child };
    // Without this record, nothing stops the run if it hangs before its admission.
    if let Err(error) = store.spawned(run, &ProcessIdentity::of(started.child.id()), deadline) {
        show::complain(&format!("run {run}: {}", Failure::from(error)));
    }
    Ok(started)
}

/// Runs a requested run to completion, and starts further attempts at its occurrence if the run is
/// lost. Returns the last attempt.
pub fn run_to_end(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    run: &RunId,
    manner: SpawnMode,
) -> Result<RunRow, Failure> {
    let mut first = Some(run.clone());
    let all = run_all(home, store, me, manner, |_, _| {
        Ok(NextAction { start: first.take().into_iter().collect(), ..NextAction::default() })
    })?;
    Ok(store.run(all.last().unwrap_or(run))?)
}

/// The runs to start now, and the time until the next ones.
#[derive(Debug, Default)]
pub struct NextAction {
    pub start: Vec<RunId>,
    /// The time until another run is ready, if it is short enough to wait for.
    pub soon: Option<Duration>,
    /// The time until the next scheduled time, which matters only while a run is live.
    pub due: Option<Duration>,
}

/// Maximum time to wait for a delayed run.
const STAY: SignedDuration = SignedDuration::from_secs(90);
/// Maximum time between two ticks while a run is live.
const REST: Duration = Duration::from_secs(60);
/// How often a waiting process rereads the clock, in case the clock has been set.
pub const LOOK: Duration = Duration::from_secs(1);

/// The runs that have been started so far.
#[derive(Clone, Copy, Debug)]
pub struct StartedRuns<'a> {
    /// All of them, in the order in which they were started.
    pub all: &'a [RunId],
    /// Number of runs that have not ended.
    pub live: usize,
}

/// Starts the runs that `next` returns, until no run is live and `next` returns neither a run nor
/// `soon`. `next` is called again whenever a run ends, at least once a second while `soon` is set,
/// and otherwise at least once a minute. After TERM or INT, `next` is not called again, and if the
/// user waits for the runs, a manual run that has not begun is cancelled. Returns the ids of all
/// started runs.
pub fn run_all<N>(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    manner: SpawnMode,
    mut next: N,
) -> Result<Vec<RunId>, Failure>
where
    N: FnMut(&mut Store, StartedRuns<'_>) -> Result<NextAction, Failure>,
{
    let mut live: BTreeMap<u32, Started> = BTreeMap::new();
    let mut all = Vec::new();
    let mut forwarder: Option<SignalForwarder> = None;
    loop {
        // After a signal, no new run is started.
        let fresh = match &forwarder {
            Some(forwarder) if forwarder.signaled.load(Ordering::SeqCst) => NextAction::default(),
            _ => next(store, StartedRuns { all: &all, live: live.len() })?,
        };
        let patience = match fresh.soon {
            Some(soon) => soon.min(LOOK),
            None => fresh.due.map_or(REST, |due| due.clamp(LOOK, REST)),
        };
        for run in fresh.start {
            let forwarder = forwarder.get_or_insert_with(SignalForwarder::start);
            let started = spawn(home, store, &run, manner)?;
            all.push(run);
            forwarder.add(started.child.id());
            live.insert(started.child.id(), started);
        }
        if live.is_empty() && fresh.soon.is_none() {
            return Ok(all);
        }
        let forwarder = forwarder.get_or_insert_with(SignalForwarder::start);
        for pid in ended(&live, patience)? {
            // After the process is reaped, its process id may be reused.
            forwarder.remove(pid);
            let Some(mut started) = live.remove(&pid) else { continue };
            let status = started.child.wait().map_err(|error| {
                Failure::internal(format!("cannot wait for run {}: {error}", started.run))
            })?;
            let stopped = manner.awaited && forwarder.signaled.load(Ordering::SeqCst);
            if stopped && store.run(&started.run)?.manual() {
                let why = "it was stopped by a signal before it began".to_owned();
                store.decline(&started.run, &Outcome::Cancelled { why }, home.wall()?)?;
            }
            if let Some(again) = settle_after(home, store, me, &started.run, &status.to_string())? {
                if forwarder.signaled.load(Ordering::SeqCst) {
                    // After a signal, a later tick starts the next attempt.
                    continue;
                }
                let started = spawn(home, store, &again, manner)?;
                all.push(again);
                forwarder.add(started.child.id());
                live.insert(started.child.id(), started);
            }
        }
    }
}

/// Returns the time until the next waiting run is ready, if it is at most [`STAY`]. Waiting for
/// such a run avoids a delay until the host timer's next tick.
pub fn soon(store: &Store, now: Timestamp) -> Result<Option<Duration>, Failure> {
    let next = store.next_ready(now)?;
    let wait = next.map(|next| next.duration_since(now));
    Ok(wait
        .filter(|wait| wait.is_positive() && *wait <= STAY)
        .and_then(|wait| wait.try_into().ok()))
}

/// Sends TERM to a run's process, which then settles the run.
pub fn end(store: &Store, run: &RunId) -> Result<(), Failure> {
    if let Some(owner) = store.run(run)?.owner() {
        let _already_gone = owner.signal(Signal::TERM);
    }
    Ok(())
}

/// Waits up to `patience` for a process to exit, and returns the ids of the exited processes.
fn ended(live: &BTreeMap<u32, Started>, patience: Duration) -> Result<Vec<u32>, Failure> {
    let internal =
        |error: rustix::io::Errno| Failure::internal(format!("cannot wait for runs: {error}"));
    let mut handles = Vec::with_capacity(live.len());
    for pid in live.keys() {
        let number = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let number =
            number.ok_or_else(|| Failure::internal(format!("{pid} is not a valid process id")))?;
        handles.push((*pid, pidfd_open(number, PidfdFlags::empty()).map_err(internal)?));
    }
    let mut polled: Vec<PollFd<'_>> = handles
        .iter()
        .map(|(_, handle)| PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN))
        .collect();
    match poll(&mut polled, Timespec::try_from(patience).ok().as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(internal(error)),
    }
    Ok(handles
        .iter()
        .zip(&polled)
        .filter(|(_, polled)| !polled.revents().is_empty())
        .map(|((pid, _), _)| *pid)
        .collect())
}

/// Settles a run whose process has exited, unless the run is already settled. Returns the next
/// attempt at the run's occurrence, if there is one.
pub fn settle_after(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    run: &RunId,
    status: &str,
) -> Result<Option<RunId>, Failure> {
    let row = store.run(run)?;
    match row.state {
        RunState::Settled { staging, .. } => {
            if staging.is_some() {
                // The process died between recording the outcome and finishing its cleanup.
                mark(home, store, run)?;
            }
            Ok(None)
        }
        RunState::Queued { .. } => Ok(None),
        RunState::Requested { .. } => {
            let why = format!("its process ended with {status} before the run began");
            // The run had not begun, so one more attempt costs nothing. A manual run is not
            // repeated, because the user is waiting for it and can decide.
            let unattended = !row.manual() || row.night.is_some();
            let again = unattended && store.lost_runs_of(&row.occurrence)? == 0;
            let (outcome, summary) = (Outcome::Lost { why }, RunSummary::default());
            let again =
                store.settle_dead(run, &outcome, &summary, again.then_some(me), home.wall()?)?;
            mark(home, store, run)?;
            Ok(again)
        }
        RunState::Running { .. } => match recover_stale(home, store, me, &row)? {
            Recovered::Settled { retry, .. } => {
                mark(home, store, run)?;
                Ok(retry)
            }
            Recovered::Alone | Recovered::Start(_) => {
                show::complain(&format!(
                    "the process of run {run} ended with {status} and the run cannot be settled yet; \
                     `runner tick` tries again"
                ));
                Ok(None)
            }
        },
    }
}

/// Recovers a run whose process has exited. If another process is about to settle the run, waits
/// briefly for that process.
fn recover_stale(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    row: &RunRow,
) -> Result<Recovered, Failure> {
    let first = recover(store, &driver(home, me), row, home.now()?)?;
    if first != Recovered::Alone {
        return Ok(first);
    }
    let path = job_lock_path(&home.state, &row.project, &row.job_name);
    let at_work = |holder: &LockHolder| holder.run != row.id && holder.owner.is_alive();
    if let Ok(free) = JobLock::take_for_run(&path, at_work) {
        drop(free);
    }
    let row = store.run(&row.id)?;
    match row.outcome() {
        Some(outcome) => Ok(Recovered::Settled { outcome: outcome.clone(), retry: None }),
        None => Ok(recover(store, &driver(home, me), &row, home.now()?)?),
    }
}

/// Updates the failure marker of a run's job after a process other than the run's own has settled
/// the run.
pub fn mark(home: &Env, store: &Store, run: &RunId) -> Result<(), Failure> {
    let row = store.run(run)?;
    // The outcome of a later run takes precedence.
    let newest = RunFilter { job: Some(row.job), limit: 20, ..RunFilter::default() };
    let later = store.runs(&newest)?.into_iter().take_while(|later| later.id != row.id);
    let overtaken = |later: &RunRow| {
        let outcome = later.outcome();
        outcome.is_some_and(|it| !matches!(it, Outcome::Skipped { .. } | Outcome::Deferred { .. }))
    };
    if later.into_iter().any(|later| overtaken(&later)) {
        return Ok(());
    }
    let (Some(outcome), Some(project)) = (row.outcome(), store.project(&row.project)?) else {
        return Ok(());
    };
    // A project that is gone or cannot be read is reported separately.
    let Ok(here) = LoadedProject::at(home, Some(store), &project.path) else { return Ok(()) };
    let Ok(spec) = here.spec(&row) else { return Ok(()) };
    update_failmark(home, store, &here, &spec, (&row, outcome))
}

/// Updates a job's failure marker after a run has ended with this outcome.
pub fn update_failmark(
    home: &Env,
    store: &Store,
    here: &LoadedProject,
    spec: &JobSpec,
    (row, outcome): (&RunRow, &Outcome),
) -> Result<(), Failure> {
    let deferrals = match outcome {
        Outcome::Deferred { .. } => store.deferrals_in_a_row(row.job, AT_WORK)?,
        _ => 0,
    };
    let end = RunEnd { run: &row.id, outcome, deferrals, at: home.wall()? };
    if let Err(error) = failmark::update(&here.root, spec, &end) {
        tracing::error!(%error, "the failure marker could not be written");
        show::complain(&format!(
            "the failure marker of {} could not be written: {error}",
            spec.name
        ));
    }
    Ok(())
}

/// Sends TERM to the started runs when this process receives TERM or INT. Each run then settles
/// itself as cancelled.
struct SignalForwarder {
    pids: Arc<Mutex<BTreeSet<u32>>>,
    signaled: Arc<AtomicBool>,
}

impl SignalForwarder {
    fn start() -> Self {
        let pids = Arc::new(Mutex::new(BTreeSet::new()));
        let signaled = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The flag is set before a run that received the same signal is seen to end.
            let _unhandled = signal_hook::flag::register(signal, Arc::clone(&signaled));
        }
        let forwarder = Self { pids: Arc::clone(&pids), signaled };
        if let Ok(mut signals) = Signals::new([SIGTERM, SIGINT]) {
            // If the thread cannot be started, recovery settles the runs later.
            let _detached = thread::Builder::new().spawn(move || {
                for _ in signals.forever() {
                    for pid in pids.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                            let _already_gone = kill_process(pid, Signal::TERM);
                        }
                    }
                }
            });
        }
        forwarder
    }

    fn add(&self, pid: u32) {
        // The process is added first, so that a signal reaches it either here or in the thread.
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        if self.signaled.load(Ordering::SeqCst)
            && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        {
            let _already_gone = kill_process(pid, Signal::TERM);
        }
    }

    fn remove(&self, pid: u32) {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }
}
