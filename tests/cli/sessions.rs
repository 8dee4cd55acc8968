//! Tests the analysis of sessions: the commands, the hooks, the ticks, and kills at every step.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture, print_line};

const JOB: &str = "[jobs.sessions]\nkind = \"sessions\"\ntrigger = \"manual\"\n";
const FOLDER: &str = ".warden/cross-session";

/// Returns the path at which Claude Code keeps a session's transcript, and creates its folder.
pub fn transcript(fixture: &Fixture, id: &str) -> PathBuf {
    let root = fs::canonicalize(fixture.project()).unwrap();
    let slug = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let slug: String = root.display().to_string().chars().map(slug).collect();
    let folder = fixture.root().join(".claude/projects").join(slug);
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{id}.jsonl"))
}

/// Writes the transcript of a session that was last changed `age` seconds ago.
fn write(fixture: &Fixture, id: &str, text: &str, age: u64) -> PathBuf {
    let path = transcript(fixture, id);
    let root = fs::canonicalize(fixture.project()).unwrap();
    fs::write(&path, text.replace("/home/me/project", root.to_str().unwrap())).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(age);
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    path
}

fn call(minute: u32, tool: &str, input: &Value, failure: Option<&str>) -> String {
    let at = format!("2026-01-02T03:{minute:02}:00Z");
    let id = format!("call-{minute}");
    let use_it = json!({ "type": "assistant", "timestamp": at, "gitBranch": "main", "cwd": "/home/me/project",
        "message": { "content": [{ "type": "tool_use", "id": id, "name": tool, "input": input }] } });
    let result = json!({ "type": "user", "timestamp": at, "message": { "content": [
        { "type": "tool_result", "tool_use_id": id, "is_error": failure.is_some(), "content": failure.unwrap_or("ok") }] } });
    format!("{use_it}\n{result}\n")
}

/// Returns a session that repairs an error, beginning at minute `from`.
fn repair(from: u32) -> String {
    let test = json!({ "command": "cargo test" });
    [
        call(from, "Bash", &test, Some("test a::b ... FAILED")),
        call(from + 1, "Read", &json!({ "file_path": "/home/me/project/src/a.rs" }), None),
        call(from + 2, "Edit", &json!({ "file_path": "/home/me/project/src/a.rs" }), None),
        call(from + 3, "Bash", &test, None),
    ]
    .concat()
}

fn analyze(fixture: &Fixture) -> CommandOutput {
    fixture.run(&["sessions", "analyze"])
}

/// Returns the playbooks with the number of sessions that each comes from.
fn playbooks(fixture: &Fixture) -> Vec<(String, u64)> {
    let all = fixture.run(&["sessions", "artifacts", "--json"]).ends(0).json();
    let playbooks = all.as_array().unwrap().iter().filter(|it| it["type"] == "DreamPlaybook");
    playbooks
        .map(|it| (it["id"].as_str().unwrap().to_owned(), it["source_sessions"].as_u64().unwrap()))
        .collect()
}

#[test]
fn sessions_are_analyzed_without_touching_them() {
    let fixture = Fixture::with("");
    fixture.run(&["sessions", "show"]).ends(65).expect_text("runner sessions analyze");
    fixture.run(&["sessions", "resume"]).ends(65).expect_text("runner sessions analyze");
    let path = write(&fixture, "one", &repair(1), 3_600);
    write(&fixture, "running", &repair(10), 5);
    let before = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let tree = fixture.tree(".");
    analyze(&fixture).ends(0).expect_text("1 session analyzed");
    let after = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    assert_eq!(before, after);
    let old = |name: &str| tree.iter().any(|(known, _)| known == name);
    for (name, _) in fixture.tree(".") {
        let own = name.starts_with(FOLDER) || name.starts_with(".runner") || old(&name);
        assert!(own, "{name} was written outside the folder");
    }
    assert_eq!(fixture.git(&["status", "--porcelain", "--", ".warden"]), "");
    let listed = fixture.run(&["sessions", "list", "--json"]).ends(0).json();
    let states: Vec<&str> =
        listed.as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["new", "analyzed"]);
    let shown = fixture.run(&["sessions", "show", "one", "--json"]).ends(0).json();
    assert_eq!((&shown["calls"], &shown["failed"]), (&json!(4), &json!(1)));
    fixture.run(&["sessions", "show"]).ends(0).expect_text("error:cargo:");
    fixture.run(&["sessions", "resume"]).ends(0).expect_text("Files in work: src/a.rs");
    let packet = fixture.run(&["sessions", "resume", "--json"]).ends(0).json();
    assert_eq!(packet["session"], "one");
    // A session that is not idle is analyzed only on request.
    analyze(&fixture).ends(0).expect_text("no idle session");
    fixture.run(&["sessions", "end", "running"]).ends(0);
    assert_eq!(playbooks(&fixture)[0].1, 2);
    let unknown = fixture.run(&["sessions", "end", "nothing"]);
    assert_ne!(unknown.code, 0, "{unknown:?}");
    fixture.run(&["sessions", "list"]).ends(0).expect_text("SESSION");
}

