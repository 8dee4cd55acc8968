//! Tests which content of the state file is preserved, and which content is refused.

use serde_json::Map;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn triaged(content: &[u8]) -> IdeaUpdate {
    let triaged = Triaged { hash: Digest::of(content), modified: at(5), merit: 0.5 };
    IdeaUpdate { at: at(10), shown: true, triaged: Some(triaged) }
}

#[test]
fn new_state_has_the_contract_format() {
    let state = DreamState::parse(b"").unwrap();
    let shown = IdeaUpdate { at: at(10), shown: true, triaged: None };
    let text =
        state.with(&BTreeMap::from([("ideas/b.md", shown), ("ideas/a.md", triaged(b"abc"))]));
    assert_eq!(
        text,
        "[\n  {\n    \"path\": \"ideas/a.md\",\n    \"hash\": \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\n    \
         \"last_modified\": \"1970-01-01T00:00:05Z\",\n    \"last_surfaced\": \"1970-01-01T00:00:10Z\",\n    \"merit\": 0.5,\n    \
         \"status\": \"active\",\n    \"first_seen\": \"1970-01-01T00:00:10Z\"\n  },\n  {\n    \"path\": \"ideas/b.md\",\n    \"hash\": \"\",\n    \
         \"last_modified\": \"1970-01-01T00:00:00Z\",\n    \"last_surfaced\": \"1970-01-01T00:00:10Z\",\n    \"merit\": 0.0,\n    \
         \"status\": \"active\",\n    \"first_seen\": \"1970-01-01T00:00:10Z\"\n  }\n]\n"
    );
    let again = DreamState::parse(text.as_bytes()).unwrap();
    assert_eq!(again.triaged("ideas/a.md", &mut 0), Some(Digest::of(b"abc")));
    assert_eq!(again.triaged("ideas/b.md", &mut 0), None);
    assert_eq!(again.surfaced("ideas/b.md"), Some(at(10)));
    assert_eq!(again.surfaced("ideas/c.md"), None);
    assert_eq!(again.with(&BTreeMap::new()), text);
    assert_eq!(DreamState::parse(b" [ ] ").unwrap().with(&BTreeMap::new()), "[]\n");
}

