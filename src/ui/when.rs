//! Parses times on the command line.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

/// Parses "2026-11-22T02:30:00Z", "2026-11-22 02:30" or "2026-11-22" in `zone`, "02:30" (the next
/// such time in `zone`), or "2h" (counted from `now`).
pub fn parse_time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, String> {
    let text = text.trim();
    let wrong = || {
        format!(
            "{text:?} is not a time (like 2026-11-22T02:30:00Z, \"2026-11-22 02:30\", 02:30 or 2h)"
        )
    };
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let in_zone = |civil: DateTime| {
        let zoned = zone.to_zoned(civil);
        zoned.map(|zoned| zoned.timestamp()).map_err(|_| wrong())
    };
    if let Ok(civil) = text.parse::<DateTime>() {
        return in_zone(civil);
    }
    if let Ok(time) = text.parse::<Time>()
        && text.contains(':')
    {
        let today = now.to_zoned(zone.clone()).date();
        let at = in_zone(today.to_datetime(time))?;
        if at > now {
            return Ok(at);
        }
        let tomorrow = today.tomorrow().map_err(|_| wrong())?;
        return in_zone(tomorrow.to_datetime(time));
    }
    match text.parse::<SignedDuration>() {
        Ok(ahead) if ahead.is_positive() => now.checked_add(ahead).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Parses "2026-11-22T02:30:00Z", "2026-11-22 02:30" or "2026-11-22" in `zone`, or "7d" (counted
/// back from `now`).
pub fn parse_past_time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is not a time in the past (like 7d, 12h, 2026-11-22 or \"2026-11-22 02:30\")"
        )
    };
    // A span with days has no fixed length without a zone.
    let back = text.trim().parse::<Span>().ok().filter(|span| span.is_positive());
    if let Some(span) = back {
        return now
            .to_zoned(zone.clone())
            .checked_sub(span)
            .map(|at| at.timestamp())
            .map_err(|_| wrong());
    }
    match parse_time(text, zone, now) {
        Ok(at) if at <= now => Ok(at),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_time_formats_are_parsed() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now: Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-11-22T02:30:00Z", "2026-11-22T02:30:00Z"),
            ("2026-11-22T02:30:00+01:00", "2026-11-22T01:30:00Z"),
            ("2026-11-22 02:30", "2026-11-22T01:30:00Z"),
            ("2026-11-22T02:30", "2026-11-22T01:30:00Z"),
            ("2026-11-23", "2026-11-22T23:00:00Z"),
            ("23:30", "2026-11-21T22:30:00Z"),
            ("22:30", "2026-11-22T21:30:00Z"),
            ("2h", "2026-11-22T00:00:00Z"),
            ("1h 30m", "2026-11-21T23:30:00Z"),
        ] {
            assert_eq!(
                parse_time(text, &zone, now).map(|at| at.to_string()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
        for bad in ["", "soon", "25:00", "-2h", "2026-13-01 00:00"] {
            assert!(parse_time(bad, &zone, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn past_times_are_parsed() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now: Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("7d", "2026-11-14T22:00:00Z"),
            ("12h", "2026-11-21T10:00:00Z"),
            ("1w", "2026-11-14T22:00:00Z"),
            ("2026-11-20", "2026-11-19T23:00:00Z"),
            ("2026-11-20 02:30", "2026-11-20T01:30:00Z"),
        ] {
            let parsed = parse_past_time(text, &zone, now).map(|at| at.to_string());
            assert_eq!(parsed, Ok(expected.to_owned()), "{text}");
        }
        for bad in ["", "yesterday", "2027-01-01", "-7d", "99999y"] {
            assert!(parse_past_time(bad, &zone, now).is_err(), "{bad}");
        }
    }
}
