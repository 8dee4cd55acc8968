//! May this run start? A pure decision, taken under the job's lock.
//!
//! ```text
//! facts + policy + now ──> admit | deferred{until, why} | skipped{why} | refused{class, why}
//! ```
//!
//! [`decide`] must never do IO, read a clock or change anything. Only the ledger turns its `Admit`
//! into an `Admitted`, in the transaction that also makes the reservation, so that a run which
//! skipped a check cannot be written.

use jiff::{SignedDuration, Timestamp};

use crate::ledger::Amounts;
use crate::outcome::{Class, Outcome};

/// Failures in a row after which clocks stop starting a job.
pub const BREAKER: u32 = 3;
/// Free space below which nothing is started: a report and a failmark must still fit.
pub const HEADROOM: u64 = 8 * 1024 * 1024;
/// How long a run that met a dirty tree waits before it is tried again.
pub const DIRTY_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// What is known at the moment of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// A person asked for this run.
    pub by_hand: bool,
    /// Not to be started before this moment.
    pub paused_until: Option<Timestamp>,
    /// Paths that someone is in the midst of changing.
    pub dirty: Vec<String>,
    /// Failed runs of this job since the last that placed something.
    pub failures_in_a_row: u32,
    /// Free bytes where artifacts are staged.
    pub free_bytes: u64,
    /// What the backend's check, made without a model call, found wrong.
    pub preflight: Option<(Class, String)>,
    /// Why there is nothing to do, if there is nothing.
    pub nothing_to_do: Option<String>,
}

/// What some level of the accounts has too little of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The level and its key: `day 2026-11-21`.
    pub level: String,
    /// `calls`, `tokens`, `micros`, `seconds`, `ideas`.
    pub unit: &'static str,
    /// What the run would reserve.
    pub wanted: u64,
    /// What the level has left.
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

/// Decides. The order of the checks is the order in which a person would want to hear of them:
/// what was asked for first (pause, breaker), then what someone must mend, then what is a matter of
/// time, then what needs nothing.
pub fn decide(facts: &Facts, reservation: Result<Amounts, Shortfall>, now: Timestamp) -> Decision {
    if let Some(until) = facts
        .paused_until
        .filter(|until| *until > now && !facts.by_hand)
    {
        return Decision::Decline(Outcome::Deferred {
            until,
            why: "the job is paused".to_owned(),
        });
    }
    if facts.failures_in_a_row >= BREAKER && !facts.by_hand {
        return Decision::Decline(Outcome::Skipped {
            why: format!(
                "stopped after {} failures in a row; a successful run by hand starts it again",
                facts.failures_in_a_row
            ),
        });
    }
    if facts.free_bytes < HEADROOM {
        return Decision::Decline(Outcome::Failed {
            class: Class::Environment,
            why: format!(
                "only {} KiB are free where artifacts are staged, {} KiB are needed",
                facts.free_bytes / 1024,
                HEADROOM / 1024
            ),
        });
    }
    if let Some((class, why)) = &facts.preflight {
        return Decision::Decline(Outcome::Failed {
            class: *class,
            why: why.clone(),
        });
    }
    if !facts.dirty.is_empty() {
        return Decision::Decline(Outcome::Deferred {
            until: now.saturating_add(DIRTY_WAIT).unwrap_or(now),
            why: format!("work is in progress: {}", listed(&facts.dirty)),
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
                "the budget of {} has {} {} left, this run may need {}",
                short.level, short.left, short.unit, short.wanted
            ),
        }),
    }
}

/// The first few names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap()
    }

    fn healthy() -> Facts {
        Facts {
            free_bytes: u64::MAX,
            ..Facts::default()
        }
    }

    fn word(facts: &Facts) -> String {
        match decide(facts, Ok(Amounts::default()), now()) {
            Decision::Admit(_) => "admit".to_owned(),
            Decision::Decline(outcome) => outcome.to_string(),
        }
    }

    #[test]
    fn a_healthy_run_is_admitted() {
        assert_eq!(word(&healthy()), "admit");
    }

    #[test]
    fn each_fact_alone_stops_it() {
        let later = now().saturating_add(SignedDuration::from_hours(1)).unwrap();
        let cases = [
            (
                Facts {
                    paused_until: Some(later),
                    ..healthy()
                },
                "deferred until",
            ),
            (
                Facts {
                    failures_in_a_row: BREAKER,
                    ..healthy()
                },
                "skipped: stopped after 3",
            ),
            (
                Facts {
                    free_bytes: 10,
                    ..healthy()
                },
                "failed (environment)",
            ),
            (
                Facts {
                    preflight: Some((Class::Auth, "no key".into())),
                    ..healthy()
                },
                "failed (auth)",
            ),
            (
                Facts {
                    dirty: vec!["ideas/a.md".into()],
                    ..healthy()
                },
                "deferred until",
            ),
            (
                Facts {
                    nothing_to_do: Some("no delta".into()),
                    ..healthy()
                },
                "skipped: no delta",
            ),
        ];
        for (facts, expected) in cases {
            let found = word(&facts);
            assert!(found.starts_with(expected), "{facts:?} gave {found}");
        }
    }

    #[test]
    fn a_person_overrules_pause_and_breaker_only() {
        let later = now().saturating_add(SignedDuration::from_hours(1)).unwrap();
        let mut facts = Facts {
            by_hand: true,
            paused_until: Some(later),
            failures_in_a_row: 9,
            ..healthy()
        };
        assert_eq!(word(&facts), "admit");
        facts.dirty = (0..7).map(|n| format!("ideas/{n}.md")).collect();
        assert!(word(&facts).contains("ideas/4.md and 2 more"));
    }

    #[test]
    fn no_budget_no_run() {
        let short = Shortfall {
            level: "day 2026-11-21".into(),
            unit: "calls",
            wanted: 5,
            left: 2,
        };
        let Decision::Decline(outcome) = decide(&healthy(), Err(short), now()) else {
            panic!("admitted without budget");
        };
        assert_eq!(outcome.class(), Some(Class::OverBudget));
        assert!(outcome.to_string().contains("2 calls left"), "{outcome}");
    }
}
