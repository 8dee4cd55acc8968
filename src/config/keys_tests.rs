//! Tests that the types, the reader and `config/default.toml` agree on the settings, and that each
//! refused value is reported with its location.

use std::collections::BTreeSet;
use std::fs;

use runner_engine::outcome::Exit;

use toml::Value;

use super::reference::{Setting as Key, is_shared, settings as all};
use super::*;

/// A name that does not resemble any setting.
const NONSENSE: &str = "zzzzzzzzzzzzzzzz";

/// The type of a setting's values.
enum Shape {
    Text,
    Flag,
    Whole(i64),
    Number,
    CountCap,
    MoneyCap,
    TimeCap,
    Texts,
    Duration,
    Wait,
    Limit,
    Age,
    AgeLimit,
    Waits,
    Time,
    Hours,
    Zone,
    Size,
    Trigger,
    OneOf(String),
    Artifacts,
    Id,
}

/// Returns the type of a setting from its schema.
fn shape(key: &Key) -> Shape {
    let node = &key.node;
    let text = |node: &serde_json::Value| {
        let or = |word: &str| {
            node["pattern"].as_str().is_some_and(|it| it.starts_with(&format!("^({word}|")))
        };
        match node["examples"][0].as_str().unwrap_or_default() {
            "8h" if or("unlimited") => Shape::TimeCap,
            "8h" if or("none") => Shape::Limit,
            "8h" => Shape::Duration,
            "30s" => Shape::Wait,
            "90d" if or("none") => Shape::AgeLimit,
            "90d" => Shape::Age,
            "02:30" => Shape::Time,
            "22:00-06:00" => Shape::Hours,
            "Europe/Berlin" => Shape::Zone,
            "daily 02:30" => Shape::Trigger,
            _ if last(key) == "id" => Shape::Id,
            _ => Shape::Text,
        }
    };
    if let Some(first) = node["enum"][0].as_str() {
        return Shape::OneOf(first.to_owned());
    }
    match node["type"].as_str().or(node["anyOf"][0]["type"].as_str()) {
        Some("boolean") => Shape::Flag,
        Some("integer") if node["anyOf"].is_array() => Shape::CountCap,
        Some("number") if node["anyOf"].is_array() => Shape::MoneyCap,
        Some("integer") => Shape::Whole(node["minimum"].as_i64().unwrap()),
        Some("number") => Shape::Number,
        Some("array") if node["items"]["type"] == "object" => Shape::Artifacts,
        Some("array") if node["items"]["pattern"].is_string() => Shape::Waits,
        Some("array") => Shape::Texts,
        Some("string") => text(node),
        None => Shape::Size,
        other => panic!("{}: {other:?}", key.path),
    }
}

