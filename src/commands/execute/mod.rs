//! `runner execute RUN`: the process of one run.
//!
//! ```text
//! contract's lock ──> deciding lock ──> recover what died here ──> facts ──> Ledger::admit ──> jobs::perform
//!      │                   │                                                    │                   │
//!      └── held: skipped ──┘                                                    └── declined        └── failmark, sweep
//! ```
//!
//! The locks are held until the outcome is committed and the sweep after it is done. A run that was
//! never admitted is only ever *declined*: if another process has admitted it meanwhile, that
//! process sets its outcome.

pub mod dry_run;
mod resolved_run;

use std::path::PathBuf;
use std::thread;

use jiff::SignedDuration;
use runner_engine::admission::AdmissionFacts;
use runner_engine::files::beneath;
use runner_engine::git::Git;
use runner_engine::ids::RunId;
use runner_engine::locks::{ContractLock, JobLock, LockError, LockHolder, job_lock_path};
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::policy::Overlap;
use runner_engine::process::Cancel;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{Driver, recover_stale, sweep};
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{
    Admission, Budget, BudgetLevel, Enter, Origin, RunRow, RunState, RunSummary, Store,
};
use runner_jobs::{Context, ContextParts, ExecuteError, RunMode, execute};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::env::{self, Env};
use crate::spawn;
use crate::ui::Failure;
use crate::ui::{Ui, log, progress};
pub(in crate::commands) use resolved_run::slots_folder;
use resolved_run::{Backends, Convened, Purpose, ResolvedRun};

/// The outcome of a run that was not admitted, or the error that left it without one.
enum NotAdmitted {
    /// The outcome of the run, unless another process has the run.
    Before(Outcome),
    /// An error that leaves the run as it is. The process that started the run, or the next tick,
    /// settles it.
    Hard(Failure),
}

impl<T: Into<Failure>> From<T> for NotAdmitted {
    fn from(failure: T) -> Self {
        Self::Hard(failure.into())
    }
}

/// Creates a failure before admission. The class names who must act.
fn refuse(class: Class, why: impl Into<String>) -> NotAdmitted {
    NotAdmitted::Before(Outcome::Failed { class, why: why.into() })
}

/// Executes one requested run.
pub fn run(home: &Env, run: &str, ui: Ui, verbose: u8) -> Result<Exit, Failure> {
    env::arm_for_tests();
    let id: RunId = run.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let mut store = home.store()?;
    let row = store.run(&id)?;
    if !matches!(row.state, RunState::Requested { .. }) {
        ui.info(&format!("run {id} was already started; there is nothing to do"));
        return Ok(Exit::Done);
    }
    let setting = match ResolvedRun::of(home, &store, &row) {
        Ok(setting) => setting,
        Err(failure) => {
            let why = failure.to_string();
            // A configuration file that is being edited is not a failure of the job.
            let outcome = if row.manual() {
                let class = Class::Environment;
                Outcome::Failed { class, why }
            } else {
                let until = home.wall()?.saturating_add(UNREADABLE_WAIT);
                let until = until.unwrap_or(row.requested);
                Outcome::Deferred { until, why }
            };
            store.decline(&id, &outcome, home.wall()?)?;
            return Ok(outcome.exit(true));
        }
    };
    let outcome = attempt(home, &mut store, &setting, ui, verbose)?;
    tracing::info!(outcome = outcome.to_string(), "settled");
    Ok(outcome.exit(true))
}

/// Makes one attempt, from opening the log to the cleanup. An error leaves the run to the process
/// that started it.
fn attempt(
    home: &Env,
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    ui: Ui,
    verbose: u8,
) -> Result<Outcome, Failure> {
    let row = setting.row;
    let holder =
        LockHolder { owner: ProcessIdentity::me(), run: row.id.clone(), since: home.wall()? };
    // The locks are dropped, and so released, only after the outcome is committed.
    let mut locks = None;
    let wanted = env::setting("RUNNER_LOG").and_then(|value| value.into_string().ok());
    let done = log::start(
        &setting.run_dir,
        verbose,
        wanted.as_deref(),
    )
    .map_err(|error| {
        let folder = setting.run_dir.display();
        refuse(
            Class::Environment,
            format!("cannot write the log in {folder}: {error}"),
        )
    })
    .and_then(|()| {
        tracing::info!(job = setting.spec.name, project = %setting.here.root.display(), "begins");
        locks = Some(take_locks(home, store, setting, &holder)?);
        locked(store, setting, &holder.owner, ui, verbose)
    });
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(NotAdmitted::Before(outcome)) => {
            let outcome = setting.redacted(outcome);
            if !store.decline(&row.id, &outcome, home.wall()?)? {
                // Another process has the run, and the database holds its outcome.
                let row = store.run(&row.id)?;
                return Ok(row.outcome().cloned().unwrap_or(Outcome::Skipped {
                    why: "another process is running it".to_owned(),
                }));
            }
            outcome
        }
        Err(NotAdmitted::Hard(failure)) => {
            // An admitted run is recovered later. For a run that was not admitted, this is the
            // outcome.
            let outcome = Outcome::Failed { class: Class::Environment, why: failure.to_string() };
            store.decline(&row.id, &setting.redacted(outcome), home.wall()?)?;
            // If the run was cancelled or taken over meanwhile, that outcome applies instead of
            // this failure.
            let stands = store.run(&row.id)?;
            return match stands.outcome() {
                Some(outcome @ (Outcome::Cancelled { .. } | Outcome::TimedOut { .. })) => {
                    Ok(outcome.clone())
                }
                _ => Err(failure),
            };
        }
    };
    spawn::update_failmark(home, store, &setting.here, &setting.spec, (row, &outcome))?;
    if locks.is_some() {
        let row = store.run(&row.id)?;
        sweep(store, &row, home.wall()?)?;
    }
    drop(locks);
    Ok(outcome)
}

