//! Tests event streams, partial logs, and restarts of the server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::{Served, project};
use crate::served::Daemon;

/// An open event stream.
pub struct Stream(BufReader<TcpStream>);

impl Stream {
    pub fn open(served: &Served<'_>, path: &str, cookie: &str, last: Option<i64>) -> Self {
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let mut stream = served.connect();
        let port = served.port;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n{last}\r\n"
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the id, name and data of the next event with data, or `None` at the end.
    pub fn next(&mut self) -> Option<(String, String, String)> {
        let (mut id, mut name, mut data) = (String::new(), String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            // This is the length of the last chunk of the body.
            if line == "0" {
                return None;
            }
            for (field, value) in [("id: ", &mut id), ("event: ", &mut name), ("data: ", &mut data)]
            {
                if let Some(text) = line.strip_prefix(field) {
                    value.push_str(text);
                }
            }
            if line.is_empty() {
                if !data.is_empty() {
                    return Some((id, name, data));
                }
                (id, name) = (String::new(), String::new());
            }
        }
    }

    fn change(&mut self) -> Value {
        let (id, name, data) = self.next().expect("the stream ended");
        assert_eq!(name, "changed");
        let change: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(change["id"].to_string(), id);
        change
    }
}

#[test]
fn streams_continue_after_a_restart() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let mut served = Served::start(&fixture);
    let (cookie, port) = (served.log_in(), served.port);
    let mut stream = Stream::open(&served, "/api/v1/events", &cookie, Some(0));
    let first = stream.change();
    fixture.run(&["pause", "--all"]).ends(0);
    let mut seen = vec![first["id"].as_i64().unwrap()];
    while stream_kind(&mut stream, &mut seen) != "pause" {}
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    assert!(stream.next().is_none());
    // A whole run takes place while nobody listens.
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    fixture.run(&["resume", "--all"]).ends(0);
    drop(served);
    let served = Served::at(&fixture, port);
    // The login is still valid.
    served.get("/", &cookie).ends(200);
    let mut stream = Stream::open(&served, "/api/v1/events", &cookie, seen.last().copied());
    let last = fixture.count("SELECT max(id) FROM changes");
    let mut states = Vec::new();
    while *seen.last().unwrap() < last {
        let change = stream.change();
        seen.push(change["id"].as_i64().unwrap());
        if change["kind"] == "run" {
            states.push(change["state"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, (1..=last).collect::<Vec<_>>(), "a change was missed or repeated");
    assert_eq!(states, ["requested", "running", "succeeded"]);
    // A stream cannot continue from a change that was deleted.
    fixture.store().execute("DELETE FROM changes WHERE id < 3", []).unwrap();
    let mut stream = Stream::open(&served, "/api/v1/events", &cookie, Some(1));
    assert_eq!(stream.next().unwrap().1, "reset");
}

#[test]
fn ending_all_logins_ends_their_streams() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let run = served.api("/runs")[0]["id"].as_str().unwrap().to_owned();
    let mut changes = Stream::open(&served, "/api/v1/events", &cookie, Some(0));
    let mut live = Stream::open(&served, &format!("/runs/{run}/live"), &cookie, None);
    changes.change();
    while live.next().unwrap().1 != "over" {}
    served.post("/logout", &cookie, "").ends(200);
    while changes.next().is_some() {}
    while live.next().is_some() {}
    served.get("/", &cookie).ends(303);
}

#[test]
fn streams_follow_a_restored_database() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let backup = fixture.root().join("backup.sqlite");
    fixture.run(&["db", "backup", backup.to_str().unwrap()]).ends(0);
    fixture.run(&["pause", "--all"]).ends(0);
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let last = fixture.count("SELECT max(id) FROM changes");
    let mut stream = Stream::open(&served, "/api/v1/events", &cookie, Some(last - 1));
    stream.change();
    fixture.run(&["db", "restore", "--yes", backup.to_str().unwrap()]).ends(0);
    let mut event = stream.next();
    if event.is_none() {
        // A stream ends if the database cannot be read, and its client reconnects.
        stream = Stream::open(&served, "/api/v1/events", &cookie, Some(last));
        event = stream.next();
    }
    assert_eq!(event.unwrap().1, "reset");
    fixture.run(&["pause", "--all"]).ends(0);
    assert_eq!(stream.change()["kind"], "pause");
}

fn stream_kind(stream: &mut Stream, seen: &mut Vec<i64>) -> String {
    let change = stream.change();
    seen.push(change["id"].as_i64().unwrap());
    change["kind"].as_str().unwrap().to_owned()
}

#[test]
fn live_logs_end_with_the_run() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let run = served.api("/runs")[0]["id"].as_str().unwrap().to_owned();
    let mut stream = Stream::open(&served, &format!("/runs/{run}/live"), &cookie, None);
    let mut text = String::new();
    let end = loop {
        let (_, name, data) = stream.next().unwrap();
        match name.as_str() {
            "over" => break data,
            _ => text.push_str(&data),
        }
    };
    assert!(text.contains("the run begins") && text.contains("a line of output"), "{text}");
    assert_eq!(end, "ok: succeeded");
    let part = |range: &str| {
        let headers = [("Cookie", cookie.as_str()), ("Range", range)];
        served.send("GET", &format!("/api/v1/runs/{run}/log?file=stdout"), &headers, "")
    };
    let reply = part("bytes=0-99").ends(206);
    assert_eq!(reply.body, "a line of output\n");
    assert!(reply.head.contains("content-range: bytes 0-16/17"), "{}", reply.head);
    assert!(reply.head.contains("content-disposition: attachment"), "{}", reply.head);
    part("bytes=9-1").ends(416);
    part("bytes=3-").ends(206);
}

