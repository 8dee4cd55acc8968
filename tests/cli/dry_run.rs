//! Tests that a dry run changes nothing, decides like a real run, and reports upper limits.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, Random, ended_within, print_line, scaled};

/// The mode, modification time and content of a file. The change time is excluded because SQLite,
/// when run by root, changes the owner of a database's side files.
type Trace = (u32, i64, i64, Vec<u8>);

/// Returns the traces of a folder and everything below it.
fn traces(root: &Path) -> BTreeMap<PathBuf, Trace> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if data.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if data.is_file() {
            content = fs::read(&path).unwrap();
        }
        let (seconds, nanos) = (data.mtime(), data.mtime_nsec());
        found.insert(path, (data.mode(), seconds, nanos, content));
    }
    found
}

/// Runs a command, and checks that it changes no file of the fixture.
#[track_caller]
fn dry(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    let before = traces(fixture.root());
    let said = fixture.run(args);
    let after = traces(fixture.root());
    let times = |at: Option<&Trace>| at.map(|it| (it.0, it.1, it.2, it.3.len()));
    let differs: Vec<_> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| (path, times(before.get(path)), times(after.get(path))))
        .collect();
    assert!(differs.is_empty(), "{args:?} left traces: {differs:?}\n{said:?}");
    said
}

const JOBS: &str = "[jobs.list]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"env | cut -d= -f1 | sort > $RUNNER_OUT/names.txt\"]\nenv = [\"MINE\", \"GONE\"]\nartifacts = [{ from = \"names.txt\", to = \"notes/names.txt\" }]\n\
[jobs.ask]\nkind = \"prompt\"\nprompt = \"What is new?\"\nsources = [\"README.md\", \"absent.md\"]\nto = \"notes/ask-{date}.md\"\nbackend = \"echo\"\n\
[backends.echo]\ntype = \"command\"\nprogram = \"cat\"\n";

fn ideas(fixture: &Fixture, count: usize) {
    for number in 0..count {
        fixture.write(
            &format!("ideas/idea-{number}.md"),
            format!(
                "# Idea {number}\n\nThe tide table needs column {number}; {}\n",
                "more words. ".repeat(number)
            ),
        );
    }
}

#[test]
fn dry_run_changes_nothing() {
    let fixture = Fixture::with(JOBS);
    ideas(&fixture, 3);
    for args in [
        &["run", "dream", "--dry-run"][..],
        &["run", "dream", "--dry-run", "--json"],
        &["dream", "run", "--dry-run"],
        &["run", "list", "--dry-run", "--json"],
        &["run", "ask", "--dry-run"],
        &["night", "--dry-run"],
        &["night", "--dry-run", "--json"],
    ] {
        dry(&fixture, args).ends(0).expect_text("dry");
    }
    // A dry run also changes nothing if state, caches and SQLite's side files already exist.
    fixture.run(&["night"]);
    fixture.run(&["status"]).ends(0);
    dry(&fixture, &["run", "dream", "--dry-run"]).ends(0).expect_text("skipped: no delta");
    dry(&fixture, &["night", "--dry-run"]).ends(0);
    // A dry run does not recreate a missing index of the write-ahead log.
    let beside = |ending: &str| fixture.state().join(format!("database.sqlite{ending}"));
    fixture.run(&["status"]).ends(0);
    assert!(beside("-wal").exists());
    fs::remove_file(beside("-shm")).unwrap();
    dry(&fixture, &["night", "--dry-run"]).ends(0);
    assert!(!beside("-shm").exists());
    fixture.run(&["pause", "dream"]).ends(0);
    fixture.write("ideas/idea-1.md", "# Idea 1\n\nchanged\n");
    dry(&fixture, &["run", "dream", "--dry-run"])
        .ends(0)
        .expect_text("start now")
        .expect_text("is paused until");
    fixture.configure("[jobs.bad]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"notes/bad.md\"\nbackend = \"none\"\n[backends.none]\ntype = \"command\"\nprogram = \"no-such-model\"\n");
    let said = dry(&fixture, &["run", "bad", "--dry-run", "--json"]).ends(69).json();
    assert_eq!(said["admission"]["would_start"], false, "{said}");
    assert_eq!(
        said["requests"].as_array().map(Vec::len),
        Some(1),
        "the planned request is not shown"
    );
    dry(&fixture, &["night", "--dry-run"]).ends(69);
    dry(&fixture, &["run", "nobody", "--dry-run"]).ends(78);
    fixture.write("ideas/kept.md", "x\n");
    fixture.git(&["add", "-f", "ideas/kept.md"]);
    dry(&fixture, &["run", "dream", "--dry-run"]).ends(75).expect_text("work is in progress");
    fs::write(fixture.state().join("database.sqlite"), "not a database").unwrap();
    dry(&fixture, &["run", "dream", "--dry-run"]).ends(70).expect_text("damaged");
    dry(&fixture, &["db", "prune", "--dry-run"]).ends(70).expect_text("damaged");
}