/// Takes both locks in their order: first the contract's lock, then the deciding lock.
fn take_locks(
    home: &Env,
    store: &Store,
    setting: &ResolvedRun<'_>,
    holder: &LockHolder,
) -> Result<(JobLock, Option<ContractLock>), NotAdmitted> {
    let contract = match contract_lock_path(setting)? {
        Some(path) => Some(
            ContractLock::take(&path, holder, holder.since).map_err(|it| not_ours(setting, it))?,
        ),
        None => None,
    };
    // The path uses the names from the database, because recovery looks for the lock there.
    let path = job_lock_path(&home.state, &setting.row.project, &setting.row.job_name);
    let at_work = |holder: &LockHolder| {
        let unsettled = |run: RunRow| !matches!(run.state, RunState::Settled { .. });
        holder.owner.is_alive() && store.run(&holder.run).is_ok_and(unsettled)
    };
    let mut lock = JobLock::take_for_run(&path, at_work).map_err(|it| not_ours(setting, it))?;
    lock.sign(holder)
        .map_err(|error| Failure::cannot_write(format!("cannot write the lock file: {error}")))?;
    if let Some(contract) = &contract
        && let Some(left) = contract.claim().map_err(|it| not_ours(setting, it))?
    {
        tracing::warn!(left, "another program's old lock file was replaced");
    }
    Ok((lock, contract))
}

/// Returns the path of the contract's lock file, for kinds that have one.
fn contract_lock_path(setting: &ResolvedRun<'_>) -> Result<Option<PathBuf>, NotAdmitted> {
    let Some(path) = setting.spec.kind.lock_file() else {
        return Ok(None);
    };
    beneath(&setting.here.root, &path)
        .map(Some)
        .map_err(|error| refuse(Class::Environment, error.to_string()))
}

/// The time after which a run whose configuration cannot be read is tried again.
const UNREADABLE_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// The time after which a run that must wait for another run of its job is tried again.
const TURN_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Converts a lock error. A lock that another process holds causes a skip, or a wait if the job's
/// runs queue; a lock that cannot be used is a failure.
fn not_ours(setting: &ResolvedRun<'_>, error: LockError) -> NotAdmitted {
    let waits = match setting.row.origin {
        Origin::Manual => false,
        Origin::Queue => true,
        Origin::Clock | Origin::Event => setting.overlap() != Overlap::Skip,
    };
    match &error {
        LockError::Held { .. } | LockError::Foreign { .. } if waits => {
            let now = setting.looked;
            NotAdmitted::Before(Outcome::Deferred {
                until: now.saturating_add(TURN_WAIT).unwrap_or(now),
                why: error.to_string(),
            })
        }
        LockError::Held { .. } | LockError::Foreign { .. } => {
            NotAdmitted::Before(Outcome::Skipped { why: error.to_string() })
        }
        LockError::Io { source, .. } => refuse(Class::Environment, format!("{error}: {source}")),
    }
}

