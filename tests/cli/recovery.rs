//! Tests how the next tick recovers from daemons, ticks and runs that die or hang.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use crate::fixture::{CommandOutput, Fixture, ended_within};
use crate::served::{Daemon, LIMIT, begin, fixture, kill, missed, outcome, owner, owners, runs};

/// Creates a fixture with three jobs that are due every hour on the hour. Each job starts a process
/// that leaves its process group, and then waits for input.
fn three() -> Fixture {
    let jobs: String = ["last", "all", "none"]
        .map(|name| {
            format!(
                "[jobs.{name}]\nkind = \"command\"\ntrigger = \"cron 0 * * * *\"\ncatch_up = \"{name}\"\ncatch_up_cap = 3\nprogram = \"sh\"\n\
                 args = [\"-c\", \"[ -e free ] && exit 0; setsid sh -c 'echo up > {name}.fifo; exec sleep 1000' & read word < {name}.go\"]\n"
            )
        })
        .concat();
    let fixture = fixture(&jobs);
    let fifos = ["last.fifo", "all.fifo", "none.fifo", "last.go", "all.go", "none.go"];
    fixture.command("mkfifo", &fifos).status().unwrap();
    fixture
}

/// Starts a daemon and waits until a run of each job is live.
fn under_way(fixture: &Fixture) -> Daemon<'_> {
    let daemon = Daemon::start(fixture, &[]);
    fixture.set_clock("2026-11-21T21:00:00Z");
    daemon.tick();
    for name in ["last", "all", "none"] {
        let up = fs::read_to_string(fixture.path(&format!("{name}.fifo"))).unwrap();
        assert_eq!(up, "up\n");
    }
    assert!(fixture.survivors().len() >= 3, "{:?}", fixture.survivors());
    daemon
}

