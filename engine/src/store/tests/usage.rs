//! Tests of pools, windows, grants, escalations, limits, breaker resets, fallbacks and the live
//! reservations in a saved database.

use super::*;

fn calls(n: u64) -> Budget {
    Budget { calls: Some(n), ..Budget::default() }
}

fn one_call() -> Amounts {
    Amounts { calls: 1, ..Amounts::default() }
}

fn pool_day(cap: Budget) -> BudgetLevel {
    let key = "max 2026-11-21".to_owned();
    BudgetLevel::new(POOL_DAY, key.clone(), key, cap)
}

fn grant_of(level: &'static str, key: &str, n: u64, until: Option<Timestamp>) -> Grant {
    Grant {
        level: level.to_owned(),
        key: key.to_owned(),
        made: now(),
        until,
        amounts: Amounts { calls: n, ..Amounts::default() },
        reason: "the audit".to_owned(),
        who: "ann".to_owned(),
    }
}

impl Fixture {
    fn enters(
        &mut self,
        name: &str,
        want: Budget,
        levels: &[BudgetLevel],
    ) -> Result<RunId, Outcome> {
        let key = RunId::new(now()).to_string();
        let run = self.requested(name, &key);
        match self.admit(&run, want, levels).unwrap() {
            Admission::Admitted(_) => Ok(run),
            Admission::Declined(outcome) => Err(outcome),
        }
    }

    fn spends(&mut self, run: &RunId, spent: RequestUsage) {
        let request = self.store.reserve_request(run, "x", one_call(), now()).unwrap().unwrap();
        self.store.settle_request(request, spent, None, "", now()).unwrap();
    }

    fn over(&mut self, run: &RunId, at: Timestamp) {
        let (outcome, summary) = (Outcome::Succeeded, RunSummary::default());
        self.store.settle(run, None, &outcome, &summary, at).unwrap();
    }
}

#[test]
fn grant_raises_only_its_level() {
    let mut fixture = fixture();
    let levels = [pool_day(calls(2))];
    let first = fixture.enters("dream", calls(2), &levels).unwrap();
    assert!(fixture.enters("tidy", calls(1), &levels).is_err());
    let end = Some(later(10));
    fixture.store.grant(&grant_of(POOL_DAY, "max 2026-11-21", 3, end)).unwrap();
    fixture.store.grant(&grant_of(POOL_DAY, "max 2026-11-22", 50, None)).unwrap();
    let short = fixture.enters("tidy", calls(4), &levels).unwrap_err();
    assert_eq!(
        short.why().unwrap(),
        "the budget of max 2026-11-21 has 3 calls left, but this run may need 4"
    );
    let second = fixture.enters("tidy", calls(3), &levels).unwrap();
    let standing = fixture.store.standing(&levels[0], now()).unwrap();
    assert_eq!(standing.left()[0], Some(0));
    assert_eq!((standing.used.calls, standing.reserved.calls), (0, 5));
    // The grant ends while it is in use. The remaining amount is then zero, not negative.
    let standing = fixture.store.standing(&levels[0], later(11)).unwrap();
    assert_eq!((standing.granted.calls, standing.left()[0]), (0, Some(0)));
    for run in [first, second] {
        fixture.spends(&run, RequestUsage::Unknown);
        fixture.over(&run, later(1));
    }
    let standing = fixture.store.standing(&levels[0], later(11)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(0)));
}

#[test]
fn window_opens_with_first_run_and_resets() {
    let mut fixture = fixture();
    let length = SignedDuration::from_hours(5);
    let window = BudgetLevel {
        window: Some(length),
        ..BudgetLevel::new(WINDOW, "max".to_owned(), "pool max".to_owned(), calls(2))
    };
    let levels = [window.clone()];
    assert_eq!(fixture.store.window("max", length, now()).unwrap(), None);
    let run = fixture.enters("dream", calls(2), &levels).unwrap();
    let open = fixture.store.window("max", length, later(299)).unwrap();
    assert_eq!(open, Some((now(), later(300))));
    assert!(fixture.enters("tidy", calls(1), &levels).is_err());
    fixture.spends(&run, RequestUsage::Unknown);
    fixture.spends(&run, RequestUsage::Unknown);
    fixture.over(&run, later(1));
    let standing = fixture.store.standing(&window, later(299)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(0)));
    let standing = fixture.store.standing(&window, later(300)).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (0, Some(2)));
    // After the clock is set back by years, the window does not stay open for years.
    let past = later(-3 * 365 * 24 * 60);
    assert_eq!(fixture.store.window("max", length, past).unwrap(), None);
}

