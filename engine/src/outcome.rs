//! The outcome of an occurrence or a run, and its exit code.
//!
//! ```text
//! run:        requested ──admit──> running ──settle──> succeeded | degraded | failed
//!                 │                   │                | timed-out | cancelled | lost
//!                 └──not admitted──> skipped | deferred | failed (a refusal)
//! occurrence: open ──> any outcome above (deferred usually keeps it open), or missed
//! ```
//!
//! Each variant has exactly the fields that it needs, so every failure has a class and every
//! deferral has a time.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The class of a failure, which determines who must act.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Class {
    /// Credentials were missing or refused.
    Auth,
    /// A program or model is not installed.
    NotInstalled,
    /// The environment is misconfigured: path, home, permissions, disk or configuration.
    Environment,
    /// The provider asked runner to wait, but no time was left to do so.
    RateLimited,
    /// A budget was exceeded or would be exceeded.
    OverBudget,
    /// No answer arrived in time.
    Silent,
    /// The answer could not be used.
    Malformed,
    /// The run ended without its declared artifacts.
    ArtifactMissing,
    /// A guard refused a write or an action.
    Guard,
    /// A program exited with an exit code other than 0.
    Exit,
    /// A program was killed by a signal or exceeded an output limit.
    Crash,
    /// An internal error in runner.
    Internal,
}

/// The outcome of an occurrence or a run.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Outcome {
    /// The declared artifacts exist and are valid.
    Succeeded,
    /// Useful artifacts are in place, but some of the requested artifacts are missing.
    Degraded {
        /// The missing part, and the reason.
        why: String,
    },
    /// The run failed.
    Failed {
        /// The class of the failure, which determines who must act.
        class: Class,
        /// The description of the failure.
        why: String,
    },
    /// The run exceeded a deadline.
    TimedOut {
        /// The deadline that passed, and the operation that was in progress.
        why: String,
    },
    /// A user, a shutdown, a later scheduled time or a restore cancelled the run.
    Cancelled {
        /// The user or event that cancelled the run.
        why: String,
    },
    /// The run's process exited before it settled the run.
    Lost {
        /// The circumstances, if known.
        why: String,
    },
    /// The occurrence was due, but the job did not need to run or was not allowed to.
    Skipped {
        /// The reason, in human-readable form.
        why: String,
        /// The category of the reason.
        #[serde(default)]
        reason: SkipReason,
    },
    /// The job cannot run yet. The occurrence remains open for another attempt, unless the run is
    /// manual, has no key and belongs to no night.
    Deferred {
        /// The earliest start time for the next attempt.
        until: Timestamp,
        /// The reason.
        why: String,
    },
    /// Scheduled times passed without a run, for example during a pause. One outcome covers a whole
    /// period.
    Missed {
        /// The first missed scheduled time.
        first: Timestamp,
        /// The last missed scheduled time.
        last: Timestamp,
        /// Number of missed scheduled times.
        count: u64,
        /// The reason.
        why: String,
    },
}

/// Why an occurrence was skipped.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum SkipReason {
    /// There was nothing to do.
    #[default]
    Idle,
    /// The job ran recently, and its settings require a minimum interval.
    Interval,
    /// Another run or another program was in the way.
    Busy,
    /// The start deadline had passed.
    Late,
    /// The job's circuit breaker is open.
    Stopped,
    /// The run that this one follows did not succeed or did no work.
    Unfollowed,
    /// The database was restored from a backup, and it is unknown whether the occurrence ran.
    Restored,
}

impl SkipReason {
    /// Returns whether the job did everything that its settings require. For any other reason, work
    /// that was due was not done.
    pub fn is_expected(self) -> bool {
        matches!(self, Self::Idle | Self::Interval)
    }

    /// Returns the name of the reason in reports.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }
}

