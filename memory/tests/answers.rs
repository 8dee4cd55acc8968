//! Calls the hooks with the answers of sessions. Checks which nodes a command can reach, and how
//! often it is executed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "a test program")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runner_memory::apply::{Actor, Summarize};
use runner_memory::hooks::{AnswerReport, AutoRecall, HookContext, HookEvent, Payload};
use runner_memory::node::NewNode;
use runner_memory::store::{Access, NodeEdit};
use runner_memory::{Memory, Node, NodeType, Scope};

/// A store with the transcript of one session.
struct World {
    folder: tempfile::TempDir,
    memory: Memory,
    now: Timestamp,
    limit: Duration,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let memory = Memory::open(&folder.path().join("s.db"), Access::Prompt, now).unwrap();
        Self { folder, memory, now, limit: Duration::from_secs(60) }
    }

    fn context(&self, project: &str) -> HookContext {
        HookContext {
            now: self.now,
            scope: Scope::Project(project.to_owned()),
            folder: format!("/{project}"),
            auto_recall: AutoRecall::Off,
            last_session: None,
            transcript_limit: self.limit,
        }
    }

    fn transcript(&self) -> PathBuf {
        self.folder.path().join("t.jsonl")
    }

    /// A payload without the ids of a prompt or a turn.
    fn payload(&self) -> Payload {
        Payload {
            session_id: Some("s".to_owned()),
            transcript_path: Some(self.transcript()),
            ..Payload::default()
        }
    }

    fn add(&mut self, content: &str, project: &str, tag: &str) -> String {
        let node = NewNode {
            kind: Some(NodeType::Fact),
            content: content.to_owned(),
            tags: vec![tag.to_owned()],
            project: Some(project.to_owned()),
            ..NewNode::default()
        };
        self.memory.change("add", self.now, |change| change.add(&node)).unwrap()
    }

    /// Calls a hook of project `p` with the last answer.
    fn call(&mut self, event: HookEvent, last: Option<&str>) -> AnswerReport {
        self.call_in("p", event, last)
    }

    fn call_in(&mut self, project: &str, event: HookEvent, last: Option<&str>) -> AnswerReport {
        let last = last.map(str::to_owned);
        let payload = Payload { last_assistant_message: last, ..self.payload() };
        self.memory.take_answers(event, &payload, &self.context(project), None).unwrap()
    }

    /// Returns the text that the next prompt of a project receives.
    fn prompt_in(&mut self, project: &str) -> String {
        let mut got = String::new();
        let context = self.context(project);
        let shown = |text: Option<&str>| {
            got = text.unwrap_or_default().to_owned();
            Ok(())
        };
        self.memory.prompt_submit(&self.payload(), &context, shown).unwrap();
        got
    }

    fn node(&self, id: &str) -> Node {
        self.memory.node(id).unwrap()
    }

    fn write(&self, rows: &[String]) {
        fs::write(self.transcript(), rows.concat()).unwrap();
    }

    /// Returns how many nodes have this content.
    fn count(&self, content: &str) -> usize {
        let all = self.memory.export().unwrap().nodes;
        all.iter().filter(|node| node.content == content).count()
    }
}

#[test]
fn commands_reach_only_their_project() {
    let mut world = World::new();
    let theirs = world.add("their secret plan", "q", "tier:pinned");
    let own = world.add("our plan", "p", "tier:pinned");
    let summary = format!("<ctx:summarize nodes=\"{theirs}\">their summary</ctx:summarize>");
    world.call_in("q", HookEvent::Stop, Some(&summary));
    let all = world.memory.export().unwrap().nodes;
    let summary = all.iter().find(|it| it.content == "their summary").unwrap().id.clone();
    for command in [
        format!("<ctx:expand node=\"{summary}\"/>"),
        format!("<ctx:summarize nodes=\"{theirs}\" archive=\"true\">stolen</ctx:summarize>"),
        format!("<ctx:supersede old=\"{theirs}\" new=\"{own}\"/>"),
        format!("<ctx:link from=\"{own}\" to=\"{theirs}\"/>"),
    ] {
        let report = world.call(HookEvent::Stop, Some(&command));
        assert_eq!(report.executed, 0, "{command}");
        assert!(report.warnings[0].contains("there is no node"), "{report:?}");
        assert_eq!(world.prompt_in("p"), "", "{command}");
    }
    let node = world.node(&theirs);
    assert_eq!((node.tags, node.superseded_by), (vec!["tier:pinned".to_owned()], None));
    assert_eq!(world.count("stolen"), 0);
    // A summary of the project may have been derived from nodes of another project.
    let scope = Scope::Project("p".to_owned());
    let actor = Actor { session: String::new(), source: None, scope };
    let content = "of both".to_owned();
    let summary = Summarize { nodes: vec![theirs, own], content, ..Summarize::default() };
    let both = world.memory.change("summarize", world.now, |it| it.summarize(&summary, &actor));
    let both = both.unwrap();
    world.call(HookEvent::Stop, Some(&format!("<ctx:expand node=\"{both}\"/>")));
    let got = world.prompt_in("p");
    assert!(got.contains("our plan") && !got.contains("their secret plan"), "{got}");
}

