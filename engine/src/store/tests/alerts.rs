//! Tests of alerts and their messages. One test compares the alerts of random histories with those
//! of a slow model, which evaluates the whole history at each step.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use super::*;
use strum::VariantArray as _;

use crate::alerts::{AlertKind, AlertRules};

/// An event in a job's history.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Failed { manual: bool, stopped: bool },
    Placed,
    Missed { stopped: bool },
    Stale,
    Silence(AlertKind),
    Ack,
}

/// An alert in the model.
#[derive(Clone, Debug, PartialEq)]
struct Episode {
    kind: AlertKind,
    raised: i64,
    count: u32,
    silenced: bool,
    over: bool,
    /// The minutes in which `raised` and `repeated` messages were made.
    reported: Vec<i64>,
    /// Whether the alert ended in a recovery that may be reported.
    recovered: bool,
}

/// Computes the episodes in a job's history, for each kind of alert separately.
fn episodes(history: &[(i64, Entry)], rules: &AlertRules) -> Vec<Episode> {
    let mut all = Vec::new();
    for &kind in AlertKind::VARIANTS {
        let mut open: Option<Episode> = None;
        for &(at, entry) in history {
            let happens = match (kind, entry) {
                (AlertKind::Failure, Entry::Failed { manual, .. }) => !manual,
                (AlertKind::Breaker, Entry::Failed { stopped, .. }) => stopped,
                (AlertKind::Missed, Entry::Missed { stopped }) => !stopped,
                (AlertKind::Stale, Entry::Stale) => true,
                _ => false,
            };
            if happens && open.is_none() && rules.on.contains(&kind) {
                open = Some(Episode {
                    kind,
                    raised: at,
                    count: 1,
                    silenced: false,
                    over: false,
                    reported: vec![at],
                    recovered: false,
                });
                continue;
            }
            let Some(mut one) = open.take() else { continue };
            let last = one.reported.last().copied().unwrap_or(at);
            let due = (at - last) * 60 >= rules.repeat;
            match entry {
                _ if happens => {
                    if due || kind != AlertKind::Stale {
                        one.count += 1;
                    }
                    if due && !one.silenced && rules.on.contains(&kind) {
                        one.reported.push(at);
                    }
                }
                Entry::Placed => {
                    one.over = true;
                    one.recovered = rules.recovery && !one.silenced;
                }
                Entry::Ack if kind == AlertKind::Stale => one.silenced = true,
                Entry::Ack => one.over = true,
                Entry::Silence(which) if which == kind => one.silenced = true,
                _ => {}
            }
            if one.over {
                all.push(one);
            } else {
                open = Some(one);
            }
        }
        all.extend(open);
    }
    all.sort_by_key(|one| (one.kind, one.raised));
    all
}

/// Returns the alerts in the database as episodes. `recovered` is set for every recovery, even if
/// the rules prevent its message.
fn recorded(fixture: &Fixture) -> Vec<Episode> {
    let minute = |at: Timestamp| at.duration_since(now()).as_mins();
    let mut all: Vec<Episode> = fixture
        .store
        .alerts(None, AlertSelection::All)
        .unwrap()
        .into_iter()
        .map(|alert| {
            let messages = fixture.store.messages_of(&alert.id).unwrap();
            let reported = |channel: &str| -> Vec<i64> {
                let of_it =
                    messages.iter().filter(|one| one.channel == channel && one.what != "recovered");
                of_it.map(|one| minute(one.made)).collect()
            };
            assert_eq!(reported("a"), reported("b"), "all channels get the same messages");
            Episode {
                kind: alert.kind,
                raised: minute(alert.raised),
                count: alert.count,
                silenced: alert.silenced.is_some(),
                over: alert.ended.is_some(),
                reported: reported("a"),
                recovered: matches!(alert.ended, Some((_, AlertEnd::Recovered))),
            }
        })
        .collect();
    all.sort_by_key(|one| (one.kind, one.raised));
    all
}

struct Random(u64);

