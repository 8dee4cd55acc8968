//! Tests that a list of runs equals the result of filtering all rows, and tests the text index.

use rusqlite::params;

use super::*;
use crate::store::columns::to_json;

const WORDS: [&str; 8] = ["Sandbox", "budget", "n\"ight", "ab", "time out", "Ä", "%_", "abc"];

/// A pseudorandom number generator. Each test passes a fixed seed, so its numbers never change.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    fn outcome(&mut self) -> Outcome {
        let why = format!("{} {}", self.word(), self.word());
        match self.below(6) {
            0 | 1 => Outcome::Succeeded,
            2 => Outcome::Degraded { why },
            3 => Outcome::Failed { class: Class::Auth, why },
            4 => Outcome::Lost { why },
            _ => Outcome::Cancelled { why },
        }
    }
}

/// Inserts 400 settled and queued runs in four projects, most of them in the first project.
fn many_runs(store: &mut Store, numbers: &mut Numbers) {
    let db = &store.db;
    for project in 0..4_u32 {
        let id = ProjectId::new(later(i64::from(project))).to_string();
        let sql =
            "INSERT INTO projects (id, path, device, inode, created) VALUES (?1, ?1, 0, 0, 0)";
        db.execute(sql, [&id]).unwrap();
        for job in 0..3 {
            db.execute(
                "INSERT INTO jobs (project, name, kind, schedule, policy, slot_group, enabled, watermark)
                 SELECT ?1, ?2, 'command', schedule, policy, '', 1, 0 FROM jobs WHERE name = 'dream' LIMIT 1",
                params![id, format!("job-{project}{job}")],
            )
            .unwrap();
        }
    }
    let jobs: Vec<i64> = {
        let mut ids =
            db.prepare("SELECT id FROM jobs WHERE name LIKE 'job-%' ORDER BY id").unwrap();
        ids.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    };
    for number in 0..400_i64 {
        let job = match numbers.below(3) {
            0 => jobs[numbers.below(jobs.len())],
            _ => jobs[numbers.below(3)],
        };
        let at = later(number - if number == 200 { 90 } else { 0 });
        let (occurrence, run) = (OccurrenceId::new(at).to_string(), RunId::new(at).to_string());
        let outcome = numbers.outcome();
        let ended = numbers.below(10) > 0;
        let (outcome, end) = (ended.then(|| to_json(&outcome)), ended.then(|| millis(at)));
        db.execute(
            "INSERT INTO occurrences (id, job, key, due, recorded, origin, outcome, settled)
             VALUES (?1, ?2, ?1, ?3, ?3, 'clock', ?4, ?5)",
            params![occurrence, job, millis(at), outcome, end],
        )
        .unwrap();
        db.execute(
            "INSERT INTO runs (id, occurrence, job, attempt, state, ready_at, requested, seed)
             VALUES (?1, ?2, ?3, 1, 'queued', ?4, ?4, 0)",
            params![run, occurrence, job, millis(at)],
        )
        .unwrap();
        let headline = numbers.word().to_owned();
        let summary = to_json(&RunSummary { headline, ..RunSummary::default() });
        if ended {
            let sql = "UPDATE runs SET state = 'settled', outcome = ?2, finished = ?3, summary = ?4 WHERE id = ?1";
            db.execute(sql, params![run, outcome, end, summary]).unwrap();
        }
    }
}

fn matches(row: &RunRow, filter: &RunFilter) -> bool {
    let outcome = row.outcome();
    let text = [&row.job_name, &row.summary.headline, outcome.and_then(Outcome::why).unwrap_or("")]
        .join("\n")
        .to_ascii_lowercase();
    let wanted =
        |text_of: &String| outcome.is_some() && text.contains(&text_of.to_ascii_lowercase());
    let name = outcome.map_or(row.state.name(), Outcome::as_str);
    filter.project.as_ref().is_none_or(|id| row.project == *id)
        && filter.job.is_none_or(|id| row.job == id)
        && filter.outcome.as_ref().is_none_or(|it| name == it)
        && (!filter.failed || ["failed", "timed-out", "lost"].contains(&name))
        && filter.text.as_ref().is_none_or(wanted)
        && filter.since.is_none_or(|since| row.requested >= since)
        && filter.prefix.as_ref().is_none_or(|prefix| row.id.as_str().starts_with(prefix.as_str()))
}

