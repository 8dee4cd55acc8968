//! A fleet's database in memory, with a clock set by the caller.
//!
//! The tests compare this implementation with PostgreSQL, operation by operation. With injected
//! bugs, it shows that the invariant tests can fail.

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::outcome::Outcome;

use crate::decide::{self, Candidate, Step, late_surplus, lost_reason};
#[cfg(feature = "fault-injection")]
use crate::injected_bug::InjectedBug;
use crate::rows::{
    AttemptRow, BudgetRow, Ending, HostRow, HostState, OccurrenceRow, Snapshot, State, amounts,
    limits, plus, units,
};
use crate::store::{FleetError, FleetStore, Result};
use crate::types::{
    Claim, ClaimRequest, Declined, Deliverable, Delivery, HostInfo, Lease, Offer, Release, Stale,
    Verdict,
};

/// Returns whether a simulation has this bug. Without the feature, no simulation has a bug.
macro_rules! injected {
    ($sim:expr, $bug:ident) => {{
        #[cfg(feature = "fault-injection")]
        let injected = $sim.bug == Some(InjectedBug::$bug);
        #[cfg(not(feature = "fault-injection"))]
        let injected = false;
        injected
    }};
}

/// A fleet's database in memory.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    hosts: BTreeMap<String, HostRow>,
    occurrences: BTreeMap<String, OccurrenceRow>,
    attempts: BTreeMap<(String, i64), AttemptRow>,
    budgets: BTreeMap<String, BudgetRow>,
    now: i64,
    #[cfg(feature = "fault-injection")]
    bug: Option<InjectedBug>,
}

