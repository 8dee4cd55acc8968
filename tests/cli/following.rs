//! Tests that the output of a job's program is visible while the program runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::served::{busy, fixture};

/// A job that writes to both streams, including a secret, then waits for input and writes more.
const TALKS: &str = "[jobs.wait]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\nenv = [\"TOKEN\"]\n\
    args = [\"-c\", \"echo first $TOKEN; printf '\\\\033[2Jbad\\\\n' >&2; echo up > up.fifo; read word < go.fifo; echo last; printf unended\"]\n";

#[test]
fn followed_run_streams_program_output() {
    let fixture = Fixture::with(TALKS);
    fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status().unwrap();
    let mut follower = fixture
        .runner(&["run", "wait", "--follow"])
        .env("TOKEN", "hunter2hunter2")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let mut out = BufReader::new(follower.stdout.take().unwrap());
    let mut said = String::new();
    // Both lines arrive before the program ends, because the program waits for input from this
    // test.
    while !(said.contains("\nout | first ") && said.contains("\nerr | ")) {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(!said.contains("hunter2") && !said.contains('\u{1b}'), "{said}");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    out.read_to_string(&mut said).unwrap();
    assert!(follower.wait().unwrap().success());
    assert!(said.contains("\nout | last\n") && said.contains("\nout | unended\n"), "{said}");
    assert_eq!(said.matches("first").count(), 1, "{said}");
    assert!(said.contains("wait: succeeded"), "{said}");
    let id: String =
        fixture.store().query_row("SELECT id FROM runs", [], |row| row.get(0)).unwrap();
    let logs = fixture.run(&["runs", "logs", &id]).ends(0);
    assert!(
        logs.out.contains("--- stdout\nfirst ") && logs.out.contains("last\nunended"),
        "{logs:?}"
    );
    let again = fixture.run(&["runs", "logs", &id, "--follow"]).ends(0);
    assert!(again.out.contains("out | last\n") && !again.out.contains("---"), "{again:?}");
}

#[test]
fn daemon_run_streams_program_output() {
    let fixture = fixture(TALKS);
    let (daemon, id) = busy(&fixture, &[]);
    let mut follower =
        fixture.runner(&["runs", "logs", &id, "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(follower.stdout.take().unwrap());
    let mut said = String::new();
    while !(said.contains("out | first") && said.contains("begins")) {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    out.read_to_string(&mut said).unwrap();
    assert!(follower.wait().unwrap().success());
    assert!(said.contains("out | last\n") && said.ends_with("wait: succeeded\n"), "{said}");
    assert_eq!(said.matches("first").count(), 1, "{said}");
    daemon.signal(Signal::TERM);
    daemon.ends(0);
}
