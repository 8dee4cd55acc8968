//! Parses a limit's reset time from a provider's message, such as "resets 3am (Europe/Berlin)".
//!
//! A time without a date means its next occurrence, and a time without a zone is interpreted in the
//! zone that the caller provides. A date without a time means its midnight. Other text yields
//! `None`. This module must never guess a date that the text does not contain.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _};
use runner_text::MONTHS;

/// Returns the reset time given in `text`, if there is one. A time span starts at `now`. A time
/// without a zone is interpreted in `zone`.
pub(crate) fn reset(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    epoch(text).or_else(|| {
        let lower = text.to_ascii_lowercase();
        let at = ["resets", "reset at", "try again", "available again"]
            .iter()
            .filter_map(|word| Some(lower.find(word)? + word.len()))
            .min()?;
        let rest = text.get(at..)?;
        let words: Vec<&str> = rest
            .split(|c: char| c.is_whitespace() || c == ',' || c == '·')
            .map(|word| word.trim_end_matches(['.', ';', '!']))
            .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("at"))
            .take(12)
            .collect();
        match words.split_first() {
            Some((first, rest)) if first.eq_ignore_ascii_case("in") => {
                now.checked_add(span(rest)?).ok()
            }
            _ => parse_time(&words, now, zone),
        }
    })
}

/// Parses the Unix time in text such as "limit reached|1795326000".
fn epoch(text: &str) -> Option<Timestamp> {
    let (_, rest) = text.split_once('|')?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    if !(10..=10).contains(&digits.len()) {
        return None;
    }
    Timestamp::from_second(digits.parse().ok()?).ok()
}

/// Parses a span such as "5 days 2 hours" or "2h 30m". The result has no unit larger than a second,
/// so it does not depend on a time zone.
fn span(words: &[&str]) -> Option<Span> {
    let mut seconds = 0_i64;
    let mut number = None;
    for word in words {
        let split = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (digits, unit) = word.split_at(split);
        if !digits.is_empty() {
            number = Some(digits.parse::<i64>().ok().filter(|n| *n < 100_000)?);
        }
        let length = match unit.to_ascii_lowercase().trim_end_matches('s') {
            "" if digits.is_empty() && unit.is_empty() => continue,
            "" if unit.is_empty() => continue,
            // Trimming the plural "s" leaves an empty unit for "30s".
            "" | "sec" | "second" => 1,
            "m" | "min" | "minute" => 60,
            "h" | "hr" | "hour" => 3_600,
            "d" | "day" => 86_400,
            "and" if digits.is_empty() => continue,
            _ => break,
        };
        seconds += number.take()? * length;
    }
    (seconds > 0).then(|| seconds.seconds())
}

/// Parses a time such as "Nov 23rd, 2026 3:15 PM", "Oct 6, 1pm (UTC)" or "3am (Europe/Berlin)".
fn parse_time(words: &[&str], now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let (mut month, mut day, mut year, mut time) = (None, None, None, None);
    let mut zone = zone.clone();
    for (at, word) in words.iter().enumerate() {
        let lower = word.to_ascii_lowercase();
        if let Some(name) = word.strip_prefix('(') {
            zone = TimeZone::get(name.trim_end_matches(')')).ok()?;
            break;
        }
        let next = words.get(at + 1).map(|word| word.to_ascii_lowercase());
        if time.is_some() {
            // "am" or "pm" may be a separate word.
            if lower == "am" || lower == "pm" {
                continue;
            }
            match words[at..].iter().find(|word| word.starts_with('(')) {
                Some(_) => continue,
                None => break,
            }
        }
        // Messages never abbreviate a month to fewer than three letters.
        let is_month = |full: &&str| lower.len() >= 3 && full.starts_with(&lower);
        if let Some(found) = MONTHS.iter().position(is_month) {
            month = i8::try_from(found + 1).ok();
        } else if let Some(found) = clock(&lower, next.as_deref()) {
            time = Some(found);
        } else {
            let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            match digits.len() {
                4 => year = digits.parse::<i16>().ok(),
                1 | 2 => day = digits.parse::<i8>().ok(),
                _ => {}
            }
        }
    }
    // A month without a day may be another word, such as "may".
    let time = time.or(month.zip(day).map(|_| Time::midnight()))?;
    let local = now.to_zoned(zone.clone());
    let on = |date: Date| zone.to_timestamp(date.to_datetime(time)).ok();
    match (month, day) {
        (Some(month), Some(day)) => {
            let this = year.unwrap_or(local.year());
            let found = on(Date::new(this, month, day).ok()?)?;
            if year.is_none() && found < now {
                return on(Date::new(this + 1, month, day).ok()?);
            }
            Some(found)
        }
        _ => {
            let today = on(local.date())?;
            if today > now {
                return Some(today);
            }
            on(local.date().tomorrow().ok()?)
        }
    }
}