#[test]
fn given_response_is_a_separate_turn() {
    let mut world = World::new();
    let text = "<ctx:remember>said twice</ctx:remember>";
    assert_eq!(world.call(HookEvent::Stop, Some(text)).executed, 1);
    let (payload, context) = (world.payload(), world.context("p"));
    let event = HookEvent::PromptSubmit;
    let report = world.memory.take_answers(event, &payload, &context, Some(text)).unwrap();
    assert_eq!(report.executed, 1, "{report:?}");
}

/// A row that begins a turn.
fn prompt_row(uuid: &str) -> String {
    format!("{{\"type\":\"user\",\"uuid\":\"{uuid}\",\"message\":{{\"content\":\"go\"}}}}\n")
}

/// A row with an answer. `text` may contain JSON escape sequences.
fn answer_row(text: &str) -> String {
    format!("{{\"type\":\"assistant\",\"message\":{{\"content\":\"{text}\"}}}}\n")
}

#[test]
fn truncated_strings_lose_no_command() {
    let mut world = World::new();
    let fact = "bad \\ud83d here <ctx:remember>surrogate fact</ctx:remember>";
    let broken = "{\"type\":\"assistant\",\"message\":7}\n".to_owned();
    let rows = [prompt_row("u1"), answer_row(fact), broken];
    world.write(&rows);
    let report = world.call(HookEvent::SessionEnd, None);
    assert_eq!(world.count("surrogate fact"), 1);
    assert_eq!(report.skipped, [(rows[0].len() + rows[1].len()) as u64]);
    let payload = b"{\"session_id\": \"one\", \"prompt\": \"cut \\udc00\", \"cwd\": \"/\xff\"}";
    let payload = Payload::parse(payload);
    assert_eq!(payload.session_id.as_deref(), Some("one"));
    assert_eq!(payload.prompt.as_deref(), Some("cut \u{fffd}"));
}

/// A row in which the assistant uses a tool, and the row of its result.
fn tool_rows() -> String {
    let rows = [
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\"}]}}\n",
        "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\"}]}}\n",
    ];
    rows.concat()
}

fn remember(content: &str) -> String {
    format!("<ctx:remember>{content}</ctx:remember>")
}

#[test]
fn long_turns_are_read_in_parts() {
    let mut world = World::new();
    world.limit = Duration::ZERO;
    let mut rows = vec![prompt_row("u1")];
    for _ in 0..50 {
        rows.extend([answer_row(&remember("the same")), tool_rows(), tool_rows()]);
    }
    rows.push(answer_row(&remember("the last")));
    world.write(&rows);
    let mut cut = 0;
    while world.count("the last") == 0 {
        let report = world.call(HookEvent::SessionEnd, None);
        if world.count("the last") == 0 {
            assert!(
                report.warnings[0].contains("fix: export CTX_TRANSCRIPT_TIMEOUT"),
                "{report:?}"
            );
            cut += 1;
        }
        assert!(cut < 6, "the cursor does not move: {report:?}");
    }
    assert!(cut > 2, "{cut}");
    world.call(HookEvent::SessionEnd, None);
    world.limit = Duration::from_secs(60);
    world.call(HookEvent::SessionEnd, None);
    assert_eq!((world.count("the same"), world.count("the last")), (50, 1));
}

#[test]
fn time_limit_repeats_no_answer() {
    let mut world = World::new();
    let mut rows = vec![prompt_row("u1")];
    rows.extend((0..70).map(|_| tool_rows()));
    rows.extend([prompt_row("u2"), answer_row(&remember("a fact"))]);
    world.write(&rows);
    world.limit = Duration::ZERO;
    world.call(HookEvent::Stop, Some(&remember("a fact")));
    world.limit = Duration::from_secs(60);
    world.call(HookEvent::Stop, Some(&remember("a fact")));
    world.call(HookEvent::SessionEnd, None);
    assert_eq!(world.count("a fact"), 1);
}

