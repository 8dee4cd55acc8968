//! `runner perform RUN`: the process of one run.
//!
//! ```text
//! contract's lock ──> deciding lock ──> facts ──> Ledger::admit ──> jobs::perform ──> failmark
//!      │                   │                          │
//!      └── held: skipped ──┘                          └── declined: settled as it says
//! ```
//!
//! The locks are held until the outcome is committed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use runner_backends::{Backend, build};
use runner_engine::admission::Facts;
use runner_engine::git::Git;
use runner_engine::ids::RunId;
use runner_engine::ledger::{Admission, Enter, Ledger, Level, RunRow, RunState, Summary};
use runner_engine::locks::{ContractLock, Holder, JobLock, LockError, job_lock_path};
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::owner::Owner;
use runner_engine::process::Cancel;
use runner_engine::recover::sweep;
use runner_engine::scope::Scope;
use runner_engine::tick::{REPORT_JOB, civil_date};
use runner_jobs::context::{Place, Tools};
use runner_jobs::{Context, JobSpec, KindSpec, PerformError, dream, failmark, perform};
use runner_text::redact::Redactor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Failure;
use crate::home::{self, Home};
use crate::project::Here;
use crate::{log, show};

/// Runs one requested run.
pub fn run(home: &Home, run: &str, quiet: bool, verbose: u8) -> Result<Exit, Failure> {
    let id: RunId = run
        .parse()
        .map_err(|error| Failure::usage(format!("{error}")))?;
    let mut ledger = home.ledger()?;
    let row = ledger.run(&id)?;
    if row.state != RunState::Requested {
        show::say(
            quiet,
            &format!("run {id} was begun before; there is nothing to do"),
        );
        return Ok(Exit::Done);
    }
    let folder = home.run_folder(id.as_str());
    log::start(&folder, verbose, Redactor::new(Vec::new())).map_err(|error| {
        Failure::cannot_write(format!(
            "cannot write the log in {}: {error}",
            folder.display()
        ))
    })?;
    let outcome = attempt(home, &mut ledger, &row, folder, quiet, verbose)?;
    tracing::info!(outcome = outcome.to_string(), "settled");
    Ok(outcome.exit(true))
}

/// Why a run did not come to its own settlement.
enum Stop {
    /// It was not admitted, and this is its outcome.
    Before(Outcome),
    /// It is left as it is; whoever started it, or the next tick, settles it.
    Hard(Failure),
}

impl<T: Into<Failure>> From<T> for Stop {
    fn from(failure: T) -> Self {
        Self::Hard(failure.into())
    }
}

fn attempt(
    home: &Home,
    ledger: &mut Ledger,
    row: &RunRow,
    run_dir: PathBuf,
    quiet: bool,
    verbose: u8,
) -> Result<Outcome, Failure> {
    let project = ledger
        .project(&row.project)?
        .ok_or_else(|| Failure::internal(format!("the ledger has no project {}", row.project)))?;
    let known = Here::at(home, &project.path).and_then(|here| Ok((spec(&here, row)?, here)));
    let (spec, here) = match known {
        Ok(known) => known,
        Err(failure) => {
            let outcome = Outcome::Failed {
                class: Class::Environment,
                why: failure.to_string(),
            };
            ledger.settle(&row.id, None, &outcome, &Summary::default(), home.wall()?)?;
            return Ok(outcome);
        }
    };
    tracing::info!(job = spec.name, kind = spec.kind.word(), project = %here.root.display(), "begins");
    let holder = Holder {
        owner: Owner::me(),
        run: row.id.clone(),
        since: home.wall()?,
    };
    // Dropped, and so freed, only after the outcome is committed.
    let locks = locks(home, &here, &spec, &holder);
    let done = match &locks {
        Ok(_) => locked(
            home,
            ledger,
            &here,
            &spec,
            row,
            &holder.owner,
            &run_dir,
            quiet,
            verbose,
        ),
        Err(Stop::Before(outcome)) => Err(Stop::Before(outcome.clone())),
        Err(Stop::Hard(failure)) => Err(Stop::Hard(failure.clone())),
    };
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(Stop::Before(outcome)) => {
            ledger.settle(&row.id, None, &outcome, &Summary::default(), home.wall()?)?;
            outcome
        }
        Err(Stop::Hard(failure)) => return Err(failure),
    };
    mark(&here, &spec, row, &outcome, home.wall()?);
    if locks.is_ok() {
        let row = ledger.run(&row.id)?;
        sweep(ledger, &row, home.wall()?)?;
    }
    drop(locks);
    Ok(outcome)
}

