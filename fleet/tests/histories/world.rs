//! Generates random histories of three hosts, and checks the invariants that every history must
//! preserve.
//!
//! A host renews, delivers and gives back claims, crashes and restarts. Leases end, and replies are
//! lost. A stopped process delivers late. The home host publishes, and crashes during a
//! publication. The world derives the permitted next steps from the replies and from snapshots.

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::outcome::Outcome;
use runner_engine::store::Amounts;
use runner_fleet::{
    Claim, Deliverable, Ending, HostInfo, HostState, Release, Snapshot, State, Verdict,
};

use crate::call::{Call, LEASE, Reply, delivery, host, offer, request};

/// A small random number generator whose seed reproduces a history.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }

    pub fn one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.below(all.len())])
    }
}

/// The stores that a history runs on.
pub trait Target {
    /// Runs an operation on all stores, which must agree.
    fn run(&mut self, call: &Call) -> Reply;
    /// Advances the database's clock.
    fn advance(&mut self, by: i64);
    /// Restarts the database.
    fn restart(&mut self);
    fn snapshot(&mut self) -> Snapshot;
}

struct Member {
    info: HostInfo,
    boot: u32,
    held: Vec<Claim>,
    draining: bool,
}

/// A claim on which its host no longer works, although a process may still use it.
struct Ghost {
    claim: Claim,
    worker: String,
}

pub struct World<'a> {
    target: &'a mut dyn Target,
    random: Random,
    members: Vec<Member>,
    ghosts: Vec<Ghost>,
    keys: BTreeSet<String>,
    ids: u32,
    now: i64,
    /// The highest fence that was claimed, and the end of its lease, by occurrence.
    leases: BTreeMap<String, (i64, i64)>,
    /// The fences whose results changed files at home, by occurrence.
    published: BTreeMap<String, BTreeSet<i64>>,
    /// Publications that have begun but changed nothing yet.
    begun: BTreeSet<String>,
    pub calls: u64,
}

const HOSTS: [&str; 3] = ["a", "b", "c"];
const START: i64 = 1_790_000_000_000;

impl<'a> World<'a> {
    pub fn new(target: &'a mut dyn Target, seed: u64) -> Self {
        let members = HOSTS.map(|name| Member {
            info: host(name, 0),
            boot: 0,
            held: Vec::new(),
            draining: false,
        });
        Self {
            target,
            random: Random::new(seed),
            members: members.into(),
            ghosts: Vec::new(),
            keys: BTreeSet::new(),
            ids: 0,
            now: START,
            leases: BTreeMap::new(),
            published: BTreeMap::new(),
            begun: BTreeSet::new(),
            calls: 0,
        }
    }

    /// Runs a history of random steps, finishes all work, and checks the result.
    pub fn live(&mut self, steps: usize) {
        for index in 0..self.members.len() {
            self.join(index);
        }
        for _ in 0..steps {
            self.step();
            self.check();
        }
        self.finish();
    }

    fn call(&mut self, call: &Call) -> Reply {
        self.calls += 1;
        self.target.run(call)
    }

    fn advance(&mut self, by: i64) {
        self.now += by;
        self.target.advance(by);
    }

    fn join(&mut self, index: usize) {
        let info = self.members[index].info.clone();
        self.members[index].draining = false;
        self.call(&Call::Join(info));
    }

    fn step(&mut self) {
        let index = self.random.below(self.members.len());
        match self.random.below(100) {
            0..18 => self.offer(),
            18..38 => {
                let most = 1 + self.random.below(3) as u32;
                // If the reply is lost, the claim is made, but nobody works on it.
                let lost = self.random.one_in(10);
                self.claim(index, most, lost);
            }
            38..46 => self.renew(index),
            46..62 => self.deliver(index),
            62..66 => self.release(index),
            66..72 => self.ghost_acts(),
            72..84 => self.publish(index),
            84..88 => self.advance(LEASE + 1),
            88..93 => {
                let by = self.random.below(40_000) as i64;
                self.advance(by);
            }
            93..95 => self.crash(index),
            95..97 => self.drain(index),
            97..98 => self.cancel(),
            98..99 => self.foreign(index),
            _ => {
                if self.random.one_in(20) {
                    self.target.restart();
                }
            }
        }
    }

