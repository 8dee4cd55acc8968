//! Tests `runner serve`: requests over real sockets, pages as a browser parses them, actions,
//! streams and webhooks.

mod hostile;
mod pages;
mod schemas;
mod streams;

pub use streams::Stream;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::fixture::Fixture;
use crate::served::LIMIT;

/// A running server, which is killed when dropped.
pub struct Served<'a> {
    pub fixture: &'a Fixture,
    pub child: Child,
    pub port: u16,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// Reads the response until the server closes the connection.
    pub fn read(mut from: impl std::io::Read) -> Self {
        let mut bytes = Vec::new();
        // A server that refuses a request may close the connection before it has read everything.
        let _reset = from.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    #[track_caller]
    pub fn ends(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.body);
        self
    }
}

impl<'a> Served<'a> {
    /// Starts a server on any free port.
    pub fn start(fixture: &'a Fixture) -> Self {
        Self::at(fixture, 0)
    }

    pub fn at(fixture: &'a Fixture, port: u16) -> Self {
        let mut child = fixture
            .runner(&["serve", "--listen", &format!("127.0.0.1:{port}")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut all = String::new();
        let port = loop {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "{all}");
            if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
                break rest.trim().trim_end_matches('/').parse().unwrap();
            }
            all.push_str(&line);
        };
        Self { fixture, child, port }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends bytes and returns the response.
    pub fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        let _refused = stream.write_all(request);
        Reply::read(stream)
    }

    /// Sends a request with these headers in addition to `Host`.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        self.raw(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n{headers}\r\n{body}",
                self.port
            )
            .as_bytes(),
        )
    }

    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the content of a file in the server's folder.
    pub fn secret(&self, name: &str) -> String {
        fs::read_to_string(self.fixture.state().join("serve").join(name)).unwrap().trim().to_owned()
    }

    /// Logs in and returns the cookie.
    pub fn log_in(&self) -> String {
        let reply =
            self.post("/login", "", &format!("code={}", self.secret("login-code"))).ends(200);
        let cookie = reply.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.contains("; httponly; samesite=strict; path=/;"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Requests a page with a cookie.
    pub fn get(&self, path: &str, cookie: &str) -> Reply {
        self.send("GET", path, &[("Cookie", cookie)], "")
    }

    /// Submits a form.
    pub fn post(&self, path: &str, cookie: &str, body: &str) -> Reply {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[("Cookie", cookie), ("Origin", &self.origin()), kind], body)
    }

    /// Requests a view of the API with the token, and returns its JSON.
    pub fn api(&self, path: &str) -> Value {
        let token = format!("Bearer {}", self.secret("token"));
        self.send("GET", &format!("/api/v1{path}"), &[("Authorization", &token)], "")
            .ends(200)
            .json()
    }

    /// Returns the id of the only project.
    pub fn project(&self) -> String {
        self.api("/projects")[0]["id"].as_str().unwrap().to_owned()
    }

    /// Sends a request to the Unix socket.
    pub fn unix(&self, request: &str) -> Reply {
        let mut stream = UnixStream::connect(self.fixture.state().join("serve.sock")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        Reply::read(stream)
    }
}

/// Creates a project with a command job that succeeds, a job that fails, and two ideas.
pub fn project() -> Fixture {
    let fixture = Fixture::with(
        "[jobs.ok]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo a line of output\"]\n\
         [jobs.bad]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"false\"\nretries = 0\n",
    );
    fixture.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    fixture.write(
        "ideas/maps.md",
        "# Offline maps\n\n## Proposal\n\n- Download the tiles of a region\n",
    );
    fixture
}

/// Returns the paths of all views, with the given parts filled in.
pub fn paths(served: &Served<'_>, parts: &[(&str, &str)]) -> Vec<String> {
    let document = served.api("/openapi.json");
    let all = document["paths"].as_object().unwrap();
    let gets = all.iter().filter(|(_, methods)| !methods["get"].is_null());
    gets.map(|(path, _)| {
        parts
            .iter()
            .fold(path.clone(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value))
    })
    .collect()
}
