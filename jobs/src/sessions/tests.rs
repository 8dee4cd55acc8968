//! Tests whole transcripts: all row formats, growing and hostile files, artifacts and packets.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::artifact::Content;
use super::fold::{Decisions, fold};
use super::record::Ending;
use super::*;

fn source(path: &Path) -> Source {
    let mut source = sources::source(path.to_owned()).unwrap();
    sources::find_agents(std::slice::from_mut(&mut source));
    source
}

fn read(text: impl AsRef<[u8]>) -> SessionRecord {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    fs::write(&path, text).unwrap();
    let record = analyze(&source(&path), &[], &BTreeMap::new(), &|| false).unwrap();
    assert!(record.tally.adds_up(), "{:?}", record.tally);
    record
}

/// Returns a Claude Code call with its outcome, as two lines.
fn claude(at: u64, tool: &str, input: serde_json::Value, failure: Option<&str>) -> String {
    let time = format!("2026-01-02T03:{:02}:{:02}Z", at / 60 % 60, at % 60);
    let call = json!({ "type": "assistant", "timestamp": time, "cwd": "/p", "gitBranch": "main",
        "message": { "content": [{ "type": "tool_use", "id": format!("c{at}"), "name": tool, "input": input }] } });
    let result = json!({ "type": "user", "timestamp": time, "message": { "content": [{ "type": "tool_result",
        "tool_use_id": format!("c{at}"), "is_error": failure.is_some(), "content": failure.unwrap_or("ok") }] } });
    format!("{call}\n{result}\n")
}

fn said(kind: &str, text: &str) -> String {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "type": kind, "timestamp": "2026-01-02T03:00:00Z", "cwd": "/p", "message": { "content": content } })
        .to_string()
        + "\n"
}

/// Returns a session in which a test fails, a file is changed, and the test passes.
fn repair(name: &str) -> String {
    [
        said("user", "Please make the test pass"),
        claude(1, "Bash", json!({ "command": "cargo test" }), Some("test a::b ... FAILED")),
        claude(2, "Read", json!({ "file_path": "/p/src/a.rs" }), None),
        claude(3, "Edit", json!({ "file_path": format!("/p/src/{name}.rs") }), None),
        claude(4, "Bash", json!({ "command": "cargo test" }), None),
        said("assistant", "The test passes."),
    ]
    .concat()
}

#[test]
fn sub_agent_files_are_part_of_the_session() {
    let inline = repair("a");
    let (before, rest) = inline.split_at(said("user", "Please make the test pass").len());
    let agent: String = (1..4)
        .map(|at| {
            claude(
                at,
                "Bash",
                json!({ "command": format!("cargo test {at}") }),
                (at == 2).then_some("error[E0308]: mismatched types"),
            )
        })
        .collect();
    let read = |place: &str, rows: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        fs::write(&path, &inline).unwrap();
        let agent = folder.path().join(place);
        fs::create_dir_all(agent.parent().unwrap()).unwrap();
        fs::write(agent, rows).unwrap();
        let record = analyze(&source(&path), &[], &BTreeMap::new(), &|| false).unwrap();
        assert!(record.tally.adds_up(), "{:?}", record.tally);
        record
    };
    let alone = self::read(&inline);
    let found = read("s/subagents/agent-1.jsonl", &(agent.clone() + "{\"torn"));
    assert_eq!(found.tally.lines, alone.tally.lines + 7);
    assert_eq!((found.calls, found.failed, found.tally.torn), (7, 2, 1));
    assert_eq!((found.turns, found.ending), (alone.turns, Ending::Clean));
    // The events are ordered by time, as if all rows were in one transcript.
    let mixed = format!("{before}{}", mix(rest, &agent));
    let mixed = self::read(&mixed);
    let kinds = |it: &SessionRecord| {
        it.findings.errors.iter().map(|it| it.signature.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&found), kinds(&mixed));
    assert_eq!(
        (found.findings.commands.len(), found.calls),
        (mixed.findings.commands.len(), mixed.calls)
    );
    // Early versions of Claude Code put a sub-agent's file next to the transcript. The file
    // contains the session's id.
    let named = |session: &str| {
        let row = json!({ "type": "user", "sessionId": session, "isSidechain": true, "timestamp": "2026-01-02T03:00:00Z" });
        format!("{row}\n{agent}")
    };
    assert_eq!(read("agent-1.jsonl", &named("s")).calls, 7);
    assert_eq!(read("agent-1.jsonl", &named("t")).calls, alone.calls);
    assert_eq!(read("agent-1.jsonl", "").calls, alone.calls);
}

