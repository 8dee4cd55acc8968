//! Tests backends with scripted agents: fallbacks, keys and checks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::fixture::Fixture;

const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/backends/tests/fakes");
const KEY: &str = "key-that-nobody-may-see-4711";

/// Creates a key file, and a project whose job asks a scripted `claude`.
fn fixture(situation: &str, more: &str) -> Fixture {
    let fixture = Fixture::with("");
    let keys = fixture.root().join("keys");
    let calls = fixture.root().join("calls");
    let text = format!(
        "ANTHROPIC_API_KEY={KEY}\nSITUATION={situation}\nCALLS={}\nSECRET={KEY}\n",
        calls.display()
    );
    fs::write(&keys, text).unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    fixture.configure(&format!(
        "[backends.mine]\ntype = \"claude\"\nprogram = \"{FAKES}/claude\"\nenv_file = \"{}\"\n{more}\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"mine\"\nprompt = \"Say.\"\nto = \"notes/a.md\"\n\
         trigger = \"manual\"\nretries = 0\n",
        keys.display()
    ));
    fixture
}

fn last(fixture: &Fixture) -> serde_json::Value {
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].clone();
    fixture.run(&["runs", "show", id.as_str().unwrap(), "--json"]).json()
}

/// Checks that no file except `keys` contains the key.
fn keeps_its_key(fixture: &Fixture) {
    assert_eq!(fixture.files_with(KEY), ["keys"]);
}

#[test]
fn failed_tool_uses_are_counted() {
    let fixture = fixture("FailedTools", "");
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert!(run["lines"].to_string().contains("2 uses of tools failed"), "{run}");
}

#[test]
fn agent_usage_is_recorded_without_the_key() {
    let fixture = fixture("Good", "");
    fixture.run(&["run", "ask"]).ends(0);
    assert!(fixture.read("notes/a.md").contains("The question was: Say."));
    let run = last(&fixture);
    assert_eq!(run["outcome"], "succeeded", "{run}");
    assert_eq!(run["backend"], "mine");
    assert_eq!(run["told"]["usage"]["cost_micros"], 50_000, "{run}");
    assert_eq!(run["told"]["asked"], 1);
    fixture
        .run(&["runs", "show", run["id"].as_str().unwrap()])
        .ends(0)
        .expect_text("9 tokens in (0 cached), 3 out, $0.050000");
    keeps_its_key(&fixture);
}

#[test]
fn fallbacks_answer_and_are_reported() {
    let fixture = fixture("NoAuth", "fallback = [\"other\", \"builtin\"]");
    fixture.configure(&format!(
        "[backends.other]\ntype = \"codex\"\nprogram = \"{}/no-such-agent\"\n",
        fixture.root().display()
    ));
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert_eq!(run["outcome"], "degraded", "{run}");
    assert_eq!(run["backend"], "builtin", "{run}");
    let lines = run["lines"].to_string();
    assert!(lines.contains("did not answer: mine: not authorized"), "{run}");
    assert!(lines.contains("did not answer: other:"), "{run}");
    assert_eq!(run["model_calls"], 3, "{run}");
    keeps_its_key(&fixture);

    // Runner skips a backend whose program is missing, and reports that it was not asked.
    let fixture = self::fixture("Good", "fallback = [\"builtin\"]");
    fixture.run(&["config", "set", "backends.mine.program", "/no/such/agent"]).ends(0);
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert_eq!((run["outcome"].as_str(), &run["model_calls"]), (Some("degraded"), &1.into()));
    let lines = run["lines"].to_string();
    assert!(lines.contains("was not asked: mine:"), "{run}");
    assert!(!lines.contains("did not answer"), "{run}");

    // If the fallback's program is missing as well, the message mentions both problems.
    fixture.configure("[backends.other]\ntype = \"command\"\nprogram = \"/no/such/program\"\n");
    fixture.run(&["config", "set", "backends.mine.fallback", "[\"other\"]"]).ends(0);
    let said = fixture.run(&["run", "ask"]).ends(69).err;
    assert!(said.contains("/no/such/program") && said.contains("skipped: mine:"), "{said}");

    // Runner does not ask the fallback after an unusable answer.
    let fixture = self::fixture("Empty", "fallback = [\"builtin\"]");
    fixture.run(&["run", "ask"]).ends(1);
    let run = last(&fixture);
    assert_eq!((run["class"].as_str(), &run["model_calls"]), (Some("malformed"), &1.into()));
}

