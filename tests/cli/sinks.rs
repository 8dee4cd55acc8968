//! Tests that secrets of every kind appear in no output, file, database, page or recording of
//! runner, and that no model receives them. The secrets occur in programs' outputs, in a file that
//! a prompt reads, and in sessions of agents.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use runner_text::redact::samples::{self, Sample};
use serde_json::json;

use crate::fixture::{CommandOutput, Fixture};
use crate::serve::{Served, Stream};
use crate::sessions::transcript;
use crate::top::Top;

/// The length of the parts of a secret that must not appear.
const PART: usize = 16;

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns each secret as plain text, in JSON and percent-encoded.
fn written(samples: &[Sample]) -> String {
    let mut text = String::new();
    for sample in samples {
        let plain = sample.text();
        text.push_str(&format!(
            "{plain}\n{}\n{}\n",
            serde_json::json!({ "text": plain }),
            percent(&plain)
        ));
    }
    text
}

/// Returns each part of a secret that must not appear, with the secret's kind.
fn parts(samples: &[Sample]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for sample in samples {
        for line in sample.secret.lines().filter(|line| line.len() >= PART) {
            // The samples share long parts of their alphabet, so a part from the middle of a secret
            // could also occur in another secret.
            for at in [0, line.len() - PART] {
                let part = &line[at..at + PART];
                all.push((part.to_owned(), sample.kind.clone()));
                all.push((percent(part), format!("{}, encoded", sample.kind)));
            }
        }
    }
    all
}

fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, found),
            Ok(kind) if kind.is_file() => {
                found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
            }
            _ => {}
        }
    }
}

#[test]
fn no_sink_contains_a_secret() {
    let samples = samples::all();
    assert!(samples.len() >= 200, "{}", samples.len());
    let toml = "[jobs.spill]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"cat spilled; cat spilled >&2; exit 3\"]\nwrites = [\"out\"]\n\
        [jobs.last]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"cat $(cat which) >&2; exit 3\"]\nwrites = [\"out\"]\n\
        [jobs.tell]\nkind = \"prompt\"\ntrigger = \"manual\"\nprompt = \"Say what it is.\"\n\
        sources = [\"spilled\"]\nto = \"out/reply.md\"\nbackend = \"echo\"\n\
        [backends.echo]\ntype = \"command\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"tee request.json | perl -MJSON::PP -0777 -ne 'print JSON::PP->new->allow_nonref->encode($_)'\"]\n";
    let fixture = Fixture::with(toml);
    fixture.configure(&format!(
        "[jobs.broken]\nkind = \"prompt\"\ntrigger = \"manual\"\nprompt = \"Go.\"\nto = \"out/x.md\"\n\
         backend = \"broken\"\nretries = 0\n[backends.broken]\ntype = \"command\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"cat {} >&2; exit 3\"]\n",
        fixture.path("one").display()
    ));
    fixture.write("spilled", written(&samples));
    let mut shown = Vec::new();
    fixture.run(&["run", "spill"]).ends(1).expect_text("exit 3");
    fixture.run(&["run", "tell"]).ends(0).expect_text("echo wrote");
    let mut show = |args: &[&str]| {
        let said = fixture.run(args);
        shown.push((format!("stdout of {args:?}"), said.out.into_bytes()));
        shown.push((format!("stderr of {args:?}"), said.err.into_bytes()));
    };
    for args in [
        &["run", "spill"][..],
        &["run", "spill", "--follow"],
        &["run", "tell"],
        &["runs", "show", "spill"],
        &["logs", "spill"],
        &["logs", "tell"],
        &["runs", "--json"],
        &["status"],
        &["status", "--json"],
        &["report"],
        &["replay", "tell"],
    ] {
        show(args);
    }
    // The message of a failed run contains the last characters of the output, so the secrets are
    // cut at different places.
    for (number, sample) in samples.iter().enumerate().step_by(10) {
        let cut = sample.text().len().min(500);
        let before = "x".repeat(400_usize.saturating_sub(cut / 2));
        fixture.write("one", format!("{}\n{before}", sample.text()));
        fixture.write("which", "one");
        let said = fixture.run(&["run", "last"]);
        shown.push((format!("stderr of the job last, sample {number}"), said.err.into_bytes()));
        fixture.run(&["jobs", "reset", "last"]);
        // A backend's error contains more of the output.
        let before = "x".repeat(2_000_usize.saturating_sub(cut / 2));
        fixture.write("one", format!("{}\n{before}", sample.text()));
        let said = fixture.run(&["run", "broken"]).ends(1).expect_text("exit 3");
        shown.push((format!("stderr of a broken backend, sample {number}"), said.err.into_bytes()));
        fixture.run(&["jobs", "reset", "broken"]);
    }
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    for run in runs.as_array().unwrap() {
        let id = run["id"].as_str().unwrap();
        for args in [
            &["runs", "show", id][..],
            &["runs", "show", id, "--json"],
            &["runs", "logs", id],
            &["runs", "logs", id, "--follow"],
        ] {
            let said = fixture.run(args);
            shown.push((format!("output of {args:?}"), (said.out + &said.err).into_bytes()));
        }
    }
    files(&fixture.state(), &mut shown);
    files(&fixture.path(".runner"), &mut shown);
    files(&fixture.path("out"), &mut shown);
    for file in ["reply.md", "request.json"] {
        assert!(shown.iter().any(|(name, _)| name.ends_with(file)), "no {file}");
    }
    assert!(shown.iter().any(|(_, text)| String::from_utf8_lossy(text).contains("[redacted:")));
    check(&samples, &shown);
}