/// Checks the outcomes of the three runs and of the five scheduled times until 02:50, according to
/// each job's catch-up rule.
#[track_caller]
fn each_by_its_rule(fixture: &Fixture) {
    let lost = "its process died before the run finished";
    for (name, caught_up) in [("last", 1), ("all", 3), ("none", 0)] {
        let found = runs(fixture, name);
        assert_eq!(found[0], ("lost".to_owned(), lost.to_owned()), "{name}");
        let well: Vec<_> = found[1..].iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!(well, vec!["succeeded"; caught_up], "{name}: {found:?}");
    }
    let day = |hour: u32| format!("2026-11-{}T{:02}:00:00Z", 21 + hour / 24, hour % 24);
    let stretch = |last: u32, count| vec![format!("{} {} {count}", day(22), day(last))];
    assert_eq!(missed(fixture, "last"), stretch(25, 4));
    assert_eq!(missed(fixture, "all"), stretch(23, 2));
    assert_eq!(missed(fixture, "none"), stretch(26, 5));
    // The caught-up occurrences ran in the order of their due times.
    let due: String = fixture
        .store()
        .query_row(
            "SELECT group_concat(strftime('%H', due / 1000, 'unixepoch'), ' ') FROM
               (SELECT o.due FROM runs r JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = r.job
                WHERE j.name = 'all' ORDER BY r.fence)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(due, "21 00 01 02");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let open = "SELECT count(*) FROM occurrences WHERE settled IS NULL";
    assert_eq!(fixture.count(open), 0);
}

#[test]
fn daemon_settles_its_killed_runs() {
    let fixture = three();
    let mut daemon = under_way(&fixture);
    for owner in owners(&fixture) {
        kill_process(owner, Signal::KILL).unwrap();
    }
    for _ in 0..3 {
        daemon.wait_for_text("lost");
    }
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    fixture.write("free", "");
    fixture.set_clock("2026-11-22T02:50:00Z");
    daemon.tick();
    for _ in 0..4 {
        daemon.wait_for_text("succeeded");
    }
    each_by_its_rule(&fixture);
    daemon.tick();
    each_by_its_rule(&fixture);
}

#[test]
fn next_tick_settles_killed_runs() {
    let fixture = three();
    let mut daemon = under_way(&fixture);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let runs = owners(&fixture);
    let started = fixture.survivors();
    runs.into_iter().for_each(kill);
    assert!(started.len() >= 6, "{started:?}");
    fixture.write("free", "");
    let reported = fixture.run_at("2026-11-22T02:50:00Z", &["tick", "--json"]).ends(0).json();
    let settled = reported["settled_for_the_dead"].as_object().unwrap();
    assert_eq!(settled.values().collect::<Vec<_>>(), ["lost"; 3]);
    each_by_its_rule(&fixture);
    assert_eq!(reported["started"].as_array().unwrap().len(), 4);
    fixture.run_with_clock(&["tick"]).ends(0);
    each_by_its_rule(&fixture);
}

#[test]
fn surviving_runs_are_not_started_twice() {
    let fixture = three();
    let mut daemon = under_way(&fixture);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    fixture.set_clock("2026-11-22T02:50:00Z");
    // A new run would overlap with its job's earlier run, so none is started.
    let reported = fixture.run_with_clock(&["tick", "--json"]).ends(0).json();
    assert_eq!(reported["settled_for_the_dead"], serde_json::json!({}));
    assert_eq!(reported["started"], serde_json::json!([]));
    let live = owners(&fixture);
    assert_eq!(live.len(), 3);
    fixture.write("free", "");
    for name in ["last", "all", "none"] {
        fs::write(fixture.path(&format!("{name}.go")), "go\n").unwrap();
    }
    for pid in live {
        let raw = pid.as_raw_nonzero().get().cast_unsigned();
        assert!(ended_within(raw, LIMIT));
    }
    fixture.run_with_clock(&["tick"]).ends(0);
    let words = |job| -> Vec<String> {
        let found = runs(&fixture, job).into_iter();
        found.map(|(word, _)| word).collect()
    };
    assert_eq!(words("last"), ["succeeded", "skipped"]);
    assert_eq!(words("all"), ["succeeded"; 4]);
    assert_eq!(words("none"), ["succeeded"]);
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}

/// Creates a fixture with a daily pass over one idea. If the file `hold` exists, a fake git signals
/// its start and waits.
fn passes() -> (Fixture, String) {
    let fixture = Fixture::new();
    fixture.set_clock("2026-11-20T20:00:00Z");
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    let touch = ["-d", "2026-11-20T00:00:00Z", "ideas/note.md"];
    fixture.command("touch", &touch).status().unwrap();
    fixture.run_with_clock(&["init"]).ends(0);
    fixture.configure("[jobs.dream]\ntrigger = \"cron 0 21 * * *\"\n");
    fixture.run_with_clock(&["tick"]).ends(0);
    let root = fixture.root().display().to_string();
    let fifos = [format!("{root}/up.fifo"), format!("{root}/go.fifo")];
    fixture.command("mkfifo", &[&fifos[0], &fifos[1]]).status().unwrap();
    let path = std::env::var("PATH").unwrap();
    let git = fixture.root().join("bin/git");
    fs::create_dir(fixture.root().join("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *ls-files*--cached*) if [ -e {root}/hold ]; then read word < {root}/up.fifo; read word < {root}/go.fifo; fi;; esac\n\
         PATH={path} exec git \"$@\"\n"
    );
    fs::write(&git, script).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    (fixture, format!("{root}/bin:{path}"))
}

#[test]
fn lost_pass_is_retried_once() {
    let (fixture, path) = passes();
    let hold = fixture.root().join("hold");
    // Starts a tick whose pass hangs, and kills the pass. If `both` is set, it kills the tick
    // first.
    let killed = |both: bool| {
        fs::write(&hold, "").unwrap();
        let mut tick = fixture
            .runner_with_clock(&["tick"])
            .env("PATH", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let up = fixture.root().join("up.fifo");
        // Git has only read access in the sandbox, so it signals by reading. This write blocks
        // until git reads.
        fs::write(up, "up\n").unwrap();
        fs::remove_file(&hold).unwrap();
        if both {
            tick.kill().unwrap();
        } else {
            kill(owner(&fixture));
        }
        let said = CommandOutput::of(tick.wait_with_output().unwrap());
        if both {
            kill(owner(&fixture));
        }
        said
    };
    let words = || -> Vec<String> {
        let found = runs(&fixture, "dream").into_iter();
        found.map(|(word, _)| word).collect()
    };
    fixture.set_clock("2026-11-20T21:00:00Z");
    killed(true);
    assert_eq!(words(), ["running"]);
    fixture.run_with_clock(&["tick"]).ends(0).expect_text("lost");
    assert_eq!(words(), ["lost", "succeeded"]);
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    // If only the pass is killed, the tick that started it retries it immediately.
    fixture.write("ideas/other.md", "Perhaps a shorter one still?\n");
    fixture.set_clock("2026-11-21T21:00:00Z");
    killed(false).ends(1).expect_text("lost");
    assert_eq!(words()[2..], ["lost", "succeeded"]);
    // There is no third attempt.
    fixture.write("ideas/third.md", "Perhaps none at all?\n");
    fixture.set_clock("2026-11-22T21:00:00Z");
    killed(true);
    killed(true);
    fixture.run_with_clock(&["tick"]).ends(0).expect_text("lost");
    assert_eq!(words()[4..], ["lost", "lost"]);
    fixture.run_with_clock(&["tick"]).ends(0);
    assert_eq!(words().len(), 6);
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), 3);
}

/// Creates a fixture with one job that is due once a year at 21:00 and hangs unless the file `free`
/// exists. Its retry is due within about six weeks.
fn hanging() -> Fixture {
    fixture(
        "[jobs.hang]\nkind = \"command\"\ntrigger = \"cron 0 21 21 11 *\"\nretries = 1\nbackoff = [\"1000h\"]\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo x >> times; [ -e free ] && exit 0; setsid sh -c 'echo up > up.fifo; exec sleep 1000' & read word < go.fifo\"]\n",
    )
}

/// Checks that the retry waits, and that it runs once although two ticks find it due.
fn tried_again_once(fixture: &Fixture) {
    let found = runs(fixture, "hang");
    let why = "it did not end by its total deadline and was killed";
    assert_eq!(found[0], ("timed-out".to_owned(), why.to_owned()));
    assert_eq!((found[1].0.as_str(), found.len()), ("queued", 2));
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    fixture.write("free", "");
    let listed = fixture.run_with_clock(&["runs", "--json"]).ends(0).json();
    let ready: jiff::Timestamp = listed[0]["ready_at"].as_str().unwrap().parse().unwrap();
    fixture.set_clock(format!("{ready}\n9000"));
    let ticks = [(); 2].map(|()| begin(fixture, &["tick", "--json"]));
    let started = ticks.map(|tick| {
        let reported = CommandOutput::of(tick.wait_with_output().unwrap()).ends(0).json();
        reported["started"].as_array().unwrap().len()
    });
    assert_eq!(started.iter().sum::<usize>(), 1);
    let found = runs(fixture, "hang");
    assert_eq!((found[1].0.as_str(), found.len()), ("succeeded", 2));
    assert_eq!(fixture.read("times"), "x\nx\n");
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), 1);
}