impl Random {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

fn rules(dice: &mut Random) -> AlertRules {
    AlertRules {
        on: AlertKind::VARIANTS.iter().copied().filter(|_| dice.roll(4) > 0).collect(),
        recovery: dice.roll(4) > 0,
        repeat: 60 * (1 + i64::try_from(dice.roll(600)).unwrap()),
        success_within: Some(3600 * (2 + i64::try_from(dice.roll(40)).unwrap())),
        jobs: BTreeMap::new(),
        channels: vec!["a".to_owned(), "b".to_owned()],
        ..AlertRules::default()
    }
}

/// Returns the number in an environment variable, or `usual` if the variable is not set.
#[allow(clippy::disallowed_methods, reason = "a setting of the test, not of the tested code")]
fn number(name: &str, usual: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

impl Fixture {
    fn digest(&mut self, rules: &AlertRules, at: Timestamp) {
        let rules = BTreeMap::from([(self.project.clone(), rules.clone())]);
        self.store.digest(&rules, at).unwrap();
        assert!(self.store.projects_with_news().unwrap().is_empty());
    }

    /// Runs the job `dream` once, manually or from the queue, and settles the run with `outcome`.
    fn ends(&mut self, manual: bool, outcome: &Outcome, at: Timestamp) {
        let run = match manual {
            true => self.requested("dream", &OccurrenceId::new(at).to_string()),
            false => {
                self.enqueue("dream");
                self.start(at).remove(0)
            }
        };
        // A failure before the start would not open the breaker.
        let sql = "UPDATE runs SET started = ?2 WHERE id = ?1";
        self.store.db.execute(sql, rusqlite::params![run, millis(at)]).unwrap();
        self.end(&run, outcome, at);
    }

    /// Sends the waiting messages. Some attempts fail at random.
    fn deliver(&mut self, dice: &mut Random, at: Timestamp) {
        let mut without = Vec::new();
        while let Some(sent) = self.store.begin_delivery(&without, at).unwrap() {
            assert!(sent.tries <= MOST_TRIES);
            match dice.roll(4) {
                // The process is killed before the result is recorded.
                0 => without.push((sent.project, sent.channel)),
                1 => {
                    self.tried(&sent, &DeliveryResult::Failed("no".to_owned()), at);
                    without.push((sent.project, sent.channel));
                }
                _ => self.tried(&sent, &DeliveryResult::Delivered, at),
            }
        }
    }

    /// Records the result of an attempt for all messages that were sent together.
    fn tried(&mut self, sent: &Delivery, result: &DeliveryResult, at: Timestamp) {
        for one in std::iter::once(sent).chain(&sent.more) {
            self.store.end_delivery(&one.id, one.tries, result, at).unwrap();
        }
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn alerts_match_the_model() {
    let seed = number("RUNNER_TEST_SEED", f64::from(std::process::id())) as u64;
    let cases = (60.0 * number("RUNNER_TEST_SCALE", 1.0)).ceil() as u64;
    let began = crate::time::boot_time();
    let (mut steps, mut raised, mut kinds) = (0, 0, BTreeSet::new());
    let quiet = Policy {
        retry: crate::policy::Retry { count: 0, ..Policy::default().retry },
        ..Policy::default()
    };
    for case in 0..cases {
        let mut dice = Random(seed ^ (case << 32));
        let rules = rules(&mut dice);
        let mut fixture = in_memory_fixture();
        fixture.jobs(&[with("dream", every(15), quiet.clone())]);
        let job = fixture.id("dream");
        let mut history: Vec<(i64, Entry)> = Vec::new();
        let mut minute = 0;
        // The minutes of the last success and of the first check, from which the expected staleness
        // is computed.
        let (mut good, mut watched) = (None, None);
        for _ in 0..60 {
            minute += 1 + i64::try_from(dice.roll(120)).unwrap();
            let at = later(minute);
            match dice.roll(9) {
                0..=2 => {
                    let manual = dice.roll(4) == 0;
                    let class = [Class::Crash, Class::Auth, Class::Guard][dice.roll(3) as usize];
                    fixture.ends(manual, &failed(class), at);
                    fixture.digest(&rules, at);
                    let stopped = crate::admission::stopped(fixture.store.streak(job).unwrap());
                    history.push((minute, Entry::Failed { manual, stopped }));
                }
                3 => {
                    fixture.ends(dice.roll(2) == 0, &Outcome::Succeeded, at);
                    fixture.digest(&rules, at);
                    history.push((minute, Entry::Placed));
                    good = Some(minute);
                }
                4 => {
                    // A skipped run is neither a success nor a failure.
                    let why = "x".to_owned();
                    fixture.ends(true, &Outcome::skipped(SkipReason::Idle, why), at);
                    fixture.digest(&rules, at);
                }
                5 => {
                    let due = fixture.store.due_jobs(at).unwrap();
                    for due_job in &due {
                        let none = CatchUp {
                            which: CatchUpScope::None,
                            window: SignedDuration::ZERO,
                            ..CatchUp::default()
                        };
                        let job = &due_job.job;
                        let found = job.schedule.due(due_job.watermark, at, &none).unwrap();
                        let missed = found.missed.is_some();
                        let found = crate::schedule::Due { fire: Vec::new(), ..found };
                        fixture
                            .store
                            .enter_due(due_job, &found, MissedReasons::default(), None, at)
                            .unwrap();
                        if missed {
                            let streak = fixture.store.streak(job.id).unwrap();
                            let stopped = crate::admission::stopped(streak);
                            history.push((minute, Entry::Missed { stopped }));
                        }
                    }
                    fixture.digest(&rules, at);
                }
                6 => {
                    let of_it = BTreeMap::from([(fixture.project.clone(), rules.clone())]);
                    let found = fixture.store.watch(&of_it, at).unwrap();
                    let since = *watched.get_or_insert(minute);
                    let since = good.unwrap_or(since).max(since);
                    let limit = rules.stale_after("dream").map(|limit| limit.as_mins());
                    let stale = limit.is_some_and(|limit| minute - since > limit);
                    assert_eq!(!found.is_empty(), stale, "seed {seed}, case {case}");
                    if stale {
                        history.push((minute, Entry::Stale));
                    }
                }
                7 => {
                    let open = fixture.store.alerts(None, AlertSelection::Open).unwrap();
                    if let Some(one) = open.get(dice.roll(4) as usize) {
                        fixture.store.silence(&one.id, "ann", at).unwrap();
                        history.push((minute, Entry::Silence(one.kind)));
                    }
                }
                _ if dice.roll(3) == 0 => {
                    fixture.store.acknowledge(&fixture.project, job, "dream", "ann", at).unwrap();
                    fixture.store.end_alerts(job, "ann", at).unwrap();
                    history.push((minute, Entry::Ack));
                }
                _ => fixture.deliver(&mut dice, at),
            }
            steps += 1;
            let wanted = episodes(&history, &rules);
            let mut found = recorded(&fixture);
            for (one, wanted) in found.iter_mut().zip(&wanted) {
                // Whether a recovery is reported also depends on the earlier messages, which the
                // model does not contain. `messages_are_in_order` checks the messages.
                one.recovered &= wanted.recovered;
            }
            assert_eq!(found, wanted, "seed {seed}, case {case}, {history:#?}");
        }
        for alert in fixture.store.alerts(None, AlertSelection::All).unwrap() {
            kinds.insert(alert.kind);
            raised += 1;
            messages_are_in_order(&fixture, &alert, rules.recovery);
        }
    }
    let took = crate::time::boot_time().saturating_sub(began).as_secs_f32();
    let _closed = writeln!(
        std::io::stderr(),
        "alerts: RUNNER_TEST_SEED={seed}: {cases} histories, {steps} steps, {raised} alerts in {took:.1} s"
    );
    assert_eq!(kinds.len(), 4, "alerts of every kind that concerns runs were raised");
}

/// Checks the invariants of an alert's messages to each channel, which must also hold after a
/// crash.
fn messages_are_in_order(fixture: &Fixture, alert: &AlertRow, recovery: bool) {
    let messages = fixture.store.messages_of(&alert.id).unwrap();
    for channel in ["a", "b"] {
        let of_it: Vec<&MessageRow> =
            messages.iter().filter(|one| one.channel == channel).collect();
        let recovered: Vec<_> = of_it.iter().filter(|one| one.what == "recovered").collect();
        assert!(recovered.len() <= 1, "a recovery is reported at most once");
        if let Some(reported) = recovered.first() {
            assert!(recovery && alert.ended.is_some() && alert.silenced.is_none());
            let heard = of_it.iter().any(|one| one.tries > 0 && one.made <= reported.made);
            assert!(heard, "a recovery is reported only after its problem");
        }
        let open = of_it.iter().filter(|one| one.state == MessageState::Waiting);
        assert!(open.count() <= 1, "at most one message is waiting");
        if alert.silenced.is_some() {
            assert!(of_it.iter().all(|one| one.state != MessageState::Waiting));
        }
    }
}

#[test]
fn one_message_reports_all_recoveries() {
    let mut fixture = in_memory_fixture();
    let rules = AlertRules {
        on: AlertKind::VARIANTS.iter().copied().collect(),
        recovery: true,
        repeat: 3600,
        channels: vec!["a".to_owned()],
        ..AlertRules::default()
    };
    for minute in 0..3 {
        fixture.ends(false, &failed(Class::Guard), later(minute));
        fixture.digest(&rules, later(minute));
        while let Some(sent) = fixture.store.begin_delivery(&[], later(minute)).unwrap() {
            fixture.tried(&sent, &DeliveryResult::Delivered, later(minute));
        }
    }
    fixture.ends(false, &Outcome::Succeeded, later(5));
    fixture.digest(&rules, later(5));
    let sent = fixture.store.begin_delivery(&[], later(5)).unwrap().unwrap();
    assert_eq!(sent.what, "recovered");
    assert_eq!(sent.kinds, [AlertKind::Failure, AlertKind::Breaker]);
    assert_eq!(sent.count, 3);
    assert_eq!(fixture.store.begin_delivery(&[], later(5)).unwrap(), None);
    // An alert that ends before its first message is sent causes no recovery message.
    fixture.ends(false, &failed(Class::Guard), later(6));
    fixture.ends(false, &Outcome::Succeeded, later(7));
    fixture.digest(&rules, later(7));
    let first = fixture.store.messages_due(later(7)).unwrap();
    let without = [(fixture.project.clone(), "a".to_owned())];
    assert!(!first || fixture.store.begin_delivery(&without, later(7)).unwrap().is_none());
    assert!(fixture.store.alerts(None, AlertSelection::Open).unwrap().is_empty());
}

#[test]
fn undeliverable_message_is_eventually_given_up() {
    let mut fixture = in_memory_fixture();
    let rules = AlertRules {
        on: AlertKind::VARIANTS.iter().copied().collect(),
        repeat: 3600,
        channels: vec!["a".to_owned()],
        ..AlertRules::default()
    };
    fixture.ends(false, &failed(Class::Guard), now());
    fixture.digest(&rules, now());
    let (mut minute, mut tries) = (0, 0);
    while minute < 3000 {
        // On each odd-numbered attempt, the process dies before it records the result.
        if let Some(sent) = fixture.store.begin_delivery(&[], later(minute)).unwrap() {
            tries += 1;
            assert_eq!(sent.tries, tries);
            if tries % 2 == 0 {
                let tried = DeliveryResult::Failed("no".to_owned());
                fixture.store.end_delivery(&sent.id, sent.tries, &tried, later(minute)).unwrap();
            }
        }
        minute += 1;
    }
    assert_eq!(tries, MOST_TRIES);
    let alert = fixture.store.alerts(None, AlertSelection::Open).unwrap().remove(0);
    let message = fixture.store.messages_of(&alert.id).unwrap().remove(0);
    assert_eq!(message.state, MessageState::GivenUp);
    let lost = fixture.store.undelivered().unwrap();
    assert_eq!(lost, [(fixture.project.clone(), "a".to_owned(), 1, "no".to_owned())]);
    fixture.store.silence(&alert.id, "ann", later(3000)).unwrap();
    assert!(fixture.store.undelivered().unwrap().is_empty());
    fixture.store.end_alerts(fixture.id("dream"), "ann", later(3001)).unwrap();
    let kept_for = 90 * 24 * 60;
    let plan = prune::prune(&mut fixture, later(kept_for + 3001));
    assert!(plan.rows.alerts.is_empty(), "an alert that ended exactly 90 days ago is kept");
    let plan = prune::prune(&mut fixture, later(kept_for + 3002));
    assert_eq!(plan.rows.alerts, [alert.id]);
    assert!(fixture.store.alerts(None, AlertSelection::All).unwrap().is_empty());
}

#[test]
fn reenabled_job_is_not_immediately_stale() {
    let mut fixture = in_memory_fixture();
    let rules = AlertRules {
        on: AlertKind::VARIANTS.iter().copied().collect(),
        success_within: Some(24 * 3600),
        ..AlertRules::default()
    };
    let rules = BTreeMap::from([(fixture.project.clone(), rules)]);
    let day = 24 * 60;
    assert!(fixture.store.watch(&rules, now()).unwrap().is_empty());
    assert!(!fixture.store.maintenance_due(Task::Watch, later(59)).unwrap());
    assert!(fixture.store.maintenance_due(Task::Watch, later(60)).unwrap());
    let stale = fixture.store.watch(&rules, later(day + 1)).unwrap();
    assert_eq!(stale.len(), 1, "only the scheduled job is stale");
    let off = NewJob { enabled: false, ..job("tidy", every(15)) };
    fixture.jobs(&[off]);
    assert!(fixture.store.watch(&rules, later(2 * day)).unwrap().is_empty());
    fixture.jobs(&[job("tidy", every(15))]);
    assert!(fixture.store.watch(&rules, later(9 * day)).unwrap().is_empty());
    assert!(fixture.store.watch(&rules, later(9 * day + 60)).unwrap().is_empty());
    assert_eq!(fixture.store.watch(&rules, later(11 * day)).unwrap().len(), 1);
}

#[test]
fn messages_of_a_window_are_sent_together() {
    let mut fixture = in_memory_fixture();
    fixture.jobs(&[job("dream", Schedule::manual()), job("tidy", Schedule::manual())]);
    let rules = AlertRules {
        on: AlertKind::VARIANTS.iter().copied().collect(),
        recovery: true,
        repeat: 3600,
        channels: vec!["a".to_owned()],
        window: 15 * 60,
        ..AlertRules::default()
    };
    let of_it = BTreeMap::from([(fixture.project.clone(), rules.clone())]);
    let next = |fixture: &mut Fixture, minute: i64| {
        fixture.digest(&rules, later(minute));
        fixture.store.hold_messages(&of_it, later(minute)).unwrap();
        let sent = fixture.store.begin_delivery(&[], later(minute)).unwrap();
        if let Some(sent) = &sent {
            fixture.tried(sent, &DeliveryResult::Delivered, later(minute));
        }
        sent.map(|sent| {
            let all = std::iter::once(&sent).chain(&sent.more);
            all.map(|one| format!("{} {}", one.job, one.what)).collect::<Vec<_>>()
        })
    };
    fixture.ends(false, &failed(Class::Guard), later(0));
    assert_eq!(next(&mut fixture, 0).unwrap(), ["dream raised"]);
    // All other messages wait until the window has passed.
    let run = fixture.enqueue("tidy");
    fixture.start(later(2));
    fixture.end(&run, &failed(Class::Guard), later(2));
    fixture.ends(false, &Outcome::Succeeded, later(3));
    assert_eq!(next(&mut fixture, 3), None);
    assert_eq!(next(&mut fixture, 14), None);
    assert_eq!(next(&mut fixture, 15).unwrap(), ["tidy raised", "dream recovered"]);
    // A job's messages wait up to half an hour for its run in progress. A problem that this run
    // ends is not reported.
    fixture.ends(false, &failed(Class::Guard), later(60));
    fixture.enqueue("dream");
    let live = fixture.start(later(60)).remove(0);
    assert_eq!(next(&mut fixture, 61), None);
    fixture.end(&live, &Outcome::Succeeded, later(62));
    assert_eq!(next(&mut fixture, 63), None, "the problem ended before it was reported");
    assert_eq!(fixture.store.alerts(None, AlertSelection::Open).unwrap().len(), 1);
}
