//! Decides which problems users are notified of, and when they are notified again.
//!
//! ```text
//! news of a job ──decide──> Raise ──> open{count} ──succeeded or gone────> ended (recovered: reported once)
//!                           Count ──>   │    ^ │ again                    ^
//!                                       │    └─┘ reported at most once per `repeat`
//!                                       ├─silenced──> open, not reported ─────┤
//!                                       └─acknowledged (`jobs reset JOB`)────────┴> ended (not reported)
//!
//! message per channel: waiting{tries, next} ──sent──> delivered
//!                         │   ^  │ not sent
//!                         │   └──┘ retried after a backoff
//!                         ├─after the last attempt──> given up
//!                         └─the alert ended or was silenced──> withdrawn
//! ```
//!
//! A message is held back for at most half an hour while a run of its job is in progress, because
//! the run may end the alert. If it does, the message is withdrawn. A message is also held back for
//! at most five minutes while other runs of the project are in progress. Messages that wait for one
//! channel at the same time are sent together. A channel receives at most one such group in each
//! `window`, and none during the quiet hours.
//!
//! The code that settles an occurrence adds a row to the `news` table in the same transaction if
//! the outcome may affect alerts. A tick decides how the news affects the alerts ([`decide`], pure)
//! and writes alerts and messages in one transaction. A separate process delivers the messages. A
//! job has at most one open alert of each kind. [`decide`] must never do I/O, read a clock or
//! depend on a channel.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::policy::Quiet;
use crate::zones;

/// A kind of problem for which runner sends an alert.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AlertKind {
    /// A due occurrence ended as failed, timed-out or lost, after its last attempt.
    Failure,
    /// The job's circuit breaker is open, so the schedule no longer starts the job.
    Breaker,
    /// A scheduled time passed without a run, or a due run is deferred until the user acts.
    Missed,
    /// A job with a schedule has not succeeded within the configured time.
    Stale,
    /// A host in the job's fleet has not been seen for too long, or the fleet's database has not
    /// answered for too long.
    SilentHost,
    /// A critical event of the curator has not been acknowledged yet.
    CriticalEvent,
}

impl AlertKind {
    /// Returns the kind's name in settings, tables and messages.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether the problem concerns the job's runs, in which case a successful run ends it.
    /// Any other problem ends only when a tick no longer finds it.
    pub fn is_of_runs(self) -> bool {
        !matches!(self, Self::SilentHost | Self::CriticalEvent)
    }
}

/// The alert settings of a project that affect decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRules {
    /// The kinds of problems that users are notified of.
    pub on: BTreeSet<AlertKind>,
    /// Whether users are notified of a recovery.
    pub recovery: bool,
    /// Minimum time in seconds between two messages about the same open alert, unless another host
    /// becomes silent or another critical event is raised.
    pub repeat: i64,
    /// Number of seconds without a success after which a job with a schedule is stale. `None` means
    /// never.
    pub success_within: Option<i64>,
    /// Values of `success_within` for individual jobs, by name.
    pub jobs: BTreeMap<String, Option<i64>>,
    /// The names of the channels that receive messages.
    pub channels: Vec<String>,
    /// Minimum time in seconds between two deliveries to a channel. Messages that become due within
    /// that time are sent together.
    #[serde(default)]
    pub window: i64,
    /// Hours of the day during which no message is sent.
    #[serde(default)]
    pub quiet: Option<Quiet>,
    /// The IANA time zone for the quiet hours.
    #[serde(default)]
    pub zone: String,
}

impl AlertRules {
    /// Returns the time without a success after which this job is stale, or `None` if it never
    /// becomes stale.
    pub fn stale_after(&self, job: &str) -> Option<SignedDuration> {
        let own = self.jobs.get(job).copied().unwrap_or(self.success_within);
        own.filter(|_| self.on.contains(&AlertKind::Stale)).map(SignedDuration::from_secs)
    }

