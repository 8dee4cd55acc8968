//! Tests the doctor's findings about the memory's hooks, and the errors of an import.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture};

/// Returns the doctor's findings about the memory.
fn findings(fixture: &Fixture) -> Vec<String> {
    let found = fixture.run(&["doctor", "--json"]).json();
    let all = found["findings"].as_array().unwrap().iter();
    let about = |it: &&Value| {
        let place = it["where"].as_str().unwrap();
        place.contains(".claude") || place.contains(".codex") || place.contains(".ctx")
    };
    all.filter(about).map(|it| it["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn install_refuses_relative_host_folders() {
    let fixture = Fixture::new();
    for variable in ["CLAUDE_CONFIG_DIR", "CODEX_HOME"] {
        let mut command = fixture.runner(&["memory", "install", "--apply"]);
        let refused = CommandOutput::of(command.env(variable, "own").output().unwrap()).ends(78);
        let what = format!("{variable} must be an absolute path, but is own");
        assert!(refused.err.contains(&what), "{}", refused.err);
        assert!(refused.err.contains(&format!("fix: export {variable}=/")), "{}", refused.err);
        assert!(!fixture.root().join(".claude").exists());
    }
}

/// Writes a transcript that is newer than the settings.
fn transcript(fixture: &Fixture, below: &str, rows: &[Value]) -> PathBuf {
    let path = fixture.root().join(below);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(&path, text).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    path
}

/// Returns a row in which Claude Code records a hook's run.
fn row(kind: &str, event: &str, more: Value) -> Value {
    let mut row = json!({"type": kind, "hookEvent": event, "command": "/bin/runner hook stop"});
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "type": "attachment", "attachment": row })
}

#[test]
fn doctor_reports_hooks_that_do_not_work() {
    let fixture = Fixture::with("");
    fs::create_dir(fixture.root().join(".codex")).unwrap();
    assert_eq!(findings(&fixture), Vec::<String>::new());
    fixture.run(&["memory", "install", "--apply"]).ends(0);
    assert_eq!(findings(&fixture), Vec::<String>::new());
    let claude = ".claude/projects/p/s.jsonl";
    let said = json!({"type": "user", "message": {"content": "hello"}});
    // According to the transcripts, neither program runs the hooks.
    transcript(&fixture, claude, std::slice::from_ref(&said));
    let codex = ".codex/sessions/2026/11/23/rollout-x.jsonl";
    let rollout = transcript(&fixture, codex, std::slice::from_ref(&said));
    let found = findings(&fixture);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|it| it.contains("its hooks did not")), "{found:?}");
    assert!(found.iter().any(|it| it.contains("trust the hooks")), "{found:?}");
    fs::remove_file(rollout).unwrap();
    let block = format!("<!-- ctx: 1 node -->\n{}\n<!-- ctx:end -->", "note ".repeat(9));
    let text =
        |text: &str| row("hook_additional_context", "SessionStart", json!({"content": [text]}));
    for (rows, expected) in [
        (vec![row("hook_success", "Stop", json!({"durationMs": 12}))], None),
        (vec![text(&block)], None),
        (vec![row("hook_success", "Stop", json!({"durationMs": 1900}))], Some("took 1900 ms")),
        (
            vec![row("hook_cancelled", "Stop", json!({"timedOut": true, "timeoutMs": 10_000}))],
            Some("ended the Stop hook of the last session after 10000 ms"),
        ),
        (
            vec![row("hook_non_blocking_error", "Stop", json!({"stderr": "no such file"}))],
            Some("the Stop hook of the last session failed: no such file"),
        ),
        (
            vec![text(&format!("<persisted-output>\nToo large.\n{}", &block[..40]))],
            Some("truncated the notes that a hook injected at SessionStart"),
        ),
    ] {
        transcript(&fixture, claude, &rows);
        let found = findings(&fixture);
        match expected {
            None => assert_eq!(found, Vec::<String>::new(), "{rows:?}"),
            Some(expected) => {
                assert!(found.len() == 1 && found[0].contains(expected), "{found:?} {rows:?}");
            }
        }
    }
    // A session in the store proves that its hooks work, even if the host does not record them.
    transcript(&fixture, claude, &[said]);
    assert_eq!(findings(&fixture).len(), 1);
    let payload = json!({"session_id": "s", "cwd": fixture.project(), "source": "startup"});
    fixture.write("payload.json", payload.to_string());
    let hook = fixture
        .runner(&["hook", "session-start"])
        .stdin(fs::File::open(fixture.path("payload.json")).unwrap())
        .status();
    assert!(hook.unwrap().success());
    assert_eq!(findings(&fixture), Vec::<String>::new());
    fs::remove_file(fixture.root().join(".ctx/store.db")).unwrap();
    let found = findings(&fixture);
    assert!(found.len() == 1 && found[0].contains("there is no memory store"), "{found:?}");
}

#[test]
fn failed_imports_name_the_reason() {
    let fixture = Fixture::with("");
    let said = fixture.run(&["memory", "import", "/nope.json"]).ends(65);
    assert!(said.err.contains("cannot read /nope.json: No such file"), "{}", said.err);
    assert!(said.err.contains("fix: name a file or folder that exists"), "{}", said.err);
    fixture.write("broken.json", "{\"nodes\": 7}");
    let said = fixture.run(&["memory", "import", "broken.json"]).ends(65);
    assert!(said.err.contains("broken.json is not an export: "), "{}", said.err);
    assert!(said.err.contains("fix: runner memory export"), "{}", said.err);
}
