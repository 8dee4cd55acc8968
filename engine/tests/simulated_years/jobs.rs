//! The jobs of a year, with random triggers and policies, in zones that mostly have clock changes.

use jiff::SignedDuration;
use jiff::civil::Time;
use runner_engine::policy::{CatchUp, CatchUpScope, ConcurrencyGroup, Overlap, Policy, Retry};
use runner_engine::schedule::{After, On, Schedule, Trigger};
use runner_engine::store::NewJob;

use super::random::Random;

const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/St_Johns",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Asia/Tehran",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Pacific/Auckland",
];
const CRONS: [&str; 12] = [
    "30 2 * * *",
    "0 9 * * 1-5",
    "15 */8 * * *",
    "45 1,2,3 * * *",
    "*/30 2 * * *",
    "0 0 1 * *",
    "10 12 L * *",
    "0 22 * * 5#2",
    "@weekly",
    "5 4,16 * * mon,thu",
    "0 */6 * * *",
    "59 23 15W * *",
];

/// Generates the jobs of one year. The first job always has a schedule.
pub fn draw(random: &mut Random) -> Vec<NewJob> {
    let count = random.between(2, 5);
    let slots = u32::try_from(random.between(1, 4)).unwrap();
    let mut jobs: Vec<NewJob> = Vec::new();
    for number in 0..count {
        let parent = jobs.last().map(|job| job.name.clone());
        let trigger = trigger(random, parent);
        let clock = !matches!(trigger, Trigger::Manual | Trigger::After(_));
        let night = (clock && random.permille(100))
            .then(|| SignedDuration::from_hours(random.between(1, 12)));
        jobs.push(NewJob {
            name: format!("job{number}"),
            kind: (*random.one_of(&["command", "dream"])).to_owned(),
            schedule: Schedule { trigger, zone: (*random.one_of(&ZONES)).to_owned(), night },
            policy: policy(random, slots),
            enabled: true,
        });
    }
    jobs
}

/// Generates a job's trigger, which is a schedule if there is no `parent` to follow.
pub fn trigger(random: &mut Random, parent: Option<String>) -> Trigger {
    match (random.between(0, 12), parent) {
        (0, Some(_)) => Trigger::Manual,
        (1 | 2, Some(job)) => {
            let on = *random.one_of(&[On::Success, On::End]);
            Trigger::After(After { job, on })
        }
        (0..=4, _) => {
            let (hour, minute) = (random.between(0, 24), random.between(0, 60));
            let hour = *random.one_of(&[2, i8::try_from(hour).unwrap()]);
            Trigger::Daily(Time::constant(hour, i8::try_from(minute).unwrap(), 0, 0))
        }
        (5..=7, _) => Trigger::Every(SignedDuration::from_secs(random.spread(14_000, 400_000))),
        _ => Trigger::Cron(random.one_of(&CRONS).parse().unwrap()),
    }
}

fn policy(random: &mut Random, slots: u32) -> Policy {
    let minutes = |minutes| SignedDuration::from_mins(minutes);
    let group = match random.between(0, 3) {
        0 => "default",
        1 => "heavy",
        _ => "light",
    };
    Policy {
        catch_up: CatchUp {
            which: *random.one_of(&[
                CatchUpScope::None,
                CatchUpScope::Last,
                CatchUpScope::Last,
                CatchUpScope::All,
                CatchUpScope::All,
            ]),
            window: SignedDuration::from_hours(random.spread(1, 24 * 14)),
            cap: u32::try_from(random.spread(1, 100)).unwrap(),
            stagger: SignedDuration::from_secs(random.between(0, 120)),
        },
        overlap: *random.one_of(&[Overlap::Skip, Overlap::Queue, Overlap::Replace]),
        start_within: random.permille(250).then(|| minutes(random.spread(5, 600))),
        group: ConcurrencyGroup {
            name: group.to_owned(),
            slots: if group == "heavy" { 1 } else { slots },
        },
        priority: i32::try_from(random.between(-2, 3)).unwrap(),
        retry: match random.between(0, 3) {
            0 => Retry::NONE,
            1 => Policy::default().retry,
            _ => Retry {
                count: u32::try_from(random.between(1, 4)).unwrap(),
                backoff: vec![minutes(random.spread(1, 240))],
            },
        },
        ..Policy::default()
    }
}
