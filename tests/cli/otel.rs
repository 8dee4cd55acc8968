//! Tests traces of runs (`--features otel`) with a receiver on this host.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::alerts::{GOOD, Server};
use crate::fixture::{CommandOutput, Fixture};

const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Runs a job with a receiver's address in the environment.
fn run(fixture: &Fixture, job: &str, variable: &str, address: &str) -> CommandOutput {
    let mut command = fixture.runner(&["jobs", "run", job]);
    CommandOutput::of(command.env(variable, address).output().unwrap())
}

fn fixture() -> Fixture {
    Fixture::with(&format!(
        "[jobs.ok]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo fine\"]\n\
         [jobs.bad]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"/nothing/{SECRET}\"\nretries = 0\n"
    ))
}

fn log_of_last(fixture: &Fixture) -> String {
    let run = fixture.run(&["runs", "--json"]).ends(0).json()[0]["id"].as_str().unwrap().to_owned();
    fixture.run(&["logs", &run]).ends(0).out
}

fn spans(trace: &Value) -> &[Value] {
    trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
}

fn named<'a>(trace: &'a Value, name: &str) -> Option<&'a Value> {
    spans(trace).iter().find(|span| span["name"] == name)
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let all = span["attributes"].as_array().unwrap();
    let value = &all.iter().find(|it| it["key"] == key)?["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str())
}

fn times(span: &Value) -> [u64; 2] {
    ["startTimeUnixNano", "endTimeUnixNano"]
        .map(|name| span[name].as_str().unwrap().parse().unwrap())
}

#[test]
fn trace_has_the_phases_of_the_run() {
    let fixture = fixture();
    fixture.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    let server = Server::saying(GOOD);
    let base = format!("http://127.0.0.1:{}/", server.port);
    run(&fixture, "dream", "OTEL_EXPORTER_OTLP_ENDPOINT", &base).ends(0);
    let request = server.next_request();
    assert!(request.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("content-type"), "application/json");
    let trace = request.json();
    let names: Vec<&str> = spans(&trace).iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "requested", "working", "publishing"]);
    let root = named(&trace, "run").unwrap();
    let known = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(attribute(root, "runner.run"), known[0]["id"].as_str());
    for (key, value) in [("job", "dream"), ("kind", "dream"), ("outcome", "succeeded")] {
        assert_eq!(attribute(root, &format!("runner.{key}")), Some(value));
    }
    assert_eq!(attribute(root, "runner.backend"), known[0]["backend"].as_str());
    assert_eq!(attribute(root, "runner.cost_micros"), Some("0"));
    assert_eq!((attribute(root, "runner.class"), &root["status"]["code"]), (None, &1.into()));
    let [begin, end] = times(root);
    let mut last = begin;
    for name in &names[1..] {
        let part = named(&trace, name).unwrap();
        assert_eq!((&part["traceId"], &part["parentSpanId"]), (&root["traceId"], &root["spanId"]));
        let [from, to] = times(part);
        assert!(from == last && from <= to && to <= end, "{name}: {trace}");
        last = to;
    }
    assert_eq!(root["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(root["events"][0]["name"], "settled");
    server.heard_nothing();
}

#[test]
fn trace_of_a_failed_run_has_no_secret() {
    let fixture = fixture();
    let server = Server::saying(GOOD);
    let address = format!("http://127.0.0.1:{}/own/path", server.port);
    run(&fixture, "bad", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &address);
    let request = server.next_request();
    assert!(request.head.starts_with("POST /own/path HTTP/1.1\r\n"), "{}", request.head);
    let trace = request.json();
    let root = named(&trace, "run").unwrap();
    let known = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(attribute(root, "runner.outcome"), Some("failed"));
    assert_eq!(attribute(root, "runner.class"), known[0]["class"].as_str());
    assert_eq!(
        (&root["status"]["code"], &root["status"]["message"]),
        (&2.into(), &known[0]["why"])
    );
    assert!(!String::from_utf8_lossy(&request.body).contains("0123456789abcdef"), "{trace}");
}

#[test]
fn unresponsive_receiver_does_not_block_the_run() {
    let fixture = fixture();
    // This server accepts the request and never answers.
    let silent = Server::start(std::mem::forget);
    let address = format!("http://127.0.0.1:{}", silent.port);
    let began = Instant::now();
    run(&fixture, "ok", "OTEL_EXPORTER_OTLP_ENDPOINT", &address).ends(0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let run_json = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(run_json[0]["outcome"], "succeeded");
    let log = log_of_last(&fixture);
    assert_eq!(log.matches("run's trace was not sent").count(), 1, "{log}");
    assert!(log.contains("no answer within 1 s"), "{log}");
}

#[test]
fn remote_addresses_need_https() {
    let fixture = fixture();
    run(&fixture, "ok", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318").ends(0);
    let log = log_of_last(&fixture);
    assert!(log.contains("expected an https:// address") && !log.contains("collector"), "{log}");
    run(&fixture, "ok", "OTEL_UNRELATED", "http://127.0.0.1:1").ends(0);
    assert!(
        !log_of_last(&fixture).contains("trace"),
        "a trace was sent without a receiver's address"
    );
}
