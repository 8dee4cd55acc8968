//! Admits a run and executes it.

use std::thread;

use runner_engine::outcome::{Class, Outcome};
use runner_engine::process::Cancel;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{Admission, RunSummary, Store};
use runner_jobs::{Context, ContextParts, ExecuteError, RunMode, execute};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::input::{AdmissionInput, settle_stale_runs};
use super::resolved_run::{Purpose, ResolvedRun};
use super::{NotAdmitted, refuse};
use crate::commands::Cli;
use crate::ui::{Failure, progress};

/// Admits and executes the run, and returns its outcome. The caller must hold the run's locks.
pub(super) fn locked(
    cli: &Cli<'_>,
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    me: &ProcessIdentity,
) -> Result<Outcome, NotAdmitted> {
    #[cfg(feature = "fleet")]
    crate::fleet::guard_recovery(setting.home, store);
    settle_stale_runs(store, setting, me)?;
    let input = AdmissionInput::of(store, setting, Purpose::Run)?;
    let cancel = cancel_token()?;
    cancel_on_signals(&cancel);
    #[cfg(feature = "fleet")]
    let _held_until_settled = crate::fleet::hold(setting.home, store, &setting.row.id, &cancel)?;
    std::fs::create_dir_all(&setting.cache).map_err(|error| {
        let what = format!("cannot create {}: {error}", setting.cache.display());
        refuse(Class::Environment, what)
    })?;
    let admitted = match store.admit(&input.enter(setting, me)?)? {
        Admission::Declined(outcome) => return Ok(outcome),
        Admission::Admitted(admitted) => admitted,
    };
    // From here on, only the run itself or recovery may settle the run.
    let mut steps = progress::Steps::new(&setting.spec.name, cli.ui, cli.verbose);
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
            store.settle(run, fence, &outcome, &RunSummary::default(), cli.env.wall()?)?;
            Ok(outcome)
        }
    }
}

pub(super) fn cancel_token() -> Result<Cancel, Failure> {
    Cancel::new()
        .map_err(|error| Failure::internal(format!("cannot create a cancel token: {error}")))
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