#[test]
fn backend_failures_never_reveal_the_key() {
    for (situation, code) in [("LeaksOnCrash", 1), ("NoAuth", 77), ("RateLimited", 75)] {
        let fixture = fixture(situation, "");
        let said = fixture.run(&["run", "ask", "-v"]).ends(code);
        assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "{situation}");
        keeps_its_key(&fixture);
    }
}

#[test]
fn backend_check_reports_missing_prerequisites() {
    let fixture = fixture("Good", "");
    let list = fixture.run(&["backends", "list", "--json"]).ends(0).json();
    assert_eq!(list[1]["name"], "mine", "{list}");
    assert_eq!(list[1]["problem"], serde_json::Value::Null, "{list}");
    fixture.run(&["backends", "list"]).ends(0).expect_text("ready");
    let checked = fixture.run(&["backends", "check", "mine", "--json"]).ends(0).json();
    assert_eq!(checked["ready"], true, "{checked}");
    fixture.run(&["backends", "check", "mine"]).ends(0).expect_text("ANTHROPIC_API_KEY is set");
    let sandbox = fixture.run(&["backends", "check", "mine"]).out;
    let sandbox = sandbox.lines().find(|line| line.contains("  sandbox  ")).unwrap();
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let level = status["sandbox"].as_str().unwrap();
    assert!(sandbox.contains("ok") && sandbox.contains(level), "{sandbox} {level}");
    fixture.run(&["status"]).ends(0).expect_text(&format!("sandbox {level}"));
    fixture.run(&["backends", "check", "builtin"]).ends(0);
    fixture.run(&["backends", "check", "mind"]).ends(78).expect_text("did you mean \"mine\"?");

    let keys = fixture.root().join("keys");
    fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    fixture.run(&["backends", "check", "mine"]).ends(77).expect_text("chmod 600");
    fixture.run(&["run", "ask"]).ends(77).expect_text("chmod 600");
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();

    fs::write(&keys, "SITUATION=Good\n").unwrap();
    fixture.run(&["backends", "check", "mine"]).ends(77).expect_text("claude setup-token");
    fixture.run(&["run", "ask"]).ends(77).expect_text("the environment contains no key");

    fixture.run(&["config", "set", "backends.mine.program", "/no/such/agent"]).ends(0);
    fixture.run(&["backends", "check", "mine"]).ends(69).expect_text("npm install -g");
}

#[test]
fn invalid_fallbacks_are_refused() {
    for (fallback, why) in [
        ("[\"mine\"]", "cannot fall back to itself"),
        ("[\"bultin\"]", "did you mean \"builtin\"?"),
        ("[\"builtin\", \"builtin\"]", "named twice"),
    ] {
        let fixture = fixture("Good", &format!("fallback = {fallback}"));
        fixture.run(&["config", "check"]).ends(78).expect_text(why);
    }
}

