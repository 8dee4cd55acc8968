//! Tests alerts and heartbeats, including misbehaving receivers and killed delivery processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, skip};

/// Maximum wait for an event that must occur.
const SURE: Duration = Duration::from_secs(60);

const FAILS: &str = "[jobs.bad]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"test -e ok || { echo broken >&2; exit 3; }\"]\ntrigger = \"manual\"\nretries = 0\n";

pub struct ReceivedRequest {
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> &str {
        self.head
            .lines()
            .find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
            .unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A server that reports each request to the test and then calls its answer function.
pub struct Server {
    pub port: u16,
    heard: Receiver<ReceivedRequest>,
}

impl Server {
    pub fn start(mut answer: impl FnMut(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, heard): (Sender<ReceivedRequest>, _) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let mut reader = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        break;
                    }
                }
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
                });
                let mut body = vec![0; length.unwrap_or(0)];
                let _cut = reader.read_exact(&mut body);
                if tell.send(ReceivedRequest { head, body }).is_err() {
                    return;
                }
                answer(reader.into_inner());
            }
        });
        Self { port, heard }
    }

    /// Starts a server that always answers with these bytes.
    pub fn saying(bytes: &'static [u8]) -> Self {
        Self::start(move |mut stream| {
            let _closed = stream.write_all(bytes);
        })
    }

    pub fn next_request(&self) -> ReceivedRequest {
        self.heard.recv_timeout(SURE).unwrap()
    }

    pub fn heard_nothing(&self) {
        assert!(self.heard.try_recv().is_err());
    }
}

pub const GOOD: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

/// Creates a fixture whose job fails until the file `ok` exists.
fn fixture(channels: &str) -> Fixture {
    Fixture::with(&format!("{FAILS}{channels}"))
}

fn hook(port: u16, more: &str) -> String {
    format!("[channels.hook]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{port}/hook\"\n{more}")
}

fn command(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.runner(args);
    command.env("RUNNER_HOOK_KEY", "s3cr3t-hook-key");
    command
}

fn run(fixture: &Fixture, args: &[&str]) -> crate::fixture::CommandOutput {
    crate::fixture::CommandOutput::of(command(fixture, args).output().unwrap())
}

/// Queues the job and runs a tick, in which the job fails.
fn fail(fixture: &Fixture) {
    run(fixture, &["enqueue", "bad"]).ends(0);
    run(fixture, &["tick"]).expect_text("bad");
}

/// Makes every waiting message due now.
fn make_messages_due(fixture: &Fixture) {
    fixture.store().execute("UPDATE messages SET next = 0 WHERE state = 'waiting'", []).unwrap();
}