#[test]
fn next_tick_kills_an_overdue_run() {
    let fixture = hanging();
    fixture.run_with_clock(&["tick"]).ends(0);
    fixture.set_clock("2026-11-21T21:00:00Z");
    let first = begin(&fixture, &["tick"]);
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    kill_process(owner(&fixture), Signal::STOP).unwrap();
    // The run's time limit of one hour and its grace period have not passed yet.
    fixture.run_at("2026-11-21T21:59:00Z\n3540", &["tick"]).ends(0);
    assert_eq!(fixture.survivors().len(), 2);
    fixture.set_clock("2026-11-21T22:01:00Z\n3660");
    // Either tick may settle the run, and the outcome is the same.
    fixture.run_with_clock(&["tick"]).ends(0);
    let first = CommandOutput::of(first.wait_with_output().unwrap()).ends(1);
    assert!(first.err.contains("timed-out"), "{first:?}");
    tried_again_once(&fixture);
}

#[test]
fn daemon_kills_its_overdue_run() {
    let fixture = hanging();
    let mut daemon = Daemon::start(&fixture, &[]);
    fixture.set_clock("2026-11-21T21:00:00Z");
    let reported = daemon.tick();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    kill_process(owner(&fixture), Signal::STOP).unwrap();
    fixture.set_clock("2026-11-21T22:01:00Z\n3660");
    assert_eq!(daemon.tick()["started"], serde_json::json!([]));
    daemon.wait_for_text("was settled by recovery: timed-out");
    let id = reported["started"][0].as_str().unwrap();
    assert!(outcome(&fixture, id).contains("timed-out"));
    drop(daemon);
    tried_again_once(&fixture);
}
