//! Parses times on the command line.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

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
}
