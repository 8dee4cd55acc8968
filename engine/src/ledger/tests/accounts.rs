//! Pools, windows, grants, escalations, limits, acknowledgements, and the step from format 1.

use super::*;

fn calls(n: u64) -> Budget {
    Budget {
        calls: Some(n),
        ..Budget::default()
    }
}

fn one_call() -> Amounts {
    Amounts {
        calls: 1,
        ..Amounts::default()
    }
}

fn pool_day(cap: Budget) -> Level {
    let key = "max 2026-11-21".to_owned();
    Level::new(POOL_DAY, key.clone(), key, cap)
}

fn grant_of(level: &'static str, key: &str, n: u64, until: Option<Timestamp>) -> Grant {
    Grant {
        level: level.to_owned(),
        key: key.to_owned(),
        made: now(),
        until,
        amounts: Amounts {
            calls: n,
            ..Amounts::default()
        },
        reason: "the audit".to_owned(),
        who: "ann".to_owned(),
    }
}

impl House {
    fn enters(&mut self, name: &str, want: Budget, levels: &[Level]) -> Result<RunId, Outcome> {
        let key = RunId::new(now()).to_string();
        let run = self.requested(name, &key);
        match self.admit(&run, want, levels).unwrap() {
            Admission::Admitted(_) => Ok(run),
            Admission::Declined(outcome) => Err(outcome),
        }
    }

    fn spends(&mut self, run: &RunId, spent: Spent) {
        let request = self
            .ledger
            .reserve_request(run, "x", one_call(), now())
            .unwrap()
            .unwrap();
        self.ledger
            .settle_request(request, spent, None, "", now())
            .unwrap();
    }

    fn over(&mut self, run: &RunId, at: Timestamp) {
        let (outcome, summary) = (Outcome::Succeeded, Summary::default());
        self.ledger
            .settle(run, None, &outcome, &summary, at)
            .unwrap();
    }
}

#[test]
fn a_grant_adds_to_one_account_from_the_next_reservation_on_and_ends() {
    let mut house = house();
    let levels = [pool_day(calls(2))];
    let first = house.enters("dream", calls(2), &levels).unwrap();
    assert!(house.enters("tidy", calls(1), &levels).is_err());
    let end = Some(later(10));
    house
        .ledger
        .grant(&grant_of(POOL_DAY, "max 2026-11-21", 3, end))
        .unwrap();
    house
        .ledger
        .grant(&grant_of(POOL_DAY, "max 2026-11-22", 50, None))
        .unwrap();
    let short = house.enters("tidy", calls(4), &levels).unwrap_err();
    assert_eq!(
        short.why().unwrap(),
        "the budget of max 2026-11-21 has 3 calls left, this run may need 4"
    );
    let second = house.enters("tidy", calls(3), &levels).unwrap();
    let standing = house.ledger.standing(&levels[0], now()).unwrap();
    assert_eq!(standing.left()[0], Some(0));
    assert_eq!((standing.used.calls, standing.reserved.calls), (0, 5));
    // It ends while it is in use: nothing is left, and never less than nothing.
    let standing = house.ledger.standing(&levels[0], later(11)).unwrap();
    assert_eq!((standing.granted.calls, standing.left()[0]), (0, Some(0)));
    for run in [first, second] {
        house.spends(&run, Spent::Unknown);
        house.over(&run, later(1));
    }
    let standing = house.ledger.standing(&levels[0], later(11)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(0)));
}

#[test]
fn a_window_opens_with_its_first_run_and_the_next_one_is_whole() {
    let mut house = house();
    let length = SignedDuration::from_hours(5);
    let window = Level {
        window: Some(length),
        ..Level::new(WINDOW, "max".to_owned(), "pool max".to_owned(), calls(2))
    };
    let levels = [window.clone()];
    assert_eq!(house.ledger.window("max", length, now()).unwrap(), None);
    let run = house.enters("dream", calls(2), &levels).unwrap();
    let open = house.ledger.window("max", length, later(299)).unwrap();
    assert_eq!(open, Some((now(), later(300))));
    assert!(house.enters("tidy", calls(1), &levels).is_err());
    house.spends(&run, Spent::Unknown);
    house.spends(&run, Spent::Unknown);
    house.over(&run, later(1));
    let standing = house.ledger.standing(&window, later(299)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(0)));
    let standing = house.ledger.standing(&window, later(300)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (0, Some(2)));
    // A clock that is set back for years does not keep it open for years.
    let past = later(-3 * 365 * 24 * 60);
    assert_eq!(house.ledger.window("max", length, past).unwrap(), None);
}

