//! Tests that each due time gets exactly one run, regardless of which process ticks and how the run
//! ends.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;

use crate::fixture::{CommandOutput, Fixture, print_line};
use crate::served::{Daemon, busy, fixture, outcome, over, runs};

/// A job that records the clock's time.
const MINUTE: &str = "[jobs.minute]\nkind = \"command\"\ntrigger = \"cron * * * * *\"\nprogram = \"sh\"\n\
    args = [\"-c\", \"cat ../clock >> times; echo >> times\"]\n";

/// Returns the PIDs of the live processes that were started in this fixture.
fn processes(fixture: &Fixture) -> Vec<String> {
    let root = format!("HOME={}", fixture.root().display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|it| it == root.as_bytes()) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

fn newest(fixture: &Fixture) -> Option<String> {
    let found =
        fixture
            .store()
            .query_row("SELECT id FROM runs ORDER BY id DESC LIMIT 1", [], |row| row.get(0));
    found.ok()
}

#[test]
fn concurrent_schedulers_run_each_minute_once() {
    let began = Instant::now();
    let fixture = fixture(MINUTE);
    let mut daemon = Daemon::start(&fixture, &[]);
    let mut by_command = 0;
    for step in 1..=360 {
        let (hour, minute, second) = (20 + step / 360, step / 6 % 60, step % 6 * 10);
        let now = format!("2026-11-21T{hour}:{minute:02}:{second:02}Z");
        fixture.set_clock(&now);
        // In even minutes the command and the daemon tick concurrently. In odd minutes the command
        // ticks first.
        let tick = fixture
            .runner_with_clock(&["tick", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let reported = (minute % 2 == 0).then(|| daemon.tick());
        let tick = CommandOutput::of(tick.wait_with_output().unwrap()).ends(0).json();
        let reported = reported.unwrap_or_else(|| daemon.tick());
        daemon.wait_for_text("the wall clock was set forward");
        let (served, started) = (&reported["started"], &tick["started"]);
        assert_eq!(
            (&reported["is"], &reported["troubles"]),
            (&"ticked".into(), &serde_json::json!([]))
        );
        // The daemon's heartbeat may have ticked before both.
        let all = served.as_array().unwrap().len() + started.as_array().unwrap().len();
        assert!(all <= usize::from(second == 0), "{now}: {reported} and {tick}");
        by_command += started.as_array().unwrap().len();
        if second == 0 {
            over(&fixture, &newest(&fixture).unwrap());
        }
    }
    daemon.signal(Signal::TERM);
    daemon.ends(0);
    assert_eq!(processes(&fixture), Vec::<String>::new());
    let times = fixture.read("times");
    let expected: Vec<String> = (1..=60)
        .map(|minute| format!("2026-11-21T{}:{:02}:00Z", 20 + minute / 60, minute % 60))
        .collect();
    assert_eq!(times.lines().collect::<Vec<_>>(), expected);
    // Each due time has one occurrence, each occurrence has one run, and all are settled.
    for sql in [
        "SELECT count(*) FROM occurrences",
        "SELECT count(DISTINCT due) FROM occurrences WHERE settled IS NOT NULL AND NOT missed",
        "SELECT count(*) FROM runs",
        "SELECT count(DISTINCT occurrence) FROM runs WHERE outcome LIKE '%\"succeeded\"%'",
    ] {
        assert_eq!(fixture.count(sql), 60, "{sql}");
    }
    print_line(&format!(
        "a minutely job for an hour: 360 ticks by a daemon and 360 by a command, which started {by_command} of 60 runs; {:.1} s",
        began.elapsed().as_secs_f64()
    ));
}

/// Returns a fixture with a job that is due each minute. Unless the file `free` exists, the job
/// signals that it is running and then waits for input.
fn waiting(overlap: &str) -> Fixture {
    fixture(&format!(
        "[jobs.wait]\nkind = \"command\"\ntrigger = \"every 1m\"\noverlap = \"{overlap}\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"[ -e free ] && exit 0; echo up > up.fifo; read word < go.fifo\"]\n"
    ))
}

#[test]
fn overlapping_occurrence_is_skipped() {
    let fixture = waiting("skip");
    let (mut daemon, first) = busy(&fixture, &[]);
    fixture.set_clock("2026-11-21T20:02:00Z");
    daemon.tick();
    fixture.run_with_clock(&["tick"]).ends(0);
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    daemon.wait_for_text("wait: succeeded");
    let found = runs(&fixture, "wait");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].0, "succeeded");
    assert_eq!(found[1].0, "skipped");
    let why =
        format!("an earlier run has not ended: run {first}, due 2026-11-21T20:01:00Z, is running");
    assert_eq!(found[1].1, why);
    daemon.tick();
    assert_eq!(runs(&fixture, "wait"), found, "a skipped occurrence was caught up");
}

#[test]
fn overlapping_occurrences_are_queued() {
    let fixture = waiting("queue");
    let (mut daemon, _) = busy(&fixture, &[]);
    for minute in ["02", "03"] {
        fixture.set_clock(format!("2026-11-21T20:{minute}:00Z"));
        daemon.tick();
    }
    let words = |fixture: &Fixture| -> Vec<String> {
        runs(fixture, "wait").into_iter().map(|(word, _)| word).collect()
    };
    assert_eq!(words(&fixture), ["running", "queued", "queued"]);
    for _ in 0..2 {
        fs::write(fixture.path("go.fifo"), "go\n").unwrap();
        daemon.wait_for_text("wait: succeeded");
        assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    }
    assert_eq!(words(&fixture), ["succeeded", "succeeded", "running"]);
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    daemon.wait_for_text("wait: succeeded");
    assert_eq!(words(&fixture), ["succeeded"; 3]);
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), 3);
}

