//! Gathers the input for the admission decision, and settles earlier runs whose processes have
//! died.

use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::outcome::Class;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{Driver, recover_stale};
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{Budget, BudgetLevel, Enter, Store};

use super::resolved_run::{Backends, Convened, Purpose, ResolvedRun, with_passed};
use super::{NotAdmitted, refuse};
use crate::spawn;
use crate::ui::Failure;

/// The input for the admission decision, and the backends to call.
pub(super) struct AdmissionInput {
    pub backends: Backends,
    pub sandbox_start: SandboxedStart,
    pub facts: AdmissionFacts,
    pub want: Budget,
    pub levels: Vec<BudgetLevel>,
    pub convened: Convened,
}

impl AdmissionInput {
    /// Gathers the input. For a real run, also creates the run's folders.
    pub fn of(
        store: &Store,
        setting: &ResolvedRun<'_>,
        purpose: Purpose,
    ) -> Result<Self, NotAdmitted> {
        let ResolvedRun { here, row, home, .. } = setting;
        let git = Git::new(&here.root, &setting.environment, row.id.as_str());
        let sandbox_start = setting
            .sandbox_start(purpose)
            .map_err(|failure| refuse(Class::Environment, failure.to_string()))?;
        let mut backends = setting.backends(store, &sandbox_start)?;
        let mut facts = setting.facts(store, &git, backends.first.as_ref())?;
        let passed = &backends.passed;
        facts.preflight = facts.preflight.map(|(class, why)| (class, with_passed(why, passed)));
        let held = setting.hold_chain(store, &mut backends, home.wall()?)?;
        let mut convened = setting.convene(store, &sandbox_start, purpose)?;
        let first = backends.first.describe().kind;
        let held = setting.hold_panel(store, &mut convened, &first, held, home.wall()?)?;
        Ok(Self { facts, want: held.want, levels: held.levels, backends, sandbox_start, convened })
    }

    /// Returns the request for admission.
    pub fn enter<'e>(
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

/// Settles earlier runs of this job whose processes have died. These runs are not retried, because
/// this run takes their place.
pub(super) fn settle_stale_runs(
    store: &mut Store,
    setting: &ResolvedRun<'_>,
    me: &ProcessIdentity,
) -> Result<(), NotAdmitted> {
    let (home, row) = (setting.home, setting.row);
    let driver = Driver::on_host(&home.state, me);
    let stale = recover_stale(store, &driver, &row.project, &row.job_name, home.now()?)?;
    for dead in &stale.settled {
        tracing::info!(run = %dead.id, "settled an earlier run whose process is gone");
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