#[test]
fn late_prompts_repeat_no_answer() {
    let mut world = World::new();
    let fact = remember("a fact");
    world.call(HookEvent::Stop, Some(&fact));
    world.call(HookEvent::Stop, Some(&fact));
    let rows = ["{\"type\":\"summary\"}\n".to_owned(), prompt_row("u1"), answer_row(&fact)];
    world.write(&rows[..2]);
    world.call(HookEvent::Stop, Some(&fact));
    world.write(&rows);
    world.call(HookEvent::SessionEnd, None);
    world.call(HookEvent::SessionEnd, None);
    assert_eq!(world.count("a fact"), 1);
    // The same answer to the next prompt is another command.
    world.write(&[rows.concat(), prompt_row("u2"), answer_row(&fact)]);
    world.call(HookEvent::Stop, Some(&fact));
    world.call(HookEvent::SessionEnd, None);
    assert_eq!(world.count("a fact"), 2);
}

#[test]
fn late_second_prompts_repeat_no_answer() {
    let mut world = World::new();
    let (first, second) = (remember("the first"), remember("the second"));
    let both = format!("{second}{first}");
    let rows = [prompt_row("u1"), answer_row(&first), prompt_row("u2"), answer_row(&both)];
    world.write(&rows[..2]);
    world.call(HookEvent::Stop, Some(&first));
    // The transcript ends before the second prompt.
    world.call(HookEvent::Stop, Some(&both));
    world.call(HookEvent::Stop, Some(&both));
    world.write(&rows[..3]);
    world.call(HookEvent::Stop, Some(&both));
    world.write(&rows);
    world.call(HookEvent::SessionEnd, None);
    world.call(HookEvent::SessionEnd, None);
    assert_eq!((world.count("the first"), world.count("the second")), (2, 1));
    // The same answer to the next prompt is another command.
    world.write(&[rows.concat(), prompt_row("u3"), answer_row(&both)]);
    world.call(HookEvent::SessionEnd, None);
    assert_eq!((world.count("the first"), world.count("the second")), (3, 2));
}

#[test]
fn unknown_sessions_inherit_nothing() {
    let mut world = World::new();
    world.add("a note", "p", "tier:pinned");
    let start = |world: &mut World, id: &str, source: &str, ago: Option<f64>| {
        let payload = Payload {
            session_id: Some(id.to_owned()),
            source: Some(source.to_owned()),
            seconds_since_last_response: ago,
            ..Payload::default()
        };
        let mut got = String::new();
        let context = world.context("p");
        let shown = |text: Option<&str>| {
            got = text.unwrap_or_default().to_owned();
            Ok(())
        };
        world.memory.session_start(&payload, &context, shown).unwrap();
        (got, world.memory.reader().pending(id, "current_task").unwrap())
    };
    start(&mut world, "s", "startup", None);
    world.call(HookEvent::Stop, Some("<ctx:task name=\"own\" action=\"start\"/>"));
    world.now += Duration::from_secs(100);
    // A session whose earlier hooks did not run gets everything, and no task.
    let (got, task) = start(&mut world, "unknown", "resume", Some(100.0));
    assert!(got.contains("a note") && task.is_none(), "{got} {task:?}");
    let (got, task) = start(&mut world, "fork of another", "fork", Some(50.0));
    assert!(got.contains("a note") && task.is_none(), "{got} {task:?}");
    let (got, task) = start(&mut world, "fork", "fork", Some(98.0));
    assert_eq!((got.as_str(), task.as_deref()), ("", Some("own")));
}

#[test]
fn secrets_are_never_stored() {
    let mut world = World::new();
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let id = world.add("to export", "p", "tier:pinned");
    let mut export = world.memory.export().unwrap();
    let node = &mut export.nodes[0];
    node.id = id.replacen("01", "02", 1);
    node.content = format!("the token is {secret}\u{1b}");
    node.summary = Some(secret.clone());
    node.metadata = format!("{{\"rationale\":\"{secret}\",\"password\":\"xK9-vQ2\\\"m7\"}}");
    export.tags[0].node_id.clone_from(&node.id);
    export.tags[0].tag.clone_from(&secret);
    export.views[0].query = format!("text:{secret}");
    world.memory.import(&export, world.now).unwrap();
    let imported = world.node(&export.nodes[0].id);
    assert_eq!(imported.token_estimate, (imported.content.len() / 4) as i64);
    assert!(imported.content.starts_with("the token is [redacted:"), "{imported:?}");
    assert!(!imported.content.contains('\u{1b}'), "{imported:?}");
    let metadata: serde_json::Value = serde_json::from_str(&imported.metadata).unwrap();
    assert!(metadata["rationale"].as_str().unwrap().contains("[redacted:"), "{metadata}");
    let commands = format!(
        "<ctx:recall query=\"{secret}\"/><ctx:task name=\"{secret}\" action=\"start\"/><ctx:status/>"
    );
    assert_eq!(world.call(HookEvent::Stop, Some(&commands)).executed, 3);
    let reader = world.memory.reader();
    for key in ["recall_results", "current_task", "status_output"] {
        let value = reader.pending("s", key).unwrap().unwrap();
        assert!(!value.contains(&secret), "{key}: {value}");
    }
    let end = format!("<ctx:task name=\"{secret}\" action=\"end\"/>");
    assert_eq!(world.call(HookEvent::Stop, Some(&end)).executed, 1);
    assert_eq!(world.memory.reader().pending("s", "current_task").unwrap(), None);
    let export = serde_json::to_string(&world.memory.export().unwrap()).unwrap();
    assert!(!export.contains(&secret), "{export}");
}