#[test]
fn overlapping_occurrence_replaces_the_live_run() {
    let fixture = waiting("replace");
    let (mut daemon, first) = busy(&fixture, &[]);
    fixture.set_clock("2026-11-21T20:02:00Z");
    let reported = daemon.tick();
    assert_eq!(reported["started"], serde_json::json!([]), "two runs overlap");
    // The run is replaced immediately, not at a later tick.
    let began = Instant::now();
    daemon.wait_for_text("wait: cancelled");
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    assert!(began.elapsed().as_secs() < 10, "{began:?}");
    let why = "replaced by the run due 2026-11-21T20:02:00Z";
    assert!(outcome(&fixture, &first).contains(why));
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    daemon.wait_for_text("wait: succeeded");
    let found = runs(&fixture, "wait");
    assert_eq!(found[0], ("cancelled".to_owned(), why.to_owned()));
    assert_eq!((found[1].0.as_str(), found.len()), ("succeeded", 2));
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}

#[test]
fn outcome_decides_which_jobs_follow() {
    let fixture = fixture(
        "[jobs.first]\nkind = \"command\"\ntrigger = \"every 1m\"\nretries = 0\nprogram = \"sh\"\n\
         args = [\"-c\", \"[ ! -e broken ]\"]\n\
         [jobs.well]\nkind = \"command\"\ntrigger = \"after first\"\nprogram = \"true\"\n\
         [jobs.further]\nkind = \"command\"\ntrigger = \"after well\"\nprogram = \"true\"\n\
         [jobs.always]\nkind = \"command\"\ntrigger = \"after first ends\"\nprogram = \"true\"\n",
    );
    fixture.run_with_clock(&["tick"]).ends(0);
    fixture.run_at("2026-11-21T20:01:00Z", &["tick"]).ends(0);
    for job in ["first", "well", "further", "always"] {
        assert_eq!(runs(&fixture, job), [("succeeded".to_owned(), String::new())], "{job}");
    }
    fixture.run_with_clock(&["tick"]).ends(0);
    fixture.write("broken", "");
    fixture.run_at("2026-11-21T20:02:00Z", &["tick"]).ends(1);
    let last = |job| {
        let found = runs(&fixture, job);
        assert_eq!(found.len(), 2, "{job}: {found:?}");
        found[1].clone()
    };
    assert_eq!(last("first").0, "failed");
    let (word, why) = last("well");
    assert!(word == "skipped" && why.starts_with("first ended as failed"), "{word}: {why}");
    let (word, why) = last("further");
    assert!(word == "skipped" && why.starts_with("well ended as skipped"), "{word}: {why}");
    assert_eq!(last("always").0, "succeeded");
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences WHERE origin = 'event'"), 6);
    let open = "SELECT count(*) FROM occurrences WHERE settled IS NULL";
    assert_eq!(fixture.count(open), 0);
    // There are only two finish times, so each tick has finished all of its runs.
    let times: BTreeSet<String> = fixture
        .store()
        .prepare("SELECT DISTINCT finished FROM runs")
        .unwrap()
        .query_map([], |row| row.get::<_, i64>(0))
        .unwrap()
        .map(|at| at.unwrap().to_string())
        .collect();
    assert_eq!(times.len(), 2, "{times:?}");
}