    /// Returns the time until which messages to a channel are held back, or `None` if a message may
    /// be sent now. `last` is the time of the last message that the channel accepted.
    pub fn held_until(&self, last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        // A wrong clock may have recorded a time in the future.
        let last = last.filter(|last| *last <= now);
        let window = SignedDuration::from_secs(self.window);
        let window = last.and_then(|last| last.saturating_add(window).ok());
        let zone = zones::get(&self.zone).unwrap_or(TimeZone::UTC);
        let quiet = self.quiet.as_ref().and_then(|quiet| quiet.until(now, &zone));
        window.max(quiet).filter(|until| *until > now)
    }
}

/// A job event that can affect the job's alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// An occurrence failed, timed out or was lost.
    Failed {
        /// Whether the run was started manually, in which case the user sees its result anyway.
        manual: bool,
        /// Whether the circuit breaker is open after the failure, in which case the schedule no
        /// longer starts the job.
        stopped: bool,
    },
    /// An occurrence succeeded or was degraded.
    Placed,
    /// Scheduled times passed without a run.
    Missed {
        /// Whether the circuit breaker is open, in which case the schedule would not have started
        /// the job anyway. The alert about the breaker already reports that.
        stopped: bool,
    },
    /// A due run was deferred several times in a row for a reason that the user must fix.
    Blocked,
    /// The job has not succeeded for too long.
    Stale,
    /// A tick found a problem that does not concern the job's runs. `since` is the time at which
    /// the most recent part of the problem began, for example when the latest host became silent.
    Found { kind: AlertKind, since: Timestamp },
    /// A tick no longer found the problem of this kind.
    Gone(AlertKind),
}

/// The facts of an open alert that affect decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAlert {
    pub kind: AlertKind,
    /// The time at which the alert's last messages were created.
    pub reported: Timestamp,
    /// Whether a user has silenced the alert.
    pub silenced: bool,
}

/// A change to an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertAction {
    /// The alert is opened, and users are notified.
    Raise(AlertKind),
    /// The problem occurred once more.
    Count {
        kind: AlertKind,
        /// Whether users are notified of the problem again.
        tell: bool,
    },
    /// The alert ends.
    End {
        kind: AlertKind,
        /// Whether users are notified that the problem has ended.
        tell: bool,
    },
}

/// Decides how news about a job affects its alerts. `open` lists the job's open alerts.
pub fn decide(
    open: &[OpenAlert],
    news: News,
    rules: &AlertRules,
    now: Timestamp,
) -> Vec<AlertAction> {
    let end = |is_over: &dyn Fn(AlertKind) -> bool| {
        let over = open.iter().filter(|one| is_over(one.kind));
        let end = |one: &OpenAlert| AlertAction::End {
            kind: one.kind,
            tell: rules.recovery && !one.silenced,
        };
        over.map(end).collect()
    };
    let kinds: &[AlertKind] = match &news {
        News::Placed => return end(&AlertKind::is_of_runs),
        News::Gone(kind) => return end(&|it| it == *kind),
        News::Found { kind, .. } => std::slice::from_ref(kind),
        News::Failed { manual: true, stopped: true } => &[AlertKind::Breaker],
        News::Failed { manual: true, .. } => &[],
        News::Failed { stopped: true, .. } => &[AlertKind::Failure, AlertKind::Breaker],
        News::Failed { .. } => &[AlertKind::Failure],
        News::Missed { stopped: true } => &[],
        News::Missed { stopped: false } | News::Blocked => &[AlertKind::Missed],
        News::Stale => &[AlertKind::Stale],
    };
    let mut acts = Vec::new();
    for &kind in kinds {
        let wanted = rules.on.contains(&kind);
        match open.iter().find(|one| one.kind == kind) {
            None if wanted => acts.push(AlertAction::Raise(kind)),
            None => {}
            Some(one) => {
                // A wrong clock may have recorded a time in the future.
                let long_ago = now.duration_since(one.reported).abs().as_secs() >= rules.repeat;
                // Another host became silent or another event was raised after the last message.
                let further = matches!(news, News::Found { since, .. }
                    if since > one.reported && since <= now);
                // The check for stale jobs runs every hour, each tick finds a silent host or an
                // event again, and a blocked run is deferred every few minutes. Such a repetition
                // is therefore not another problem.
                let repeats = matches!(news, News::Stale | News::Blocked | News::Found { .. });
                if !repeats || long_ago || further {
                    let tell = wanted && (long_ago || further) && !one.silenced;
                    acts.push(AlertAction::Count { kind, tell });
                }
            }
        }
    }
    acts
}