#[test]
fn pinned_nodes_are_complete_if_they_fit() {
    let mut world = World::new();
    let long = |name: &str| format!("{name} {} end of {name}", "word ".repeat(1_000));
    let first = world.add(&long("first"), "p", "tier:pinned");
    world.now += Duration::from_secs(1);
    world.add(&long("second"), "p", "tier:pinned");
    let block = world.memory.reader().block(&world.context("p").scope, None, &[]);
    let block = block.unwrap().unwrap();
    assert!(block.text.contains("end of first"), "{}", block.text);
    assert_eq!(block.delivered.len(), 2);
    // The second node does not fit.
    assert!(!block.text.contains("end of second"), "{}", block.text);
    let cut = format!("... ({} bytes: runner memory show ", long("second").len());
    assert!(block.text.contains(&cut), "{}", block.text);
    assert!(block.text.len() <= runner_memory::hooks::LONGEST);
    let summary = format!("<ctx:summarize nodes=\"{first}\">a summary</ctx:summarize>");
    world.call(HookEvent::Stop, Some(&summary));
    let all = world.memory.export().unwrap().nodes;
    let summary = all.iter().find(|it| it.content == "a summary").unwrap().id.clone();
    world.call(HookEvent::Stop, Some(&format!("<ctx:expand node=\"{summary}\"/>")));
    assert!(world.prompt_in("p").contains("end of first"));
}

#[test]
fn calls_without_a_session_share_their_folder() {
    let mut world = World::new();
    let answer = |world: &mut World, project: &str, text: &str| {
        let payload = Payload::default();
        let (event, context) = (HookEvent::Stop, world.context(project));
        world.memory.take_answers(event, &payload, &context, Some(text)).unwrap()
    };
    let prompt = |world: &mut World, project: &str| {
        let mut got = String::new();
        let context = HookContext { auto_recall: AutoRecall::On, ..world.context(project) };
        let prompt = Some("fact number seven about gateways".to_owned());
        let payload = Payload { session_id: Some(String::new()), prompt, ..Payload::default() };
        let shown = |text: Option<&str>| {
            got = text.unwrap_or_default().to_owned();
            Ok(())
        };
        world.memory.prompt_submit(&payload, &context, shown).unwrap();
        got
    };
    // The limit per session does not apply to them.
    for batch in 0..6 {
        let text: Vec<String> =
            (0..100).map(|at| remember(&format!("note {batch} {at}"))).collect();
        assert_eq!(answer(&mut world, "p", &text.concat()).executed, 100);
    }
    world.add("fact number seven about gateways", "p", "auth");
    assert!(prompt(&mut world, "p").contains("gateways"));
    assert_eq!(prompt(&mut world, "p"), "");
    let commands = "<ctx:recall query=\"gateways\"/><ctx:task name=\"own\" action=\"start\"/>";
    assert_eq!(answer(&mut world, "p", commands).executed, 2);
    answer(&mut world, "q", "<ctx:status/>");
    let got = prompt(&mut world, "q");
    assert!(!got.contains("gateways") && !got.contains("own"), "{got}");
    assert!(prompt(&mut world, "p").contains("## Recall Results"));
    // Calls that name the same transcript share the results, wherever they run.
    let named = Payload { transcript_path: Some(world.transcript()), ..Payload::default() };
    let context = world.context("p");
    let recall = Some("<ctx:recall query=\"gateways\"/>");
    world.memory.take_answers(HookEvent::Stop, &named, &context, recall).unwrap();
    assert_eq!(prompt(&mut world, "p"), "");
    let mut got = String::new();
    let shown = |text: Option<&str>| {
        got = text.unwrap_or_default().to_owned();
        Ok(())
    };
    let context = HookContext { folder: "/elsewhere".to_owned(), ..world.context("p") };
    world.memory.prompt_submit(&named, &context, shown).unwrap();
    assert!(got.contains("## Recall Results"), "{got}");
}

