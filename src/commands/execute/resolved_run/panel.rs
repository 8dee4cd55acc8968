//! Prepares the panel of an overnight run: the backends that each write a report. This module
//! creates them, checks them and computes their reservations.
//!
//! ```text
//! runners = [...] ──build, preflight, limit, budget──> ready: its budgets are reserved
//!                                                 └──> absent, with the reason
//! ```
//!
//! An overnight run does not depend on these backends and continues without them. Each backend gets
//! a separate sandbox and cannot write to another's folder or to the paths that the run's programs
//! may write.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::{Backend, BackendSpec, build};
use runner_engine::admission::Shortfall;
use runner_engine::outcome::Class;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{Budget, FallbackReservation, Store};
use runner_jobs::context::CHILD_FOLDER;
use runner_jobs::{AbsentPanelist, JobSpec, Panel, Panelist};

use super::sandbox::TEMP_FOLDER;
use super::{NotAdmitted, Purpose, ResolvedRun};
use crate::project::LoadedProject;
use crate::ui::Failure;

/// Returns the backends that a job asks for separate reports, in order.
pub(super) fn panel_backends<'c>(spec: &JobSpec, here: &'c LoadedProject) -> Vec<&'c BackendSpec> {
    let backends = &here.config.backends;
    let names = spec.kind.panel().iter();
    names.filter_map(|name| backends.get(name)).collect()
}

/// A panel backend that can be called.
pub(in super::super) struct ReadyPanelist {
    backend: Arc<dyn Backend>,
    place: PathBuf,
    paid: bool,
}

/// The panel's backends that can be called, and those that cannot.
#[derive(Default)]
pub(in super::super) struct Convened {
    ready: Vec<ReadyPanelist>,
    absent: Vec<AbsentPanelist>,
}

impl ResolvedRun<'_> {
    /// Determines which of the panel's backends can be called, as far as is known before admission.
    /// For a real run, also creates their folders.
    pub fn convene(
        &self,
        store: &Store,
        sandbox_start: &SandboxedStart,
        purpose: Purpose,
    ) -> Result<Convened, NotAdmitted> {
        let mut convened = Convened::default();
        let slots = super::slots_folder(self.home);
        for (number, spec) in panel_backends(&self.spec, &self.here).into_iter().enumerate() {
            let name = format!("voice-{}", number + 1);
            let place = self.run_dir.join(CHILD_FOLDER).join(&name);
            let sandbox_start = self.apart(sandbox_start, &name, purpose)?;
            let around = self.surroundings(&sandbox_start, &slots);
            let built = build(spec, &around);
            let ready = built.and_then(|backend| backend.preflight().map(|()| backend));
            let ready = match ready {
                Ok(backend) if !spec.is_builtin() => {
                    self.check_rate_limit(store, &spec.name)?.map(|()| backend)
                }
                ready => ready,
            };
            match ready {
                Ok(backend) => {
                    convened.ready.push(ReadyPanelist { backend, place, paid: !spec.is_builtin() })
                }
                Err(error) => {
                    let why = self.redactor.redact(&error.to_string()).into_owned();
                    let (runner, class) = (spec.name.clone(), error.class());
                    convened.absent.push(AbsentPanelist { runner, class, why });
                }
            }
        }
        Ok(convened)
    }

    /// Adds the budget levels of the panel's backends to the run's reservation. If only the panel
    /// uses tokens and money, also requests the job's budget for both. A backend with too little
    /// left at its budget levels is marked as absent.
    pub fn hold_panel(
        &self,
        store: &Store,
        convened: &mut Convened,
        first: &str,
        mut held: FallbackReservation,
        now: Timestamp,
    ) -> Result<FallbackReservation, Failure> {
        let paid = convened.ready.iter().any(|it| it.paid);
        if paid && first == "builtin" {
            // The built-in backend uses no tokens or money, so the panel gets the job's budget for
            // both.
            let want = Budget {
                tokens: self.spec.budget.tokens,
                micros: self.spec.budget.micros,
                ..held.want
            };
            match store.short_of(want, self.spec.total, &held.levels, now)? {
                None => held.want = want,
                Some(short) => {
                    let why = describe_shortfall(&short);
                    convened.leave(|it| it.paid.then(|| why.clone()));
                }
            }
        }
        let budgets = convened
            .ready
            .iter()
            .map(|it| self.levels(store, it.backend.name(), now))
            .collect::<Result<_, _>>()?;
        let earlier = std::mem::take(&mut held.short);
        let mut held = store.chained(held.want, self.spec.total, held.levels, budgets, now)?;
        let mut short = std::mem::replace(&mut held.short, earlier).into_iter();
        convened.leave(|_| short.next().flatten().map(|short| describe_shortfall(&short)));
        Ok(held)
    }

    /// Creates the panel from the convened backends.
    pub(super) fn panel(&self, convened: Convened) -> Panel {
        let ready = convened.ready.into_iter();
        let ready = ready.map(|it| Panelist { by: self.paid_backend(it.backend), place: it.place });
        Panel { ready: ready.collect(), absent: convened.absent, asked: Vec::new() }
    }

    /// Creates the sandbox of one backend, with its own folder, its own temporary files, and no
    /// write access to the project.
    fn apart(
        &self,
        sandbox_start: &SandboxedStart,
        name: &str,
        purpose: Purpose,
    ) -> Result<SandboxedStart, Failure> {
        let mut own = sandbox_start.clone();
        let folders = [CHILD_FOLDER, TEMP_FOLDER].map(|part| self.run_dir.join(part).join(name));
        for folder in folders.iter().filter(|_| purpose == Purpose::Run) {
            std::fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
        }
        let [place, temp] = folders.map(|folder| std::fs::canonicalize(&folder).unwrap_or(folder));
        own.sandbox.write = vec![place];
        own.sandbox.temp = Some(temp);
        Ok(own)
    }
}

pub(super) fn describe_shortfall(short: &Shortfall) -> String {
    format!(
        "{} has {} {} left, but this run may need {}",
        short.level, short.left, short.unit, short.wanted
    )
}

impl Convened {
    /// Returns the backends that will not be called.
    pub fn absent(&self) -> &[AbsentPanelist] {
        &self.absent
    }

    /// Marks as absent each backend for which `why` returns a reason, with the class
    /// [`Class::OverBudget`].
    fn leave(&mut self, mut why: impl FnMut(&ReadyPanelist) -> Option<String>) {
        let all = std::mem::take(&mut self.ready);
        for one in all {
            match why(&one) {
                None => self.ready.push(one),
                Some(why) => self.absent.push(AbsentPanelist {
                    runner: one.backend.name().to_owned(),
                    class: Class::OverBudget,
                    why,
                }),
            }
        }
    }
}
