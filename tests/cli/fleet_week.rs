//! Tests three agents that share a repository and a board for a week, with random kills.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::fixture::{Fixture, Random, ended_within, print_line};

const AGENTS: [&str; 3] = ["", "two", "three"];

const CYCLE: &str = "# Cycle\n\n## add\n- KIND: wake\n- NEXT: rem\n- REPEAT: 2\n\n## rem\n- KIND: rem\n- NEXT: add\n- MIN-INTERVAL: 0m\n";

/// Marks the picked task as done and commits the board, as an agent does, unless the task's name
/// ends with 9. The request is one line of JSON.
const WORKER: &str = r#"task=$(sed 's/\\n/\n/g' | sed -n 's/^PICKED  //p' | head -1)
[ -z "$task" ] && { echo nothing; exit 0; }
case "$task" in *9) echo left; exit 0;; esac
sed -i "s/^\* DOING $task\$/* DONE $task/" plan.org
git -c user.name=a -c user.email=a@b commit --quiet -m "add: $task" plan.org
echo "finished $task"
"#;

/// Answers with a dream whose verdict picks up the last open task, if there is one. The tale
/// consists of random letters.
const DREAMER: &str = r#"task=$(sed 's/\\n/\n/g' | sed -n 's/^\* TODO //p' | tail -1)
tale=$(tr -dc 'g-z ' </dev/urandom | head -c 90)
verdict="keep course"
[ -n "$task" ] && verdict="pick up: $task — it is due"
printf '* tale\nIt %s.\n* goals\n- a\n- b\n- c\n* blue sky\n- d\n- e\n* fears\n- f\n- g\n* verdicts\n- %s\n* carry\n- next action: go on\n' "$tale" "$verdict"
"#;

/// Creates a project with three cycles on one board. The dreams of the agent `three` always fail.
fn fixture() -> Fixture {
    let fixture = Fixture::with("[jobs.dream]\nenabled = false\n");
    fixture.write("cycle.md", CYCLE);
    fixture.write("worker.sh", WORKER);
    fixture.write("dreamer.sh", DREAMER);
    let command = |name: &str, args: &str| {
        format!("[backends.{name}]\ntype = \"command\"\nprogram = \"sh\"\nargs = {args}\n")
    };
    let mut config = command("worker", "[\"worker.sh\"]")
        + &command("dreamer", &format!("[\"{}\"]", fixture.path("dreamer.sh").display()))
        + &command("broken", "[\"-c\", \"exit 3\"]");
    for agent in AGENTS {
        let name = if agent.is_empty() { "one" } else { agent };
        let own = if agent.is_empty() { String::new() } else { format!("agent = \"{agent}\"\n") };
        let dreams = if agent == "three" { "broken" } else { "dreamer" };
        config += &format!(
            "[jobs.{name}]\nkind = \"lifecycle\"\ntrigger = \"manual\"\ncycle = \"cycle.md\"\n\
             backend = \"worker\"\n{own}[jobs.{name}-rem]\nkind = \"rem\"\ntrigger = \"lifecycle\"\n\
             backend = \"{dreams}\"\nanswer = \"org\"\n{own}[jobs.{name}-daydream]\nkind = \"daydream\"\n\
             enabled = false\ntrigger = \"manual\"\n{own}"
        );
    }
    fixture.configure(&config);
    let board: String = (0..60).map(|number| format!("* TODO task {number}\n")).collect();
    fixture.write("plan.org", board);
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "Set up"]);
    fixture
}

/// Ticks until every run is settled.
fn settle(fixture: &Fixture) {
    for _ in 0..20 {
        let open = "SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL";
        if fixture.count(open) == 0 {
            return;
        }
        // The tick may fail, because it may retry the failing dream.
        fixture.run_with_clock(&["tick"]);
    }
    panic!("a run is not settled after 20 ticks");
}