/// Returns the context that a session of this project gets when it starts for this reason.
fn started(fixture: &Fixture, source: &str) -> String {
    let payload = fixture.root().join("payload.json");
    let cwd = fs::canonicalize(fixture.project()).unwrap();
    let text = json!({ "session_id": format!("new-{source}"), "source": source, "cwd": cwd });
    fs::write(&payload, text.to_string()).unwrap();
    let mut hook = fixture.runner(&["hook", "session-start"]);
    let output = hook.stdin(File::open(&payload).unwrap()).output().unwrap();
    let answer = CommandOutput::of(output).ends(0).json();
    answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn new_session_gets_last_packet_before_notes() {
    let fixture = Fixture::with("");
    assert_eq!(started(&fixture, "startup"), "");
    write(&fixture, "one", &repair(1), 3_600);
    analyze(&fixture).ends(0);
    fixture.run(&["memory", "add", "--tag", "tier:pinned", "the port is 8080"]).ends(0);
    for source in ["startup", "clear"] {
        let got = started(&fixture, source);
        let packet = got.find("Files in work: src/a.rs").unwrap_or_else(|| panic!("{got}"));
        assert!(got.find("the port is 8080").is_some_and(|note| packet < note), "{got}");
        assert!(got.len() <= 9_500, "{}", got.len());
    }
    // These sessions have their own history, so the packet would repeat it.
    for source in ["resume", "fork", "compact"] {
        assert!(!started(&fixture, source).contains("Files in work"), "{source}");
    }
    // A packet that another program changed is not shown.
    let packet = format!("{FOLDER}/resume.json");
    fixture.write(&packet, fixture.read(&packet).replace("src/a.rs", "src/b.rs"));
    let got = started(&fixture, "startup");
    assert!(got.contains("8080") && !got.contains("Files in work"), "{got}");
}

/// Calls the hook that reports the end of a session.
fn ended(fixture: &Fixture, session: &str) {
    let mut hook = fixture.runner(&["hook", "session-end"]);
    report_end(fixture, session, &mut hook);
}

fn report_end(fixture: &Fixture, session: &str, hook: &mut Command) {
    let payload = fixture.root().join("payload.json");
    let cwd = fs::canonicalize(fixture.project()).unwrap();
    let text = json!({ "session_id": session, "cwd": cwd, "reason": "prompt_input_exit" });
    fs::write(&payload, text.to_string()).unwrap();
    let output = hook.stdin(File::open(&payload).unwrap()).output().unwrap();
    CommandOutput::of(output).ends(0);
}

#[test]
fn end_of_session_starts_its_analysis() {
    let fixture = Fixture::with("");
    // The session is not idle, and its last event is not a model's answer.
    write(&fixture, "one", &repair(1), 0);
    let before = fixture.read("runner.toml");
    ended(&fixture, "one");
    assert_eq!(fixture.read("runner.toml"), before, "the hook added a job");
    fixture.configure(JOB);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 0);
    ended(&fixture, "--all");
    ended(&fixture, "one");
    // The analysis outlives the hook.
    let began = Instant::now();
    let state = || fixture.run(&["sessions", "list", "--json"]).ends(0).json()[0]["state"].clone();
    while state() != "analyzed" {
        assert!(began.elapsed() < Duration::from_secs(60), "the session is not analyzed");
    }
    let ending = || {
        let shown = fixture.run(&["sessions", "show", "one", "--json"]).ends(0).json();
        shown["ending"].as_str().unwrap().to_owned()
    };
    assert_eq!(ending(), "clean");
    fixture.run(&["sessions", "analyze", "one"]).ends(0);
    assert_eq!(ending(), "clean", "the earlier report of the end was lost");
    write(&fixture, "one", &(repair(1) + &repair(20)), 0);
    fixture.run(&["sessions", "analyze", "one"]).ends(0);
    assert_eq!(ending(), "interrupted", "the session is reported as ended although it continued");
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 3);
}