/// A store of schema version 1 has no trigger that forgets what a session received.
#[test]
fn stores_of_an_earlier_version_are_migrated() {
    let mut world = World::new();
    let id = world.add("before", "p", "auth");
    let path = world.folder.path().join("s.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    let earlier =
        "DROP TRIGGER nodes_content_updated; DELETE FROM schema_version WHERE version > 1";
    raw.execute_batch(earlier).unwrap();
    raw.execute("INSERT INTO delivered VALUES ('s', ?1)", [&id]).unwrap();
    let mut memory = Memory::open(&path, Access::Command, world.now).unwrap();
    assert_eq!(memory.node(&id).unwrap().content, "before");
    let edit = NodeEdit { content: Some("after".to_owned()), ..NodeEdit::default() };
    memory.change("update", world.now, |it| it.edit(&id, &edit)).unwrap();
    let received = "SELECT count(*) FROM delivered";
    assert_eq!(raw.query_row(received, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[test]
fn old_lists_are_pruned_without_repetition() {
    let mut world = World::new();
    let at = |days: i64| -> Timestamp {
        let start: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::from_hours(24 * days)
    };
    let prompt = |uuid: &str, day: i64| {
        let (row, at) = (prompt_row(uuid), at(day));
        row.replace("\"message\"", &format!("\"timestamp\":\"{at}\",\"message\""))
    };
    let mut rows = vec![prompt("u1", 0), answer_row(&remember("the first"))];
    rows.push(prompt("u2", 0));
    rows.push(answer_row(&format!("{}<ctx:recall query='x'/>", remember("the second"))));
    world.write(&rows);
    world.call(HookEvent::Stop, None);
    let raw = rusqlite::Connection::open(world.memory.path()).unwrap();
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        raw.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let counts = || ["sessions", "effects", "delivered", "pending"].map(count);
    assert_eq!(counts(), [1, 3, 2, 1]);
    let end = |world: &mut World, session: &str| {
        let payload = Payload { session_id: Some(session.to_owned()), ..Payload::default() };
        let context = world.context("p");
        world.memory.take_answers(HookEvent::SessionEnd, &payload, &context, None).unwrap();
    };
    world.now = at(90);
    end(&mut world, "other");
    assert_eq!(counts(), [2, 3, 2, 1]);
    // A session of which the store only knows what it received may be running.
    raw.execute("INSERT INTO delivered VALUES ('running', 'x')", []).unwrap();
    world.now = at(92);
    end(&mut world, "last");
    assert_eq!(counts(), [3, 3, 1, 1]);
    // The session is resumed.
    rows.extend([prompt("u3", 92), answer_row(&remember("the third"))]);
    world.write(&rows);
    let report = world.call(HookEvent::Stop, None);
    assert_eq!(report.executed, 1);
    for content in ["the first", "the second", "the third"] {
        assert_eq!(world.count(content), 1, "{content}");
    }
}

#[test]
fn summaries_keep_the_mark_of_their_sources() {
    let mut world = World::new();
    let ours = world.add("our note", "p", "tier:working");
    let answer = "<ctx:remember origin=\"Web page\" tags=\"tier:pinned\">obey</ctx:remember>";
    world.call(HookEvent::Stop, Some(answer));
    let id_of = |world: &World, content: &str| {
        let all = world.memory.export().unwrap().nodes;
        all.into_iter().find(|node| node.content == content).unwrap().id
    };
    let theirs = id_of(&world, "obey");
    for (nodes, content, marked) in
        [(format!("{ours},{theirs}"), "of both", true), (ours, "of ours", false)]
    {
        let answer = format!("<ctx:summarize nodes=\"{nodes}\">{content}</ctx:summarize>");
        assert_eq!(world.call(HookEvent::Stop, Some(&answer)).executed, 1);
        let summary = world.node(&id_of(&world, content));
        assert_eq!(summary.is_by_stranger(), marked, "{content}");
    }
}

#[test]
fn warnings_are_short() {
    let mut world = World::new();
    let long = "x".repeat(15_000);
    for answer in [
        format!("<ctx:recall query=\"{long} )\"/>"),
        format!("<ctx:recall query=\"{long}:a\"/>"),
        format!("<ctx:expand node=\"{long}\"/>"),
    ] {
        let report = world.call(HookEvent::Stop, Some(&answer));
        let [warning] = &report.warnings[..] else { panic!("{report:?}") };
        assert!(warning.starts_with("<ctx:") && warning.len() < 600, "{}", warning.len());
    }
}
