//! One plan, placed: the run around it, the backup, the files, the state, the decision's line.
//!
//! ```text
//! locks ──> bury the dead ──> read, plan (desk, undo) ──> enter ──> admit ──> stage ──> place ──> settled
//!                                   │ refused: no trace                 └──── settled, nothing placed
//! ```
//!
//! Must never place without both looks: what a plan replaces or removes was read under the locks, and
//! must still be there.

use std::time::Duration;

use jiff::Timestamp;
use runner_engine::admission::Facts;
use runner_engine::causes::whole;
use runner_engine::digest::Digest;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::ledger::{
    Admission, Admitted, Budget, Enter, NewOccurrence, Recorded, RunState, Summary,
};
use runner_engine::locks::{Holder, JobLock, LockError, job_lock_path};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::placement::{LogError, PlaceError, PlacementLog as _};
use runner_engine::recover::{Driver, Host, recover, recover_locked, sweep};
use runner_engine::scope::{Expect, Scope, ScopeError};

use super::super::LONGEST;
use super::super::decisions::Decision;
use super::super::state::{Mark, State};
use super::backup::{self, Stood};
use super::desk::{Desk, ReviewError};
use super::plan::{Change, Plan, Source};
use super::{JOB, KIND, files_lock};
use crate::KindSpec;

/// The longest that an act may take before whoever recovers takes it for hanging.
const TOTAL: Duration = Duration::from_secs(60);

/// Why nothing was placed this time.
pub(super) enum Trouble {
    /// A file is not what was read: worth another look.
    Changed(String),
    /// Anything else.
    Failed(ReviewError),
}

impl<T: Into<ReviewError>> From<T> for Trouble {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

/// Both locks, held for the whole of an act.
pub(super) struct Held {
    _files: Option<JobLock>,
    act: JobLock,
}

impl Desk<'_> {
    /// Takes the locks and finishes what dead processes left half placed.
    pub(super) fn sit_down(&mut self) -> Result<Held, ReviewError> {
        let path = job_lock_path(self.state, self.project, JOB);
        let act = match JobLock::take_for_run(&path, |_| false) {
            Ok(lock) => lock,
            Err(error @ (LockError::Held { .. } | LockError::Foreign { .. })) => {
                return Err(ReviewError::Busy(error.to_string()));
            }
            Err(error) => return Err(ReviewError::Disk(whole(&error))),
        };
        // A pass that holds it for long is waited for no longer: digests decide then.
        let files = JobLock::take_for_run(&files_lock(self.cache), |_| false).ok();
        self.bury_the_dead()?;
        Ok(Held { _files: files, act })
    }

    /// Rolls forward what died half-way in this project: acts, and passes whose artifacts are
    /// recorded. Everything else about a dead run is the next tick's.
    fn bury_the_dead(&mut self) -> Result<(), ReviewError> {
        let now = self
            .clock
            .read()
            .map_err(|error| ReviewError::Disk(error.to_string()))?;
        let driver = Driver {
            world: Box::new(Host { state: self.state }),
            me: self.me,
            retries_lost: &KindSpec::retries_lost,
        };
        for row in self.ledger.live()? {
            if row.project != *self.project || row.state != RunState::Running {
                continue;
            }
            if row.job_name == JOB {
                recover_locked(self.ledger, &driver, &row.id, false, now)?;
                let after = self.ledger.run(&row.id)?;
                if after.state != RunState::Settled {
                    return Err(ReviewError::Unfinished {
                        run: row.id,
                        why: "an earlier decision is half placed and cannot be finished yet"
                            .to_owned(),
                    });
                }
                sweep(self.ledger, &after, now.wall)?;
                continue;
            }
            let dead = row.owner.as_ref().is_none_or(|owner| !owner.is_alive());
            let recorded = self.ledger.placement_log(None, now.wall).manifest(&row.id);
            if dead && matches!(recorded, Ok(Some(recorded)) if !recorded.settled) {
                recover(self.ledger, &driver, &row, now)?;
            }
        }
        Ok(())
    }

    /// A scope that only looks.
    pub(super) fn looker(&self) -> Result<Scope, ReviewError> {
        Ok(Scope::open(self.root, &[], &self.staging("look"))?)
    }

    fn staging(&self, run: &str) -> String {
        format!("{}/.staging/{run}", self.spec.dreams)
    }

