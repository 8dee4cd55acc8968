//! Simulates a period of time and reports for which scheduled times the jobs run on time, run late
//! or do not run.
//!
//! The simulation jumps from each scheduled time to the next tick, and calls [`Schedule::due`] as a
//! real tick does. It assumes that every run succeeds and takes no time. It must never read a clock
//! or a database.

use jiff::{SignedDuration, Timestamp};

use super::{After, Missed, ON_TIME, Schedule, Trigger, UnknownZone};
use crate::policy::CatchUp;

/// Maximum number of events. The limit prevents huge results, such as a year's worth of runs of a
/// job that is due every second.
pub const MOST: usize = 100_000;

/// The properties of a simulated job.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub name: String,
    pub schedule: Schedule,
    /// The job's settings for missed scheduled times.
    pub catch_up: CatchUp,
}

/// The period to simulate.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The start of the period, exclusive. Intervals start here.
    pub from: Timestamp,
    /// The end of the period, inclusive.
    pub to: Timestamp,
    /// Periods in which the host sleeps, each with its start and end. No tick occurs during such a
    /// period, and one occurs at its end.
    pub asleep: Vec<(Timestamp, Timestamp)>,
    /// The interval between ticks. As with a host timer, ticks fall on whole multiples of the
    /// interval in UTC.
    pub tick: SignedDuration,
}

/// The simulated result for a scheduled time or for a stretch of missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedEvent {
    pub job: String,
    /// The scheduled time, or the first scheduled time of a missed stretch.
    pub due: Timestamp,
    pub fate: Fate,
}

/// The simulated result for a scheduled time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The job starts on time, within the precision of a host timer.
    Run { starts: Timestamp },
    /// The job starts late.
    CaughtUp { starts: Timestamp },
    /// The job misses one or more scheduled times.
    Missed {
        last: Timestamp,
        count: u64,
        /// The tick that detects the missed scheduled times.
        found: Timestamp,
    },
}

/// The reason why a simulation cannot be completed.
#[derive(Debug, thiserror::Error)]
pub enum CannotSimulate {
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    /// The simulation produces too many events.
    #[error("more than {MOST} events: use a shorter period, a longer tick or a single job")]
    TooMany,
}

/// Simulates the jobs. Returns one event for each scheduled time or missed stretch, ordered by
/// time.
///
/// # Errors
/// Returns an error if a zone is unknown or if there would be more than [`MOST`] events.
pub fn simulate(
    jobs: &[Simulated],
    stretch: &Stretch,
) -> Result<Vec<SimulatedEvent>, CannotSimulate> {
    let mut events = Vec::new();
    for job in jobs {
        clock(job, stretch, &mut events)?;
    }
    // Followers are added along the whole chain. A job that follows only itself never starts.
    let mut fresh = events.clone();
    for _ in jobs {
        fresh = followers(jobs, &fresh);
        events.extend_from_slice(&fresh);
        if events.len() > MOST {
            return Err(CannotSimulate::TooMany);
        }
        if fresh.is_empty() {
            break;
        }
    }
    events.sort_by(|a, b| (a.due, &a.job).cmp(&(b.due, &b.job)));
    Ok(events)
}

fn clock(
    job: &Simulated,
    stretch: &Stretch,
    events: &mut Vec<SimulatedEvent>,
) -> Result<(), CannotSimulate> {
    let mut watermark = stretch.from;
    let mut next = job.schedule.next_after(watermark, watermark)?;
    while let Some(at) = next.filter(|at| *at <= stretch.to) {
        let tick = stretch.tick_from(at);
        if tick > stretch.to {
            break;
        }
        let due = job.schedule.due(watermark, tick, &job.catch_up)?;
        let name = || job.name.clone();
        events.extend(due.missed.map(|Missed { first, last, count }| SimulatedEvent {
            job: name(),
            due: first,
            fate: Fate::Missed { last, count, found: tick },
        }));
        events.extend(due.fire.iter().map(|at| SimulatedEvent {
            job: name(),
            due: *at,
            fate: if tick.duration_since(*at) <= ON_TIME {
                Fate::Run { starts: tick }
            } else {
                Fate::CaughtUp { starts: tick }
            },
        }));
        if events.len() > MOST {
            return Err(CannotSimulate::TooMany);
        }
        (watermark, next) = (due.watermark, due.next);
    }
    Ok(())
}