/// Returns a valid value of this type, and some invalid values.
fn values(key: &Key) -> (&'static str, Vec<&'static str>) {
    let last = key.path.rsplit('.').next().unwrap();
    let no_text = ["3", "true", "[]", "{ x = 1 }", "1979-05-27", "-0.5"];
    let with = |more: &[&'static str]| [&no_text[..], more].concat();
    match shape(key) {
        Shape::Text => match last {
            "state" | "env_file" | "ca_file" => ("\"/x\"", with(&["\"x\"", "\"\"", "\"~x\""])),
            "backend" => ("\"builtin\"", with(&["\"bultin\"", "\"\""])),
            "pool" => ("\"local\"", with(&["\"locla\"", "\"\""])),
            "group" => ("\"default\"", with(&["\"defualt\"", "\"\""])),
            "to" => ("\"x\"", with(&["\"../x\"", "\"/x\"", "\"dreams/x\"", "\"{dte}\"", "\"\""])),
            "url" if key.path.starts_with("fleet.") => (
                "\"postgresql://a\"",
                with(&["\"x\"", "\"\"", "\"https://a\"", "\"postgresql://me:pw@a\""]),
            ),
            "url" => (
                "\"https://example.org/x\"",
                with(&["\"x\"", "\"\"", "\"http://example.org\"", "\"https://me:pw@example.org\""]),
            ),
            "heartbeat" => ("\"/x\"", with(&["\"x\"", "\"\"", "\"http://example.org\""])),
            "secret" => ("\"A_KEY\"", with(&["\"a key\"", "\"\"", "\"sk-123\""])),
            "listen" => {
                ("\"127.0.0.1:7077\"", with(&["\"x\"", "\"\"", "\"localhost:1\"", "\"127.0.0.1\""]))
            }
            "secret_file" => ("\"/x\"", with(&["\"x\"", "\"\""])),
            "recipient" | "sender" => {
                ("\"me@example.org\"", with(&["\"me\"", "\"\"", "\"-f@x\"", "\"a@b\\nBcc: c@d\""]))
            }
            "ideas" | "dreams" | "done" | "specs" => (
                "\"x\"",
                with(&["\"../x\"", "\"/x\"", "\".warden/x\"", "\".ctxrc\"", "\"dreams/.git/x\""]),
            ),
            "learnings" => ("\"x\"", with(&["\"../x\"", "\"/x\""])),
            "steps" => ("\"_x\"", with(&["\"x\"", "\"../_x\"", "\".git/_x\"", "\"\""])),
            "board" | "daydreams" => {
                ("\"x\"", with(&["\"../x\"", "\".git/x\"", "\"rem/x\"", "\"\""]))
            }
            "agent" => ("\"x\"", with(&["\"../x\"", "\"a b\""])),
            _ => ("\"x\"", with(&[])),
        },
        Shape::Flag => ("true", vec!["3", "\"true\"", "[]", "{}", "\"\""]),
        Shape::Whole(least) => {
            let mut bad =
                vec!["\"3\"", "0.5", "true", "[]", "{}", "inf", "nan", "9223372036854775808"];
            match last {
                "priority" => bad.extend(["2147483648", "-2147483649"]),
                "min_battery" => bad.extend(["101", "-1"]),
                // A host of a fleet need not execute runs itself.
                "slots" if key.path.starts_with("fleet.") => bad.extend(["-1", "4294967296"]),
                "slots" | "catch_up_cap" | "max_turns" | "max_output_tokens" | "num_ctx"
                | "context_window" => bad.extend(["0", "4294967296"]),
                "max_ideas" => bad.extend(["0", "-1"]),
                _ => bad.push("-1"),
            }
            (
                match least {
                    2 => "2",
                    1.. => "1",
                    _ => "0",
                },
                bad,
            )
        }
        Shape::Number => {
            let mut bad = vec!["\"3\"", "-0.5", "true", "[]", "{}", "inf", "-inf", "nan"];
            if last == "max_load" {
                bad.push("1000.5");
            }
            if key.path.starts_with("prices.") {
                bad.push("1.5");
            }
            ("0.5", bad)
        }
        Shape::Texts if ["fallback", "runners"].contains(&last) => (
            "[\"builtin\"]",
            vec![
                "3",
                "\"builtin\"",
                "[3]",
                "[\"bultin\"]",
                "[\"a\"]",
                "[\"builtin\", \"builtin\"]",
                "{}",
            ],
        ),
        Shape::Texts if ["kinds", "enqueue"].contains(&last) => {
            ("[\"lint-wiki\"]", vec!["\"lint-wiki\"", "3", "[1]", "{}", "[\"lint-wiky\"]"])
        }
        Shape::Texts if last == "remotes" => (
            "[\"https://git.example/me/\"]",
            vec![
                "\"https://git.example/\"",
                "3",
                "[1]",
                "{}",
                "[\"x\"]",
                "[\"\"]",
                "[\"https://me:pw@git.example/\"]",
            ],
        ),
        Shape::Texts if last == "skip" => {
            ("[\"loops\"]", vec!["\"loops\"", "3", "[1]", "{}", "[\"loop\"]"])
        }
        Shape::Texts if last == "on" => {
            ("[\"failure\"]", vec!["3", "\"failure\"", "[3]", "[\"failures\"]", "[\"\"]", "{}"])
        }
        Shape::CountCap => {
            ("\"unlimited\"", vec!["\"3\"", "\"none\"", "0.5", "true", "[]", "{}", "-1", "inf"])
        }
        Shape::MoneyCap => {
            ("\"unlimited\"", vec!["\"3\"", "-0.5", "true", "[]", "{}", "inf", "nan", "\"\""])
        }
        Shape::TimeCap => {
            ("\"unlimited\"", with(&["\"8\"", "\"0s\"", "\"-8h\"", "\"soon\"", "\"\""]))
        }
        Shape::Texts => ("[\"x\"]", vec!["3", "\"x\"", "true", "[3]", "[\"x\", 3]", "{}"]),
        Shape::Duration => (
            "\"1h 30m\"",
            with(&["\"8\"", "\"0s\"", "\"-8h\"", "\"8 parsecs\"", "\"\"", "\"99999999h\""]),
        ),
        Shape::Wait => ("\"0s\"", with(&["\"8\"", "\"-8h\"", "\"soon\"", "\"\"", "\"99999999h\""])),
        Shape::Limit => ("\"none\"", with(&["\"non\"", "\"0s\"", "\"-8h\"", "\"\""])),
        Shape::Age => {
            ("\"90d\"", with(&["\"90\"", "\"90h\"", "\"0d\"", "\"-9d\"", "\"9999d\"", "\"\""]))
        }
        Shape::AgeLimit => ("\"none\"", with(&["\"non\"", "\"0d\"", "\"90\"", "\"\""])),
        Shape::Waits if ["paths", "reads"].contains(&last) => {
            ("[\"~/x\"]", vec!["3", "\"~/x\"", "[3]", "[\"x\"]", "{}"])
        }
        Shape::Waits => {
            ("[\"0s\", \"1m\"]", vec!["3", "\"1m\"", "[]", "[3]", "[\"1\"]", "[\"-1m\"]", "{}"])
        }
        Shape::Time => (
            "\"23:59\"",
            with(&["\"24:00\"", "\"2:30\"", "\"02:60\"", "\"02:30:00\"", "02:30:00", "\"\""]),
        ),
        Shape::Hours => (
            "\"22:00-06:00\"",
            with(&["\"9-17\"", "\"09:00\"", "\"09:00-09:00\"", "\"09:00-25:00\"", "\"\""]),
        ),
        Shape::Zone => ("\"Asia/Tokyo\"", with(&["\"Asia/Tokio\"", "\"Mars/Olympus\"", "\"\""])),
        Shape::Size => (
            "\"512KB\"",
            vec!["true", "[]", "-1", "\"1XB\"", "\"MB\"", "\"-1MB\"", "\"\"", "\"99999999999GB\""],
        ),
        Shape::Trigger => (
            "\"manual\"",
            with(&[
                "\"nightl\"",
                "\"every\"",
                "\"every day\"",
                "\"daily 2:30\"",
                "\"cron 61 * * * *\"",
                "\"after nobody\"",
                "\"after a\"",
                "\"\"",
            ]),
        ),
        Shape::OneOf(first) => (
            // Another valid value, in quotes.
            match first.as_str() {
                "builtin" => "\"builtin\"",
                "none" => "\"last\"",
                "skip" => "\"queue\"",
                "on" => "\"off\"",
                "dream" => "\"command\"",
                "desktop" => "\"desktop\"",
                "data" => "\"org\"",
                "chat" => "\"responses\"",
                "schema" => "\"prompt\"",
                _ => "\"strict\"",
            },
            with(&["\"zz\"", "\"\""]),
        ),
        Shape::Artifacts => (
            "[{ from = \"a\", to = \"b\" }]",
            vec![
                "3",
                "\"a\"",
                "[\"a\"]",
                "[{ from = \"a\" }]",
                "[{ frm = \"a\", to = \"b\" }]",
                "[{ from = \"a\", to = \"../b\" }]",
                "[{ from = \"a\", to = 3 }]",
            ],
        ),
        Shape::Id => (
            "\"01K00000000000000000000000\"",
            with(&["\"\"", "\"01K\"", "\"UUUUUUUUUUUUUUUUUUUUUUUUUU\""]),
        ),
    }
}

/// Builds a file that sets `name` in place of the last part of `key`, and returns it with the
/// setting's line number.
fn file(key: &Key, name: &str, value: &str) -> (String, usize) {
    let (table, last) = key.path.rsplit_once('.').unwrap();
    let mut text = String::new();
    let mut need = |lines: &[(&str, &str)]| {
        for (other, value) in lines {
            if *other != last {
                text.push_str(&format!("{other} = {value}\n"));
            }
        }
    };
    let mut header = table.to_owned();
    let kind = key.kinds.first().copied();
    let quoted = kind.map(|kind| format!("{kind:?}")).unwrap_or_default();
    match (table, kind) {
        ("jobs.*", Some("dream")) => header = "jobs.dream".to_owned(),
        // A command job cannot be shared with a fleet.
        ("jobs.*", None) if last == "fleet" => header = "jobs.dream".to_owned(),
        ("jobs.*", Some("prompt")) => {
            header = "jobs.a".to_owned();
            need(&[("kind", "\"prompt\""), ("prompt", "\"x\""), ("to", "\"x\"")]);
        }
        ("jobs.*", Some(kind)) if kind != "command" => {
            header = "jobs.a".to_owned();
            need(&[("kind", &quoted), ("trigger", "\"manual\"")]);
        }
        ("jobs.*", _) => {
            header = "jobs.a".to_owned();
            need(&[("kind", "\"command\""), ("program", "\"x\""), ("trigger", "\"manual\"")]);
        }
        ("jobs.*.budget", _) => header = "jobs.dream.budget".to_owned(),
        ("jobs.*.day_budget", _) => header = "jobs.dream.day_budget".to_owned(),
        ("fleet.*", _) => {
            header = "fleet.a".to_owned();
            need(&[("url", "\"postgresql://a\"")]);
        }
        ("fleet.*.day", _) => {
            header = "fleet.a]\nurl = \"postgresql://a\"\n[fleet.a.day".to_owned();
        }
        ("pools.*", _) => {
            header = "pools.a".to_owned();
            if last != "unlimited" {
                need(&[("unlimited", "true")]);
            }
        }
        ("pools.*.day" | "pools.*.week" | "pools.*.window", _) => {
            header = table.replace('*', "a");
        }
        ("prices.*", _) => {
            header = "prices.a".to_owned();
            need(&[("input_cost_per_token", "0"), ("output_cost_per_token", "0")]);
        }
        ("backends.*", kind) => {
            header = "backends.a".to_owned();
            let kind = kind.unwrap_or("builtin");
            need(&[("type", &format!("{kind:?}"))]);
            match kind {
                "command" => need(&[("program", "\"x\"")]),
                "replay" => need(&[("recording", "\"x\"")]),
                _ => {}
            }
        }
        ("channels.*", _) => {
            header = "channels.a".to_owned();
            match last {
                "url" | "secret" | "secret_file" => {
                    need(&[("type", "\"webhook\""), ("url", "\"https://example.org\"")])
                }
                "recipient" | "sender" => {
                    need(&[("type", "\"email\""), ("recipient", "\"me@example.org\"")])
                }
                "program" | "args" | "env" => {
                    need(&[("type", "\"command\""), ("program", "\"x\"")]);
                }
                _ => need(&[("type", "\"desktop\"")]),
            }
        }
        ("groups.*", _) => header = "groups.a".to_owned(),
        _ => {}
    }
    let text = format!("[{header}]\n{text}{name} = {value}\n");
    let line = text.lines().count();
    (text, line)
}

fn resolved(bytes: &[u8]) -> Result<Config, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runner.toml");
    fs::write(&path, bytes).unwrap();
    let none = folder.path().join("none.toml");
    // Only the user's file may contain these tables and settings.
    let text = String::from_utf8_lossy(bytes);
    let users = [
        "[daemon]",
        "[serve]",
        "[retention]",
        "[trust]",
        "[pools.",
        "[prices.",
        "[fleet.",
        "\nheartbeat =",
    ]
    .into_iter()
    .any(|table| text.contains(table));
    load(&Stack {
        user: if users { &path } else { &none },
        project: (!users).then_some(path.as_path()),
        overrides: &Overrides::default(),
    })
}