#[test]
fn child_uses_parent_budget_and_returns_the_rest() {
    let mut fixture = fixture();
    let day = pool_day(calls(5));
    let parent = fixture.enters("dream", calls(4), std::slice::from_ref(&day)).unwrap();
    fixture.spends(&parent, RequestUsage::Unknown);
    let of_parent = [BudgetLevel::of_parent(&parent), day.clone()];
    let short = fixture.enters("tidy", calls(4), &of_parent).unwrap_err();
    assert!(short.why().unwrap().contains("has 3 calls left"), "{short}");
    let child = fixture.enters("tidy", calls(2), &of_parent).unwrap();
    assert_eq!(fixture.store.parent_of(&child).unwrap(), Some(parent.clone()));
    // The child's reservation is part of the parent's reservation for the day.
    let standing = fixture.store.standing(&day, now()).unwrap();
    assert_eq!(standing.reserved.calls, 4);
    assert_eq!(fixture.store.left_of(&parent).unwrap().calls, 1);
    fixture.spends(&child, RequestUsage::Unknown);
    fixture.over(&child, now());
    assert_eq!(fixture.store.left_of(&parent).unwrap().calls, 2);
    let standing = fixture.store.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (1, 3));
    fixture.over(&parent, now());
    let standing = fixture.store.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (2, 0));
    // A settled parent has nothing left.
    let short = fixture.enters("tidy", calls(1), &of_parent).unwrap_err();
    assert_eq!(short.class(), Some(Class::OverBudget));
}

#[test]
fn child_outliving_its_parent_keeps_its_reservation() {
    let mut fixture = fixture();
    let day = pool_day(calls(4));
    let parent = fixture.enters("dream", calls(4), std::slice::from_ref(&day)).unwrap();
    let child = fixture.enters("tidy", calls(3), &[BudgetLevel::of_parent(&parent)]).unwrap();
    fixture.over(&parent, now());
    let standing = fixture.store.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (0, 3));
    fixture.spends(&child, RequestUsage::Unknown);
    fixture.over(&child, now());
    let standing = fixture.store.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.reserved.calls), (1, 0));
    assert!(fixture.store.holders().unwrap().is_empty());
}

#[test]
fn implausible_usage_is_charged_as_reserved() {
    let mut fixture = fixture();
    let day = pool_day(Budget::default());
    for (n, spent) in [
        RequestUsage::Known(Amounts { tokens: u64::MAX, ..one_call() }),
        RequestUsage::AtLeast(Amounts { micros: MEASURE + 1, ..one_call() }),
    ]
    .into_iter()
    .enumerate()
    {
        let run = fixture.enters("dream", Budget::default(), std::slice::from_ref(&day)).unwrap();
        fixture.spends(&run, spent);
        let reported = fixture.store.spent_by(&run).unwrap();
        assert_eq!(reported, one_call(), "{n}");
        assert_eq!(fixture.store.unstated_calls(&run).unwrap(), 1);
        fixture.over(&run, now());
    }
    // The largest plausible amount is stored, and the sum of a thousand such amounts does not
    // overflow.
    let huge = Amounts { tokens: MEASURE, ..one_call() };
    let run = fixture.enters("dream", calls(2_000), std::slice::from_ref(&day)).unwrap();
    for _ in 0..1_000 {
        fixture.spends(&run, RequestUsage::Known(huge));
    }
    fixture.over(&run, now());
    let account = fixture.store.account(POOL_DAY, "max 2026-11-21").unwrap();
    assert_eq!(account.tokens, 1_000 * MEASURE);
}