    /// Places a plan and the decision that it follows from.
    pub(super) fn place(
        &mut self,
        held: &mut Held,
        plan: &Plan,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<RunId, Trouble> {
        self.guard(plan)?;
        let job = self.ledger.hand_job(self.project, JOB, KIND, now)?;
        let key = OccurrenceId::new(now).to_string();
        let new = NewOccurrence::by_hand(job, key, now);
        let Recorded::New(run) = self.ledger.enter(&new, self.me, now)? else {
            let why = "a fresh occurrence was known".to_owned();
            return Err(ReviewError::Internal(why).into());
        };
        let holder = Holder {
            owner: self.me.clone(),
            run: run.clone(),
            since: now,
        };
        held.act
            .sign(&holder)
            .map_err(|error| ReviewError::Disk(format!("cannot write the lock file: {error}")))?;
        let moment = self
            .clock
            .read()
            .map_err(|error| ReviewError::Disk(error.to_string()))?;
        let staging = self.staging(run.as_str());
        let nothing = Budget {
            calls: Some(0),
            tokens: Some(0),
            micros: Some(0),
            ideas: Some(0),
            ..Budget::default()
        };
        let enter = Enter {
            run: &run,
            owner: self.me,
            facts: &Facts {
                by_hand: true,
                free_bytes: self.free_bytes,
                ..Facts::default()
            },
            want: nothing,
            levels: &[],
            total: TOTAL,
            staging: &staging,
            now: moment,
        };
        let admitted = match self.ledger.admit(&enter)? {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => {
                return Err(ReviewError::Disk(outcome.why().unwrap_or_default().to_owned()).into());
            }
        };
        let summary = Summary {
            headline: format!(
                "{} {}: {}",
                decision.decision, decision.proposal_id, plan.says
            ),
            ..Summary::default()
        };
        let done = self.place_admitted(&admitted, &staging, plan, decision, summary, now);
        let row = self.ledger.run(&run)?;
        sweep(self.ledger, &row, now)?;
        done.map(|()| run)
    }

    fn place_admitted(
        &mut self,
        admitted: &Admitted,
        staging: &str,
        plan: &Plan,
        decision: &Decision,
        mut summary: Summary,
        now: Timestamp,
    ) -> Result<(), Trouble> {
        let folders = [
            self.spec.ideas.as_str(),
            &self.spec.dreams,
            &self.spec.done,
            &self.spec.specs,
        ];
        let scope = Scope::open(self.root, &folders, staging).map_err(ReviewError::from);
        let staged = scope.and_then(|mut scope| {
            self.stage(&mut scope, admitted.run(), plan, decision)?;
            let (run, fence) = (admitted.run().clone(), admitted.fence());
            Ok(scope.finish(run, fence, Outcome::Succeeded)?)
        });
        let ready = match staged {
            Ok(ready) => ready,
            Err(error) => return Err(self.nothing_placed(admitted, error, summary, now)),
        };
        let entries = &ready.manifest.entries;
        summary.artifacts = entries
            .iter()
            .map(|entry| entry.target.to_string())
            .collect();
        let placed = ready.place(&mut self.ledger.placement_log(Some(&summary), now));
        let Err(error) = placed else {
            return Ok(());
        };
        summary.artifacts.clear();
        match error {
            PlaceError::Changed(conflict) => {
                let error = ReviewError::Changed(conflict.to_string());
                Err(self.nothing_placed(admitted, error, summary, now))
            }
            PlaceError::Log(LogError::StaleFence { .. }) => Err(ReviewError::Internal(
                "this act was taken over by another process while it was placed".to_owned(),
            )
            .into()),
            PlaceError::Conflict(_) | PlaceError::Staged { .. } => {
                let why = format!(
                    "{}; what was to be placed is kept in {staging}",
                    whole(&error)
                );
                let outcome = Outcome::Failed {
                    class: Class::Guard,
                    why: why.clone(),
                };
                let (run, fence) = (admitted.run(), admitted.fence());
                self.ledger
                    .settle_conflict(run, fence, &outcome, &summary, now)?;
                Err(ReviewError::Conflict(why).into())
            }
            error => {
                let log = self.ledger.placement_log(None, now);
                if matches!(log.manifest(admitted.run()), Ok(None)) {
                    let error = ReviewError::Disk(whole(&error));
                    return Err(self.nothing_placed(admitted, error, summary, now));
                }
                Err(ReviewError::Unfinished {
                    run: admitted.run().clone(),
                    why: whole(&error),
                }
                .into())
            }
        }
    }

    /// Settles an admitted act that placed nothing.
    fn nothing_placed(
        &mut self,
        admitted: &Admitted,
        error: ReviewError,
        mut summary: Summary,
        now: Timestamp,
    ) -> Trouble {
        let why = error.to_string();
        let outcome = match &error {
            ReviewError::Changed(_) => Outcome::Skipped { why: why.clone() },
            ReviewError::Guard(_) => Outcome::Failed {
                class: Class::Guard,
                why: why.clone(),
            },
            _ => Outcome::Failed {
                class: Class::Environment,
                why: why.clone(),
            },
        };
        summary.headline.clone_from(&why);
        let (run, fence) = (admitted.run(), Some(admitted.fence()));
        if let Err(error) = self.ledger.settle(run, fence, &outcome, &summary, now) {
            return Trouble::Failed(error.into());
        }
        match error {
            ReviewError::Changed(why) => Trouble::Changed(why),
            error => Trouble::Failed(error),
        }
    }

    /// The backup, the changes, the state, and last of all the decision's line.
    fn stage(
        &self,
        scope: &mut Scope,
        run: &RunId,
        plan: &Plan,
        decision: &Decision,
    ) -> Result<(), ReviewError> {
        let state = scope.look(&self.spec.state_path(), LONGEST)?;
        let state_bytes = state.as_ref().map_or(&[][..], |(bytes, _)| bytes);
        let marks = plan
            .marks
            .iter()
            .map(|(path, mark)| (path.as_str(), mark.clone()));
        let marks: std::collections::BTreeMap<&str, Mark> = marks.collect();
        let parsed = State::parse(state_bytes).map_err(|bad| ReviewError::State {
            path: self.spec.state_path(),
            why: bad.to_string(),
        });
        // What is only noted there is no reason to hold up a decision that touches no idea.
        let parsed = if marks.is_empty() {
            None
        } else {
            Some(parsed?)
        };
        if !plan.changes.is_empty() {
            let stood = |path: &&str| {
                let standing = parsed.as_ref()?.standing(path);
                Some(Stood {
                    path: (*path).to_owned(),
                    status: standing.as_ref().and_then(|it| it.status.clone()),
                    hash: standing.and_then(|it| it.hash),
                })
            };
            let stood = marks.keys().filter_map(stood).collect();
            let (act, kept) = backup::of(plan, decision, stood);
            let folder = format!("{}/{run}", backup::folder(self.spec, &decision.proposal_id));
            for (number, source) in kept.iter().enumerate() {
                let path = format!("{folder}/{number}");
                scope.stage_as(&path, &source.bytes, Expect::Absent, Some(source.looks))?;
            }
            let mut text = serde_json::to_vec_pretty(&act).expect("an act has string keys only");
            text.push(b'\n');
            scope.stage(&format!("{folder}/act.json"), &text, Expect::Absent)?;
        }
        for change in &plan.changes {
            match change {
                Change::Put {
                    path,
                    bytes,
                    over,
                    looks,
                } => {
                    let over = over.as_ref().map(Source::digest);
                    let expect = over.map_or(Expect::Absent, Expect::Digest);
                    scope.stage_as(path, bytes, expect, *looks)?;
                }
                Change::Remove(source) => scope.remove(&source.path, source.digest())?,
            }
        }
        if let Some(parsed) = &parsed {
            let expect = match &state {
                Some((bytes, _)) => Expect::Digest(Digest::of(bytes)),
                None => Expect::Absent,
            };
            let text = parsed.marked(&marks);
            scope.stage(&self.spec.state_path(), text.as_bytes(), expect)?;
        }
        let path = self.spec.decisions_path();
        let (file, expect) = match scope.look(&path, LONGEST)? {
            Some((bytes, _)) => {
                let expect = Expect::Digest(Digest::of(&bytes));
                (bytes, expect)
            }
            None => (Vec::new(), Expect::Absent),
        };
        scope.stage(&path, &decision.appended(&file), expect)?;
        Ok(())
    }
}

impl From<ScopeError> for ReviewError {
    fn from(error: ScopeError) -> Self {
        let why = whole(&error);
        match error {
            ScopeError::Unexpected { .. } => Self::Changed(why),
            ScopeError::Fs(_) | ScopeError::OtherDevice { .. } | ScopeError::TooLong { .. } => {
                Self::Disk(why)
            }
            _ => Self::Guard(why),
        }
    }
}
