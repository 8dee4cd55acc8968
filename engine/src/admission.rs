//! Decides, under the job's lock, whether a run may start.
//!
//! ```text
//! facts + reservation + now ──> admit | deferred{until, why} | skipped{why} | failed{class, why}
//! ```
//!
//! [`decide`] must never do I/O, read a clock or change anything. The store commits an `Admit`
//! decision together with the run's reservation, so no run can skip the checks.

use jiff::{SignedDuration, Timestamp};

use crate::host::Battery;
use crate::outcome::{Class, Outcome, SkipReason};
use crate::store::{Amounts, Streak};

/// Number of consecutive failures after which the schedule no longer starts a job.
pub const BREAKER: u32 = 3;
/// Returns whether the circuit breaker is open, in which case the schedule no longer starts the
/// job. A failed login opens it at once, because a login keeps failing until someone fixes it.
/// Runs that were refused before they started do not count.
pub fn stopped(streak: Streak) -> bool {
    streak.started >= BREAKER || (streak.started > 0 && streak.last == Some(Class::Auth))
}

/// Free space in bytes below which no run starts. This reserve leaves space for a report and a
/// failure marker.
pub const HEADROOM: u64 = 8 * 1024 * 1024;
/// Maximum time that a run of a paused job waits before the queue checks the pause again.
pub const PAUSE_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Delay before retrying a run that found a dirty work tree.
pub const DIRTY_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// Delay before retrying a run that is waiting for the battery.
pub const BATTERY_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// Delay before retrying a run that found the host busy. The one-minute load average needs a few
/// minutes to reflect a change in the load.
pub const LOAD_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// Prefix of the deferral reason for a run that is waiting because someone is working in the
/// project.
pub const AT_WORK: &str = "work is in progress";
/// Number of consecutive deferrals for the same reason after which users are notified: by the
/// failure marker if work is in progress, and by an alert if the project's settings cannot be used.
pub const DEFERRALS: u32 = 3;

/// The facts that the decision depends on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AdmissionFacts {
    /// Whether this run was requested manually.
    pub manual: bool,
    /// The end of the job's pause, if it is paused.
    pub paused_until: Option<Timestamp>,
    /// Paths with uncommitted changes.
    pub dirty: Vec<String>,
    /// The time by which the occurrence must start. `None` if it has no start deadline or one of
    /// its attempts has already started.
    pub start_by: Option<Timestamp>,
    /// The end of the current quiet hours, if `now` is in the job's quiet hours.
    pub quiet_until: Option<Timestamp>,
    /// The start time of the job's last run for a different occurrence.
    pub last_began: Option<Timestamp>,
    /// Minimum time from `last_began` to the next scheduled run.
    pub min_interval: Option<SignedDuration>,
    /// The state of the host's battery. `None` if there is no battery or its state is not needed.
    pub battery: Option<Battery>,
    /// Minimum battery level in percent for a run on battery power. 0 allows any level.
    pub min_battery: u8,
    /// The one-minute load average per core, in thousandths. `None` if the policy does not need it
    /// or the host does not report it.
    pub load_per_core: Option<u32>,
    /// Maximum `load_per_core` at which the job may start. `None` sets no limit.
    pub max_load: Option<u32>,
    /// The job's consecutive failures since its last success or since the breaker was reset
    /// manually.
    pub streak: Streak,
    /// The time until which the job's provider pool must not be used, with the reason.
    pub limited: Option<(Timestamp, String)>,
    /// Free space in bytes in the folder where artifacts are staged.
    pub free_bytes: u64,
    /// The problem that the backend's preflight check found without a model call.
    pub preflight: Option<(Class, String)>,
    /// The reason why the job has nothing to do. `None` if it has work.
    pub nothing_to_do: Option<String>,
}

/// A budget level with less remaining than the run would reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The label of the budget level, such as `day 2026-11-21`.
    pub level: String,
    /// The unit: `calls`, `tokens`, `micros`, `seconds` or `ideas`.
    pub unit: &'static str,
    /// The amount that the run would reserve.
    pub wanted: u64,
    /// The amount left at this level.
    pub left: u64,
}

/// The result of [`decide`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The run may start with this reservation.
    Admit(Amounts),
    /// The run may not start and is settled with this outcome.
    Decline(Outcome),
}