impl Outcome {
    /// Creates the outcome of a skipped occurrence.
    pub fn skipped(reason: SkipReason, why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into(), reason }
    }

    /// Returns the outcome's name in the database, listings and reports.
    pub fn as_str(&self) -> &'static str {
        self.into_str()
    }

    /// Returns the reason, if there is one.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Succeeded => None,
            Self::Degraded { why }
            | Self::Failed { why, .. }
            | Self::TimedOut { why }
            | Self::Cancelled { why }
            | Self::Lost { why }
            | Self::Skipped { why, .. }
            | Self::Deferred { why, .. }
            | Self::Missed { why, .. } => Some(why),
        }
    }

    /// Replaces the reason, if there is one.
    #[must_use]
    pub fn map_why(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Succeeded => {}
            Self::Degraded { why }
            | Self::Failed { why, .. }
            | Self::TimedOut { why }
            | Self::Cancelled { why }
            | Self::Lost { why }
            | Self::Skipped { why, .. }
            | Self::Deferred { why, .. }
            | Self::Missed { why, .. } => *why = change(why),
        }
        self
    }

    /// Returns the failure class if the run failed.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Failed { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// Returns whether the run's artifacts are in place.
    pub fn published(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Degraded { .. })
    }

    /// Returns the exit code of a command whose run has this outcome. If `deferral_is_normal`, a
    /// deferral exits with 0 instead of 75 ("try again later").
    pub fn exit(&self, deferral_is_normal: bool) -> Exit {
        match self {
            Self::Succeeded | Self::Skipped { .. } => Exit::Done,
            Self::Degraded { .. } if deferral_is_normal => Exit::Done,
            Self::Deferred { .. } if deferral_is_normal => Exit::Done,
            Self::Degraded { .. } => Exit::Done,
            Self::Deferred { .. } => Exit::TryLater,
            Self::Failed { class, .. } => class.exit(),
            Self::TimedOut { .. } | Self::Lost { .. } | Self::Missed { .. } => Exit::Failed,
            Self::Cancelled { .. } => Exit::Cancelled,
        }
    }
}

impl Class {
    /// Returns the class's name in the database, listings and reports.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }

    fn exit(self) -> Exit {
        match self {
            Self::Auth => Exit::Auth,
            Self::NotInstalled | Self::RateLimited => Exit::Unavailable,
            Self::Environment => Exit::Configuration,
            Self::Internal => Exit::Internal,
            Self::OverBudget
            | Self::Silent
            | Self::Malformed
            | Self::ArtifactMissing
            | Self::Guard
            | Self::Exit
            | Self::Crash => Exit::Failed,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if let Some(class) = self.class() {
            write!(f, " ({class})")?;
        }
        if let Self::Deferred { until, .. } = self {
            write!(f, " until {until}")?;
        }
        match self.why() {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// The program's exit codes. Codes from 65 to 78 follow `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded, or the run was degraded, skipped or, where this is normal, deferred.
    Done = 0,
    /// A run failed, timed out or was lost, scheduled times were missed, a guard refused an action,
    /// or a check found a problem.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// Input data was invalid, or a named item does not exist.
    Data = 65,
    /// A dependency is not installed, rate-limited or unreachable.
    Unavailable = 69,
    /// An internal error in runner, or a damaged database.
    Internal = 70,
    /// A file could not be written.
    CannotWrite = 73,
    /// A lock is held, or the work is deferred.
    TryLater = 75,
    /// Credentials are missing or refused.
    Auth = 77,
    /// The configuration or the environment is wrong, or the database is newer than the program.
    Configuration = 78,
    Cancelled = 130,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_round_trip_through_json() {
        let at = Timestamp::from_second(1_790_000_000).unwrap();
        let all = [
            Outcome::Succeeded,
            Outcome::Degraded { why: "2 of 3".into() },
            Outcome::skipped(SkipReason::Stopped, "stopped"),
            Outcome::Failed { class: Class::NotInstalled, why: "no such program".into() },
            Outcome::Deferred { until: at, why: "dirty".into() },
            Outcome::Missed { first: at, last: at, count: 3, why: "asleep".into() },
        ];
        for outcome in all {
            let text = serde_json::to_string(&outcome).unwrap();
            assert!(text.contains(&format!("\"outcome\":\"{}\"", outcome.as_str())), "{text}");
            assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
        }
    }

    #[test]
    fn exit_codes_follow_the_class() {
        let failed = |class| Outcome::Failed { class, why: String::new() }.exit(false) as u8;
        assert_eq!(failed(Class::Auth), 77);
        assert_eq!(failed(Class::NotInstalled), 69);
        assert_eq!(failed(Class::Environment), 78);
        assert_eq!(failed(Class::Malformed), 1);
        let deferred = Outcome::Deferred { until: Timestamp::UNIX_EPOCH, why: String::new() };
        assert_eq!(deferred.exit(true), Exit::Done);
        assert_eq!(deferred.exit(false), Exit::TryLater);
    }
}
