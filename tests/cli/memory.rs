//! Tests the memory through the built program: session hooks, commands, and installation.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture, Random, ended_within, print_line, scaled};

/// A Claude Code session as the hooks see it.
pub struct Session<'f> {
    fixture: &'f Fixture,
    id: String,
    turns: usize,
}

impl<'f> Session<'f> {
    pub fn new(fixture: &'f Fixture, id: &str) -> Self {
        Self { fixture, id: id.to_owned(), turns: 0 }
    }

    fn transcript(&self) -> PathBuf {
        self.fixture.root().join(format!("{}.jsonl", self.id))
    }

    fn payload(&self, event: &str, more: Value) -> Value {
        let mut payload = json!({
            "session_id": self.id, "cwd": self.fixture.project(), "hook_event_name": event,
            "transcript_path": self.transcript()
        });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    }

    /// Calls a hook and returns the injected text.
    fn hook(&self, name: &str, more: Value) -> String {
        let payload = self.payload(name, more).to_string();
        let output = call(self.fixture, &["hook", name], payload.as_bytes()).ends(0);
        let answer = output.json();
        answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default().to_owned()
    }

    pub fn start(&self, source: &str) -> String {
        self.hook("session-start", json!({ "source": source }))
    }

    fn row(&self, row: &Value) {
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(self.transcript()).unwrap();
        writeln!(file, "{row}").unwrap();
    }

    /// Sends a prompt and returns the text that the hook injected.
    pub fn prompt(&mut self, text: &str) -> String {
        self.turns += 1;
        self.row(&json!({"type": "user", "uuid": format!("{}-{}", self.id, self.turns),
            "message": {"content": text}}));
        self.hook("prompt-submit", json!({ "prompt": text }))
    }

    /// Answers the last prompt, and checks that the Stop hook injects nothing.
    fn answer(&self, text: &str) {
        self.row(
            &json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}),
        );
        let injected = self.hook("stop", json!({ "last_assistant_message": text }));
        assert_eq!(injected, "", "a Stop hook continued the conversation");
    }
}