/// Delay in seconds before each new attempt to deliver a message. The attempt after the last delay
/// is the final one.
const BACKOFF: [i64; 7] = [60, 300, 900, 3600, 7200, 14_400, 28_800];

/// Returns the time of the next attempt for a message after `tries` attempts, the last of which was
/// at `now`. Returns `None` if no attempts are left or if `tries` is 0.
pub fn next_try(tries: u32, now: Timestamp) -> Option<Timestamp> {
    let wait = BACKOFF.get(usize::try_from(tries).ok()?.checked_sub(1)?)?;
    Some(now.saturating_add(SignedDuration::from_secs(*wait)).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_names_parse_back() {
        for kind in AlertKind::VARIANTS {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        assert!("x".parse::<AlertKind>().is_err());
    }

    #[test]
    fn silent_hosts_share_one_alert() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let on = BTreeSet::from([AlertKind::SilentHost, AlertKind::Failure]);
        let rules = AlertRules { on, recovery: true, repeat: 3600, ..AlertRules::default() };
        let kind = AlertKind::SilentHost;
        let silent = |since: i64| News::Found { kind, since: at(since) };
        assert_eq!(decide(&[], silent(5), &rules, at(5)), [AlertAction::Raise(kind)]);
        let open = [
            OpenAlert { kind, reported: at(5), silenced: false },
            OpenAlert { kind: AlertKind::Failure, reported: at(5), silenced: false },
        ];
        assert_eq!(decide(&open, silent(5), &rules, at(6)), []);
        let sent = [AlertAction::Count { kind, tell: true }];
        assert_eq!(decide(&open, silent(7), &rules, at(8)), sent, "another host became silent");
        assert_eq!(decide(&open, silent(5), &rules, at(65)), sent, "the alert is repeated");
        let end = |kind| [AlertAction::End { kind, tell: true }];
        assert_eq!(decide(&open, News::Gone(kind), &rules, at(9)), end(kind));
        assert_eq!(decide(&open, News::Placed, &rules, at(9)), end(AlertKind::Failure));
        let none = decide(&[], silent(5), &AlertRules::default(), at(5));
        assert_eq!(none, [], "the kind of alert is disabled");
    }

    #[test]
    fn window_and_quiet_hours_delay_messages() {
        let at = |text: &str| -> Timestamp { format!("2026-11-21T{text}:00Z").parse().unwrap() };
        let time = |hour| jiff::civil::Time::constant(hour, 0, 0, 0);
        let rules = AlertRules {
            window: 900,
            quiet: Some(Quiet { from: time(22), to: time(7) }),
            zone: "UTC".to_owned(),
            ..AlertRules::default()
        };
        assert_eq!(rules.held_until(None, at("12:00")), None);
        assert_eq!(rules.held_until(Some(at("12:00")), at("12:10")), Some(at("12:15")));
        assert_eq!(rules.held_until(Some(at("12:00")), at("12:15")), None);
        assert_eq!(rules.held_until(Some(at("13:00")), at("12:00")), None, "the clock was wrong");
        assert_eq!(rules.held_until(Some(at("02:55")), at("03:00")), Some(at("07:00")));
        assert_eq!(AlertRules::default().held_until(Some(at("12:00")), at("12:00")), None);
    }

    #[test]
    fn delivery_retries_back_off_and_end() {
        let now = Timestamp::UNIX_EPOCH;
        let mut before = now;
        let mut tries = 0;
        while let Some(next) = next_try(tries + 1, now) {
            assert!(next > before);
            before = next;
            tries += 1;
        }
        assert_eq!(tries + 1, crate::store::MOST_TRIES);
        assert_eq!(next_try(0, now), None);
    }
}
