//! Tests the board and the cycle, including random kills and two agents in the same project.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, Random, ended_within, print_line, scaled};

/// A cycle without gates, in Markdown.
pub const CYCLE: &str = "# Cycle\n\n## add\n- KIND: wake\n- NEXT: rem\n- REPEAT: 2\n\nAdd.\n\n## rem\n- KIND: rem\n- NEXT: plan\n- MIN-INTERVAL: 0m\n\n\
                     ## plan\n- KIND: plan\n- NEXT: add\n";

pub const BOARD: &str = "#+TITLE: plan\r\n\r\n* Work\r\n** TODO tables — offline :data:\r\n** TODO twin\r\n\
                     ** TODO twin\r\n** NEXT re\u{2011}read the log\r\n** DONE old\r\n** WAITING rain";

/// Creates a project with a manual cycle and a board.
pub fn fixture(more: &str) -> Fixture {
    let fixture = Fixture::with(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.lifecycle]\nkind = \"lifecycle\"\ntrigger = \"manual\"\ncycle = \"cycle.md\"\n{more}"
    ));
    fixture.write("cycle.md", CYCLE);
    fixture.write("plan.org", BOARD);
    fixture
}

/// Writes an entry with its list, and adopts both as if runner had published them.
pub fn dreamt(fixture: &Fixture, folder: &str, id: &str, verdicts: &str) {
    written(fixture, folder, id, verdicts);
    let agent = folder.strip_prefix("rem/").unwrap_or_default();
    fixture.run(&["lifecycle", "adopt", "--yes", "--agent", agent]).ends(0);
}

/// Writes an entry with its list, as another program would.
pub fn written(fixture: &Fixture, folder: &str, id: &str, verdicts: &str) {
    fixture.write(
        &format!("{folder}/{id}.org"),
        format!(
            "#+TITLE: rem\n#+MODEL: m\n\n* tale\nx\n* goals\n* blue sky\n* fears\n* verdicts\n{verdicts}\n* carry\n- next action: open cycle.md\n- verified: all is well\n"
        ),
    );
    fixture.write(
        &format!("{folder}/manifest.json"),
        format!("{{\"entries\":[{{\"file\":\"{id}.org\"}}]}}"),
    );
}

/// Returns the cycle's state and the number of completed runs in it.
fn position(fixture: &Fixture) -> (String, u64) {
    let reported = fixture.run(&["lifecycle", "show", "--json"]).ends(0).json();
    let position = &reported["position"];
    let state = position["state"].as_str().unwrap().to_owned();
    (state, position["hits"].as_u64().unwrap())
}