/// Runs the program with `input` on its standard input.
fn call(fixture: &Fixture, args: &[&str], input: &[u8]) -> CommandOutput {
    let mut command = fixture.runner(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A hook may end before it has read all of its input.
    let _closed = stdin.write_all(input);
    drop(stdin);
    CommandOutput::of(child.wait_with_output().unwrap())
}

/// Returns the project's nodes.
/// Adds a node. Returns its id.
pub fn add(fixture: &Fixture, args: &[&str]) -> String {
    let added = fixture.run(&[&["memory", "add", "--json"], args].concat()).ends(0);
    added.json()["id"].as_str().unwrap().to_owned()
}

fn nodes(fixture: &Fixture) -> Vec<Value> {
    let output = fixture.run(&["memory", "list", "--json"]).ends(0);
    output.json()["nodes"].as_array().unwrap().clone()
}

fn id_of(fixture: &Fixture, content: &str) -> String {
    let all = nodes(fixture);
    let found = all.iter().find(|node| node["content"].as_str().unwrap().contains(content));
    found.unwrap_or_else(|| panic!("no node {content:?}"))["short_id"].as_str().unwrap().to_owned()
}

#[test]
fn memory_passes_its_checklist() {
    let fixture = Fixture::with("");
    // Steps 1 to 3: install the memory, which adds the hooks.
    let other = ["memory", "install", "--apply", "--db", "other.db"];
    fixture.run(&other).ends(2).expect_text("fix: set CTX_DB in the environment of the agent");
    assert!(!fixture.path("other.db").exists());
    let said = fixture.run(&["memory", "install", "--apply"]).ends(0);
    assert!(said.out.contains("installed successfully!"), "{}", said.out);
    let settings = fs::read_to_string(fixture.root().join(".claude/settings.json")).unwrap();
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let stop = &settings["hooks"]["Stop"][0]["hooks"][0];
    assert_eq!(stop["args"], json!(["hook", "stop"]));
    assert!(stop["command"].as_str().unwrap().starts_with('/'), "{stop}");
    assert!(fixture.root().join(".claude/skills/ctx/SKILL.md").is_file());
    // Steps 4 and 5: the first session has nothing in its context.
    let mut first = Session::new(&fixture, "first");
    assert_eq!(first.start("startup"), "");
    // Steps 6 to 8: the session stores two notes.
    assert_eq!(first.prompt("remember this"), "");
    first.answer(
        "Noted. <ctx:remember type=\"decision\" tags=\"tier:reference,auth\">The API uses PKCE.</ctx:remember>\
         <ctx:remember type=\"fact\" tags=\"tier:pinned\">Deploy on Fridays.\nNever on Mondays.</ctx:remember>",
    );
    assert_eq!(nodes(&fixture).len(), 2);
    // Steps 9 and 10: a new session has both notes in its context.
    let mut second = Session::new(&fixture, "second");
    let block = second.start("startup");
    assert!(block.starts_with("<!-- ctx: 2 nodes, "), "{block}");
    assert!(block.contains("Deploy on Fridays.\n  > Never on Mondays."), "{block}");
    assert!(block.contains("The API uses PKCE."), "{block}");
    assert!(block.ends_with("<!-- ctx:end -->"), "{block}");
    assert_eq!(second.start("startup"), block, "the block is not stable");
    // Steps 11 and 12: the session runs a query and receives the results once.
    second.prompt("what about auth");
    second.answer("<ctx:recall query=\"type:decision AND tag:auth\"/><ctx:status/>");
    let got = second.prompt("go on");
    assert!(got.contains("Query: `type:decision AND tag:auth`"), "{got}");
    assert!(got.contains("Found 1 node:") && got.contains("Tags: auth, tier:reference"), "{got}");
    assert!(got.contains("## Memory Status\n\nNodes: 2"), "{got}");
    assert_eq!(second.prompt("and more"), "");
    // Step 13: the session summarizes and expands nodes.
    let (pkce, deploy) = (id_of(&fixture, "PKCE"), id_of(&fixture, "Fridays"));
    second.answer(&format!(
        "<ctx:summarize nodes=\"{pkce},{deploy}\" archive=\"true\">All about releases.</ctx:summarize>"
    ));
    let summary = id_of(&fixture, "All about releases");
    let third = Session::new(&fixture, "third").start("startup");
    assert!(third.contains("All about releases") && !third.contains("PKCE"), "{third}");
    second.prompt("show me the parts");
    second.answer(&format!("<ctx:expand node=\"{summary}\"/>"));
    let got = second.prompt("go on");
    assert!(got.contains("Never on Mondays.") && got.contains("PKCE"), "{got}");
    assert_eq!(second.prompt("and more"), "");
    // Step 14: the session starts and ends a task.
    second.answer("<ctx:task name=\"login\" action=\"start\"/>");
    second.prompt("work");
    second.answer(
        "<ctx:remember type=\"observation\" tags=\"tier:working\">The form is slow.</ctx:remember>",
    );
    let task = fixture.run(&["memory", "task", "--json"]).ends(0).json();
    assert_eq!(task["task"], "login");
    let slow = fixture.run(&["memory", "query", "tag:task:login AND tag:working", "--json"]);
    assert_eq!(slow.json()["found"], 1);
    second.prompt("done");
    second.answer("<ctx:task name=\"login\" action=\"end\" summarize=\"true\"/>");
    let slow = fixture.run(&["memory", "query", "tag:needs:summary AND tag:off-context", "--json"]);
    assert_eq!(slow.json()["found"], 1);
    assert_eq!(fixture.run(&["memory", "task", "--json"]).json()["task"], Value::Null);
}

#[test]
fn sessions_get_only_their_own_results() {
    let fixture = Fixture::with("");
    let (mut one, mut two) = (Session::new(&fixture, "one"), Session::new(&fixture, "two"));
    one.start("startup");
    two.start("startup");
    one.prompt("a");
    two.prompt("b");
    one.answer("<ctx:recall query=\"tag:mine\"/><ctx:task name=\"alpha\" action=\"start\"/>");
    assert_eq!(two.prompt("c"), "");
    assert!(one.prompt("d").contains("tag:mine"));
    let task = |id: &str| fixture.run(&["memory", "task", "--session", id, "--json"]).json();
    assert_eq!(task("one")["task"], "alpha");
    assert_eq!(task("two")["task"], Value::Null);
}

#[test]
fn resume_and_fork_inject_only_changes() {
    let fixture = Fixture::with("");
    let add = |text: &str| fixture.run(&["memory", "add", "--tag", "tier:pinned", text]).ends(0);
    add("the first note");
    let session = Session::new(&fixture, "one");
    assert!(session.start("startup").contains("the first note"));
    assert_eq!(session.start("resume"), "");
    add("the second note");
    let first = id_of(&fixture, "the first note");
    let got = session.start("resume");
    assert!(got.contains("the second note") && !got.contains("the first note"), "{got}");
    let fork = Session::new(&fixture, "two");
    assert_eq!(fork.start("fork"), "");
    fixture.run(&["memory", "delete", &first]).ends(0);
    let got = fork.start("resume");
    assert!(got.contains("No longer valid") && got.contains(&first), "{got}");
    let got = fork.start("compact");
    assert!(got.contains("the second note"), "{got}");
}

#[test]
fn projects_see_only_their_own_nodes() {
    let fixture = Fixture::with("");
    fixture.run(&["memory", "add", "--tag", "tier:pinned", "ours"]).ends(0);
    fixture.run(&["memory", "add", "--global", "--tag", "tier:pinned", "everybody's"]).ends(0);
    let elsewhere = fixture.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let at = elsewhere.display().to_string();
    let there = fixture.run(&["-C", &at, "memory", "list", "--json"]).ends(0).json();
    assert_eq!(there["found"], 1);
    let all = fixture.run(&["-C", &at, "memory", "list", "--all-projects", "--json"]).json();
    assert_eq!(all["found"], 2);
    let payload = json!({"session_id": "x", "cwd": elsewhere, "source": "startup"}).to_string();
    let got = call(&fixture, &["hook", "session-start"], payload.as_bytes()).ends(0);
    assert!(got.out.contains("everybody's") && !got.out.contains("ours"), "{}", got.out);
}

#[test]
fn hooks_always_print_valid_json() {
    let fixture = Fixture::with("");
    let inputs: [&[u8]; 6] =
        [b"", b"{", b"[]", b"{\"session_id\": 7, \"cwd\": []}", b"\xff\0", b"null"];
    for name in ["session-start", "prompt-submit", "stop", "session-end", "pre-compact"] {
        for input in inputs {
            let output = call(&fixture, &["hook", name], input).ends(0);
            assert_eq!(output.json(), json!({}), "{name}");
        }
    }
    for args in [
        &["hook", "stop", "--bogus"][..],
        &["hook", "prompt-submit", "--response"],
        &["--config", "a=b", "hook", "session-start"],
    ] {
        let output = call(&fixture, args, b"{}").ends(0);
        assert_eq!(output.json(), json!({}), "{args:?}");
        assert!(!output.err.is_empty(), "{args:?}");
    }
    // Inside one of runner's own runs, nothing is injected and nothing is written.
    fixture.run(&["memory", "add", "--tag", "tier:pinned", "a note"]).ends(0);
    let before = fs::read(fixture.root().join(".ctx/store.db")).unwrap();
    let mut command = fixture.runner(&["hook", "session-start"]);
    let output = CommandOutput::of(command.env("RUNNER_RUN", "x").output().unwrap()).ends(0);
    assert_eq!(output.json(), json!({}));
    assert_eq!(fs::read(fixture.root().join(".ctx/store.db")).unwrap(), before);
    // A damaged store never blocks a prompt.
    fs::write(fixture.root().join(".ctx/store.db"), "no database ".repeat(1000)).unwrap();
    for name in ["session-start", "prompt-submit", "stop"] {
        let output = call(&fixture, &["hook", name], b"{}").ends(1);
        assert_eq!(output.json(), json!({}), "{name}");
        assert!(output.err.contains("is damaged"), "{}", output.err);
    }
    call(&fixture, &["--quiet", "hook", "stop"], b"{}").ends(1);
}

#[test]
fn every_change_can_be_undone() {
    let fixture = Fixture::with("");
    let export = || fixture.run(&["memory", "export"]).ends(0).out;
    let add = |text: &str| add(&fixture, &["--tag", "tier:working", text]);
    let (a, b) = (add("cheese"), add("two"));
    fixture.run(&["memory", "link", &a, &b]).ends(0);
    let changes: [&[&str]; 9] = [
        &["add", "three"],
        &["delete", &a],
        &[
            "update",
            &b,
            "--content",
            "new",
            "--summary",
            "s",
            "--metadata",
            "{\"rationale\":\"r\"}",
        ],
        &["tag", &a, "x", "y"],
        &["untag", &a, "tier:working"],
        &["unlink", &a, &b],
        &["supersede", &a, &b],
        &["summarize", &format!("{a},{b}"), "both", "--archive"],
        &["view", "update", "default", "--budget", "9"],
    ];
    let mut states = vec![export()];
    for change in changes {
        fixture.run(&[&["memory"], change].concat()).ends(0);
        states.push(export());
        // Undo each change. If the change can be repeated, make it again and undo it once more.
        fixture.run(&["memory", "undo"]).ends(0);
        assert_eq!(export(), states[states.len() - 2], "{change:?}");
        if change[0] != "add" && change[0] != "summarize" {
            fixture.run(&[&["memory"], change].concat()).ends(0);
            fixture.run(&["memory", "undo"]).ends(0);
        }
        assert_eq!(export(), states[states.len() - 2], "{change:?}");
        states.pop();
    }
    let found = fixture.run(&["memory", "search", "cheese", "--json"]).ends(0).json();
    assert_eq!(found["hits"][0]["content"], "cheese", "the undo did not restore the index");
}

#[test]
fn installation_is_removed_without_a_trace() {
    let fixture = Fixture::with("");
    let settings = fixture.root().join(".claude/settings.json");
    fs::create_dir(fixture.root().join(".claude")).unwrap();
    fs::create_dir(fixture.root().join(".codex")).unwrap();
    let text = "{\r\n\t\"model\" : \"x\", \"hooks\": {\"Stop\": [{\"hooks\": []}]}\n}";
    fs::write(&settings, text).unwrap();
    fixture.run(&["memory", "install", "--apply"]).ends(0);
    let with = fs::read_to_string(&settings).unwrap();
    assert_ne!(with, text);
    fixture.run(&["memory", "install", "--apply"]).ends(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), with, "the hooks were added twice");
    let codex = fs::read_to_string(fixture.root().join(".codex/hooks.json")).unwrap();
    assert!(codex.contains("hook session-start --host codex"), "{codex}");
    fixture.run(&["memory", "install", "--remove"]).ends(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), text);
    assert!(!fixture.root().join(".codex/hooks.json").exists());
    assert!(!fixture.root().join(".claude/skills/ctx").exists());
    fs::write(&settings, "not json").unwrap();
    fixture.run(&["memory", "install", "--apply"]).ends(65);
    assert_eq!(fs::read_to_string(&settings).unwrap(), "not json");
}