fn last(key: &Key) -> &str {
    key.path.rsplit('.').next().unwrap()
}

/// Returns the line number in an error, and asserts that the error shows the line.
#[track_caller]
fn line_named(error: &Failure, text: &str) -> usize {
    let said = error.to_string();
    assert_eq!(error.exit, Exit::Configuration, "{text}: {said}");
    assert!(error.message().contains('^'), "{text}: {}", error.message());
    said.split("runner.toml:")
        .nth(1)
        .and_then(|rest| rest.split(':').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no line number in {said:?} for {text:?}"))
}

/// Returns the keys that an error lists as existing.
fn listed(text: &str) -> BTreeSet<String> {
    let said = resolved(text.as_bytes()).unwrap_err().to_string();
    let list = said.split("(there are: ").nth(1);
    let list = list.unwrap_or_else(|| panic!("no list of keys in {said:?}"));
    let list = list.split(')').next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn reader_accepts_exactly_the_listed_keys() {
    let keys = all();
    let of = |table: &str, kind: &str| -> BTreeSet<String> {
        keys.iter()
            .filter(|key| key.kinds.is_empty() || key.kinds.contains(&kind))
            .filter_map(|key| key.path.strip_prefix(table))
            .map(|rest| rest.split('.').next().unwrap().to_owned())
            .collect()
    };
    let cases = [
        (String::new(), "", ""),
        ("[project]\n".to_owned(), "project.", ""),
        ("[night]\n".to_owned(), "night.", ""),
        ("[night.budget]\n".to_owned(), "night.budget.", ""),
        ("[day]\n".to_owned(), "day.", ""),
        ("[day.budget]\n".to_owned(), "day.budget.", ""),
        ("[daemon]\n".to_owned(), "daemon.", ""),
        ("[serve]\n".to_owned(), "serve.", ""),
        ("[retention]\n".to_owned(), "retention.", ""),
        ("[backends.a]\ntype = \"builtin\"\n".to_owned(), "backends.*.", "builtin"),
        (
            "[backends.a]\ntype = \"command\"\nprogram = \"x\"\n".to_owned(),
            "backends.*.",
            "command",
        ),
        ("[backends.a]\ntype = \"claude\"\n".to_owned(), "backends.*.", "claude"),
        ("[backends.a]\ntype = \"codex\"\n".to_owned(), "backends.*.", "codex"),
        ("[backends.a]\ntype = \"anthropic\"\n".to_owned(), "backends.*.", "anthropic"),
        ("[backends.a]\ntype = \"openai\"\n".to_owned(), "backends.*.", "openai"),
        ("[backends.a]\ntype = \"ollama\"\n".to_owned(), "backends.*.", "ollama"),
        (
            "[backends.a]\ntype = \"replay\"\nrecording = \"x\"\n".to_owned(),
            "backends.*.",
            "replay",
        ),
        ("[groups.a]\nslots = 1\n".to_owned(), "groups.*.", ""),
        ("[notify]\n".to_owned(), "notify.", ""),
        ("[channels.a]\ntype = \"desktop\"\n".to_owned(), "channels.*.", ""),
        ("[defaults]\n".to_owned(), "defaults.", ""),
        ("[jobs.dream.budget]\n".to_owned(), "jobs.*.budget.", ""),
        ("[jobs.dream.day_budget]\n".to_owned(), "jobs.*.day_budget.", ""),
        ("[pools.a]\nunlimited = true\n".to_owned(), "pools.*.", ""),
        ("[pools.a.day]\n".to_owned(), "pools.*.day.", ""),
        ("[pools.a.week]\n".to_owned(), "pools.*.week.", ""),
        ("[pools.a.window]\n".to_owned(), "pools.*.window.", ""),
        ("[fleet.a]\nurl = \"postgresql://a\"\n".to_owned(), "fleet.*.", ""),
        ("[prices.a]\n".to_owned(), "prices.*.", ""),
        ("[jobs.dream]\n".to_owned(), "jobs.*.", "dream"),
        ("[jobs.a]\nkind = \"command\"\nprogram = \"x\"\n".to_owned(), "jobs.*.", "command"),
        (
            "[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"x\"\n".to_owned(),
            "jobs.*.",
            "prompt",
        ),
        ("[jobs.a]\nkind = \"lifecycle\"\n".to_owned(), "jobs.*.", "lifecycle"),
        ("[jobs.a]\nkind = \"audit\"\n".to_owned(), "jobs.*.", "audit"),
        ("[jobs.a]\nkind = \"overnight\"\n".to_owned(), "jobs.*.", "overnight"),
        ("[jobs.a]\nkind = \"curator\"\n".to_owned(), "jobs.*.", "curator"),
        ("[curator]\n".to_owned(), "curator.", ""),
    ];
    for (text, table, kind) in cases {
        let text = format!("{text}{NONSENSE} = 1\n");
        assert_eq!(listed(&text), of(table, kind), "{text}");
    }
}

/// Returns the default configuration with all commented-out settings enabled.
fn uncommented() -> String {
    let setting = |line: &str| {
        let header = line.starts_with('[') && line.ends_with(']') && !line.contains(' ');
        let key = line
            .split_once(" = ")
            .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        header || key
    };
    let lines: Vec<&str> = DEFAULT
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if setting(rest) => rest,
            _ => line,
        })
        .collect();
    lines.join("\n") + "\n"
}

