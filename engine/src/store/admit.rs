//! Admits runs. One transaction makes the decision, reserves the budget and updates the run's row.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use super::columns::{Query as _, millis, to_json};
use super::{
    Amounts, Budget, BudgetLevel, Fault, JobId, NightId, Origin, PARENT, Result, RunSummary, Store,
    occurrences, reserve, runs, settle,
};
use crate::admission::{self, AdmissionFacts, Decision};
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use crate::process_id::ProcessIdentity;
use crate::time::ClockReading;

/// A request for a run's admission.
#[derive(Clone, Debug)]
pub struct Enter<'a> {
    /// The requested run.
    pub run: &'a RunId,
    /// The process that will execute the run.
    pub owner: &'a ProcessIdentity,
    /// The facts on which the decision is based.
    pub facts: &'a AdmissionFacts,
    /// The run's own budget.
    pub want: Budget,
    /// The budget levels that the run spends from.
    pub levels: &'a [BudgetLevel],
    /// The run's timeout.
    pub total: Duration,
    /// The run's staging folder, relative to the project.
    pub staging: &'a str,
    pub now: ClockReading,
}

/// The result of an admission request.
#[derive(Debug)]
pub enum Admission {
    /// The run may start now.
    Admitted(Admitted),
    /// The run may not start and has been settled with this outcome.
    Declined(Outcome),
}

/// Proof that a run was admitted. Only [`Store::admit`] creates it.
#[derive(Debug)]
pub struct Admitted {
    run: RunId,
    job: JobId,
    night: Option<NightId>,
    manual: bool,
    fence: Fence,
    reserved: Amounts,
    deadline: Duration,
    short_of_time: bool,
    seed: u64,
    started: Timestamp,
}

impl Admitted {
    pub fn run(&self) -> &RunId {
        &self.run
    }
    pub fn job(&self) -> JobId {
        self.job
    }
    /// Returns the night of the run's occurrence, if it has one.
    pub fn night(&self) -> Option<NightId> {
        self.night
    }
    /// Returns whether the origin of the run's occurrence is [`Origin::Manual`].
    pub fn manual(&self) -> bool {
        self.manual
    }
    /// Returns the run's fence, which the commits of its publication and its outcome require.
    pub fn fence(&self) -> Fence {
        self.fence
    }
    /// Returns the amounts that the run may spend.
    pub fn reserved(&self) -> Amounts {
        self.reserved
    }
    /// Returns the time by which the run must end, measured from the machine's boot.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }
    /// Returns whether the time that the run has reserved is shorter than its timeout.
    pub fn short_of_time(&self) -> bool {
        self.short_of_time
    }
    /// Returns the seed for all of the run's random choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// Returns the time of admission.
    pub fn started(&self) -> Timestamp {
        self.started
    }
}

impl Store {
    /// Decides whether a requested run may start, and records the decision. The caller must hold
    /// the deciding lock of the run's job.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`](super::StoreError::NotFound) if the run is not in the
    /// requested state, for example because another process has admitted or settled it.
    pub fn admit(&mut self, enter: &Enter<'_>) -> Result<Admission> {
        self.write(|tx| {
            let waiting = runs::requested(tx, enter.run)?
                .ok_or_else(|| Fault::not_found("requested run", enter.run))?;
            let now = enter.now.wall;
            let levels = reserve::resolve(tx, enter.levels, now)?;
            let want = timed(enter.want, enter.total, &levels);
            let fits = reserve::fit(tx, want, &levels, now)?;
            let reserved = match admission::decide(enter.facts, fits, now) {
                Decision::Admit(reserved) => reserved,
                Decision::Decline(outcome) => {
                    settle::settle_row(tx, enter.run, &outcome, &RunSummary::default(), now)?;
                    return Ok(Admission::Declined(outcome));
                }
            };
            let fence: Fence = tx.value(
                "UPDATE jobs SET fence = fence + 1 WHERE id = ?1 RETURNING fence",
                [waiting.job],
            )?;
            // A run may not take longer than the time that it has reserved.
            let paid = Duration::from_secs(reserved.seconds);
            let deadline = enter.now.boot.saturating_add(enter.total.min(paid));
            let owner = to_json(enter.owner);
            let boot_millis = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
            tx.change(
                "UPDATE runs SET state = 'running', fence = ?2, started = ?3, owner = ?4,
                   deadline = ?5, staging = ?6 WHERE id = ?1",
                params![enter.run, fence, millis(now), owner, boot_millis, enter.staging],
            )?;
            reserve::reserve(tx, enter.run, &levels, reserved, now)?;
            let occurrence = occurrences::by_id(tx, &waiting.occurrence)?;
            Ok(Admission::Admitted(Admitted {
                run: enter.run.clone(),
                job: waiting.job,
                night: occurrence.night,
                manual: occurrence.origin == Origin::Manual,
                fence,
                reserved,
                deadline,
                short_of_time: paid < enter.total,
                seed: waiting.seed,
                started: now,
            }))
        })
    }
}

/// Limits the requested time to the run's timeout if neither the run's budget nor any budget level
/// limits the time.
pub(super) fn timed(mut want: Budget, total: Duration, levels: &[BudgetLevel]) -> Budget {
    let total = total.as_secs() + u64::from(total.subsec_nanos() > 0);
    let limits_time = |level: &BudgetLevel| level.cap.seconds.is_some() || level.level == PARENT;
    if !levels.iter().any(limits_time) {
        want.seconds = want.seconds.or(Some(total));
    }
    want
}
