//! Publishes one plan with [`crate::manual_edit`]. The publication consists of the backup, the
//! files, the state and the decision's line. It happens under the lock of [`JOB`] and, if possible,
//! the lock on the dream files.
//!
//! ```text
//! locks ──> recover stale runs ──> read, plan (decide, undo) ──> act: stage ──> publish ─> settled
//!                                   │ refused: no trace      └──── settled, nothing published
//! ```
//!
//! This module must never publish unless each file that a plan replaces or removes was read under
//! the locks and still has the same content.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use runner_engine::ids::RunId;
use runner_engine::locks::JobLock;
use runner_engine::publish::PublishLog as _;
use runner_engine::recover::{Driver, recover};
use runner_engine::scope::{Expect, Scope, ScopeError};
use runner_engine::store::RunState;

use super::super::LONGEST;
use super::super::decisions::Decision;
use super::super::spec::DreamSpec;
use super::super::state::{DreamState, Mark};
use super::backup::{self, IdeaState};
use super::decide::{Decider, IfExposed, ReviewError};
use super::plan::{ActionPlan, FileChange, Source};
use super::{JOB, files_lock};
use crate::json::pretty;
use crate::manual_edit::{self, EditActor, ManualEdit, ManualEditError};

/// The locks held for the whole act. The lock on the dream files is missing if it could not be
/// taken in time.
pub(super) struct ReviewLocks {
    _files: Option<JobLock>,
    act: manual_edit::HeldJobLock,
}

impl Decider<'_> {
    fn hand(&mut self) -> EditActor<'_> {
        EditActor {
            root: self.root,
            project: self.project,
            state: self.state,
            clock: self.clock,
            me: self.me,
            store: self.store,
            free_bytes: self.free_bytes,
        }
    }

    /// Takes the locks and completes the publications that dead processes left unfinished.
    pub(super) fn take_locks(&mut self) -> Result<ReviewLocks, ReviewError> {
        let act = self.hand().take(JOB)?;
        // If a pass holds the lock for too long, the act proceeds without it and relies on the
        // digests.
        let files = JobLock::take_for_run(&files_lock(self.cache), |_| false).ok();
        self.hand().recover_stale(JOB)?;
        self.recover_other_jobs()?;
        Ok(ReviewLocks { _files: files, act })
    }

    /// Completes each run of this project's other jobs whose process died after the run's artifacts
    /// were recorded. The next tick handles all other dead runs.
    fn recover_other_jobs(&mut self) -> Result<(), ReviewError> {
        let now = self.clock.read().map_err(|error| ReviewError::Disk(error.to_string()))?;
        // A run whose artifacts are recorded is rolled forward and never repeated.
        let driver = Driver::on_host(self.state, self.me);
        for row in self.store.live()? {
            let other_job = row.project == *self.project && row.job_name != JOB;
            if !other_job || !matches!(row.state, RunState::Running { .. }) {
                continue;
            }
            let dead = row.owner().is_none_or(|owner| !owner.is_alive());
            let recorded = self.store.publish_log(None, now.wall).manifest(&row.id);
            if dead && matches!(recorded, Ok(Some(recorded)) if !recorded.settled) {
                recover(self.store, &driver, &row, now)?;
            }
        }
        Ok(())
    }

    /// Opens a read-only scope.
    pub(super) fn read_scope(&self) -> Result<Scope, ReviewError> {
        Ok(Scope::open(self.root, &[], &format!("{}/look", self.staging()))?)
    }

    fn staging(&self) -> String {
        format!("{}/.staging", self.spec.dreams)
    }

    /// Publishes a plan together with the decision that it carries out.
    pub(super) fn place(
        &mut self,
        held: &mut ReviewLocks,
        plan: &ActionPlan,
        decision: &Decision,
        if_exposed: IfExposed,
    ) -> Result<RunId, ReviewError> {
        self.guard(plan, if_exposed)?;
        let spec = self.spec;
        let staging = self.staging();
        let act = ManualEdit {
            job: JOB,
            allowed: &[&spec.ideas, &spec.dreams, &spec.done, &spec.specs],
            staging: &staging,
            headline: format!("{} {}: {}", decision.decision, decision.proposal_id, plan.says),
            lines: Vec::new(),
        };
        let mut state = None;
        let published = self.hand().place(&mut held.act, &act, &mut |scope, run, _| {
            stage(spec, scope, run, plan, decision).map_err(|unstaged| match unstaged {
                Unstaged::Scope(error) => error.into(),
                Unstaged::State(why) => {
                    let error = ReviewError::State { path: spec.state_path(), why };
                    let reported = ManualEditError::Disk(error.to_string());
                    state = Some(error);
                    reported
                }
            })
        });
        published.map_err(|error| state.take().unwrap_or_else(|| error.into()))
    }
}