#[test]
fn verdicts_apply_once_and_unresolved_are_reported() {
    let fixture = fixture("");
    fixture.run(&["board", "apply"]).ends(0).expect_text("there is no entry yet");
    dreamt(
        &fixture,
        "rem",
        "2026-06-10-1430",
        "- pick up: tables — offline — the data is there\n- put down: re-read the log — later\n\
         - cancel: twin — there are two\n- pick up: nowhere to be found — x\n- pick up: old — again\n- keep course — y",
    );
    let done = fixture.run(&["board", "apply", "--json"]).ends(0).json();
    let record = &done["records"][0];
    assert_eq!(record["entry"], "2026-06-10-1430");
    assert_eq!(record["moves"].as_array().unwrap().len(), 2, "{record}");
    assert_eq!(record["kept"].as_array().unwrap().len(), 2, "{record}");
    assert_eq!(record["unresolved"].as_array().unwrap().len(), 2, "{record}");
    let after = BOARD.replace("TODO tables", "NEXT tables").replace("NEXT re", "TODO re");
    assert_eq!(fixture.read("plan.org"), after);
    fixture.run(&["board", "apply"]).ends(0).expect_text("already applied");
    assert_eq!(fixture.read("plan.org"), after);
    // Entries of different agents are distinct even if their names are equal.
    dreamt(&fixture, "rem/two", "2026-06-10-1430", "- put down: tables — offline — x");
    fixture
        .run(&["board", "apply", "--agent", "two"])
        .ends(0)
        .expect_text("NEXT → TODO: tables — offline");
    fixture
        .run(&["board", "lint"])
        .ends(1)
        .expect_text("plan.org:5: 2 tasks have the heading")
        .expect_text("\"WAITING\"");
    fixture.run(&["board", "pick"]).ends(0).expect_text("picked tables");
    fixture.run(&["board", "pick"]).ends(0).expect_text("is already DOING");
    fixture.run(&["board", "done", "tables - offline"]).ends(0).expect_text("is DONE");
    fixture.run(&["board", "done", "twin"]).ends(65).expect_text("lines 5, 6");
    fixture.run(&["board", "add", "one more"]).ends(0);
    fixture.run(&["board", "add", "one more"]).ends(65).expect_text("already");
    let text = fixture.read("plan.org");
    // The new task follows the last task. `WAITING` is not a task keyword.
    assert!(text.ends_with("** DONE old\r\n** TODO one more\r\n** WAITING rain"), "{text:?}");
    let history = fixture.run(&["board", "history", "--json"]).ends(0).json();
    assert_eq!(history.as_array().unwrap().len(), 5);
    assert_eq!(history[0]["what"], "add");
    let runs = fixture.run(&["runs", "--job", "board:apply", "--json"]).ends(0);
    assert_eq!(runs.json().as_array().unwrap().len(), 5);
    fs::remove_file(fixture.path("plan.org")).unwrap();
    fixture.run(&["board", "apply"]).ends(65).expect_text("plan.org does not exist");
    fixture.write("plan.org", b"* TODO \xff\n");
    fixture.run(&["board", "show"]).ends(65).expect_text("not UTF-8");
}

#[test]
fn board_apply_preserves_manual_edits() {
    let fixture = fixture("");
    fixture.git(&["add", "plan.org"]);
    fixture.git(&["commit", "--quiet", "-m", "board"]);
    let edited = format!("{BOARD}\r\nwords of a person\r\n");
    fixture.write("plan.org", &edited);
    dreamt(&fixture, "rem", "2026-06-10-1430", "- pick up: tables — offline — x");
    fixture.run(&["board", "apply"]).ends(0);
    assert_eq!(fixture.read("plan.org"), edited.replace("TODO tables", "NEXT tables"));
}

#[test]
fn cycle_advances_and_check_reports_mistakes() {
    let fixture = fixture("");
    fixture.run(&["lifecycle", "check"]).ends(0).expect_text("ok");
    let mut way = Vec::new();
    for _ in 0..5 {
        let (state, hits) = position(&fixture);
        way.push(format!("{state} {hits}"));
        fixture.run(&["lifecycle", "tick"]).ends(0);
    }
    assert_eq!(way, ["add 0", "add 1", "rem 0", "plan 0", "add 0"]);
    assert_eq!(fixture.tree("rem").len(), 2, "expected one entry and the manifest");
    fixture.run(&["lifecycle", "goto", "rem"]).ends(0);
    assert_eq!(position(&fixture), ("rem".to_owned(), 0));
    fixture.run(&["lifecycle", "goto", "sleep"]).ends(2).expect_text("add, rem, plan");
    fixture.run(&["lifecycle", "history", "--limit", "2"]).ends(0).expect_text("add (1 of 2)");
    // Runner does not guess a replacement for a removed state.
    fixture
        .write("cycle.md", CYCLE.replace("rem\n", "sleep\n").replace("KIND: sleep", "KIND: rem"));
    fixture.run(&["lifecycle", "tick"]).ends(78).expect_text("lifecycle goto");
    fixture.write("cycle.md", CYCLE.replace("NEXT: plan", "NEXT: plna"));
    fixture
        .run(&["lifecycle", "check"])
        .ends(78)
        .expect_text("cycle.md:10: NEXT of rem is \"plna\"")
        .expect_text("did you mean \"plan\"");
    fixture.write("cycle.md", CYCLE.replace("- REPEAT: 2", "- BACKEND: nobody"));
    fixture.run(&["lifecycle", "check"]).ends(78).expect_text("there is no [backends.nobody]");
}

