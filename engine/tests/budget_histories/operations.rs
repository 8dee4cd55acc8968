//! The operations of a history.

use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::admission::AdmissionFacts;
use runner_engine::failpoint::fail_commits_after;
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{
    Admission, Amounts, Budget, BudgetLevel, Enter, Grant, NewOccurrence, POOL_DAY, Recorded,
    RequestUsage, RunSummary, StoreError, WINDOW,
};
use runner_engine::time::ClockReading;

use super::history::{Bug, History, Out, Run};

impl History {
    pub fn act(&mut self) {
        match self.random.between(0, 100) {
            0..25 => self.start(),
            25..50 => self.ask(),
            50..74 => self.answer(),
            74..82 => self.end(),
            82..87 => self.die(),
            87..92 => self.recover(),
            92..94 => self.grant(),
            94..97 => self.escalate(),
            97..99 => {
                let minutes = self.random.spread(1, 400);
                self.now = self.now.saturating_add(SignedDuration::from_mins(minutes)).unwrap();
            }
            _ => self.reopen(),
        }
    }

    /// Settles all runs.
    pub fn rest(&mut self) {
        self.checked.clear();
        while !self.runs.is_empty() {
            let last = self.runs.len() - 1;
            if self.runs[last].dead {
                if self.bug == Some(Bug::NeverRecovered) {
                    self.runs.remove(last);
                    continue;
                }
                self.recover_stale(last);
            } else {
                self.settle(last);
            }
        }
    }

    fn want(&mut self) -> Budget {
        let mut unit = |most: i64| {
            self.random.permille(700).then(|| self.random.spread(1, most).unsigned_abs())
        };
        Budget { calls: unit(8), tokens: unit(8_000), micros: unit(16_000), ..Budget::default() }
    }

    fn start(&mut self) {
        if self.bug == Some(Bug::CheckThenReserve)
            && let Some((job, want)) = self.checked.pop()
        {
            // The budget that was read is now outdated.
            let mut levels = self.levels(self.jobs[job].project);
            levels.iter_mut().for_each(|level| level.cap = Budget::default());
            if self.is_free(job) {
                self.enter(job, want, &levels, None);
            }
            return;
        }
        let job = usize::try_from(self.random.between(0, self.jobs.len() as i64)).unwrap();
        if !self.is_free(job) {
            return;
        }
        let want = self.want();
        let mut levels = self.levels(self.jobs[job].project);
        if self.bug == Some(Bug::CheckThenReserve) {
            let fits = levels.iter().all(|level| {
                let left = self.store.standing(level, self.now).unwrap().left();
                (0..3).all(|unit| want.array()[unit].unwrap_or(1) <= left[unit].unwrap_or(u64::MAX))
            });
            if fits {
                self.checked.push((job, want));
            }
            if self.checked.len() < 3 {
                return;
            }
            return self.start();
        }
        if self.bug == Some(Bug::GrantTwice) {
            for level in &mut levels {
                let more = self.store.standing(level, self.now).unwrap().granted;
                let mut cap = level.cap;
                cap.calls = cap.calls.map(|cap| cap + more.calls);
                cap.tokens = cap.tokens.map(|cap| cap + more.tokens);
                level.cap = cap;
            }
        }
        self.enter(job, want, &levels, None);
    }

    fn is_free(&self, job: usize) -> bool {
        self.runs.iter().all(|run| run.job != job)
    }

    fn enter(&mut self, job: usize, want: Budget, levels: &[BudgetLevel], parent: Option<usize>) {
        self.number += 1;
        let new = NewOccurrence::manual(
            self.jobs[job].id,
            format!("occurrence {}", self.number),
            self.now,
        );
        let Recorded::New(id) = self.store.enter(&new, &self.me, self.now).unwrap() else {
            panic!("the occurrence was already known")
        };
        let mut accounts: Vec<(String, String)> = Vec::new();
        if let Some(parent) = parent {
            accounts.extend(self.runs[parent].accounts.clone());
        }
        for level in levels.iter().filter(|level| level.level != "parent") {
            let account = self.name(level);
            if !accounts.contains(&account) {
                accounts.push(account);
            }
        }
        let blown = self.random.permille(15);
        fail_commits_after(blown.then_some(0));
        let facts = AdmissionFacts { free_bytes: u64::MAX, ..AdmissionFacts::default() };
        let admitted = self.store.admit(&Enter {
            run: &id,
            owner: &self.me,
            facts: &facts,
            want,
            levels,
            total: Duration::from_secs(3_600),
            staging: "s",
            now: ClockReading { wall: self.now, boot: Duration::from_secs(100) },
        });
        fail_commits_after(None);
        match admitted {
            Ok(Admission::Admitted(_)) => {}
            Ok(Admission::Declined(outcome)) => {
                assert!(outcome.to_string().contains("over-budget"), "{outcome}");
                self.counts.refused += 1;
                return;
            }
            Err(StoreError::CannotWrite { .. }) if blown => {
                // The run died before its admission, and its starter records that.
                self.counts.blown += 1;
                let why = "died".to_owned();
                self.store.decline(&id, &Outcome::Lost { why }, self.now).unwrap();
                return;
            }
            Err(error) => panic!("{error:?}"),
        }
        self.counts.runs += 1;
        self.counts.escalations += u64::from(parent.is_some());
        for account in &accounts {
            let caps = match account.0.as_str() {
                POOL_DAY => self.pool,
                WINDOW => self.window,
                _ => self.day,
            };
            let truth = self.truth.entry(account.clone()).or_default();
            if truth.most == [None; 5] {
                truth.most = caps.array();
            }
        }
        self.all_runs.insert(id.clone(), accounts.clone());
        self.runs.push(Run { id, job, accounts, out: None, dead: false, stopped: false });
    }