#[test]
fn hooks_are_never_installed_twice() {
    let fixture = Fixture::with("");
    let settings = fixture.root().join(".claude/settings.json");
    let record = fixture.root().join(".ctx/install.json");
    let apply = || fixture.run(&["memory", "install", "--apply"]);
    apply().ends(0);
    let with = fs::read_to_string(&settings).unwrap();
    // Changed entries are neither duplicated nor removed.
    let changed = with.replacen("\"timeout\": 10", "\"timeout\": 12", 1);
    fs::write(&settings, &changed).unwrap();
    for flag in ["--apply", "--remove"] {
        let said = fixture.run(&["memory", "install", flag]).ends(65);
        assert!(said.err.contains("hooks.Stop[0]"), "{}", said.err);
        assert!(said.err.contains("fix: remove these entries"), "{}", said.err);
        assert_eq!(fs::read_to_string(&settings).unwrap(), changed);
    }
    let plain = || fixture.run(&["memory", "install"]).ends(0);
    plain().expect_text("changed or added by someone else").expect_text("hooks.Stop[0]");
    // Without the record, complete entries are recognized.
    fs::write(&settings, &with).unwrap();
    let recorded = fs::read_to_string(&record).unwrap();
    fs::remove_file(&record).unwrap();
    apply().ends(0).expect_text("already in");
    assert_eq!(fs::read_to_string(&settings).unwrap(), with);
    fixture.run(&["memory", "install", "--remove"]).ends(65).expect_text("hooks.SessionStart[0]");
    // Entries that name the program's earlier path are replaced.
    let moved = |text: &str| text.replace(env!("CARGO_BIN_EXE_runner"), "/gone/runner");
    fs::write(&settings, moved(&with)).unwrap();
    fs::write(&record, moved(&recorded)).unwrap();
    plain().expect_text("are outdated");
    apply().ends(0).expect_text("were added");
    assert_eq!(fs::read_to_string(&settings).unwrap(), with);
    // Simulate a crash after the record was written, but before the settings were.
    fs::remove_file(&settings).unwrap();
    apply().ends(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), with);
    fixture.run(&["memory", "install", "--remove"]).ends(0);
    assert!(!settings.exists());
}

