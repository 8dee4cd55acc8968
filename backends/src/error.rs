//! The errors that a backend returns instead of an answer.
//!
//! Each variant corresponds to one next step, so a caller never has to parse text to decide. No
//! message contains a secret from a backend's environment. An error must never contain part of an
//! answer, except for the excerpt from a malformed answer.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::outcome::{Class, Outcome};
use serde::{Deserialize, Serialize};

use crate::request::millis;

/// The reason there is no answer. The type is plain data, so that a recording can store it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
pub enum BackendError {
    /// The provider asks the caller to wait: until the given time, or with a backoff if no time is
    /// given.
    #[error("rate-limited{}: {why}", until.map(|until| format!(" until {until}")).unwrap_or_default())]
    RateLimited {
        /// The time at which the provider will answer again, if given.
        until: Option<Timestamp>,
        /// The provider's message.
        why: String,
    },
    /// The provider is overloaded or cannot be reached: try again later.
    #[error("unavailable: {why}")]
    Unavailable {
        /// The attempted action and its result.
        why: String,
    },
    /// No usable credentials were found, so none were sent: log in, or set a key.
    #[error("not logged in: {why}")]
    NotLoggedIn {
        /// The problem, usually with a hint.
        why: String,
    },
    /// The provider rejected the credentials: renew the login or the key.
    #[error("not authorized: {why}")]
    Auth {
        /// The provider's message.
        why: String,
    },
    /// A program or model is missing: install it.
    #[error("{what} was not found: {hint}")]
    NotInstalled {
        /// The program or model.
        what: String,
        /// The places that were searched, and a hint.
        hint: String,
    },
    /// A deadline passed before the answer was complete. The next attempt may succeed, or may need
    /// longer deadlines.
    #[error("{phase} passed after {}", Seconds(*waited))]
    Silent {
        /// The deadline that passed.
        phase: Phase,
        /// How long the run had taken by then.
        #[serde(rename = "waited_ms", with = "millis")]
        waited: Duration,
    },
    /// An answer arrived but is unusable. It must not be repaired.
    #[error("{why}{}", Excerpt(excerpt))]
    Malformed {
        /// A description of the defect.
        why: String,
        /// The beginning of the answer, redacted. It may be empty.
        excerpt: String,
    },
    /// The answer reached its length limit and is incomplete. A shorter answer may fit.
    #[error("the answer was truncated at {most} tokens")]
    Truncated {
        /// The limit, in tokens.
        most: u64,
    },
    /// The provider, or runner's own check, rejects this request: change the request or the
    /// configuration.
    #[error("rejected: {why}")]
    Rejected {
        /// The rejected part and the reason.
        why: String,
    },
    /// The provider's own budget or credit is used up.
    #[error("{why}")]
    OverBudget {
        /// The provider's message.
        why: String,
    },
    /// The request was cancelled.
    #[error("{why}")]
    Cancelled {
        /// The person or event that cancelled the request.
        why: String,
    },
    /// A program failed, was killed because it exceeded a resource limit, or left behind a process
    /// that cannot be killed.
    #[error("{why} ({status}){}", Excerpt(stderr_tail))]
    Crash {
        /// The exit status: `exit 3`, `signal 11`.
        status: String,
        /// The program and how it failed.
        why: String,
        /// The end of its stderr output, redacted.
        stderr_tail: String,
    },
}

/// A deadline for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The time until the provider is reached.
    Connect,
    /// The time until an API's response body or a program's output begins.
    FirstByte,
    /// The maximum time between two signs of activity from the backend.
    Idle,
    /// The total time.
    Total,
}

impl BackendError {
    /// Returns the class of the failure, which determines who must act.
    pub fn class(&self) -> Class {
        match self {
            // An overloaded or unreachable provider is retried later, so nobody needs to act.
            Self::RateLimited { .. } | Self::Unavailable { .. } => Class::RateLimited,
            Self::NotLoggedIn { .. } | Self::Auth { .. } => Class::Auth,
            Self::NotInstalled { .. } => Class::NotInstalled,
            Self::Silent { .. } => Class::Silent,
            Self::Malformed { .. } | Self::Truncated { .. } => Class::Malformed,
            Self::Rejected { .. } => Class::Environment,
            Self::OverBudget { .. } => Class::OverBudget,
            // `outcome` never uses the class of a cancelled run.
            Self::Cancelled { .. } | Self::Crash { .. } => Class::Crash,
        }
    }

    /// Returns the outcome of a run that cannot continue without this answer. A limit that ends
    /// after `now` defers the run, and any other limit fails it.
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        let why = self.to_string();
        match self {
            Self::RateLimited { until: Some(until), .. } if *until > now => {
                Outcome::Deferred { until: *until, why }
            }
            Self::Silent { phase: Phase::Total, .. } => Outcome::TimedOut { why },
            Self::Cancelled { why } => Outcome::Cancelled { why: why.clone() },
            _ => Outcome::Failed { class: self.class(), why },
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "the connect deadline",
            Self::FirstByte => "the first-byte deadline",
            Self::Idle => "the idle deadline",
            Self::Total => "the total deadline",
        })
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

struct Excerpt<'a>(&'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_with_future_end_defers() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let later = Timestamp::from_second(1_790_003_600).unwrap();
        let limited = |until| BackendError::RateLimited { until, why: "5-hour limit".into() };
        assert_eq!(limited(Some(later)).outcome(now).as_str(), "deferred");
        assert_eq!(limited(Some(now)).outcome(now).class(), Some(Class::RateLimited));
        assert_eq!(limited(None).outcome(now).class(), Some(Class::RateLimited));
    }

    #[test]
    fn only_the_total_deadline_times_out() {
        let silent = |phase| BackendError::Silent { phase, waited: Duration::from_millis(1500) };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(silent(Phase::Total).outcome(now).as_str(), "timed-out");
        assert_eq!(silent(Phase::Idle).outcome(now).class(), Some(Class::Silent));
        assert_eq!(silent(Phase::Idle).to_string(), "the idle deadline passed after 1.5 s");
        let cancelled = BackendError::Cancelled { why: "ctrl-c".into() };
        assert_eq!(cancelled.outcome(now), Outcome::Cancelled { why: "ctrl-c".into() });
    }

    #[test]
    fn errors_round_trip_through_json() {
        let error = BackendError::Crash {
            status: "exit 3".into(),
            why: "/opt/x failed".into(),
            stderr_tail: "boom".into(),
        };
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(serde_json::from_str::<BackendError>(&text).unwrap(), error);
        assert_eq!(error.to_string(), "/opt/x failed (exit 3): \"boom\"");
    }
}