impl Simulation {
    /// Creates an empty fleet at a time in milliseconds since the Unix epoch.
    pub fn at(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Injects a bug.
    #[cfg(feature = "fault-injection")]
    #[must_use]
    pub fn with_bug(mut self, bug: InjectedBug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Sets the database's time.
    pub fn set_clock(&mut self, now: i64) {
        self.now = now;
    }

    fn seen(&mut self, worker: &str) {
        let now = self.now;
        self.hosts.values_mut().filter(|row| row.worker == worker).for_each(|row| row.seen = now);
    }

    fn stale(&self, occurrence: &str, held: i64) -> FleetError {
        let why = match self.occurrences.get(occurrence) {
            None => "there is no such occurrence".to_owned(),
            Some(row) => stale_reason(row.state, row.fence),
        };
        Stale { occurrence: occurrence.to_owned(), held, why }.into()
    }

    /// Returns the claimed occurrence if the worker still has this claim.
    fn claimed(&self, occurrence: &str, fence: i64, worker: &str) -> Result<OccurrenceRow> {
        let found = self.occurrences.get(occurrence);
        found
            .filter(|row| {
                row.state == State::Claimed
                    && row.fence == fence
                    && row.owner.as_deref() == Some(worker)
            })
            .cloned()
            .ok_or_else(|| self.stale(occurrence, fence))
    }

    /// Ends an open attempt and charges it.
    fn close(&mut self, row: &OccurrenceRow, fence: i64, ending: Ending, charged: [i64; 5]) {
        let now = self.now;
        if let Some(attempt) = self.attempts.get_mut(&(row.id.clone(), fence)) {
            (attempt.ended, attempt.ending) = (Some(now), Some(ending));
            attempt.charged = Some(charged);
            decide::charge_levels(&mut self.budgets, &row.levels, attempt.reserved, charged);
        }
    }

    /// Ends a claim that is lost although its worker delivers.
    fn lose(&mut self, row: &OccurrenceRow, delivery: &Delivery, why: String) {
        let charged = plus(row.want, late_surplus(row.want, units(delivery.used)));
        self.close(row, row.fence, Ending::Late, charged);
        if let Some(attempt) = self.attempts.get_mut(&(row.id.clone(), row.fence)) {
            record(attempt, delivery);
        }
        if let Some(row) = self.occurrences.get_mut(&row.id) {
            (row.state, row.wake, row.owner) = (State::Pending, Some(self.now), None);
            (row.lost, row.why) = (row.lost + 1, Some(why));
        }
    }

    fn candidates(&self, request: &ClaimRequest) -> Vec<Candidate> {
        let now = self.now;
        let due = |row: &&OccurrenceRow| {
            row.wake.is_some_and(|wake| {
                wake <= now || (row.state == State::Claimed && injected!(self, ClaimIgnoresLease))
            })
        };
        let waits = |row: &OccurrenceRow| {
            let mut attempts =
                self.attempts.range((row.id.clone(), 0)..=(row.id.clone(), i64::MAX));
            attempts.any(|(_, attempt)| {
                attempt.host == request.host && attempt.not_before.is_some_and(|until| until > now)
            })
        };
        let running = self.running();
        let full =
            |row: &OccurrenceRow| {
                row.state == State::Pending
                    && row.group.as_ref().zip(row.slots).is_some_and(|(group, slots)| {
                        running.get(group).copied().unwrap_or(0) >= slots
                    })
            };
        let mut rows: Vec<&OccurrenceRow> = self
            .occurrences
            .values()
            .filter(due)
            .filter(|row| {
                injected!(self, TagsIgnored)
                    || row.tags.iter().all(|tag| request.tags.contains(tag))
            })
            .filter(|row| request.home.as_ref().is_none_or(|home| *home == row.home))
            .filter(|row| !waits(row) && !full(row))
            .collect();
        rows.sort_by_key(|row| (row.wake, row.id.clone()));
        rows.truncate(request.most as usize);
        rows.into_iter()
            .map(|row| Candidate {
                id: row.id.clone(),
                fence: row.fence,
                dead: (row.state == State::Claimed)
                    .then(|| self.attempts[&(row.id.clone(), row.fence)].reserved),
                group: row.group.clone(),
                slots: row.slots,
                levels: row.levels.clone(),
                want: row.want,
                lease: row.lease,
                lost: row.lost,
                most_lost: row.most_lost,
                cancel: row.cancel.clone(),
            })
            .collect()
    }

    /// Returns the number of live claims in each group.
    fn running(&self) -> BTreeMap<String, u32> {
        let mut running = BTreeMap::new();
        for row in self.occurrences.values() {
            if let (State::Claimed, Some(group), false) =
                (row.state, &row.group, injected!(self, GroupIgnored))
                && row.wake.is_some_and(|wake| wake > self.now)
            {
                *running.entry(group.clone()).or_default() += 1;
            }
        }
        running
    }

    /// Applies a decision to its occurrence, and returns the claim or the reason there is none.
    fn apply(&mut self, step: Step, id: &str, request: &ClaimRequest) -> Applied {
        let keeps = injected!(self, ClaimKeepsFence);
        let Some(row) = self.occurrences.get_mut(id) else { return Applied::Nothing };
        match step {
            Step::Leave { why } => Applied::Declined(why),
            Step::Wait { wake, why } => {
                (row.state, row.wake, row.owner) = (State::Pending, Some(wake), None);
                row.why = Some(why.clone());
                Applied::Declined(why)
            }
            Step::End { fence, outcome } => {
                (row.state, row.wake, row.owner) = (State::Delivered, None, None);
                let why = outcome.why().unwrap_or_default().to_owned();
                (row.fence, row.outcome, row.why) = (fence, Some(outcome), None);
                Applied::Declined(why)
            }
            Step::Claim { fence, expires } => {
                let fence = if keeps { fence.max(2) - 1 } else { fence };
                (row.state, row.fence) = (State::Claimed, fence);
                (row.wake, row.owner) = (Some(expires), Some(request.worker.clone()));
                row.why = None;
                let attempt = AttemptRow {
                    occurrence: row.id.clone(),
                    fence,
                    worker: request.worker.clone(),
                    host: request.host.clone(),
                    claimed: self.now,
                    ended: None,
                    ending: None,
                    reserved: row.want,
                    charged: None,
                    not_before: None,
                    outcome: None,
                    summary: None,
                    manifest: None,
                };
                self.attempts.insert((row.id.clone(), fence), attempt);
                Applied::Claim(Box::new(claim(row)))
            }
        }
    }

    /// Returns the occurrence if `states` contains its state and the fence and the home host match.
    fn published(
        &mut self,
        (occurrence, fence, home): (&str, i64, &str),
        states: &[State],
    ) -> Result<&mut OccurrenceRow> {
        let stale = self.stale(occurrence, fence);
        let ignored = injected!(self, PublishIgnoresFence);
        let row = self.occurrences.get_mut(occurrence);
        let row = row.filter(|row| {
            states.contains(&row.state) && (row.fence == fence || ignored) && row.home == home
        });
        row.ok_or(stale)
    }
}

enum Applied {
    Nothing,
    Declined(String),
    Claim(Box<Claim>),
}

fn claim(row: &OccurrenceRow) -> Claim {
    Claim {
        occurrence: row.id.clone(),
        fence: row.fence,
        project: row.project.clone(),
        job: row.job.clone(),
        key: row.key.clone(),
        home: row.home.clone(),
        due: row.due,
        lease: row.lease,
        reserved: amounts(row.want),
        source: row.source.clone(),
    }
}

/// The reason a claim can no longer be renewed, although no other claim has replaced it.
pub(crate) const LEASE_ENDED: &str = "its lease has ended";

pub(crate) fn stale_reason(state: State, fence: i64) -> String {
    let state = match state {
        State::Pending => "pending",
        State::Claimed => "claimed",
        State::Delivered => "delivered",
        State::Publishing => "publishing",
        State::Settled => "settled",
    };
    format!("the occurrence is {state}, with fence {fence}")
}

impl FleetStore for Simulation {
    fn join(&mut self, host: &HostInfo) -> Result<()> {
        let now = self.now;
        let joined = self.hosts.get(&host.host).map_or(now, |row| row.joined);
        let row = HostRow {
            host: host.host.clone(),
            worker: host.worker.clone(),
            state: HostState::Active,
            tags: host.tags.clone(),
            version: host.version.clone(),
            joined,
            seen: now,
        };
        self.hosts.insert(host.host.clone(), row);
        Ok(())
    }

    fn set_host_state(&mut self, host: &str, state: HostState) -> Result<()> {
        let row = self.hosts.get_mut(host);
        let row = row.ok_or_else(|| FleetError::NotJoined(host.to_owned()))?;
        row.state = state;
        Ok(())
    }

    fn offer(&mut self, offer: &Offer) -> Result<String> {
        let same = |row: &&OccurrenceRow| {
            row.project == offer.project && row.job == offer.job && row.key == offer.key
        };
        if let Some(row) = self.occurrences.values().find(same)
            && !injected!(self, OfferRepeats)
        {
            return Ok(row.id.clone());
        }
        for (level, limit) in &offer.levels {
            let none =
                BudgetRow { level: level.clone(), limits: [None; 5], used: [0; 5], held: [0; 5] };
            self.budgets.entry(level.clone()).or_insert(none).limits = limits(*limit);
        }
        let row = OccurrenceRow {
            id: offer.id.clone(),
            project: offer.project.clone(),
            job: offer.job.clone(),
            key: offer.key.clone(),
            home: offer.home.clone(),
            due: offer.due,
            state: State::Pending,
            wake: Some(self.now),
            fence: 0,
            owner: None,
            group: offer.group.as_ref().map(|(name, _)| name.clone()),
            slots: offer.group.as_ref().map(|(_, slots)| *slots),
            tags: offer.tags.clone(),
            levels: offer.levels.keys().cloned().collect(),
            want: units(offer.want),
            lease: offer.lease,
            lost: 0,
            most_lost: offer.most_lost,
            source: offer.source.clone(),
            cancel: None,
            why: None,
            outcome: None,
            settled: None,
        };
        self.occurrences.insert(offer.id.clone(), row);
        Ok(offer.id.clone())
    }

    fn claim(&mut self, request: &ClaimRequest) -> Result<(Vec<Claim>, Vec<Declined>)> {
        let member = self.hosts.get_mut(&request.host).filter(|row| row.worker == request.worker);
        let Some(member) = member else {
            return Err(FleetError::NotJoined(request.host.clone()));
        };
        member.seen = self.now;
        if member.state != HostState::Active && !injected!(self, DrainIgnored) {
            return Ok((Vec::new(), Vec::new()));
        }
        let candidates = self.candidates(request);
        let mut budgets = self.budgets.clone();
        if injected!(self, OneLevelReserved) {
            let first: BTreeSet<&String> =
                candidates.iter().filter_map(|one| one.levels.first()).collect();
            budgets.retain(|level, _| first.contains(level));
        }
        let mut running = self.running();
        let decided = decide::plan(&candidates, &mut budgets, &mut running, self.now);
        if injected!(self, DeadClaimIsFree) {
            for (level, row) in &mut budgets {
                row.used = self.budgets[level].used;
            }
        }
        self.budgets.extend(budgets);
        let (mut claims, mut declined) = (Vec::new(), Vec::new());
        for one in decided {
            if let Some((fence, reserved)) = one.charge {
                let now = self.now;
                if let Some(attempt) = self.attempts.get_mut(&(one.id.clone(), fence)) {
                    (attempt.ended, attempt.ending) = (Some(now), Some(Ending::Lost));
                    attempt.charged = Some(reserved);
                }
                if let Some(row) = self.occurrences.get_mut(&one.id) {
                    row.lost += 1;
                }
            }
            match self.apply(one.step, &one.id, request) {
                Applied::Nothing => {}
                Applied::Declined(why) => declined.push(Declined { occurrence: one.id, why }),
                Applied::Claim(claim) => claims.push(*claim),
            }
        }
        Ok((claims, declined))
    }

    fn renew(&mut self, occurrence: &str, fence: i64, worker: &str) -> Result<Lease> {
        let row = self.claimed(occurrence, fence, worker)?;
        // Another claim in the same group may have begun since the lease ended.
        if row.wake.is_none_or(|wake| wake <= self.now) {
            let why = LEASE_ENDED.to_owned();
            return Err(Stale { occurrence: occurrence.to_owned(), held: fence, why }.into());
        }
        self.seen(worker);
        let until = self.now + row.lease;
        if let Some(kept) = self.occurrences.get_mut(occurrence) {
            kept.wake = Some(until);
        }
        Ok(Lease { lease: row.lease, cancel: row.cancel })
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Verdict> {
        let Delivery { occurrence, fence, worker, .. } = delivery;
        let key = (occurrence.clone(), *fence);
        let used = units(delivery.used);
        let current = self.claimed(occurrence, *fence, worker).ok().or_else(|| {
            let row = self.occurrences.get(occurrence)?;
            let ignored = injected!(self, DeliverIgnoresFence) && row.state == State::Claimed;
            (ignored && self.attempts.contains_key(&key)).then(|| row.clone())
        });
        if let Some(row) = current {
            self.seen(worker);
            let left = row.wake.map_or(0, |wake| wake - self.now);
            if let Some(why) = lost_reason(&delivery.outcome, row.cancel.as_deref(), left)
                && !injected!(self, DeliverIgnoresLease)
            {
                self.lose(&row, delivery, why);
                return Ok(Verdict::Late);
            }
            self.close(&row, row.fence, Ending::Delivered, used);
            let attempt = self.attempts.get_mut(&(row.id.clone(), row.fence));
            if let Some(attempt) = attempt {
                record(attempt, delivery);
            }
            if let Some(row) = self.occurrences.get_mut(occurrence) {
                (row.state, row.wake, row.owner) = (State::Delivered, None, None);
                (row.why, row.outcome) = (None, Some(delivery.outcome.clone()));
            }
            return Ok(Verdict::Accepted);
        }
        let attempt = self.attempts.get(&key).filter(|attempt| attempt.worker == *worker);
        let Some(attempt) = attempt.cloned() else {
            return Err(self.stale(occurrence, *fence));
        };
        let Some(row) = self.occurrences.get(occurrence).cloned() else {
            return Err(self.stale(occurrence, *fence));
        };
        self.seen(worker);
        match attempt.ending {
            Some(Ending::Delivered) => {
                if injected!(self, RepeatIsCharged) {
                    decide::charge_levels(&mut self.budgets, &row.levels, [0; 5], used);
                }
                Ok(Verdict::Repeated)
            }
            Some(Ending::Lost) => {
                let charged = attempt.charged.unwrap_or_default();
                let mut more = late_surplus(charged, used);
                if injected!(self, LateIsChargedTwice) {
                    more = used;
                }
                decide::charge_levels(&mut self.budgets, &row.levels, [0; 5], more);
                if let Some(attempt) = self.attempts.get_mut(&key) {
                    attempt.ending = Some(Ending::Late);
                    let more = late_surplus(charged, used);
                    attempt.charged = Some(plus(charged, more));
                    record(attempt, delivery);
                }
                if injected!(self, LateIsApplied)
                    && let Some(row) = self.occurrences.get_mut(occurrence)
                    && row.state != State::Settled
                {
                    (row.state, row.wake, row.owner) = (State::Delivered, None, None);
                    row.outcome = Some(delivery.outcome.clone());
                }
                Ok(Verdict::Late)
            }
            _ => Ok(Verdict::Late),
        }
    }

    fn release(&mut self, release: &Release) -> Result<()> {
        let row = self.claimed(&release.occurrence, release.fence, &release.worker)?;
        self.seen(&release.worker);
        if injected!(self, ReleaseKeepsReservation) {
            let budgets = self.budgets.clone();
            self.close(&row, release.fence, Ending::Released, units(release.used));
            self.budgets = budgets;
        } else {
            self.close(&row, release.fence, Ending::Released, units(release.used));
        }
        let now = self.now;
        if let Some(attempt) = self.attempts.get_mut(&(row.id.clone(), release.fence)) {
            attempt.not_before = Some(now + release.host_waits);
        }
        let forgets = injected!(self, ReleaseForgets);
        if let Some(row) = self.occurrences.get_mut(&release.occurrence) {
            let wake = if forgets { i64::MAX } else { now };
            (row.state, row.wake, row.owner) = (State::Pending, Some(wake), None);
            row.why = Some(release.why.clone());
        }
        Ok(())
    }

    fn deliveries(&mut self, home: &str) -> Result<Vec<Deliverable>> {
        let rows = self.occurrences.values().filter(|row| {
            row.home == home && matches!(row.state, State::Delivered | State::Publishing)
        });
        Ok(rows
            .filter_map(|row| {
                let attempt = self.attempts.get(&(row.id.clone(), row.fence));
                Some(Deliverable {
                    occurrence: row.id.clone(),
                    fence: row.fence,
                    project: row.project.clone(),
                    job: row.job.clone(),
                    key: row.key.clone(),
                    outcome: row.outcome.clone()?,
                    host: attempt.map(|attempt| attempt.host.clone()),
                    summary: attempt.and_then(|it| it.summary.clone()).unwrap_or_default(),
                    manifest: attempt.and_then(|it| it.manifest.clone()).unwrap_or_default(),
                    publishing: row.state == State::Publishing,
                })
            })
            .collect())
    }

    fn begin_publish(&mut self, occurrence: &str, fence: i64, home: &str) -> Result<()> {
        let states: &[State] = match injected!(self, PublishIgnoresState) {
            true => &[State::Delivered, State::Publishing, State::Claimed],
            false => &[State::Delivered, State::Publishing],
        };
        let row = self.published((occurrence, fence, home), states)?;
        if row.state == State::Delivered {
            row.state = State::Publishing;
        }
        Ok(())
    }

    fn settle(
        &mut self,
        occurrence: &str,
        fence: i64,
        home: &str,
        outcome: &Outcome,
    ) -> Result<()> {
        let now = self.now;
        let states = [State::Delivered, State::Publishing, State::Settled];
        let row = self.published((occurrence, fence, home), &states)?;
        if row.state != State::Settled {
            (row.state, row.settled) = (State::Settled, Some(now));
            row.outcome = Some(outcome.clone());
        }
        Ok(())
    }

    fn reopen(&mut self, occurrence: &str, fence: i64, home: &str, why: &str) -> Result<()> {
        let now = self.now;
        let states: &[State] = match injected!(self, ReopenIgnoresState) {
            true => &[State::Publishing, State::Settled],
            false => &[State::Publishing],
        };
        let row = self.published((occurrence, fence, home), states)?;
        (row.state, row.wake, row.outcome) = (State::Pending, Some(now), None);
        (row.why, row.settled) = (Some(why.to_owned()), None);
        Ok(())
    }

    fn cancel(&mut self, occurrence: &str, home: &str, why: &str) -> Result<()> {
        let now = self.now;
        let row = self.occurrences.get_mut(occurrence).filter(|row| row.home == home);
        let Some(row) = row else { return Ok(()) };
        match row.state {
            State::Pending => {
                (row.state, row.wake, row.settled) = (State::Settled, None, Some(now));
                row.fence += 1;
                (row.why, row.outcome) = (None, Some(Outcome::Cancelled { why: why.to_owned() }));
            }
            State::Claimed if row.cancel.is_none() => row.cancel = Some(why.to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        Ok(Snapshot {
            hosts: self.hosts.values().cloned().collect(),
            occurrences: self.occurrences.values().cloned().collect(),
            attempts: self.attempts.values().cloned().collect(),
            budgets: self.budgets.values().cloned().collect(),
            now: self.now,
        })
    }
}

/// Stores a result with its claim.
fn record(attempt: &mut AttemptRow, delivery: &Delivery) {
    attempt.outcome = Some(delivery.outcome.clone());
    attempt.summary = Some(delivery.summary.clone());
    attempt.manifest = Some(delivery.manifest.clone());
}