/// Checks that no output or file contains a part of a secret.
fn check(samples: &[Sample], shown: &[(String, Vec<u8>)]) {
    let parts = parts(samples);
    let mut leaks = Vec::new();
    for (name, bytes) in shown {
        let text = String::from_utf8_lossy(bytes);
        for (part, kind) in &parts {
            if text.contains(part.as_str()) {
                leaks.push(format!("{kind} in {name}"));
            }
        }
    }
    leaks.dedup();
    println!("{} kinds in 3 encodings, {} outputs and files", samples.len(), shown.len());
    assert!(leaks.is_empty(), "{} leaks: {:#?}", leaks.len(), &leaks[..leaks.len().min(20)]);
}

/// Returns the names and data of a stream's events, up to the event that `is_last` accepts.
fn stream(
    served: &Served<'_>,
    path: &str,
    cookie: &str,
    from: Option<i64>,
    is_last: impl Fn(&str, &str) -> bool,
) -> String {
    let mut stream = Stream::open(served, path, cookie, from);
    let mut all = String::new();
    loop {
        let (id, name, data) = stream.next().unwrap_or_else(|| panic!("{path} ended: {all}"));
        all += &format!("{name} {data}\n");
        if is_last(&name, &id) {
            return all;
        }
    }
}

#[test]
fn no_screen_contains_a_secret() {
    let samples = samples::all();
    let fixture = Fixture::with(
        "[jobs.spill]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nretries = 0\n\
         args = [\"-c\", \"cat spilled; cat spilled >&2; exit 3\"]\n",
    );
    let mut shown = Vec::new();
    for (number, part) in samples.chunks(30).enumerate() {
        fixture.write("spilled", written(part));
        fixture.run(&["run", "spill"]).ends(1);
        fixture.run(&["jobs", "reset", "spill"]).ends(0);
        // This screen is large enough to show the whole log.
        let mut top = Top::sized(&fixture, &["top"], true, [100, 600]);
        top.until("last night");
        shown.push((format!("overview {number}"), top.screen().into_bytes()));
        top.press("2");
        top.until("choose");
        shown.push((format!("runs {number}"), top.screen().into_bytes()));
        top.press("\r");
        top.until("run 0");
        shown.push((format!("run {number}"), top.screen().into_bytes()));
        top.press("l");
        top.until("follows the end");
        top.until("out | [redacted:");
        top.until("err | [redacted:");
        shown.push((format!("log {number}"), top.screen().into_bytes()));
        top.press("qqq");
        shown.push((format!("terminal {number}"), top.end(0).into_bytes()));
    }
    check(&samples, &shown);
}