#[test]
fn mark_updates_status_and_keeps_other_fields() {
    let file = r#"[{"path":"a.md","hash":"x","n":1e999,"status":"active","history":[ {"at":1} ]},{"path":"b.md","history":"none"}]"#;
    let state = DreamState::parse(file.as_bytes()).unwrap();
    let mark = |hash: Option<&str>| Mark {
        status: "archived".into(),
        hash: hash.map(str::to_owned),
        happened: serde_json::json!({"at": 2}),
    };
    let marks =
        BTreeMap::from([("a.md", mark(None)), ("b.md", mark(Some("h"))), ("c.md", mark(None))]);
    let text = state.marked(&marks);
    assert!(text.contains("\"n\": 1e999"), "{text}");
    assert!(text.contains(r#""history": [ {"at":1},{"at":2}]"#), "{text}");
    let again = DreamState::parse(text.as_bytes()).unwrap();
    let archived = Some("archived".to_owned());
    for path in ["a.md", "b.md", "c.md"] {
        assert_eq!(again.standing(path).unwrap().status, archived, "{path}");
    }
    assert!(text.contains("\"hash\": \"x\""), "{text}");
    assert!(text.contains("\"history\": \"none\""), "a history that is not a list is kept: {text}");
    assert!(text.contains(r#""history": [{"at":2}]"#), "{text}");
    assert_eq!(again.standing("d.md"), None);
}

#[test]
fn foreign_entries_and_fields_are_preserved() {
    let other = r#"{"path":"z.md","hash":"x","last_surfaced":"2026-06-07T12:00:00.5-07:00","big":12345678901234567890123}"#;
    let own = r#"{ "path": "a.md", "status": "archived", "history": [{"proposal_id": "1"}], "merit": 0.9, "x": {"y": [1]} }"#;
    let file = format!("[{other},\n{own}]");
    let state = DreamState::parse(file.as_bytes()).unwrap();
    assert_eq!((state.len(), state.triaged("z.md", &mut 0)), (2, None));
    assert_eq!(state.surfaced("z.md").unwrap().to_string(), "2026-06-07T19:00:00.5Z");
    let text = state.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
    assert!(text.contains(other), "{text}");
    let values: Vec<Map<String, Value>> = serde_json::from_str(&text).unwrap();
    assert_eq!(values[1]["status"], "active", "an idea with a valid answer is active");
    assert_eq!(values[1]["history"][0]["proposal_id"], "1");
    assert_eq!(values[1]["x"]["y"][0], 1);
    assert_eq!(values[1]["merit"], 0.5);
    assert_eq!(values[1]["hash"], Digest::of(b"new").to_string());
    let shown = state
        .with(&BTreeMap::from([("a.md", IdeaUpdate { at: at(9), shown: true, triaged: None })]));
    let values: Vec<Map<String, Value>> = serde_json::from_str(&shown).unwrap();
    assert_eq!((&values[1]["merit"], &values[1]["status"]), (&0.9.into(), &"archived".into()));
}

#[test]
fn unknown_fields_are_preserved_byte_for_byte() {
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for value in [
        r#""\ud800""#,
        "1e999",
        "12345678901234567890123",
        "0.1000000000000000000000000000000000001",
        "-0.0",
        "1E+2",
        r#"{"a" : [1,  2],"a":3}"#,
        &nested,
    ] {
        let file = format!(r#"[{{"path": "a.md", "x": {value}, "p\u00e9": 1, "x": 2}}]"#);
        let state = DreamState::parse(file.as_bytes()).unwrap();
        let text = state.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
        let kept = format!("    \"x\": {value},\n    \"p\\u00e9\": 1,\n    \"x\": 2,\n");
        assert!(text.contains(&kept), "{text}");
        let again = DreamState::parse(text.as_bytes()).unwrap();
        assert_eq!(again.triaged("a.md", &mut 0), Some(Digest::of(b"new")));
        let twice = again.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
        assert_eq!(twice, text, "a second update changes nothing");
    }
}

#[test]
fn unusable_entries_are_refused_on_read() {
    for entry in [
        r#"["a.md", "hash", "time"]"#,
        r#"{"path": "a.md", "\ud800": 1}"#,
        r#"{"path": "\ud800"}"#,
        r#"{"path": "a.md", "hash": 1e999}"#,
        r#"{"path": "a.md", "path": "b.md"}"#,
        r#"{"path": "a.md", "x": 01}"#,
        r#"{"path": "a.md", "x": "\q"}"#,
    ] {
        let why = DreamState::parse(format!("[{entry}]").as_bytes()).unwrap_err();
        assert!(why.to_string().contains("entry 0"), "{entry}: {why}");
    }
}

#[test]
fn invalid_state_error_names_the_position() {
    for (text, expected) in [
        ("{}", "not a JSON array"),
        ("# notes", "not a JSON array"),
        ("[1]", "entry 0"),
        ("[{\"path\": \"a\"}, {\"hash\": \"x\"}]", "entry 1"),
        ("[{\"path\": \"a\"}", "no comma or end"),
        ("[{\"path\": \"a\"},", "ends before entry 1"),
        ("[] trailing", "text after the array"),
        ("[{\"path\": \"a\"} {\"path\": \"b\"}]", "no comma"),
    ] {
        let why = DreamState::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
    assert!(DreamState::parse(b"\xff").is_err());
}

#[test]
fn absence_from_a_pass_dates_an_idea() {
    let seen = |path: &str, first: i64, last: i64| {
        let (first, last) = (at(first), at(last));
        format!(r#"{{"path":"{path}","hash":"","first_seen":"{first}","last_surfaced":"{last}"}}"#)
    };
    let text = format!("[{},{}]", seen("a.md", 10, 30), seen("b.md", 20, 20));
    let state = DreamState::parse(text.as_bytes()).unwrap();
    let passes = state.passes();
    assert_eq!(passes, [at(10), at(20), at(30)]);
    assert_eq!(state.absent_at("a.md", &passes), None, "no earlier pass is known");
    assert_eq!(state.absent_at("b.md", &passes), Some(at(10)));
    assert_eq!(state.absent_at("new.md", &passes), Some(at(30)));
    assert!(state.knows("a.md") && !state.knows("new.md"));
}