#[test]
fn an_escalation_spends_its_parents_remainder_and_gives_back_the_rest() {
    let mut house = house();
    let day = pool_day(calls(5));
    let parent = house
        .enters("dream", calls(4), std::slice::from_ref(&day))
        .unwrap();
    house.spends(&parent, Spent::Unknown);
    let of_parent = [Level::of_parent(&parent), day.clone()];
    let short = house.enters("tidy", calls(4), &of_parent).unwrap_err();
    assert!(short.why().unwrap().contains("has 3 calls left"), "{short}");
    let child = house.enters("tidy", calls(2), &of_parent).unwrap();
    assert_eq!(
        house.ledger.parent_of(&child).unwrap(),
        Some(parent.clone())
    );
    // Nothing more is held of the day than the parent held.
    let standing = house.ledger.standing(&day, now()).unwrap();
    assert_eq!(standing.reserved.calls, 4);
    assert_eq!(house.ledger.left_of(&parent).unwrap().calls, 1);
    house.spends(&child, Spent::Unknown);
    house.over(&child, now());
    assert_eq!(house.ledger.left_of(&parent).unwrap().calls, 2);
    let standing = house.ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (1, 3));
    house.over(&parent, now());
    let standing = house.ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (2, 0));
    // A parent that is over has nothing left.
    let short = house.enters("tidy", calls(1), &of_parent).unwrap_err();
    assert_eq!(short.class(), Some(Class::OverBudget));
}

#[test]
fn a_child_that_outlives_its_parent_keeps_what_it_holds() {
    let mut house = house();
    let day = pool_day(calls(4));
    let parent = house
        .enters("dream", calls(4), std::slice::from_ref(&day))
        .unwrap();
    let child = house
        .enters("tidy", calls(3), &[Level::of_parent(&parent)])
        .unwrap();
    house.over(&parent, now());
    let standing = house.ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (0, 3));
    house.spends(&child, Spent::Unknown);
    house.over(&child, now());
    let standing = house.ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (1, 0));
    assert!(house.ledger.holders().unwrap().is_empty());
}

#[test]
fn usage_beyond_all_measure_is_charged_as_it_was_reserved() {
    let mut house = house();
    let day = pool_day(Budget::default());
    for (n, spent) in [
        Spent::Known(Amounts {
            tokens: u64::MAX,
            ..one_call()
        }),
        Spent::AtLeast(Amounts {
            micros: MEASURE + 1,
            ..one_call()
        }),
    ]
    .into_iter()
    .enumerate()
    {
        let run = house
            .enters("dream", Budget::default(), std::slice::from_ref(&day))
            .unwrap();
        house.spends(&run, spent);
        let told = house.ledger.spent_by(&run).unwrap();
        assert_eq!(told, one_call(), "{n}");
        assert_eq!(house.ledger.unstated_calls(&run).unwrap(), 1);
        house.over(&run, now());
    }
    // The largest that can be written down is kept, and a thousand of them do not break the sum.
    let huge = Amounts {
        tokens: MEASURE,
        ..one_call()
    };
    let run = house
        .enters("dream", calls(2_000), std::slice::from_ref(&day))
        .unwrap();
    for _ in 0..1_000 {
        house.spends(&run, Spent::Known(huge));
    }
    house.over(&run, now());
    let account = house.ledger.account(POOL_DAY, "max 2026-11-21").unwrap();
    assert_eq!(account.tokens, 1_000 * MEASURE);
}

