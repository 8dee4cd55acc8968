//! Values with units, as people write them.

use jiff::SignedDuration;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// The longest duration, in hours.
const LONGEST: i64 = 10 * 366 * 24;

/// Parses a duration above zero, such as "8h", "90s" or "1h 30m".
pub fn duration(text: &str) -> Result<SignedDuration, String> {
    match wait(text)? {
        SignedDuration::ZERO => Err(no_duration(text)),
        duration => Ok(duration),
    }
}

/// Parses a duration that may be zero, such as "0s".
pub fn wait(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| no_duration(text))?;
    if duration.is_negative() {
        return Err(no_duration(text));
    }
    // The sum of a time and the duration must be a valid time.
    if duration > SignedDuration::from_hours(LONGEST) {
        return Err(format!("{text:?} is out of all measure (ten years at most)"));
    }
    Ok(duration)
}

fn no_duration(text: &str) -> String {
    format!("{text:?} is not a duration (like \"8h\", \"90s\" or \"1h 30m\")")
}

/// Parses an age such as "90d", "8 days" or "12 weeks": whole days, at least `least` of them.
pub fn age(text: &str, least: i64) -> Result<SignedDuration, String> {
    let wrong = || format!("{text:?} is no number of days (like \"90d\" or \"12 weeks\")");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let days: i64 = match text[digits.len()..].trim() {
        "d" | "day" | "days" => 1,
        "w" | "week" | "weeks" => 7,
        _ => return Err(wrong()),
    };
    let count: i64 = digits.parse().map_err(|_| wrong())?;
    let days = count.checked_mul(days).ok_or_else(wrong)?;
    if days < least {
        return Err(format!("{text:?} is too short: {least} days at the least"));
    }
    if days > LONGEST / 24 {
        return Err(format!("{text:?} is out of all measure (ten years at most)"));
    }
    Ok(SignedDuration::from_hours(days * 24))
}

/// Parses a time zone such as "Europe/Berlin", or "system" for the host's zone. The result is an
/// IANA name.
pub fn zone(text: &str) -> Result<String, String> {
    if text == "system" {
        return Ok(TimeZone::system().iana_name().unwrap_or("UTC").to_owned());
    }
    match TimeZone::get(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("unknown time zone {text:?} (like Europe/Berlin)")),
    }
}

/// Parses a time of day such as "02:30".
pub fn time(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is not a time of day (like \"02:30\")");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    if hour.len() != 2 || minute.len() != 2 {
        return Err(wrong());
    }
    let (hour, minute) = (hour.parse().map_err(|_| wrong())?, minute.parse().map_err(|_| wrong())?);
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}

/// Parses a size in bytes such as "512KB", "1MB" or "2GiB", with decimal and binary multiples.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size (like \"512KB\" or \"1MB\")");
    let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text.trim()[digits.len()..].trim().to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_values_are_read_and_bad_ones_refused() {
        assert_eq!(duration("1h 30m").unwrap(), SignedDuration::from_mins(90));
        assert_eq!(time("02:30").unwrap().to_string(), "02:30:00");
        assert_eq!(size("512 KB"), Ok(512_000));
        assert_eq!(size("2MiB"), Ok(2 << 20));
        for bad in ["", "8", "-8h", "0s", "8 parsecs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(age("90d", 8), Ok(SignedDuration::from_hours(90 * 24)));
        assert_eq!(age("2 weeks", 8), Ok(SignedDuration::from_hours(14 * 24)));
        for bad in ["", "90", "d", "90h", "-9d", "7d", "4000d", "9999999999999999999w"] {
            assert!(age(bad, 8).is_err(), "{bad}");
        }
        assert_eq!(wait("0s").unwrap(), SignedDuration::ZERO);
        assert!(wait("-1s").is_err());
        assert_eq!(zone("Asia/Tokyo").as_deref(), Ok("Asia/Tokyo"));
        assert!(zone("Mars/Olympus").is_err());
        for bad in ["2:30", "24:00", "02:60", "02:30:00", "now"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        for bad in ["", "MB", "1XB", "-1MB", "99999999999GB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