/// Takes both locks in their order: the contract's, then the deciding one.
fn locks(
    home: &Home,
    here: &Here,
    spec: &JobSpec,
    holder: &Holder,
) -> Result<(JobLock, Option<ContractLock>), Stop> {
    let contract = contract_lock(here, spec, holder)?;
    let mut lock =
        JobLock::try_take(&job_lock_path(&home.state, &here.id, &spec.name)).map_err(not_ours)?;
    lock.sign(holder)
        .map_err(|error| Failure::cannot_write(format!("cannot write the lock file: {error}")))?;
    if let Some(contract) = &contract
        && let Some(left) = contract.claim().map_err(not_ours)?
    {
        tracing::warn!(left, "another program's old lock file was replaced");
    }
    Ok((lock, contract))
}

/// What happens with both locks held, up to the outcome.
#[allow(clippy::too_many_arguments)]
fn locked(
    home: &Home,
    ledger: &mut Ledger,
    here: &Here,
    spec: &JobSpec,
    row: &RunRow,
    me: &Owner,
    run_dir: &Path,
    quiet: bool,
    verbose: u8,
) -> Result<Outcome, Stop> {
    let refuse = |class, why: String| Stop::Before(Outcome::Failed { class, why });
    let environment = environment(spec, here);
    let git = Git::new(&here.root, &environment, row.id.as_str());
    let backend = build(&here.config.backends[&spec.backend], &environment)
        .map_err(|error| refuse(error.class(), error.to_string()))?;
    let cancel = Cancel::new()
        .map_err(|error| Failure::internal(format!("cannot make a cancel token: {error}")))?;
    cancel_on_signals(&cancel);
    let facts = facts(
        here,
        spec,
        row,
        ledger,
        &git,
        backend.as_ref(),
        home.wall()?,
    )?;
    let staging = staging(spec, row);
    let levels = levels(here, row, home.wall()?);
    let entered = ledger.admit(&Enter {
        run: &row.id,
        owner: me,
        facts: &facts,
        want: spec.budget,
        levels: &levels,
        total: spec.total,
        staging: &staging,
        now: home.now()?,
    })?;
    let admitted = match entered {
        Admission::Admitted(admitted) => admitted,
        Admission::Declined(outcome) => return Ok(outcome),
    };
    let cache = home.state.join("projects").join(here.id.as_str());
    work(Work {
        home,
        ledger,
        here,
        spec,
        admitted: &admitted,
        staging: &staging,
        run_dir,
        cache: &cache,
        environment: &environment,
        git,
        backend,
        cancel,
        quiet,
        verbose,
    })
}

struct Work<'a> {
    home: &'a Home,
    ledger: &'a mut Ledger,
    here: &'a Here,
    spec: &'a JobSpec,
    admitted: &'a runner_engine::ledger::Admitted,
    staging: &'a str,
    run_dir: &'a Path,
    cache: &'a Path,
    environment: &'a std::collections::BTreeMap<String, String>,
    git: Git,
    backend: Arc<dyn Backend>,
    cancel: Cancel,
    quiet: bool,
    verbose: u8,
}

/// The admitted part: from here on only the run's own settlement or its recovery ends it.
fn work(work: Work<'_>) -> Result<Outcome, Stop> {
    let Work {
        home,
        ledger,
        here,
        spec,
        admitted,
        ..
    } = work;
    std::fs::create_dir_all(work.cache).map_err(|error| {
        Failure::cannot_write(format!("cannot make {}: {error}", work.cache.display()))
    })?;
    let allowed = writes(spec);
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    let scope = match Scope::open(&here.root, &allowed, work.staging) {
        Ok(scope) => scope,
        Err(error) => {
            let outcome = Outcome::Failed {
                class: Class::Environment,
                why: error.to_string(),
            };
            ledger.settle(
                admitted.run(),
                Some(admitted.fence()),
                &outcome,
                &Summary::default(),
                home.wall()?,
            )?;
            return Ok(outcome);
        }
    };
    let mut steps = show::Steps::new(&spec.name, work.quiet, work.verbose > 0);
    let context = Context::new(
        admitted,
        Place {
            root: &here.root,
            cache: work.cache,
            run_dir: work.run_dir,
        },
        scope,
        work.git,
        Tools {
            cancel: work.cancel,
            progress: &mut steps,
            redactor: Redactor::new(Vec::new()),
            env: work.environment,
            clock: &home.clock,
        },
        ledger,
        work.backend,
    );
    match perform(context, spec) {
        Ok(settled) => Ok(settled.outcome),
        Err(error @ (PerformError::TakenOver | PerformError::Unfinished(_))) => {
            Err(Stop::Hard(Failure::internal(error.to_string())))
        }
        Err(PerformError::Ledger(error)) => Err(Stop::Hard(error.into())),
    }
}

fn spec(here: &Here, row: &RunRow) -> Result<JobSpec, Failure> {
    if row.kind == REPORT_JOB {
        return Ok(JobSpec {
            name: REPORT_JOB.to_owned(),
            kind: KindSpec::Report,
            backend: "builtin".to_owned(),
            budget: runner_engine::ledger::Budget {
                calls: Some(0),
                ..Default::default()
            },
            total: std::time::Duration::from_secs(300),
        });
    }
    here.config.job(&row.job_name).map(|job| job.spec.clone())
}

