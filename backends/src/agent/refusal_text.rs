//! Classifies a provider's refusal by its status, code and text.
//!
//! Phrases about credit are checked first, because waiting does not restore exhausted credit. A
//! recognized status is checked next, and other phrases are checked only if there is none. This
//! module must interpret only errors that a program or an API reported, never a model's answer.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::reset::reset;
use crate::error::BackendError;
use crate::sink::Limit;

/// An error that a program or an API reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramError<'a> {
    /// The HTTP status returned by the API, if it is known.
    pub status: Option<u16>,
    /// The error's code, from the API or the program.
    pub code: &'a str,
    /// The error message.
    pub text: &'a str,
    /// The usage limit that the provider reported before or with the error, if any.
    pub limit: Option<Limit>,
}

/// The time and zone for interpreting local times.
#[derive(Clone, Debug)]
pub(crate) struct LocalClock {
    pub now: Timestamp,
    /// The zone for times without one: the host's zone for a program, and UTC for an API.
    pub zone: TimeZone,
}

const MONEY: &[&str] = &[
    "credit balance",
    "insufficient_quota",
    "exceeded your current quota",
    "billing_error",
    "out of credits",
    "payment required",
];
const LIMIT: &[&str] = &[
    "rate_limit",
    "rate limit",
    "usage limit",
    "usage_limit",
    "hit your",
    "limit reached",
    "too many requests",
];
/// Phrases that a program prints when it found no credentials and therefore sent none.
const NO_LOGIN: &[&str] = &["not logged in", "missing environment variable"];
const LOGIN: &[&str] = &[
    "please run /login",
    "invalid api key",
    "invalid_api_key",
    "authentication",
    "unauthorized",
    "forbidden",
    "permission_error",
    "oauth token",
    "refresh token",
    "login expired",
    "organization has been disabled",
];
const AWAY: &[&str] = &[
    "overloaded",
    "connection",
    "connect to",
    "econnrefused",
    "timed out",
    "stream disconnected",
    "stream closed",
    "stream ended",
    "error sending request",
    "server_error",
    "internal server error",
    "service unavailable",
    "high demand",
    "reconnecting",
];

/// Returns the error that determines the next step, or `None` if the status, the code and the text
/// are all inconclusive.
pub(crate) fn meaning(
    said: ProgramError<'_>,
    here: &LocalClock,
    why: String,
) -> Option<BackendError> {
    let words = format!("{} {}", said.code, said.text).to_ascii_lowercase();
    let about = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let status = said.status.or_else(|| status_in(&words));
    let limited = |why| {
        let reported = said.limit.filter(|limit| limit.reached);
        let until = reported.and_then(|limit| limit.until);
        let until = until.or_else(|| reset(said.text, here.now, &here.zone));
        BackendError::RateLimited { until, why }
    };
    if status == Some(402) || about(MONEY) {
        return Some(BackendError::OverBudget { why });
    }
    Some(match status {
        Some(429) => limited(why),
        Some(401 | 403) => BackendError::Auth { why },
        Some(408 | 500..=599) => BackendError::Unavailable { why },
        Some(400 | 404 | 405 | 413 | 422) => BackendError::Rejected { why },
        _ if about(LIMIT) => limited(why),
        _ if about(NO_LOGIN) => BackendError::NotLoggedIn { why },
        _ if about(LOGIN) => BackendError::Auth { why },
        _ if about(AWAY) => BackendError::Unavailable { why },
        _ => return None,
    })
}

/// Finds the status in text such as "unexpected status 401 Unauthorized" or "last status: 429".
fn status_in(words: &str) -> Option<u16> {
    words.split("status").skip(1).find_map(|rest| {
        let rest = rest.trim_start_matches([':', ' ', '=']);
        let digits = rest.get(..3)?;
        let whole = !rest[3..].starts_with(|c: char| c.is_ascii_digit());
        let status = digits.parse().ok().filter(|_| whole)?;
        (400..600).contains(&status).then_some(status)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_engine::outcome::Class;

    fn class(status: Option<u16>, code: &str, text: &str) -> Option<Class> {
        let here = LocalClock { now: "2026-11-22T05:00:00Z".parse().unwrap(), zone: TimeZone::UTC };
        let said = ProgramError { status, code, text, limit: None };
        meaning(said, &here, text.to_owned()).map(|error| error.class())
    }

    #[test]
    fn refusals_map_to_classes() {
        use Class::{Auth, Environment, OverBudget, RateLimited};
        for (status, code, text, expected) in [
            (Some(401), "", "Invalid API key · Fix external API key", Some(Auth)),
            (Some(403), "", "Account suspended", Some(Auth)),
            (Some(429), "", "the stub says 429", Some(RateLimited)),
            (Some(529), "", "Repeated 529 Overloaded", Some(RateLimited)),
            (Some(500), "", "", Some(RateLimited)),
            (Some(404), "", "model: nope", Some(Environment)),
            (Some(400), "", "Credit balance is too low", Some(OverBudget)),
            (Some(429), "insufficient_quota", "", Some(OverBudget)),
            (None, "connection_failed", "API Error", Some(RateLimited)),
            (None, "usage_limit_reached", "", Some(RateLimited)),
            (None, "", "Not logged in · Please run /login", Some(Auth)),
            (None, "", "unexpected status 401 Unauthorized: x", Some(Auth)),
            (
                None,
                "",
                "exceeded retry limit, last status: 429 Too Many Requests",
                Some(RateLimited),
            ),
            (None, "", "unexpected status 503 Service Unavailable", Some(RateLimited)),
            (None, "", "stream disconnected before completion", Some(RateLimited)),
            (None, "", "Missing environment variable: `KEY`.", Some(Auth)),
            (None, "", "Quota exceeded. status 4290", None),
            (None, "", "unknown option '--frob'", None),
            (None, "", "status", None),
            (None, "", "status é1", None),
        ] {
            assert_eq!(class(status, code, text), expected, "{status:?} {code} {text}");
        }
    }

    #[test]
    fn missing_login_differs_from_a_rejected_one() {
        let here = LocalClock { now: Timestamp::UNIX_EPOCH, zone: TimeZone::UTC };
        let of = |status, text| {
            let said = ProgramError { status, text, ..ProgramError::default() };
            meaning(said, &here, String::new())
        };
        for text in ["Not logged in · Please run /login", "Missing environment variable: `KEY`."] {
            assert!(matches!(of(None, text), Some(BackendError::NotLoggedIn { .. })), "{text}");
        }
        for (status, text) in [(None, "Invalid API key · Please run /login"), (Some(401), "no")] {
            assert!(matches!(of(status, text), Some(BackendError::Auth { .. })), "{text}");
        }
    }

    #[test]
    fn reported_limit_end_takes_precedence() {
        let here = LocalClock { now: "2026-11-22T05:00:00Z".parse().unwrap(), zone: TimeZone::UTC };
        let reported = Limit {
            until: "2026-11-22T09:00:00Z".parse().ok(),
            reached: true,
            overage: false,
            used: None,
        };
        let until = |limit, text| {
            let said = ProgramError { status: Some(429), text, limit, ..ProgramError::default() };
            match meaning(said, &here, String::new()) {
                Some(BackendError::RateLimited { until, .. }) => until,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(until(Some(reported), "resets 6am (UTC)"), reported.until);
        let words = "2026-11-22T06:00:00Z".parse().ok();
        assert_eq!(until(None, "resets 6am (UTC)"), words);
        let open = Limit { reached: false, ..reported };
        assert_eq!(until(Some(open), "resets 6am (UTC)"), words);
        assert_eq!(until(None, "slow down"), None);
    }
}