#[test]
fn lists_equal_a_filter_over_all_rows() {
    let mut fixture = fixture();
    let mut numbers = Numbers(7);
    many_runs(&mut fixture.store, &mut numbers);
    let all = fixture.store.runs(&RunFilter::default()).unwrap();
    assert_eq!(all.len(), 400);
    let projects: Vec<ProjectId> = all.iter().map(|row| row.project.clone()).collect();
    let (mut cases, mut found) = (0, 0);
    for _ in 0..2_000 {
        let some = |numbers: &mut Numbers| numbers.below(3) == 0;
        let row = all[numbers.below(all.len())].clone();
        let filter = RunFilter {
            project: some(&mut numbers).then(|| projects[numbers.below(projects.len())].clone()),
            job: (numbers.below(6) == 0).then_some(row.job),
            outcome: some(&mut numbers)
                .then(|| row.outcome().map_or(row.state.name(), Outcome::as_str).to_owned()),
            failed: some(&mut numbers),
            text: some(&mut numbers).then(|| match numbers.below(4) {
                0 => row.job_name.clone(),
                1 => format!("{} {}", numbers.word(), numbers.word()),
                2 => "a".to_owned(),
                _ => numbers.word().to_uppercase(),
            }),
            since: some(&mut numbers).then_some(row.requested),
            before: some(&mut numbers).then(|| all[numbers.below(all.len())].id.clone()),
            prefix: (numbers.below(9) == 0)
                .then(|| row.id.as_str()[..9 + numbers.below(6)].to_owned()),
            limit: u32::try_from(numbers.below(9)).unwrap(),
            ..RunFilter::default()
        };
        let listed = fixture.store.runs(&filter).unwrap();
        let after = filter.before.as_ref();
        let after = after.map_or(0, |id| all.iter().position(|row| row.id == *id).unwrap() + 1);
        let most = if filter.limit == 0 { all.len() } else { filter.limit as usize };
        let expected = all[after..].iter().filter(|row| matches(row, &filter)).take(most);
        let ids = |row: &RunRow| row.id.to_string();
        let (listed, expected): (Vec<_>, Vec<_>) =
            (listed.iter().map(ids).collect(), expected.map(ids).collect());
        assert_eq!(listed, expected, "{filter:?}");
        cases += 1;
        found += listed.len();
    }
    assert!(found > cases, "{cases} lists contain only {found} runs");
}

#[test]
fn pruned_runs_leave_no_text() {
    let mut fixture = fixture();
    many_runs(&mut fixture.store, &mut Numbers(3));
    let texts = |store: &Store| -> i64 {
        let sql = "SELECT count(*) FROM run_texts";
        store.db.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let ended = "SELECT count(*) FROM runs WHERE state = 'settled'";
    let count: i64 = fixture.store.db.query_row(ended, [], |row| row.get(0)).unwrap();
    assert_eq!(texts(&fixture.store), count);
    fixture.store.vacuum().unwrap();
    let all = fixture.store.runs(&RunFilter::default()).unwrap();
    let named = all.iter().find(|row| row.summary.headline == "Sandbox").unwrap();
    let filter = RunFilter { text: Some("sandbox".to_owned()), limit: 1, ..RunFilter::default() };
    let found = fixture.store.runs(&filter).unwrap();
    assert!(found[0].requested >= named.requested, "the text index still refers to the right runs");
    fixture.store.db.execute_batch("DELETE FROM runs; DELETE FROM occurrences").unwrap();
    assert_eq!(texts(&fixture.store), 0);
    assert_eq!(fixture.store.examine().unwrap().findings.len(), 0);
}