#[test]
fn what_is_told_after_a_run_was_settled_changes_nothing() {
    let mut house = house();
    let day = pool_day(calls(5));
    let run = house
        .enters("dream", calls(2), std::slice::from_ref(&day))
        .unwrap();
    let request = house
        .ledger
        .reserve_request(&run, "x", one_call(), now())
        .unwrap()
        .unwrap();
    house.over(&run, now());
    let late = Spent::Known(Amounts::default());
    house
        .ledger
        .settle_request(request, late, None, "", now())
        .unwrap();
    assert_eq!(house.ledger.spent_by(&run).unwrap().calls, 1);
    assert_eq!(house.ledger.standing(&day, now()).unwrap().used.calls, 1);
}

#[test]
fn time_that_is_not_paid_for_ends_the_run() {
    let mut house = house();
    let run = house.requested("dream", "a");
    let want = Budget {
        seconds: Some(20),
        ..Budget::default()
    };
    let Admission::Admitted(admitted) = house.admit(&run, want, &[]).unwrap() else {
        panic!("declined")
    };
    assert_eq!(admitted.deadline(), Duration::from_secs(120));
    assert!(admitted.short_of_time());
    let other = house.requested("tidy", "b");
    let Admission::Admitted(admitted) = house.admit(&other, Budget::default(), &[]).unwrap() else {
        panic!("declined")
    };
    assert_eq!(admitted.deadline(), Duration::from_secs(160));
    assert!(!admitted.short_of_time());
}

#[test]
fn a_limit_holds_for_its_pool_and_grows_only_after_its_wait() {
    let mut house = house();
    let ledger = &mut house.ledger;
    let said = Some(later(60));
    assert_eq!(ledger.limit("max", now()).unwrap(), None);
    let limit = ledger
        .note_limit("max", said, "5-hour limit", now())
        .unwrap();
    assert_eq!((limit.until, limit.streak), (later(60), 1));
    assert_eq!(limit.why, "5-hour limit");
    // Nine others meet it at the same time: it is one refusal.
    for _ in 0..9 {
        let again = ledger
            .note_limit("max", said, "5-hour limit", later(1))
            .unwrap();
        assert_eq!(again.streak, 1);
    }
    assert!(ledger.limit("max", later(59)).unwrap().is_some());
    assert_eq!(ledger.limit("other", later(59)).unwrap(), None);
    assert_eq!(ledger.limit("max", later(60)).unwrap(), None);
    // Still limited past its reset: the waits grow.
    let mut at = later(61);
    for (streak, minutes) in [(2, 10), (3, 20), (4, 40)] {
        let limit = ledger.note_limit("max", said, "still", at).unwrap();
        assert_eq!(limit.streak, streak);
        assert_eq!(limit.until.duration_since(at).as_mins(), minutes);
        assert!(limit.why.contains("which has passed"), "{}", limit.why);
        at = limit.until;
    }
    // An answer to what was asked before the last refusal says nothing of it.
    let noted = later(61 + 10 + 20);
    ledger.clear_limit("max", noted, at).unwrap();
    assert!(ledger.limit("max", later(92)).unwrap().is_some());
    ledger.clear_limit("max", later(92), at).unwrap();
    assert_eq!(ledger.limit("max", later(92)).unwrap(), None);
    assert_eq!(ledger.note_limit("max", None, "", at).unwrap().streak, 1);
    // One that a clock noted which was ahead is no newer.
    ledger.clear_limit("max", now(), now()).unwrap();
    assert_eq!(ledger.note_limit("max", None, "", at).unwrap().streak, 1);
    // A clock set back for a year does not make it hold for a year.
    let past = later(-365 * 24 * 60);
    assert_eq!(ledger.limit("max", past).unwrap(), None);
}