#[test]
fn dry_runs_of_other_commands_change_nothing() {
    let fixture = Fixture::with("");
    fixture.write(".agents/learnings/one.md", "# One\n\nAlways run the linter.\n");
    for args in [
        &["db", "prune", "--dry-run"][..],
        &["corpus", "harvest", "--dry-run"],
        &["corpus", "close-loop", "--dry-run"],
        &["curator", "compact", "--dry-run"],
    ] {
        dry(&fixture, args).ends(0);
    }
}

#[test]
fn dry_run_works_in_unregistered_project() {
    let fixture = Fixture::new();
    fixture.write("runner.toml", format!("[project]\nid = \"01K000000000000000000000ZZ\"\n{JOBS}"));
    fs::write(fixture.path(".git/info/exclude"), "/dreams/\n/.runner/\n").unwrap();
    ideas(&fixture, 2);
    for args in
        [&["run", "dream", "--dry-run"][..], &["run", "ask", "--dry-run"], &["night", "--dry-run"]]
    {
        dry(&fixture, args).ends(0).expect_text("start now");
        assert!(!fixture.state().exists());
    }
}

#[test]
fn dry_run_leaves_existing_runs_unchanged() {
    let fixture = Fixture::with(
        "[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo up > up.fifo; read word < go.fifo\"]\n\
         # The launcher of a dead run may still clean up, which is not a trace of the dry run.\nsandbox = \"off\"\n",
    );
    fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status().unwrap();
    let mut first = fixture
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let owner: String = fixture
        .store()
        .query_row("SELECT owner FROM runs WHERE state = 'running'", [], |row| row.get(0))
        .unwrap();
    let owner: Value = serde_json::from_str(&owner).unwrap();
    let pid = u32::try_from(owner["pid"].as_u64().unwrap()).unwrap();
    for _ in 0..3 {
        dry(&fixture, &["run", "wait", "--dry-run"])
            .ends(0)
            .expect_text(&format!("lock held by PID {pid}"));
        dry(&fixture, &["night", "--dry-run"]).expect_text("lock held");
    }
    let kill = |pid: u32| {
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap()
    };
    kill(first.id());
    first.wait().unwrap();
    kill(pid);
    assert!(ended_within(pid, std::time::Duration::from_secs(10)));
    dry(&fixture, &["run", "wait", "--dry-run"]).ends(0).expect_text("would be settled first");
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state = 'running'"), 1);
    fixture.run(&["tick"]);
    assert!(fixture.survivors().is_empty(), "{:?}", fixture.survivors());
}