/// Why a plan could not be staged.
enum Unstaged {
    Scope(ScopeError),
    /// The state file is invalid.
    State(String),
}

impl From<ScopeError> for Unstaged {
    fn from(error: ScopeError) -> Self {
        Self::Scope(error)
    }
}

/// Stages the backup, the changes, the state and, last, the decision's line.
fn stage(
    spec: &DreamSpec,
    scope: &mut Scope,
    run: &RunId,
    plan: &ActionPlan,
    decision: &Decision,
) -> Result<(), Unstaged> {
    let state = scope.inspect(&spec.state_path(), LONGEST)?;
    let state_bytes = state.as_ref().map_or(&[][..], |(bytes, _)| bytes);
    let marks = plan.marks.iter().map(|(path, mark)| (path.as_str(), mark.clone()));
    let marks: BTreeMap<&str, Mark> = marks.collect();
    let parsed = DreamState::parse(state_bytes).map_err(|bad| Unstaged::State(bad.to_string()));
    // An invalid state file must not block a decision that changes no idea.
    let parsed = if marks.is_empty() { None } else { Some(parsed?) };
    if !plan.changes.is_empty() {
        let stood = |path: &&str| {
            let standing = parsed.as_ref()?.standing(path);
            Some(IdeaState {
                path: (*path).to_owned(),
                status: standing.as_ref().and_then(|it| it.status.clone()),
                hash: standing.and_then(|it| it.hash),
            })
        };
        let stood = marks.keys().filter_map(stood).collect();
        let (act, kept) = backup::of(plan, decision, stood);
        let folder = format!("{}/{run}", backup::folder(spec, &decision.proposal_id));
        for (number, source) in kept.iter().enumerate() {
            let path = format!("{folder}/{number}");
            scope.stage_as(&path, &source.bytes, Expect::Absent, Some(source.looks))?;
        }
        let text = pretty(&act);
        scope.stage(&format!("{folder}/act.json"), text.as_bytes(), Expect::Absent)?;
    }
    for change in &plan.changes {
        match change {
            FileChange::Put { path, bytes, over, looks } => {
                let over = over.as_ref().map(Source::digest);
                let expect = over.map_or(Expect::Absent, Expect::Digest);
                scope.stage_as(path, bytes, expect, *looks)?;
            }
            FileChange::Remove(source) => scope.remove(&source.path, source.digest())?,
        }
    }
    if let Some(parsed) = &parsed {
        let expect = match &state {
            Some((bytes, _)) => Expect::Digest(Digest::of(bytes)),
            None => Expect::Absent,
        };
        let text = parsed.marked(&marks);
        scope.stage(&spec.state_path(), text.as_bytes(), expect)?;
    }
    let path = spec.decisions_path();
    let (file, expect) = match scope.inspect(&path, LONGEST)? {
        Some((bytes, _)) => {
            let expect = Expect::Digest(Digest::of(&bytes));
            (bytes, expect)
        }
        None => (Vec::new(), Expect::Absent),
    };
    scope.stage(&path, &decision.appended(&file), expect)?;
    Ok(())
}

impl From<ScopeError> for ReviewError {
    fn from(error: ScopeError) -> Self {
        ManualEditError::from(error).into()
    }
}

impl From<ManualEditError> for ReviewError {
    fn from(error: ManualEditError) -> Self {
        match error {
            ManualEditError::Busy(why) => Self::Busy(why),
            ManualEditError::Changed(why) => Self::Changed(why),
            ManualEditError::Guard(why) => Self::Guard(why),
            ManualEditError::Conflict(why) => Self::Conflict(why),
            ManualEditError::Disk(why) => Self::Disk(why),
            ManualEditError::Unfinished { run, why } => Self::Unfinished { run, why },
            ManualEditError::Ledger(error) => Self::Ledger(error),
        }
    }
}
