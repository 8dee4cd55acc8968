//! Determines from a provider's headers when the provider will answer again, and how much of a
//! usage limit is used.
//!
//! For the time, the headers are checked in this order: `retry-after-ms`, then `retry-after` in
//! seconds or as a date (RFC 9110), then the reset times of exhausted usage limits
//! (`anthropic-ratelimit-*`, `x-ratelimit-*`). A time in the past is skipped. This module must
//! never guess a time that no header contains.

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

use crate::sink::thousandths;

const PARSER: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

/// Returns the time at which the provider will answer again, if the headers contain a time after
/// `now`.
pub(crate) fn until(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let ahead = |at: &Timestamp| *at > now;
    text("retry-after-ms")
        .and_then(|it| after(now, it.parse::<f64>().ok()? / 1_000.0))
        .filter(ahead)
        .or_else(|| date_or_seconds(text("retry-after")?, now).filter(ahead))
        .or_else(|| exhausted(headers, now).filter(ahead))
}

/// Finds the subscription's most heavily used limit window, if any is reported. Returns how much of
/// that window is used, in thousandths, and when it resets, if reported.
pub(crate) fn used(headers: &HeaderMap, now: Timestamp) -> Option<(u16, Option<Timestamp>)> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let windows = headers.keys().filter_map(|name| {
        let window = name.as_str().strip_suffix("-utilization")?;
        window.starts_with("anthropic-ratelimit-unified").then_some(())?;
        let used = thousandths(text(name.as_str())?.parse().ok()?)?;
        Some((used, text(&format!("{window}-reset")).and_then(|it| parse_time(it, now))))
    });
    windows.max_by_key(|(used, _)| *used)
}

fn date_or_seconds(text: &str, now: Timestamp) -> Option<Timestamp> {
    match text.parse::<f64>() {
        Ok(seconds) => after(now, seconds),
        Err(_) => PARSER.parse_timestamp(text).ok(),
    }
}

/// Returns the time `seconds` after `now`, rounded up to whole seconds, or `None` if the number is
/// impossible.
fn after(now: Timestamp, seconds: f64) -> Option<Timestamp> {
    if !(0.0..1e9).contains(&seconds) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "checked to be below a billion")]
    let whole = seconds.ceil() as i64;
    now.checked_add(SignedDuration::from_secs(whole)).ok()
}

/// Returns the latest reset time of the exhausted limits, if any.
fn exhausted(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let mut latest = None;
    for name in headers.keys().map(|name| name.as_str()) {
        let (rest, ours) = match name.strip_prefix("anthropic-ratelimit-") {
            Some(rest) => (rest, false),
            None => match name.strip_prefix("x-ratelimit-remaining") {
                Some(rest) => (rest, true),
                None => continue,
            },
        };
        let reset = match (ours, rest.strip_suffix("-remaining")) {
            (true, _) => format!("x-ratelimit-reset{rest}"),
            (false, Some(which)) => format!("anthropic-ratelimit-{which}-reset"),
            (false, None) => continue,
        };
        let left = text(name).and_then(|it| it.parse::<f64>().ok());
        if left.is_none_or(|left| left > 0.0) {
            continue;
        }
        let end = text(&reset).and_then(|it| parse_time(it, now));
        latest = latest.max(end);
    }
    latest
}

/// Parses a date, a span such as `6m0s`, a Unix time in seconds or milliseconds, or a number of
/// seconds from `now`.
fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    if let Ok(number) = text.parse::<i64>() {
        return match number {
            1_000_000_000_000.. => Timestamp::from_millisecond(number).ok(),
            1_000_000_000.. => Timestamp::from_second(number).ok(),
            #[allow(clippy::cast_precision_loss, reason = "below a billion")]
            seconds => after(now, seconds as f64),
        };
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        seconds += number
            * match &rest[..letters] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    after(now, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn of(headers: &[(&'static str, &'static str)]) -> Option<String> {
        let headers: HeaderMap = (headers.iter())
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let now = "2026-11-22T05:00:00Z".parse().unwrap();
        until(&headers, now).map(|at| at.to_string())
    }

    #[test]
    fn fullest_window_is_found() {
        let now = "2026-11-22T05:00:00Z".parse().unwrap();
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = (headers.iter())
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect();
            used(&headers, now).map(|(used, until)| (used, until.map(|at| at.as_second())))
        };
        let five = ("anthropic-ratelimit-unified-5h-utilization", "0.42");
        assert_eq!(of(&[five]), Some((420, None)));
        assert_eq!(
            of(&[
                five,
                ("anthropic-ratelimit-unified-7d-utilization", "0.81"),
                ("anthropic-ratelimit-unified-7d-reset", "1795400000"),
            ]),
            Some((810, Some(1_795_400_000)))
        );
        for absurd in ["-1", "1e9", "NaN", "", "101"] {
            assert_eq!(of(&[(five.0, absurd)]), None, "{absurd}");
        }
        assert_eq!(of(&[("anthropic-ratelimit-tokens-remaining", "5")]), None);
    }

    #[test]
    fn known_limit_headers_are_parsed() {
        let at = |text: &str| Some(format!("2026-11-22T{text}Z"));
        assert_eq!(of(&[("retry-after", "120")]), at("05:02:00"));
        assert_eq!(of(&[("retry-after", "1.5")]), at("05:00:02"));
        assert_eq!(of(&[("retry-after", "Sun, 22 Nov 2026 06:30:00 GMT")]), at("06:30:00"));
        // A weekday that does not match the date is ignored.
        assert_eq!(of(&[("retry-after", "Mon, 22 Nov 2026 06:30:00 GMT")]), at("06:30:00"));
        assert_eq!(of(&[("retry-after-ms", "300"), ("retry-after", "60")]), at("05:00:01"));
        assert_eq!(
            of(&[
                ("anthropic-ratelimit-requests-remaining", "5"),
                ("anthropic-ratelimit-requests-reset", "2026-11-22T05:01:00Z"),
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", "2026-11-22T05:20:00Z"),
            ]),
            at("05:20:00")
        );
        assert_eq!(
            of(&[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "6m0s"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "120ms"),
            ]),
            at("05:06:00")
        );
        assert_eq!(
            of(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795323900000")]),
            at("05:05:00")
        );
    }

    #[test]
    fn impossible_times_are_ignored() {
        for bad in ["-5", "0", "soon", "", "NaN", "inf", "1e300", "Sun, 22 Nov 2020 06:30:00 GMT"] {
            assert_eq!(of(&[("retry-after", bad)]), None, "{bad}");
        }
        // The next header may contain a time in the future.
        for past in [("retry-after", "0"), ("retry-after-ms", "0")] {
            let exhausted = ("anthropic-ratelimit-tokens-remaining", "0");
            let reset = ("anthropic-ratelimit-tokens-reset", "2026-11-22T05:20:00Z");
            let ahead = of(&[past, exhausted, reset]);
            assert_eq!(ahead.as_deref(), Some("2026-11-22T05:20:00Z"), "{past:?}");
        }
        assert_eq!(
            of(&[("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", "1s")]),
            None
        );
        assert_eq!(
            of(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6q")]),
            None
        );
    }
}