    fn offer(&mut self) {
        // A repeated key imitates a second tick for the same scheduled time.
        let key = match self.random.one_in(4) {
            true => format!("k{}", self.random.below(self.keys.len().max(1))),
            false => format!("k{}", self.keys.len()),
        };
        let fresh = self.keys.insert(key.clone());
        self.ids += 1;
        let home = HOSTS[self.random.below(2)];
        let mut one = offer(&format!("o{:04}", self.ids), &key, home);
        // The scheduled time comes from a host's clock, which may be an hour off.
        one.due = self.now + (self.random.below(3) as i64 - 1) * 3_600_000;
        match self.random.below(6) {
            0 => one.tags = vec![HOSTS[self.random.below(3)].to_owned()],
            1 | 2 => one.group = Some(("gpu".to_owned(), 2)),
            _ => {}
        }
        let Reply::Id(id) = self.call(&Call::Offer(one.clone())) else {
            panic!("an offer was refused")
        };
        assert_eq!(id == one.id, fresh, "{key}: only the first offer adds an occurrence");
    }

    fn claim(&mut self, index: usize, most: u32, lost: bool) {
        let member = &self.members[index];
        let (worker, draining) = (member.info.worker.clone(), member.draining);
        let call = Call::Claim(request(&member.info, most));
        let Reply::Claims(claims, _) = self.call(&call) else { panic!("{worker} was refused") };
        assert!(claims.is_empty() || !draining, "{worker} is draining, but got {claims:?}");
        let rows = self.target.snapshot().occurrences;
        for claim in claims {
            let (fence, until) = self.leases.get(&claim.occurrence).copied().unwrap_or_default();
            assert!(claim.fence > fence, "{claim:?}: the fence was {fence} before");
            assert!(until <= self.now, "{claim:?}: the lease of fence {fence} has not ended");
            self.leases.insert(claim.occurrence.clone(), (claim.fence, self.now + claim.lease));
            let row = rows.iter().find(|row| row.id == claim.occurrence).unwrap();
            let tags = &self.members[index].info.tags;
            assert!(row.tags.iter().all(|tag| tags.contains(tag)), "{worker} claimed {row:?}");
            assert!(!self.published.contains_key(&claim.occurrence), "{claim:?} was published");
            match lost {
                true => self.ghosts.push(Ghost { claim, worker: worker.clone() }),
                false => self.members[index].held.push(claim),
            }
        }
    }

    /// Removes a random claim of a host, and returns it with its worker.
    fn take(&mut self, index: usize) -> Option<(Claim, String)> {
        let member = &mut self.members[index];
        if member.held.is_empty() {
            return None;
        }
        let chosen = self.random.below(member.held.len());
        Some((member.held.swap_remove(chosen), member.info.worker.clone()))
    }

    fn renew(&mut self, index: usize) {
        let Some((claim, worker)) = self.take(index) else { return };
        let (occurrence, fence) = (claim.occurrence.clone(), claim.fence);
        match self.call(&Call::Renew { occurrence, fence, worker: worker.clone() }) {
            Reply::Lease(_) => {
                let until = self.now + claim.lease;
                self.leases.insert(claim.occurrence.clone(), (claim.fence, until));
                self.members[index].held.push(claim);
            }
            _ => self.ghosts.push(Ghost { claim, worker }),
        }
    }

    fn used(&mut self, claim: &Claim) -> Amounts {
        let part = |most: u64, random: &mut Random| random.below(most as usize + 1) as u64;
        Amounts {
            calls: part(claim.reserved.calls, &mut self.random),
            tokens: part(claim.reserved.tokens, &mut self.random),
            ..Amounts::default()
        }
    }

    fn deliver(&mut self, index: usize) {
        let Some((claim, worker)) = self.take(index) else { return };
        let used = self.used(&claim);
        let mut sent = delivery(&claim, &worker, used);
        match self.random.below(6) {
            0 => sent.outcome = Outcome::TimedOut { why: "too slow".to_owned() },
            1 => sent.outcome = Outcome::Cancelled { why: "signal 15".to_owned() },
            _ => {}
        }
        let reply = self.call(&Call::Deliver(sent.clone()));
        self.check_verdict(&reply, &claim);
        self.end_lease(&reply, &claim);
        if self.random.one_in(4) {
            // The reply was lost, so the host delivers again, now or later.
            self.call(&Call::Deliver(sent));
            self.ghosts.push(Ghost { claim, worker });
        }
    }

    fn release(&mut self, index: usize) {
        let Some((claim, worker)) = self.take(index) else { return };
        let used = self.used(&claim);
        let release = Release {
            occurrence: claim.occurrence.clone(),
            fence: claim.fence,
            worker,
            used,
            host_waits: self.random.below(50_000) as i64,
            why: "busy".to_owned(),
        };
        if self.call(&Call::Release(release)).is_ok() {
            self.leases.insert(claim.occurrence, (claim.fence, self.now));
        }
    }