#[test]
fn relevant_nodes_are_injected_once() {
    let fixture = Fixture::with("");
    fixture
        .run(&["memory", "add", "Refresh tokens rotate on every login of the mobile client"])
        .ends(0);
    fixture.run(&["memory", "add", "The build uses two cores"]).ends(0);
    let mut session = Session::new(&fixture, "one");
    session.start("startup");
    let got = session.prompt("do refresh tokens rotate at login?");
    assert!(got.contains("## Related Notes") && got.contains("mobile client"), "{got}");
    assert!(!got.contains("two cores"), "{got}");
    assert_eq!(session.prompt("do refresh tokens rotate at login?"), "");
    assert_eq!(session.prompt("please continue with the next step"), "");
    fixture.configure("[memory]\nauto_recall = false\n");
    let mut session = Session::new(&fixture, "two");
    session.start("startup");
    assert_eq!(session.prompt("do refresh tokens rotate at login?"), "");
}

#[test]
fn shortened_nodes_are_injected_once() {
    let fixture = Fixture::with("");
    let add = |args: &[&str]| add(&fixture, args);
    let long = format!("Refresh tokens rotate on every login. {}", "And so on. ".repeat(300));
    let id = add(&[&long]);
    let body = "The reason is in the runbook of the platform team.";
    let reference = format!("Gateways reject unsigned payloads. {} {body}", "So. ".repeat(30));
    add(&["--tag", "tier:reference", &reference]);
    add(&["--tag", "tier:reference", "Deploys happen on Fridays only."]);
    let mut session = Session::new(&fixture, "one");
    let got = session.start("startup");
    assert!(got.contains("Gateways reject") && !got.contains(body), "{got}");
    // An incomplete preview does not count as received, but a complete one does.
    assert!(session.prompt("do gateways reject unsigned payloads?").contains(body));
    assert_eq!(session.prompt("do gateways reject unsigned payloads?"), "");
    assert_eq!(session.prompt("do deploys happen on fridays?"), "");
    let ask = "do refresh tokens rotate at login?";
    let got = session.prompt(ask);
    assert!(got.contains("bytes: runner memory show"), "{got}");
    assert_eq!(session.prompt(ask), "");
    // Changed tags do not repeat a node, but changed content does.
    fixture.run(&["memory", "tag", &id, "auth"]).ends(0);
    assert_eq!(session.prompt(ask), "");
    fixture.run(&["memory", "update", &id, "--content", &format!("New: {long}")]).ends(0);
    assert!(session.prompt(ask).contains("New: Refresh"));
    fixture.run(&["memory", "undo"]).ends(0);
    assert!(session.prompt(ask).contains("] Refresh"));
    // The results of a recall are not repeated in the same block.
    let mut session = Session::new(&fixture, "two");
    session.prompt("Hello.");
    session.answer("<ctx:recall query=\"refresh tokens\"/>");
    let got = session.prompt(ask);
    assert!(got.contains("## Recall Results") && !got.contains("## Related Notes"), "{got}");
    assert!(session.prompt(ask).contains("bytes: runner memory show"));
    assert_eq!(session.prompt(ask), "");
}

