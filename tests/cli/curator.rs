//! Tests the curator's endpoint checks, job files, events and setup.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use runner_engine::file_lock::{FileLock, LockMode};
use runner_engine::time::boot_time;
use rustix::net;
use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture};

const JOB: &str = "[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\n";

/// Starts a server that answers each request with `answer(path)`, or leaves the request unanswered
/// if that is `None`. Returns the server's port.
fn service(answer: impl Fn(&str) -> Option<String> + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut first = String::new();
            let _gone = reader.read_line(&mut first);
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            match answer(&path) {
                Some(text) => {
                    let _gone = reader.get_mut().write_all(text.as_bytes());
                }
                None => kept.push(reader),
            }
        }
    });
    port
}

/// Opens a port whose backlog is full, so further connections hang.
fn black_hole() -> (u16, Vec<TcpStream>, OwnedFd) {
    let any: SocketAddrV4 = "127.0.0.1:0".parse().unwrap();
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&socket, &any).unwrap();
    net::listen(&socket, 0).unwrap();
    let listener = TcpListener::from(socket.try_clone().unwrap());
    let address = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        taken.push(stream);
    }
    (address.port(), taken, socket)
}

fn ok(body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn ollama(models: &'static [&'static str]) -> u16 {
    service(move |path| {
        Some(match path {
            "/api/version" => ok(&json!({ "version": "0.12.3" })),
            "/api/tags" => {
                let models: Vec<Value> = models
                    .iter()
                    .map(|name| {
                        json!({
                            "name": name, "model": name, "modified_at": "2026-01-02T03:04:05Z",
                            "size": 1, "digest": "d", "details": {},
                        })
                    })
                    .collect();
                ok(&json!({ "models": models }))
            }
            _ => "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
        })
    })
}

#[test]
fn endpoint_states_are_reported_in_time() {
    let fixture = Fixture::with(JOB);
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let (hole, _taken, _listener) = black_hole();
    let cases: [(u16, &str, &str); 8] = [
        (dead, "dead", "why"),
        (hole, "silent", "why"),
        (service(|_| None), "silent", "why"),
        // The server sends one byte of the body and then closes the connection.
        (
            service(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_owned())),
            "stranger",
            "why",
        ),
        (service(|_| Some("SSH-2.0-OpenSSH_9.2\r\n".to_owned())), "stranger", "why"),
        (service(|_| Some(ok(&json!({ "hello": "world" })))), "stranger", "why"),
        (ollama(&["qwen3:8b"]), "model-missing", "models"),
        (ollama(&["gemma4:e4b"]), "ready", "version"),
    ];
    for (port, state, field) in cases {
        let endpoint = format!("http://127.0.0.1:{port}");
        fixture.run(&["config", "set", "curator.endpoint", &endpoint]).ends(0);
        let begun = boot_time();
        let reported = fixture.run(&["curator", "status", "--json"]).ends(0).json();
        let took = boot_time() - begun;
        assert_eq!(reported["health"]["state"], state, "{reported}");
        assert!(reported["health"].get(field).is_some(), "{reported}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        fixture.run(&["curator", "status"]).ends(0).expect_text(&endpoint);
    }
    let schema: Value =
        serde_json::from_str(&fixture.run(&["curator", "status", "--schema"]).ends(0).out).unwrap();
    let reported = fixture.run(&["curator", "status", "--json"]).json();
    for name in schema["required"].as_array().unwrap() {
        assert!(reported.get(name.as_str().unwrap()).is_some(), "no {name} in {reported}");
    }
}

