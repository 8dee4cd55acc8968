//! Starts a daemon with a clock that the test controls.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::{Fixture, ended_within};

/// The maximum wait for an event that must occur.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Disables the dream job that every project has.
pub const NO_DREAM: &str = "[jobs.dream]\nenabled = false\n";
/// A job that signals that it is running and then waits for input.
pub const WAIT: &str = "[jobs.wait]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\n\
    args = [\"-c\", \"echo up > up.fifo; read word < go.fifo\"]\n";

/// A running daemon, which is killed if it is still alive when dropped.
pub struct Daemon<'a> {
    pub fixture: &'a Fixture,
    pub child: Child,
    pub lines: BufReader<ChildStderr>,
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl<'a> Daemon<'a> {
    pub fn start(fixture: &'a Fixture, args: &[&str]) -> Self {
        Self::with(fixture, args, &[])
    }

    pub fn with(fixture: &'a Fixture, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut words = vec!["daemon"];
        words.extend(args);
        let mut command = fixture.runner(&words);
        command.envs(env.iter().copied());
        Self::of(fixture, command)
    }

    /// Starts the daemon with this command.
    pub fn of(fixture: &'a Fixture, mut command: Command) -> Self {
        let mut child = command
            .env("RUNNER_TEST_CLOCK", fixture.root().join("clock"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut daemon = Self { fixture, child, lines };
        daemon.wait_for_text("ready");
        daemon
    }

    /// Reads the daemon's output up to a line that contains `words`.
    #[track_caller]
    pub fn wait_for_text(&mut self, words: &str) -> String {
        let mut all = String::new();
        loop {
            if !self.lines.buffer().contains(&b'\n') {
                let wait = Timespec::try_from(LIMIT).unwrap();
                let mut pipe = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
                assert!(poll(&mut pipe, Some(&wait)).unwrap() > 0, "no {words:?} in {all}");
            }
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "no {words:?} in {all}");
            if line.contains(words) {
                return line;
            }
            all.push_str(&line);
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a request to the control socket and returns the answer.
    pub fn ask(&self, request: &str) -> Value {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(b"\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.fixture.state().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    pub fn tick(&self) -> Value {
        self.ask(r#"{"ask":"tick"}"#)
    }

    /// Waits for the daemon to exit, checks the exit code, and returns the remaining output.
    pub fn ends(mut self, code: i32) -> String {
        assert!(ended_within(self.child.id(), LIMIT), "the daemon did not end");
        let mut said = String::new();
        self.lines.read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{said}");
        said
    }
}

/// Creates a project at 20:00 with these jobs and a disabled dream.
pub fn fixture(toml: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.configure(&format!("{NO_DREAM}{toml}"));
    // At sandbox levels below `full`, a job cannot create files in the project's top folder.
    fixture.write("times", "");
    fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status().unwrap();
    fixture
}

/// Starts a daemon and waits until the job `wait` is running. Also returns the run's id.
pub fn busy<'a>(fixture: &'a Fixture, args: &[&str]) -> (Daemon<'a>, String) {
    let daemon = Daemon::start(fixture, args);
    fixture.set_clock("2026-11-21T20:01:00Z");
    let reported = daemon.tick();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n", "{reported}");
    let run = reported["started"][0].as_str().unwrap().to_owned();
    (daemon, run)
}

pub fn outcome(fixture: &Fixture, run: &str) -> String {
    fixture
        .store()
        .query_row("SELECT outcome FROM runs WHERE id = ?1", [run], |row| row.get(0))
        .unwrap()
}

/// Returns the process of the only active run.
pub fn owner(fixture: &Fixture) -> Pid {
    let [pid] = owners(fixture)[..] else {
        panic!("there is not exactly one run in progress");
    };
    pid
}

/// Waits until a run is settled.
pub fn over(fixture: &Fixture, id: &str) {
    fixture.run_with_clock(&["runs", "logs", id, "--follow"]).ends(0);
}

/// Returns the outcome (or state) and the reason of each run of a job, in the order of due times
/// and attempts.
pub fn runs(fixture: &Fixture, job: &str) -> Vec<(String, String)> {
    let listed = fixture.run_with_clock(&["runs", "--json", "--job", job]).ends(0).json();
    let words = |run: &serde_json::Value| {
        let word = run.get("outcome").unwrap_or(&run["state"]);
        let why = run["why"].as_str().unwrap_or_default();
        (word.as_str().unwrap().to_owned(), why.to_owned())
    };
    let mut listed = listed.as_array().unwrap().clone();
    // The clock does not advance between runs, so their ids do not determine the order.
    listed.sort_by_key(|run| (run["due"].to_string(), run["attempt"].as_u64()));
    listed.iter().map(words).collect()
}

/// Returns the processes of all active runs.
pub fn owners(fixture: &Fixture) -> Vec<Pid> {
    let db = fixture.store();
    let mut rows =
        db.prepare("SELECT owner FROM runs WHERE state = 'running' ORDER BY id").unwrap();
    let owners = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let pid = |owner: String| {
        let owner: Value = serde_json::from_str(&owner).unwrap();
        Pid::from_raw(i32::try_from(owner["pid"].as_i64().unwrap()).unwrap()).unwrap()
    };
    owners.map(|owner| pid(owner.unwrap())).collect()
}

/// Starts a command with the fixture's clock, and pipes its output for `CommandOutput`.
pub fn begin(fixture: &Fixture, args: &[&str]) -> Child {
    fixture.runner_with_clock(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills a process and waits for its end, whether or not its parent reaps it.
pub fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
    let raw = pid.as_raw_nonzero().get().cast_unsigned();
    assert!(ended_within(raw, LIMIT), "the process did not end");
}

/// Returns the periods of a job's missed scheduled times, as "first last count".
pub fn missed(fixture: &Fixture, job: &str) -> Vec<String> {
    let db = fixture.store();
    let mut rows = db
        .prepare(
            "SELECT o.outcome ->> 'first' || ' ' || (o.outcome ->> 'last') || ' ' || (o.outcome ->> 'count')
             FROM occurrences o JOIN jobs j ON j.id = o.job WHERE o.missed AND j.name = ?1 ORDER BY o.rowid",
        )
        .unwrap();
    let rows = rows.query_map([job], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}