/// Parses a time of day such as "3am", "3:30pm", "15:30", or "3:15" before "pm".
fn clock(word: &str, next: Option<&str>) -> Option<Time> {
    let (digits, half) = match word.strip_suffix("am").or(word.strip_suffix("pm")) {
        Some(digits) => (digits, Some(&word[digits.len()..])),
        None => (word, next.filter(|next| *next == "am" || *next == "pm")),
    };
    let (hour, minute) = match digits.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour, minute.parse::<i8>().ok()?),
        Some(_) => return None,
        None if half.is_some() => (digits, 0),
        None => return None,
    };
    let hour: i8 = hour.parse().ok()?;
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some("pm") => hour % 12 + 12,
        Some(_) => hour % 12,
        None => hour,
    };
    Time::new(hour, minute, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_times_are_parsed() {
        let now: Timestamp = "2026-11-22T05:00:14Z".parse().unwrap();
        let host = TimeZone::get("America/New_York").unwrap();
        for (text, expected) in [
            ("You've hit your 5-hour limit · resets 5:40am (UTC)", Some("2026-11-22T05:40:00Z")),
            ("limit reached · resets 3am (Europe/Berlin)", Some("2026-11-23T02:00:00Z")),
            ("limit reached ∙ resets 7am (Europe/Berlin)", Some("2026-11-22T06:00:00Z")),
            ("weekly limit · resets Nov 25, 1pm (UTC)", Some("2026-11-25T13:00:00Z")),
            ("weekly limit · resets Jan 2 at 9am (Asia/Tokyo)", Some("2027-01-02T00:00:00Z")),
            ("resets at 1:30 pm", Some("2026-11-22T18:30:00Z")),
            ("resets 12am (UTC)", Some("2026-11-23T00:00:00Z")),
            ("resets 12pm (UTC)", Some("2026-11-22T12:00:00Z")),
            ("Claude AI usage limit reached|1795326000", Some("2026-11-22T05:40:00Z")),
            (
                "hit your usage limit. Try again at Nov 23rd, 2026 3:15 PM.",
                Some("2026-11-23T20:15:00Z"),
            ),
            ("Try again in 5 days 2 hours 3 minutes.", Some("2026-11-27T07:03:14Z")),
            ("try again in 2h 30m", Some("2026-11-22T07:30:14Z")),
            ("Please try again in 20s.", Some("2026-11-22T05:00:34Z")),
            ("Please try again in 1.5s.", None),
            ("resets 3am (Mars/Olympus)", None),
            ("resets soon", None),
            ("resets", None),
            ("please try again later", None),
            ("try again later. You may upgrade", None),
            ("try again later, or decide to upgrade", None),
            ("resets Sept 3rd, 2027 (UTC)", Some("2027-09-03T00:00:00Z")),
            ("try again in a while", None),
            ("resets 25:00 (UTC)", None),
            ("resets 13pm (UTC)", None),
            ("nothing of that kind", None),
        ] {
            let found = reset(text, now, &host).map(|at| at.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn nonexistent_time_moves_past_the_gap() {
        let now: Timestamp = "2026-03-28T23:00:00Z".parse().unwrap();
        let found = reset("resets 2:30am (Europe/Berlin)", now, &TimeZone::UTC).unwrap();
        assert_eq!(found.to_string(), "2026-03-29T01:30:00Z");
    }
}