#[test]
fn fallback_with_exhausted_pool_is_skipped() {
    let fixture = fixture("NoAuth", "pool = \"local\"\nfallback = [\"other\"]");
    let keys = fixture.root().join("other-keys");
    fs::write(&keys, "CODEX_API_KEY=k\nSITUATION=Good\n").unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    // The first run calls both backends, and both calls are charged to both pools. The second run
    // could need two calls, but `max` has only one left.
    fixture.configure(&format!(
        "[backends.other]\ntype = \"codex\"\nprogram = \"{FAKES}/codex\"\nenv_file = \"{}\"\n\
         pool = \"max\"\n[jobs.ask.budget]\ncalls = 2\n",
        keys.display()
    ));
    let user = fixture.root().join("config/runner/config.toml");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    fs::write(&user, "[pools.local]\nunlimited = true\n[pools.max.week]\ncalls = 3\n").unwrap();
    let asked = || fixture.count("SELECT COUNT(*) FROM requests WHERE backend = 'other'");
    fixture.run(&["run", "ask"]);
    assert_eq!((asked(), &last(&fixture)["model_calls"]), (1, &2.into()));
    let dry = fixture.run(&["run", "ask", "--dry-run"]);
    assert!(dry.out.contains("not asked: other: pool max"), "{}{}", dry.out, dry.err);
    let said = fixture.run(&["run", "ask"]).ends(77);
    let run = last(&fixture);
    assert_eq!(asked(), 1, "the backend was asked although its pool has too few calls left");
    assert_eq!(
        (run["class"].as_str(), &run["model_calls"]),
        (Some("auth"), &1.into()),
        "{run}{}",
        said.err
    );
    let lines = run["lines"].to_string();
    assert!(lines.contains("was not asked: other: pool max in "), "{run}");
    assert!(!lines.contains("did not answer: other"), "{run}");
}

#[test]
fn fallback_replaces_backend_with_exhausted_pool() {
    let fixture = fixture("Good", "pool = \"max\"\nfallback = [\"builtin\"]");
    fixture.configure("[jobs.ask.budget]\ncalls = 1\n");
    let user = fixture.root().join("config/runner/config.toml");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    fs::write(&user, "[pools.max.week]\ncalls = 1\n").unwrap();
    fixture.run(&["run", "ask"]).ends(0);
    assert_eq!(last(&fixture)["backend"], "mine");
    let dry = fixture.run(&["run", "ask", "--dry-run"]);
    assert!(dry.out.contains("not asked: mine: pool max"), "{}{}", dry.out, dry.err);
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert_eq!(
        (&run["outcome"], &run["backend"]),
        (&"degraded".into(), &"builtin".into()),
        "{run}"
    );
    assert!(run["lines"].to_string().contains("was not asked: mine: pool max in "), "{run}");
    assert_eq!(fixture.count("SELECT COUNT(*) FROM requests WHERE backend = 'mine'"), 1);

    // If the fallback is not ready either, the run fails because the pool is exhausted.
    fixture.configure("[backends.other]\ntype = \"command\"\nprogram = \"/no/such/program\"\n");
    fixture.run(&["config", "set", "backends.mine.fallback", "[\"other\"]"]).ends(0);
    fixture.run(&["run", "ask"]).ends(1).expect_text("pool max in ");
    assert_eq!(last(&fixture)["class"], "over-budget");
}

#[test]
fn run_waits_for_the_first_of_several_limits() {
    let fixture = fixture("Good", "fallback = [\"second\"]");
    fixture.configure("[backends.second]\ntype = \"command\"\nprogram = \"true\"\n");
    fixture.run(&["status"]).ends(0);
    fixture.run(&["tick"]).ends(0);
    let project: String =
        fixture.store().query_row("SELECT id FROM projects", [], |row| row.get(0)).unwrap();
    let hour = 3_600_000;
    let now = jiff::Timestamp::now().as_millisecond();
    let limit = |backend: &str, hours: i64| {
        let sql = "INSERT OR REPLACE INTO limits (pool, until, streak, noted, why) VALUES (?1, ?2, 1, 0, 'weekly limit')";
        let pool = format!("{project} {backend}");
        fixture.store().execute(sql, (pool, now + hours * hour)).unwrap();
    };
    let waits = || {
        fixture.run(&["enqueue", "ask"]).ends(0);
        fixture.run(&["tick"]).ends(0).expect_text("deferred");
        let ready = fixture.count("SELECT max(ready_at) FROM runs WHERE state = 'queued'");
        fixture.store().execute("DELETE FROM runs WHERE state = 'queued'", []).unwrap();
        (ready - now) / hour
    };
    limit("mine", 5);
    limit("second", 72);
    assert!((5..8).contains(&waits()), "the run waits for the limit that ends first");
    // A broken fallback does not fail a run that only has to wait.
    fixture.run(&["config", "set", "backends.second.program", "/no/such/program"]).ends(0);
    assert!((5..8).contains(&waits()));
}

