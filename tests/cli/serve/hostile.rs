//! Tests that hostile requests have no effect: forged names and origins, path tricks, split
//! headers, slow and large requests, many connections, tokens in URLs, and webhooks that are forged
//! or repeated.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;

use super::{Served, paths, project};
use crate::fixture::Fixture;

/// Counts the rows that a request could have added.
fn effects(fixture: &Fixture) -> i64 {
    fixture.count(
        "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM events) + (SELECT count(*) FROM pause)",
    )
}

#[test]
fn hostile_requests_have_no_effect() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let served = Served::start(&fixture);
    let (cookie, project, port) = (served.log_in(), served.project(), served.port);
    let (token, before) = (served.secret("token"), effects(&fixture));
    let own = served.origin();
    let mut requests: Vec<(String, Vec<u16>)> = Vec::new();
    let actions = [
        format!("/projects/{project}/jobs/ok/runs"),
        format!("/api/v1/projects/{project}/jobs/ok/runs"),
        "/pause".to_owned(),
        "/api/v1/pause".to_owned(),
        "/logout".to_owned(),
    ];
    let request = |line: &str, headers: &[String]| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n")
    };
    let login = format!("Cookie: {cookie}");
    // DNS rebinding: the browser sends the login to a name that points to this host.
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1",
        "localhost",
        &format!("127.0.0.1:{}", port ^ 1),
        &format!("127.0.0.1:{port}.evil.example"),
        &format!("evil.example@127.0.0.1:{port}"),
        "0.0.0.0",
        "[::1]",
        &format!("0.0.0.0:{port}"),
        &format!("2130706433:{port}"),
        &format!("127.1:{port}"),
        "",
    ] {
        for action in &actions {
            let headers =
                [format!("Host: {host}"), format!("Origin: http://{host}"), login.clone()];
            requests.push((request(&format!("POST {action}"), &headers), vec![400, 421]));
            requests.push((request("GET /", &headers), vec![400, 421]));
        }
    }
    // Requests that a page of another site can make.
    let host = format!("Host: 127.0.0.1:{port}");
    for headers in [
        vec![],
        vec!["Origin: null".to_owned()],
        vec!["Origin: http://evil.example".to_owned()],
        vec![format!("Origin: http://localhost:{port}")],
        vec![format!("Origin: http://127.0.0.1:{}", port ^ 1)],
        vec![format!("Origin: {own}.evil.example")],
        vec![format!("Origin: {own}/")],
        vec![format!("Origin: {own}"), "Sec-Fetch-Site: cross-site".to_owned()],
        vec![format!("Origin: {own}"), "Sec-Fetch-Site: same-site".to_owned()],
        vec![format!("Origin: {own}"), "Sec-Fetch-Site: none".to_owned()],
        vec!["Sec-Fetch-Site: cross-site".to_owned()],
        vec![format!("Origin: {own}"), "Origin: http://evil.example".to_owned()],
        vec![format!("Referer: {own}/")],
    ] {
        for action in &actions {
            let headers = [vec![host.clone(), login.clone()], headers.clone()].concat();
            requests.push((request(&format!("POST {action}"), &headers), vec![400, 403]));
        }
    }
    // Only POST has an effect, and a token is accepted in one header only.
    let same = format!("Origin: {own}");
    for action in &actions {
        for method in
            ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "post"]
        {
            let headers = [host.clone(), login.clone(), same.clone()];
            requests
                .push((request(&format!("{method} {action}"), &headers), vec![400, 404, 405, 200]));
        }
        for stolen in [
            format!("{action}?token={token}"),
            format!("{action}?access_token={token}"),
            format!("{action}#{token}"),
            format!("{action}?{cookie}"),
        ] {
            requests.push((
                request(&format!("POST {stolen}"), &[host.clone(), same.clone()]),
                vec![303, 400, 401],
            ));
        }
        for wrong in [
            "Authorization: Bearer",
            "Authorization: Basic eDp4",
            "Cookie: runner-login=",
            "Cookie: runner-login=act.9999999999.0.0",
        ] {
            let headers = [host.clone(), same.clone(), wrong.to_owned()];
            requests.push((request(&format!("POST {action}"), &headers), vec![303, 400, 401, 429]));
        }
    }
    // Paths and headers that other parsers may interpret differently.
    for path in [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/style.css/../../key",
        "/serve/key",
        "//evil.example/",
        "/runs/..%2f..%2fserve%2fkey",
        "/runs/x/artifacts/../../key",
        "/runs/x/artifacts/-1",
        "/runs/%00",
        "/projects/..%2f..",
        "/projects/%2fetc/settings",
        "/runs/--help",
        "/runs/%2d%2dhelp",
        "/api/v1/runs?limit=0",
        "/api/v1/runs?limit=99999",
        "/api/v1/runs?job=%2d%2dall&x=1",
        "/api/v1/runs/x/log?file=..%2fkey",
        "/runs?outcome=%0d%0aSet-Cookie:%20a=b",
        "/projects/x%0d%0aSet-Cookie:%20a=b/jobs",
        "/\\evil.example",
    ] {
        let headers = [host.clone(), login.clone()];
        requests.push((request(&format!("GET {path}"), &headers), vec![400, 404, 409]));
    }
    for headers in [
        format!("{host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"),
        format!("{host}\r\n{host}"),
        format!("{host}\r\nX: a\r\n b"),
        format!("{host}\r\nX\0: a"),
        format!("{host}\nOrigin: {own}"),
        format!("{host}\r\nContent-Length: -1"),
        format!("{host}\r\nContent-Length: 5, 6"),
        (0..200).map(|n| format!("X-{n}: a")).collect::<Vec<_>>().join("\r\n"),
        format!("X: {}", "a".repeat(64 * 1024)),
    ] {
        let text =
            format!("POST {} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n\r\n", actions[0]);
        requests.push((text, vec![0, 303, 400, 401, 403, 413, 431]));
    }
    for body in
        ["{\"force\":\"1\"}", "[]", "{\"at\":1}", "not json", "{\"key\":\"\\u0000\",\"x\":\"\""]
    {
        let headers = format!(
            "{host}\r\n{same}\r\n{login}\r\nContent-Length: {}\r\nConnection: close",
            body.len()
        );
        requests
            .push((format!("POST {} HTTP/1.1\r\n{headers}\r\n\r\n{body}", actions[1]), vec![400]));
    }
    assert!(requests.len() >= 300, "{}", requests.len());
    for (text, expected) in &requests {
        let reply = served.raw(text.as_bytes());
        let leaks = [token.as_str(), cookie.split_once('=').unwrap().1, "root:x:"];
        let leaked =
            leaks.iter().any(|secret| reply.body.contains(secret) || reply.head.contains(secret));
        assert!(!leaked, "{text:?}: {reply:?}");
        assert!(
            !reply.head.contains("access-control") && !reply.head.contains("set-cookie"),
            "{reply:?}"
        );
        assert!(expected.contains(&reply.status), "{text:?}: {reply:?}");
        assert_ne!((reply.status, reply.head.contains("location: //")), (303, true), "{text:?}");
    }
    assert_eq!(effects(&fixture), before, "a request had an effect");
    served.get("/", &cookie).ends(200);
}