/// Checks the following, and returns the number of picks and the number of moves by verdicts:
/// - Each task was picked at most once.
/// - Each task in progress is assigned to the agent that picked it.
/// - Each entry's verdicts were applied at most once, for the agent that wrote the entry.
fn inspect(fixture: &Fixture) -> (usize, usize) {
    let history = fs::read_to_string(fixture.path(".runner/board.jsonl")).unwrap_or_default();
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    let mut applied = BTreeSet::new();
    let (mut picks, mut moves) = (0, 0);
    for line in history.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let agent = record["agent"].as_str().unwrap_or_default().to_owned();
        let moved = record["moves"].as_array().cloned().unwrap_or_default();
        if record["what"] == "apply" {
            let entry = record["entry"].as_str().unwrap();
            let folder = if agent.is_empty() { "rem".to_owned() } else { format!("rem/{agent}") };
            assert!(fixture.path(&format!("{folder}/{entry}.org")).is_file(), "{record}");
            assert!(applied.insert((agent, entry.to_owned())), "applied twice: {history}");
            moves += moved.len();
            continue;
        }
        assert_eq!((record["what"].as_str(), moved.len()), (Some("pick"), 1), "{record}");
        let task = moved[0]["task"].as_str().unwrap().to_owned();
        let before = held.insert(task, agent.clone());
        assert_eq!(before, None, "picked by two agents: {record}");
        picks += 1;
    }
    let board = fixture.run(&["board", "show", "--json"]).ends(0).json();
    for task in board["tasks"].as_array().unwrap().iter().filter(|task| task["keyword"] == "DOING")
    {
        let holder = held.get(task["heading"].as_str().unwrap()).map(String::as_str);
        assert_eq!(holder, Some(task["agent"].as_str().unwrap_or_default()), "{task}: {history}");
    }
    (picks, moves)
}

#[test]
fn three_agents_share_a_board_despite_kills() {
    let fixture = fixture();
    let mut dice = Random::new("fleet_week");
    let began = Instant::now();
    let (mut ticks, mut kills) = (0, 0);
    let mut whole = Duration::from_secs(1);
    for round in 0..21 {
        for (at, agent) in AGENTS.iter().enumerate() {
            let (day, hour) = (1 + round / 3, 1 + round % 3 * 7);
            fixture.set_clock(format!("2026-06-{day:02}T{hour:02}:{:02}:00Z", at * 15));
            let mut tick = fixture.runner_with_clock(&["lifecycle", "tick", "--agent", agent]);
            tick.stdout(Stdio::null()).stderr(Stdio::null());
            let started = Instant::now();
            let mut tick = tick.process_group(0).spawn().unwrap();
            // About a third of the ticks may be killed, each at a random time.
            let patience = match dice.roll(3) {
                0 => dice.roll(u64::try_from(whole.as_micros()).unwrap()),
                _ => 120_000_000,
            };
            if !ended_within(tick.id(), Duration::from_micros(patience)) {
                kills += 1;
                let group = Pid::from_raw(i32::try_from(tick.id()).unwrap()).unwrap();
                kill_process_group(group, Signal::KILL).unwrap();
            }
            tick.wait().unwrap();
            whole = whole.max(started.elapsed().min(Duration::from_secs(3)));
            ticks += 1;
        }
        settle(&fixture);
        inspect(&fixture);
    }
    let (picks, moves) = inspect(&fixture);
    let entries = |folder: &str| {
        let files = fixture.tree("rem").into_iter();
        files.filter(|(path, _)| path.starts_with(folder) && path.ends_with(".org")).count()
    };
    let failed = "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job
                  WHERE j.name = 'three' AND r.outcome ->> 'outcome' = 'failed'";
    print_line(&format!(
        "fleet: {ticks} ticks, {kills} killed, {picks} picks, {moves} moves by verdicts, {} entries, \
         {} failed dreams of one agent; {:.0} s",
        entries(""),
        fixture.count(failed),
        began.elapsed().as_secs_f64()
    ));
    // The failing dreams of one agent stop only that agent.
    assert_eq!(entries("rem/three/"), 0);
    assert!(fixture.count(failed) > 0 && entries("rem/two/") > 0);
    for agent in ["", "two"] {
        let shown = fixture.run(&["lifecycle", "history", "--agent", agent]).ends(0);
        assert!(shown.out.contains("rem"), "{shown:?}");
    }
    assert!(picks >= 5 && moves >= 1, "{picks} picks, {moves} moves");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}