#[test]
fn an_acknowledgement_ends_a_row_of_failures_and_is_on_record() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    for (n, class) in [Class::Crash, Class::Crash, Class::Auth]
        .into_iter()
        .enumerate()
    {
        let run = house.requested("dream", &format!("{n}"));
        house.ledger.decline(&run, &failed(class), now()).unwrap();
    }
    let streak = house.ledger.streak(job).unwrap();
    assert_eq!((streak.failures, streak.last), (3, Some(Class::Auth)));
    assert!(streak.refused && crate::admission::stopped(streak));
    let project = house.project.clone();
    let ack = |house: &mut House| {
        house
            .ledger
            .acknowledge(&project, job, "dream", "ann", later(1))
            .unwrap()
    };
    assert_eq!(ack(&mut house), 3);
    assert_eq!(house.ledger.streak(job).unwrap(), Streak::default());
    assert_eq!(ack(&mut house), 0, "there is nothing to acknowledge");
    let events: i64 = house
        .ledger
        .db
        .query_row(
            "SELECT count(*) FROM events WHERE kind = 'acknowledged' AND detail LIKE '%by ann'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(events, 1);
    // A further failure counts from one; refused credentials stop at once, others do not.
    for (n, class) in [Class::Crash, Class::Auth].into_iter().enumerate() {
        let run = house.requested("dream", &format!("later {n}"));
        house
            .ledger
            .decline(&run, &failed(class), later(2))
            .unwrap();
        let streak = house.ledger.streak(job).unwrap();
        assert_eq!(crate::admission::stopped(streak), class == Class::Auth);
    }
}

#[test]
fn a_ledger_of_format_1_goes_on_with_its_live_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    let frozen =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.db");
    std::fs::copy(frozen, &path).unwrap();
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.check().unwrap();
    // Frozen with a run at work: ten calls are held of its day, one is out.
    let run: RunId = "01M80087Y0000000000000003Z".parse().unwrap();
    assert_eq!(ledger.holders().unwrap(), std::slice::from_ref(&run));
    let key = "01M5JT1KR00000000000000001 2026-11-21".to_owned();
    let day = Level::new(DAY, key.clone(), key, calls(12));
    let standing = ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.reserved.calls, standing.left()[0]), (10, Some(2)));
    assert_eq!(ledger.left_of(&run).unwrap().calls, 9);
    ledger.grant(&grant_of(DAY, &day.key, 1, None)).unwrap();
    let request = ledger
        .reserve_request(&run, "x", one_call(), now())
        .unwrap()
        .unwrap();
    let spent = Spent::Known(one_call());
    ledger
        .settle_request(request, spent, Some(Money::Stated), "", now())
        .unwrap();
    let lost = Outcome::Lost {
        why: "killed".to_owned(),
    };
    ledger
        .settle_dead(&run, &lost, &Summary::default(), None, now())
        .unwrap();
    let standing = ledger.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(11)));
    assert!(ledger.holders().unwrap().is_empty());
}

#[test]
fn a_fallbacks_accounts_are_held_with_the_run_or_it_is_left_out() {
    let mut house = house();
    let day = Level::new(DAY, "p".to_owned(), "day".to_owned(), Budget::default());
    let pool = pool_day(calls(5));
    let hour = std::time::Duration::from_secs(7200);
    let ask = |house: &House| {
        house
            .ledger
            .chained(
                calls(3),
                hour,
                vec![day.clone()],
                vec![vec![day.clone()], vec![day.clone(), pool.clone()]],
                now(),
            )
            .unwrap()
    };
    let held = ask(&house);
    assert_eq!(held.short, [None, None]);
    assert_eq!(held.levels, [day.clone(), pool.clone()]);
    assert_eq!(held.want.seconds, Some(7200), "as without a fallback");
    house.enters("dream", held.want, &held.levels).unwrap();
    assert_eq!(
        house.ledger.account(POOL_DAY, &pool.key).unwrap().calls,
        3,
        "held, whoever will be asked"
    );
    let held = ask(&house);
    let short = held.short[1].as_ref().unwrap();
    assert_eq!(
        (held.short[0].as_ref(), short.left, short.wanted),
        (None, 2, 3)
    );
    assert_eq!((held.want, held.levels), (calls(3), vec![day.clone()]));
}
