//! Generates random database rows: runs with every outcome and state, nights, alerts, budgets and
//! grants, with strings that are hard to render.

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::{AlertId, MessageId, OccurrenceId, RunId};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::process_id::ProcessIdentity;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

/// The parts of the random strings.
const PARTS: [&str; 20] = [
    "plain words",
    "<script>alert(1)</script>",
    "a\u{1b}[31mred\u{1b}[0m",
    "\u{202e}gnp.exe",
    "漢字夜夜 🌙 ✓",
    "line one\nline two",
    "tab\there",
    "| pipe | `code` **bold** [link](http://x)",
    "\"quoted\" 'single' & amp;",
    "{{ 7 * 7 }} {% raw %}",
    "sk-ant-api03-0123456789abcdefghijklmnop",
    "a-very-long-word-without-any-space-in-it-which-no-column-of-a-terminal-can-hold-as-a-whole",
    "e\u{301}\u{200d}zero\u{200b}width",
    "null",
    "0",
    "\u{7}bell\u{9b}31m",
    "run 01KA5V7Q4B failed",
    "&lt;already&gt;",
    "\\u{41}",
    "ß ſ İ",
];

/// A pseudorandom number generator. The same seed gives the same numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Returns a number below `limit`.
    pub fn roll(&mut self, limit: u32) -> u32 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(limit)).unwrap()
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let at = self.roll(u32::try_from(all.len()).unwrap());
        &all[usize::try_from(at).unwrap()]
    }

    /// Returns a string that begins with `start` and a number.
    fn text(&mut self, start: &str) -> String {
        let mut text = format!("{start} {}", self.roll(1_000));
        for _ in 0..self.roll(4) {
            text.push(' ');
            let part: &str = self.pick::<&str>(&PARTS);
            text.push_str(part);
        }
        text
    }

    fn texts(&mut self, start: &str) -> Vec<String> {
        (0..self.roll(3)).map(|_| self.text(start)).collect()
    }

    fn outcome(&mut self, now: Timestamp) -> Outcome {
        const CLASSES: [Class; 12] = [
            Class::Auth,
            Class::NotInstalled,
            Class::Environment,
            Class::RateLimited,
            Class::OverBudget,
            Class::Silent,
            Class::Malformed,
            Class::ArtifactMissing,
            Class::Guard,
            Class::Exit,
            Class::Crash,
            Class::Internal,
        ];
        const REASONS: [SkipReason; 7] = [
            SkipReason::Idle,
            SkipReason::Interval,
            SkipReason::Busy,
            SkipReason::Late,
            SkipReason::Stopped,
            SkipReason::Unfollowed,
            SkipReason::Restored,
        ];
        let why = self.text("because");
        match self.roll(9) {
            0 | 1 => Outcome::Succeeded,
            2 => Outcome::Degraded { why },
            3 => Outcome::Failed { class: *self.pick(&CLASSES), why },
            4 => Outcome::TimedOut { why },
            5 => Outcome::Cancelled { why },
            6 => Outcome::Lost { why },
            7 => Outcome::skipped(*self.pick(&REASONS), why),
            _ => Outcome::Deferred { until: now + SignedDuration::from_secs(3_600), why },
        }
    }

    fn amounts(&mut self) -> [u32; 5] {
        [self.roll(30), self.roll(90_000), self.roll(4_000_000), self.roll(7_000), self.roll(20)]
    }
}

/// Writes rows into the database of a project with registered jobs.
pub struct Writer<'a> {
    pub db: &'a Connection,
    pub dice: &'a mut Dice,
    pub project: &'a str,
    pub now: Timestamp,
}

