//! Tests the queue, its cap, event budgets and compaction with many consumers and dying processes.
#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its scale and seed from the environment"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use jiff::{SignedDuration, Timestamp};

use super::events::{self, EventError, NewEvent, Severity};
use super::queue::{Claim, NextFile};
use super::*;

fn now() -> Timestamp {
    "2026-11-22T10:00:00Z".parse().unwrap()
}

/// Treats every run as over.
const OVER: queue::IsOver<'static> = &|_| true;

fn after(minutes: i64) -> Timestamp {
    now().saturating_add(SignedDuration::from_mins(minutes)).unwrap()
}

fn scaled(count: usize) -> usize {
    let scale: f64 =
        std::env::var("RUNNER_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let scaled = (count as f64 * scale).ceil() as usize;
    scaled.max(1)
}

fn print_line(line: &str) {
    let _closed = writeln!(io::stderr(), "{line}");
}

struct Random(u64);

impl Random {
    fn new(test: &str) -> Self {
        let seed = std::env::var("RUNNER_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| u64::from(std::process::id()) * 7919);
        print_line(&format!("{test}: RUNNER_TEST_SEED={seed}"));
        Self(seed)
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

fn place() -> (tempfile::TempDir, Worker) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let worker = Worker::of(&root, ".runner/curator").unwrap();
    worker.make().unwrap();
    (folder, worker)
}

fn spec(cap: u32) -> CuratorSpec {
    CuratorSpec { hourly_cap: cap, ..CuratorSpec::default() }
}

fn names(worker: &Worker, part: &str) -> Vec<String> {
    let entries = fs::read_dir(worker.path(part)).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn claimed(claim: Claim) -> Option<Claimed> {
    match claim.found {
        NextFile::Claimed(claimed) => Some(*claimed),
        _ => None,
    }
}

/// Finishes a job as a publication would.
fn finish(worker: &Worker, claimed: &Claimed) {
    let name = format!("{}.json", claimed.job.id);
    let record = claimed.record(&JobProduct::default(), now());
    let done = worker.path("done").join(&name);
    assert!(!done.exists(), "{name} was finished twice");
    fs::write(done, record).unwrap();
    fs::remove_file(worker.path("processing").join(&name)).unwrap();
}

/// Replaces a claim's owner with a dead process.
fn kill(worker: &Worker, id: &str) {
    let path = worker.path("processing").join(format!("{id}.owner"));
    let text = fs::read_to_string(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["start"] = json!(1);
    fs::write(path, value.to_string()).unwrap();
}

#[test]
fn concurrent_consumers_never_finish_a_job_twice() {
    let (_folder, worker) = place();
    let count = scaled(300);
    for at in 0..count {
        let at = i64::try_from(at).unwrap();
        worker.enqueue(CuratorJobKind::LintWiki, None, 0, after(-at)).unwrap();
    }
    let seed = Random::new("consumers").0;
    let begun = runner_engine::time::boot_time();
    let claims: Mutex<BTreeMap<String, u32>> = Mutex::default();
    let work = |number: u64| {
        let mut dice = Random(seed ^ number);
        let spec = spec(u32::MAX);
        loop {
            let mut consumer = Consumer::new(&worker, &spec);
            let mut any = false;
            for at in 0..20 {
                let Some(claimed) =
                    claimed(consumer.claim(now(), (at == 0).then_some(OVER)).unwrap())
                else {
                    break;
                };
                any = true;
                *claims.lock().unwrap().entry(claimed.job.id.clone()).or_default() += 1;
                if dice.roll(10) == 0 {
                    // The process dies during the job, which ends the whole run.
                    kill(&worker, &claimed.job.id);
                    break;
                }
                finish(&worker, &claimed);
            }
            if !any {
                break;
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..10 {
            scope.spawn(move || work(number));
        }
    });
    // The next consumer recovers the files that the earlier consumers left.
    work(99);
    let (done, failed) = (names(&worker, "done").len(), names(&worker, "failed").len());
    assert_eq!(done + failed / 2, count);
    assert_eq!(failed % 2, 0, "each failed job has a reason file");
    assert!(names(&worker, "queue").is_empty());
    assert!(names(&worker, "processing").iter().all(|name| name.ends_with(".owner")));
    for (id, claims) in claims.into_inner().unwrap() {
        assert!(claims <= 2, "{id} was claimed {claims} times");
    }
    let took = runner_engine::time::boot_time() - begun;
    print_line(&format!("consumers: {count} jobs, {failed} files in failed/, {took:?}"));
}

#[test]
fn hourly_cap_survives_restarts_and_clock_changes() {
    let (_folder, worker) = place();
    for _ in 0..60 {
        worker.enqueue(CuratorJobKind::LintWiki, None, 0, now()).unwrap();
    }
    let spec = spec(7);
    let mut dice = Random::new("cap");
    let (mut starts, mut at) = (Vec::new(), 0);
    while starts.len() < 60 {
        // Each claim simulates a restart.
        let mut consumer = Consumer::new(&worker, &spec);
        match consumer.claim(after(at), Some(OVER)).unwrap().found {
            NextFile::Claimed(claimed) => {
                starts.push(at);
                finish(&worker, &claimed);
            }
            NextFile::Capped { until } => {
                assert!(until > after(at) && until <= after(at + 60));
                at += i64::try_from(dice.roll(13)).unwrap() + 1;
            }
            NextFile::Empty => panic!("the queue is empty after {} of 60 starts", starts.len()),
        }
    }
    for from in 0..at {
        let within = starts.iter().filter(|at| (from..from + 60).contains(*at)).count();
        assert!(within <= 7, "{within} starts in the hour from minute {from}");
    }
    // If the clock is set back by a day, the cap still ends after an hour.
    for _ in 0..2 {
        worker.enqueue(CuratorJobKind::LintWiki, None, 0, now()).unwrap();
    }
    let full = worker.started_within_hour(after(at)).unwrap();
    let back = worker.started_within_hour(after(at - 1440)).unwrap();
    assert_eq!(full, back);
    let again = |minute| {
        Consumer::new(&worker, &spec).claim(after(at - 1440 + minute), Some(OVER)).unwrap().found
    };
    let mut first = again(0);
    while let NextFile::Claimed(claimed) = first {
        finish(&worker, &claimed);
        worker.enqueue(CuratorJobKind::LintWiki, None, 0, now()).unwrap();
        first = again(0);
    }
    assert!(matches!(first, NextFile::Capped { .. }), "{first:?}");
    let later = again(60);
    assert!(matches!(later, NextFile::Claimed(_)), "{later:?}");
    let text = fs::read_to_string(worker.path("logs/hour.jsonl")).unwrap();
    assert!(text.lines().count() <= 16, "{text}");
}

#[test]
fn claims_follow_priority_then_age() {
    let (_folder, worker) = place();
    let mut wanted = Vec::new();
    for (priority, minute) in [(0, 5), (5, 9), (0, 1), (-1, 0), (5, 2)] {
        let job = worker.enqueue(CuratorJobKind::LintWiki, None, priority, after(minute)).unwrap();
        wanted.push(((-priority, minute), job.id));
    }
    wanted.sort();
    let spec = spec(99);
    let mut consumer = Consumer::new(&worker, &spec);
    let mut got = Vec::new();
    while let Some(claimed) =
        claimed(consumer.claim(after(10), got.is_empty().then_some(OVER)).unwrap())
    {
        got.push(claimed.job.id);
    }
    let wanted: Vec<String> = wanted.into_iter().map(|(_, id)| id).collect();
    assert_eq!(got, wanted);
}

/// Claims from the queue long after its files were written, and returns the rejection reasons by
/// name.
fn rejected(worker: &Worker, spec: &CuratorSpec) -> BTreeMap<String, String> {
    let mut consumer = Consumer::new(worker, spec);
    let late = "2099-01-01T00:00:00Z".parse().unwrap();
    let Claim { moved, found } = consumer.claim(late, Some(OVER)).unwrap();
    assert!(matches!(found, NextFile::Claimed(_)), "the valid job is claimed: {found:?}");
    for one in &moved {
        let stem = one.name.trim_end_matches(".json");
        let reason = worker.path("failed").join(format!("{stem}.reason.txt"));
        assert!(fs::read_to_string(reason).unwrap().contains(&one.why));
    }
    moved.into_iter().map(|one| (one.name, one.why)).collect()
}

#[test]
fn invalid_job_files_move_to_failed() {
    let good = "20260102T030405Z-lint-wiki-0123abcd";
    let text = |id: &str, kind: &str, more: &str| {
        format!(
            "{{\"id\":\"{id}\",\"kind\":\"{kind}\",\"created_at\":\"2026-01-02T03:04:05Z\"{more}}}"
        )
    };
    let token = format!("ghp_{}", "aB3".repeat(12));
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("noise", b"\x00\xffnot json".to_vec(), "not JSON"),
        ("half", b"{\"id\": \"20260".to_vec(), "not JSON"),
        ("list", b"[1]".to_vec(), "no kind"),
        (
            "kind",
            text(good, "rm-rf", "").into_bytes(),
            "there is no kind \"rm-rf\" (known kinds: lint-wiki, dream-seed, ingest-claude-session)",
        ),
        ("secret", text(good, &token, "").into_bytes(), "there is no kind"),
        ("unlisted", text(good, "dream-seed", "").into_bytes(), "not among those"),
        ("climbs", text("../../../etc/x", "lint-wiki", "").into_bytes(), "not of the form"),
        ("other", text(good, "lint-wiki", "").into_bytes(), "does not match its file's name"),
        ("large", vec![b' '; 70_000], "has 70000 bytes"),
        (
            good,
            text(
                good,
                "lint-wiki",
                ",\"source\":{\"path\":\"x\",\"chunk_start\":9,\"chunk_end\":2}",
            )
            .into_bytes(),
            "ends (2) before it starts",
        ),
    ];
    let listed = CuratorSpec { kinds: vec![CuratorJobKind::LintWiki], ..CuratorSpec::default() };
    for (name, bytes, why) in cases {
        let (_folder, worker) = place();
        worker.enqueue(CuratorJobKind::LintWiki, None, 0, now()).unwrap();
        fs::write(worker.path("queue").join(format!("{name}.json")), &bytes).unwrap();
        let moved = rejected(&worker, &listed);
        let reported = &moved[&format!("{name}.json")];
        assert!(reported.contains(why), "{name}: {reported}");
        assert_eq!(fs::read(worker.path("failed").join(format!("{name}.json"))).unwrap(), bytes);
        let reason = worker.path("failed").join(format!("{name}.reason.txt"));
        let reason = fs::read_to_string(reason).unwrap();
        assert!(!reason.contains(&token), "{reason}");
        worker_status::audit(&worker, now(), std::slice::from_ref(reported)).unwrap();
        let audit = fs::read_to_string(worker.path("logs/audit.md")).unwrap();
        assert!(!audit.contains(&token), "{audit}");
    }
    // Entries that are not plain files are moved without being followed.
    let (folder, worker) = place();
    worker.enqueue(CuratorJobKind::LintWiki, None, 0, now()).unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "keep").unwrap();
    std::os::unix::fs::symlink(&secret, worker.path("queue/link.json")).unwrap();
    fs::create_dir(worker.path("queue/folder.json")).unwrap();
    let moved = rejected(&worker, &listed);
    assert!(moved.values().all(|why| why.contains("not a plain file")) && moved.len() == 2);
    assert_eq!(fs::read_to_string(secret).unwrap(), "keep");
}

#[test]
fn unfinished_job_file_fails_after_grace_period() {
    let (_folder, worker) = place();
    let path = worker.path("queue/20260102T030405Z-lint-wiki-0123abcd.json");
    fs::write(&path, "{\"id\":\"2026").unwrap();
    let written = Timestamp::try_from(fs::metadata(&path).unwrap().modified().unwrap()).unwrap();
    let spec = spec(9);
    let seconds = |n| written.saturating_add(SignedDuration::from_secs(n)).unwrap();
    let claim = Consumer::new(&worker, &spec).claim(seconds(3), Some(OVER)).unwrap();
    assert!(claim.moved.is_empty() && matches!(claim.found, NextFile::Empty));
    assert!(path.exists());
    let claim = Consumer::new(&worker, &spec).claim(seconds(30), Some(OVER)).unwrap();
    assert_eq!(claim.moved[0].to, "failed");
    assert!(!path.exists());
}

#[test]
fn orphaned_job_is_requeued_once_unless_done() {
    let (_folder, worker) = place();
    let job = worker.enqueue(CuratorJobKind::DreamSeed, None, 0, now()).unwrap();
    let spec = spec(99);
    let take = || Consumer::new(&worker, &spec).claim(now(), Some(OVER)).unwrap();
    assert!(claimed(take()).is_some());
    assert!(claimed(take()).is_none(), "the owner is alive");
    kill(&worker, &job.id);
    let again = take();
    assert_eq!(again.moved[0].to, "queue");
    assert_eq!(claimed(again).unwrap().job.returned, 1);
    kill(&worker, &job.id);
    let third = take();
    assert_eq!(third.moved[0].to, "failed");
    assert!(third.moved[0].why.contains("second time"));
    assert!(names(&worker, "processing").is_empty());

    // A job that was published before its process died remains done.
    let job = worker.enqueue(CuratorJobKind::DreamSeed, None, 0, now()).unwrap();
    assert!(claimed(take()).is_some());
    fs::write(worker.path("done").join(format!("{}.json", job.id)), "{}").unwrap();
    kill(&worker, &job.id);
    let last = take();
    assert!(last.moved.is_empty() && claimed(last).is_none());
    assert!(names(&worker, "processing").is_empty());
    // A copy of a finished job's file is not a new job.
    fs::write(worker.path("queue").join(format!("{}.json", job.id)), job.text()).unwrap();
    assert!(take().moved[0].why.contains("done before"));
}

#[test]
fn claimed_files_wait_until_their_run_ends() {
    let (_folder, worker) = place();
    let job = worker.enqueue(CuratorJobKind::DreamSeed, None, 0, now()).unwrap();
    let spec = spec(99);
    let mut dead = Consumer::new(&worker, &spec).of_run("R1");
    assert!(claimed(dead.claim(now(), Some(OVER)).unwrap()).is_some());
    kill(&worker, &job.id);
    let take = |is_over: queue::IsOver<'_>| {
        let mut consumer = Consumer::new(&worker, &spec).of_run("R2");
        consumer.claim(now(), Some(is_over)).unwrap()
    };
    let open = take(&|run| run != "R1");
    assert!(open.moved.is_empty() && matches!(open.found, NextFile::Empty));
    assert_eq!(names(&worker, "processing").len(), 2);
    let over = take(&|_| true);
    assert_eq!(over.moved[0].to, "queue");
    assert_eq!(claimed(over).unwrap().job.id, job.id);
}

#[test]
fn windows_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for dir in ["D:\\dream", "\\\\host\\share", "d:x"] {
        assert!(Worker::of(folder.path(), dir).unwrap_err().contains("Windows"));
        assert!(lint::vault(folder.path(), dir).unwrap_err().contains("Windows"));
    }
    assert!(Worker::of(folder.path(), "../x").is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn wish(budget: u32) -> NewEvent {
    NewEvent {
        source: "test".into(),
        severity: Severity::High,
        desired_action: "look".into(),
        escalation_target: "model".into(),
        budget,
        note: None,
    }
}

#[test]
fn event_loop_ends_when_budget_is_spent() {
    for budget in [0, 1, 2, 7, 40] {
        let (_folder, worker) = place();
        let first = events::raise(&worker, wish(budget), None, now()).unwrap();
        let (mut calls, mut rounds) = (0, 0);
        let mut open = vec![first.id.clone()];
        while let Some(id) = open.pop() {
            rounds += 1;
            match events::spend(&worker, &id, now()) {
                Ok(left) => {
                    calls += 1;
                    // The children request half of the rest (rounded up, then down), more than the
                    // rest, and nothing.
                    for want in [left.div_ceil(2), left / 2, left + 1, 0] {
                        if let Ok(child) = events::raise(&worker, wish(want), Some(&id), now()) {
                            open.push(child.id);
                        }
                    }
                    open.push(id);
                }
                Err(EventError::Spent(_)) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(rounds < 1_000, "the loop does not end");
        }
        assert_eq!(calls, budget);
        let (all, bad) = events::all(&worker).unwrap();
        assert_eq!(bad, 0);
        assert!(all.iter().all(|it| it.left == 0), "the budget of every event is spent");
        let last = all[0].last.clone().unwrap();
        assert_eq!(last.0, "refused", "the last recorded action is the refusal: {last:?}");
    }
}

#[test]
fn damaged_event_row_restores_no_budget() {
    let (_folder, worker) = place();
    let event = events::raise(&worker, wish(3), None, now()).unwrap();
    assert_eq!(events::spend(&worker, &event.id, now()).unwrap(), 2);
    let store = worker.path("events/ledger.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(&store).unwrap();
    let forged = format!(
        "{{\"at\":\"2026-11-22T10:00:00Z\",\"event\":\"{}\",\"action\":\"raised\",\"budget_before\":0,\"budget_after\":900,\"outcome\":\"\"}}\n{{\"at\":\"20",
        event.id
    );
    file.write_all(forged.as_bytes()).unwrap();
    assert_eq!(events::spend(&worker, &event.id, now()).unwrap(), 1);
    assert_eq!(events::all(&worker).unwrap().1, 1);
    events::record_outcome(&worker, &event.id, "ack", "seen", now()).unwrap();
    assert!(matches!(events::spend(&worker, &event.id, now()), Err(EventError::Over(_))));
    let child = events::raise(&worker, wish(1), Some(&event.id), now());
    assert!(matches!(child, Err(EventError::Over(_))), "{child:?}");
    for bad in [wish(events::MOST + 1), NewEvent { source: " ".into(), ..wish(1) }] {
        assert!(matches!(events::raise(&worker, bad, None, now()), Err(EventError::Bad(_))));
    }
}

/// Returns every file below a folder, with its content.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

/// Returns the files that the folder must contain after the shown plan has been executed.
fn as_shown(
    worker: &Worker,
    shown: &compact::CompactionPlan,
    mut files: BTreeMap<String, Vec<u8>>,
) -> BTreeMap<String, Vec<u8>> {
    let name = |part: &str| worker.path(part).display().to_string();
    let mut log = files
        .remove(&name("logs/audit.md"))
        .unwrap_or_else(|| b"# What the curator did\n\n".to_vec());
    let end = |log: &mut Vec<u8>| {
        if log.last().is_some_and(|last| *last != b'\n') {
            log.push(b'\n');
        }
    };
    for act in &shown.acts {
        let (compact::CompactStep::Fold { entry, .. } | compact::CompactStep::Finish { entry }) =
            act
        else {
            panic!("{act:?}");
        };
        let bytes = files.remove(&name(&format!("logs/pending-log-entries/{entry}")));
        if matches!(act, compact::CompactStep::Fold { .. }) {
            end(&mut log);
            log.extend(bytes.unwrap());
        }
    }
    let folds = |act: &compact::CompactStep| matches!(act, compact::CompactStep::Fold { .. });
    if shown.acts.iter().any(folds) {
        end(&mut log);
    }
    files.remove(&name("logs/.compacting.json"));
    if shown.acts.iter().any(folds) || log != b"# What the curator did\n\n" {
        files.insert(name("logs/audit.md"), log);
    }
    files
}

#[test]
fn compaction_survives_crashes_without_loss() {
    let mut dice = Random::new("compaction");
    let (cases, begun) = (scaled(1_000), runner_engine::time::boot_time());
    let mut deaths = 0;
    for case in 0..cases {
        let (_folder, worker) = place();
        if dice.roll(2) == 0 {
            fs::write(worker.path("logs/audit.md"), "# old\n\n- first").unwrap();
        }
        let count = dice.roll(6);
        let mut words = Vec::new();
        for at in 0..count {
            // Some entries have the same contents, some lack a final newline, and some have the
            // same time.
            let word = format!("entry {}.", dice.roll(3));
            let text =
                format!("{word}{}", ["", "\n", "\n\n"][usize::try_from(dice.roll(3)).unwrap()]);
            let path = worker.path("logs/pending-log-entries").join(format!("e{at}.txt"));
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            let second = std::time::Duration::from_secs(dice.roll(3));
            file.set_modified(std::time::UNIX_EPOCH + second).unwrap();
            words.push(word);
        }
        let mut late = None;
        loop {
            let before = tree(worker.folder());
            let shown = compact::plan(&worker, None, now()).unwrap();
            assert_eq!(tree(worker.folder()), before, "planning changes nothing");
            let done = compact::plan(&worker, None, now()).unwrap();
            assert_eq!(shown.text(), done.text());
            let mut left = dice.roll(12);
            let mut pause = || {
                left = left.checked_sub(1).ok_or_else(|| io::Error::other("dies here"))?;
                Ok(())
            };
            if compact::apply(&worker, &done, &mut pause).is_ok() {
                assert_eq!(tree(worker.folder()), as_shown(&worker, &shown, before));
                break;
            }
            deaths += 1;
            // The worker appends to the audit log, and another entry arrives.
            if late.is_none() && dice.roll(3) == 0 {
                worker_status::audit(&worker, now(), &["meanwhile".to_owned()]).unwrap();
                let path = worker.path("logs/pending-log-entries/late.txt");
                fs::write(path, "late one.").unwrap();
                late = Some(());
                words.push("late one.".to_owned());
            }
        }
        while !compact::plan(&worker, None, now()).unwrap().acts.is_empty() {
            let plan = compact::plan(&worker, None, now()).unwrap();
            compact::apply(&worker, &plan, &mut || Ok(())).unwrap();
        }
        let log = fs::read_to_string(worker.path("logs/audit.md")).unwrap_or_default();
        for word in &words {
            let wanted = words.iter().filter(|other| *other == word).count();
            assert_eq!(log.matches(word.as_str()).count(), wanted, "case {case}: {word} in {log}");
        }
        assert_eq!(log.matches("meanwhile").count(), usize::from(late.is_some()), "case {case}");
        assert!(names(&worker, "logs/pending-log-entries").is_empty());
        assert!(!worker.path("logs/.compacting.json").exists());
    }
    let took = runner_engine::time::boot_time() - begun;
    print_line(&format!("compaction: {cases} cases, {deaths} deaths, {took:?}"));
}

#[test]
fn old_results_expire_but_queued_jobs_remain() {
    let (_folder, worker) = place();
    for part in ["done", "failed", "findings", "queue"] {
        fs::write(worker.path(part).join("a.json"), "{}").unwrap();
    }
    let keep = Some(SignedDuration::from_hours(24));
    let future = "2099-01-01T00:00:00Z".parse().unwrap();
    let plan = compact::plan(&worker, keep, future).unwrap();
    assert_eq!(
        plan.text(),
        "remove  done/a.json\nremove  failed/a.json\nremove  findings/a.json\n"
    );
    assert!(compact::plan(&worker, None, future).unwrap().acts.is_empty());
    compact::apply(&worker, &plan, &mut || Ok(())).unwrap();
    assert_eq!(names(&worker, "queue"), ["a.json"]);
    assert!(names(&worker, "done").is_empty());
}