#[test]
fn job_file_produces_findings_and_a_run() {
    let fixture = Fixture::with(JOB);
    fixture.write("docs/index.md", "# Index\n\n[a](a.md) [gone](gone.md)\n");
    fixture.write("docs/a.md", "# A\n");
    fixture
        .run(&["curator", "enqueue", "--kind", "rm-rf"])
        .ends(2)
        .expect_text("lint-wiki, dream-seed, ingest-claude-session");
    let job = fixture.run(&["curator", "enqueue", "--kind", "lint-wiki", "--json"]).ends(0).json();
    let id = job["id"].as_str().unwrap();
    fixture.write(".runner/curator/queue/bad.json", "[]");
    fixture.run(&["curator", "work"]).ends(0).expect_text("1 finding in 2 notes");
    let findings: Value =
        serde_json::from_str(&fixture.read(&format!(".runner/curator/findings/{id}.json")))
            .unwrap();
    assert_eq!(findings["findings"][0]["file"], "index.md");
    assert_eq!(findings["findings"][0]["line"], 3);
    assert_eq!(findings["findings"][0]["rule"], "broken-link");
    let done: Value =
        serde_json::from_str(&fixture.read(&format!(".runner/curator/done/{id}.json"))).unwrap();
    assert_eq!(done["result"]["artifacts"].as_array().unwrap().len(), 2);
    assert!(fixture.read(".runner/curator/failed/bad.reason.txt").contains("no kind"));
    assert!(fixture.read(".runner/curator/logs/audit.md").contains(id));
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!((&runs[0]["job"], &runs[0]["outcome"]), (&json!("curator"), &json!("degraded")));
    let reported = fixture.run(&["curator", "status", "--json"]).ends(0).json();
    assert_eq!(reported["queue"], json!({ "queue": 0, "processing": 0, "done": 1, "failed": 1 }));
    assert_eq!((&reported["left_this_hour"], &reported["alive"]), (&json!(19), &json!(false)));
    assert_eq!(reported["status"]["state"], "idle");
    fixture.run(&["curator", "work", "--once"]).ends(0).expect_text("the queue is empty");
}

#[test]
fn job_with_a_taken_path_fails_alone() {
    let fixture = Fixture::with(JOB);
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    let enqueue = || {
        let job = ["curator", "enqueue", "--kind", "lint-wiki", "--json"];
        fixture.run(&job).ends(0).json()["id"].as_str().unwrap().to_owned()
    };
    let (taken, free) = (enqueue(), enqueue());
    let path = |folder: &str, id: &str| format!(".runner/curator/{folder}/{id}.json");
    fixture.write(&path("findings", &taken), "{}");
    fixture.run(&["curator", "work"]).ends(0).expect_text("already exists");
    assert!(fixture.path(&path("failed", &taken)).exists());
    assert!(fixture.path(&path("done", &free)).exists());
    assert_eq!(fixture.read(&path("findings", &taken)), "{}");
    assert!(!fixture.path(&path("processing", &taken)).exists());
}

#[test]
fn sessions_are_chunked_and_ideas_seeded_once() {
    let fixture = Fixture::with(JOB);
    let mut lines = String::new();
    for at in 0..5_200 {
        let said = match at {
            7 => "Never push to the main branch without asking me first, because it deploys itself".to_owned(),
            5_100 => "From now on always run the linter before you say that it is done, because the build refuses warnings".to_owned(),
            at => format!("step {at}"),
        };
        lines.push_str(&format!(
            "{}\n",
            json!({ "type": "user", "timestamp": "2026-01-02T03:04:05Z", "message": { "content": said } })
        ));
    }
    lines.push_str("{\"type\":\"user\",\"torn");
    fixture.write("s.jsonl", &lines);
    fixture
        .run(&["curator", "enqueue", "--kind", "ingest-claude-session", "--source", "s.jsonl"])
        .ends(0);
    fixture.run(&["curator", "work"]).ends(0).expect_text("continues at line 5001");
    let learnings: Vec<String> = fixture
        .tree(".agents/learnings")
        .into_iter()
        .map(|(_, text)| String::from_utf8(text).unwrap())
        .collect();
    assert_eq!(learnings.len(), 2, "{learnings:?}");
    for (words, place) in
        [("Never push to the main", "lines: 8-8"), ("From now on", "lines: 5101-5101")]
    {
        assert!(
            learnings.iter().any(|text| text.contains(words) && text.contains(place)),
            "{learnings:?}"
        );
    }
    let done = fixture.tree(".runner/curator/done").len();
    assert_eq!(done, 2, "expected one finished job per chunk");

    fixture.write("docs/plan.md", "# Plan\n\n- [ ] Retry the upload after a connection reset\n");
    for _ in 0..2 {
        fixture.run(&["curator", "enqueue", "--kind", "dream-seed"]).ends(0);
        fixture.run(&["curator", "work"]).ends(0);
    }
    let ideas = fixture.tree("ideas");
    assert_eq!(ideas.len(), 1, "{ideas:?}");
    let text = String::from_utf8_lossy(&ideas[0].1).into_owned();
    assert!(text.contains("plan.md:3") && text.contains("status: draft"), "{text}");
    // A queued job fails if its source has been removed.
    fixture.write("t.jsonl", &lines);
    fixture
        .run(&["curator", "enqueue", "--kind", "ingest-claude-session", "--source", "t.jsonl"])
        .ends(0);
    std::fs::remove_file(fixture.path("t.jsonl")).unwrap();
    fixture.run(&["curator", "work"]).ends(0).expect_text("t.jsonl");
    assert_eq!(fixture.tree(".runner/curator/failed").len(), 2);
    // A dream pass makes a proposal for the draft.
    fixture.run(&["dream", "run"]).ends(0);
    let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let target = listed[0]["targets"][0].as_str().unwrap();
    assert!(target.starts_with("ideas/seed-retry-the-upload"), "{listed}");
}