/// Merges the rows of two transcripts by time.
fn mix(a: &str, b: &str) -> String {
    let mut rows: Vec<&str> = b.lines().chain(a.lines()).collect();
    let time = |row: &&str| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        row["timestamp"].as_str().unwrap().to_owned()
    };
    // The fixture's last answer has the timestamp of the session's start, so it would be sorted to
    // the front.
    let last = rows.pop().unwrap();
    rows.sort_by_key(time);
    rows.push(last);
    rows.join("\n") + "\n"
}

#[test]
fn rows_of_every_program_become_events() {
    let codex = [
        json!({ "timestamp": "2026-01-02T03:00:00Z", "type": "session_meta", "payload": { "cwd": "/p", "git": { "branch": "main" } } }),
        json!({ "timestamp": "2026-01-02T03:00:00Z", "type": "response_item", "payload": { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Please" }] } }),
        json!({ "timestamp": "2026-01-02T03:00:01Z", "type": "response_item", "payload": { "type": "function_call", "name": "shell", "call_id": "1", "arguments": "{\"command\":[\"bash\",\"-lc\",\"cargo test\"]}" } }),
        json!({ "timestamp": "2026-01-02T03:00:02Z", "type": "response_item", "payload": { "type": "function_call_output", "call_id": "1", "output": "{\"output\":\"test a::b ... FAILED\",\"metadata\":{\"exit_code\":101}}" } }),
        json!({ "timestamp": "2026-01-02T03:00:03Z", "type": "response_item", "payload": { "type": "custom_tool_call", "name": "apply_patch", "call_id": "2", "input": "*** Begin Patch\n*** Update File: /p/src/a.rs\n*** Add File: src/b.rs\n" } }),
        json!({ "timestamp": "2026-01-02T03:00:04Z", "type": "response_item", "payload": { "type": "custom_tool_call_output", "call_id": "2", "output": "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess" } }),
        json!({ "timestamp": "2026-01-02T03:00:05Z", "type": "event_msg", "payload": { "type": "token_count" } }),
    ];
    let steps = [
        json!({ "step": 1, "tool": "Bash", "args": { "cmd": "cargo test" }, "exit_code": 101, "error": "test a::b ... FAILED", "dur_ms": 1, "ts": "2026-01-02T03:00:01Z" }),
        json!({ "step": 2, "tool": "Edit", "args": { "path": "src/a.rs" }, "exit_code": 0, "dur_ms": 1, "ts": "2026-01-02T03:00:02Z" }),
    ];
    let plain = [
        json!({ "ts": "2026-01-02T03:00:00Z", "type": "prompt", "detail": "Please" }),
        json!({ "ts": "2026-01-02T03:00:01Z", "type": "error", "detail": { "command": "cargo test", "error": "test a::b ... FAILED" } }),
        json!({ "ts": "2026-01-02T03:00:02Z", "type": "edit", "detail": "src/a.rs" }),
    ];
    let lines =
        |rows: &[serde_json::Value]| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
    for (name, text, calls) in
        [("codex", lines(&codex), 3), ("steps", lines(&steps), 2), ("plain", lines(&plain), 2)]
    {
        let record = read(&text);
        assert_eq!(
            (record.calls, record.failed, record.tally.foreign),
            (calls, 1, 0),
            "{name}: {record:?}"
        );
        assert!(record.findings.errors[0].trigger.starts_with("error:cargo:"), "{name}");
        assert!(
            record.active_files.contains(&"src/a.rs".to_owned()),
            "{name}: {:?}",
            record.active_files
        );
    }
    assert_eq!(read(lines(&codex)).branch.as_deref(), Some("main"));
}

#[test]
fn hostile_lines_are_counted_and_change_nothing_else() {
    let quiet = read(repair("a"));
    let long = format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "y".repeat(9 << 20));
    let forged =
        "{\"type\":\"assistant\",\"timestamp\":\"x\",\"message\":{\"content\":{\"a\":[1]}}}\n";
    let other =
        "{\"payload\":7,\"type\":\"a-b\"}\n[1,2]\n\"text\"\n{\"ts\":5,\"type\":[],\"detail\":{}}\n";
    let mut text = repair("a").into_bytes();
    for line in [
        long.as_bytes(),
        b"\xff\xfe\x00 not text\n",
        forged.as_bytes(),
        other.as_bytes(),
        b"\n",
        b"{\"type\":\"us",
    ] {
        text.extend_from_slice(line);
    }
    let record = read(&text);
    let tally = &record.tally;
    assert_eq!((tally.too_long, tally.blank, tally.torn), (1, 1, 1), "{tally:?}");
    assert!(tally.bad >= 1 && tally.foreign >= 3, "{tally:?}");
    assert_eq!((record.calls, record.failed), (quiet.calls, quiet.failed));
    assert_eq!(record.findings.repairs, quiet.findings.repairs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_a_growing_transcript_gives_the_same_result(cuts in prop::collection::vec(0.0..1.0_f64, 1..4)) {
        let text = [repair("a"), repair("b").replace("\"c", "\"d"), said("user", "Go on")].concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut * text.len() as f64) as usize).collect();
        cuts.extend([text.len()]);
        cuts.sort_unstable();
        let mut known = Vec::new();
        let mut last = SessionRecord::default();
        for cut in cuts {
            fs::write(&path, &text.as_bytes()[..cut]).unwrap();
            last = analyze(&source(&path), &[], &BTreeMap::new(), &|| false).unwrap();
            known = fold(&[&last], &known, &Decisions::default()).artifacts;
        }
        let mut whole = read(&text);
        // Each analysis reads its own file.
        (whole.path, whole.modified) = (last.path.clone(), last.modified);
        prop_assert_eq!(&last, &whole);
        let fresh = fold(&[&whole], &[], &Decisions::default()).artifacts;
        let facts = |all: &[artifact::Artifact]| -> Vec<(String, u32, u32)> {
            all.iter().map(|it| (it.id.clone(), it.successes, it.failures)).collect()
        };
        for fact in facts(&fresh) {
            prop_assert!(facts(&known).contains(&fact), "{fact:?}");
        }
    }
}

fn named(id: &str, text: &str) -> SessionRecord {
    SessionRecord { session: id.to_owned(), ..read(text) }
}

#[test]
fn artifacts_grow_with_sessions_and_stay_within_limits() {
    let sessions: Vec<SessionRecord> =
        (0..3).map(|at| named(&format!("s{at}"), &repair("a"))).collect();
    let all: Vec<&SessionRecord> = sessions.iter().collect();
    let folded = fold(&all, &[], &Decisions::default());
    let playbook = folded.artifacts.iter().find_map(|it| match &it.content {
        Content::DreamPlaybook { sequence, confidence, source_sessions, .. } => {
            Some((sequence.len(), *confidence, *source_sessions))
        }
        _ => None,
    });
    assert_eq!(playbook, Some((3, 0.85, 3)));
    let again = fold(&all, &folded.artifacts, &Decisions::default());
    assert_eq!(again, folded, "the derivation is stable");

    let many: Vec<SessionRecord> = (0..90)
        .map(|at| {
            // Identical steps would be merged.
            let text = repair("a").replace("a::b", &format!("a::t{at}x"));
            named(&format!("m{at:02}"), &text.replace("/p/src/a.rs", &format!("/p/src/a{at}.rs")))
        })
        .collect();
    let all: Vec<&SessionRecord> = many.iter().collect();
    let folded = fold(&all, &[], &Decisions::default());
    let size: usize = folded.artifacts.iter().map(|it| fold::bytes(it).len()).sum();
    let playbooks =
        folded.artifacts.iter().filter(|it| it.content.kind() == "DreamPlaybook").count();
    assert!(
        folded.artifacts.len() <= fold::MOST && playbooks == fold::PER_TYPE && size <= fold::TOTAL
    );
    assert!(folded.evicted > 60);
    assert!(folded.artifacts.iter().all(|it| fold::bytes(it).len() <= fold::LARGEST));
}

#[test]
fn only_import_forms_of_one_subject_contradict() {
    let usual = "use std::fs;\n\nuse serde::A;\n\nuse crate::a;\n";
    let reverse = "use crate::a;\n\nuse serde::A;\n\nuse std::fs;\n";
    let write = |at: u64, content: &str| {
        let input = json!({ "file_path": format!("src/f{at}.rs"), "content": content });
        claude(at, "Write", input, None)
    };
    let folded = |content: &str, more: &[&SessionRecord]| {
        let session = named("a", &(0..5).map(|at| write(at, content)).collect::<String>());
        let all: Vec<&SessionRecord> = more.iter().copied().chain([&session]).collect();
        let artifacts = fold(&all, &[], &Decisions::default()).artifacts;
        let conflicts = artifacts.iter().filter(|it| !it.conflicts.is_empty()).count();
        let packet = resume::packet(&all, &artifacts, "p").unwrap();
        (packet.conventions.len(), conflicts)
    };
    assert_eq!(folded(usual, &[]), (3, 0));
    let other = named("b", &(0..5).map(|at| write(at, reverse)).collect::<String>());
    assert_eq!(folded(usual, &[&other]), (2, 2), "the orders contradict each other");
}

#[test]
fn rows_of_a_fork_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = BTreeMap::new();
    let mut analyzed = |id: &str, text: &str| {
        let path = folder.path().join(format!("{id}.jsonl"));
        fs::write(&path, text).unwrap();
        let record = analyze(&source(&path), &[], &known, &|| false).unwrap();
        known.insert(id.to_owned(), record.clone());
        let all: Vec<&SessionRecord> = known.values().collect();
        let artifacts = fold(&all, &[], &Decisions::default()).artifacts;
        let playbooks = artifacts.iter().filter(|it| it.content.kind() == "DreamPlaybook");
        (record, playbooks.map(|it| it.successes).sum::<u32>())
    };
    // Each row has an id, which a fork keeps or names as its origin.
    let rows = |text: &str, ids: &str, key: &str| -> String {
        let row = |(at, line): (usize, &str)| {
            let id = if key == "uuid" {
                json!(format!("{ids}{at}"))
            } else {
                json!({ "messageUuid": format!("{ids}{at}") })
            };
            format!("{{\"{key}\":{id},{}\n", &line[1..])
        };
        text.lines().enumerate().map(row).collect()
    };
    let (first, second) = (repair("a"), repair("b").replace("T03:", "T10:"));
    let (original, of_original) = analyzed("one", &rows(&first, "a", "uuid"));
    assert_eq!((original.shared_until, of_original), (Some(0), 1));
    let start = "{\"type\":\"queue-operation\",\"timestamp\":\"2026-01-02T09:00:00Z\"}\n";
    let fork = start.to_owned() + &rows(&first, "a", "uuid");
    let (whole, counted) = analyzed("two", &fork);
    assert_eq!((whole.calls, counted), (0, 1));
    assert_eq!(whole.active_files, original.active_files, "the packet has no context");
    let (grown, counted) = analyzed("two", &(fork.clone() + &rows(&second, "b", "uuid")));
    assert_eq!((grown.calls, counted), (original.calls, 2));
    // A fork of the fork, and the original again.
    let deep = rows(&first, "a", "forkedFrom") + &rows(&second, "b", "uuid");
    let (deep, counted) = analyzed("three", &deep);
    assert_eq!((deep.calls, counted), (0, 2));
    let (again, counted) = analyzed("one", &rows(&first, "a", "uuid"));
    assert_eq!((again.findings, counted), (original.findings, 2));
}