#[test]
fn gate_holds_until_minimum_interval_passes() {
    let fixture = fixture("");
    fixture.write("cycle.md", CYCLE.replace("- MIN-INTERVAL: 0m\n", ""));
    let tick = |clock: &str| fixture.run_at(clock, &["lifecycle", "tick"]).ends(0);
    for minute in 0..6 {
        tick(&format!("2026-06-10T10:0{minute}:00Z"));
    }
    assert_eq!(position(&fixture), ("rem".to_owned(), 0));
    tick("2026-06-10T10:30:00Z")
        .expect_text("skipped")
        .expect_text("gate: rem ran at 2026-06-10T10:02:00Z");
    assert_eq!(position(&fixture), ("rem".to_owned(), 0));
    tick("2026-06-10T10:52:00Z").expect_text("nothing happened");
    assert_eq!(position(&fixture), ("plan".to_owned(), 0));
}

#[test]
fn idle_cycle_writes_no_entry_and_moves_on() {
    let fixture = fixture("[lifecycle]\ncommit = true\n");
    fs::write(fixture.root().join(".gitconfig"), "[user]\nname = a\nemail = a@b\n").unwrap();
    fixture.write("README.md", "# Title\n\n[![badge](x)](y)\n\nA page about\ntides.\n\nMore.\n");
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "A board and a cycle"]);
    let cycle = |first: i64| {
        for number in 0..4 {
            let clock = format!("2026-06-10T{:02}:{:02}:00Z", first, number * 10);
            fixture.run_at(&clock, &["lifecycle", "tick"]).ends(0);
        }
        fixture.tree("rem").iter().filter(|(path, _)| path.ends_with(".org")).count()
    };
    assert_eq!((cycle(1), position(&fixture)), (1, ("add".to_owned(), 0)));
    // Runner's own commit of the entry, and its own moves on the board, are not evidence.
    assert!(fixture.git(&["log", "-1", "--format=%s"]).starts_with("rem: "));
    assert_eq!((cycle(2), position(&fixture)), (1, ("add".to_owned(), 0)));
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    let skipped: Vec<&Value> =
        runs.as_array().unwrap().iter().filter(|run| run["outcome"] == "skipped").collect();
    assert_eq!(skipped.len(), 1, "{runs}");
    assert!(skipped[0].to_string().contains("nothing happened: no commit"), "{}", skipped[0]);
    // The orientation still shows the carry of the last entry, and lists later commits.
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "add: the tide of June"]);
    let orient = fixture.run(&["lifecycle", "orient"]).ends(0);
    let orient = orient.expect_text("Carry of rem/2026-06-10-0120.org").expect_text("committed ");
    assert!(orient.out.contains("add: the tide of June"), "{orient:?}");
    assert!(!orient.out.contains("committed") || !orient.out.contains(" rem: "), "{orient:?}");
    // An audit checks the carry instead of trusting it.
    let audit = fixture.run(&["lifecycle", "orient", "--kind", "audit"]).ends(0);
    assert!(
        audit.out.contains("check it yourself") && !audit.out.contains("Trust it"),
        "{audit:?}"
    );
    // A commit, a person's change to a task, and a tool call each make a cycle worth an entry.
    assert_eq!(cycle(3), 2);
    fixture.run_at("2026-06-10T04:00:00Z", &["board", "add", "one more"]).ends(0);
    assert_eq!(cycle(4), 3);
    fixture.write("plan.org", fixture.read("plan.org").replace("TODO twin", "DONE twin"));
    assert_eq!(cycle(5), 4);
    fixture.write("_steps.jsonl", "{\"tool\":\"Read\",\"ts\":\"2026-06-10T06:00:00Z\"}\n");
    assert_eq!(cycle(6), 5);
    assert_eq!(cycle(7), 5);
}

#[test]
fn other_board_is_not_evidence_of_work() {
    let fixture = fixture(
        "[jobs.two]\nkind = \"lifecycle\"\ntrigger = \"manual\"\ncycle = \"cycle.md\"\n\
         agent = \"two\"\nboard = \"two.org\"\n",
    );
    fixture.write("two.org", "* TODO another task\n");
    let tick = |minute: usize, agent: &str| {
        let clock = format!("2026-06-10T10:{minute:02}:00Z");
        fixture.run_at(clock, &["lifecycle", "tick", "--agent", agent]).ends(0)
    };
    for minute in 0..4 {
        tick(minute, "");
    }
    tick(10, "two").expect_text("another task");
    for minute in 20..22 {
        tick(minute, "");
    }
    let orient = fixture.run(&["lifecycle", "orient"]).ends(0);
    assert!(!orient.out.contains("another task"), "{orient:?}");
    tick(22, "").expect_text("nothing happened");
}