#[test]
fn default_file_documents_exactly_all_keys() {
    let text = uncommented();
    let config = resolved(text.as_bytes()).unwrap();
    assert_eq!(config.jobs.len(), 12, "there must be one job of each kind");
    let table: Table = toml::from_str(&text).unwrap();
    let mut found = BTreeSet::new();
    leaves(&table, &mut Vec::new(), &mut found);
    // A key that several tables share is documented only once.
    let shared = |key: &Key| {
        key.path.starts_with("jobs.*.budget.")
            || key.path.starts_with("jobs.*.day_budget.")
            || key.path.starts_with("jobs.*.")
                && (is_shared(last(key))
                    || ["zone", "success_within", "fleet", "fleet_tags"].contains(&last(key)))
    };
    let wanted: BTreeSet<String> =
        all().iter().filter(|key| !shared(key)).map(|key| key.path.clone()).collect();
    found.retain(|path| {
        !path.starts_with("jobs.*.budget.") && !path.starts_with("jobs.*.day_budget.")
    });
    assert_eq!(found, wanted);
}

fn leaves(table: &Table, path: &mut Vec<String>, found: &mut BTreeSet<String>) {
    for (key, value) in table {
        let named = path.len() == 1
            && ["jobs", "groups", "backends", "pools", "prices", "channels", "fleet"]
                .contains(&&*path[0]);
        path.push(if named { "*".to_owned() } else { key.clone() });
        match value {
            Value::Table(inner) => leaves(inner, path, found),
            _ => {
                found.insert(path.join("."));
            }
        }
        path.pop();
    }
}