/// Returns the content and tags of each node, which do not depend on ids and times.
fn fingerprint(fixture: &Fixture) -> Vec<String> {
    let db = rusqlite::Connection::open(fixture.root().join(".ctx/store.db")).unwrap();
    let sql = "SELECT content || ' ' || coalesce((SELECT group_concat(tag) FROM (SELECT tag FROM tags \
        WHERE node_id = n.id ORDER BY tag)), '') FROM nodes n ORDER BY 1";
    let mut statement = db.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn killed_hooks_leave_the_same_store() {
    let mut random = Random::new("killed_hooks_leave_the_same_store");
    let script = |fixture: &Fixture, kill: &mut dyn FnMut() -> Option<u64>| {
        let mut session = Session::new(fixture, "one");
        for turn in 0..12 {
            let source = if turn == 0 { "startup" } else { "resume" };
            killable(&session, "session-start", json!({ "source": source }), kill());
            session.turns += 1;
            session.row(
                &json!({"type": "user", "uuid": format!("u{turn}"), "message": {"content": "x"}}),
            );
            killable(&session, "prompt-submit", json!({ "prompt": "go on" }), kill());
            let text = format!(
                "<ctx:remember type=\"fact\" tags=\"tier:working\">note {turn}</ctx:remember>\
                 <ctx:task name=\"t\" action=\"start\"/><ctx:recall query=\"note\"/>"
            );
            killable(&session, "stop", json!({ "last_assistant_message": text }), kill());
            session.row(&json!({"type": "assistant", "message": {"content": text}}));
        }
        session.hook("session-end", json!({}));
    };
    let whole = Fixture::with("");
    script(&whole, &mut || None);
    let expected = fingerprint(&whole);
    assert_eq!(expected.len(), 12);
    let mut calls = 0;
    for _ in 0..scaled(2) {
        let fixture = Fixture::with("");
        script(&fixture, &mut || {
            calls += 1;
            Some(random.roll(12_000))
        });
        assert_eq!(fingerprint(&fixture), expected);
    }
    let killed = KILLED.load(Ordering::Relaxed);
    print_line(&format!("hooks: {killed} of {calls} calls were killed while they ran"));
}

/// The number of hooks that were killed before they ended.
static KILLED: AtomicUsize = AtomicUsize::new(0);

/// Checks that, after a process was killed while it created the store, the next call creates the
/// store under its usual name.
#[test]
fn killed_creation_is_repeated() {
    let fixture = Fixture::with("");
    let store = fixture.root().join(".ctx/store.db");
    fixture.run(&["memory", "list"]).ends(0);
    let header = fs::read(&store).unwrap();
    let journal = store.with_extension("db-journal");
    // The journal's header states that the file had no pages, so SQLite empties the file again.
    let mut undo = vec![0; 512];
    undo[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    undo[20..24].copy_from_slice(&512_u32.to_be_bytes());
    undo[24..28].copy_from_slice(&4096_u32.to_be_bytes());
    for (left, undo) in [(&header[..0], None), (&header[..4096], Some(&undo))] {
        for end in ["", "-wal", "-shm", "-journal"] {
            let _absent = fs::remove_file(store.with_extension(format!("db{end}")));
        }
        let mut left = left.to_vec();
        if let Some(versions) = left.get_mut(18..20) {
            // Mark the database as not yet in WAL mode.
            versions.copy_from_slice(&[1, 1]);
        }
        fs::write(&store, left).unwrap();
        if let Some(undo) = undo {
            fs::write(&journal, undo).unwrap();
        }
        fixture.run(&["memory", "add", "one"]).ends(0);
        fixture.run(&["memory", "add", "two"]).ends(0);
        assert_eq!(fingerprint(&fixture).len(), 2);
        assert!(!store.with_file_name("runner.db").exists());
    }
}

/// Calls a hook and, if `after` is given, kills the hook after this many microseconds.
fn killable(session: &Session<'_>, name: &str, more: Value, after: Option<u64>) {
    let Some(after) = after else {
        session.hook(name, more);
        return;
    };
    let mut command = session.fixture.runner(&["hook", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _closed =
        child.stdin.take().unwrap().write_all(session.payload(name, more).to_string().as_bytes());
    // Wait until the time has passed or the hook has ended.
    let _ended = ended_within(child.id(), Duration::from_micros(after));
    let _ended = child.kill();
    KILLED.fetch_add(usize::from(!child.wait().unwrap().success()), Ordering::Relaxed);
}

#[test]
fn failed_model_commands_create_no_store() {
    let fixture = Fixture::with("");
    fixture.run(&["memory", "model", "show"]).ends(78).expect_text("runner memory model build");
    fixture.write("model/model.safetensors", "no model");
    fixture.write("model/tokenizer.json", "no tokenizer");
    let built = fixture.run(&["memory", "model", "build", "model"]);
    assert_ne!(built.code, 0, "{built:?}");
    let has_store = fixture.root().join(".ctx").exists();
    assert!(!has_store, "a model command created the store");
}

#[test]
fn web_notes_are_marked_as_untrusted() {
    let fixture = Fixture::with("");
    fixture
        .run(&["memory", "add", "--origin", "web", "--tag", "tier:pinned", "the port is 8080"])
        .ends(0);
    let text = Session::new(&fixture, "s").start("startup");
    assert!(text.contains("web (from an untrusted source)"), "{text}");
    fixture.run(&["memory", "compose"]).ends(0).expect_text("8080 (from an untrusted source)");
    // The mark does not depend on the case, and outlives a change of the metadata.
    let args = ["memory", "add", "--origin", "Web page", "--tag", "tier:pinned", "port 9090"];
    fixture.run(&args).ends(0);
    let id = id_of(&fixture, "9090");
    let edit = ["memory", "update", &id, "--metadata", "{\"rationale\":\"r\"}"];
    fixture.run(&edit).ends(0);
    fixture.run(&["memory", "compose"]).ends(0).expect_text("9090 (from an untrusted source)");
}