fn messages(fixture: &Fixture) -> Vec<(String, String, i64, String)> {
    let store = fixture.store();
    let mut rows =
        store.prepare("SELECT kind, state, tries, error FROM messages ORDER BY rowid").unwrap();
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

/// Waits until the delivering process has ended, if there is one.
fn wait_for_delivery(fixture: &Fixture) {
    let lock = fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(fixture.state().join("deliver.lock"))
        .unwrap();
    lock.lock().unwrap();
}

/// Delivers all due messages in the foreground.
fn deliver(fixture: &Fixture) {
    wait_for_delivery(fixture);
    run(fixture, &["__deliver"]).ends(0);
    wait_for_delivery(fixture);
}

#[test]
fn failure_and_recovery_are_each_delivered_once() {
    let server = Server::saying(GOOD);
    let fixture = fixture(&hook(server.port, "secret = \"RUNNER_HOOK_KEY\"\n"));
    fail(&fixture);
    let heard = server.next_request();
    assert!(heard.head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", heard.head);
    let json = heard.json();
    assert_eq!(
        (&json["what"], &json["kind"], &json["job"]),
        (&"raised".into(), &"failure".into(), &"bad".into())
    );
    assert!(json["why"].as_str().unwrap().contains("broken"), "{json}");
    assert_eq!(json["id"], heard.header("x-runner-message"));
    let script = "import hmac,hashlib,sys; print('sha256='+hmac.new(b's3cr3t-hook-key', sys.argv[1].encode()+b'.'+sys.stdin.buffer.read(), hashlib.sha256).hexdigest())";
    let mut python = Command::new("python3");
    python.args(["-c", script, heard.header("x-runner-timestamp")]);
    match python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn() {
        Ok(mut child) => {
            child.stdin.take().unwrap().write_all(&heard.body).unwrap();
            let said = child.wait_with_output().unwrap();
            let wanted = String::from_utf8(said.stdout).unwrap();
            assert_eq!(heard.header("x-runner-signature"), wanted.trim());
        }
        Err(_) => skip("python3", "the signature check: python3 is not installed"),
    }
    deliver(&fixture);
    // Repeated failures are counted but not sent again.
    fail(&fixture);
    fail(&fixture);
    deliver(&fixture);
    let breaker = server.next_request().json();
    assert_eq!(breaker["kind"], "breaker");
    server.heard_nothing();
    let open = run(&fixture, &["alerts", "--json"]).ends(0).json();
    let count = |kind: &str| {
        open.as_array().unwrap().iter().find(|one| one["kind"] == kind).unwrap()["count"].clone()
    };
    assert_eq!(count("failure"), 3);
    run(&fixture, &["status"]).ends(0).expect_text("2 open; `runner alerts`");
    fixture.write("ok", "");
    run(&fixture, &["run", "bad"]).ends(0);
    run(&fixture, &["tick"]).ends(0);
    let over = server.next_request().json();
    assert_eq!(over["what"], "recovered");
    assert_eq!(over["kinds"], serde_json::json!(["failure", "breaker"]));
    deliver(&fixture);
    server.heard_nothing();
    run(&fixture, &["alerts"]).ends(0).expect_text("no alerts");
    let database = fs::read(fixture.state().join("database.sqlite")).unwrap();
    assert!(!String::from_utf8_lossy(&database).contains("s3cr3t-hook-key"));
}

#[test]
fn hanging_receivers_block_no_command() {
    let (hang, held) = channel();
    let hanging = Server::start(move |stream| hang.send(stream).unwrap());
    let (stop, stopped) = channel::<()>();
    let dripping = Server::start(move |mut stream| {
        let _closed = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        // The header arrives byte by byte until the client gives up or the test ends.
        while stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout)
            && stream.write_all(b"x").is_ok()
        {}
    });
    let fixture = fixture(&format!(
        "[channels.drip]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{}/\"\n{}",
        dripping.port,
        hook(hanging.port, "")
    ));
    fail(&fixture);
    // From here on, one delivery hangs.
    dripping.next_request();
    fail(&fixture);
    run(&fixture, &["run", "bad"]).ends(1);
    run(&fixture, &["tick"]);
    run(&fixture, &["night"]);
    run(&fixture, &["status"]).ends(0);
    let states = messages(&fixture);
    assert_eq!((states[0].1.as_str(), states[0].2), ("waiting", 1), "{states:?}");
    assert!(states[0].3.is_empty(), "an unfinished delivery has an error: {states:?}");
    // The first delivery process may have skipped the message to `hook`, because a run was in
    // progress. That run has ended.
    wait_for_delivery(&fixture);
    run(&fixture, &["tick"]);
    hanging.next_request();
    let _open = held.recv_timeout(SURE).unwrap();
    wait_for_delivery(&fixture);
    let states = messages(&fixture);
    for state in &states[..2] {
        assert!(state.3.contains("no answer within 10 s"), "{states:?}");
    }
    drop(stop);
}

#[test]
fn failed_deliveries_are_reported_and_retried() {
    let elsewhere = Server::saying(GOOD);
    let to = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{}/\r\ncontent-length: 0\r\n\r\n",
        elsewhere.port
    );
    let answers: Vec<(Vec<u8>, &str)> = vec![
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(), "500"),
        (to.into_bytes(), "redirects are not followed"),
        (b"HTTP/1.1 200".to_vec(), ""),
        (Vec::new(), ""),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), ""),
    ];
    let mut script = answers.clone();
    script.reverse();
    let server = Server::start(move |mut stream| match script.pop() {
        Some((bytes, _)) => {
            let _closed = stream.write_all(&bytes);
        }
        // The body never ends, so the client must stop reading it.
        None => {
            let _closed =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n");
            let flood = [b'x'; 65_536];
            while stream.write_all(&flood).is_ok() {}
        }
    });
    let fixture = fixture(&hook(server.port, ""));
    fail(&fixture);
    let id = server.next_request().json()["id"].clone();
    deliver(&fixture);
    for (turn, (_, why)) in answers.iter().enumerate() {
        let states = messages(&fixture);
        assert_eq!(states.len(), 1);
        assert_eq!(states[0].1, "waiting", "{states:?}");
        assert!(states[0].3.contains(why) && !states[0].3.is_empty(), "{states:?}");
        assert!(!states[0].3.contains("/hook"), "the error shows the address: {states:?}");
        if turn == 0 {
            run(&fixture, &["status"])
                .ends(0)
                .expect_text("TROUBLE")
                .expect_text("did not arrive through hook");
        }
        make_messages_due(&fixture);
        deliver(&fixture);
        assert_eq!(server.next_request().json()["id"], id, "the retry has a different id");
    }
    assert_eq!(messages(&fixture)[0].1, "delivered");
    elsewhere.heard_nothing();
}