#[test]
fn large_requests_and_idle_clients_block_nothing() {
    let fixture = project();
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let large = "x".repeat(70_000);
    served.post("/pause", &cookie, &format!("until={large}")).ends(413);
    let mut clients = Vec::new();
    for number in 0..600 {
        let mut client = served.connect();
        // The server closes the connections that exceed its limit.
        let _closed = match number % 3 {
            0 => client.write_all(b"GET / HTTP/1.1\r\nHost: "),
            1 => client.write_all(b"POST /pause HTTP/1.1\r\nContent-Length: 10\r\n\r\n1"),
            _ => Ok(()),
        };
        clients.push(client);
    }
    // The Unix socket has its own limit.
    let reply =
        served.unix("GET /api/v1/projects HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 200, "{reply:?}");
    drop(clients);
    // The server notices the closed connections one after another.
    let served_again = (0..1_000).any(|_| served.get("/runs", &cookie).status == 200);
    assert!(served_again, "the server no longer responds");
    assert_eq!(fixture.count("SELECT count(*) FROM pause"), 0);
}

#[test]
fn login_codes_are_used_once_and_guesses_are_limited() {
    let fixture = project();
    let served = Served::start(&fixture);
    for name in ["key", "token", "read-token", "login-code", "webhook-key"] {
        let mode = std::fs::metadata(fixture.state().join("serve").join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let socket = std::fs::metadata(fixture.state().join("serve.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let code = served.secret("login-code");
    let cookie = served.log_in();
    assert_ne!(served.secret("login-code"), code, "the login code was not replaced");
    served.post("/login", "", &format!("code={code}")).ends(403);
    let read =
        served.post("/login", "", &format!("code={}", served.secret("read-token"))).ends(200);
    let read =
        read.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
    let read = read.split(';').next().unwrap().to_owned();
    served.get("/runs", &read).ends(200);
    served.post("/pause", &read, "").ends(403);
    for _ in 0..9 {
        served.post("/login", "", "code=WRONG").ends(403);
    }
    // Failed guesses lock out neither a valid code nor an existing login.
    served.post("/login", "", "code=WRONG").ends(429);
    let code = served.secret("login-code");
    served.post("/login", "", &format!("code={code}")).ends(200);
    served.get("/", &cookie).ends(200);
    served.post("/logout", &cookie, "").ends(200);
    served.get("/", &cookie).ends(303);
    served.get("/", &read).ends(303);
}

#[test]
fn every_page_needs_a_login() {
    let fixture = project();
    fixture.run(&["jobs", "run", "ok"]).ends(0);
    let served = Served::start(&fixture);
    let project = served.project();
    let all =
        paths(&served, &[("project", &project), ("run", "x"), ("night", "x"), ("proposal", "x")]);
    assert!(all.len() > 15, "{all:?}");
    for path in all {
        let reply = served.send("GET", &path, &[], "").ends(401);
        assert!(reply.body.contains("log in first"), "{path}: {reply:?}");
        let page = path.strip_prefix("/api/v1").unwrap();
        for path in
            [page, "/", "/nothing", "/rem/x", "/htmx.js", "/runs/x/artifacts/0", "/runs/x/live"]
        {
            let reply = served.send("GET", path, &[], "");
            assert_eq!(reply.status, 303, "{path}: {reply:?}");
            assert!(reply.head.contains("location: /login"), "{path}: {reply:?}");
        }
    }
}

#[test]
fn requests_never_reach_an_enclosing_project() {
    let fixture = project();
    let served = Served::start(&fixture);
    let (project, cookie) = (served.project(), served.log_in());
    let around = fixture.project().parent().unwrap().join("runner.toml");
    std::fs::rename(fixture.path("runner.toml"), around).unwrap();
    served.get(&format!("/projects/{project}/jobs"), &cookie).ends(404);
    served.post(&format!("/projects/{project}/jobs/ok/runs"), &cookie, "").ends(409);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 0);
}

#[test]
fn webhooks_are_signed_and_never_repeated() {
    let fixture = project();
    let served = Served::start(&fixture);
    let (key, project) = (served.secret("webhook-key"), served.project());
    let path = |job: &str| format!("/api/v1/projects/{project}/jobs/{job}/runs");
    let signed = |key: &str, path: &str, at: i64, body: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(format!("{at}.{path}.{body}").as_bytes());
        let digits: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256={digits}")
    };
    #[allow(clippy::disallowed_methods, reason = "the server reads the host's clock")]
    let now = Timestamp::now().as_second();
    let send = |path: &str, at: i64, signature: &str, body: &str| {
        let at = at.to_string();
        served.send(
            "POST",
            path,
            &[("X-Runner-Timestamp", &at), ("X-Runner-Signature", signature)],
            body,
        )
    };
    let good = signed(&key, &path("ok"), now, "{}");
    let first = send(&path("ok"), now, &good, "{}").ends(200).json();
    let again = send(&path("ok"), now, &good, "{}").ends(200).json();
    assert_eq!(first["id"], again["id"], "a repeated webhook started a second run");
    let old = now - 400;
    for (path, at, signature, body) in [
        (path("bad"), now, good.clone(), "{}"),
        (path("ok"), now + 1, good.clone(), "{}"),
        (path("ok"), now, good.clone(), "{ }"),
        (path("ok"), now, signed("other", &path("ok"), now, "{}"), "{}"),
        (path("ok"), old, signed(&key, &path("ok"), old, "{}"), "{}"),
        ("/api/v1/pause".to_owned(), now, signed(&key, "/api/v1/pause", now, "{}"), "{}"),
    ] {
        let reply = send(&path, at, &signature, body);
        assert!([401, 403].contains(&reply.status), "{path} {at}: {reply:?}");
    }
    // A login does not replace the signature, and failed attempts do not block signed requests.
    let (cookie, at) = (served.log_in(), now.to_string());
    let headers = [
        ("Cookie", cookie.as_str()),
        ("Origin", "http://localhost:3000"),
        ("X-Runner-Timestamp", &at),
        ("X-Runner-Signature", "sha256=00"),
    ];
    for _ in 0..12 {
        let reply = served.send("POST", &path("ok"), &headers, "{}");
        assert!([401, 429].contains(&reply.status), "{reply:?}");
    }
    let again = send(&path("ok"), now, &good, "{}").ends(200).json();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 1);
}
