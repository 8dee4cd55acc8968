//! Tests jobs that ask a model API, with fallbacks, checks and prices.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::Fixture;
use crate::http::behaviours::Behaviour as B;
use crate::http::dialect::Dialect;
use crate::http::{SeenRequest, Server, Talk};

const KEY: &str = "key-that-nobody-may-see-4711";

fn server(dialect: Dialect, behaviour: B) -> Server {
    Server::start(move |talk, seen| {
        if !lists(talk, seen, dialect) {
            behaviour.answer(dialect, talk, seen, "http://127.0.0.1:1");
        }
    })
}

fn lists(talk: &mut Talk, seen: &SeenRequest, dialect: Dialect) -> bool {
    if seen.is_call() {
        return false;
    }
    let json = [("content-type", "application/json")];
    talk.reply(200, &json, dialect.models(&["m", "other:7b"]));
    true
}

/// Creates a project whose job `ask` calls the backend `mine`.
fn fixture(kind: &str, base: &str, more: &str) -> Fixture {
    let fixture = Fixture::with("");
    let keys = fixture.root().join("keys");
    fs::write(&keys, format!("MY_KEY={KEY}\n")).unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    fixture.configure(&format!(
        "[backends.mine]\ntype = \"{kind}\"\nmodel = \"m\"\nbase_url = \"{base}\"\nkey = \"MY_KEY\"\n\
         env_file = \"{}\"\n{more}\n\
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

/// Checks that only the file `keys` contains the key.
fn keeps_its_key(fixture: &Fixture) {
    assert_eq!(fixture.files_with(KEY), ["keys"]);
}

#[test]
fn each_api_answers_and_reports_usage() {
    for (kind, more, dialect) in [
        ("anthropic", "", Dialect::Messages),
        ("openai", "", Dialect::Chat),
        ("openai", "api = \"responses\"", Dialect::Responses),
        ("ollama", "", Dialect::Ollama),
    ] {
        let server = server(dialect, B::Good);
        let fixture = fixture(kind, &server.url(), more);
        fixture.run(&["run", "ask"]).ends(0);
        assert!(fixture.read("notes/a.md").contains("😀"), "{dialect:?}");
        let run = last(&fixture);
        assert_eq!(run["outcome"], "succeeded", "{run}");
        assert_eq!(run["told"]["usage"]["input_tokens"], 120, "{run}");
        assert_eq!(run["model_calls"], 1, "{run}");
        let asked = server.seen().into_iter().find(SeenRequest::is_call).unwrap();
        let key = asked.header("x-api-key").or(asked.header("authorization"));
        assert!(key.unwrap().contains(KEY), "{dialect:?}");
        assert!(!String::from_utf8_lossy(&asked.body).contains(KEY));
        keeps_its_key(&fixture);
    }
}

#[test]
fn failed_backends_fall_back_in_order() {
    let (gone, good) = (server(Dialect::Messages, B::NoKey), server(Dialect::Ollama, B::Good));
    let fixture = fixture(
        "anthropic",
        &gone.url(),
        &format!(
            "fallback = [\"away\", \"local\", \"builtin\"]\n\
             [backends.away]\ntype = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
             [backends.local]\ntype = \"ollama\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            good.url()
        ),
    );
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert_eq!(
        (run["backend"].as_str(), run["outcome"].as_str()),
        (Some("local"), Some("succeeded")),
        "{run}"
    );
    let lines = run["lines"].to_string();
    assert!(lines.contains("mine: not authorized") && lines.contains("away:"), "{run}");
    assert_eq!((gone.calls(), good.calls()), (1, 1));
    keeps_its_key(&fixture);
}

#[test]
fn long_question_is_not_sent_to_small_fallbacks() {
    let limited = server(Dialect::Messages, B::LimitSeconds);
    let (small, good) = (server(Dialect::Chat, B::Good), server(Dialect::Chat, B::Good));
    let backend = |name: &str, server: &Server, more: &str| {
        let url = server.url();
        format!("[backends.{name}]\ntype = \"openai\"\nmodel = \"m\"\nbase_url = \"{url}\"\n{more}")
    };
    let more = format!(
        "fallback = [\"small\", \"good\"]\n{}{}",
        backend("small", &small, "context_window = 4096\n"),
        backend("good", &good, "")
    );
    let fixture = fixture("anthropic", &limited.url(), &more);
    fixture.write("long.md", "Show the tides of the harbour.\n".repeat(1_000));
    fixture.run(&["config", "set", "jobs.ask.sources", "[\"long.md\"]"]).ends(0);
    // In the second run, the limit is known from the start.
    for run in 1..=2 {
        fixture.run(&["run", "ask"]).ends(0);
        assert_eq!((limited.calls(), small.calls(), good.calls()), (1, 0, run));
    }
    assert!(last(&fixture)["lines"].to_string().contains("small: the request needs about"));
    // If no backend has a sufficient window, the run waits for the end of the limit.
    fixture.run(&["config", "set", "backends.mine.fallback", "[\"small\"]"]).ends(0);
    for calls in 1..=2 {
        fixture.run(&["enqueue", "ask"]).ends(0);
        fixture.run(&["tick"]).ends(0).expect_text("deferred");
        assert_eq!((limited.calls(), small.calls()), (calls, 0));
        let forget = "DELETE FROM limits; DELETE FROM runs WHERE state = 'queued'";
        fixture.store().execute_batch(forget).unwrap();
    }
}

#[test]
fn only_some_failures_fall_back() {
    for (behaviour, falls_back) in
        [(B::LimitSeconds, true), (B::ServerError, true), (B::BadRequest, false)]
    {
        let (first, second) =
            (server(Dialect::Messages, behaviour), server(Dialect::Ollama, B::Good));
        let more = format!(
            "fallback = [\"local\"]\n\
             [backends.local]\ntype = \"ollama\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            second.url()
        );
        let fixture = fixture("anthropic", &first.url(), &more);
        fixture.run(&["run", "ask"]).ends(if falls_back { 0 } else { 78 });
        assert_eq!((first.calls(), second.calls()), (1, falls_back.into()), "{behaviour:?}");
        let run = last(&fixture);
        let calls = 1 + usize::from(falls_back);
        assert_eq!(run["model_calls"], calls, "{run}");
    }
}

#[test]
fn only_unbilled_requests_are_retried() {
    let count = AtomicUsize::new(0);
    let blinks = Server::start(move |talk, seen| {
        let behaviour = match count.fetch_add(1, Ordering::SeqCst) {
            0 => B::Overloaded,
            _ => B::Good,
        };
        behaviour.answer(Dialect::Chat, talk, seen, "");
    });
    let fixture = fixture("openai", &blinks.url(), "");
    fixture.run(&["run", "ask"]).ends(0);
    let run = last(&fixture);
    assert_eq!((&run["model_calls"], &run["outcome"]), (&2.into(), &"succeeded".into()), "{run}");
    assert_eq!(blinks.calls(), 2);

    // If a rate limit ends soon, the run waits and asks again.
    let count = AtomicUsize::new(0);
    let soon = Server::start(move |talk, seen| match count.fetch_add(1, Ordering::SeqCst) {
        0 => talk.reply(429, &[("retry-after", "1")], ""),
        _ => B::Good.answer(Dialect::Messages, talk, seen, ""),
    });
    let fixture = self::fixture("anthropic", &soon.url(), "");
    fixture.run(&["run", "ask"]).ends(0);
    assert_eq!((soon.calls(), &last(&fixture)["model_calls"]), (2, &2.into()));

    // The run does not wait if the limit ends later, or if the request may have been billed.
    for (status, seconds) in [(429, "12"), (500, "1")] {
        let later =
            Server::start(move |talk, _| talk.reply(status, &[("retry-after", seconds)], ""));
        let fixture = self::fixture("anthropic", &later.url(), "");
        fixture.run(&["run", "ask"]).ends(75);
        assert_eq!(later.calls(), 1, "HTTP {status} was retried");
    }

    // The job's budget allows two calls, so the backend is asked only twice.
    let never = server(Dialect::Chat, B::Overloaded);
    let fixture = self::fixture("openai", &never.url(), "");
    fixture.configure("[jobs.ask.budget]\ncalls = 2\n");
    fixture.run(&["run", "ask"]).ends(1);
    assert_eq!(never.calls(), 2);
    let run = last(&fixture);
    assert_eq!((&run["model_calls"], &run["class"]), (&2.into(), &"over-budget".into()), "{run}");

    // Without a limit on calls, a run asks the backend three times before it fails.
    let never = server(Dialect::Messages, B::Overloaded);
    let fixture = self::fixture("anthropic", &never.url(), "");
    for turn in 1..=4 {
        fixture.run(&["run", "ask"]).ends(69).expect_text("Overloaded");
        assert_eq!(never.calls(), 3 * turn);
    }

    for (behaviour, code) in
        [(B::CutMidEvent, 69), (B::ErrorAmongEvents, 69), (B::ServerError, 69), (B::Prose, 0)]
    {
        let server = server(Dialect::Chat, behaviour);
        let fixture = self::fixture("openai", &server.url(), "");
        fixture.run(&["run", "ask"]).ends(code);
        assert_eq!(server.calls(), 1, "{behaviour:?} was retried although it may have been billed");
    }
}

#[test]
fn api_failures_never_reveal_the_key() {
    for (behaviour, code, outcome) in [
        (B::LimitSeconds, 75, "deferred"),
        (B::NoKey, 77, "failed"),
        (B::EchoesTheKey, 78, "failed"),
        (B::NoModel, 69, "failed"),
        (B::RedirectElsewhere, 78, "failed"),
    ] {
        let server = server(Dialect::Messages, behaviour);
        let fixture = fixture("anthropic", &server.url(), "");
        let output = fixture.run(&["run", "ask", "-v"]).ends(code);
        assert!(!output.out.contains(KEY) && !output.err.contains(KEY), "{behaviour:?}");
        assert_eq!(last(&fixture)["outcome"], outcome, "{behaviour:?}");
        keeps_its_key(&fixture);
    }
}

#[test]
fn backend_check_reports_api_and_missing_model() {
    let ollama = server(Dialect::Ollama, B::Good);
    let fixture = fixture("ollama", &ollama.url(), "");
    fixture
        .run(&["backends", "check", "mine"])
        .ends(0)
        .expect_text("Ollama at 127.0.0.1")
        .expect_text("MY_KEY is set");
    let doctor = || {
        let found = fixture.run(&["doctor", "--json"]).json()["findings"].clone();
        let of_backend = |it: &&serde_json::Value| {
            it["where"].as_str().is_some_and(|place| place.starts_with("backend mine"))
        };
        found.as_array().unwrap().iter().find(of_backend).map(ToString::to_string)
    };
    assert_eq!(doctor(), None);
    fixture.run(&["config", "set", "backends.mine.model", "other:8b"]).ends(0);
    let found = doctor().unwrap();
    assert!(found.contains("ollama pull other:8b") && found.contains("check mine"), "{found}");
    fixture
        .run(&["backends", "check", "mine"])
        .ends(69)
        .expect_text("did you mean \"other:7b\"?")
        .expect_text("ollama pull other:8b");
    // Admission finds the same problem before the run asks the model.
    fixture.run(&["run", "ask"]).ends(69).expect_text("ollama pull other:8b");
    assert_eq!(ollama.calls(), 0);

    // The server at the address is not Ollama.
    let page = Server::start(|talk, _| talk.reply(200, &[("content-type", "text/html")], "<html>"));
    fixture.run(&["config", "set", "backends.mine.base_url", &page.url()]).ends(0);
    fixture.run(&["backends", "check", "mine"]).ends(78).expect_text("is not Ollama");

    // The server reports the size of the model's window.
    let small = Server::start(|talk, _| {
        let listed =
            r#"{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":2048}]}"#;
        talk.reply(200, &[("content-type", "application/json")], listed);
    });
    let fixture = self::fixture("openai", &small.url(), "context_window = 9000");
    let fix = "runner config set backends.mine.context_window 2048";
    fixture.run(&["backends", "check", "mine"]).ends(78).expect_text(fix);
    fixture.run(&fix.split(' ').skip(1).collect::<Vec<_>>()).ends(0);
    fixture.run(&["backends", "check", "mine"]).ends(0);

    for (kind, dialect) in [("openai", Dialect::Chat), ("anthropic", Dialect::Messages)] {
        let server = server(dialect, B::Good);
        let fixture = self::fixture(kind, &server.url(), "");
        fixture.run(&["backends", "check", "mine"]).ends(0).expect_text("2 models");
        fixture.run(&["config", "set", "backends.mine.key", "NOT_SET"]).ends(0);
        fixture.run(&["backends", "check", "mine"]).ends(77).expect_text("NOT_SET is not set");
        fixture.run(&["run", "ask"]).ends(77);
        assert_eq!(server.calls(), 0, "{kind}");
        let closed = Server::start(|talk, seen| B::NoKey.answer(Dialect::Chat, talk, seen, ""));
        let fixture = self::fixture(kind, &closed.url(), "");
        fixture.run(&["backends", "check", "mine"]).ends(77).expect_text("invalid x-api-key");
        fixture.run(&["config", "set", "backends.mine.base_url", "http://127.0.0.1:1"]).ends(0);
        fixture.run(&["backends", "check", "mine"]).ends(69);
        keeps_its_key(&fixture);
    }
}

#[test]
fn prices_are_merged_from_three_sources() {
    let server = server(Dialect::Chat, B::Good);
    let fixture = fixture(
        "openai",
        &server.url(),
        "[backends.known]\ntype = \"openai\"\nmodel = \"gpt-5-2025-08-07\"\n",
    );
    fixture
        .run(&["backends", "prices"])
        .ends(0)
        .expect_text("no price; charged the reserved amount")
        .expect_text("$1.25");
    fixture.run(&["run", "ask"]).ends(0);
    fixture.run(&["runs", "show", last(&fixture)["id"].as_str().unwrap()]).ends(0);

    let folder = fixture.root().join("config/runner");
    fs::create_dir_all(&folder).unwrap();
    let list = r#"{"sample_spec": {"max_tokens": "text"},
        "m": {"input_cost_per_token": 1e-05, "output_cost_per_token": 2e-05, "litellm_provider": "openai"},
        "gpt-5": {"input_cost_per_token": 5e-06, "output_cost_per_token": 6e-06}}"#;
    fs::write(folder.join("prices.json"), list).unwrap();
    let all = fixture.run(&["backends", "prices", "--json"]).ends(0).json();
    let of = |name: &str| {
        let backends = all["backends"].as_array().unwrap();
        backends.iter().find(|it| it["backend"] == name).unwrap()["price"].clone()
    };
    assert_eq!(
        (&of("mine")["input"], &of("mine")["source"]),
        (&10.0.into(), &"prices.json".into())
    );
    assert_eq!(of("known")["input"], 5.0, "{all}");
    assert_eq!(all["passed_over"], 1);
    fixture.run(&["run", "ask"]).ends(0);
    // The first request had no price and was charged its full reservation, a tenth of the run's
    // budget of one dollar. The second is charged $10 per million for 120 input tokens and $20 per
    // million for 30 output tokens.
    let used = fixture.run(&["budget", "--json"]).ends(0).json()["budgets"][0]["used"].clone();
    assert_eq!(used["money"], 0.1018, "{used}");

    fixture.run(&["config", "set", "--user", "prices.gpt-5.input_cost_per_token", "7e-6"]).ends(0);
    // The name of a model may contain dots.
    let dotted = "prices.gpt-4.1.input_cost_per_token";
    let output = "prices.gpt-4.1.output_cost_per_token";
    fixture.run(&["config", "set", "--user", dotted, "2e-6", output, "3e-6"]).ends(0);
    fixture.run(&["config", "get", dotted]).ends(0).expect_text("0.000002");
    fixture.run(&["config", "get", "prices.gpt-4.1"]).ends(0).expect_text("0.000003");
    let quoted = "prices.\"gpt-4.1\".input_cost_per_token";
    fixture.run(&["config", "get", quoted]).ends(0).expect_text("0.000002");
    fixture.run(&["config", "show"]).ends(0).expect_text("[prices.\"gpt-4.1\"]");
    let flag = format!("{quoted}=5e-6");
    fixture
        .run(&["config", "show", "--config", &flag])
        .ends(2)
        .expect_text("set --user prices.gpt-4.1.");
    fixture.run(&["config", "set", "--user", quoted, "4e-6"]).ends(0);
    fixture.run(&["config", "get", dotted]).ends(0).expect_text("0.000004");
    for (unknown, why) in [
        ("prices.\"gpt-4.1\".input", "there is no setting"),
        ("prices.gpt-4.1.input", "a table with input_cost_per_token, output_cost_per_token"),
    ] {
        fixture.run(&["config", "set", "--user", unknown, "2"]).ends(78).expect_text(why);
    }
    fixture.run(&["config", "unset", "--user", "prices.\"gpt-4.1\""]).ends(0);
    let all = fixture.run(&["backends", "prices", "--json"]).ends(0).json();
    let models = all["models"].as_array().unwrap();
    let own = models.iter().find(|it| it["model"] == "gpt-5").unwrap();
    assert_eq!((&own["input"], &own["source"]), (&7.0.into(), &"[prices]".into()));

    fs::write(folder.join("prices.json"), "{\n  \"m\": oops}").unwrap();
    fixture.run(&["backends", "prices"]).ends(78).expect_text("line 2");
    fixture.run(&["run", "ask"]).ends(0);
}

#[test]
fn cancelled_run_is_not_over_budget() {
    let (asked, wait) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let server = Server::start(move |talk, seen| {
        if !lists(talk, seen, Dialect::Ollama) {
            asked.lock().unwrap().send(()).unwrap();
            // Returns when the test drops `release`.
            let _released = held.lock().unwrap().recv();
        }
    });
    let fixture = fixture("ollama", &server.url(), "[jobs.ask.budget]\ntime = \"1m\"");
    let mut run = fixture.runner(&["run", "ask"]).spawn().unwrap();
    wait.recv().unwrap();
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    fixture.run(&["cancel", &id]).ends(0);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert_eq!(last(&fixture)["outcome"], "cancelled");
    drop(release);
}
