//! Tests that `due` is exact and fast for long periods.

use jiff::civil::time;
use jiff::{SignedDuration, Timestamp};
use runner_engine::policy::{CatchUp, CatchUpScope};
use runner_engine::schedule::{Due, Schedule, Trigger};
use runner_engine::time::boot_time;

use crate::Random;
use crate::expressions::Expression;

fn schedule(trigger: Trigger, zone: &str) -> Schedule {
    Schedule { trigger, zone: zone.into(), ..Schedule::manual() }
}

/// Computes the result of `due` by visiting every scheduled time.
fn walked(schedule: &Schedule, watermark: Timestamp, now: Timestamp, catch_up: &CatchUp) -> Due {
    let next = |after| schedule.next_after(after, watermark).unwrap();
    let mut all = Vec::new();
    let mut at = next(watermark);
    while let Some(due) = at.filter(|due| *due <= now) {
        all.push(due);
        at = next(due);
    }
    let window = match catch_up.which {
        CatchUpScope::None => SignedDuration::from_mins(20),
        _ => catch_up.window.max(SignedDuration::from_mins(20)),
    };
    let most = if catch_up.which == CatchUpScope::All { catch_up.cap as usize } else { 1 };
    let late = all.iter().take_while(|due| now.duration_since(**due) > window).count();
    let fire = all.split_off(late.max(all.len().saturating_sub(most)));
    let missed = all.first().map(|first| runner_engine::schedule::Missed {
        first: *first,
        last: all[all.len() - 1],
        count: all.len() as u64,
    });
    let last = fire.last().or(all.last());
    Due { watermark: last.copied().unwrap_or(watermark), next: at, fire, missed }
}

#[test]
fn due_matches_a_full_walk() {
    let mut dice = Random(11);
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let zones =
        ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "UTC", "America/Nuuk"];
    for round in 0..400 {
        let trigger = match dice.roll(4) {
            0 => Trigger::Every(SignedDuration::from_secs(dice.between(60, 90_000) as i64)),
            1 => Trigger::Daily(time(dice.roll(4) as i8, dice.roll(60) as i8, 0, 0)),
            _ => match Expression::draw(&mut dice).text.parse() {
                Ok(cron) => Trigger::Cron(cron),
                Err(_) => continue,
            },
        };
        let schedule = schedule(trigger, zones[dice.roll(5) as usize]);
        let seconds = |dice: &mut Random, days: u64| {
            SignedDuration::from_secs(dice.roll(days * 86_400) as i64)
        };
        let watermark = start + seconds(&mut dice, 365);
        let days = [1, 8, 40][dice.roll(3) as usize];
        let now = watermark + seconds(&mut dice, days);
        let catch_up = CatchUp {
            which: [CatchUpScope::None, CatchUpScope::Last, CatchUpScope::All]
                [dice.roll(3) as usize],
            window: seconds(&mut dice, 10),
            cap: dice.between(1, 50) as u32,
            ..CatchUp::default()
        };
        let due = schedule.due(watermark, now, &catch_up).unwrap();
        assert_eq!(
            due,
            walked(&schedule, watermark, now, &catch_up),
            "{round}: {} in {} from {watermark} to {now}, {catch_up:?}",
            schedule.trigger,
            schedule.zone
        );
    }
}

#[test]
fn ten_missed_years_are_counted_quickly() {
    let watermark: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
    let now: Timestamp = "2036-01-01T00:00:00Z".parse().unwrap();
    let minutes = u64::try_from(now.duration_since(watermark).as_mins()).unwrap() + 1;
    let all = CatchUp { which: CatchUpScope::All, ..CatchUp::default() };
    let began = boot_time();
    for zone in ["UTC", "Europe/Berlin", "Australia/Lord_Howe"] {
        let due = schedule(Trigger::Cron("* * * * *".parse().unwrap()), zone)
            .due(watermark, now, &all)
            .unwrap();
        assert_eq!(due.fire.len(), 100);
        assert_eq!(due.fire.last(), Some(&now));
        assert_eq!(due.missed.unwrap().count + 100, minutes, "{zone}");
    }
    let due = schedule(Trigger::Every(SignedDuration::from_secs(1)), "UTC")
        .due(watermark, now, &all)
        .unwrap();
    let seconds = u64::try_from(now.duration_since(watermark).as_secs()).unwrap();
    assert_eq!(due.missed.unwrap().count + 100, seconds);
    let daily = schedule(Trigger::Daily(time(2, 30, 0, 0)), "Europe/Berlin");
    let due = daily.due(watermark, now, &CatchUp::default()).unwrap();
    assert_eq!(due.missed.unwrap().count + 1, 3_652);
    // The limit allows for a busy machine. Visiting every scheduled time would take minutes.
    assert!((boot_time() - began).as_secs() < 5);
}