/// Returns the amounts that a job's last run reserved, and those that its requests were charged.
fn reserved(fixture: &Fixture, job: &str) -> (Vec<i64>, Vec<i64>) {
    let db = fixture.store();
    let run: String = db
        .query_row(
            "SELECT r.id FROM runs r JOIN jobs j ON j.id = r.job WHERE j.name = ?1 ORDER BY r.id DESC LIMIT 1",
            [job],
            |row| row.get(0),
        )
        .unwrap();
    let five =
        |row: &rusqlite::Row<'_>| (0..5).map(|at| row.get(at)).collect::<Result<Vec<i64>, _>>();
    let own = db
        .query_row(
            "SELECT calls, tokens, micros, seconds, ideas FROM reservations WHERE run = ?1 AND level = 'run'",
            [&run],
            five,
        )
        .unwrap();
    let asked = db
        .query_row(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0), coalesce(sum(micros), 0), 0, coalesce(sum(ideas), 0) FROM requests WHERE run = ?1",
            [&run],
            five,
        )
        .unwrap();
    (own, asked)
}

fn five(amounts: &Value) -> Vec<i64> {
    ["calls", "tokens", "micros", "seconds", "ideas"]
        .iter()
        .map(|unit| amounts[unit].as_i64().unwrap_or_else(|| panic!("no {unit} in {amounts}")))
        .collect()
}

#[test]
fn dry_run_reports_upper_limits() {
    let mut dice = Random::new("dry limits");
    let turns = scaled(6);
    for _ in 0..turns {
        let calls = 1 + dice.roll(12);
        let money = dice.roll(300);
        let fixture = Fixture::with(&format!(
            "{JOBS}[jobs.dream]\nbackend = \"rule\"\nmax_ideas = {}\nbudget = {{ calls = {calls}, money = {}.{:02} }}\n\
             [backends.rule]\ntype = \"command\"\nprogram = \"python3\"\nargs = [\"-c\", \"import json,sys; print(json.dumps(json.load(sys.stdin)['rule_answer']))\"]\n",
            1 + dice.roll(8),
            money / 100,
            money % 100,
        ));
        ideas(&fixture, 1 + usize::try_from(dice.roll(12)).unwrap());
        let budget = dice.roll(3) > 0;
        for job in ["dream", "ask", "list"] {
            let mut reported = dry(&fixture, &["run", job, "--dry-run", "--json"]).json();
            if !budget && job == "dream" {
                let flag = "--config=jobs.dream.budget.tokens=3";
                reported = dry(&fixture, &["run", job, "--dry-run", "--json", flag]).json();
                assert!(
                    reported["requests"][0]["refused"].as_str().unwrap().contains("3 tokens left"),
                    "{reported}"
                );
                fixture.run(&["run", job, flag]).ends(1).expect_text("3 tokens left");
                continue;
            }
            fixture.run(&["run", job]);
            let (own, asked) = reserved(&fixture, job);
            assert_eq!(five(&reported["admission"]["reserved"]), own, "{job}: {reported}");
            let most = five(&reported["at_most"]);
            for (unit, (asked, most)) in asked.iter().zip(&most).enumerate() {
                assert!(asked <= most, "{job}: unit {unit}: {asked} of {most}");
            }
            if job != "list" {
                assert!(
                    most[1] - asked[1] <= 1,
                    "{job}: the limit is not tight: {asked:?} of {most:?}"
                );
            }
        }
    }
    print_line(&format!("dry runs: {turns} projects, 3 kinds each, limits held"));
}

