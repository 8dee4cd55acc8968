//! Describes each trigger in one plain sentence.
//!
//! croner's own descriptions do not match the times at which a job is due. croner describes every
//! stepped range as a plain interval (`0-20/2` as "every 2 hours") and `LW` as `L`. It also uses a
//! different rule when both day fields are restricted. This module describes the items as the user
//! wrote them.

use crate::zones;
use jiff::civil::Date;

use super::cron::Cron;
use super::fields::{FieldItem, Fields, any, spelled};
use super::{After, On, Schedule, Trigger};

const ONCE: &str = "a time that a clock change skips is due at the end of the gap, and one that a clock change repeats is due once";
const ELAPSED: &str = "across clock changes it follows elapsed time: a gap adds no run, and a repeated hour is due both times";
impl Schedule {
    /// Describes when the job is due, as one sentence without a full stop.
    pub fn describe(&self) -> String {
        let moves = zones::get(&self.zone).is_ok_and(|zone| zone.to_fixed_offset().is_err());
        let (what, rule) = match &self.trigger {
            Trigger::Manual => return "only when it is started manually".to_owned(),
            Trigger::Every(period) => {
                return format!("every {period:#} of elapsed time, independent of the wall clock");
            }
            Trigger::After(After { job, on }) => {
                return match on {
                    On::Success => format!("after each successful run of {job}"),
                    On::End => format!("after each run of {job}, whether it succeeds or fails"),
                };
            }
            Trigger::Daily(time) => (format!("at {} each day", time.strftime("%H:%M")), ONCE),
            Trigger::Cron(cron) => {
                let rule = if cron.follows_elapsed_time() { ELAPSED } else { ONCE };
                (cron.describe(), rule)
            }
        };
        let zone = &self.zone;
        if moves { format!("{what}, in {zone}; {rule}") } else { format!("{what}, in {zone}") }
    }
}

impl Cron {
    /// Describes the scheduled times as part of a sentence.
    pub fn describe(&self) -> String {
        // Parsing does not fail, because the expression was parsed before.
        let fields = spelled(&self.to_string()).and_then(|text| Fields::read(&text));
        let Ok(fields) = fields else {
            return format!("at the scheduled times of {self}");
        };
        let (time, of_day) = time(&fields);
        let days = days(&fields);
        let months = match any(&fields.month) {
            true => String::new(),
            false => format!(" in {}", list(&fields.month, "and", month)),
        };
        match days {
            None if of_day && months.is_empty() => format!("{time} each day"),
            None => format!("{time}{months}"),
            Some(days) if months.is_empty() => format!("{time} {days}"),
            Some(days) => format!("{time} {days},{months}"),
        }
    }
}

/// Describes the time of day, and returns whether "each day" must follow the description.
fn time(fields: &Fields) -> (String, bool) {
    let (minute, hour) = (&fields.minute, &fields.hour);
    let one = |item: &FieldItem| match item {
        FieldItem::One(value) => Some(*value),
        _ => None,
    };
    let ones = |items: &[FieldItem]| items.iter().map(one).collect::<Option<Vec<u16>>>();
    if let (Some(mut minutes), Some(mut hours)) = (ones(minute), ones(hour))
        && minutes.len() * hours.len() <= 6
    {
        for values in [&mut minutes, &mut hours] {
            values.sort_unstable();
            values.dedup();
        }
        let times = hours
            .iter()
            .flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return (format!("at {}", joined(times.collect(), "and")), true);
    }
    let minutes = match minute.as_slice() {
        [FieldItem::All { step: 1 }] => "every minute".to_owned(),
        [FieldItem::All { step }] if 60 % step == 0 => format!("every {step} minutes"),
        items => format!("at {}", clock("minute", items)),
    };
    let joint = if minutes.starts_with("every") { "of" } else { "past" };
    let hours = match hour.as_slice() {
        [FieldItem::All { step: 1 }] if joint == "of" => String::new(),
        [FieldItem::All { step: 1 }] => " past every hour".to_owned(),
        items => format!(" {joint} {}", clock("hour", items)),
    };
    (minutes + &hours, false)
}

/// Describes the days according to Debian's rule. Returns `None` if every day matches.
fn days(fields: &Fields) -> Option<String> {
    let (day, weekday) = (&fields.day, &fields.weekday);
    match (any(day), any(weekday)) {
        (true, true) => None,
        (false, true) => Some(format!("on {}", list(day, "and", of_month))),
        (true, false) => Some(format!("on {}", list(weekday, "and", of_week))),
        (false, false) if fields.both_days() => Some(format!(
            "on {} when that is also {}",
            list(day, "or", of_month),
            list(weekday, "or", of_week)
        )),
        (false, false) => Some(format!(
            "on {}, and also on {}",
            list(day, "and", of_month),
            list(weekday, "and", of_week)
        )),
    }
}

/// Describes the items of the minute or hour field, including the field's name.
fn clock(unit: &str, items: &[FieldItem]) -> String {
    let one = |item: &FieldItem| spans(item, "", 0, |value| value.to_string());
    match items {
        [only @ (FieldItem::All { .. } | FieldItem::Range { step: 2.., .. })] => {
            spans(only, &format!(" {unit}"), 0, |value| value.to_string())
        }
        [only @ FieldItem::One(_)] => format!("{unit} {}", one(only)),
        _ => format!("{unit}s {}", list(items, "and", one)),
    }
}

fn month(item: &FieldItem) -> String {
    spans(item, " month", 1, month_name)
}

