//! Fuzzes cron expressions: an accepted expression has the same times when it is written and parsed
//! again, and its times only increase.
#![no_main]

use jiff::{Timestamp, tz::TimeZone};
use runner_engine::schedule::Cron;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(cron) = text.parse::<Cron>() else { return };
    let again: Cron = cron.to_string().parse().expect("a written expression is accepted");
    let zone = TimeZone::get("Europe/Berlin").expect("the zones are bundled");
    let mut at = Timestamp::from_second(1_774_700_000).unwrap();
    for _ in 0..5 {
        let Some(next) = cron.next_after(at, &zone) else { break };
        assert!(next > at);
        assert_eq!(again.next_after(at, &zone), Some(next));
        at = next;
    }
});