#[test]
fn failed_dream_keeps_position_and_backs_off() {
    let fixture = fixture("backend = \"dreamer\"\n");
    let answer = fixture.root().join("answer");
    fixture.configure(&format!(
        "[backends.dreamer]\ntype = \"command\"\nprogram = \"cat\"\nargs = [\"{}\"]\n",
        answer.display()
    ));
    fixture.run(&["lifecycle", "goto", "rem"]).ends(0);
    fs::write(&answer, "* tale\nnot an entry at all\n").unwrap();
    let tick = |clock: &str| fixture.run_at(clock, &["lifecycle", "tick"]);
    for (number, minute) in ["00", "10", "20"].iter().enumerate() {
        tick(&format!("2026-06-10T10:{minute}:00Z")).ends(1);
        assert_eq!(position(&fixture), ("rem".to_owned(), 0));
        let mark: Value =
            serde_json::from_str(&fixture.read(".runner/failed/lifecycle.json")).unwrap();
        let said = mark["message"].as_str().unwrap();
        assert!(said.contains("and remains the current state: "), "{said}");
        assert_eq!(said.contains("times in a row"), number > 0, "{said}");
    }
    assert!(!fixture.path("rem").join("manifest.json").exists());
    tick("2026-06-10T10:30:00Z")
        .ends(0)
        .expect_text("gate: lifecycle failed 3 times")
        .expect_text("runner jobs reset lifecycle");
    tick("2026-06-10T10:36:00Z").ends(1);
    tick("2026-06-10T11:05:00Z").ends(0).expect_text("gate: lifecycle failed 4 times");
    let entry = serde_json::json!({
        "tale": "Nothing was done and nothing failed.", "goals": ["a", "b", "c"], "blue_sky": ["d", "e"],
        "fears": ["f", "g"], "verdicts": [{"act": "pick-up", "task": "tables — offline", "why": "w"}],
        "carry": {"doing": "", "next_action": "n", "file": "", "verified": []},
    });
    fs::write(&answer, entry.to_string()).unwrap();
    tick("2026-06-10T11:06:00Z").ends(0);
    assert_eq!(position(&fixture), ("plan".to_owned(), 0));
    assert!(!fixture.path(".runner/failed/lifecycle.json").exists());
    // The next run applies the dream's verdicts first.
    tick("2026-06-10T11:10:00Z").ends(0).expect_text("TODO → NEXT: tables");
    assert!(fixture.read("plan.org").contains("DOING tables — offline"));
}

#[test]
fn goto_ends_the_backoff() {
    let fixture = fixture("backend = \"dreamer\"\n");
    fixture.configure("[backends.dreamer]\ntype = \"command\"\nprogram = \"echo\"\n");
    fixture.run(&["lifecycle", "goto", "rem"]).ends(0);
    let tick = |minute: &str| {
        fixture.run_at(format!("2026-06-10T10:{minute}:00Z"), &["lifecycle", "tick"])
    };
    for minute in ["00", "01", "02"] {
        tick(minute).ends(1);
    }
    tick("03").ends(0).expect_text("gate: lifecycle failed 3 times");
    assert!(fixture.path(".runner/failed/lifecycle.json").exists());
    fixture.run_at("2026-06-10T10:04:00Z", &["lifecycle", "goto", "add"]).ends(0);
    assert!(!fixture.path(".runner/failed/lifecycle.json").exists());
    // The next failure is the first one in the new state.
    tick("05").ends(1).expect_text("add failed and remains the current state: ");
}