/// Executes the run with both locks held, up to its outcome.
fn locked(
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    me: &ProcessIdentity,
    ui: Ui,
    verbose: u8,
) -> Result<Outcome, NotAdmitted> {
    let home = setting.home;
    settle_stale_runs(store, setting, me)?;
    let input = AdmissionInput::of(store, setting, Purpose::Run)?;
    let cancel = cancel_token()?;
    cancel_on_signals(&cancel);
    std::fs::create_dir_all(&setting.cache).map_err(|error| {
        let what = format!("cannot make {}: {error}", setting.cache.display());
        refuse(Class::Environment, what)
    })?;
    let admitted = match store.admit(&input.enter(setting, me)?)? {
        Admission::Declined(outcome) => return Ok(outcome),
        Admission::Admitted(admitted) => admitted,
    };
    // From here on only the run's own settlement or its recovery ends it.
    let mut steps = progress::Steps::new(&setting.spec.name, ui, verbose);
    let backends = setting.paid(input.backends, input.convened);
    let context = Context::new(ContextParts {
        sandbox: Some(&input.sandbox_start),
        keeper: setting.keep_awake(),
        mode: RunMode::Run(setting.recorder()),
        ..setting.parts(&admitted, store, &mut steps, cancel, backends)
    });
    match context.map(|context| execute(context, &setting.spec)) {
        Ok(Ok(settled)) => Ok(settled.outcome),
        Ok(Err(error @ (ExecuteError::TakenOver | ExecuteError::Unfinished(_)))) => {
            Err(NotAdmitted::Hard(Failure::internal(error.to_string())))
        }
        Ok(Err(ExecuteError::Ledger(error))) => Err(NotAdmitted::Hard(error.into())),
        Err(error) => {
            let outcome = Outcome::Failed { class: Class::Environment, why: error.to_string() };
            let (run, fence) = (admitted.run(), Some(admitted.fence()));
            store.settle(run, fence, &outcome, &RunSummary::default(), home.wall()?)?;
            Ok(outcome)
        }
    }
}

/// The input of the admission decision, and the backends to ask.
struct AdmissionInput {
    backends: Backends,
    sandbox_start: SandboxedStart,
    facts: AdmissionFacts,
    want: Budget,
    levels: Vec<BudgetLevel>,
    convened: Convened,
}

impl AdmissionInput {
    /// Gathers the inputs of the admission. Creates nothing except, for a real run, the run's own
    /// folders.
    fn of(store: &Store, setting: &ResolvedRun<'_>, purpose: Purpose) -> Result<Self, NotAdmitted> {
        let ResolvedRun { here, row, home, .. } = setting;
        let git = Git::new(&here.root, &setting.environment, row.id.as_str());
        let sandbox_start = setting
            .sandbox_start(purpose)
            .map_err(|failure| refuse(Class::Environment, failure.to_string()))?;
        let mut backends = setting.backends(store, &sandbox_start)?;
        let facts = setting.facts(store, &git, backends.first.as_ref())?;
        let held = setting.hold_chain(store, &mut backends, home.wall()?)?;
        let mut convened = setting.convene(store, &sandbox_start, purpose)?;
        let first = backends.first.describe().kind;
        let held = setting.hold_voices(store, &mut convened, &first, held, home.wall()?)?;
        Ok(Self { facts, want: held.want, levels: held.levels, backends, sandbox_start, convened })
    }

    /// Returns the request for admission.
    fn enter<'e>(
        &'e self,
        setting: &'e ResolvedRun<'_>,
        me: &'e ProcessIdentity,
    ) -> Result<Enter<'e>, Failure> {
        Ok(Enter {
            run: &setting.row.id,
            owner: me,
            facts: &self.facts,
            want: self.want,
            levels: &self.levels,
            total: setting.spec.total,
            staging: &setting.staging,
            now: setting.home.now()?,
        })
    }
}

fn cancel_token() -> Result<Cancel, Failure> {
    Cancel::new().map_err(|error| Failure::internal(format!("cannot make a cancel token: {error}")))
}

/// Settles earlier runs of this job whose process died, before another run is admitted. They get no
/// further attempt, because this run is the next one.
fn settle_stale_runs(
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    me: &ProcessIdentity,
) -> Result<(), NotAdmitted> {
    let (home, row) = (setting.home, setting.row);
    let driver = Driver::on_host(&home.state, me);
    let stale = recover_stale(store, &driver, &row.project, &row.job_name, home.now()?)?;
    for dead in &stale.settled {
        tracing::info!(run = %dead.id, "its process is gone; it was settled first");
        spawn::mark(home, store, &dead.id)?;
    }
    match stale.stuck {
        None => Ok(()),
        Some(run) => Err(refuse(
            Class::Environment,
            format!("run {run} of this job is only partly published and cannot be finished yet"),
        )),
    }
}

/// Cancels the run on TERM, INT or HUP. The run then settles itself as cancelled.
fn cancel_on_signals(cancel: &Cancel) {
    let cancel = cancel.clone();
    let Ok(mut signals) = Signals::new([SIGTERM, SIGINT, SIGHUP]) else {
        return;
    };
    let _detached = thread::Builder::new().spawn(move || {
        if let Some(signal) = signals.forever().next() {
            cancel.cancel(format!("signal {signal}"));
        }
    });
}