#[test]
fn artifact_without_contributions_is_removed() {
    let whole = named("a", &repair("a"));
    let known = fold(&[&whole], &[], &Decisions::default()).artifacts;
    assert!(!known.is_empty());
    // The session continued, and the error recurred.
    let mut longer = whole;
    longer.findings.repairs.clear();
    longer.findings.workflows.clear();
    longer.findings.conventions.clear();
    assert_eq!(fold(&[&longer], &known, &Decisions::default()).artifacts, []);
    let pinned = Decisions { pinned: [known[0].id.clone()].into(), ..Decisions::default() };
    assert_eq!(fold(&[&longer], &known, &pinned).artifacts.len(), 1);
}

#[test]
fn merged_playbooks_keep_their_parts() {
    let first = named("a", &repair("a"));
    let second = named("b", &repair("a").replace("test a::b ... FAILED", "error: linking failed"));
    let all = [&first, &second];
    let playbooks = |decisions: &Decisions, known: &[artifact::Artifact]| {
        let mut found = fold(&all, known, decisions).artifacts;
        found.retain(|it| it.content.kind() == "DreamPlaybook");
        found
    };
    let merged = playbooks(&Decisions::default(), &[]);
    assert_eq!((merged.len(), merged[0].merged.len(), merged[0].successes), (1, 1, 2));
    let part = &merged[0].merged[0];
    assert!(!part.evidence.is_empty() && part.successes == 1 && part.id != merged[0].id);
    for it in [&first, &second] {
        assert!(merged[0].is_playbook_for(&it.findings.errors[0].trigger));
    }
    assert_eq!(playbooks(&Decisions::default(), &merged), merged, "the derivation is stable");
    let split = Decisions { split: [merged[0].id.clone()].into(), ..Decisions::default() };
    let parts = playbooks(&split, &merged);
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|it| it.merged.is_empty() && it.successes == 1));
    assert_eq!(playbooks(&Decisions::default(), &parts), merged, "the split can be undone");
}