    /// Lets a stopped process resume: it delivers, or begins or reopens a publication at home.
    fn ghost_acts(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let chosen = self.random.below(self.ghosts.len());
        let Ghost { claim, worker } = &self.ghosts[chosen];
        let (claim, worker) = (claim.clone(), worker.clone());
        match self.random.below(4) {
            0 => {
                let home = claim.home.clone();
                let (occurrence, fence) = (claim.occurrence.clone(), claim.fence);
                let begin = Call::BeginPublish { occurrence, fence, home };
                // A home host publishes only successful results, because others have no files.
                let rows = self.target.snapshot().occurrences;
                let row = rows.into_iter().find(|row| row.id == claim.occurrence);
                let outcome = row.and_then(|row| row.outcome);
                if !matches!(outcome, None | Some(Outcome::Succeeded)) {
                    return;
                }
                if self.call(&begin).is_ok() {
                    self.changes_files(&claim.occurrence, claim.fence);
                }
            }
            1 => {
                let home = claim.home.clone();
                let (occurrence, fence) = (claim.occurrence.clone(), claim.fence);
                if !self.published.contains_key(&claim.occurrence)
                    && self.begun.contains(&claim.occurrence)
                    && self.call(&Call::Reopen { occurrence, fence, home }).is_ok()
                {
                    self.begun.remove(&claim.occurrence);
                }
            }
            _ => {
                let used = self.used(&claim);
                let sent = delivery(&claim, &worker, used);
                let reply = self.call(&Call::Deliver(sent));
                self.check_verdict(&reply, &claim);
                self.end_lease(&reply, &claim);
            }
        }
    }

    /// Ends the lease of a claim whose delivery was not rejected.
    fn end_lease(&mut self, reply: &Reply, claim: &Claim) {
        let lease = self.leases.get_mut(&claim.occurrence);
        if let Some(lease) = lease.filter(|lease| reply.is_ok() && lease.0 == claim.fence) {
            lease.1 = lease.1.min(self.now);
        }
    }

    /// Checks that only the last claim of an occurrence may deliver its result, and only during its
    /// lease.
    fn check_verdict(&self, reply: &Reply, claim: &Claim) {
        let lease = self.leases.get(&claim.occurrence);
        let live = lease.is_some_and(|(fence, end)| *fence == claim.fence && *end > self.now);
        let accepted = matches!(reply, Reply::Verdict(Verdict::Accepted));
        assert!(!accepted || live, "{claim:?}: the last lease is {lease:?}, now {}", self.now);
    }

    fn changes_files(&mut self, occurrence: &str, fence: i64) {
        self.published.entry(occurrence.to_owned()).or_default().insert(fence);
        self.begun.remove(occurrence);
    }

    fn deliveries(&mut self, home: &str) -> Vec<Deliverable> {
        match self.call(&Call::Deliveries(home.to_owned())) {
            Reply::Deliveries(all) => all,
            other => panic!("{other:?}"),
        }
    }

    fn publish(&mut self, index: usize) {
        let home = self.members[index].info.host.clone();
        let all = self.deliveries(&home);
        let Some(one) = self.random.pick(&all).cloned() else { return };
        let crash = self.random.below(10);
        self.apply(&one, &home, crash);
    }

    /// Applies a result at home. If `crash` is 0, the host dies before the manifest is recorded. If
    /// it is 1, the host dies afterwards.
    fn apply(&mut self, one: &Deliverable, home: &str, crash: usize) {
        let (occurrence, fence) = (one.occurrence.clone(), one.fence);
        let home = home.to_owned();
        if one.publishing && self.begun.contains(&occurrence) && crash < 5 {
            // Recovery found no manifest, so nothing was changed.
            let reply = self.call(&Call::Reopen { occurrence: occurrence.clone(), fence, home });
            assert!(reply.is_ok(), "{reply:?}");
            self.begun.remove(&occurrence);
            return;
        }
        if matches!(one.outcome, Outcome::Succeeded) {
            let begin =
                Call::BeginPublish { occurrence: occurrence.clone(), fence, home: home.clone() };
            if !self.call(&begin).is_ok() {
                return;
            }
            if crash == 0 {
                if !self.published.contains_key(&occurrence) {
                    self.begun.insert(occurrence);
                }
                return;
            }
            self.changes_files(&occurrence, fence);
            if crash == 1 {
                return;
            }
        }
        let outcome = one.outcome.clone();
        let settle = Call::Settle { occurrence, fence, home, outcome };
        let reply = self.call(&settle);
        assert!(reply.is_ok(), "{reply:?}");
        if self.random.one_in(5) {
            assert!(self.call(&settle).is_ok(), "a repeated settlement was refused");
        }
    }

    fn crash(&mut self, index: usize) {
        let member = &mut self.members[index];
        let worker = member.info.worker.clone();
        let held = std::mem::take(&mut member.held);
        self.ghosts.extend(held.into_iter().map(|claim| Ghost { claim, worker: worker.clone() }));
        member.boot += 1;
        member.info = host(&member.info.host, member.boot);
        self.join(index);
    }

