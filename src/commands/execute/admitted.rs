//! Admits a run and executes it, up to its outcome.

use std::path::PathBuf;
use std::thread;

use runner_engine::git::Git;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process::Cancel;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{Admission, Admitted, Enter, RunSummary, Store};
use runner_jobs::context::{Tools, Workplace};
use runner_jobs::{Context, ExecuteError, execute};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::input::{AdmissionInput, recover_stale_runs};
use super::resolved_run::{Backends, Convened, Purpose, ResolvedRun};
use super::{NotAdmitted, refuse};
use crate::commands::Cli;
use crate::ui::{Failure, progress};

/// Executes the run with both locks held, up to its outcome.
pub(super) fn locked(
    cli: &Cli<'_>,
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    me: &ProcessIdentity,
) -> Result<Outcome, NotAdmitted> {
    let home = cli.env;
    let ResolvedRun { here, spec, row, .. } = setting;
    recover_stale_runs(home, store, row, me)?;
    let AdmissionInput { git, backends, sandbox_start, facts, want, levels, convened } =
        AdmissionInput::of(home, store, setting, Purpose::Run)?;
    let cancel = cancel_token()?;
    cancel_on_signals(&cancel);
    let staging = setting.staging();
    let cache = home.cache_folder(&here.id);
    std::fs::create_dir_all(&cache).map_err(|error| {
        let what = format!("cannot make {}: {error}", cache.display());
        refuse(Class::Environment, what)
    })?;
    let entered = store.admit(&Enter {
        run: &row.id,
        owner: me,
        facts: &facts,
        want,
        levels: &levels,
        total: spec.total,
        staging: &staging,
        now: home.now()?,
    })?;
    match entered {
        Admission::Declined(outcome) => Ok(outcome),
        Admission::Admitted(admitted) => {
            let work =
                AdmittedRun { sandbox_start, git, backends, convened, cancel, staging, cache };
            work.done(cli, store, setting, &admitted)
        }
    }
}

pub(super) fn cancel_token() -> Result<Cancel, Failure> {
    Cancel::new().map_err(|error| Failure::internal(format!("cannot make a cancel token: {error}")))
}

struct AdmittedRun {
    sandbox_start: SandboxedStart,
    git: Git,
    backends: Backends,
    convened: Convened,
    cancel: Cancel,
    staging: String,
    cache: PathBuf,
}

impl AdmittedRun {
    /// Executes the admitted part. From here on only the run's own settlement or its recovery ends
    /// it.
    fn done(
        self,
        cli: &Cli<'_>,
        store: &mut Store,
        setting: &ResolvedRun<'_>,
        admitted: &Admitted,
    ) -> Result<Outcome, NotAdmitted> {
        let home = cli.env;
        let ResolvedRun { here, spec, .. } = setting;
        let mut steps = progress::Steps::new(&spec.name, cli.ui, cli.verbose);
        let keeper = setting.keep_awake();
        let scope = match setting.scope() {
            Ok(scope) => scope,
            Err(outcome) => {
                let (run, fence) = (admitted.run(), Some(admitted.fence()));
                store.settle(run, fence, &outcome, &RunSummary::default(), home.wall()?)?;
                return Ok(outcome);
            }
        };
        let spending = setting.spending(self.backends.first.name());
        let others = self.backends.others.into_iter().map(|backend| {
            let spending = setting.spending(backend.name());
            (backend, spending)
        });
        let others = others.collect();
        let context = Context::new(
            admitted,
            Workplace { root: &here.root, cache: &self.cache, run_dir: &setting.run_dir },
            scope,
            self.git,
            Tools {
                cancel: self.cancel,
                progress: &mut steps,
                redactor: setting.redactor.clone(),
                env: &setting.environment,
                sandbox_start: Some(&self.sandbox_start),
                clock: &home.clock,
            },
            store,
            self.backends.first,
        )
        .paying(spending)
        .kept_awake(keeper)
        .in_state(&home.state)
        .with_fallbacks(others, self.backends.passed)
        .hearing(setting.voices(self.convened));
        let context = match setting.recorder(&self.staging) {
            Some(recorder) => context.recorded(recorder),
            None => context,
        };
        match execute(context, spec) {
            Ok(settled) => Ok(settled.outcome),
            Err(error @ (ExecuteError::TakenOver | ExecuteError::Unfinished(_))) => {
                Err(NotAdmitted::Hard(Failure::internal(error.to_string())))
            }
            Err(ExecuteError::Ledger(error)) => Err(NotAdmitted::Hard(error.into())),
        }
    }
}

/// Cancels the run on TERM, INT or HUP. The run then settles itself as cancelled.
fn cancel_on_signals(cancel: &Cancel) {
    let cancel = cancel.clone();
    let Ok(mut signals) = Signals::new([SIGTERM, SIGINT, SIGHUP]) else { return };
    let _detached = thread::Builder::new().spawn(move || {
        if let Some(signal) = signals.forever().next() {
            cancel.cancel(format!("signal {signal}"));
        }
    });
}