#[test]
fn decisions_persist_and_can_be_undone() {
    let session = named("s", &repair("a"));
    let mut folder = SessionFolder {
        artifacts: fold(&[&session], &[], &Decisions::default()).artifacts,
        ..SessionFolder::default()
    };
    let before = folder.artifacts.clone();
    let at = Timestamp::UNIX_EPOCH;
    let playbook = before.iter().find(|it| it.content.kind() == "DreamPlaybook").unwrap().clone();
    let id = playbook.id.as_str();
    let mut edited = serde_json::to_value(&playbook).unwrap();
    edited["sequence"] = json!(["ask the team"]);
    for (change, left) in [
        (format!("pin {id}"), before.len()),
        (format!("edit {} {edited}", &id[..6]), before.len()),
        (format!("forget {id}"), before.len() - 1),
    ] {
        decide::apply(&mut folder, &change, at).unwrap();
        folder.artifacts = fold(&[&session], &folder.artifacts, &folder.decisions).artifacts;
        assert_eq!(folder.artifacts.len(), left, "{change}");
    }
    assert!(decide::apply(&mut folder, &format!("pin {id}"), at).is_err(), "{id} is forgotten");
    decide::apply(&mut folder, &format!("undo {id}"), at).unwrap();
    folder.artifacts = fold(&[&session], &folder.artifacts, &folder.decisions).artifacts;
    let found = folder.artifacts.iter().find(|it| it.id == id).unwrap();
    assert!(found.edited && found.pinned && found.content.describe().contains("ask the team"));
    for _ in 0..2 {
        decide::apply(&mut folder, &format!("undo {id}"), at).unwrap();
    }
    assert!(decide::apply(&mut folder, &format!("undo {id}"), at).is_err());
    assert_eq!(fold(&[&session], &[], &folder.decisions).artifacts, before);
    assert!(decide::apply(&mut folder, &format!("edit {id} {{}}"), at).is_err());
    assert!(decide::apply(&mut folder, "burn everything", at).is_err());
}