#[test]
fn run_overrides_cannot_change_stored_settings() {
    let plain = resolved(b"[groups.few]\nslots = 2\n").unwrap().job_rows().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runner.toml");
    fs::write(&path, "[groups.few]\nslots = 2\n").unwrap();
    let (mut taken, mut refused) = (0, 0);
    for key in all() {
        let name =
            key.path.replace("jobs.*", "jobs.dream").replace("backends.*", "backends.builtin");
        let name = name.replace("groups.*", "groups.few");
        let name = name
            .replace("pools.*", "pools.local")
            .replace("fleet.*", "fleet.a")
            .replace("prices.*", "prices.a")
            .replace("channels.*", "channels.a");
        for reach in [OverrideScope::Run, OverrideScope::Look] {
            let mut overrides = Overrides::default();
            overrides.add_flags(&[format!("{name}={}", values(key).0)]).unwrap();
            overrides.reach = reach;
            let stack = Stack {
                user: &folder.path().join("none"),
                project: Some(&path),
                overrides: &overrides,
            };
            match (load(&stack), reach) {
                (Ok(config), OverrideScope::Run) => {
                    assert_eq!(config.job_rows().unwrap(), plain, "{name}");
                    taken += 1;
                }
                (Err(failure), OverrideScope::Run) => {
                    assert_eq!(failure.exit, Exit::Usage, "{name}");
                    assert!(
                        failure.to_string().starts_with(&format!("--config {name}: ")),
                        "{failure}"
                    );
                    refused += 1;
                }
                (..) => {}
            }
        }
    }
    assert!(taken > 15 && refused > 30, "{taken} {refused}");
}

#[path = "malformed_tests.rs"]
mod malformed;
