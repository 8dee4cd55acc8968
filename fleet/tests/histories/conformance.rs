//! Checks the rules of a store, one by one, on both implementations.

use std::collections::BTreeMap;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use runner_fleet::{
    Claim, FleetError, FleetStore, HostState, Postgres, Release, Simulation, State, Verdict,
};

use crate::call::{LEASE, delivery, host, offer, request};
use crate::cluster::Cluster;
use crate::{START, TEST_CLOCK};

/// A store whose clock the test sets.
trait Rig {
    fn store(&mut self) -> &mut dyn FleetStore;
    fn advance(&mut self, by: i64);
}

struct Simulated(Simulation, i64);

impl Rig for Simulated {
    fn store(&mut self) -> &mut dyn FleetStore {
        &mut self.0
    }

    fn advance(&mut self, by: i64) {
        self.1 += by;
        self.0.set_clock(self.1);
    }
}

struct Real {
    store: Postgres,
    clock: postgres::Client,
}

impl Rig for Real {
    fn store(&mut self) -> &mut dyn FleetStore {
        &mut self.store
    }

    fn advance(&mut self, by: i64) {
        let sql = "UPDATE runner_fleet.test_clock SET at = at + $1";
        self.clock.execute(sql, &[&by]).unwrap();
    }
}

type Rule = fn(&mut dyn Rig);

const RULES: [(&str, Rule); 9] = [
    ("takeover", taken_over_claim_is_late),
    ("late", late_result_frees_its_occurrence),
    ("stopped", stopped_run_is_claimed_again),
    ("budget", budget_is_exact),
    ("slots", group_limits_claims),
    ("hosts", only_active_hosts_with_tags_claim),
    ("lost", third_lost_claim_ends),
    ("cancel", cancel_settles_or_asks_worker),
    ("publish", only_home_publishes_once),
];

#[test]
fn simulation_follows_every_rule() {
    for (_, rule) in RULES {
        rule(&mut Simulated(Simulation::at(START), START));
    }
}

#[test]
fn postgres_follows_every_rule() {
    let Some(cluster) = Cluster::start("fleet rules") else { return };
    for (name, rule) in RULES {
        let store = cluster.fleet(name);
        cluster.sql(name, TEST_CLOCK);
        let clock = postgres::Client::connect(&cluster.url(name), postgres::NoTls).unwrap();
        rule(&mut Real { store, clock });
    }
}

/// Offers one occurrence, and claims it with host `a`.
fn claimed(rig: &mut dyn Rig) -> Claim {
    let store = rig.store();
    store.join(&host("a", 0)).unwrap();
    store.join(&host("b", 0)).unwrap();
    store.offer(&offer("o1", "k", "a")).unwrap();
    claim(rig, "a").remove(0)
}

fn claim(rig: &mut dyn Rig, name: &str) -> Vec<Claim> {
    rig.store().claim(&request(&host(name, 0), 9)).unwrap().0
}

fn taken_over_claim_is_late(rig: &mut dyn Rig) {
    let first = claimed(rig);
    rig.advance(LEASE - 1);
    rig.store().renew("o1", first.fence, "a.0").unwrap();
    rig.advance(LEASE - 1);
    assert_eq!(claim(rig, "b"), [], "the lease has not ended yet");
    rig.advance(1);
    assert!(rig.store().renew("o1", first.fence, "a.0").is_err(), "the lease has ended");
    let second = claim(rig, "b").remove(0);
    assert_eq!(second.fence, first.fence + 1);
    let stale = rig.store().renew("o1", first.fence, "a.0");
    assert!(matches!(stale, Err(FleetError::Stale(_))), "{stale:?}");
    let used = Amounts { tokens: 7, ..Amounts::default() };
    let late = rig.store().deliver(&delivery(&first, "a.0", used));
    assert_eq!(late.unwrap(), Verdict::Late);
    let good = delivery(&second, "b.0", used);
    assert_eq!(rig.store().deliver(&good).unwrap(), Verdict::Accepted);
    assert_eq!(rig.store().deliver(&good).unwrap(), Verdict::Repeated);
    let all = rig.store().snapshot().unwrap();
    assert_eq!(all.budgets[0].used, [2, 27, 0, 0, 0], "the dead claim is charged in full");
    assert_eq!(all.occurrences[0].fence, second.fence);
}