impl Writer<'_> {
    /// Writes `nights` nights, the last of which is open, and `count` runs, with alerts, missed
    /// scheduled times and budgets.
    pub fn fill(&mut self, nights: u32, count: u32) {
        let nights: Vec<i64> = (0..nights).map(|at| self.night(nights - 1 - at)).collect();
        let jobs: Vec<i64> = self.numbers("SELECT id FROM jobs ORDER BY id");
        for at in 0..count {
            // A run's time need not lie in the run's night, because no form compares the two.
            let requested = self.now - SignedDuration::from_secs(60 * i64::from(count - at));
            let night = (self.dice.roll(8) > 0).then(|| *self.dice.pick(&nights));
            let job = *self.dice.pick(&jobs);
            self.run(job, night, requested);
        }
        for (at, job) in jobs.iter().enumerate() {
            self.alert(*job, "failure", at % 2 == 0);
            self.alert(*job, "stale", at % 3 == 0);
            let night = *self.dice.pick(&nights);
            self.missed(*job, night);
        }
        self.budgets(*nights.last().unwrap());
    }

    fn numbers(&self, sql: &str) -> Vec<i64> {
        let mut statement = self.db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Writes the night that opened `ago` days and one hour ago.
    fn night(&mut self, ago: u32) -> i64 {
        let opens = self.now - SignedDuration::from_hours(24 * i64::from(ago) + 1);
        let name = opens.strftime("%Y-%m-%d").to_string();
        let closes = opens + SignedDuration::from_hours(8);
        let closed = (ago > 0).then(|| closes.as_millisecond());
        let sql =
            "INSERT INTO nights (project, name, opens, closes, closed) VALUES (?1, ?2, ?3, ?4, ?5)";
        let (opens, closes) = (opens.as_millisecond(), closes.as_millisecond());
        self.db.execute(sql, params![self.project, name, opens, closes, closed]).unwrap();
        self.db.last_insert_rowid()
    }

    fn run(&mut self, job: i64, night: Option<i64>, requested: Timestamp) {
        let state = *self.dice.pick(&[
            "settled",
            "settled",
            "settled",
            "settled",
            "queued",
            "requested",
            "running",
        ]);
        let settled = (state == "settled").then(|| self.dice.outcome(self.now));
        let outcome = settled.as_ref().map(|it| serde_json::to_string(it).unwrap());
        let was_admitted = state == "running"
            || settled.as_ref().is_some_and(|it| {
                !matches!(it, Outcome::Skipped { .. } | Outcome::Deferred { .. })
            });
        let at = requested.as_millisecond();
        let finished = settled.as_ref().map(|_| at + 50_000);
        let occurrence = OccurrenceId::new(requested).to_string();
        let attempts = 1 + self.dice.roll(3);
        let origin = *self.dice.pick(&["clock", "event", "queue", "manual"]);
        self.db
            .execute(
                "INSERT INTO occurrences (id, job, key, due, recorded, night, origin, priority, outcome, settled)
                 VALUES (?1, ?2, ?1, ?3, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![occurrence, job, at, night, origin, self.dice.roll(3), outcome, finished],
            )
            .unwrap();
        let owner =
            json!(ProcessIdentity { pid: 1, start: 1, boot: "another boot".into() }).to_string();
        let cancel = (was_admitted && self.dice.roll(4) == 0).then(|| self.dice.text("ended by"));
        let run = RunId::new(requested).to_string();
        self.db
            .execute(
                "INSERT INTO runs (id, occurrence, job, attempt, state, ready_at, fence, requested, started,
                     finished, starter, owner, deadline, cancel, seed, staging, model_calls, outcome, summary)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, ?10, ?11, 1, ?12, 1, ?13, ?14, ?15, ?16)",
                params![
                    run,
                    occurrence,
                    job,
                    attempts,
                    state,
                    (state == "queued").then_some(at),
                    at,
                    was_admitted.then_some(at + 1_000),
                    finished,
                    (state != "queued").then_some(&owner),
                    was_admitted.then_some(&owner),
                    cancel,
                    (state == "running").then_some(".runner/staging/x"),
                    self.dice.roll(9),
                    outcome,
                    (was_admitted || settled.is_some()).then(|| self.summary().to_string()),
                ],
            )
            .unwrap();
        let requests = if was_admitted { self.dice.roll(3) } else { 0 };
        for _ in 0..requests {
            let [calls, tokens, micros, _, ideas] = self.dice.amounts();
            self.db
                .execute(
                    "INSERT INTO requests (run, made, backend, calls, tokens, micros, ideas, stated, money, settled)
                     VALUES (?1, ?2, 'builtin', ?3, ?4, ?5, ?6, 1, 'stated', ?2)",
                    params![run, at, calls, tokens, micros, ideas],
                )
                .unwrap();
        }
    }

    fn summary(&mut self) -> Value {
        let (headline, lines) = match self.dice.roll(3) {
            0 => (String::new(), Vec::new()),
            _ => (self.dice.text("did"), self.dice.texts("evidence")),
        };
        let files = self.dice.roll(3);
        let artifacts: Vec<String> = (0..files).map(|at| format!("dreams/{at} ü <b>.md")).collect();
        json!({
            "headline": headline, "lines": lines, "artifacts": artifacts,
            "backend": self.dice.pick(&["", "builtin", "claude → builtin"]),
            "containment": self.dice.pick(&["", "full", "files only"]),
        })
    }

    fn alert(&mut self, job: i64, kind: &str, open: bool) {
        let at = self.now.as_millisecond() - i64::from(self.dice.roll(80_000_000));
        let id = AlertId::new(self.now).to_string();
        let silenced = (self.dice.roll(3) == 0).then_some(at + 5);
        self.db
            .execute(
                "INSERT INTO alerts (id, job, kind, raised, last, notified, count, why, silenced, silenced_by,
                     ended, ending) VALUES (?1, ?2, ?3, ?4, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    id,
                    job,
                    kind,
                    at,
                    1 + self.dice.roll(9),
                    self.dice.text("why"),
                    silenced,
                    silenced.map(|_| "ada <b>"),
                    (!open).then_some(at + 9),
                    (!open).then_some("recovered"),
                ],
            )
            .unwrap();
        for _ in 0..self.dice.roll(3) {
            let state = *self.dice.pick(&["waiting", "delivered", "given-up", "withdrawn"]);
            self.db
                .execute(
                    "INSERT INTO messages (id, alert, channel, kind, made, detail, state, tries, next, ended, error)
                     VALUES (?1, ?2, 'phone', 'raised', ?3, '{}', ?4, 2, ?3, ?5, ?6)",
                    params![
                        MessageId::new(self.now).to_string(),
                        id,
                        at,
                        state,
                        (state != "waiting").then_some(at),
                        self.dice.text("error"),
                    ],
                )
                .unwrap();
        }
    }

    /// Writes an occurrence for scheduled times that passed without a run.
    fn missed(&mut self, job: i64, night: i64) {
        let (first, count) =
            (self.now - SignedDuration::from_hours(9), 1 + u64::from(self.dice.roll(4)));
        let outcome =
            Outcome::Missed { first, last: self.now, count, why: self.dice.text("asleep") };
        let id = OccurrenceId::new(self.now).to_string();
        self.db
            .execute(
                "INSERT INTO occurrences (id, job, key, due, recorded, night, origin, outcome, settled)
                 VALUES (?1, ?2, ?1, ?3, ?3, ?4, 'clock', ?5, ?3)",
                params![
                    id,
                    job,
                    self.now.as_millisecond(),
                    night,
                    serde_json::to_string(&outcome).unwrap()
                ],
            )
            .unwrap();
    }

    /// Writes the usage, reservations and grants of the day and the open night.
    fn budgets(&mut self, night: i64) {
        let day = format!("{} {}", self.project, self.now.strftime("%Y-%m-%d"));
        let running: Vec<String> = {
            let mut statement =
                self.db.prepare("SELECT id FROM runs WHERE state = 'running'").unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        for (level, key) in [("day", day), ("night", night.to_string())] {
            let [calls, tokens, micros, seconds, ideas] = self.dice.amounts();
            let sql = "INSERT INTO budget_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            self.db
                .execute(sql, params![level, key, calls, tokens, micros, seconds, ideas])
                .unwrap();
            for run in running.iter().take(2) {
                let sql = "INSERT INTO reservations VALUES (?1, ?2, ?3, ?4, 100, 20000, 60, 1, 1)";
                self.db.execute(sql, params![run, level, key, self.dice.roll(4)]).unwrap();
            }
            for _ in 0..self.dice.roll(3) {
                let sql = "INSERT INTO grants (level, key, made, calls, tokens, micros, seconds, ideas, reason, who)
                           VALUES (?1, ?2, ?3, ?4, 5000, 30000, 120, 2, ?5, 'ada <b>')";
                let made = self.now.as_millisecond() - 1_000;
                let reason = self.dice.text("reason");
                self.db.execute(sql, params![level, key, made, self.dice.roll(9), reason]).unwrap();
            }
        }
    }
}