/// Returns the folder of a session that repaired an error, and the id of its playbook.
fn repaired() -> (SessionFolder, String) {
    let session = named("s", &repair("a"));
    let artifacts = fold(&[&session], &[], &Decisions::default()).artifacts;
    let playbook = artifacts.iter().find(|it| it.content.kind() == "DreamPlaybook").unwrap();
    let id = playbook.id.clone();
    let records = [("s".to_owned(), session)].into();
    (SessionFolder { records, artifacts, ..SessionFolder::default() }, id)
}

/// Derives the artifacts as a run does, and returns the successes and failures of one of them.
fn counted(folder: &mut SessionFolder, id: &str, now: Timestamp) -> Option<(u32, u32)> {
    retired::remove_old(folder, now);
    folder.artifacts = fold(&folder.in_order(), &folder.artifacts, &folder.decisions).artifacts;
    let found = folder.artifacts.iter().find(|it| it.id == id);
    found.map(|it| (it.successes, it.failures))
}

#[test]
fn undo_restores_an_artifact_without_records() {
    let (mut folder, id) = repaired();
    let modified = folder.records["s"].modified.unwrap();
    let later = modified + KEPT + SignedDuration::from_hours(1);
    folder.records.insert(
        "t".to_owned(),
        SessionRecord {
            session: "t".to_owned(),
            modified: Some(later),
            ..folder.records["s"].clone()
        },
    );
    let mut change = |verb: &str, now: Timestamp| {
        decide::apply(&mut folder, &format!("{verb} {id}"), now).unwrap();
        counted(&mut folder, &id, now)
    };
    assert_eq!(change("pin", later), Some((2, 0)), "one session has no record");
    assert_eq!(change("forget", later), None);
    assert_eq!(change("undo", later), Some((2, 0)));
    assert_eq!(change("forget", later), None);
    // The findings of the other session are removed while the artifact is forgotten.
    let last = later + KEPT + SignedDuration::from_hours(1);
    assert_eq!(counted(&mut folder, &id, last), None);
    assert!(folder.records.is_empty());
    decide::apply(&mut folder, &format!("undo {id}"), last).unwrap();
    assert_eq!(counted(&mut folder, &id, last), Some((2, 0)));
    assert!(folder.artifacts.iter().find(|it| it.id == id).unwrap().pinned);
}