#[test]
fn limit_met_during_a_run_defers_it_if_the_fallback_fails() {
    let fixture = fixture("RateLimited", "fallback = [\"second\"]");
    let keys = fixture.root().join("second-keys");
    fs::write(&keys, format!("ANTHROPIC_API_KEY={KEY}\nSITUATION=NoAuth\n")).unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    fixture.configure(&format!(
        "[backends.second]\ntype = \"claude\"\nprogram = \"{FAKES}/claude\"\nenv_file = \"{}\"\n",
        keys.display()
    ));
    fixture.run(&["enqueue", "ask"]).ends(0);
    fixture.run(&["tick"]).ends(0).expect_text("deferred");
}

#[test]
fn backend_test_asks_one_question() {
    let fixture = fixture("Good", "");
    let said = fixture.run(&["backends", "test", "mine", "--json"]).ends(0).json();
    assert_eq!(said["reply"]["letters"], 6, "{said}");
    assert_eq!(said["usage"]["output_tokens"], 3, "{said}");
    assert!(said["request"]["schema"].is_object(), "{said}");
    let shown = fixture.run(&["backends", "test", "mine"]).ends(0).out;
    let texts = [
        "reply",
        "9 tokens in, 3 out, $0.050000",
        "1000 tokens, 120 s, one call",
        "1 call, 12 tokens, $0.05; to day ",
        "([day.budget])",
    ];
    for text in texts {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // Both tests are charged to the project's day and recorded as runs.
    let sql = "SELECT calls * 1000000 + tokens FROM budget_usage WHERE level = 'day'";
    assert_eq!(fixture.count(sql), 2_000_024);
    assert_eq!(fixture.count("SELECT count(*) FROM reservations WHERE open"), 0);
    assert_eq!(said["charged"]["micros"], 50_000, "{said}");
    fixture.run(&["runs", "show", said["run"].as_str().unwrap()]).ends(0);
    let runs = fixture.state().join("runs");
    assert_eq!(fs::read_dir(runs).map_or(0, Iterator::count), 0, "the run's folder is left behind");
    fixture.run(&["backends", "test", "builtin"]).ends(0).expect_text("{\"letters\":6}");
    fixture.run(&["backends", "test", "nobody"]).ends(78).expect_text("fix: runner backends list");
    keeps_its_key(&fixture);
}

#[test]
fn backend_test_reports_its_failure() {
    let fixture = fixture("NoAuth", "");
    let said = fixture.run(&["backends", "test", "mine"]).ends(77);
    assert!(said.out.contains("auth: not authorized: Invalid API key"), "{said:?}");
    keeps_its_key(&fixture);
    // Failed tests raise no alert, not even one about a circuit breaker.
    for _ in 0..3 {
        fixture.run(&["backends", "test", "mine"]).ends(77);
    }
    fixture.run(&["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM alerts"), 0);
}

#[test]
fn backend_test_needs_budget() {
    let fixture = fixture("Good", "[day.budget]\ncalls = 1\n");
    fixture.run(&["backends", "test", "mine"]).ends(0);
    let refused = fixture.run(&["backends", "test", "mine"]).ends(1);
    assert!(refused.err.contains("[day.budget]) has 0 calls left"), "{refused:?}");
    assert!(refused.err.contains("fix: runner budget"), "{refused:?}");
    assert_eq!(fixture.count("SELECT count(*) FROM requests"), 1);
}