#[test]
fn compatible_environment_variables_are_read() {
    let fixture = fixture("");
    fixture.write("other.org", runner_cycle());
    let said = fixture
        .runner(&["lifecycle", "show", "--json"])
        .env("WB_LIFECYCLE_DEF", "other.org")
        .env("WB_DREAM_MIN_INTERVAL_MS", "60000")
        .output()
        .unwrap();
    let reported = CommandOutput::of(said).ends(0).json();
    assert_eq!(reported["file"], "other.org");
    assert_eq!(reported["states"][1]["min_interval_s"], 60);
    let said = fixture
        .runner(&["lifecycle", "show"])
        .env("WB_DREAM_MIN_INTERVAL_MS", "soon")
        .output()
        .unwrap();
    CommandOutput::of(said).ends(78).expect_text("must be milliseconds");
}

fn runner_cycle() -> &'static str {
    "* one\n:PROPERTIES:\n:NEXT: rem\n:END:\n* rem\n:PROPERTIES:\n:KIND: rem\n:NEXT: one\n:MIN-INTERVAL: 9h\n:END:\n"
}

#[test]
fn failed_dream_does_not_fail_its_wake() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.up]\nkind = \"wake\"\ntrigger = \"every 1h\"\nbackend = \"builtin\"\n",
    );
    fixture.write("plan.org", BOARD);
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "audit: all is well"]);
    fixture.write("rem/manifest.json", "{");
    // The night reports that the dream failed. The run before the dream keeps its outcome.
    fixture.run(&["night"]).ends(78).expect_text("up: degraded");
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    let outcome = |job: &str| {
        let runs = runs.as_array().unwrap().iter();
        let of = runs.filter(|run| run["job"] == job);
        let word = |run: &Value| run["outcome"].as_str().unwrap_or("queued").to_owned();
        of.map(word).collect::<Vec<_>>()
    };
    assert_eq!(outcome("up"), ["degraded"], "{runs}");
    assert!(outcome("up-rem").contains(&"failed".to_owned()), "{runs}");
}

#[test]
fn dream_after_a_wake_reads_the_board_of_the_wake() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.up]\nkind = \"wake\"\ntrigger = \"every 1h\"\n\
         backend = \"builtin\"\nboard = \"two.org\"\n",
    );
    fixture.write("plan.org", "* TODO wrong board\n");
    fixture.write("two.org", "* TODO right board\n");
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "audit: all is well"]);
    fixture.run(&["night"]);
    let entries: String = (fixture.tree("rem").into_iter())
        .map(|(_, text)| String::from_utf8_lossy(&text).into_owned())
        .collect();
    assert!(entries.contains("right board") && !entries.contains("wrong board"), "{entries}");
}