#[test]
fn edit_that_makes_an_artifact_too_large_is_refused() {
    let (mut folder, id) = repaired();
    let now = folder.records["s"].modified.unwrap();
    decide::apply(&mut folder, &format!("pin {id}"), now).unwrap();
    let playbook = folder.artifacts.iter().find(|it| it.id == id).unwrap();
    let mut text = serde_json::to_value(&playbook.content).unwrap();
    let mut accepted = 0;
    for length in (0..fold::LARGEST).step_by(32) {
        text["sequence"] = json!(["x ".repeat(length / 2)]);
        match decide::apply(&mut folder, &format!("edit {id} {text}"), now) {
            Ok(_) => accepted += 1,
            Err(error) => assert!(error.to_string().contains("too long"), "{error}"),
        }
        assert!(counted(&mut folder, &id, now).is_some(), "{length} bytes");
    }
    assert!((20..50).contains(&accepted), "{accepted}");
}

#[test]
fn removed_findings_are_counted_once() {
    let (mut folder, id) = repaired();
    let session = folder.records["s"].clone();
    let modified = session.modified.unwrap();
    let later = modified + KEPT + SignedDuration::from_hours(1);
    assert_eq!(counted(&mut folder, &id, modified), Some((1, 0)));
    // A session that received the playbook ended with the error.
    let row = json!({ "type": "attachment", "timestamp": "2026-01-02T02:00:00Z", "attachment": {
        "type": "hook_additional_context", "content": [format!("x [artifact {id}]")] } });
    let error = claude(1, "Bash", json!({ "command": "cargo test" }), Some("test a::b ... FAILED"));
    let failed = named("failed", &format!("{row}\n{error}"));
    folder.records.insert("failed".to_owned(), failed);
    assert_eq!(counted(&mut folder, &id, modified), Some((1, 1)));
    for _ in 0..3 {
        assert_eq!(counted(&mut folder, &id, later), Some((1, 1)));
        assert!(folder.records.is_empty() && folder.retired.len() == 2);
        // The session is analyzed again.
        folder.records.insert("s".to_owned(), session.clone());
    }
    // The session continues, so its findings are kept again.
    folder.records.get_mut("s").unwrap().modified = Some(later);
    assert_eq!(counted(&mut folder, &id, later), Some((1, 1)));
    assert_eq!((folder.records.len(), folder.retired.len()), (1, 1));
}