/// The contract's own lock file, where the job's contract has one.
fn contract_lock(
    here: &Here,
    spec: &JobSpec,
    holder: &Holder,
) -> Result<Option<ContractLock>, Stop> {
    let KindSpec::Dream(dream) = &spec.kind else {
        return Ok(None);
    };
    let path = here.root.join(&dream.dreams).join(".lock");
    ContractLock::take(&path, holder, holder.since)
        .map(Some)
        .map_err(not_ours)
}

/// A lock that somebody has is a skip; one that cannot be used is a failure.
fn not_ours(error: LockError) -> Stop {
    match &error {
        LockError::Held { .. } | LockError::Foreign { .. } => Stop::Before(Outcome::Skipped {
            why: error.to_string(),
        }),
        LockError::Io { source, .. } => Stop::Before(Outcome::Failed {
            class: Class::Environment,
            why: format!("{error}: {source}"),
        }),
    }
}

fn facts(
    here: &Here,
    spec: &JobSpec,
    row: &RunRow,
    ledger: &Ledger,
    git: &Git,
    backend: &dyn Backend,
    now: Timestamp,
) -> Result<Facts, Stop> {
    let refuse = |class, why: String| Stop::Before(Outcome::Failed { class, why });
    let dirty = match &spec.kind {
        KindSpec::Dream(own) => dream::dirty(&here.root, git, own, row.by_hand, now)
            .map_err(|error| refuse(Class::Environment, error.whole()))?,
        _ => Vec::new(),
    };
    let free = rustix::fs::statvfs(&here.root).map_err(|error| {
        refuse(
            Class::Environment,
            format!("{}: {error}", here.root.display()),
        )
    })?;
    let job = ledger.job_by_id(row.job)?;
    Ok(Facts {
        by_hand: row.by_hand,
        paused_until: job.paused_until,
        dirty,
        failures_in_a_row: ledger.failures_in_a_row(row.job)?,
        free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
        preflight: backend
            .preflight()
            .err()
            .map(|error| (error.class(), error.to_string())),
        nothing_to_do: None,
    })
}

/// The accounts that a run spends from.
fn levels(here: &Here, row: &RunRow, now: Timestamp) -> Vec<Level> {
    let date = civil_date(now, &here.config.night.zone);
    let mut levels = vec![Level {
        level: "day",
        key: format!("{} {date}", here.id),
        cap: here.config.day,
    }];
    if let Some(night) = row.night {
        levels.push(Level {
            level: "night",
            key: night.0.to_string(),
            cap: here.config.night.budget,
        });
    }
    levels
}

/// What a job may write, below the project.
fn writes(spec: &JobSpec) -> Vec<String> {
    match &spec.kind {
        KindSpec::Dream(dream) => vec![dream.dreams.clone()],
        KindSpec::Command(command) => command
            .artifacts
            .iter()
            .map(|artifact| artifact.to.clone())
            .collect(),
        KindSpec::Prompt(prompt) => {
            let folder = prompt
                .to
                .rsplit_once('/')
                .map_or(prompt.to.as_str(), |(folder, _)| folder);
            vec![folder.to_owned()]
        }
        KindSpec::Report => vec![runner_jobs::report::FOLDER.to_owned()],
    }
}

/// Where a run stages: under the root of its targets, so that renames stay on one file system.
fn staging(spec: &JobSpec, row: &RunRow) -> String {
    match &spec.kind {
        KindSpec::Dream(dream) => format!("{}/.staging/{}", dream.dreams, row.id),
        _ => format!(".runner/staging/{}", row.id),
    }
}

/// What children may see: the ordinary variables and what the job and its backend name.
fn environment(spec: &JobSpec, here: &Here) -> std::collections::BTreeMap<String, String> {
    let mut all = home::child_environment();
    let own: &[String] = match &spec.kind {
        KindSpec::Command(command) => &command.env,
        _ => &[],
    };
    let backend = here
        .config
        .backends
        .get(&spec.backend)
        .map_or(&[][..], |backend| &backend.env);
    all.extend(home::named(own.iter().chain(backend).map(String::as_str)));
    all
}

/// TERM, INT and HUP end the run, which then settles itself as cancelled.
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

/// Brings the failmark in line; a project that cannot be written has bigger troubles, and the
/// ledger knows the outcome anyway.
fn mark(here: &Here, spec: &JobSpec, row: &RunRow, outcome: &Outcome, now: Timestamp) {
    if let Err(error) = failmark::update(&here.root, spec, &row.id, outcome, now) {
        tracing::error!(%error, "the failmark could not be written");
        show::complain(&format!(
            "the failmark of {} could not be written: {error}",
            spec.name
        ));
    }
}
