//! Text formats of settings, in addition to those of `runner_text::values`.

use std::marker::PhantomData;

use jiff::SignedDuration;
use jiff::civil::Time;
use runner_engine::ids::ProjectId;
use runner_engine::policy::Quiet;
use runner_engine::publish::RelPath;
use runner_engine::zones;
use runner_jobs::reserved::{NEVER, reserved};
use runner_text::values::{Grammar, LONGEST, folder};
use runner_text::{counted, grammar};
use schemars::JsonSchema;
use serde::Deserialize;

use super::listen::Listen;

pub use runner_text::values::{Size, Span, Text, Wait, duration};

/// Minimum retention of rows in days. `status` shows a week, which must not be pruned.
const LEAST_ROWS: i64 = 8;
const AGE: &str = "[0-9]+ *(d|days?|w|weeks?)";
const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9]";

grammar! {
    /// Whole days, at least one.
    Age: SignedDuration, "90d", AGE, age;
    /// Whole days, at least eight.
    RowsAge: SignedDuration, "90d", AGE, rows_age;
    /// A time of day.
    TimeOfDay: Time, "02:30", TIME, time;
    /// A daily time range, which may span midnight.
    Hours: Quiet, "22:00-06:00", format!("{TIME} ?- ?{TIME}"), quiet;
    /// An IANA time zone, or "system" for the host's zone.
    Zone: String, "Europe/Berlin", "system|[A-Za-z][A-Za-z0-9_+/-]*", zone;
    /// A project folder to which the curator may add files.
    Target: String, "", "", target;
    /// A path on the host, either absolute or relative to the home directory (`~/…`).
    HostPath: String, "~/.aws", "(/|~/).*", host_path;
    /// A host name, with a port if it is not 443.
    HostName: String, "api.anthropic.com", r"[A-Za-z0-9._-]+(:[0-9]+)?", host_name;
    /// A server address: an IP address with a port.
    ListenAddress: Listen, "127.0.0.1:7077", r"([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", listen;
    /// A project id.
    Id: ProjectId, "", "[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}", id;
}

/// The format `G`, or "none".
#[derive(Debug)]
pub struct OrNone<G>(PhantomData<G>);

/// The format `G`, or "unlimited".
#[derive(Debug)]
pub struct OrUnlimited<G>(PhantomData<G>);

/// Implements [`Grammar`] for a format that accepts either another format or a keyword.
macro_rules! or_word {
    ($name:ident, $word:literal) => {
        impl<G: Grammar> Grammar for $name<G> {
            type Value = Option<G::Value>;
            const EXAMPLE: &'static str = G::EXAMPLE;
            const WORD: &'static str = $word;

            fn pattern() -> String {
                format!("{}|{}", $word, G::pattern())
            }

            fn read(text: &str) -> Result<Self::Value, String> {
                if text == $word { Ok(None) } else { G::read(text).map(Some) }
            }
        }
    };
}

or_word!(OrNone, "none");
or_word!(OrUnlimited, "unlimited");

/// A number, or "unlimited", which removes the cap of an earlier layer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Cap<T> {
    Most(T),
    Unlimited(Unlimited),
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Unlimited {
    Unlimited,
}

impl<T> Cap<T> {
    pub fn most(self) -> Option<T> {
        match self {
            Self::Most(most) => Some(most),
            Self::Unlimited(_) => None,
        }
    }
}

/// An amount in dollars.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Dollars(#[schemars(range(min = 0))] pub f64);

impl Dollars {
    /// Converts the amount to millionths of a dollar.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the schema refuses negative numbers, and the cast saturates"
    )]
    pub fn micros(self) -> u64 {
        (self.0 * 1e6).round() as u64
    }
}

/// A setting that is "on" or "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Switch {
    On,
    Off,
}

/// A setting that allows or forbids the network, or lists the only hosts that may be reached.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, inline)]
pub enum NetworkValue {
    All(bool),
    Hosts(#[schemars(length(min = 1))] Vec<Text<HostName>>),
}

// A derived `Deserialize` would not report which host is invalid.
impl<'de> Deserialize<'de> for NetworkValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl<'de> serde::de::Visitor<'de> for NetworkVisitor {
    type Value = NetworkValue;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("true, false or a list of hosts")
    }

