//! Compares scheduled times with the saved results of cronsim, and checks the rules for expressions
//! and transitions.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::schedule::Cron;

#[test]
fn every_cronsim_row_is_matched() {
    let rows = include_str!("../data/cronsim.tsv").lines().skip(1);
    let (mut met, mut wrong) = (0, Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.split('\t').collect();
        let (text, zone, from, expected) = (cells[2], cells[3], cells[4], cells[5]);
        let cron: Cron = text.parse().unwrap();
        assert_eq!(cron.to_string(), text);
        let zone = TimeZone::get(zone).unwrap();
        let mut at: Timestamp = from.parse().unwrap();
        let expected: Vec<Timestamp> = expected.split(' ').map(|at| at.parse().unwrap()).collect();
        let mut got = Vec::new();
        for _ in &expected {
            at = cron.next_after(at, &zone).unwrap();
            got.push(at);
        }
        if got == expected {
            met += 1;
        } else {
            wrong.push(format!("{row}\n  got {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(met, 1_188);
    crate::print_line(&format!("schedule conformance: {met} rows of cronsim matched"));
}

#[test]
fn invalid_expressions_are_refused() {
    let cases = [
        ("", "but has 0"),
        ("* * * *", "but has 4"),
        ("0 * * * * *", "none for seconds or years"),
        ("0 0 0 1 1 * 2027", "none for seconds or years"),
        ("@reboot", "not a calendar time"),
        ("@fortnightly", "@weekly"),
        ("60 * * * *", "\"60\" in the minute field: \"60\" is not a number from 0 to 59"),
        ("0 MON * * *", "in the hour field"),
        ("0 0 * * MONDAY", "SUN to SAT"),
        ("0 0 * 13 *", "JAN to DEC"),
        ("0 22-2 * * *", "backwards"),
        ("5/10 * * * *", "a step needs *"),
        ("*/0 * * * *", "at least 1"),
        ("1,,2 * * * *", "an item of the list is empty"),
        ("0 0 ? * *", "in the day-of-month field"),
        ("0 0 * * L", "5L for the last Friday"),
        ("0 0 * * 5#6", "1 to 5"),
        ("0 0 L,LW * *", "cannot be combined"),
        ("0 0 1 * +1", "in the day-of-week field"),
        ("0 0 31 2 *", "never be due"),
        ("0 0 30,31 FEB *", "never be due"),
        ("0 0 31 4,6,9,11 */2", "never be due"),
        ("0 0 */31 2 1#5", "never be due"),
    ];
    for (text, why) in cases {
        let error = text.parse::<Cron>().unwrap_err().to_string();
        assert!(error.contains(why), "{text:?}: {error}");
    }
    // These dates are rare but exist, such as a leap day on a Sunday.
    for text in ["0 0 29 2 */7", "0 0 31W * *", "0 0 * 2 1#5", "0 0 31 2 1"] {
        assert!(text.parse::<Cron>().is_ok(), "{text}");
    }
}

#[test]
fn expressions_keep_their_text() {
    let cron: Cron = "  @Daily".parse().unwrap();
    assert_eq!(cron.to_string(), "  @Daily");
    assert_ne!(cron, "0 0 * * *".parse().unwrap());
    let json = serde_json::to_string(&cron).unwrap();
    assert_eq!(json, "\"  @Daily\"");
    assert_eq!(serde_json::from_str::<Cron>(&json).unwrap(), cron);
    assert!(serde_json::from_str::<Cron>("\"0 0 31 2 *\"").is_err());
}

#[test]
fn day_fields_follow_debian_rules() {
    let first = |text: &str, from: &str| {
        let cron: Cron = text.parse().unwrap();
        let from = from.parse().unwrap();
        let at = cron.next_after(from, &TimeZone::UTC).unwrap();
        at.strftime("%F %a").to_string()
    };
    let cases = [
        // If both day fields are restricted, one match is enough.
        ("0 0 13 * 5", "2026-11-10", "2026-11-13 Fri"),
        ("0 0 13 * 5", "2026-11-14", "2026-11-20 Fri"),
        // If a day field begins with a star, both must match.
        ("0 0 */2 * 5", "2026-11-07", "2026-11-13 Fri"),
        ("0 0 20-31 * */5", "2026-11-01", "2026-11-20 Fri"),
        ("0 0 L * *", "2028-02-01", "2028-02-29 Tue"),
        ("0 0 LW * *", "2026-10-31", "2026-11-30 Mon"),
        ("0 0 LW * *", "2026-05-01", "2026-05-29 Fri"),
        ("0 0 1W * *", "2026-07-31", "2026-08-03 Mon"),
        ("0 0 31W * *", "2026-05-02", "2026-05-29 Fri"),
        ("0 0 15W * *", "2026-08-01", "2026-08-14 Fri"),
        ("0 0 * * 5L", "2026-11-01", "2026-11-27 Fri"),
        ("0 0 * * fri#3", "2026-11-01", "2026-11-20 Fri"),
        ("0 0 * * FRI-SUN", "2026-11-14", "2026-11-15 Sun"),
        ("0 0 * * 7", "2026-11-14", "2026-11-15 Sun"),
        ("@monthly", "2026-11-14", "2026-12-01 Tue"),
        ("@weekly", "2026-11-14", "2026-11-15 Sun"),
        ("@annually", "2026-11-14", "2027-01-01 Fri"),
        ("@midnight", "2026-11-14", "2026-11-15 Sun"),
        ("0 0 29 2 */7", "2026-11-14", "2032-02-29 Sun"),
        ("0 0 29 2 */7", "2088-03-01", "2128-02-29 Sun"),
    ];
    for (text, from, expected) in cases {
        assert_eq!(first(text, &format!("{from}T00:00:00Z")), expected, "{text}");
    }
}

#[test]
fn unusual_transitions_follow_the_documentation() {
    let cases = [
        // The clock goes forward by half an hour at 02:00, and back by half an hour at 02:00.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-04T02:30:00+11:00"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00Z", "2026-04-05T01:45:00+11:00"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T14:45:00Z", "2026-04-06T01:45:00+10:30"),
        (
            "Australia/Lord_Howe",
            "*/15 1 5 * *",
            "2026-04-04T14:45:00Z",
            "2026-04-05T01:30:00+10:30",
        ),
        // The gap ends on the day after the requested one.
        ("America/Nuuk", "30 23 28 3 *", "2026-03-01T00:00:00Z", "2026-03-29T00:00:00-01:00"),
        // Two skipped times and an existing time are due once, at the same time.
        ("Europe/Berlin", "0,30 2,3 29 3 *", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"),
        ("Europe/Berlin", "0,30 2,3 29 3 *", "2026-03-29T01:00:00Z", "2026-03-29T03:30:00+02:00"),
        // All of 30 December 2011 is skipped.
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00:00Z", "2011-12-31T00:00:00+14:00"),
        // The hour before midnight is repeated, and the next scheduled time is in the next year.
        ("Africa/Cairo", "*/30 23 29 10 *", "2026-10-29T20:45:00Z", "2026-10-29T23:00:00+02:00"),
        ("Africa/Cairo", "*/30 23 29 10 *", "2026-10-29T21:30:00Z", "2027-10-29T23:00:00+02:00"),
    ];
    for (zone, text, from, expected) in cases {
        let cron: Cron = text.parse().unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let expected: Timestamp = expected.parse().unwrap();
        let got = cron.next_after(from.parse().unwrap(), &zone);
        assert_eq!(got, Some(expected), "{text} in {zone:?} from {from}");
    }
}