#[test]
fn packet_is_short_deterministic_and_about_the_last_session() {
    let first = named("first", &repair("a"));
    let open = [
        said("user", "Please"),
        claude(100, "Edit", json!({ "file_path": "/p/src/b.rs" }), None),
        claude(101, "Bash", json!({ "command": "cargo test" }), Some("test a::b ... FAILED")),
    ]
    .concat();
    let second = named("second", &open);
    let all = [&first, &second];
    let artifacts = fold(&all, &[], &Decisions::default()).artifacts;
    let packet = resume::packet(&all, &artifacts, "p").unwrap();
    assert_eq!((packet.session.as_str(), packet.summary.outcome), ("second", Ending::Interrupted));
    assert_eq!(packet.active_files, ["src/b.rs", "src/a.rs"]);
    assert_eq!(packet.unresolved.len(), 1);
    assert!(packet.playbooks.iter().any(|it| it.text.contains("edit src/a.rs")), "{packet:?}");
    let text = packet.render();
    assert!(text.starts_with("Background") && text.contains("nothing about it unasked"));
    assert_eq!(Some(&packet), resume::packet(&[&second, &first], &artifacts, "p").as_ref());
    // A session that received the playbook but did not resolve the error counts as a failure of the
    // playbook.
    let id = &packet.playbooks[0].id;
    let row = json!({ "type": "attachment", "timestamp": "2026-01-04T03:00:00Z",
        "attachment": { "type": "hook_additional_context", "content": [packet.render()] } });
    let warned = named("warned", &format!("{row}\n{open}"));
    let after = fold(&[&first, &warned], &artifacts, &Decisions::default()).artifacts;
    let after = after.iter().find(|it| it.id == *id).unwrap();
    assert_eq!((after.successes, after.failures, after.last_used), (1, 1, warned.ended_at));
    // A long session yields a packet within the limit.
    let files: String = (0..60)
        .map(|at| {
            claude(
                at,
                "Edit",
                json!({ "file_path": format!("/p/{}/f{at}.rs", "deep/".repeat(25)) }),
                None,
            )
        })
        .collect();
    let long = named("third", &files.replace("2026-01-02", "2026-01-03"));
    let packet = resume::packet(&[&first, &long], &artifacts, "p").unwrap();
    assert!(packet.render().len() <= resume::LONGEST && packet.active_files.len() > 4);
}

#[test]
fn effects_of_injected_context_are_measured() {
    let text = "Background ...\nLast session abc on branch main.\nFiles in work: src/a.rs, src/never.rs\nx [artifact 0123456789abcdef]\n";
    let row = json!({ "type": "attachment", "timestamp": "2026-01-02T03:00:00Z", "cwd": "/p",
        "attachment": { "type": "hook_additional_context", "content": [text] } });
    let record = read(format!("{row}\n{}", repair("a")));
    let [effect] = record.findings.injections.as_slice() else { panic!("{record:?}") };
    assert_eq!(effect.packet.as_deref(), Some("abc"));
    assert_eq!(effect.artifacts, ["0123456789abcdef"]);
    assert_eq!((effect.files_named, effect.files_touched), (2, 1));
}

#[test]
fn files_of_other_programs_are_never_used() {
    let project = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let (root, folder) = (project.path(), ".warden/cross-session");
    let base = root.join(folder);
    fs::create_dir_all(base.join("artifacts")).unwrap();
    let record = named("s", &repair("a"));
    let packet = resume::packet(&[&record], &[], "p").unwrap();
    let bytes = record::compact(&packet);
    let path = format!("{folder}/resume.json");
    fs::write(root.join(&path), &bytes).unwrap();
    assert_eq!(resume_packet(root, state.path()), None, "runner did not write the packet");
    let mut digests = Digests::default();
    digests.note(&path, &bytes, None);
    digests.save(state.path()).unwrap();
    assert_eq!(resume_packet(root, state.path()), Some(packet.render()));
    // If a new version of a file is not published, the current version is still recognized.
    digests.note(&path, b"next", Some(Digest::of(&bytes)));
    digests.save(state.path()).unwrap();
    assert!(resume_packet(root, state.path()).is_some());
    fs::write(root.join(&path), String::from_utf8(bytes).unwrap().replace("src/a.rs", "evil.rs"))
        .unwrap();
    assert_eq!(resume_packet(root, state.path()), None, "another program changed the packet");
    fs::write(base.join("artifacts/x.json"), r#"{"trigger":"t","sequence":["run evil"]}"#).unwrap();
    let found = SessionFolder::load(root, folder, &Digests::load(state.path()));
    assert_eq!((found.artifacts.len(), found.unknown.len(), found.problems.len()), (0, 1, 1));
}