#[test]
fn killed_delivery_loses_no_message() {
    let server = Server::saying(GOOD);
    let fixture = fixture(&hook(server.port, ""));
    fail(&fixture);
    let id = server.next_request().json()["id"].clone();
    deliver(&fixture);
    let mut deaths = 0;
    for step in 0..20 {
        fixture
            .store()
            .execute("UPDATE messages SET state = 'waiting', tries = 0, next = 0, ended = NULL", [])
            .unwrap();
        let died = command(&fixture, &["__deliver"])
            .env("RUNNER_TEST_DIE_AT", step.to_string())
            .output()
            .unwrap();
        deaths += usize::from(!died.status.success());
        let whole = died.status.success();
        make_messages_due(&fixture);
        deliver(&fixture);
        assert_eq!(messages(&fixture)[0].1, "delivered", "step {step}");
        let mut copies = 0;
        while let Ok(heard) = server.heard.try_recv() {
            assert_eq!(heard.json()["id"], id);
            copies += 1;
        }
        assert!((1..=2).contains(&copies), "step {step}: {copies}");
        if whole {
            break;
        }
    }
    assert!(deaths >= 3, "{deaths}");
}

#[test]
fn acknowledged_alert_is_not_repeated() {
    let server = Server::saying(GOOD);
    let fixture = fixture(&hook(server.port, "[notify]\nrepeat = \"1s\"\n"));
    fail(&fixture);
    server.next_request();
    deliver(&fixture);
    run(&fixture, &["alerts", "ack", "bad"]).ends(0).expect_text("until the alert ends");
    run(&fixture, &["alerts", "ack", "bad"]).ends(0).expect_text("nothing to silence");
    fail(&fixture);
    deliver(&fixture);
    server.heard_nothing();
    run(&fixture, &["jobs", "reset", "bad"]).ends(0);
    run(&fixture, &["alerts"]).ends(0).expect_text("no alerts");
    fail(&fixture);
    assert_eq!(
        server.next_request().json()["what"],
        "raised",
        "the next failure raises no new alert"
    );
    let shown = run(&fixture, &["alerts", "list", "--json"]).ends(0).json();
    let id = shown[0]["id"].as_str().unwrap().to_owned();
    run(&fixture, &["alerts", "show", &id]).ends(0).expect_text("hook");
    run(&fixture, &["alerts", "show", "nobody"]).ends(2);
    run(&fixture, &["alerts", "list", "--over", "--all"]).ends(0).expect_text("acknowledged by");
}