fn late_result_frees_its_occurrence(rig: &mut dyn Rig) {
    let first = claimed(rig);
    rig.advance(LEASE);
    let ended = rig.store().renew("o1", first.fence, "a.0").unwrap_err().to_string();
    assert!(ended.ends_with("its lease has ended"), "{ended}");
    // The first claim used more tokens than the 20 that it reserved.
    let used = Amounts { tokens: 25, ..Amounts::default() };
    let late = delivery(&first, "a.0", used);
    for _ in 0..2 {
        assert_eq!(rig.store().deliver(&late).unwrap(), Verdict::Late);
    }
    let all = rig.store().snapshot().unwrap();
    assert_eq!(all.budgets[0].used, [2, 25, 0, 0, 0], "the excess usage is charged too");
    assert_eq!(all.budgets[0].held, [0; 5]);
    assert_eq!(all.attempts[0].outcome, Some(Outcome::Succeeded), "the result is kept");
    let second = claim(rig, "b").remove(0);
    assert_eq!(second.fence, first.fence + 1);
}

fn stopped_run_is_claimed_again(rig: &mut dyn Rig) {
    let mut last = claimed(rig);
    for most in [1, 1, 0] {
        let mut stopped = delivery(&last, &format!("{}.0", last_host(rig)), Amounts::default());
        stopped.outcome = Outcome::Cancelled { why: "signal 15".to_owned() };
        assert_eq!(rig.store().deliver(&stopped).unwrap(), Verdict::Late);
        let mut again = claim(rig, "b");
        assert_eq!(again.len(), most, "the third lost claim is the last one");
        last = again.pop().unwrap_or(last);
    }
    let all = rig.store().snapshot().unwrap();
    assert_eq!(all.budgets[0].used, [6, 60, 0, 0, 0], "each claim is charged in full");
    let found = rig.store().deliveries("a").unwrap().remove(0);
    assert!(matches!(found.outcome, Outcome::Lost { .. }), "{found:?}");
}

/// Returns the host of the last claim.
fn last_host(rig: &mut dyn Rig) -> String {
    rig.store().snapshot().unwrap().attempts.pop().unwrap().host
}

fn budget_is_exact(rig: &mut dyn Rig) {
    rig.store().join(&host("a", 0)).unwrap();
    for number in 0..3 {
        let mut one = offer(&format!("o{number}"), &format!("k{number}"), "a");
        let limit = Budget { tokens: Some(50), ..Budget::default() };
        one.levels = BTreeMap::from([("day".to_owned(), limit)]);
        rig.store().offer(&one).unwrap();
    }
    let claims = claim(rig, "a");
    assert_eq!(claims.len(), 2, "50 tokens are enough for two reservations of 20");
    let waits = rig.store().snapshot().unwrap().occurrences.pop().unwrap();
    assert_eq!(waits.state, State::Pending);
    assert!(waits.why.unwrap().contains("10 tokens left"));
    for one in &claims {
        rig.store().deliver(&delivery(one, "a.0", one.reserved)).unwrap();
    }
    rig.advance(60_000);
    assert_eq!(claim(rig, "a"), []);
    let ended = rig.store().snapshot().unwrap().occurrences.pop().unwrap();
    assert_eq!(ended.outcome.unwrap().class(), Some(runner_engine::outcome::Class::OverBudget));
}

fn group_limits_claims(rig: &mut dyn Rig) {
    rig.store().join(&host("a", 0)).unwrap();
    for number in 0..3 {
        let mut one = offer(&format!("o{number}"), &format!("k{number}"), "a");
        one.group = Some(("gpu".to_owned(), 1));
        rig.store().offer(&one).unwrap();
    }
    let first = claim(rig, "a");
    assert_eq!(first.len(), 1);
    assert_eq!(claim(rig, "a"), []);
    rig.store().deliver(&delivery(&first[0], "a.0", Amounts::default())).unwrap();
    assert_eq!(claim(rig, "a").len(), 1);
}

