//! Tests of the daemon's state machine.

use super::*;

const T0: i64 = 1_800_000_000;

fn at(seconds: u64) -> ClockReading {
    ClockReading {
        wall: Timestamp::from_second(T0 + seconds.cast_signed()).unwrap(),
        boot: Duration::from_secs(1_000 + seconds),
    }
}

fn run(n: i64) -> RunId {
    RunId::new(Timestamp::from_second(n).unwrap())
}

fn next(seconds: u64) -> Option<NextTick> {
    Some(NextTick { what: "job".to_owned(), at: at(seconds).wall })
}

fn ticked(next: Option<NextTick>) -> DaemonEvent {
    DaemonEvent::Ticked(Ticked { next, ..Ticked::default() })
}

const TICK: DaemonEffect = DaemonEffect::Tick(Reread::WhatChanged);

/// Creates a daemon that is ready at second 0 and has something due at second `due`.
fn serving(due: u64) -> Daemon {
    let settings = Settings { pid: 7, drain: Duration::from_secs(30), watchdog: None };
    let (mut daemon, effects) = Daemon::start(settings, at(0));
    assert_eq!(effects, [TICK]);
    let effects = daemon.handle(ticked(next(due)), at(0));
    assert_eq!(effects[0], DaemonEffect::Welcome(next(due)));
    assert_eq!(effects[1], DaemonEffect::Notify(ServiceNotice::Ready));
    daemon
}

fn with_run(id: &RunId) -> Daemon {
    let mut daemon = serving(1_000);
    let job = "job".to_owned();
    let effects = daemon.handle(DaemonEvent::Begun { run: id.clone(), job }, at(0));
    assert!(
        matches!(&effects[..], [DaemonEffect::Notify(ServiceNotice::Status(text))] if text.starts_with("1 run live"))
    );
    daemon
}

#[test]
fn ticks_follow_due_times_and_heartbeat() {
    let mut daemon = serving(3);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(1)), []);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(2)), []);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(3)), [TICK]);
    let _ = daemon.handle(ticked(next(100)), at(3));
    for second in 4..18 {
        assert_eq!(daemon.handle(DaemonEvent::Pace, at(second)), [], "{second}");
    }
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(18)), [TICK]);
}

#[test]
fn overdue_work_does_not_tick_continuously() {
    let mut daemon = serving(3);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(3)), [TICK]);
    let _ = daemon.handle(ticked(next(3)), at(3));
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(4)), []);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(18)), [TICK]);
}

#[test]
fn tick_results_are_started_and_reported() {
    let mut daemon = serving(1_000);
    let asked = DaemonEvent::Asked { by: 5, what: DaemonRequest::Tick };
    assert_eq!(daemon.handle(asked, at(1)), [TICK]);
    let given = DaemonEvent::Ticked(Ticked {
        next: next(1_000),
        start: vec![run(1), run(2)],
        troubles: vec!["a flaw".to_owned()],
    });
    let DaemonEvent::Ticked(Ticked { start, .. }) = &given else { unreachable!() };
    let start = start.clone();
    let effects = daemon.handle(given, at(1));
    assert_eq!(
        effects,
        [
            DaemonEffect::Spawn(start[0].clone()),
            DaemonEffect::Spawn(start[1].clone()),
            DaemonEffect::Reply {
                to: 5,
                with: Reply::Ticked {
                    started: start.iter().map(ToString::to_string).collect(),
                    troubles: vec!["a flaw".to_owned()],
                },
            },
        ]
    );
}

#[test]
fn ended_run_causes_retry_and_tick() {
    let id = run(1);
    let mut daemon = with_run(&id);
    let again = run(2);
    let effects = daemon.handle(DaemonEvent::Ended { run: id, again: Some(again.clone()) }, at(2));
    assert_eq!(effects[0], DaemonEffect::Spawn(again));
    assert_eq!(effects.last(), Some(&TICK));
}

#[test]
fn clock_changes_cause_note_and_tick() {
    let mut daemon = serving(1_000_000);
    let effects = daemon.handle(DaemonEvent::Pace, at(7_200));
    let gap = Duration::from_secs(7_200);
    assert_eq!(effects, [DaemonEffect::Note(ClockChange::Slept { gap }), TICK]);
    let _ = daemon.handle(ticked(None), at(7_200));
    let set = ClockReading { wall: at(3_600).wall, boot: at(7_201).boot };
    let effects = daemon.handle(DaemonEvent::Pace, set);
    assert!(
        matches!(&effects[..], [DaemonEffect::Note(ClockChange::ClockSet { by }), TICK] if by.is_negative()),
        "{effects:?}"
    );
}