/// Creates a program that writes its arguments and its input to a file, and its environment to a
/// second file. Returns the path of the first.
fn fake(fixture: &Fixture, name: &str) -> String {
    let bin = fixture.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    let out = fixture.root().join(format!("{name}.out")).display().to_string();
    let text = format!(
        "#!/bin/sh\nfor word; do printf '%s\\n--word--\\n' \"$word\"; done > '{out}'\ncat >> '{out}'\nenv > '{out}.env'\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    out
}

#[test]
fn program_channels_receive_messages_as_data() {
    let fixture = fixture(
        "[channels.screen]\ntype = \"desktop\"\n[channels.pager]\ntype = \"command\"\nprogram = \"pager\"\nargs = [\"--now\"]\nenv = [\"PAGER_KEY\"]\nsandbox = \"off\"\n[channels.mail]\ntype = \"email\"\nrecipient = \"me@example.org\"\nprogram = \"sendmail\"\nsandbox = \"off\"\n[notify]\nsubject = \"-x {{ project }}\\r\\nBcc: evil@example.org\"\nbody = \"<b>$(touch owned) `id` {{ nobody }}\"\n",
    );
    let (screen, pager, mail) =
        (fake(&fixture, "notify-send"), fake(&fixture, "pager"), fake(&fixture, "sendmail"));
    let path =
        format!("{}:{}", fixture.root().join("bin").display(), std::env::var("PATH").unwrap());
    let test = |args: &[&str]| {
        let mut command = fixture.runner(args);
        command.env("PATH", &path).env("PAGER_KEY", "k-123456").env("OTHER_KEY", "o-123456");
        crate::fixture::CommandOutput::of(command.output().unwrap())
    };
    let said = test(&["alerts", "test", "--json"]).ends(0).json();
    assert_eq!(said.as_array().unwrap().len(), 3, "{said}");
    let shown = fs::read_to_string(screen).unwrap();
    let words: Vec<&str> = shown.split("\n--word--\n").collect();
    assert_eq!(
        words[..4],
        ["--app-name=runner", "--urgency=critical", "--", "-x project Bcc: evil@example.org"]
    );
    assert!(
        words[4].contains("a test message was requested") && words[4].contains("cannot be used"),
        "{shown}"
    );
    let paged = fs::read_to_string(&pager).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(paged.strip_prefix("--now\n--word--\n").unwrap()).unwrap();
    assert_eq!(json["what"], "test");
    let seen = fs::read_to_string(format!("{pager}.env")).unwrap();
    assert!(seen.contains("PAGER_KEY=k-123456") && !seen.contains("OTHER_KEY"), "{seen}");
    let mailed = fs::read_to_string(mail).unwrap();
    let mailed = mailed.strip_prefix("-i\n--word--\n-t\n--word--\n").unwrap();
    let (head, _) = mailed.split_once("\n\n").unwrap();
    assert!(
        head.contains("To: me@example.org\nSubject: -x project Bcc: evil@example.org\nDate: "),
        "{head}"
    );
    assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
    assert!(!fixture.path("owned").exists());
    // A failing program, an unset variable and an unknown channel are each reported.
    fs::write(fixture.root().join("bin/pager"), "#!/bin/sh\necho no $PAGER_KEY >&2\nexit 4\n")
        .unwrap();
    let said = test(&["alerts", "test", "pager"]).ends(69).expect_text("ended with exit 4: no");
    assert!(!said.err.contains("k-123456"), "{said:?}");
    run(&fixture, &["alerts", "test", "pager"]).ends(69).expect_text("PAGER_KEY is not set");
    test(&["alerts", "test", "pagr"]).ends(78).expect_text("did you mean \"pager\"?");
}

#[test]
fn heartbeat_follows_successful_ticks_once_a_minute() {
    let server = Server::saying(GOOD);
    let fixture = fixture("");
    let config = fixture.root().join("config/runner/config.toml");
    let mut text = fs::read_to_string(&config).unwrap();
    text.push_str(&format!("heartbeat = \"http://127.0.0.1:{}/beat\"\n", server.port));
    fs::write(&config, &text).unwrap();
    run(&fixture, &["tick"]).ends(0);
    assert!(server.next_request().head.starts_with("GET /beat "));
    run(&fixture, &["tick"]).ends(0);
    // The old stamp permits another request. A heartbeat from the second tick would make this
    // request the third.
    fs::write(fixture.state().join("heartbeat.stamp"), "2020-01-01T00:00:00Z\n").unwrap();
    run(&fixture, &["tick"]).ends(0);
    server.next_request();
    server.heard_nothing();
    // A tick that finds invalid settings sends no heartbeat.
    fs::write(fixture.state().join("heartbeat.stamp"), "2020-01-01T00:00:00Z\n").unwrap();
    fixture.configure("[nonsense]\n");
    run(&fixture, &["tick"]).ends(78);
    let stamp = fs::read_to_string(fixture.state().join("heartbeat.stamp")).unwrap();
    assert!(stamp.starts_with("2020"), "{stamp}");
    let project = fixture.path("runner.toml");
    let own = fs::read_to_string(&project)
        .unwrap()
        .replace("[nonsense]\n", "[notify]\nheartbeat = \"/x\"\n");
    fs::write(&project, own).unwrap();
    fixture.run(&["config", "check"]).ends(78).expect_text("your own config.toml");
}

#[test]
fn alerts_are_listed_while_settings_are_broken() {
    let fixture = fixture("");
    fail(&fixture);
    run(&fixture, &["tick"]);
    fixture.configure("[broken\n");
    let listed = run(&fixture, &["alerts"]).ends(0).expect_text("unclosed table");
    assert!(listed.out.contains("bad") && listed.out.contains("failure"), "{listed:?}");
    run(&fixture, &["alerts", "ack", "bad"]).ends(0).expect_text("bad (failure): silenced");
}

#[test]
fn settings_that_stay_broken_raise_an_alert() {
    let fixture = Fixture::with(&FAILS.replace("manual", "every 1h"));
    fixture.write("ok", "");
    let tick = |time: &str| fixture.run_at(time, &["tick"]);
    let open_alerts = || fixture.count("SELECT count(*) FROM alerts WHERE ended IS NULL");
    tick("2026-11-23T10:00:00Z");
    let text = fixture.read("runner.toml");
    fixture.configure("[broken\n");
    tick("2026-11-23T11:00:00Z");
    tick("2026-11-23T11:15:00Z");
    // There is no alert yet, because somebody may still be editing the file.
    assert_eq!(open_alerts(), 0);
    tick("2026-11-23T11:30:00Z");
    tick("2026-11-23T11:45:00Z");
    assert_eq!(open_alerts(), 1);
    let why = "SELECT count(*) FROM alerts WHERE kind = 'missed' AND count = 1
               AND why LIKE 'it waits: %unclosed table%'";
    assert_eq!(fixture.count(why), 1);
    fixture.write("runner.toml", text);
    tick("2026-11-23T12:00:00Z").ends(0);
    assert_eq!(open_alerts(), 0);
}

#[test]
fn critical_event_is_sent_by_the_tick_that_finds_it() {
    let server = Server::saying(GOOD);
    let job = "[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\n";
    let fixture = Fixture::with(&format!("{job}{}", hook(server.port, "")));
    let event = ["--desired-action", "restore", "--escalation-target", "me", "--budget", "2"];
    let args = ["curator", "event", "--source", "ci", "--severity", "critical"];
    run(&fixture, &[&args[..], &event].concat()).ends(0);
    run(&fixture, &["tick"]).ends(0);
    assert_eq!(server.next_request().json()["kind"], "critical-event");
}

#[test]
fn unreadable_critical_event_keeps_its_alert() {
    let fixture = Fixture::with("[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\n");
    let event = ["--desired-action", "restore", "--escalation-target", "me", "--budget", "2"];
    let args = ["curator", "event", "--source", "ci", "--severity", "critical"];
    run(&fixture, &[&args[..], &event].concat()).ends(0);
    let events = run(&fixture, &["curator", "events", "--json"]).json();
    let id = events[0]["id"].as_str().unwrap();
    let found = fixture.files_with("needs-review");
    let found = found.iter().find(|path| path.ends_with("events/pending.jsonl"));
    let pending = fixture.root().join(found.unwrap());
    let line = fs::read_to_string(&pending).unwrap();
    let opened = |text: &str| {
        fs::write(&pending, text).unwrap();
        run(&fixture, &["tick"]).ends(0);
        fixture.count("SELECT count(*) FROM alerts WHERE ended IS NULL")
    };
    let torn = &line[..line.len() / 2];
    assert_eq!((opened(torn), opened(&line), opened(torn)), (0, 1, 1));
    assert_eq!((opened(""), opened(&line)), (0, 1), "the line was removed, and restored");
    run(&fixture, &["curator", "events", "ack", id]).ends(0);
    assert_eq!(opened(torn), 0, "the event was acknowledged");
    // A line that was torn while it was written belongs to an event without steps.
    let other = line.replace(id, "20260102T150405Z-event-00000000");
    assert_eq!((opened(&other), opened(&other[..other.len() / 2])), (1, 0));
}