    fn drain(&mut self, index: usize) {
        let name = self.members[index].info.host.clone();
        match self.members[index].draining {
            true => self.join(index),
            false => {
                self.members[index].draining = true;
                let state =
                    if self.random.one_in(2) { HostState::Draining } else { HostState::Left };
                self.call(&Call::HostState(name, state));
            }
        }
    }

    fn cancel(&mut self) {
        let rows = self.target.snapshot().occurrences;
        if let Some(row) = self.random.pick(&rows).cloned() {
            self.call(&Call::Cancel { occurrence: row.id, home: row.home });
        }
    }

    /// Calls operations that must be rejected: with fences that were never granted, or from another
    /// host.
    fn foreign(&mut self, index: usize) {
        let rows = self.target.snapshot().occurrences;
        let Some(row) = self.random.pick(&rows).cloned() else { return };
        let worker = self.members[index].info.worker.clone();
        let (occurrence, fence) = (row.id.clone(), row.fence);
        let calls = [
            Call::Renew { occurrence: occurrence.clone(), fence: fence + 1, worker },
            Call::BeginPublish { occurrence: occurrence.clone(), fence, home: "c".to_owned() },
            Call::BeginPublish {
                occurrence: occurrence.clone(),
                fence: fence + 1,
                home: row.home.clone(),
            },
        ];
        for call in calls {
            assert!(!self.call(&call).is_ok(), "{call:?} was not refused");
        }
        if row.state == State::Settled {
            let call = Call::Reopen { occurrence, fence, home: row.home };
            assert!(!self.call(&call).is_ok(), "{call:?} was not refused");
        }
    }

    /// Checks the invariants that hold at any time.
    fn check(&mut self) {
        let snapshot = self.target.snapshot();
        let errors = snapshot.budget_errors();
        assert!(errors.is_empty(), "{errors:#?}");
        for row in &snapshot.budgets {
            for unit in 0..5 {
                let limit = row.limits[unit].unwrap_or(i64::MAX);
                assert!(row.used[unit] + row.held[unit] <= limit, "more than the limit: {row:?}");
            }
        }
        let live = snapshot.occurrences.iter().filter(|row| {
            row.state == State::Claimed
                && row.group.is_some()
                && row.wake.is_some_and(|wake| wake > self.now)
        });
        assert!(live.count() <= 2, "the group has only 2 slots");
        for attempt in &snapshot.attempts {
            if attempt.ending == Some(Ending::Lost) {
                assert_eq!(attempt.charged, Some(attempt.reserved), "{attempt:?}");
            }
        }
        for (occurrence, fences) in &self.published {
            assert_eq!(fences.len(), 1, "{occurrence} was published with fences {fences:?}");
        }
    }

    /// Lets all hosts work without faults until every occurrence is settled.
    fn finish(&mut self) {
        for index in 0..self.members.len() {
            self.crash(index);
        }
        for _ in 0..60 {
            self.advance(LEASE + 1);
            for index in 0..self.members.len() {
                self.claim(index, 10, false);
                while !self.members[index].held.is_empty() {
                    let Some((claim, worker)) = self.take(index) else { break };
                    let sent = delivery(&claim, &worker, claim.reserved);
                    assert!(self.call(&Call::Deliver(sent)).is_ok());
                    self.leases.insert(claim.occurrence, (claim.fence, self.now));
                }
                let home = self.members[index].info.host.clone();
                for one in self.deliveries(&home) {
                    self.apply(&one, &home, 9);
                }
            }
            self.check();
            let open = |row: &runner_fleet::OccurrenceRow| row.state != State::Settled;
            if !self.target.snapshot().occurrences.iter().any(open) {
                break;
            }
        }
        self.check_end();
    }

    /// Checks that no occurrence was lost and that nothing remains reserved.
    fn check_end(&mut self) {
        let snapshot = self.target.snapshot();
        assert_eq!(snapshot.occurrences.len(), self.keys.len(), "one occurrence for each key");
        for row in &snapshot.occurrences {
            assert_eq!(row.state, State::Settled, "not settled at the end: {row:?}");
            let succeeded = matches!(row.outcome, Some(Outcome::Succeeded));
            let fences = self.published.get(&row.id);
            assert_eq!(succeeded, fences.is_some(), "published fences {fences:?}: {row:?}");
            if let Some(fences) = fences {
                let fence = *fences.first().unwrap();
                let attempt = snapshot.attempts.iter();
                let mut attempt =
                    attempt.filter(|one| one.occurrence == row.id && one.fence == fence);
                let ending = attempt.next().and_then(|one| one.ending);
                assert_eq!(ending, Some(Ending::Delivered), "{row:?} published fence {fence}");
            }
        }
        for row in &snapshot.budgets {
            assert_eq!(row.held, [0; 5], "still reserved at the end: {row:?}");
        }
    }
}