/// Decides whether a run may start. The checks run in this order: the job's settings (start
/// deadline, pause, breaker, quiet hours, interval), problems that the user must fix, temporary
/// conditions, whether the job has any work, and the budget. A manual run skips the job's settings,
/// provider limits, battery and load.
pub fn decide(
    facts: &AdmissionFacts,
    reservation: Result<Amounts, Shortfall>,
    now: Timestamp,
) -> Decision {
    if !facts.manual
        && let Some(outcome) = held_back(facts, now)
    {
        return Decision::Decline(outcome);
    }
    if facts.free_bytes < HEADROOM {
        return Decision::Decline(Outcome::Failed {
            class: Class::Environment,
            why: format!(
                "the staging folder has only {} KiB of free space, but {} KiB are needed",
                facts.free_bytes / 1024,
                HEADROOM / 1024
            ),
        });
    }
    if let Some((class, why)) = &facts.preflight {
        return Decision::Decline(Outcome::Failed { class: *class, why: why.clone() });
    }
    // A manual run ignores the limit. If the limit still applies, the provider refuses the request.
    if let Some((until, why)) = &facts.limited
        && *until > now
        && !facts.manual
    {
        return Decision::Decline(Outcome::Deferred { until: *until, why: why.clone() });
    }
    if !facts.manual
        && let Some(outcome) = waits_for_host(facts, now)
    {
        return Decision::Decline(outcome);
    }
    if !facts.dirty.is_empty() {
        return Decision::Decline(Outcome::Deferred {
            until: now.saturating_add(DIRTY_WAIT).unwrap_or(now),
            why: format!("{AT_WORK}: {}", listed(&facts.dirty)),
        });
    }
    if let Some(why) = &facts.nothing_to_do {
        return Decision::Decline(Outcome::skipped(SkipReason::Idle, why.clone()));
    }
    match reservation {
        Ok(amounts) => Decision::Admit(amounts),
        Err(short) => Decision::Decline(Outcome::Failed {
            class: Class::OverBudget,
            why: format!(
                "the budget of {} has {} {} left, but this run may need {}",
                short.level, short.left, short.unit, short.wanted
            ),
        }),
    }
}

/// Declines a scheduled run because of its deadline, a pause, the breaker, quiet hours or its
/// minimum interval.
fn held_back(facts: &AdmissionFacts, now: Timestamp) -> Option<Outcome> {
    if let Some(start_by) = facts.start_by.filter(|start_by| *start_by < now) {
        let ago = rounded(now.duration_since(start_by));
        let why = format!("its start deadline, {start_by}, passed {ago} ago");
        return Some(Outcome::skipped(SkipReason::Late, why));
    }
    if let Some(until) = facts.paused_until.filter(|until| *until > now) {
        // A pause may end early, so the queue checks it regularly.
        let check = now.saturating_add(PAUSE_WAIT).unwrap_or(now);
        return Some(Outcome::Deferred {
            until: until.min(check),
            why: "the job is paused".to_owned(),
        });
    }
    if stopped(facts.streak) {
        let why = match facts.streak.last {
            Some(Class::Auth) => "stopped after its login failed".to_owned(),
            _ => format!("stopped after {} failures in a row", facts.streak.started),
        };
        let why = format!(
            "{why}; fix the cause, then run `runner jobs reset NAME`, or run the job manually until it succeeds"
        );
        return Some(Outcome::skipped(SkipReason::Stopped, why));
    }
    if let Some(until) = facts.quiet_until.filter(|until| *until > now) {
        return Some(Outcome::Deferred { until, why: "the job is in its quiet hours".to_owned() });
    }
    if let (Some(began), Some(interval)) = (facts.last_began, facts.min_interval) {
        let passed = now.duration_since(began);
        // A start time in the future was recorded before the clock was set back.
        if !passed.is_negative() && passed < interval {
            let (passed, interval) = (rounded(passed), rounded(interval));
            let why = format!("it ran {passed} ago, and its minimum interval is {interval}");
            return Some(Outcome::skipped(SkipReason::Interval, why));
        }
    }
    None
}

/// Defers a scheduled run while the battery is low or the host is busy.
fn waits_for_host(facts: &AdmissionFacts, now: Timestamp) -> Option<Outcome> {
    let defer = |wait: SignedDuration, why: String| {
        let until = now.saturating_add(wait).unwrap_or(now);
        Some(Outcome::Deferred { until, why })
    };
    if let Some(battery) = facts.battery
        && battery.discharging
        && (battery.percent < facts.min_battery || facts.min_battery >= 100)
    {
        return defer(
            BATTERY_WAIT,
            format!(
                "the host is on battery power at {} %, and the job waits because min_battery is {} %",
                battery.percent, facts.min_battery
            ),
        );
    }
    if let (Some(load), Some(most)) = (facts.load_per_core, facts.max_load)
        && load > most
    {
        return defer(
            LOAD_WAIT,
            format!(
                "the host is busy: the load per core is {}, and the job needs {} or less",
                thousandths(load),
                thousandths(most)
            ),
        );
    }
    None
}

/// Formats a duration such as `1h 30m`, without fractions of a second.
fn rounded(stretch: SignedDuration) -> String {
    format!("{:#}", SignedDuration::from_secs(stretch.as_secs()))
}

/// Formats thousandths as a decimal number: 1500 becomes `1.5`.
fn thousandths(value: u32) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Lists the first five names and, if there are more, the number of the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