#[test]
fn jobs_process_only_their_source() {
    let fixture = Fixture::with(JOB);
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md) [plan](plan.md)\n");
    let plan = "# Plan\n\n[x](x.md)\n[y](y.md)\n- [ ] Show the queue depth in the status line\n\
                - [ ] Retry the upload after a reset\n";
    fixture.write("docs/plan.md", plan);
    fixture.write("s.jsonl", "{}\n");
    let enqueue = |kind: &str, source: &[&str]| {
        let args = ["curator", "enqueue", "--kind", kind, "--source"];
        fixture.run(&[&args, source].concat()).ends(0);
    };
    let work = || fixture.run(&["curator", "work"]).ends(0);
    enqueue("lint-wiki", &["docs/plan.md"]);
    work().expect_text("2 findings in 1 note");
    enqueue("lint-wiki", &["docs/plan.md", "--chunk-start", "4", "--chunk-end", "4"]);
    work().expect_text("1 finding in 1 note");
    enqueue("dream-seed", &["docs/plan.md", "--chunk-start", "6"]);
    work().expect_text("1 draft of 1 open point in 1 note");
    for kind in ["lint-wiki", "dream-seed"] {
        enqueue(kind, &["s.jsonl"]);
        work().expect_text("is not a note");
    }
    fixture.write("docs/large.md", "x".repeat((1 << 20) + 1));
    fixture.write("docs/odd.md", b"\xff");
    for (path, why) in [("docs/large.md", "is longer than"), ("docs/odd.md", "is not UTF-8")] {
        for kind in ["lint-wiki", "dream-seed"] {
            enqueue(kind, &[path]);
            work().expect_text(why);
        }
    }
    fixture.write("docs/.gitignore", "plan.md\n");
    enqueue("lint-wiki", &["docs/plan.md"]);
    work().expect_text("ignored by git");
}

#[test]
fn learnings_wait_for_the_corpus_lock() {
    let fixture = Fixture::with(JOB);
    let said = "Never push to the main branch without asking me first, because it deploys itself";
    let line = json!({ "type": "user", "timestamp": "2026-01-02T03:04:05Z", "message": { "content": said } });
    fixture.write(".gitignore", ".agents/\nideas/*\n");
    fixture.write("s.jsonl", format!("{line}\n"));
    fixture.write("t.jsonl", format!("{line}\n"));
    fixture.write(".agents/overnight/run.lock", "");
    let path = fixture.path(".agents/overnight/run.lock");
    let night = FileLock::take(FileLock::open(&path).unwrap(), LockMode::Exclusive).unwrap();
    let enqueue = |source: &str| {
        let kind = ["curator", "enqueue", "--kind", "ingest-claude-session", "--source", source];
        fixture.run(&kind).ends(0);
    };
    enqueue("s.jsonl");
    fixture.run(&["curator", "work"]).expect_text("the corpus is locked by another process");
    assert!(
        !fixture.path(".agents/learnings").exists(),
        "learnings were written while the corpus was locked"
    );
    assert_eq!(fixture.tree(".runner/curator/queue").len(), 1);
    drop(night);
    fixture.run(&["curator", "work"]).ends(0);
    assert_eq!(fixture.tree(".agents/learnings").len(), 1);
    // A learning or an idea that git ignores is not written a second time.
    enqueue("t.jsonl");
    fixture.run(&["curator", "work"]).ends(0);
    assert_eq!(fixture.tree(".agents/learnings").len(), 1);
    fixture.write("ideas/upload.md", "# Retry the upload after a connection reset\n");
    fixture.write("docs/plan.md", "# Plan\n\n- [ ] Retry the upload after a connection reset\n");
    fixture.run(&["curator", "enqueue", "--kind", "dream-seed"]).ends(0);
    fixture.run(&["curator", "work"]).ends(0);
    assert_eq!(fixture.tree("ideas").len(), 1, "{:?}", fixture.tree("ideas"));
}