#[test]
fn random_kills_preserve_position_and_verdicts() {
    let fixture = fixture("");
    let mut dice = Random::new("cycles");
    let (kills, began) = (scaled(40), Instant::now());
    let mut minute = 0;
    let mut now = || {
        minute += 2;
        fixture.set_clock(format!(
            "2026-06-{:02}T{:02}:{:02}:00Z",
            1 + minute / 1440,
            minute / 60 % 24,
            minute % 60
        ));
    };
    now();
    let calibrate = Instant::now();
    fixture.run_with_clock(&["lifecycle", "tick"]);
    let whole = u64::try_from(calibrate.elapsed().as_micros()).unwrap();
    let mut landed = 0;
    for number in 0..kills {
        now();
        let mut run = fixture
            .runner_with_clock(&["lifecycle", "tick"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        if !ended_within(run.id(), Duration::from_micros(dice.roll(whole))) {
            landed += 1;
            let group = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
            kill_process_group(group, Signal::KILL).unwrap();
        }
        run.wait().unwrap();
        if number % 8 == 7 || number + 1 == kills {
            settle(&fixture);
            inspect(&fixture);
        }
    }
    print_line(&format!(
        "cycles: {kills} ticks, {landed} killed in flight; {:.0} s",
        began.elapsed().as_secs_f64()
    ));
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}

/// Ticks until every run is settled.
fn settle(fixture: &Fixture) {
    for _ in 0..20 {
        let open = "SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL";
        if fixture.count(open) == 0 {
            return;
        }
        fixture.run_with_clock(&["tick"]).ends(0);
    }
    panic!("a run is not settled after 20 ticks");
}

/// Checks that the position matches the number of completed steps, and that no entry was applied
/// twice.
fn inspect(fixture: &Fixture) {
    let completed = fixture.count(
        "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job WHERE j.name = 'lifecycle'
         AND (r.outcome ->> 'outcome' IN ('succeeded', 'degraded')
              OR r.outcome ->> 'why' LIKE 'nothing happened%')",
    );
    let way = [("add", 0), ("add", 1), ("rem", 0), ("plan", 0)];
    let (state, hits) = way[usize::try_from(completed).unwrap() % way.len()];
    assert_eq!(position(fixture), (state.to_owned(), hits), "after {completed} steps");
    let history = fs::read_to_string(fixture.path(".runner/board.jsonl")).unwrap_or_default();
    let mut applied = BTreeSet::new();
    for line in history.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["what"] == "apply" {
            assert!(applied.insert(record["entry"].to_string()), "applied twice: {history}");
        }
    }
}

#[test]
fn manual_goto_survives_a_running_agent() {
    let fixture = fixture("backend = \"slow\"\n");
    fixture.configure(
        "[backends.slow]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"cat pipe; echo done\"]\n",
    );
    let pipe = fixture.path("pipe");
    CommandOutput::of(fixture.command("mkfifo", &["pipe"]).output().unwrap()).ends(0);
    let tick = fixture
        .runner(&["lifecycle", "tick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opening the pipe blocks until the agent opens it for reading, so the agent is running
    // afterwards.
    let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
    fixture.run(&["lifecycle", "goto", "plan"]).ends(0);
    std::io::Write::write_all(&mut writer, b"go on\n").unwrap();
    drop(writer);
    CommandOutput::of(tick.wait_with_output().unwrap()).ends(0).expect_text("next: plan");
    assert_eq!(position(&fixture), ("plan".to_owned(), 0));
}

#[test]
fn two_agents_share_a_project_for_a_week() {
    let fixture = fixture("");
    fixture.configure(
        "[jobs.other]\nkind = \"lifecycle\"\ntrigger = \"every 6h\"\ncycle = \"cycle.md\"\nagent = \"two\"\n",
    );
    // The interval of `every 6h` starts when the setting is changed.
    fixture
        .run_at("2026-06-01T00:00:00Z", &["config", "set", "jobs.lifecycle.trigger", "every 6h"])
        .ends(0);
    fixture.write("plan.org", "* TODO first\n");
    let began = Instant::now();
    let mut ticks = 0;
    for day in 1..=7 {
        for hour in [0, 6, 12, 18] {
            let clock = format!("2026-06-{day:02}T{hour:02}:30:00Z");
            // A person adds a task between the agents' runs.
            let heading = format!("task of day {day} at {hour}");
            fixture.run_at(&clock, &["board", "add", &heading]).ends(0);
            fixture.run_at(&clock, &["tick"]).ends(0);
            ticks += 1;
        }
    }
    let text = fixture.read("plan.org");
    assert_eq!(text.lines().filter(|line| line.starts_with("* ")).count(), 1 + ticks, "{text}");
    // Each agent has its own task in progress.
    assert_eq!((text.matches("* DOING").count(), text.matches(":AGENT: two").count()), (2, 1));
    for day in 1..=7 {
        assert_eq!(text.matches(&format!("task of day {day} at")).count(), 4);
    }
    for (agent, folder) in [("", "rem"), ("two", "rem/two")] {
        let list: Value =
            serde_json::from_str(&fixture.read(&format!("{folder}/manifest.json"))).unwrap();
        let entries = list["entries"].as_array().unwrap().len();
        let reported =
            fixture.run(&["lifecycle", "show", "--agent", agent, "--json"]).ends(0).json();
        print_line(&format!(
            "agent {agent:?}: {entries} entries in a week, now {}",
            reported["position"]
        ));
        assert!((5..=8).contains(&entries), "{entries}");
    }
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM runs WHERE outcome ->> 'outcome' IN ('failed', 'lost')"),
        0
    );
    print_line(&format!("two agents: {ticks} ticks, {:.0} s", began.elapsed().as_secs_f64()));
}