#[test]
fn late_usage_reports_change_nothing() {
    let mut fixture = fixture();
    let day = pool_day(calls(5));
    let run = fixture.enters("dream", calls(2), std::slice::from_ref(&day)).unwrap();
    let request = fixture.store.reserve_request(&run, "x", one_call(), now()).unwrap().unwrap();
    fixture.over(&run, now());
    let late = RequestUsage::Known(Amounts::default());
    fixture.store.settle_request(request, late, None, "", now()).unwrap();
    assert_eq!(fixture.store.spent_by(&run).unwrap().calls, 1);
    assert_eq!(fixture.store.standing(&day, now()).unwrap().used.calls, 1);
}

#[test]
fn the_reserved_time_limits_the_run() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    let want = Budget { seconds: Some(20), ..Budget::default() };
    let Admission::Admitted(admitted) = fixture.admit(&run, want, &[]).unwrap() else {
        panic!("declined")
    };
    assert_eq!(admitted.deadline(), Duration::from_secs(120));
    assert!(admitted.short_of_time());
    let other = fixture.requested("tidy", "b");
    let Admission::Admitted(admitted) = fixture.admit(&other, Budget::default(), &[]).unwrap()
    else {
        panic!("declined")
    };
    assert_eq!(admitted.deadline(), Duration::from_secs(160));
    assert!(!admitted.short_of_time());
}

#[test]
fn limit_applies_to_its_pool_and_waits_grow() {
    let mut fixture = fixture();
    let store = &mut fixture.store;
    let said = Some(later(60));
    assert_eq!(store.limit("max", now()).unwrap(), None);
    let limit = store.note_limit("max", said, "5-hour limit", now()).unwrap();
    assert_eq!((limit.until, limit.streak), (later(60), 1));
    assert_eq!(limit.why, "5-hour limit");
    // Nine more refusals while the limit applies do not lengthen the streak.
    for _ in 0..9 {
        let again = store.note_limit("max", said, "5-hour limit", later(1)).unwrap();
        assert_eq!(again.streak, 1);
    }
    assert!(store.limit("max", later(59)).unwrap().is_some());
    assert_eq!(store.limit("other", later(59)).unwrap(), None);
    assert_eq!(store.limit("max", later(60)).unwrap(), None);
    // The provider still refuses requests after the reset time that it reported, so the waits grow.
    let mut at = later(61);
    for (streak, minutes) in [(2, 10), (3, 20), (4, 40)] {
        let limit = store.note_limit("max", said, "still", at).unwrap();
        assert_eq!(limit.streak, streak);
        assert_eq!(limit.until.duration_since(at).as_mins(), minutes);
        assert!(limit.why.contains("which has passed"), "{}", limit.why);
        at = limit.until;
    }
    // An answer clears the limit only if its request was sent after the last refusal.
    let noted = later(61 + 10 + 20);
    store.clear_limit("max", noted, at).unwrap();
    assert!(store.limit("max", later(92)).unwrap().is_some());
    store.clear_limit("max", later(92), at).unwrap();
    assert_eq!(store.limit("max", later(92)).unwrap(), None);
    assert_eq!(store.note_limit("max", None, "", at).unwrap().streak, 1);
    // A limit whose recorded time is in the future was recorded while the clock was wrong, so any
    // answer clears it.
    store.clear_limit("max", now(), now()).unwrap();
    assert_eq!(store.note_limit("max", None, "", at).unwrap().streak, 1);
    // After the clock is set back by a year, the limit does not last a year longer.
    let past = later(-365 * 24 * 60);
    assert_eq!(store.limit("max", past).unwrap(), None);
}