    fn pick(&mut self, fit: impl Fn(&Run) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.runs.len()).filter(|run| fit(&self.runs[*run])).collect();
        (!fit.is_empty()).then(|| *self.random.one_of(&fit))
    }

    fn ask(&mut self) {
        let Some(run) = self.pick(|run| !run.dead && !run.stopped && run.out.is_none()) else {
            return;
        };
        let id = self.runs[run].id.clone();
        let left = self.store.left_of(&id).unwrap();
        let mut part = |most: u64| {
            let most = i64::try_from(most).unwrap();
            self.random.between(0, most + most / 8 + 1).unsigned_abs()
        };
        let reserved = Amounts {
            calls: 1,
            tokens: part(left.tokens),
            micros: part(left.micros),
            ..Amounts::default()
        };
        let request = self.store.reserve_request(&id, "x", reserved, self.now).unwrap();
        let fits =
            left.calls > 0 && reserved.tokens <= left.tokens && reserved.micros <= left.micros;
        let Ok(request) = request else {
            assert!(!fits, "a request that fits was refused: {reserved:?} of {left:?}");
            return;
        };
        assert!(fits, "a request for too much was accepted: {reserved:?} of {left:?}");
        self.counts.requests += 1;
        // The usage occurs immediately and sometimes exceeds the reservation.
        let over = self.random.permille(60);
        let mut part = |most: u64| match over {
            true => most + self.random.between(1, 500).unsigned_abs(),
            false => self.random.between(0, i64::try_from(most).unwrap() + 1).unsigned_abs(),
        };
        let truly = Amounts {
            calls: 1,
            tokens: part(reserved.tokens),
            micros: part(reserved.micros),
            ..Amounts::default()
        };
        // Excess usage is reported immediately, so the run cannot die before the report.
        self.runs[run].out = Some(Out { id: request, reserved, truly });
        if over {
            self.counts.over += 1;
            self.report_usage(run, true);
        } else {
            self.spend(run, truly, Amounts::default());
        }
    }

    fn spend(&mut self, run: usize, truly: Amounts, beyond: Amounts) {
        for account in self.runs[run].accounts.clone() {
            let truth = self.truth.get_mut(&account).unwrap();
            truth.spent = truth.spent.plus(truly);
            truth.beyond = truth.beyond.plus(beyond);
        }
    }

    fn answer(&mut self) {
        if let Some(run) = self.pick(|run| !run.dead && run.out.is_some()) {
            self.report_usage(run, false);
        }
    }

    fn report_usage(&mut self, run: usize, over: bool) {
        let out = self.runs[run].out.take().unwrap();
        let unknown = self.random.permille(250);
        let spent = match (over, unknown) {
            (true, _) if self.bug == Some(Bug::OverIsCut) => RequestUsage::Known(out.reserved),
            (true, true) => RequestUsage::AtLeast(out.truly),
            (_, false) => RequestUsage::Known(out.truly),
            (false, true) if self.bug == Some(Bug::UnknownIsFree) => {
                RequestUsage::Known(Amounts::default())
            }
            (false, true) if self.random.permille(300) => {
                RequestUsage::Known(Amounts { tokens: u64::MAX, ..out.truly })
            }
            (false, true) => RequestUsage::Unknown,
        };
        self.counts.unknown += u64::from(unknown);
        if over {
            let beyond = out.truly.less(out.reserved);
            self.spend(run, out.truly, beyond);
            self.runs[run].stopped = true;
        }
        let blown = !over && self.random.permille(30);
        fail_commits_after(blown.then_some(0));
        let reported = self.store.settle_request(out.id, spent, None, "", self.now);
        fail_commits_after(None);
        match reported {
            Ok(()) => assert!(!blown),
            Err(StoreError::CannotWrite { .. }) if blown => {
                self.counts.blown += 1;
                self.counts.deaths += 1;
                self.runs[run].out = Some(out);
                self.runs[run].dead = true;
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn end(&mut self) {
        if let Some(run) = self.pick(|run| !run.dead) {
            self.settle(run);
        }
    }

    fn settle(&mut self, run: usize) {
        if self.bug == Some(Bug::EndTakesBack)
            && let Some(out) = &self.runs[run].out
        {
            let none = RequestUsage::Known(Amounts::default());
            self.store.settle_request(out.id, none, None, "", self.now).unwrap();
        }
        let id = self.runs[run].id.clone();
        self.store
            .settle(&id, None, &Outcome::Succeeded, &RunSummary::default(), self.now)
            .unwrap();
        let run = self.runs.remove(run);
        // After the run is settled, an answer changes nothing.
        if let Some(out) = run.out {
            let none = RequestUsage::Known(Amounts::default());
            self.store.settle_request(out.id, none, None, "", self.now).unwrap();
        }
    }

    fn die(&mut self) {
        if let Some(run) = self.pick(|run| !run.dead) {
            self.runs[run].dead = true;
            self.counts.deaths += 1;
        }
    }

    fn recover(&mut self) {
        if self.bug == Some(Bug::NeverRecovered) {
            return;
        }
        if let Some(run) = self.pick(|run| run.dead) {
            self.recover_stale(run);
        }
    }

    fn recover_stale(&mut self, run: usize) {
        if self.bug == Some(Bug::ForgetTheLost)
            && let Some(out) = &self.runs[run].out
        {
            let none = RequestUsage::Known(Amounts::default());
            self.store.settle_request(out.id, none, None, "", self.now).unwrap();
        }
        let id = self.runs[run].id.clone();
        let outcome = Outcome::Lost { why: "killed".to_owned() };
        let blown = self.random.permille(100);
        fail_commits_after(blown.then_some(0));
        let done = self.store.settle_dead(&id, &outcome, &RunSummary::default(), None, self.now);
        fail_commits_after(None);
        match done {
            Ok(_) => {
                self.runs.remove(run);
            }
            // The recovering process may die too. The next one tries again.
            Err(StoreError::CannotWrite { .. }) if blown => self.counts.blown += 1,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn grant(&mut self) {
        let project = usize::from(self.random.permille(500));
        let levels = self.levels(project);
        let level = self.random.one_of(&levels).clone();
        let standing = self.store.standing(&level, self.now).unwrap();
        let account = self.name(&level);
        // Grants can only be added to levels that have been used.
        if !self.truth.contains_key(&account)
            || (level.window.is_some() && standing.window.is_none())
        {
            return;
        }
        let minutes = self.random.spread(1, 300);
        let ends = self.random.permille(500);
        let until = self.now.saturating_add(SignedDuration::from_mins(minutes)).unwrap();
        let amounts = Amounts {
            calls: self.random.spread(1, 20).unsigned_abs(),
            tokens: self.random.spread(1, 20_000).unsigned_abs(),
            ..Amounts::default()
        };
        self.store
            .grant(&Grant {
                level: standing.level.level.to_owned(),
                key: standing.level.key,
                made: self.now,
                until: ends.then_some(until),
                amounts,
                reason: "more".to_owned(),
                who: "ann".to_owned(),
            })
            .unwrap();
        self.counts.grants += 1;
        let truth = self.truth.get_mut(&account).unwrap();
        let more = amounts.array();
        for (unit, most) in truth.most.iter_mut().enumerate() {
            *most = most.map(|most| most + more[unit]);
        }
    }

    fn escalate(&mut self) {
        let Some(parent) = self.pick(|run| !run.dead) else {
            return;
        };
        let project = self.jobs[self.runs[parent].job].project;
        let free: Vec<usize> = (0..self.jobs.len())
            .filter(|job| self.jobs[*job].project == project && self.is_free(*job))
            .collect();
        if free.is_empty() {
            return;
        }
        let job = *self.random.one_of(&free);
        let id: RunId = self.runs[parent].id.clone();
        let mut levels = vec![BudgetLevel::of_parent(&id)];
        if self.bug == Some(Bug::ChildBeside) {
            levels = self.levels(project);
            levels.iter_mut().for_each(|level| level.cap = Budget::default());
        }
        let want = self.want();
        let before = self.store.left_of(&id).unwrap();
        let runs = self.counts.runs;
        self.enter(job, want, &levels, Some(parent));
        if self.counts.runs > runs && self.bug.is_none() {
            let child = self.runs.last().unwrap().id.clone();
            let [left, given] = [&id, &child].map(|run| self.store.left_of(run).unwrap());
            assert_eq!(left.plus(given), before, "parent and child do not add up");
        }
    }

    /// Ends all processes and reopens the database.
    fn reopen(&mut self) {
        let Some((_, path)) = &self.file else { return };
        self.store = runner_engine::store::Store::in_memory().unwrap();
        self.store = runner_engine::store::Store::open(path).unwrap();
        self.store.check().unwrap();
        for run in &mut self.runs {
            run.dead = true;
        }
        self.counts.reopened += 1;
    }
}