#[test]
fn reload_rereads_all_and_notifies_ready() {
    let mut daemon = serving(1_000);
    let effects = daemon.handle(DaemonEvent::Signal(Signal::Reload), at(1));
    assert_eq!(
        effects,
        [DaemonEffect::Notify(ServiceNotice::Reloading), DaemonEffect::Tick(Reread::All)]
    );
    let effects = daemon.handle(ticked(next(1_000)), at(1));
    assert_eq!(effects, [DaemonEffect::Notify(ServiceNotice::Ready)]);
    assert_eq!(daemon.handle(ticked(next(1_000)), at(2)), []);
}

#[test]
fn stop_without_live_runs_is_immediate() {
    let mut daemon = serving(1_000);
    let effects = daemon.handle(DaemonEvent::Signal(Signal::Stop), at(1));
    assert_eq!(
        effects,
        [DaemonEffect::Notify(ServiceNotice::Stopping), DaemonEffect::Exit(Exit::Done)]
    );
}

#[test]
fn stop_waits_then_terminates_then_kills() {
    let id = run(1);
    let mut daemon = with_run(&id);
    let effects = daemon.handle(DaemonEvent::Signal(Signal::Stop), at(1));
    assert_eq!(effects[0], DaemonEffect::Notify(ServiceNotice::Stopping));
    assert!(
        matches!(&effects[1], DaemonEffect::Say(text) if text.contains("1 run may continue for 30s"))
    );
    let asked = DaemonEvent::Asked { by: 1, what: DaemonRequest::Tick };
    let refused = daemon.handle(asked, at(2));
    assert!(matches!(&refused[..], [DaemonEffect::Reply { with: Reply::Error { .. }, .. }]));
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(30)), []);
    let effects = daemon.handle(DaemonEvent::Pace, at(31));
    assert_eq!(effects.last(), Some(&DaemonEffect::Terminate(id.clone())));
    let limit = 31 + TERM_TO_KILL.as_secs();
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(limit - 1)), []);
    let effects = daemon.handle(DaemonEvent::Pace, at(limit));
    assert_eq!(effects.last(), Some(&DaemonEffect::Kill(id.clone())));
    // Nothing new is started, not even the next attempt.
    let effects = daemon.handle(DaemonEvent::Ended { run: id, again: Some(run(2)) }, at(limit));
    assert_eq!(effects[0], DaemonEffect::Exit(Exit::Done));
}

#[test]
fn repeated_stop_advances_to_next_stage() {
    let id = run(1);
    let mut daemon = with_run(&id);
    let mut stop = |second| daemon.handle(DaemonEvent::Signal(Signal::Stop), at(second));
    assert_eq!(stop(1)[0], DaemonEffect::Notify(ServiceNotice::Stopping));
    assert_eq!(stop(1).last(), Some(&DaemonEffect::Terminate(id.clone())));
    assert_eq!(stop(1).last(), Some(&DaemonEffect::Kill(id)));
    assert_eq!(stop(1), [DaemonEffect::Exit(Exit::Done)]);
}

#[test]
fn unkillable_runs_are_abandoned() {
    let mut daemon = with_run(&run(1));
    for _ in 0..3 {
        let _ = daemon.handle(DaemonEvent::Signal(Signal::Stop), at(1));
    }
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(10)), []);
    let effects = daemon.handle(DaemonEvent::Pace, at(11));
    assert_eq!(effects.last(), Some(&DaemonEffect::Exit(Exit::Done)));
}

#[test]
fn watchdog_notices_require_completed_ticks() {
    let mut daemon = serving(1_000_000);
    daemon.settings.watchdog = Some(Duration::from_secs(8));
    let alive = DaemonEffect::Notify(ServiceNotice::Watchdog);
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(3)), []);
    assert_eq!(
        daemon.handle(DaemonEvent::Pace, at(4)),
        [DaemonEffect::Notify(ServiceNotice::Watchdog)]
    );
    assert_eq!(daemon.handle(DaemonEvent::Pace, at(5)), []);
    // From here on, no tick completes.
    let mut given = Vec::new();
    for second in 6..120 {
        if daemon.handle(DaemonEvent::Pace, at(second)).contains(&alive) {
            given.push(second);
        }
    }
    assert_eq!(given.first(), Some(&8));
    assert!(given.last().is_some_and(|last| *last < 60), "{given:?}");
}

#[test]
fn status_lists_live_runs() {
    let id = run(1);
    let mut daemon = with_run(&id);
    let asked = DaemonEvent::Asked { by: 1, what: DaemonRequest::Status };
    let effects = daemon.handle(asked, at(3));
    let [DaemonEffect::Reply { to: 1, with: Reply::Status(status) }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((status.pid, status.draining), (7, false));
    assert_eq!(status.live[0].run, id.to_string());
    assert_eq!(status.last_tick, Some(at(0).wall));
}
