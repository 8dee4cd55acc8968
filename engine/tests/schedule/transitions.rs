//! Compares random expressions with the oracle, in every zone and at every transition from 2020 to
//! 2037.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::TimeZone;
use runner_engine::schedule::Cron;
use runner_engine::time::boot_time;

use crate::expressions::Expression;
use crate::oracle::{Rules, Table, day};
use crate::{Random, print_line, setting};

/// The default seed.
const SEED: u64 = 0x6e69_6768_7473;
/// Minimum number of cases at scale 1. A case is a zone, a transition and an expression.
const TRIPLES: f64 = 1_000_000.0;
/// Number of transitions for which each random expression is used.
const REUSE: usize = 16;
/// All scheduled times of a window are compared if the window has at most this many. The counts are
/// always compared.
const WALKED: usize = 40;

struct Case {
    zone: String,
    at: Timestamp,
}

fn cases() -> (usize, Vec<Case>) {
    let begins: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let ends: Timestamp = "2038-01-01T00:00:00Z".parse().unwrap();
    let mut names: Vec<String> = jiff::tz::db()
        .available()
        .map(|name| name.to_string())
        .filter(|name| !name.starts_with("posix/") && !name.starts_with("right/"))
        .collect();
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in &names {
        let zone = TimeZone::get(name).unwrap();
        for edge in zone.following(begins) {
            if edge.timestamp() >= ends {
                break;
            }
            found.push(Case { zone: name.clone(), at: edge.timestamp() });
        }
    }
    (names.len(), found)
}

/// Generates and parses an expression. If the implementation rejects an expression, no day in a
/// whole calendar cycle may match it.
fn expression(dice: &mut Random) -> (Expression, Cron) {
    loop {
        let drawn = Expression::draw(dice);
        match drawn.text.parse::<Cron>() {
            Ok(cron) => {
                assert_eq!(cron.follows_elapsed_time(), drawn.elapsed, "{}", drawn.text);
                return (drawn, cron);
            }
            Err(error) => {
                let ever = date(2000, 1, 1)
                    .series(jiff::Span::new().days(1))
                    .take(146_097)
                    .any(|date| day(&drawn, date, Rules::Debian));
                assert!(!ever, "{error}");
            }
        }
    }
}

/// Compares one case and describes the first difference.
fn compare(
    zone: &TimeZone,
    table: &Table,
    wanted: &Expression,
    cron: &Cron,
    rules: Rules,
    dice: &mut Random,
) -> Result<(), String> {
    let expected = table.times(wanted, rules);
    let differs = |from: Timestamp, expected: String, got: String| {
        Err(format!("from {from}: expected {expected}, got {got}"))
    };
    let counted = cron.count(table.from, table.until, zone);
    if counted != expected.len() as u64 {
        return differs(table.from, format!("{} times", expected.len()), format!("{counted}"));
    }
    let walk = |from: Timestamp, most: usize| {
        let mut ahead = expected.iter().filter(|at| **at > from.as_second()).copied();
        let mut at = from;
        for _ in 0..most {
            let want = ahead.next();
            let got = cron.next_after(at, zone).filter(|got| *got <= table.until);
            let got_second = got.map(|got| got.as_second());
            if want != got_second || got.is_some_and(|got| got.subsec_nanosecond() != 0) {
                let want = want.map(|want| Timestamp::from_second(want).unwrap());
                return differs(at, format!("{want:?}"), format!("{got:?}"));
            }
            let Some(got) = got else { break };
            at = got;
        }
        Ok(())
    };
    if expected.len() <= WALKED {
        walk(table.from, WALKED + 1)?;
    }
    // One walk starts at an arbitrary time in the window, and another near its middle, both with
    // nanosecond precision.
    let width = 4 * 86_400 * 1_000_000_000_u64;
    let near = 4 * 3_600 * 1_000_000_000_u64;
    for ahead in [dice.roll(width), (width - near) / 2 + dice.roll(near)] {
        let from = table.from + jiff::SignedDuration::from_nanos(ahead as i64);
        walk(from, 6)?;
        let left = expected.iter().filter(|at| **at > from.as_second()).count() as u64;
        let counted = cron.count(from, table.until, zone);
        if counted != left {
            return differs(from, format!("{left} times"), format!("{counted}"));
        }
    }
    Ok(())
}

/// Compares at least `triples` cases, unless it finds a difference. Returns the number of cases
/// that match, and the difference.
fn examine(cases: &[Case], triples: f64, rules: Rules, seed: u64) -> (usize, Option<String>) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let each = (triples / cases.len() as f64).ceil().max(1.0) as usize;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failure = Mutex::new(None);
    let stretch = |from: usize| {
        let mut dice = Random(seed ^ (from as u64) << 20);
        let drawn: Vec<_> = (0..each).map(|_| expression(&mut dice)).collect();
        for case in &cases[from..(from + REUSE).min(cases.len())] {
            let zone = TimeZone::get(&case.zone).unwrap();
            let table = Table::around(&zone, case.at);
            for (wanted, cron) in &drawn {
                if let Err(why) = compare(&zone, &table, wanted, cron, rules, &mut dice) {
                    let Case { zone, at } = case;
                    let text = &wanted.text;
                    failure.lock().unwrap().get_or_insert(format!("{zone}, {at}, {text:?}: {why}"));
                    return;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(REUSE, Ordering::Relaxed);
                    if from >= cases.len() || failure.lock().unwrap().is_some() {
                        return;
                    }
                    stretch(from);
                }
            });
        }
    });
    (done.into_inner(), failure.into_inner().unwrap())
}

#[test]
fn every_zone_transition_matches_the_oracle() {
    let began = boot_time();
    let seed: u64 = setting("RUNNER_TEST_SEED", SEED);
    let scale: f64 = setting("RUNNER_TEST_SCALE", 1.0);
    let (zones, cases) = cases();
    assert!(zones > 400 && cases.len() > 5_000, "{zones} zones, {} transitions", cases.len());
    let (triples, failure) = examine(&cases, TRIPLES * scale, Rules::Debian, seed);
    assert!(failure.is_none(), "RUNNER_TEST_SEED={seed} {}", failure.unwrap_or_default());
    print_line(&format!(
        "schedule transitions: {triples} cases, {zones} zones, {} transitions, {:.1} s, seed {seed}",
        cases.len(),
        (boot_time() - began).as_secs_f64(),
    ));
}

#[test]
fn each_wrong_rule_is_detected() {
    let (_, cases) = cases();
    for rules in [Rules::GapSkips, Rules::FoldTwice, Rules::ElapsedAsFixed, Rules::BareStarOnly] {
        let (_, failure) = examine(&cases, 20_000.0, rules, SEED);
        let failure = failure.unwrap_or_else(|| panic!("{rules:?} was not detected"));
        assert!(failure.contains("expected") && failure.contains("got"), "{failure}");
    }
}