#[test]
fn dry_run_and_real_run_decline_alike() {
    let fixture = Fixture::with(&format!(
        "{JOBS}[jobs.away]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"notes/x.md\"\nbackend = \"none\"\n[backends.none]\ntype = \"command\"\nprogram = \"no-such-model\"\nenv = [\"NO_KEY\"]\n\
         [day.budget]\nideas = 10\n"
    ));
    ideas(&fixture, 2);
    let mut seen = 0;
    for (job, flags) in [
        ("away", &[][..]),
        ("dream", &[][..]),
        ("dream", &["--config=day.budget.ideas=60"][..]),
        ("dream", &["--config=jobs.dream.dreams=drafts"][..]),
        (
            "dream",
            &["--config=jobs.dream.canonical=[\"dreams\"]", "--config=day.budget.ideas=60"][..],
        ),
        ("list", &["--config=day.budget.time=1s"][..]),
        ("list", &[][..]),
    ] {
        let args: Vec<&str> = ["run", job, "--json"].iter().chain(flags).copied().collect();
        let mut same = args.clone();
        same.push("--dry-run");
        let reported = dry(&fixture, &same);
        let real = fixture.run(&args);
        let outcome = real.json();
        let expected =
            [&reported.json()["admission"]["outcome"], &reported.json()["ends_before_asking"]]
                .into_iter()
                .find(|it| !it.is_null())
                .cloned();
        match expected {
            Some(expected) => {
                seen += 1;
                assert_eq!(expected["outcome"], outcome["outcome"], "{args:?}");
                assert_eq!(expected["why"], outcome["why"], "{args:?}");
                assert_eq!(reported.code, real.code, "{args:?}");
            }
            None => assert_eq!((reported.code, real.code), (0, 0), "{args:?}: {real:?}"),
        }
    }
    assert!(seen >= 4, "only {seen} runs were declined");
}

#[test]
fn dry_run_shows_environment_without_secrets() {
    let fixture = Fixture::with(&format!(
        "{JOBS}[jobs.leaky]\nkind = \"command\"\nprogram = \"echo\"\nargs = [\"hunter2hunter2\"]\nenv = [\"MINE\"]\n"
    ));
    let with = |args: &[&str]| {
        CommandOutput::of(fixture.runner(args).env("MINE", "hunter2hunter2").output().unwrap())
    };
    let reported = with(&["run", "list", "--dry-run", "--json"]).ends(0).json();
    let child = &reported["program"];
    assert_eq!(child["folder"], fixture.project().canonicalize().unwrap().display().to_string());
    assert_eq!(child["unset"], serde_json::json!(["GONE"]));
    with(&["run", "list"]).ends(0);
    let shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let names = fixture.read("notes/names.txt");
    let seen: Vec<&str> = names.lines().filter(|name| !shell.contains(name)).collect();
    assert_eq!(child["environment"], serde_json::json!(seen));
    for args in [&["run", "leaky", "--dry-run"][..], &["run", "leaky", "--dry-run", "--json"]] {
        let said = with(args).ends(0);
        assert!(!said.out.contains("hunter2") && !said.err.contains("hunter2"), "{said:?}");
    }
}

/// Checks that a dry run lists the files that runner publishes and the paths that a program may
/// write.
#[test]
fn writable_paths_are_listed() {
    for slash in ["", "/"] {
        let fixture = Fixture::with(&format!(
            "[jobs.dream]\ndreams = \"dreams{slash}\"\nideas = \"ideas{slash}\"\n\
             [jobs.narrow]\nkind = \"command\"\nprogram = \"true\"\nwrites = [\"notes{slash}\"]\n\
             [jobs.wide]\nkind = \"command\"\nprogram = \"true\"\nartifacts = [{{ from = \"x\", to = \"out/x\" }}]\n\
             [jobs.open]\nkind = \"command\"\nprogram = \"true\"\nsandbox = \"off\"\n"
        ));
        ideas(&fixture, 1);
        fs::create_dir(fixture.path("notes")).unwrap();
        let reported = dry(&fixture, &["night", "--dry-run", "--json"]).ends(0).json();
        let of = |name: &str| {
            let mut runs = reported["runs"].as_array().unwrap().iter();
            runs.find(|run| run["job"] == name).unwrap().clone()
        };
        assert_eq!(of("dream")["writes"], serde_json::json!(["dreams/"]));
        assert!(of("dream")["program_writes"].is_null());
        let narrow = of("narrow");
        assert_eq!(narrow["writes"], serde_json::json!([]));
        let reach = &narrow["program_writes"];
        assert_eq!(reach["writes"], serde_json::json!(["notes/"]));
        assert_eq!(reach["never"], serde_json::json!([]));
        let wide = of("wide");
        assert_eq!(wide["writes"], serde_json::json!(["out/x"]));
        let reach = &wide["program_writes"];
        assert_eq!(reach["writes"], serde_json::json!(["./"]));
        let never = reach["never"].as_array().unwrap();
        for path in ["runner.toml", "dreams/", ".git/"] {
            assert!(never.iter().any(|it| it == path), "{path}: {never:?}");
        }
        assert_eq!(of("open")["program_writes"]["anything"], true);
        dry(&fixture, &["run", "narrow", "--dry-run"])
            .ends(0)
            .expect_text("program   writes notes/\n");
        dry(&fixture, &["run", "open", "--dry-run"])
            .ends(0)
            .expect_text("anything that your user may write");
    }
}

