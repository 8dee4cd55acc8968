//! Who answers: agents that are scripts, their fallbacks, keys and checks, through the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::house::House;

const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/backends/tests/fakes");
const KEY: &str = "key-that-nobody-may-see-4711";

/// A project whose job asks `claude`, which is a script, with a file of keys.
fn house(situation: &str, more: &str) -> House {
    let house = House::with("");
    let keys = house.root().join("keys");
    let calls = house.root().join("calls");
    let text = format!(
        "ANTHROPIC_API_KEY={KEY}\nSITUATION={situation}\nCALLS={}\nSECRET={KEY}\n",
        calls.display()
    );
    fs::write(&keys, text).unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    house.configure(&format!(
        "[backends.mine]\ntype = \"claude\"\nprogram = \"{FAKES}/claude\"\nenv_file = \"{}\"\n{more}\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"mine\"\nprompt = \"Say.\"\nto = \"notes/a.md\"\n\
         trigger = \"manual\"\nretries = 0\n",
        keys.display()
    ));
    house
}

fn last(house: &House) -> serde_json::Value {
    let id = house.run(&["runs", "--json"]).json()[0]["id"].clone();
    house
        .run(&["runs", "show", id.as_str().unwrap(), "--json"])
        .json()
}

/// No file of the house but its keys shows the key.
fn keeps_its_key(house: &House) {
    for (path, content) in house.tree(".") {
        let shown = content
            .windows(KEY.len())
            .any(|part| part == KEY.as_bytes());
        assert!(!shown || path.ends_with("keys"), "{path} shows the key");
    }
}

#[test]
fn an_agent_answers_and_what_it_told_is_kept_without_its_key() {
    let house = house("Good", "");
    house.run(&["run", "ask"]).ends(0);
    assert!(house.read("notes/a.md").contains("The question was: Say."));
    let run = last(&house);
    assert_eq!(run["outcome"], "succeeded", "{run}");
    assert_eq!(run["backend"], "mine");
    assert_eq!(run["told"]["usage"]["cost_micros"], 50_000, "{run}");
    assert_eq!(run["told"]["asked"], 1);
    house
        .run(&["runs", "show", run["id"].as_str().unwrap()])
        .ends(0)
        .says("9 tokens in (0 cached), 3 out, $0.050000");
    keeps_its_key(&house);
}

#[test]
fn who_cannot_answer_is_followed_by_who_can_and_the_report_says_so() {
    let house = house("NoAuth", "fallback = [\"other\", \"builtin\"]");
    house.configure(&format!(
        "[backends.other]\ntype = \"codex\"\nprogram = \"{}/no-such-agent\"\n",
        house.root().display()
    ));
    house.run(&["run", "ask"]).ends(0);
    let run = last(&house);
    assert_eq!(run["outcome"], "degraded", "{run}");
    assert_eq!(run["backend"], "builtin", "{run}");
    let lines = run["lines"].to_string();
    assert!(
        lines.contains("did not answer: mine: not authorised"),
        "{run}"
    );
    assert!(lines.contains("did not answer: other:"), "{run}");
    assert_eq!(run["model_calls"], 3, "{run}");
    keeps_its_key(&house);

    // One that is not even there is passed over before anything is asked, and said to be.
    let house = self::house("Good", "fallback = [\"builtin\"]");
    house
        .run(&["config", "set", "backends.mine.program", "/no/such/agent"])
        .ends(0);
    house.run(&["run", "ask"]).ends(0);
    let run = last(&house);
    assert_eq!(
        (run["outcome"].as_str(), &run["model_calls"]),
        (Some("degraded"), &1.into())
    );
    let lines = run["lines"].to_string();
    assert!(lines.contains("was not asked: mine:"), "{run}");
    assert!(!lines.contains("did not answer"), "{run}");

    // An answer that cannot be used is nobody else's affair.
    let house = self::house("Empty", "fallback = [\"builtin\"]");
    house.run(&["run", "ask"]).ends(1);
    let run = last(&house);
    assert_eq!(
        (run["class"].as_str(), &run["model_calls"]),
        (Some("malformed"), &1.into())
    );
}

#[test]
fn a_failure_keeps_the_key_to_itself() {
    for (situation, code) in [("LeaksOnCrash", 1), ("NoAuth", 77), ("RateLimited", 75)] {
        let house = house(situation, "");
        let said = house.run(&["run", "ask", "-v"]).ends(code);
        assert!(
            !said.out.contains(KEY) && !said.err.contains(KEY),
            "{situation}"
        );
        keeps_its_key(&house);
    }
}