#[test]
fn logs_are_sent_without_parts_of_secrets() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let run = served.api("/runs")[0]["id"].as_str().unwrap().to_owned();
    let secret = "0123456789abcdefghijABCDEFGHIJ012345";
    let half = format!("{} end\n", &secret[10..]);
    // The stream begins 32 KiB before the end, which is inside the token.
    let padding = "x".repeat(32 * 1024 - half.len() - "\nlast\n".len());
    let text = format!("first\ntoken ghp_{}{half}{padding}\nlast\n", &secret[..10]);
    let stdout = fixture.state().join("runs").join(&run).join("stdout");
    std::fs::write(&stdout, &text).unwrap();
    let mut stream = Stream::open(&served, &format!("/runs/{run}/live"), &cookie, None);
    let mut shown = String::new();
    while let Some((_, name, data)) = stream.next() {
        shown.push_str(&data);
        if name == "over" {
            break;
        }
    }
    assert!(shown.contains("last") && !shown.contains(&secret[10..]), "{shown}");
    std::fs::write(&stdout, format!("{text}{}\nend\n", "y".repeat(300_000))).unwrap();
    let whole = served.send(
        "GET",
        &format!("/api/v1/runs/{run}/log?file=stdout"),
        &[("Cookie", cookie.as_str())],
        "",
    );
    let body = whole.ends(200).body;
    assert!(body.contains("first\ntoken [redacted:github-token] end\n"), "{}", &body[..200]);
    assert!(body.len() > 332_000 && body.contains("\nend\n"), "{}", body.len());
}

#[test]
fn daemon_serves_if_enabled() {
    let fixture = project();
    let config = fixture.root().join("config/runner/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[serve]\nenabled = true\n")).unwrap();
    fixture.set_clock("2026-11-23T12:00:00Z");
    let daemon = Daemon::start(&fixture, &[]);
    let socket = fixture.state().join("serve.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /api/v1/projects HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let projects = super::Reply::read(stream).ends(200).json();
    let project = projects[0]["id"].as_str().unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    write!(
        stream,
        "POST /api/v1/projects/{project}/jobs/ok/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let run = super::Reply::read(stream).ends(200).json();
    let run = run["id"].as_str().unwrap();
    let done = fixture.run(&["logs", run, "--follow"]).ends(0);
    assert!(done.out.contains("a line of output"), "{done:?}");
    drop(daemon);
}