#[test]
fn acknowledgement_ends_the_streak_and_is_logged() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    for (n, class) in [Class::Crash, Class::Crash, Class::Auth].into_iter().enumerate() {
        let run = fixture.requested("dream", &format!("{n}"));
        fixture.store.decline(&run, &failed(class), now()).unwrap();
    }
    // Failures before the start are counted for the user's information and never open the breaker.
    let streak = fixture.store.streak(job).unwrap();
    assert_eq!((streak.failures, streak.started, streak.last), (3, 0, None));
    assert!(!crate::admission::stopped(streak));
    let project = fixture.project.clone();
    let ack = |fixture: &mut Fixture| {
        fixture.store.acknowledge(&project, job, "dream", "ann", later(1)).unwrap()
    };
    assert_eq!(ack(&mut fixture), 3);
    assert_eq!(fixture.store.streak(job).unwrap(), Streak::default());
    assert_eq!(ack(&mut fixture), 0, "no failures are left to acknowledge");
    let events: i64 = fixture
        .store
        .db
        .query_row(
            "SELECT count(*) FROM events WHERE kind = 'acknowledged' AND detail LIKE '%by ann'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(events, 1);
    // The next failure starts a new streak. A single failed login opens the breaker. A single
    // failure of another class does not.
    for (n, class) in [Class::Crash, Class::Auth].into_iter().enumerate() {
        let admitted = fixture.admitted(&format!("later {n}"));
        fixture.end(admitted.run(), &failed(class), later(2));
        let streak = fixture.store.streak(job).unwrap();
        assert_eq!(crate::admission::stopped(streak), class == Class::Auth);
    }
}

#[test]
fn format_1_database_keeps_live_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    let frozen =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.db");
    std::fs::copy(frozen, &path).unwrap();
    let mut store = Store::open(&path).unwrap();
    store.check().unwrap();
    // The saved database contains a live run, which has reserved ten calls at the day level and has
    // one request in progress.
    let run: RunId = "01M80087Y0000000000000003Z".parse().unwrap();
    assert_eq!(store.holders().unwrap(), std::slice::from_ref(&run));
    let key = "01M5JT1KR00000000000000001 2026-11-21".to_owned();
    let day = BudgetLevel::new(DAY, key.clone(), key, calls(12));
    let standing = store.standing(&day, now()).unwrap();
    assert_eq!((standing.reserved.calls, standing.left()[0]), (10, Some(2)));
    assert_eq!(store.left_of(&run).unwrap().calls, 9);
    store.grant(&grant_of(DAY, &day.key, 1, None)).unwrap();
    let request = store.reserve_request(&run, "x", one_call(), now()).unwrap().unwrap();
    let spent = RequestUsage::Known(one_call());
    store.settle_request(request, spent, Some(Money::Stated), "", now()).unwrap();
    let lost = Outcome::Lost { why: "killed".to_owned() };
    store.settle_dead(&run, &lost, &RunSummary::default(), None, now()).unwrap();
    let standing = store.standing(&day, now()).unwrap();
    assert_eq!((standing.used.calls, standing.left()[0]), (2, Some(11)));
    assert!(store.holders().unwrap().is_empty());
}

#[test]
fn fallbacks_are_reserved_or_left_out() {
    let mut fixture = fixture();
    let day = BudgetLevel::new(DAY, "p".to_owned(), "day".to_owned(), Budget::default());
    let pool = pool_day(calls(5));
    let timeout = std::time::Duration::from_secs(7200);
    let ask = |fixture: &Fixture| {
        fixture
            .store
            .chained(
                calls(3),
                timeout,
                vec![day.clone()],
                vec![vec![day.clone()], vec![day.clone(), pool.clone()]],
                now(),
            )
            .unwrap()
    };
    let held = ask(&fixture);
    assert_eq!(held.short, [None, None]);
    assert_eq!(held.levels, [day.clone(), pool.clone()]);
    assert_eq!(held.want.seconds, Some(7200), "fallbacks do not change the requested time");
    fixture.enters("dream", held.want, &held.levels).unwrap();
    assert_eq!(
        fixture.store.account(POOL_DAY, &pool.key).unwrap().calls,
        3,
        "the calls are also reserved in the fallback's pool"
    );
    let held = ask(&fixture);
    let short = held.short[1].as_ref().unwrap();
    assert_eq!((held.short[0].as_ref(), short.left, short.wanted), (None, 2, 3));
    assert_eq!((held.want, held.levels), (calls(3), vec![day.clone()]));
}