#[test]
fn killed_worker_loses_and_duplicates_nothing() {
    let fixture = Fixture::with("");
    // The script kills its run's process once. The claim's owner file names that process.
    let script = "cat > /dev/null; cd \"$0\"; if [ ! -e killed ]; then touch killed; \
                  kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' .runner/curator/processing/*.owner); fi; \
                  echo '{\"kept\":[{\"finding\":0,\"title\":\"Ask before a push\"}]}'";
    let root = fixture.project().display().to_string();
    fixture.configure(&format!(
        "{JOB}backend = \"model\"\nsandbox = \"off\"\n[backends.model]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}, {root:?}]\n"
    ));
    let line = json!({ "type": "user", "timestamp": "2026-01-02T03:04:05Z", "message": { "content": "Never push to main without asking me first, because it deploys itself" } });
    fixture.write("s.jsonl", format!("{line}\n"));
    fixture
        .run(&["curator", "enqueue", "--kind", "ingest-claude-session", "--source", "s.jsonl"])
        .ends(0);
    let killed = fixture.run(&["curator", "work", "--once"]);
    assert_ne!(killed.code, 0, "{killed:?}");
    assert!(fixture.path("killed").exists());
    let reported = fixture.run(&["curator", "status", "--json"]).ends(0).json();
    assert_eq!(reported["queue"], json!({ "queue": 0, "processing": 1, "done": 0, "failed": 0 }));
    assert_eq!(
        (&reported["alive"], &reported["status"]["state"]),
        (&json!(false), &json!("working"))
    );
    fixture.run(&["curator", "diagnose"]).ends(1).expect_text("runner curator work --once");
    fixture.run(&["curator", "work"]).ends(0).expect_text("the process that worked on it died");
    let done = fixture.tree(".runner/curator/done");
    let record: Value = serde_json::from_slice(&done[0].1).unwrap();
    assert_eq!((done.len(), &record["returned"]), (1, &json!(1)));
    let learnings = fixture.tree(".agents/learnings");
    assert_eq!(learnings.len(), 1, "{learnings:?}");
    assert!(learnings[0].0.contains("ask-before-a-push"), "{learnings:?}");
    // Only owner files may remain. The next claim of the job replaces its owner file.
    let left = fixture.tree(".runner/curator/processing");
    assert!(left.iter().all(|(name, _)| name.ends_with(".owner")), "{left:?}");
}

#[test]
fn event_budget_limits_nested_escalations() {
    let answer = "{\"note\":\"look at it\",\"raise\":[{\"severity\":\"high\",\"desired_action\":\"more\",\"budget\":1},{\"severity\":\"high\",\"desired_action\":\"and more\",\"budget\":1}]}";
    let fixture = Fixture::with(&format!(
        "{JOB}[backends.evil]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {:?}]\n",
        format!("cat > /dev/null; echo '{answer}'")
    ));
    let raise = [
        "curator",
        "event",
        "--source",
        "test",
        "--severity",
        "high",
        "--desired-action",
        "look",
        "--escalation-target",
        "evil",
        "--budget",
        "4",
        "--json",
    ];
    let event = fixture.run(&raise).ends(0).json();
    assert_eq!((&event["schema_version"], &event["status"]), (&json!(1), &json!("needs-review")));
    let mut calls = 0;
    for _ in 0..12 {
        let all = fixture.run(&["curator", "events", "--json"]).ends(0).json();
        let open = all.as_array().unwrap().iter().find(|it| it["left"] != 0).cloned();
        let Some(open) = open else { break };
        fixture
            .run(&["curator", "events", "escalate", open["id"].as_str().unwrap()])
            .ends(0)
            .expect_text("handled");
        calls += 1;
    }
    assert_eq!(calls, 4, "the number of calls differs from the first event's budget");
    let first = event["id"].as_str().unwrap();
    fixture
        .run(&["curator", "events", "escalate", first])
        .ends(1)
        .expect_text("too little budget left");
    let store = fixture.read(".runner/curator/events/ledger.jsonl");
    assert!(store.lines().last().unwrap().contains("refused"), "{store}");
    assert_eq!(store.matches("\"action\":\"ask\"").count(), 4);
    assert_eq!(fixture.count("SELECT count(*) FROM requests"), 4);
    fixture.run(&["curator", "events", "ack", first]).ends(0);
    fixture
        .run(&["curator", "events", "escalate", first])
        .ends(1)
        .expect_text("was already acknowledged");
    let human = [
        "curator",
        "event",
        "--source",
        "t",
        "--severity",
        "info",
        "--desired-action",
        "x",
        "--escalation-target",
        "ann",
        "--budget",
        "1",
        "--json",
    ];
    let event = fixture.run(&human).ends(0).json();
    fixture
        .run(&["curator", "events", "escalate", event["id"].as_str().unwrap()])
        .ends(65)
        .expect_text("waits for a person");
}