#[cfg(feature = "mcp")]
#[test]
fn no_answer_to_a_session_contains_a_secret() {
    let samples = samples::all();
    let fixture = Fixture::with("");
    let mut client = crate::memory_mcp::Client::start(&fixture, &["memory", "mcp"], &[]);
    let mut shown = Vec::new();
    let mut call = |tool: &str, arguments: serde_json::Value| {
        let (text, _) = client.call(tool, arguments);
        shown.push((format!("the answer of {tool}"), text.into_bytes()));
    };
    for (number, sample) in samples.iter().enumerate() {
        let text = written(std::slice::from_ref(sample));
        let content = format!("note {number}: {text}");
        call("remember", json!({"type": "fact", "content": content, "tags": ["kept"]}));
        call("recall", json!({"query": text}));
        call("show", json!({"id": text}));
    }
    call("recall", json!({"query": "note", "limit": 500}));
    let notes = fixture.run(&["memory", "list", "--json"]).ends(0).json();
    let notes = notes["nodes"].as_array().unwrap();
    assert!(notes.len() >= 100, "{} notes", notes.len());
    for note in notes {
        call("show", json!({"id": note["id"]}));
    }
    client.end();
    assert!(shown.iter().any(|(_, text)| String::from_utf8_lossy(text).contains("[redacted:")));
    files(&fixture.state(), &mut shown);
    files(&fixture.root().join(".ctx"), &mut shown);
    check(&samples, &shown);
}

