//! Compares the output of commands in one project with snapshots. The clock is fixed.
//!
//! `INSTA_UPDATE=always` accepts the current output. Paths, ids, digests, durations and versions
//! are replaced, because they differ between runs.

use crate::fixture::{CommandOutput, Fixture};

/// Replacements for text that differs between runs.
const FILTERS: [(&str, &str); 10] = [
    (r"(?m)^sandbox (full|files only|files-only|off).*$", "sandbox [LEVEL]"),
    (r"not kept awake: [^·\n]*|kept awake by [^·\n]*", "[AWAKE]"),
    (r"SQLite [0-9.]+, \d+ bytes", "SQLite [VERSION], [BYTES] bytes"),
    (r#"/[^ \n"]*?\.tmp[A-Za-z0-9]{6}"#, "[ROOT]"),
    (r#"\b01[0-9A-HJKMNP-TV-Z]{24}\b"#, "[ID]"),
    (r#"\b[0-9a-f]{40}\b"#, "[COMMIT]"),
    (r#"\b[0-9a-f]{12}\b"#, "[DIGEST]"),
    (r#"\b\d+(\.\d+)? ?ms\b"#, "[MS]"),
    (r#"runner \d+\.\d+\.\d+"#, "runner [VERSION]"),
    (r#"/[^ \n"]*/target/debug/runner"#, "[RUNNER]"),
];

/// Compares a text with its stored snapshot.
#[track_caller]
pub fn compare(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, with) in FILTERS {
        settings.add_filter(pattern, with);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// A project whose processes share one clock.
struct Scene {
    fixture: Fixture,
    text: String,
}

impl Scene {
    fn new(toml: &str) -> Self {
        let fixture = Fixture::new();
        let scene = Self { fixture, text: String::new() };
        scene.fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
        scene.fixture.configure(toml);
        scene
    }

    /// Runs a command and appends its exit code and its output to the snapshot.
    fn run(&mut self, args: &[&str]) -> &mut Self {
        let CommandOutput { code, out, err } = self.fixture.run_with_clock(args);
        let line = format!("$ runner {}\nexit code: {code}\n", args.join(" "));
        self.text.push_str(&line);
        for (name, text) in [("stdout", out), ("stderr", err)] {
            if !text.is_empty() {
                self.text.push_str(&format!("--- {name} ---\n{}\n", text.trim_end()));
            }
        }
        self.text.push('\n');
        self
    }

    #[track_caller]
    fn compare(&self, name: &str) {
        compare(name, &self.text);
    }
}

const JOBS: &str = "[night]\nzone = \"UTC\"\n\
    [jobs.tidy]\nkind = \"command\"\ntrigger = \"daily 04:00\"\nzone = \"UTC\"\nprogram = \"false\"\n\
    [jobs.ask]\nkind = \"prompt\"\ntrigger = \"manual\"\nprompt = \"Which files are old?\"\nto = \"notes/old.md\"\n";

#[test]
fn job_commands_match_snapshot() {
    let mut scene = Scene::new(JOBS);
    scene.run(&["jobs"]).run(&["jobs", "show", "tidy"]).run(&["run", "tidy"]);
    scene.run(&["jobs", "list"]).run(&["jobs", "reset", "tidy"]).run(&["jobs", "reset"]);
    scene.run(&["jobs", "show", "tydi"]).compare("jobs");
    let listed = scene.fixture.run_with_clock(&["jobs", "--json"]).json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(names, ["ask", "dream", "tidy"]);
    let shown = scene.fixture.run_with_clock(&["jobs", "show", "tidy", "--json"]).json();
    assert_eq!(shown["kind"], "command");
}

#[test]
fn night_commands_match_snapshot() {
    let mut scene = Scene::new(JOBS);
    scene.run(&["status"]).run(&["schedule", "next"]).run(&["budget"]).run(&["runs"]);
    scene.fixture.set_clock("2026-11-22T02:30:00Z");
    scene.run(&["tick"]).run(&["status"]).run(&["runs"]).run(&["report"]).compare("night");
}

#[test]
fn mistakes_match_snapshot() {
    let mut scene =
        Scene::new("[jobs.tidy]\nkind = \"comand\"\ntimeout = \"long\"\n[nigth]\nat = \"25:00\"\n");
    scene.run(&["config", "check"]).run(&["status"]).run(&["run", "tidy"]);
    scene.run(&["run"]).run(&["frobnicate"]).compare("mistakes");
}

#[test]
fn queue_commands_match_snapshot() {
    let mut scene = Scene::new(JOBS);
    scene.run(&["enqueue", "ask", "--key", "k"]).run(&["enqueue", "ask", "--key", "k"]);
    scene.run(&["pause", "ask"]).run(&["status"]).run(&["resume", "ask"]).run(&["enqueue", "as"]);
    scene.run(&["pause", "--all"]).run(&["resume", "--all"]).compare("queue");
}

#[test]
fn settings_commands_match_snapshot() {
    let mut scene = Scene::new(JOBS);
    scene.run(&["config", "get", "jobs.tidy.trigger"]).run(&["config", "get", "night.budjet"]);
    scene.run(&["config", "set", "jobs.ask.timeout", "5m"]).run(&["config", "check"]);
    scene.run(&["config", "set", "jobs.ask.timeout", "five"]).run(&["backends", "list"]);
    scene.compare("settings");
}

#[test]
fn database_commands_match_snapshot() {
    let mut scene = Scene::new(JOBS);
    scene.run(&["run", "ask", "--dry-run"]).run(&["db", "check"]).run(&["db", "path"]);
    scene
        .run(&["db", "restore"])
        .run(&["db", "restore", "/nowhere"])
        .run(&["alerts"])
        .run(&["projects"]);
    scene.compare("database");
}
