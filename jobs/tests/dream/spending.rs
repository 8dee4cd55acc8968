//! Tests a pass's spending: answers that cost too much, answers without a price, and providers that
//! refuse requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use runner_backends::{
    Backend, BackendError, Description, Event, Limit, Reply, Request, Sink, Stop, ToolResult, Usage,
};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process::{Cancel, ChildSandbox, ChildSpec, Limits, OutputVerdict, Stdin, run};
use runner_engine::store::{Origin, RunRow};
use runner_engine::time::boot_time;
use runner_jobs::prices::{Price, Prices};
use runner_jobs::{SettledRun, Silent, Spending};

use crate::fixture::{Fixture, start};

/// A backend that sends `events` and then finishes as `end` specifies.
struct EventBackend {
    events: Vec<Event<'static>>,
    end: End,
    seen: Mutex<Option<String>>,
}

#[derive(Clone)]
enum End {
    /// Waits until it is stopped.
    Waits,
    /// Runs a real program that ignores TERM, until it is stopped.
    Stubborn,
    /// Sends the rule-based answer, with this usage.
    Answers(Option<Usage>),
    Fails(BackendError),
}

#[async_trait]
impl Backend for EventBackend {
    fn name(&self) -> &str {
        "teller"
    }

    fn describe(&self) -> Description {
        Description {
            kind: "teller".to_owned(),
            model: Some("teller-1".to_owned()),
            containment: String::new(),
            sandbox: None,
        }
    }

    fn preflight(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        let send = |sink: &mut dyn Sink| self.events.iter().for_each(|event| sink.event(*event));
        if !matches!(self.end, End::Stubborn) {
            send(sink);
        }
        match self.end.clone() {
            End::Waits => {
                let why = cancel.cancelled().await;
                *self.seen.lock().unwrap() = Some(why.clone());
                Err(BackendError::Cancelled { why })
            }
            End::Stubborn => {
                let spec = ChildSpec {
                    program: "/bin/sh".into(),
                    args: vec!["-c".into(), "trap '' TERM; echo on; exec sleep 60".into()],
                    cwd: "/".into(),
                    env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
                    stdin: Stdin::Null,
                    limits: Limits::default(),
                    marker: request.id.clone(),
                    sandbox: ChildSandbox::Off,
                };
                let token = cancel.clone();
                let (started, has_started) = tokio::sync::oneshot::channel();
                let mut started = Some(started);
                let work = move || {
                    run(&spec, &token, &mut |_, _| {
                        started.take().map(|started| started.send(()));
                        OutputVerdict::Continue
                    })
                };
                let work = tokio::task::spawn_blocking(work);
                has_started.await.unwrap();
                send(sink);
                let ended = work.await.unwrap().unwrap();
                assert_eq!(ended.survivors, 0);
                let why = cancel.why().unwrap();
                Err(BackendError::Cancelled { why })
            }
            End::Answers(usage) => Ok(Reply {
                text: request.rule_answer.to_string(),
                value: Some(request.rule_answer.clone()),
                usage,
                stop: Stop::End,
                notes: Vec::new(),
            }),
            End::Fails(error) => Err(error),
        }
    }
}

fn usage(tokens: u64, cost_micros: Option<u64>) -> Usage {
    Usage { input_tokens: tokens, output_tokens: 0, cached_input_tokens: 0, cost_micros }
}

fn place() -> Fixture {
    let mut place = Fixture::new();
    place.write("ideas/a.md", "Maybe use a shorter name?\n");
    place.spending = Spending { pool: "max".to_owned(), ..Spending::default() };
    place
}