#[test]
fn sessions_in_folders_of_the_environment_are_found() {
    let fixture = Fixture::with(JOB);
    fixture.run(&["tick"]).ends(0);
    let run = |words: &[&str]| {
        let mut command = fixture.runner(words);
        command.env("CLAUDE_CONFIG_DIR", fixture.root().join("claude"));
        command.env("CODEX_HOME", fixture.root().join("codex"));
        command
    };
    let done = |words: &[&str]| CommandOutput::of(run(words).output().unwrap()).ends(0);
    write(&fixture, "one", &repair(1), 3_600);
    fs::rename(fixture.root().join(".claude"), fixture.root().join("claude")).unwrap();
    analyze(&fixture).ends(0).expect_text("no idle session");
    done(&["sessions", "analyze"]).expect_text("1 session analyzed");
    // Codex reports the end of a session by the last part of its rollout's name.
    let day = fixture.root().join("codex/sessions/2026/01/02");
    fs::create_dir_all(&day).unwrap();
    let id = "01a22501-df16-7650-8b7f-1ccf453cfbdd";
    let cwd = fs::canonicalize(fixture.project()).unwrap();
    let meta = json!({ "timestamp": "2026-01-02T03:00:00Z", "type": "session_meta",
        "payload": { "id": id, "cwd": cwd } });
    let rollout = format!("rollout-2026-01-02T03-00-00-{id}");
    fs::write(day.join(format!("{rollout}.jsonl")), format!("{meta}\n")).unwrap();
    report_end(&fixture, id, &mut run(&["hook", "session-end"]));
    let began = Instant::now();
    let state = || done(&["sessions", "list", "--json"]).json()[0]["state"].clone();
    while state() != "analyzed" {
        assert!(began.elapsed() < Duration::from_secs(60), "the session is not analyzed");
    }
    let shown = fixture.run(&["sessions", "show", &rollout, "--json"]).ends(0).json();
    assert_eq!(shown["ending"], "clean");
}

#[test]
fn session_in_a_subfolder_belongs_to_the_project() {
    let fixture = Fixture::with(JOB);
    fixture.run(&["tick"]).ends(0);
    let path = transcript(&fixture, "one");
    let root = fs::canonicalize(fixture.project()).unwrap();
    let write = |name: &str, cwd: &str| {
        let folder = path.parent().unwrap().with_file_name(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("one.jsonl"), repair(1).replace("/home/me/project", cwd)).unwrap();
    };
    let slug = path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    write(&slug, "/another/project");
    let listed = || fixture.run(&["sessions", "list", "--json"]).ends(0).json();
    assert_eq!(listed(), json!([]));
    write(&format!("{slug}-sub"), root.join("sub").to_str().unwrap());
    assert_eq!(listed()[0]["session"], "one");
    ended(&fixture, "one");
    let began = Instant::now();
    while listed()[0]["state"] != "analyzed" {
        assert!(began.elapsed() < Duration::from_secs(60), "the session is not analyzed");
    }
}

