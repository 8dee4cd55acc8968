//! May this run start? A pure decision, taken under the job's lock.
//!
//! ```text
//! facts + policy + now ──> admit | deferred{until, why} | skipped{why} | refused{class, why}
//! ```
//!
//! [`decide`] must never do IO, read a clock or change anything. Only the database turns its `Admit`
//! into an `Admitted`, in the transaction that also makes the reservation, so that a run which
//! skipped a check cannot be written.

use jiff::{SignedDuration, Timestamp};

use crate::host::Battery;
use crate::outcome::{Class, Outcome};
use crate::store::{Amounts, Streak};

/// Failures in a row after which clocks stop starting a job.
pub const BREAKER: u32 = 3;
/// Returns whether clocks no longer start a job. Credentials that were refused once are refused
/// again: only a person can help, so the first such failure is enough.
pub fn stopped(streak: Streak) -> bool {
    streak.failures >= BREAKER || (streak.failures > 0 && streak.last == Some(Class::Auth))
}

/// Free space below which nothing is started: a report and a failmark must still fit.
pub const HEADROOM: u64 = 8 * 1024 * 1024;
/// How long a run that met a pause waits at most before the queue looks at the pause again.
pub const PAUSE_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// How long a run that met a dirty tree waits before it is tried again.
pub const DIRTY_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// How long a run waits for the battery before it is tried again.
pub const BATTERY_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// How long a run waits for a busy host before it is tried again: the load of a minute has then
/// forgotten what was.
pub const LOAD_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// How the reason of a run begins that waits because somebody is at work in the project.
pub const AT_WORK: &str = "work is in progress";
/// Number of consecutive deferrals for that reason after which people are notified.
pub const DEFERRALS: u32 = 3;

/// The facts that are known at the time of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AdmissionFacts {
    /// A person asked for this run.
    pub manual: bool,
    /// Time before which the job must not start.
    pub paused_until: Option<Timestamp>,
    /// Paths that someone is in the midst of changing.
    pub dirty: Vec<String>,
    /// Time by which the occurrence had to begin; absent if it has begun before, or may begin at
    /// any time.
    pub start_by: Option<Timestamp>,
    /// The end of the quiet hours of its job that are now.
    pub quiet_until: Option<Timestamp>,
    /// When the job's last run for another occurrence began.
    pub last_began: Option<Timestamp>,
    /// The least time from then to the next run that a clock starts.
    pub min_interval: Option<SignedDuration>,
    /// The state of the host's battery; absent if there is no battery or it was not examined.
    pub battery: Option<Battery>,
    /// The percentage that it takes to run on the battery; 0 for any.
    pub min_battery: u8,
    /// The load of the last minute per core, in thousandths; absent where nobody asks.
    pub load_per_core: Option<u32>,
    /// The most of it that the job may be started in.
    pub max_load: Option<u32>,
    /// Failed occurrences of this job since the last one that published something, or since a
    /// person acknowledged them.
    pub streak: Streak,
    /// Until when its pool is to be left alone, and why.
    pub limited: Option<(Timestamp, String)>,
    /// Free bytes where artifacts are staged.
    pub free_bytes: u64,
    /// The problem that the backend's check found, without a model call.
    pub preflight: Option<(Class, String)>,
    /// Why there is nothing to do, if there is nothing.
    pub nothing_to_do: Option<String>,
}

/// A level of the budget that does not have enough left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The level and its key: `day 2026-11-21`.
    pub level: String,
    /// `calls`, `tokens`, `micros`, `seconds`, `ideas`.
    pub unit: &'static str,
    /// The amount that the run would reserve.
    pub wanted: u64,
    /// The amount that the level has left.
    pub left: u64,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may start, with this much reserved.
    Admit(Amounts),
    /// It may not, and this is how its occurrence stands now.
    Decline(Outcome),
}

/// Decides whether a run may start. The order of the checks is the order in which a person would
/// want to learn of them: explicit settings first (start deadline, pause, breaker, quiet hours,
/// interval), then problems that a person must fix, then conditions that pass with time, then
/// conditions that need no action.
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
                "only {} KiB are free in the staging folder, but {} KiB are needed",
                facts.free_bytes / 1024,
                HEADROOM / 1024
            ),
        });
    }
    if let Some((class, why)) = &facts.preflight {
        // The problem was reported once, and checking again costs nothing: the job goes on by
        // itself once the problem is fixed.
        let reported = facts.streak.failures > 0 && facts.streak.last == Some(*class);
        if reported && facts.streak.refused && !facts.manual {
            return Decision::Decline(Outcome::Skipped {
                why: format!("still {class}, as reported before: {why}"),
            });
        }
        return Decision::Decline(Outcome::Failed { class: *class, why: why.clone() });
    }
    // A person may know better than what was said: at worst it is said again.
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
        return Decision::Decline(Outcome::Skipped { why: why.clone() });
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

/// Checks the limits that the job's owners set for the clocks that start it.
fn held_back(facts: &AdmissionFacts, now: Timestamp) -> Option<Outcome> {
    if let Some(start_by) = facts.start_by.filter(|start_by| *start_by < now) {
        return Some(Outcome::Skipped {
            why: format!(
                "its start deadline, {start_by}, passed {} ago",
                rounded(now.duration_since(start_by))
            ),
        });
    }
    if let Some(until) = facts.paused_until.filter(|until| *until > now) {
        // The queue holds it for as long as the pause lasts; it may be ended early.
        let look = now.saturating_add(PAUSE_WAIT).unwrap_or(now);
        return Some(Outcome::Deferred {
            until: until.min(look),
            why: "the job is paused".to_owned(),
        });
    }
    if stopped(facts.streak) {
        let why = match facts.streak.last {
            Some(Class::Auth) => "stopped: its credentials were refused".to_owned(),
            _ => format!("stopped after {} failures in a row", facts.streak.failures),
        };
        return Some(Outcome::Skipped {
            why: format!(
                "{why}; `runner jobs reset` or a successful manual run starts it again after the cause is fixed"
            ),
        });
    }
    if let Some(until) = facts.quiet_until.filter(|until| *until > now) {
        return Some(Outcome::Deferred { until, why: "these are its quiet hours".to_owned() });
    }
    if let (Some(began), Some(interval)) = (facts.last_began, facts.min_interval) {
        let passed = now.duration_since(began);
        // A run that seems to begin in the future was begun before the clock was set back.
        if !passed.is_negative() && passed < interval {
            return Some(Outcome::Skipped {
                why: format!(
                    "it ran {} ago, and its minimum interval is {}",
                    rounded(passed),
                    rounded(interval)
                ),
            });
        }
    }
    None
}

/// Checks whether the host has too little of something for a job that can wait.
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
                "the host runs on its battery, which is at {} %; the job waits for {} %",
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
                "the host is busy: its load per core is {}, the job waits for {}",
                thousandths(load),
                thousandths(most)
            ),
        );
    }
    None
}

/// Formats a duration for people, in whole seconds.
fn rounded(stretch: SignedDuration) -> String {
    format!("{:#}", SignedDuration::from_secs(stretch.as_secs()))
}

/// Formats thousandths as a decimal number: 1500 as `1.5`.
fn thousandths(value: u32) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Lists the first few names, and how many more there are.
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