#[test]
fn a_check_says_what_is_there_and_ends_with_what_is_missing() {
    let house = house("Good", "");
    let list = house.run(&["backends", "list", "--json"]).ends(0).json();
    assert_eq!(list[1]["name"], "mine", "{list}");
    assert_eq!(list[1]["problem"], serde_json::Value::Null, "{list}");
    house.run(&["backends", "list"]).ends(0).says("ready");
    let checked = house
        .run(&["backends", "check", "mine", "--json"])
        .ends(0)
        .json();
    assert_eq!(checked["ready"], true, "{checked}");
    house
        .run(&["backends", "check", "mine"])
        .ends(0)
        .says("ANTHROPIC_API_KEY is set");
    let walls = house.run(&["backends", "check", "mine"]).out;
    let walls = walls
        .lines()
        .find(|line| line.contains("  walls  "))
        .unwrap();
    let status = house.run(&["status", "--json"]).ends(0).json();
    let level = status["walls"].as_str().unwrap();
    assert!(
        walls.contains("ok") && walls.contains(level),
        "{walls} {level}"
    );
    house
        .run(&["status"])
        .ends(0)
        .says(&format!("walls {level}"));
    house.run(&["backends", "check", "builtin"]).ends(0);
    house
        .run(&["backends", "check", "mind"])
        .ends(78)
        .says("did you mean \"mine\"?");

    let keys = house.root().join("keys");
    fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    house
        .run(&["backends", "check", "mine"])
        .ends(77)
        .says("chmod 600");
    house.run(&["run", "ask"]).ends(77).says("chmod 600");
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();

    fs::write(&keys, "SITUATION=Good\n").unwrap();
    house
        .run(&["backends", "check", "mine"])
        .ends(77)
        .says("claude setup-token");
    house
        .run(&["run", "ask"])
        .ends(77)
        .says("no key in the environment");

    house
        .run(&["config", "set", "backends.mine.program", "/no/such/agent"])
        .ends(0);
    house
        .run(&["backends", "check", "mine"])
        .ends(69)
        .says("npm install -g");
}

#[test]
fn fallbacks_that_lead_nowhere_are_refused_with_their_place() {
    for (fallback, why) in [
        ("[\"mine\"]", "cannot fall back to itself"),
        ("[\"bultin\"]", "did you mean \"builtin\"?"),
        ("[\"builtin\", \"builtin\"]", "named twice"),
    ] {
        let house = house("Good", &format!("fallback = {fallback}"));
        house.run(&["config", "check"]).ends(78).says(why);
    }
}

#[test]
fn a_fallback_whose_pool_has_no_room_is_not_asked() {
    let house = house("NoAuth", "pool = \"local\"\nfallback = [\"other\"]");
    let keys = house.root().join("other-keys");
    fs::write(&keys, "CODEX_API_KEY=k\nSITUATION=Good\n").unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    // Two calls a run, one of each: the second run does not fit into what the first one left.
    house.configure(&format!(
        "[backends.other]\ntype = \"codex\"\nprogram = \"{FAKES}/codex\"\nenv_file = \"{}\"\n\
         pool = \"max\"\n[jobs.ask.budget]\ncalls = 2\n",
        keys.display()
    ));
    let user = house.root().join("config/runner/config.toml");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    fs::write(
        &user,
        "[pools.local]\nunlimited = true\n[pools.max.week]\ncalls = 3\n",
    )
    .unwrap();
    let asked = || house.count("SELECT COUNT(*) FROM requests WHERE backend = 'other'");
    house.run(&["run", "ask"]);
    assert_eq!((asked(), &last(&house)["model_calls"]), (1, &2.into()));
    let dry = house.run(&["run", "ask", "--dry-run"]);
    assert!(
        dry.out.contains("is not asked: other: pool max"),
        "{}{}",
        dry.out,
        dry.err
    );
    let said = house.run(&["run", "ask"]).ends(77);
    let run = last(&house);
    assert_eq!(asked(), 1, "the pool has one call left, the run needs two");
    assert_eq!(
        (run["class"].as_str(), &run["model_calls"]),
        (Some("auth"), &1.into()),
        "{run}{}",
        said.err
    );
    let lines = run["lines"].to_string();
    assert!(
        lines.contains("was not asked: other: pool max in "),
        "{run}"
    );
    assert!(!lines.contains("did not answer: other"), "{run}");
}