/// Checks that a dry run of a night lists the same jobs as a real night. A job that a cycle starts
/// is not part of a manual night.
#[test]
fn night_dry_run_lists_real_jobs() {
    let fixture = Fixture::with(
        "[jobs.cycle]\nkind = \"lifecycle\"\n[jobs.wake]\nkind = \"wake\"\nagent = \"other\"\ntrigger = \"lifecycle\"\n[jobs.dream]\nenabled = false\n",
    );
    let reported = dry(&fixture, &["night", "--dry-run", "--json"]).json();
    let planned: Vec<&str> = reported["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["job"].as_str().unwrap())
        .collect();
    fixture.run(&["night"]);
    let db = fixture.store();
    let mut real = db
        .prepare("SELECT j.name FROM runs r JOIN jobs j ON j.id = r.job WHERE j.name <> 'report' ORDER BY j.name")
        .unwrap();
    let real: Vec<String> =
        real.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(planned, real);
}

#[test]
fn night_dry_run_lists_over_budget_jobs() {
    let fixture = Fixture::with(&format!(
        "{JOBS}[jobs.last]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"after list\"\n\
         [jobs.off]\nkind = \"command\"\nprogram = \"true\"\nenabled = false\n"
    ));
    ideas(&fixture, 2);
    let reported = dry(&fixture, &["night", "--dry-run", "--json"]).ends(0).json();
    let jobs = |reported: &Value| -> Vec<String> {
        let runs = reported["runs"].as_array().unwrap().iter();
        runs.map(|run| run["job"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(jobs(&reported), ["ask", "dream", "list", "last"]);
    assert_eq!(reported["would_not_fit"], serde_json::json!([]));
    // The dream may reserve up to ten calls. With a limit of ten, it fits unless the first job uses
    // one.
    let tight = dry(
        &fixture,
        &[
            "night",
            "--dry-run",
            "--json",
            "--config=night.budget.calls=10",
            "--config=jobs.ask.budget.calls=1",
        ],
    )
    .ends(0)
    .json();
    assert_eq!(tight["would_not_fit"], serde_json::json!(["dream"]), "{tight}");
    assert!(tight["runs"][1]["fits"].as_str().unwrap().contains("unless"), "{tight}");
    let never = dry(&fixture, &["night", "--dry-run", "--config=night.budget.calls=3"]).ends(1);
    assert!(never.out.contains("fits      no"), "{}", never.out);
    fixture.run(&["night"]);
    let real: Vec<String> = {
        let db = fixture.store();
        let mut rows = db
            .prepare("SELECT j.name FROM runs r JOIN jobs j ON j.id = r.job WHERE j.name <> 'report' AND started IS NOT NULL ORDER BY started, r.id")
            .unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(jobs(&reported), real);
    let spent = fixture.store().query_row(
        "SELECT calls, tokens, micros, seconds, ideas FROM budget_usage WHERE level = 'night'",
        [],
        |row| (0..5).map(|at| row.get(at)).collect::<Result<Vec<i64>, _>>(),
    );
    for (unit, (spent, most)) in spent.unwrap().iter().zip(five(&reported["at_most"])).enumerate() {
        assert!(*spent <= most, "unit {unit}: {spent} of {most}");
    }
}