/// Returns the events of the jobs that follow the jobs in `events`.
fn followers(jobs: &[Simulated], events: &[SimulatedEvent]) -> Vec<SimulatedEvent> {
    let mut found = Vec::new();
    for job in jobs {
        let Trigger::After(After { job: before, .. }) = &job.schedule.trigger else {
            continue;
        };
        for event in events.iter().filter(|event| event.job == *before) {
            if let Fate::Run { starts } | Fate::CaughtUp { starts } = event.fate {
                found.push(SimulatedEvent {
                    job: job.name.clone(),
                    due: starts,
                    fate: Fate::Run { starts },
                });
            }
        }
    }
    found
}

impl Stretch {
    /// Returns the first tick at or after `at`.
    fn tick_from(&self, at: Timestamp) -> Timestamp {
        let step = self.tick.as_millis().max(1);
        let millis = i128::from(at.as_millisecond());
        let late = (millis + step - 1).div_euclid(step) * step - millis;
        let late = SignedDuration::from_millis(i64::try_from(late).unwrap_or(0));
        let mut tick = at.checked_add(late).unwrap_or(Timestamp::MAX);
        // The sleep periods may overlap and be in any order.
        while let Some((_, wakes)) =
            self.asleep.iter().find(|(sleeps, wakes)| (*sleeps..*wakes).contains(&tick))
        {
            tick = *wakes;
        }
        // If a sleep period ends between the scheduled time and this tick, its end is the tick.
        let earlier = self.asleep.iter().map(|(_, wakes)| *wakes);
        let awake = |at: &Timestamp| {
            let sleeping =
                |(sleeps, wakes): &(Timestamp, Timestamp)| (*sleeps..*wakes).contains(at);
            !self.asleep.iter().any(sleeping)
        };
        earlier.filter(|wakes| (at..tick).contains(wakes)).filter(awake).min().unwrap_or(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::CatchUpScope;
    use crate::schedule::On;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn job(name: &str, trigger: Trigger, which: CatchUpScope) -> Simulated {
        Simulated {
            name: name.into(),
            schedule: Schedule { trigger, ..Schedule::manual() },
            catch_up: CatchUp { which, ..CatchUp::default() },
        }
    }

    fn weekend() -> Stretch {
        Stretch {
            from: at("2026-11-20T00:00:00Z"),
            to: at("2026-11-24T00:00:00Z"),
            asleep: vec![(at("2026-11-20T20:00:00Z"), at("2026-11-23T08:07:00Z"))],
            tick: SignedDuration::from_mins(15),
        }
    }

    #[test]
    fn simulation_follows_each_catch_up_scope() {
        let nightly = || Trigger::Cron("40 2 * * *".parse().unwrap());
        let jobs = [
            job("all", nightly(), CatchUpScope::All),
            job("last", nightly(), CatchUpScope::Last),
            job("none", nightly(), CatchUpScope::None),
        ];
        let reported: Vec<String> = simulate(&jobs, &weekend())
            .unwrap()
            .iter()
            .map(|event| {
                let fate = match &event.fate {
                    Fate::Run { starts } => format!("run {}", starts.strftime("%d %H:%M")),
                    Fate::CaughtUp { starts } => format!("late {}", starts.strftime("%d %H:%M")),
                    Fate::Missed { count, .. } => format!("missed {count}"),
                };
                format!("{} {} {fate}", event.due.strftime("%d"), event.job)
            })
            .collect();
        assert_eq!(
            reported,
            [
                "20 all run 20 02:45",
                "20 last run 20 02:45",
                "20 none run 20 02:45",
                "21 all missed 2",
                "21 last missed 2",
                "21 none missed 3",
                "23 all late 23 08:07",
                "23 last late 23 08:07",
            ]
        );
    }

    #[test]
    fn followers_run_after_their_job() {
        let after = |job: &str| Trigger::After(After { job: job.into(), on: On::Success });
        let jobs = [
            job("third", after("second"), CatchUpScope::Last),
            job("second", after("first"), CatchUpScope::Last),
            job("first", Trigger::Daily(jiff::civil::time(9, 0, 0, 0)), CatchUpScope::Last),
            job("circle", after("circle"), CatchUpScope::Last),
        ];
        let events = simulate(&jobs, &weekend()).unwrap();
        let of = |name: &str| events.iter().filter(|event| event.job == name).count();
        assert_eq!((of("first"), of("second"), of("third"), of("circle")), (4, 3, 3, 0));
    }

    #[test]
    fn simulation_with_too_many_events_is_refused() {
        let every = Trigger::Every(SignedDuration::from_secs(1));
        let mut stretch = weekend();
        stretch.tick = SignedDuration::from_secs(1);
        assert!(matches!(
            simulate(&[job("a", every, CatchUpScope::Last)], &stretch),
            Err(CannotSimulate::TooMany)
        ));
    }
}
