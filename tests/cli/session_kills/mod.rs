//! Kills the analysis of sessions at random times while transcripts grow, break and are replaced.
//!
//! After every 20 processes, the transcripts stop changing and ticks complete the work. Then each
//! session must have the counts that its writer kept, and its findings must equal those of a
//! project without kills.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Fixture, Random, ended_within, print_line, scaled_from};
use crate::random_kills::kill_some;
use crate::served;
use crate::sessions::transcript;
use writer::{Counts, SESSIONS, Writer, add};

mod writer;

const JOB: &str =
    "[jobs.dream]\nenabled = false\n[jobs.sessions]\nkind = \"sessions\"\ntrigger = \"manual\"\n";
const FOLDER: &str = ".warden/cross-session";

/// Starts a command in its own process group.
fn start(fixture: &Fixture, args: &[&str]) -> std::process::Child {
    let mut command = fixture.runner_with_clock(args);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap()
}

#[test]
fn killed_analyses_count_each_event_once() {
    let fixture = Fixture::new();
    let mut writer = Writer::new(Random::new("session kills"));
    writer.advance(&fixture, 0);
    fixture.run_with_clock(&["init"]).ends(0);
    fixture.configure(&job(&fixture));
    let limit = Duration::from_secs(scaled_from(3_600, 0.004) as u64);
    let began = Instant::now();
    let (mut kills, mut starts, mut compared) = (0, 0, Compared::default());
    while began.elapsed() < limit || kills == 0 {
        for _ in 0..20 {
            let seconds = writer.dice.roll(90);
            writer.advance(&fixture, seconds);
            let id = format!("session-{}", writer.dice.roll(SESSIONS as u64));
            // A daemon does not end by itself.
            let (mut worker, longest) = match writer.dice.roll(8) {
                0..=3 => (start(&fixture, &["tick"]), 150),
                4 | 5 => (start(&fixture, &["daemon"]), 400),
                6 => (start(&fixture, &["sessions", "analyze"]), 150),
                _ => (start(&fixture, &["sessions", "end", &id]), 150),
            };
            starts += 1;
            let end = Instant::now() + Duration::from_millis(writer.dice.roll(longest));
            // Transcripts grow while the process works.
            while Instant::now() < end
                && !ended_within(worker.id(), Duration::from_millis(writer.dice.roll(20)))
            {
                writer.write(&fixture);
            }
            if !ended_within(worker.id(), Duration::ZERO) {
                kills += 1;
                kill_some(worker.id(), &mut writer.dice);
                // A daemon survives the death of its children.
                let _ended = worker.kill();
            }
            worker.wait().unwrap();
        }
        rest(&fixture, &mut writer);
        compared.add(compare(&fixture, &writer));
    }
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let ended = |how: &str| {
        fixture.count(&format!("SELECT count(*) FROM runs WHERE outcome LIKE '%\"{how}\"%'"))
    };
    let Compared { times, lines, calls } = compared;
    print_line(&format!(
        "session kills: {kills} of {starts} processes killed in {:.0} s; {times} comparisons, \
         {lines} lines and {calls} calls counted once; runs: {} succeeded, {} lost",
        began.elapsed().as_secs_f64(),
        ended("succeeded"),
        ended("lost"),
    ));
}

/// Ticks until the analysis of every session is complete.
fn rest(fixture: &Fixture, writer: &mut Writer) {
    let mut left: Vec<Value> = Vec::new();
    for _ in 0..20 {
        // Three deaths in a row stop a job until a person resets it.
        fixture.run_with_clock(&["jobs", "reset", "sessions"]).ends(0);
        for owner in served::owners(fixture) {
            let raw = owner.as_raw_nonzero().get().cast_unsigned();
            assert!(ended_within(raw, Duration::from_secs(60)), "the run of PID {raw} did not end");
        }
        writer.advance(fixture, 1_200);
        fixture.run_with_clock(&["tick"]).ends(0);
        let listed = fixture.run_with_clock(&["sessions", "list", "--json"]).ends(0).json();
        let known = |it: &Value| it["state"] == "analyzed";
        left = listed.as_array().unwrap().iter().filter(|it| !known(it)).cloned().collect();
        if left.is_empty() && served::owners(fixture).is_empty() {
            return;
        }
    }
    let runs = served::runs(fixture, "sessions");
    panic!("{left:?} are not analyzed: {:?}", &runs[runs.len().saturating_sub(20)..]);
}

/// The numbers of comparisons, of compared lines and of compared calls.
#[derive(Default)]
struct Compared {
    times: u64,
    lines: u64,
    calls: u64,
}

/// Returns the settings of a job that also accepts sessions whose rows name another project's
/// folder.
fn job(fixture: &Fixture) -> String {
    format!("{JOB}transcripts = [{:?}]\n", transcript(fixture, "x").parent().unwrap())
}

impl Compared {
    fn add(&mut self, other: Self) {
        self.times += other.times;
        self.lines += other.lines;
        self.calls += other.calls;
    }
}

/// Compares the findings with the writer's counts and with the findings of a project without kills.
fn compare(fixture: &Fixture, writer: &Writer) -> Compared {
    let calm = Fixture::new();
    calm.run_at(writer.now, &["init"]).ends(0);
    calm.configure(&job(&calm));
    copy(transcript(fixture, "x").parent().unwrap(), transcript(&calm, "x").parent().unwrap());
    calm.run_with_clock(&["sessions", "analyze"]).ends(0);
    let mut compared = Compared { times: 1, ..Compared::default() };
    for session in &writer.sessions {
        let mut expected = Counts::new();
        session.files.iter().for_each(|file| add(&mut expected, &file.seen()));
        let record = |of: &Fixture| -> Value {
            let text = of.read(&format!("{FOLDER}/sessions/{}.json", session.id));
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record["path"].take();
            record
        };
        let found = record(fixture);
        for name in [
            "lines", "read", "foreign", "blank", "bad", "too_long", "torn", "calls", "failed",
            "denied",
        ] {
            let count = if ["calls", "failed", "denied"].contains(&name) {
                &found[name]
            } else {
                &found["tally"][name]
            };
            let wanted = expected.get(name).copied().unwrap_or(0);
            assert_eq!(count.as_u64(), Some(wanted), "{name} of {}", session.id);
        }
        let mut wanted = record(&calm);
        // The project without kills receives no report that a session has ended.
        if found["ended"] == true {
            (wanted["ended"], wanted["ending"]) = (true.into(), "clean".into());
        }
        assert_eq!(found, wanted, "{}", session.id);
        compared.lines += expected["lines"];
        compared.calls += expected.get("calls").copied().unwrap_or(0);
    }
    let counts = |of: &Fixture| -> BTreeMap<String, Value> {
        let all = of.run_with_clock(&["sessions", "artifacts", "--json"]).ends(0).json();
        let count = |it: &Value| {
            json!([it["successes"], it["failures"], it["evidence"], it["source_sessions"]])
        };
        all.as_array()
            .unwrap()
            .iter()
            .map(|it| (it["id"].as_str().unwrap().to_owned(), count(it)))
            .collect()
    };
    // A known artifact is kept, even if its confidence is too low for a new artifact.
    let found = counts(fixture);
    for (id, count) in counts(&calm) {
        assert_eq!(found.get(&id), Some(&count), "artifact {id}");
    }
    compared
}

/// Copies the files of a folder with their modification times.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let new = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &new);
            continue;
        }
        fs::copy(entry.path(), &new).unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
    }
}