#[test]
fn unreachable_model_is_named_and_not_charged() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fixture = Fixture::with(&format!(
        "{JOB}backend = \"down\"\n[backends.down]\ntype = \"ollama\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:{port}\"\nfallback = [\"builtin\"]\n"
    ));
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    fixture.run(&["curator", "enqueue", "--kind", "lint-wiki"]).ends(0);
    let work = fixture.run(&["curator", "work"]).ends(0).expect_text("without suggestions: down: ");
    assert!(!work.err.contains("no model is configured"), "{work:?}");
    let words =
        "--source ci --severity high --desired-action x --escalation-target down --budget 2";
    let mut args = vec!["curator", "event", "--json"];
    args.extend(words.split(' '));
    let event = fixture.run(&args).ends(0).json();
    let id = event["id"].as_str().unwrap();
    let escalate = fixture.run(&["curator", "events", "escalate", id]);
    assert_ne!(escalate.code, 0, "{escalate:?}");
    escalate.expect_text("no model answered: down: ");
    let events = fixture.run(&["curator", "events", "--json"]).ends(0).json();
    assert_eq!((&events[0]["left"], &events[0]["last"][0]), (&json!(2), &json!("told")));
}

#[test]
fn critical_event_is_shown_until_acknowledged() {
    let fixture = Fixture::with(JOB);
    let words = "--source ci --severity critical --desired-action restore --escalation-target me --budget 2";
    let mut args = vec!["curator", "event"];
    args.extend(words.split(' '));
    fixture.run(&args).ends(0);
    fixture.run(&["night"]).ends(0);
    let events = fixture.run(&["curator", "events", "--json"]).ends(0).json();
    let id = events[0]["id"].as_str().unwrap();
    let report = |fixture: &Fixture| {
        fixture
            .tree(".runner/reports")
            .into_iter()
            .filter(|(path, _)| path.ends_with("report.md"))
            .map(|(_, text)| String::from_utf8_lossy(&text).into_owned())
            .collect::<String>()
    };
    assert!(report(&fixture).contains(id), "{}", report(&fixture));
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["critical_events"][0]["id"], id, "{status}");
    fixture.run(&["status"]).ends(0).expect_text(&format!("runner curator events show {id}"));
    for _ in 0..2 {
        fixture.run(&["tick"]).ends(0);
    }
    let alerts = fixture.run(&["alerts", "--json"]).ends(0).json();
    assert_eq!(alerts[0]["kind"], "critical-event", "{alerts}");
    assert_eq!((&alerts[0]["count"], &alerts[1]), (&json!(1), &Value::Null), "{alerts}");
    assert!(alerts[0]["why"].as_str().unwrap().contains(id), "{alerts}");
    // The alert remains open while the project's folder is missing.
    let away = fixture.root().join("away");
    fs::rename(fixture.root().join("project"), &away).unwrap();
    let elsewhere = |args: &[&str]| {
        let mut command = fixture.runner(args);
        CommandOutput::of(command.current_dir(fixture.root()).output().unwrap())
    };
    elsewhere(&["tick"]);
    fs::rename(&away, fixture.root().join("project")).unwrap();
    let alerts = fixture.run(&["alerts", "--json"]).ends(0).json();
    assert!(alerts.to_string().contains("critical-event"), "{alerts}");
    // It is not known whether the event is over while the project's state is missing.
    let aside = fixture.root().join("aside");
    fs::rename(fixture.path(".runner"), &aside).unwrap();
    fixture.run(&["tick"]);
    let _ = fs::remove_dir_all(fixture.path(".runner"));
    fs::rename(&aside, fixture.path(".runner")).unwrap();
    let open = "SELECT count(*) FROM alerts WHERE kind = 'critical-event' AND ended IS NULL";
    assert_eq!(fixture.count(open), 1);
    fixture.run(&["curator", "events", "ack", id]).ends(0);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(fixture.run(&["alerts", "--json"]).ends(0).json(), json!([]));
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["critical_events"], json!([]));
}