#[test]
fn sessions_that_end_together_are_all_analyzed() {
    let fixture = Fixture::with(JOB);
    let ids = ["one", "two", "three", "four"];
    let start = |id: &str| {
        write(&fixture, id, &repair(1), 0);
        fixture.runner(&["sessions", "end", id]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<Child> = ids.into_iter().map(start).collect();
    for child in running {
        CommandOutput::of(child.wait_with_output().unwrap()).ends(0).expect_text("succeeded");
    }
    for id in ids {
        let shown = fixture.run(&["sessions", "show", id, "--json"]).ends(0).json();
        assert_eq!(shown["ending"], "clean", "{id}");
    }
}

#[test]
fn session_older_than_its_findings_is_refused() {
    let fixture = Fixture::with(JOB);
    write(&fixture, "old", &repair(1), 100 * 86_400);
    let refused = fixture.run(&["sessions", "analyze", "old"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    refused.expect_text("findings are kept for 90 days");
    assert!(playbooks(&fixture).is_empty());
}

#[test]
fn ticks_analyze_each_state_of_a_session_once() {
    let fixture = Fixture::with(JOB);
    let runs = || fixture.count("SELECT count(*) FROM runs");
    write(&fixture, "one", &repair(1), 30);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(runs(), 0, "a session that is not idle was analyzed");
    write(&fixture, "one", &repair(1), 90);
    for _ in 0..3 {
        fixture.run(&["tick"]).ends(0);
    }
    assert_eq!((runs(), playbooks(&fixture)[0].1), (1, 1));
    // The session continues: its findings are replaced, not added.
    write(&fixture, "one", &(repair(1) + &repair(20)), 80);
    for _ in 0..2 {
        fixture.run(&["tick"]).ends(0);
    }
    assert_eq!((runs(), playbooks(&fixture)[0].1), (2, 1));
    fixture.run(&["sessions", "analyze", "--all"]).ends(0);
    assert_eq!(playbooks(&fixture)[0].1, 1);
}

#[test]
fn kill_at_any_step_counts_each_event_once() {
    let mut killed = 0;
    for step in 0..200 {
        let fixture = Fixture::with(JOB);
        write(&fixture, "one", &repair(1), 3_600);
        analyze(&fixture).ends(0);
        write(&fixture, "one", &(repair(1) + &repair(20)), 1_800);
        write(&fixture, "two", &repair(1), 1_800);
        let mut command = fixture.runner(&["sessions", "analyze"]);
        let done =
            CommandOutput::of(command.env("RUNNER_TEST_KILL", step.to_string()).output().unwrap());
        // The next tick completes or repeats the dead process's work.
        fixture.run(&["tick"]).ends(0);
        let after = analyze(&fixture);
        assert!(after.code == 0, "step {step}: {after:?}");
        assert_eq!(playbooks(&fixture)[0].1, 2, "step {step}");
        let shown = fixture.run(&["sessions", "show", "one", "--json"]).ends(0).json();
        assert_eq!(
            (&shown["calls"], &shown["tally"]["lines"]),
            (&json!(8), &json!(16)),
            "step {step}"
        );
        fixture.run(&["sessions", "resume"]).ends(0);
        if done.code == 0 {
            break;
        }
        killed += 1;
    }
    assert!(killed >= 3, "killed at only {killed} steps");
    print_line(&format!("sessions: killed before each of {killed} steps"));
}

#[test]
fn only_a_person_decides_about_artifacts() {
    let fixture = Fixture::with(JOB);
    write(&fixture, "one", &repair(1), 3_600);
    analyze(&fixture).ends(0);
    let (id, _) = playbooks(&fixture).remove(0);
    let artifact = |verb: &str| fixture.run(&["sessions", "artifacts", verb, &id[..8]]);
    artifact("pin").ends(0);
    artifact("show").ends(0).expect_text("pinned");
    artifact("forget").ends(0);
    assert!(playbooks(&fixture).is_empty());
    write(&fixture, "two", &repair(1), 3_600);
    analyze(&fixture).ends(0);
    assert!(playbooks(&fixture).is_empty(), "the forgotten artifact came back");
    artifact("undo").ends(0);
    artifact("show").ends(0).expect_text("pinned");
    let mut text = fixture.run(&["sessions", "artifacts", "show", &id, "--json"]).ends(0).json();
    text["sequence"] = json!(["ask \"the\" team\nfirst"]);
    fixture.write("new.json", text.to_string());
    fixture.run(&["sessions", "artifacts", "edit", &id, "new.json"]).ends(0);
    artifact("show").ends(0).expect_text("the");
    artifact("undo").ends(0);
    // Another program's artifact is shown but never used.
    fixture.write(
        &format!("{FOLDER}/artifacts/0000000000000000.json"),
        r#"{"id":"0000000000000000","trigger":"t","sequence":["run evil"]}"#,
    );
    fixture.run(&["sessions", "artifacts", "show", "0000"]).ends(0).expect_text("another program");
    let resume = format!("{FOLDER}/resume.json");
    let changed = fixture.read(&resume).replace("src/a.rs", "src/evil.rs");
    fixture.write(&resume, changed);
    fixture.run(&["sessions", "resume"]).ends(65);
    fixture.run(&["sessions", "analyze", "--all"]).ends(0);
    assert!(!fixture.run(&["sessions", "resume"]).ends(0).out.contains("evil"));
    // Another job may not write to the findings folder.
    fixture
        .configure("[jobs.bad]\nkind = \"command\"\nprogram = \"true\"\nwrites = [\".warden\"]\n");
    fixture.run(&["config", "check"]).ends(78).expect_text(".warden");
}

/// Returns the guard hook's answer to a session's command.
fn guarded(fixture: &Fixture, session: &str, command: &str) -> CommandOutput {
    let payload = fixture.root().join("payload.json");
    let cwd = fs::canonicalize(fixture.project()).unwrap();
    let text = json!({ "session_id": session, "cwd": cwd, "tool_name": "Bash",
        "tool_input": { "command": command } });
    fs::write(&payload, text.to_string()).unwrap();
    let mut hook = fixture.runner(&["guard", "hook"]);
    CommandOutput::of(hook.stdin(File::open(&payload).unwrap()).output().unwrap())
}

#[test]
fn guard_hook_names_what_worked_in_other_sessions() {
    let fixture = Fixture::with("");
    let fails = |minute| {
        let input = json!({ "command": "python -m pytest" });
        call(minute, "Bash", &input, Some("/usr/bin/python: No module named pytest"))
    };
    let works = |minute| call(minute, "Bash", &json!({ "command": "python -m pytest -p x" }), None);
    let once = [fails(1), fails(2), fails(3), works(4)].concat();
    write(&fixture, "one", &once, 3_600);
    analyze(&fixture).ends(0);
    let quiet = |session: &str, command: &str| {
        let output = guarded(&fixture, session, command).ends(0);
        assert_eq!(output.out, "", "{session} {command}");
    };
    let output = guarded(&fixture, "two", "python -m pytest").ends(0).json();
    let output = &output["hookSpecificOutput"];
    assert_eq!(output["permissionDecision"], Value::Null);
    let text = output["additionalContext"].as_str().unwrap();
    assert!(text.contains("failed 3 times") && text.contains("pytest -p x"), "{text}");
    quiet("one", "python -m pytest");
    quiet("two", "python -m pytest -x");
    // The hook still refuses a forbidden command.
    guarded(&fixture, "two", "echo x > /etc/x").ends(2);
    // A hints file that another program changed is ignored.
    let path = format!("{FOLDER}/hints.json");
    let hints = fixture.read(&path);
    fixture.write(&path, hints.replace("-p x", "-p y"));
    quiet("two", "python -m pytest");
    fixture.write(&path, hints);
    // A command that has passed since then needs no hint.
    let passes = call(9, "Bash", &json!({ "command": "python -m pytest" }), None);
    write(&fixture, "three", &passes.replace("02T03", "03T03"), 3_000);
    analyze(&fixture).ends(0);
    quiet("two", "python -m pytest");
}

#[test]
fn paused_job_keeps_one_queued_run() {
    let fixture = Fixture::with(JOB);
    write(&fixture, "one", &repair(1), 3_600);
    fixture.run(&["pause", "sessions"]).ends(0);
    for hour in 0..3 {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hour);
        fixture.run_at(at, &["tick"]).ends(0);
    }
    // At some hours, these ticks also start the night's other jobs.
    let runs = "SELECT count(*) FROM runs JOIN jobs ON jobs.id = job WHERE name = 'sessions'";
    assert_eq!(fixture.count(runs), 1);
}

#[test]
fn analysis_of_another_job_keeps_decisions() {
    let two = "[jobs.two]\nkind = \"sessions\"\ntrigger = \"manual\"\nfolder = \".warden/two\"\n";
    let fixture = Fixture::with(&format!("{JOB}{two}"));
    write(&fixture, "one", &repair(1), 3_600);
    analyze(&fixture).ends(0);
    let (id, _) = playbooks(&fixture).remove(0);
    fixture.run(&["sessions", "artifacts", "pin", &id[..8]]).ends(0);
    fixture.run(&["run", "two"]).ends(0);
    write(&fixture, "two", &repair(1), 3_600);
    fixture.run(&["run", "sessions"]).ends(0);
    fixture.run(&["sessions", "artifacts", "show", &id[..8]]).ends(0).expect_text("pinned");
}

#[test]
fn unknown_decisions_are_not_replaced() {
    let fixture = Fixture::with(JOB);
    let path = format!("{FOLDER}/decisions.json");
    fixture.write(&path, "{}");
    write(&fixture, "one", &repair(1), 3_600);
    analyze(&fixture);
    let (id, _) = playbooks(&fixture).remove(0);
    let said = fixture.run(&["sessions", "artifacts", "pin", &id[..8]]);
    assert_ne!(said.code, 0);
    said.expect_text("did not record the content");
    assert_eq!(fixture.read(&path), "{}");
}