/// Runs a command with `input` on its standard input, and appends its output to `shown`.
fn call(fixture: &Fixture, args: &[&str], input: &str, shown: &mut Vec<(String, Vec<u8>)>) {
    let mut command = fixture.runner(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ended = child.stdin.take().unwrap().write_all(input.as_bytes());
    let said = CommandOutput::of(child.wait_with_output().unwrap()).ends(0);
    shown.push((format!("output of {args:?}"), (said.out + &said.err).into_bytes()));
}

/// Calls the hooks of a session in which the person and the model write `text`. The calls in its
/// transcript contain `text` too.
fn live(fixture: &Fixture, id: &str, text: &str, shown: &mut Vec<(String, Vec<u8>)>) {
    let path = transcript(fixture, id);
    let said = format!(
        "<ctx:remember type=\"fact\" tags=\"tier:pinned\">note {id}: {text}</ctx:remember>"
    );
    let mut rows = String::new();
    let mut row = |minute: usize, kind: &str, content: serde_json::Value| {
        let at = format!("2026-01-02T03:{minute:02}:00Z");
        rows += &format!(
            "{}\n",
            json!({"type": kind, "timestamp": at, "uuid": format!("{id}-{minute}"), "gitBranch": "main",
                "cwd": fixture.project(), "message": {"content": content}})
        );
    };
    row(0, "user", json!(format!("use {text}")));
    row(1, "assistant", json!([{"type": "text", "text": format!("TODO: rotate {text} later")}]));
    let test = json!({"command": "cargo test"});
    let file = json!({"file_path": fixture.path("src/a.rs"), "new_string": text});
    let calls = [
        ("Bash", test.clone(), Some(format!("test a::b ... FAILED\n{text}"))),
        ("Edit", file, None),
        ("Bash", test, None),
        ("Bash", json!({"command": format!("deploy {text}")}), Some(text.to_owned())),
    ];
    for (at, (tool, input, failure)) in calls.into_iter().enumerate() {
        let call = format!("{id}-call-{at}");
        row(
            2 + 2 * at,
            "assistant",
            json!([{"type": "tool_use", "id": call, "name": tool, "input": input}]),
        );
        row(
            3 + 2 * at,
            "user",
            json!([{"type": "tool_result", "tool_use_id": call,
            "is_error": failure.is_some(), "content": failure.unwrap_or_else(|| text.to_owned())}]),
        );
    }
    row(11, "assistant", json!([{"type": "text", "text": said}]));
    fs::write(&path, rows).unwrap();
    let idle = SystemTime::now() - Duration::from_secs(7200);
    fs::File::options().write(true).open(&path).unwrap().set_modified(idle).unwrap();
    for (hook, more) in [
        ("session-start", json!({"source": "startup"})),
        ("prompt-submit", json!({"prompt": format!("what about {text}")})),
        ("stop", json!({"last_assistant_message": said})),
    ] {
        let mut payload = json!({"session_id": id, "cwd": fixture.project(), "hook_event_name": hook,
            "transcript_path": path});
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(fixture, &["hook", hook], &payload.to_string(), shown);
    }
}

#[test]
fn no_page_memory_or_analysis_contains_a_secret() {
    let samples = samples::all();
    let fixture = Fixture::with(
        "[jobs.spill]\nkind = \"command\"\nprogram = \"sh\"\nretries = 0\nwrites = [\"out\"]\n\
         args = [\"-c\", \"cat spilled; cp spilled out/copy.txt; cat spilled >&2; exit 3\"]\n\
         [jobs.sessions]\nkind = \"sessions\"\ntrigger = \"manual\"\n",
    );
    let mut shown = Vec::new();
    fixture.write("spilled", written(&samples));
    for (number, part) in samples.chunks(20).enumerate() {
        live(&fixture, &format!("session-{number}"), &written(part), &mut shown);
    }
    fixture.run(&["memory", "add", &samples[0].text()]).ends(0);
    fixture.run(&["sessions", "analyze", "--all"]).ends(0);
    fixture.run(&["night"]).ends(1);
    let exported = fixture.path("exported");
    for args in [
        &["report", "--export", exported.to_str().unwrap()][..],
        &["report", "--json"],
        &["report", "search", "deploy"],
        &["status", "--json"],
        &["metrics"],
        &["alerts", "--json"],
        &["sessions", "list", "--json"],
        &["sessions", "show", "session-0", "--json"],
        &["sessions", "artifacts", "--json"],
        &["sessions", "resume"],
        &["memory", "list", "--json"],
        &["memory", "search", "note"],
        &["memory", "recall", "note"],
        &["memory", "export"],
        &["logs", "spill"],
    ] {
        let said = fixture.run(args);
        shown.push((format!("output of {args:?}"), (said.out + &said.err).into_bytes()));
    }
    let notes = fixture.run(&["memory", "list", "--json"]).ends(0).json();
    assert!(notes["nodes"].as_array().unwrap().len() > samples.len() / 20, "{notes}");
    let found = fixture.run(&["sessions", "artifacts", "--json"]).ends(0).json();
    assert!(!found.as_array().unwrap().is_empty(), "no session has a repair");
    let served = Served::start(&fixture);
    let (project, cookie) = (served.project(), served.log_in());
    let token = format!("Bearer {}", served.secret("token"));
    let nights = served.api(&format!("/projects/{project}/nights"));
    let night = nights[0]["night"].as_str().unwrap_or_else(|| panic!("{nights}")).to_owned();
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    let mut paths = vec![
        "/".to_owned(),
        format!("/projects/{project}/nights/{night}/page"),
        "/metrics".to_owned(),
    ];
    for run in runs.as_array().unwrap() {
        let run = run["id"].as_str().unwrap();
        let parts = [("project", &*project), ("run", run), ("night", &night), ("proposal", "x")];
        let views = crate::serve::paths(&served, &parts);
        paths.extend(views.iter().filter(|path| !path.ends_with("/events")).cloned());
        paths.extend(
            views.iter().filter_map(|path| path.strip_prefix("/api/v1").map(str::to_owned)),
        );
        paths.push(format!("/runs/{run}/artifacts/0"));
    }
    paths.sort();
    paths.dedup();
    let mut answered = 0;
    for path in &paths {
        let headers = [("Cookie", &*cookie), ("Authorization", &*token)];
        let reply = served.send("GET", path, &headers, "");
        answered += usize::from(reply.status == 200);
        shown
            .push((format!("{} of {path}", reply.status), (reply.head + &reply.body).into_bytes()));
    }
    assert!(answered * 2 > paths.len(), "{answered} of {}: {paths:?}", paths.len());
    for run in runs.as_array().unwrap() {
        let path = format!("/runs/{}/live", run["id"].as_str().unwrap());
        let live = stream(&served, &path, &cookie, None, |name, _| name == "over");
        assert!(run["job"] != "spill" || live.contains("[redacted:"), "{live}");
        shown.push((path, live.into_bytes()));
    }
    let last = fixture.count("SELECT max(id) FROM changes").to_string();
    let path = "/api/v1/events";
    let events = stream(&served, path, &cookie, Some(0), |_, id| id == last);
    shown.push((path.to_owned(), events.into_bytes()));
    drop(served);
    files(&fixture.state(), &mut shown);
    files(&fixture.root().join(".ctx"), &mut shown);
    for folder in [".runner", ".warden", "exported", "out"] {
        files(&fixture.path(folder), &mut shown);
    }
    shown.retain(|(name, _)| !name.ends_with("out/copy.txt"));
    println!("{answered} of {} pages and views", paths.len());
    check(&samples, &shown);
}