fn of_month(item: &FieldItem) -> String {
    match item {
        FieldItem::Last => "the last day of the month".to_owned(),
        FieldItem::LastWorking => "the last weekday (Monday to Friday) of the month".to_owned(),
        FieldItem::Near(day) => {
            format!("the weekday (Monday to Friday) nearest to the {}", nth(*day))
        }
        _ => spans(item, " day", 1, |value| format!("the {}", nth(value))),
    }
}

fn of_week(item: &FieldItem) -> String {
    match item {
        FieldItem::Nth { day, nth: at } => {
            format!("the {} {} of the month", nth(*at), weekday_name(*day))
        }
        FieldItem::LastOf(day) => format!("the last {} of the month", weekday_name(*day)),
        _ => spans(item, " day", 0, |value| weekday_name(value % 7)),
    }
}

/// Describes values, ranges and steps of any field. `unit` follows the number of a step and
/// includes its leading space. `low` is the smallest value that `*` matches.
fn spans(item: &FieldItem, unit: &str, low: u16, value: impl Fn(u16) -> String) -> String {
    match item {
        FieldItem::One(one) => value(*one),
        FieldItem::Range { from, to, step: 1 } => format!("{} to {}", value(*from), value(*to)),
        FieldItem::Range { from, to, step } => {
            format!("each {}{unit} from {} to {}", nth(*step), value(*from), value(*to))
        }
        FieldItem::All { step: 1 } => format!("each{unit}"),
        FieldItem::All { step } => format!("each {}{unit} from {}", nth(*step), value(low)),
        FieldItem::Last
        | FieldItem::LastWorking
        | FieldItem::Near(_)
        | FieldItem::Nth { .. }
        | FieldItem::LastOf(_) => String::new(),
    }
}

fn list(items: &[FieldItem], last: &str, words: impl Fn(&FieldItem) -> String) -> String {
    joined(items.iter().map(words).collect(), last)
}

fn joined(mut parts: Vec<String>, last: &str) -> String {
    match parts.pop() {
        None => String::new(),
        Some(only) if parts.is_empty() => only,
        Some(end) => format!("{} {last} {end}", parts.join(", ")),
    }
}

/// Returns the English name of a month, from 1.
fn month_name(month: u16) -> String {
    let first = i8::try_from(month).ok().and_then(|month| Date::new(2000, month, 1).ok());
    first.map_or_else(|| month.to_string(), |first| first.strftime("%B").to_string())
}

/// Returns the English name of a weekday, from 0 for Sunday.
fn weekday_name(day: u16) -> String {
    let first = i8::try_from(day).ok().and_then(|day| Date::new(2000, 10, day + 1).ok());
    first.map_or_else(|| day.to_string(), |first| first.strftime("%A").to_string())
}

fn nth(value: u16) -> String {
    let ending = match (value % 10, value % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{value}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_expressions_are_described_in_words() {
        let cases = [
            ("* * * * *", "every minute"),
            ("*/15 * * * *", "every 15 minutes"),
            ("*/7 * * * *", "at each 7th minute from 0 past every hour"),
            ("30 2 * * *", "at 02:30 each day"),
            ("@daily", "at 00:00 each day"),
            ("@hourly", "at minute 0 past every hour"),
            ("0,30 9-17 * * MON-FRI", "at minutes 0 and 30 past hours 9 to 17 on Monday to Friday"),
            ("*/5 9-17 * * *", "every 5 minutes of hours 9 to 17"),
            ("23 0-20/2 * * *", "at minute 23 past each 2nd hour from 0 to 20"),
            ("0 0,12 1 */2 *", "at 00:00 and 12:00 on the 1st, in each 2nd month from January"),
            ("1,10-20/5 3 * * *", "at minutes 1 and each 5th from 10 to 20 past hour 3"),
            ("0 0 13 * 5", "at 00:00 on the 13th, and also on Friday"),
            ("0 0 */2 * 5", "at 00:00 on each 2nd day from the 1st when that is also Friday"),
            ("0 0 13 * */2", "at 00:00 on the 13th when that is also each 2nd day from Sunday"),
            (
                "0 12 L,15W * *",
                "at 12:00 on the last day of the month and the weekday (Monday to Friday) nearest to the 15th",
            ),
            (
                "0 12 LW JAN,mar-may *",
                "at 12:00 on the last weekday (Monday to Friday) of the month, in January and March to May",
            ),
            (
                "0 9 * * 1#1,5L",
                "at 09:00 on the 1st Monday of the month and the last Friday of the month",
            ),
            ("0 0 * 2 *", "at 00:00 in February"),
            ("0 4 8-14 * *", "at 04:00 on the 8th to the 14th"),
        ];
        for (text, words) in cases {
            assert_eq!(text.parse::<Cron>().unwrap().describe(), words, "{text}");
        }
    }

    #[test]
    fn descriptions_mention_clock_changes() {
        let words = |trigger, zone: &str| {
            let night = None;
            let zone = zone.to_owned();
            Schedule { trigger, zone, night }.describe()
        };
        let daily = || Trigger::Daily(jiff::civil::time(2, 30, 0, 0));
        assert_eq!(
            words(daily(), "Europe/Berlin"),
            "at 02:30 each day, in Europe/Berlin; a time that a clock change skips is due at the end of the gap, and one that a clock change repeats is due once"
        );
        assert_eq!(words(daily(), "UTC"), "at 02:30 each day, in UTC");
        let cron = Trigger::Cron("*/5 * * * *".parse().unwrap());
        assert!(words(cron, "Europe/Berlin").contains("follows elapsed time"));
        let every = Trigger::Every(jiff::SignedDuration::from_mins(90));
        assert_eq!(
            words(every, "UTC"),
            "every 1h 30m of elapsed time, independent of the wall clock"
        );
        assert_eq!(words(Trigger::Manual, "UTC"), "only when it is started manually");
    }
}