#[test]
fn diagnose_hints_produce_a_working_curator() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    let port = ollama(&["gemma4:e4b"]);
    let endpoint = format!("http://127.0.0.1:{port}");
    fixture.run(&["config", "set", "curator.endpoint", &endpoint]).ends(0);
    fixture.run(&["config", "set", "curator.worker_dir", "D:\\dream"]).ends(0);
    fixture.run(&["curator", "status"]).ends(0).expect_text("Windows");
    fixture.run(&["status"]).ends(0);
    for round in 0..6 {
        let said = fixture.run(&["curator", "diagnose", "--json"]);
        let found = said.json();
        let wrong = found.as_array().unwrap().iter().find(|it| it["level"] == "wrong");
        let Some(wrong) = wrong else {
            assert_eq!(said.code, 0);
            assert!(round > 1, "fewer than two problems were found");
            fixture.run(&["curator", "enqueue", "--kind", "lint-wiki"]).ends(0);
            fixture.run(&["curator", "work"]).ends(0);
            assert_eq!(fixture.tree(".runner/curator/done").len(), 1);
            return;
        };
        assert_eq!(said.code, 1);
        let hint = wrong["hint"].as_str().unwrap();
        let bin = env!("CARGO_BIN_EXE_runner").trim_end_matches("/runner");
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        let done = fixture.command("sh", &["-c", hint]).env("PATH", path).output().unwrap();
        assert!(done.status.success(), "{hint}: {done:?}");
    }
    panic!("problems remain after six commands");
}

#[test]
fn compaction_dry_run_matches_real_output() {
    let fixture = Fixture::with(JOB);
    fixture.write(".runner/curator/logs/pending-log-entries/1.txt", "- one\n");
    fixture.write(".runner/curator/logs/pending-log-entries/2.txt", "- two");
    let dry = fixture.run(&["curator", "compact", "--dry-run"]).ends(0);
    assert!(!fixture.path(".runner/curator/logs/audit.md").exists());
    let done = fixture.run(&["curator", "compact", "--apply"]).ends(0);
    assert_eq!(dry.out, done.out);
    assert!(fixture.read(".runner/curator/logs/audit.md").ends_with("- one\n- two\n"));
    fixture.run(&["curator", "compact", "--apply"]).ends(0).expect_text("nothing to compact");
    fixture.run(&["curator", "compact"]).ends(2);
}

#[test]
fn own_table_overrides_alternate_names() {
    let fixture = Fixture::with(
        "[dream.local_curator]\nhourly_cap = 3\nmodel = \"other\"\n[curator]\nmodel = \"ours\"\n",
    );
    let reported = fixture.run(&["curator", "status", "--json"]).ends(0).json();
    assert_eq!(reported["configured"]["hourly_cap"], 3);
    assert_eq!(reported["configured"]["model"], "ours");
    fixture.write(
        ".ctxrc",
        "dream:\n  local_curator:\n    vault_dir: notes\n    kinds: [lint-wiki]\n",
    );
    let reported = fixture.run(&["curator", "status", "--json"]).ends(0).json();
    assert_eq!(reported["configured"]["kinds"], json!(["lint-wiki"]));
    assert_eq!(reported["vault"]["path"], "notes");
}

#[test]
fn work_and_enqueue_need_no_setup() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    fixture.run(&["curator", "enqueue", "--kind", "lint-wiki"]).ends(0);
    fixture.run(&["curator", "work"]);
    assert!(fixture.read("runner.toml").contains("[jobs.curator]"));
    assert_eq!(fixture.tree(".runner/curator/done").len(), 1);
    // The added job runs only manually. `curator setup` gives it a trigger.
    fixture.run(&["curator", "diagnose"]).expect_text("the job curator runs only manually");
    fixture.run(&["config", "set", "jobs.curator.enabled", "false"]).ends(0);
    fixture.run(&["curator", "setup", "--apply"]).ends(0);
    let jobs = fixture.run(&["jobs", "--json"]).ends(0).json();
    let curator = jobs.as_array().unwrap().iter().find(|job| job["job"] == "curator").unwrap();
    assert_eq!((&curator["trigger"], &curator["enabled"]), (&json!("every 5m"), &json!(true)));
    fixture.run(&["curator", "setup"]).ends(0).expect_text("the curator is set up");
}
