//! Tests usage reports that are in order, out of order, repeated or invalid.

use proptest::prelude::*;
use runner_backends::{NullSink, ToolResult, VecSink};

use super::*;

fn reserved(tokens: u64, micros: u64) -> Amounts {
    Amounts { calls: 1, tokens, micros, ..Amounts::default() }
}

fn usage(input_tokens: u64, output_tokens: u64, cost_micros: Option<u64>) -> Usage {
    Usage { input_tokens, output_tokens, cached_input_tokens: 0, cost_micros }
}

fn limit(reached: bool, overage: bool) -> Event<'static> {
    Event::Limit(Limit { until: None, reached, overage, used: None })
}

/// Returns the usage observed from these events, and the token that shows whether the request was
/// stopped.
fn heard(reserved: Amounts, overage: bool, events: &[Event<'_>]) -> (ObservedUsage, Cancel) {
    let cancel = Cancel::new().unwrap();
    let mut sink = NullSink;
    let mut meter = UsageMeter::new(reserved, None, overage, cancel.clone(), &mut sink);
    events.iter().for_each(|event| meter.event(*event));
    (meter.observed(), cancel)
}

#[test]
fn exceeding_a_reservation_stops_the_request() {
    let fits = Event::Usage(usage(60, 40, Some(5)));
    let (reported, cancel) = heard(reserved(100, 5), false, &[fits, fits]);
    assert_eq!((reported.breach, cancel.is_cancelled()), (None, false));
    let (reported, cancel) = heard(reserved(99, 5), false, &[fits]);
    let breach = reported.breach.unwrap();
    assert!(cancel.is_cancelled() && cancel.is_at_once());
    assert_eq!(
        breach.to_string(),
        "stopped in the middle of an answer: the request used 100 tokens, but reserved only 99"
    );
    let (reported, _) = heard(reserved(100, 4), false, &[fits]);
    assert!(matches!(reported.breach, Some(LimitExceeded::Over { unit: "micros", .. })));
}

#[test]
fn priced_tokens_count_against_money_reservation() {
    let price = Price { input: 1_000_000, output: 2_000_000, cached: None };
    let cancel = Cancel::new().unwrap();
    let mut sink = VecSink::default();
    let mut meter = UsageMeter::new(reserved(1_000, 29), Some(price), false, cancel, &mut sink);
    meter.event(Event::Usage(usage(10, 9, None)));
    assert_eq!(meter.heard.breach, None);
    meter.event(Event::Usage(usage(10, 10, None)));
    assert!(meter.heard.breach.is_some(), "30 micros exceed the 29 reserved");
    drop(meter);
    assert_eq!(sink.events.len(), 2, "every event is passed on");
}

#[test]
fn unwanted_overage_stops_the_request() {
    let (reported, cancel) = heard(reserved(1, 1), false, &[limit(false, true)]);
    assert_eq!(reported.breach, Some(LimitExceeded::Overage));
    assert!(cancel.why().unwrap().contains("beyond the subscription"));
    let (reported, cancel) = heard(reserved(1, 1), true, &[limit(false, true)]);
    assert_eq!((reported.breach, cancel.is_cancelled()), (None, false));
    let (reported, cancel) = heard(reserved(1, 1), false, &[limit(true, false)]);
    assert!(reported.breach.is_none() && reported.limit.is_some_and(|limit| limit.reached));
    assert!(cancel.is_cancelled(), "a reached limit also stops the request");
}

/// Generates a plausible figure, or an extreme value from a broken child.
fn figure() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..2_000,
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => (i64::MAX as u64 - 2)..=(i64::MAX as u64),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(20_000)))]

    /// Checks that the first event over the limit stops the request, whatever the order of events.
    /// No later event may lower the usage.
    #[test]
    fn event_order_never_delays_the_stop(
        reported in prop::collection::vec((figure(), figure(), prop::option::of(figure())), 0..20),
        tokens_cap in figure(),
        micros_cap in figure(),
    ) {
        let cancel = Cancel::new().unwrap();
        let mut sink = NullSink;
        let mut meter = UsageMeter::new(reserved(tokens_cap, micros_cap), None, false, cancel.clone(), &mut sink);
        let (mut input, mut output, mut money) = (0_u64, 0_u64, 0_u64);
        let mut over = false;
        for (read, written, cost) in &reported {
            meter.event(Event::Usage(usage(*read, *written, *cost)));
            (input, output) = (input.max(*read), output.max(*written));
            money = money.max(cost.unwrap_or(0));
            over |= input.saturating_add(output) > tokens_cap || money > micros_cap;
            prop_assert_eq!(cancel.is_cancelled(), over);
        }
        let heard = meter.observed();
        prop_assert_eq!(heard.breach.is_some(), over);
        if let Some(most) = heard.usage {
            prop_assert_eq!((most.input_tokens, most.output_tokens), (input, output));
            prop_assert_eq!(most.cost_micros.unwrap_or(0), money);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test reads its scale from the environment")]
fn scaled(cases: u32) -> u32 {
    let scale: f64 =
        std::env::var("RUNNER_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(0.1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let cases = (f64::from(cases) * scale) as u32;
    cases.max(256)
}

#[test]
fn first_denied_path_of_a_tool_is_kept() {
    let failed = |error| {
        Event::ToolResult(ToolResult { failed: true, error: Some(error), ..ToolResult::default() })
    };
    let events = [
        failed("Exit code 2: no rule"),
        failed("Exit code 1\nbash: line 1: /etc/x: Permission denied"),
        failed("EROFS: read-only file system, open '/etc/y'"),
    ];
    let (reported, _) = heard(reserved(1, 1), false, &events);
    assert_eq!(reported.failed_tools, 3);
    assert_eq!(reported.denied, Some(DeniedAccess::Path("/etc/x".to_owned())));
}