fn pass(place: &mut Fixture, events: &[Event<'static>], end: End) -> (SettledRun, RunRow) {
    // Each pass needs a changed idea to ask about.
    let round = place.store.runs(&Default::default()).unwrap().len();
    place.write("ideas/a.md", format!("Maybe use shorter names, {round}?\n"));
    let backend = EventBackend { events: events.to_vec(), end, seen: Mutex::default() };
    let settled = place.pass_with(Arc::new(backend), &mut Silent);
    let row = place.store.runs(&Default::default()).unwrap().remove(0);
    (settled, row)
}

/// Returns the time of a fixture's `n`th pass.
fn at(n: i64) -> Timestamp {
    start().saturating_add(SignedDuration::from_hours(n)).unwrap()
}

#[test]
fn an_expensive_answer_is_stopped_and_charged() {
    // Each of the three calls may use a third of a million tokens and micros.
    for (reported, unit) in [(usage(400_000, None), "tokens"), (usage(10, Some(400_000)), "micros")]
    {
        for end in [End::Waits, End::Stubborn] {
            let mut place = place();
            let began = boot_time();
            let (settled, row) =
                pass(&mut place, &[Event::Text("on it"), Event::Usage(reported)], end);
            let took = boot_time() - began;
            assert!(took < Duration::from_secs(4), "{took:?}");
            assert_eq!(settled.outcome.class(), Some(Class::OverBudget), "{settled:?}");
            assert!(settled.outcome.why().unwrap().contains(unit), "{settled:?}");
            let spent = place.store.spent_by(&row.id).unwrap();
            assert!(spent.tokens >= reported.input_tokens, "{spent:?}");
            assert!(spent.micros >= reported.cost_micros.unwrap_or(0), "{spent:?}");
            assert_eq!(place.store.unstated_calls(&row.id).unwrap(), 1);
        }
    }
}

#[test]
fn exhausted_time_budget_is_over_budget_not_timeout() {
    let mut place = place();
    place.seconds = Some(1);
    let (settled, _) = pass(&mut place, &[], End::Waits);
    assert_eq!(
        settled.outcome,
        Outcome::Failed {
            class: Class::OverBudget,
            why: "stopped: the run's time budget of 1 s is used up".to_owned(),
        }
    );
}

#[test]
fn complete_answer_over_budget_is_used_and_charged() {
    let mut place = place();
    let reported = usage(400_000, Some(7));
    let (settled, row) = pass(&mut place, &[Event::Usage(reported)], End::Answers(Some(reported)));
    assert!(settled.outcome.published(), "{settled:?}");
    let spent = place.store.spent_by(&row.id).unwrap();
    assert_eq!((spent.tokens, spent.micros), (400_000, 7));
    assert_eq!(place.store.unstated_calls(&row.id).unwrap(), 0);
}

#[test]
fn unpriced_tokens_charge_reserved_money() {
    let mut place = place();
    let end = End::Answers(Some(usage(1_000, None)));
    let (_, row) = pass(&mut place, &[], end.clone());
    let spent = place.store.spent_by(&row.id).unwrap();
    assert_eq!((spent.tokens, spent.micros), (1_000, 333_333));
    assert_eq!(place.store.unpriced_calls(&row.id).unwrap(), 1);
    let price = Price { input: 3_000_000, output: 1, cached: None };
    place.spending.prices = Prices(BTreeMap::from([("teller-1".to_owned(), price)]));
    let (_, row) = pass(&mut place, &[], end);
    assert_eq!(place.store.spent_by(&row.id).unwrap().micros, 3_000);
    assert_eq!(place.store.unpriced_calls(&row.id).unwrap(), 0);
    let (_, row) = pass(&mut place, &[], End::Answers(None));
    let spent = place.store.spent_by(&row.id).unwrap();
    assert_eq!((spent.tokens, spent.micros), (333_333, 333_333));
    assert_eq!(place.store.unstated_calls(&row.id).unwrap(), 1);
}

#[test]
fn failure_with_zero_usage_charges_only_call() {
    let nothing = Event::Usage(usage(0, Some(0)));
    let cannot = End::Fails(BackendError::Unavailable { why: "overloaded".to_owned() });
    for (events, end, free) in [
        (&[nothing][..], cannot.clone(), true),
        // Nothing was reported.
        (&[], cannot.clone(), false),
        // Something was used.
        (&[Event::Usage(usage(3, None))], cannot.clone(), false),
        // The usage of a partial answer may be incomplete.
        (&[nothing, Event::Text("on it")], cannot, false),
        // The request was interrupted, so the usage reported so far is not final.
        (&[nothing], End::Fails(BackendError::Cancelled { why: "stopped".to_owned() }), false),
    ] {
        let mut place = place();
        let (settled, row) = pass(&mut place, events, end);
        assert!(!settled.outcome.published(), "{settled:?}");
        let spent = place.store.spent_by(&row.id).unwrap();
        assert_eq!((spent.calls, spent.tokens == 0), (1, free), "{events:?}: {spent:?}");
    }
}

#[test]
fn only_a_reported_total_replaces_reservations() {
    let cut = End::Fails(BackendError::Malformed {
        why: "the answer was truncated".to_owned(),
        excerpt: String::new(),
    });
    let stopped = End::Fails(BackendError::Cancelled { why: "stopped".to_owned() });
    let total = |tokens, micros| Event::Total(usage(tokens, micros));
    let partly = Event::Usage(usage(7, Some(9)));
    // Each of the three calls gets a third of a million of each unit.
    const RESERVED: u64 = 333_333;
    let cases: [(&[Event<'static>], &End, (u64, u64)); 7] = [
        (&[Event::Text("half"), total(50, Some(40))], &cut, (50, 40)),
        (&[partly, total(50, Some(40))], &stopped, (50, 40)),
        // The tokens were reported. A cost that is neither reported nor derivable from a price is
        // charged as reserved.
        (&[total(50, None)], &cut, (50, RESERVED)),
        // A child that lowers its figures is not trusted.
        (&[Event::Usage(usage(90, Some(95))), total(50, Some(40))], &cut, (90, 95)),
        // Usage above the reservation is charged as reported.
        (&[total(400_000, Some(1))], &End::Waits, (400_000, 1)),
        // The usage so far is not a total, and a total of zero after output is not trusted.
        (&[partly], &cut, (RESERVED, RESERVED)),
        (&[Event::Text("half"), total(0, Some(0))], &stopped, (RESERVED, RESERVED)),
    ];
    for (events, end, charged) in cases {
        let mut place = place();
        let (settled, row) = pass(&mut place, events, end.clone());
        assert!(!settled.outcome.published(), "{settled:?}");
        let spent = place.store.spent_by(&row.id).unwrap();
        assert_eq!(
            (spent.calls, spent.tokens, spent.micros),
            (1, charged.0, charged.1),
            "{events:?}"
        );
    }
}

#[test]
fn failed_tool_calls_are_reported() {
    let used = |failed| Event::ToolResult(ToolResult { failed, ..ToolResult::default() });
    for (events, expected) in [
        (&[used(true), used(false), used(true)][..], Some("2 uses of tools failed")),
        (&[used(false)], None),
    ] {
        for end in
            [End::Answers(None), End::Fails(BackendError::Unavailable { why: "gone".to_owned() })]
        {
            let mut place = place();
            let (settled, _) = pass(&mut place, events, end);
            let lines = settled.summary.lines.join("\n");
            assert_eq!(lines.contains("tools failed"), expected.is_some(), "{lines}");
            assert!(expected.is_none_or(|text| lines.contains(text)), "{lines}");
        }
    }
}

#[test]
fn answer_does_not_clear_newer_limit() {
    let mut place = place();
    let now = at(1);
    place.store.note_limit("max", Some(at(9)), "others met it", now).unwrap();
    let (settled, _) = pass(&mut place, &[], End::Answers(Some(usage(1, Some(1)))));
    assert!(settled.outcome.published(), "{settled:?}");
    let limit = place.store.limit("max", at(2)).unwrap();
    assert_eq!(limit.map(|limit| limit.until), Some(at(9)));
}

#[test]
fn overage_stops_and_limits_the_pool() {
    let mut place = place();
    let reset = at(5);
    let overage =
        Event::Limit(Limit { until: Some(reset), reached: false, overage: true, used: None });
    let answer = End::Answers(Some(usage(5, Some(5))));
    for end in [End::Waits, answer.clone()] {
        let (settled, _) = pass(&mut place, &[overage], end);
        assert_eq!(settled.outcome.class(), Some(Class::OverBudget));
        let why = settled.outcome.why().unwrap();
        assert!(why.contains("beyond the subscription"), "{why}");
        let limit = place.store.limit("max", at(2)).unwrap().unwrap();
        assert_eq!(limit.until, reset);
    }
    place.spending.overage = true;
    let (settled, _) = pass(&mut place, &[overage], answer);
    assert!(settled.outcome.published(), "{settled:?}");
    assert_eq!(place.store.limit("max", at(2)).unwrap(), None, "permitted overage set a limit");
}

#[test]
fn pool_leaves_a_part_of_the_window() {
    let window = |used| {
        Event::Limit(Limit { until: Some(at(5)), reached: false, overage: false, used: Some(used) })
    };
    let answer = || End::Answers(Some(usage(5, Some(5))));
    for (leave, used, waits) in
        [(250, 740, false), (250, 750, true), (250, 1000, true), (0, 1000, false)]
    {
        let mut place = place();
        place.spending.leave = leave;
        // The less used window does not replace the fuller one.
        let (settled, _) = pass(&mut place, &[window(used), window(10)], answer());
        assert!(settled.outcome.published(), "a paid answer was discarded: {settled:?}");
        let limit = place.store.limit("max", at(2)).unwrap();
        assert_eq!(
            limit.as_ref().map(|limit| limit.until),
            waits.then_some(at(5)),
            "{leave} {used}"
        );
        if let Some(limit) = limit {
            assert!(limit.why.contains("the pool reserves 25 %"), "{}", limit.why);
        }
    }
}

#[test]
fn limit_of_a_pool_stops_the_calls_of_admitted_runs() {
    let mut place = place();
    place.origin = Origin::Clock;
    place.spec.quiet_minutes = 0;
    place.store.note_limit("max", Some(at(9)), "others met it", at(0)).unwrap();
    let (settled, row) = pass(&mut place, &[], End::Answers(Some(usage(1, Some(1)))));
    let Outcome::Deferred { until, why } = settled.outcome else { panic!("{settled:?}") };
    assert!(at(9) <= until && why.contains("others met it"), "{until} {why}");
    assert_eq!(place.store.spent_by(&row.id).unwrap().calls, 0);
}

#[test]
fn rate_limited_run_is_deferred_and_charged() {
    let mut place = place();
    let limited =
        |until| End::Fails(BackendError::RateLimited { until, why: "5-hour limit".to_owned() });
    let (settled, row) = pass(&mut place, &[], limited(Some(at(9))));
    let Outcome::Deferred { until, .. } = settled.outcome else { panic!("{settled:?}") };
    assert!(at(9) <= until && until <= at(9).saturating_add(SignedDuration::from_mins(1)).unwrap());
    let spent = place.store.spent_by(&row.id).unwrap();
    assert_eq!((spent.calls, spent.tokens, spent.micros), (1, 0, 0));
    assert_eq!(place.store.limit("max", at(8)).unwrap().unwrap().streak, 1);
    // Without a reset time in the future, runner chooses how long to wait. Each wait that did not
    // help is followed by a longer one.
    place.store.clear_limit("max", at(9), at(9)).unwrap();
    let mut waits = Vec::new();
    for reset in [None, Some(at(1)), None] {
        let (settled, row) = pass(&mut place, &[], limited(reset));
        let Outcome::Deferred { until, why } = settled.outcome else { panic!("{settled:?}") };
        assert!(why.contains("asked again after"), "{why}");
        waits.push(until.duration_since(row.started().unwrap()).as_mins());
    }
    assert!(
        waits[0] < 7 && (10..12).contains(&waits[1]) && (20..22).contains(&waits[2]),
        "{waits:?}"
    );
    // A reported limit ends a request that receives nothing else.
    let reached =
        Event::Limit(Limit { until: Some(at(20)), reached: true, overage: false, used: None });
    let (settled, row) = pass(&mut place, &[reached], End::Waits);
    assert!(matches!(settled.outcome, Outcome::Deferred { .. }), "{settled:?}");
    let spent = place.store.spent_by(&row.id).unwrap();
    assert_eq!((spent.calls, spent.tokens, spent.micros), (1, 0, 0), "it is charged its call only");
    let (settled, _) = pass(&mut place, &[], End::Answers(Some(usage(1, Some(1)))));
    assert!(settled.outcome.published());
    assert_eq!(place.store.limit("max", at(8)).unwrap(), None);
}