    fn visit_bool<E>(self, all: bool) -> Result<NetworkValue, E> {
        Ok(NetworkValue::All(all))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> Result<NetworkValue, A::Error> {
        let list = serde::de::value::SeqAccessDeserializer::new(list);
        Vec::deserialize(list).map(NetworkValue::Hosts)
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    text.parse()
}

fn host_path(text: &str) -> Result<String, String> {
    let below = text.strip_prefix("~/").or_else(|| text.strip_prefix('/'));
    let plain = below.is_some_and(|below| {
        below.split('/').all(|part| !matches!(part, "" | "." | "..")) && !below.contains('\0')
    });
    match plain {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a plain path that starts with / or ~/")),
    }
}

/// Parses a host name and returns `host:port` in lower case, with port 443 unless one is given.
fn host_name(text: &str) -> Result<String, String> {
    let wrong =
        || format!("{text:?} is not a host (like \"api.anthropic.com\" or \"localhost:8080\")");
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let port: u16 = port.parse().map_err(|_| wrong())?;
    match port != 0 && host.len() <= 253 && host.split('.').all(label) {
        true => Ok(format!("{}:{port}", host.to_ascii_lowercase())),
        false => Err(wrong()),
    }
}

fn age(text: &str) -> Result<SignedDuration, String> {
    days(text, 1)
}

fn rows_age(text: &str) -> Result<SignedDuration, String> {
    days(text, LEAST_ROWS)
}

/// Parses an age of at least `least` days, such as "90d", "8 days" or "12 weeks".
fn days(text: &str, least: i64) -> Result<SignedDuration, String> {
    let wrong = || format!("{text:?} is not a number of days (like \"90d\" or \"12 weeks\")");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let days: i64 = match text[digits.len()..].trim() {
        "d" | "day" | "days" => 1,
        "w" | "week" | "weeks" => 7,
        _ => return Err(wrong()),
    };
    let count: i64 = digits.parse().map_err(|_| wrong())?;
    let days = count.checked_mul(days).ok_or_else(wrong)?;
    if days < least {
        return Err(format!("{text:?} is too short (at least {})", counted(least, "day")));
    }
    if days > LONGEST / 24 {
        return Err(format!("{text:?} is too long (ten years at most)"));
    }
    Ok(SignedDuration::from_hours(days * 24))
}

fn zone(text: &str) -> Result<String, String> {
    if text == "system" {
        return Ok(zones::system_name());
    }
    match zones::get(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            Err(format!("unknown time zone {text:?} (like \"Europe/Berlin\", or \"system\")"))
        }
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

fn quiet(text: &str) -> Result<Quiet, String> {
    let (from, to) = text
        .split_once('-')
        .ok_or_else(|| format!("{text:?} is not a range of times (like \"22:00-06:00\")"))?;
    let (from, to) = (time(from.trim())?, time(to.trim())?);
    if from == to {
        return Err(format!(
            "{text:?} starts and ends at the same time (to keep a job from starting, set enabled = false)"
        ));
    }
    Ok(Quiet { from, to })
}

fn id(text: &str) -> Result<ProjectId, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn target(text: &str) -> Result<String, String> {
    let text = folder(text);
    RelPath::new(text).map_err(|error| error.to_string())?;
    match reserved(text, &NEVER) {
        Some(never) => Err(format!("{text:?}: the curator cannot write to {never}")),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_values_are_accepted() {
        assert_eq!(time("02:30").unwrap().to_string(), "02:30:00");
        assert_eq!(rows_age("90d"), Ok(SignedDuration::from_hours(90 * 24)));
        assert_eq!(rows_age("2 weeks"), Ok(SignedDuration::from_hours(14 * 24)));
        for bad in ["", "90", "d", "90h", "-9d", "7d", "4000d", "9999999999999999999w"] {
            assert!(rows_age(bad).is_err(), "{bad}");
        }
        assert_eq!(zone("Asia/Tokyo").as_deref(), Ok("Asia/Tokyo"));
        assert!(zone("Mars/Olympus").is_err());
        for bad in ["2:30", "24:00", "02:60", "02:30:00", "now"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(<OrNone<Age>>::read("none"), Ok(None));
        assert_eq!(<OrUnlimited<Span>>::read("unlimited"), Ok(None));
    }
}
