//! The input of the admission decision.

use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::outcome::Class;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::{Driver, Host, recover_locked};
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{Budget, BudgetLevel, RunRow, RunState, Store};

use super::resolved_run::{Backends, Convened, Purpose, ResolvedRun};
use super::{NotAdmitted, refuse};
use crate::env::Env;
use crate::spawn;

/// The input of the admission decision, and the backends to ask.
pub(super) struct AdmissionInput {
    pub git: Git,
    pub backends: Backends,
    pub sandbox_start: SandboxedStart,
    pub facts: AdmissionFacts,
    pub want: Budget,
    pub levels: Vec<BudgetLevel>,
    pub convened: Convened,
}

impl AdmissionInput {
    /// Gathers the inputs of the admission. For a real run, it also creates the run's folders.
    pub fn of(
        home: &Env,
        store: &Store,
        setting: &ResolvedRun<'_>,
        purpose: Purpose,
    ) -> Result<Self, NotAdmitted> {
        let ResolvedRun { here, row, .. } = setting;
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
        Ok(Self {
            git,
            facts,
            want: held.want,
            levels: held.levels,
            backends,
            sandbox_start,
            convened,
        })
    }
}

/// Settles an earlier run of this job whose process died, before another run is admitted. The dead
/// run may have left a reservation, live processes and an incomplete publication. It gets no
/// further attempt, because this run replaces it.
pub(super) fn recover_stale_runs(
    home: &Env,
    store: &mut Store,
    row: &RunRow,
    me: &ProcessIdentity,
) -> Result<(), NotAdmitted> {
    let driver =
        Driver { world: Box::new(Host { state: &home.state }), me, retries_lost: &|_| false };
    for dead in store.live()? {
        if dead.job == row.job
            && dead.id != row.id
            && matches!(dead.state, RunState::Running { .. })
        {
            tracing::info!(run = %dead.id, "the run's process is gone; the run is settled first");
            recover_locked(store, &driver, &dead.id, home.now()?)?;
            spawn::mark(home, store, &dead.id)?;
            if store.run(&dead.id)?.outcome().is_none() {
                return Err(refuse(
                    Class::Environment,
                    format!(
                        "run {} of this job is only partly published and cannot be finished yet",
                        dead.id
                    ),
                ));
            }
        }
    }
    Ok(())
}