fn only_active_hosts_with_tags_claim(rig: &mut dyn Rig) {
    let unknown = rig.store().claim(&request(&host("a", 0), 1));
    assert!(matches!(unknown, Err(FleetError::NotJoined(_))), "{unknown:?}");
    rig.store().join(&host("a", 0)).unwrap();
    rig.store().join(&host("b", 0)).unwrap();
    let mut one = offer("o1", "k", "a");
    one.tags = vec!["b".to_owned()];
    rig.store().offer(&one).unwrap();
    assert_eq!(claim(rig, "a"), []);
    rig.store().set_host_state("b", HostState::Draining).unwrap();
    assert_eq!(claim(rig, "b"), []);
    rig.store().join(&host("b", 0)).unwrap();
    let got = claim(rig, "b").remove(0);
    let release = Release {
        occurrence: got.occurrence,
        fence: got.fence,
        worker: "b.0".to_owned(),
        used: Amounts::default(),
        host_waits: 1_000,
        why: "busy".to_owned(),
    };
    rig.store().release(&release).unwrap();
    assert_eq!(claim(rig, "b"), [], "the host that released it must wait");
    rig.advance(1_000);
    assert_eq!(claim(rig, "b").len(), 1);
}

fn third_lost_claim_ends(rig: &mut dyn Rig) {
    claimed(rig);
    for expected in [1, 1, 0] {
        rig.advance(LEASE);
        assert_eq!(claim(rig, "b").len(), expected);
    }
    let found = rig.store().deliveries("a").unwrap().remove(0);
    assert!(matches!(found.outcome, Outcome::Lost { .. }), "{found:?}");
    assert_eq!(found.host, None);
    rig.store().settle("o1", found.fence, "a", &found.outcome).unwrap();
    assert_eq!(rig.store().deliveries("a").unwrap(), []);
}

fn cancel_settles_or_asks_worker(rig: &mut dyn Rig) {
    let running = claimed(rig);
    rig.store().offer(&offer("o2", "k2", "a")).unwrap();
    for id in ["o1", "o2"] {
        rig.store().cancel(id, "b", "not its home").unwrap();
        rig.store().cancel(id, "a", "a person").unwrap();
    }
    let lease = rig.store().renew("o1", running.fence, "a.0").unwrap();
    assert_eq!(lease.cancel.as_deref(), Some("a person"));
    rig.store().offer(&offer("o3", "k3", "a")).unwrap();
    let other = claim(rig, "b").remove(0);
    rig.store().cancel("o3", "a", "a person").unwrap();
    let mut ends = delivery(&other, "b.0", Amounts::default());
    ends.outcome = Outcome::Cancelled { why: "a person".to_owned() };
    assert_eq!(rig.store().deliver(&ends).unwrap(), Verdict::Accepted, "its home cancelled it");
    rig.store().settle("o3", other.fence, "a", &ends.outcome).unwrap();
    let rows = rig.store().snapshot().unwrap().occurrences;
    assert_eq!(rows[1].state, State::Settled);
    rig.advance(LEASE);
    assert_eq!(claim(rig, "b"), [], "a cancelled occurrence is not claimed again");
    let found = rig.store().deliveries("a").unwrap().remove(0);
    assert!(matches!(found.outcome, Outcome::Cancelled { .. }), "{found:?}");
}

fn only_home_publishes_once(rig: &mut dyn Rig) {
    let one = claimed(rig);
    let early = rig.store().begin_publish("o1", one.fence, "a");
    assert!(matches!(early, Err(FleetError::Stale(_))), "{early:?}");
    rig.store().deliver(&delivery(&one, "a.0", Amounts::default())).unwrap();
    assert!(rig.store().begin_publish("o1", one.fence, "b").is_err());
    rig.store().begin_publish("o1", one.fence, "a").unwrap();
    rig.advance(LEASE * 9);
    assert_eq!(claim(rig, "b"), [], "a publication in progress is not claimed");
    assert!(rig.store().deliveries("a").unwrap().remove(0).publishing);
    rig.store().reopen("o1", one.fence, "a", "nothing was published").unwrap();
    let again = claim(rig, "b").remove(0);
    assert!(rig.store().begin_publish("o1", one.fence, "a").is_err(), "the old result is stale");
    rig.store().deliver(&delivery(&again, "b.0", Amounts::default())).unwrap();
    rig.store().begin_publish("o1", again.fence, "a").unwrap();
    rig.store().settle("o1", again.fence, "a", &Outcome::Succeeded).unwrap();
    rig.store().settle("o1", again.fence, "a", &Outcome::Succeeded).unwrap();
    assert!(rig.store().reopen("o1", again.fence, "a", "no").is_err());
}
