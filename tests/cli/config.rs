//! Tests `runner config`, and settings from flags and the environment.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::fixture::{CommandOutput, Fixture};

const SAYS: &str = "# Manually.\n[jobs.say]\nkind = \"command\"\ntrigger = \"manual\" # when asked\nprogram = \"sh\"\nargs = [\"-c\", \"echo file >> said\"]\n";

fn with_env(fixture: &Fixture, args: &[&str], name: &str, value: &str) -> CommandOutput {
    CommandOutput::of(fixture.runner(args).env(name, value).output().unwrap())
}

#[test]
fn each_value_names_its_layer() {
    let fixture = Fixture::with("[night]\nat = \"01:00\" # early\n");
    let args = ["config", "show", "--origin", "--json", "--config", "night.budget.calls=7"];
    let shown = with_env(&fixture, &args, "RUNNER_CONFIG__NIGHT__LENGTH", "6h").ends(0).json();
    let of = |key: &str| (shown[key]["value"].clone(), shown[key]["layer"].clone());
    assert_eq!(of("night.at"), ("01:00".into(), "project".into()));
    assert_eq!(of("night.length"), ("6h".into(), "environment".into()));
    assert_eq!(of("night.budget.calls"), (7.into(), "flag".into()));
    assert_eq!(of("defaults.stagger"), ("0s".into(), "user".into()));
    assert_eq!(of("night.zone"), ("system".into(), "default".into()));
    let text = fixture.read("runner.toml");
    let line = 1 + text.lines().position(|line| line.starts_with("at =")).unwrap();
    assert_eq!(shown["night.at"]["line"], line);
    assert_eq!(shown["night.length"]["given"], "RUNNER_CONFIG__NIGHT__LENGTH");
    fixture
        .run(&["config", "show", "--origin"])
        .ends(0)
        .expect_text(&format!("# project {}:{line}\n", fixture.path("runner.toml").display()))
        .expect_text("# default config/default.toml:");
}

#[test]
fn shown_configuration_round_trips() {
    let fixture = Fixture::with(SAYS);
    let shown = fixture.run(&["config", "show"]).ends(0).out;
    let full = fixture.run(&["config", "show", "--json"]).ends(0).json();
    // A project's file may contain all tables except those that are reserved for the user's file.
    let users = ["daemon]", "serve]", "retention]", "trust]", "pools.local]"];
    let tables: Vec<&str> = shown.split("\n[").collect();
    let own = tables.iter().filter(|table| !users.iter().any(|name| table.starts_with(name)));
    let own: Vec<&str> = own.copied().collect();
    assert_eq!(own.len() + users.len(), tables.len());
    fixture.write("runner.toml", own.join("\n["));
    assert_eq!(fixture.run(&["config", "show"]).ends(0).out, shown);
    assert_eq!(fixture.run(&["config", "show", "--json"]).ends(0).json(), full);
    // Outside a project, only the defaults and the user's file apply.
    let bare = fixture.root().join("bare");
    fs::create_dir(&bare).unwrap();
    let bare = bare.to_str().unwrap();
    fixture.run(&["-C", bare, "config", "show"]).ends(0).expect_text("stagger = \"0s\"");
    fixture.run(&["-C", bare, "config", "check"]).ends(0).expect_text("ok");
    assert_eq!(fixture.run(&["-C", bare, "config", "get", "night.at"]).ends(0).out, "02:30\n");
    fixture
        .run(&["-C", bare, "config", "set", "night.at", "01:00"])
        .ends(78)
        .expect_text(&format!("runner -C {bare} init\n"));
}

#[test]
fn get_prints_one_value() {
    let fixture = Fixture::with(SAYS);
    let get = |key: &str| fixture.run(&["config", "get", key]);
    assert_eq!(get("jobs.say.program").ends(0).out, "sh\n");
    assert_eq!(get("jobs.say.args").ends(0).out, "[\"-c\", \"echo file >> said\"]\n");
    assert_eq!(get("jobs.dream.budget").ends(0).out, "{ calls = 10 }\n");
    // The job does not set this key, so the value comes from `[defaults]`.
    assert_eq!(get("jobs.say.retries").ends(0).out, "2\n");
    get("jobs.say.timeout").ends(1).expect_text("not set");
    get("night.lenght").ends(78).expect_text("runner config get night.length");
    get("jobs.sey.program").ends(78).expect_text("runner config get jobs.say.program");
    assert_eq!(fixture.run(&["config", "get", "night.at", "--json"]).ends(0).json(), "02:30");
}

#[test]
fn set_changes_one_line_or_nothing() {
    let fixture = Fixture::with(SAYS);
    let before = fixture.read("runner.toml");
    fixture
        .run(&["config", "set", "jobs.say.trigger", "every 15m"])
        .ends(0)
        .expect_text("runner.toml");
    let after = fixture.read("runner.toml");
    assert_eq!(after, before.replace("\"manual\"", "\"every 15m\""));
    fixture
        .run(&["config", "set", "jobs.say.trigger", "evry 15m"])
        .ends(78)
        .expect_text("did you mean \"every 15m\"");
    fixture
        .run(&["config", "set", "jobs.say.triger", "manual"])
        .ends(78)
        .expect_text("jobs.say.trigger manual");
    assert_eq!(fixture.read("runner.toml"), after);
    fixture
        .run(&["config", "set", "jobs.say.trigger", "every 15m"])
        .ends(0)
        .expect_text("nothing was written");
    // Runner does not follow a link in a project, because the link could point to any of the user's
    // files.
    let kept = fixture.root().join("kept.toml");
    fs::rename(fixture.path("runner.toml"), &kept).unwrap();
    symlink(&kept, fixture.path("runner.toml")).unwrap();
    for args in
        [&["config", "set", "defaults.priority", "-2"][..], &["config", "get", "defaults.priority"]]
    {
        fixture.run(args).ends(78).expect_text("it is a symbolic link, not a regular file");
    }
    fs::remove_file(fixture.path("runner.toml")).unwrap();
    fs::rename(&kept, fixture.path("runner.toml")).unwrap();
    // The user's own file may be a link. Runner writes to the link's target, which keeps its mode.
    let own = fixture.root().join("config/runner/config.toml");
    fs::rename(&own, &kept).unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&kept, &own).unwrap();
    fixture.run(&["config", "set", "--user", "defaults.priority", "-2"]).ends(0);
    assert!(own.is_symlink());
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fixture.run(&["config", "get", "defaults.priority"]).out, "-2\n");
    // The user's file is created if it does not exist.
    fs::remove_file(&own).unwrap();
    fixture.run(&["config", "set", "--user", "daemon.drain", "5s"]).ends(0);
    assert_eq!(fs::read_to_string(own).unwrap(), "[daemon]\ndrain = \"5s\"\n");
}

#[test]
fn check_locates_every_mistake() {
    let fixture = Fixture::with(SAYS);
    assert_eq!(fixture.run(&["config", "check"]).ends(0).out, "ok\n");
    fixture.configure("[night]\nlenght = \"8h\"\nat = \"25:00\"\n[defaults]\nretries = -1\n[jobs.b]\nkind = \"comand\"\n");
    let said = fixture.run(&["config", "check"]).ends(78);
    let carets = said.err.lines().filter(|line| line.trim_end().ends_with('^')).count();
    assert_eq!(carets, 4, "{}", said.err);
    let said = said
        .expect_text("did you mean \"length\"?")
        .expect_text("25:00")
        .expect_text("retries")
        .expect_text("comand");
    assert!(said.out.is_empty());
    let reported = fixture.run(&["config", "check", "--json"]).ends(78).json();
    assert_eq!(reported["mistakes"].as_array().unwrap().len(), 4);
    fixture.write("runner.toml", "[night]\nat = 3 3\nlength = = 2\n");
    fixture
        .run(&["config", "check"])
        .ends(78)
        .expect_text("runner.toml:2:")
        .expect_text("runner.toml:3:");
    for bad in [&b"\xff\xfe"[..], b"a = \"\0\"", b"\xef\xbb\xbfa", b"[night]\r\nat = 3\r\n"] {
        fixture.write("runner.toml", bad);
        fixture.run(&["config", "check"]).ends(78).expect_text("runner.toml:").expect_text("^");
        fixture.run(&["night"]).ends(78).expect_text("runner.toml:");
        fixture.run(&["init"]).ends(78).expect_text("runner.toml:");
    }
}

#[test]
fn flags_and_environment_apply_to_runs() {
    let fixture = Fixture::with(SAYS);
    let said = |fixture: &Fixture| fixture.read("said");
    fixture.write("said", "");
    fixture.run(&["run", "say"]).ends(0);
    let args = "[\"-c\", \"echo env >> said\"]";
    with_env(&fixture, &["run", "say"], "RUNNER_CONFIG__JOBS__SAY__ARGS", args).ends(0);
    let flag = "jobs.say.args=[\"-c\", \"echo flag >> said\"]";
    let both = ["run", "say", "--config", flag];
    with_env(&fixture, &both, "RUNNER_CONFIG__JOBS__SAY__ARGS", args).ends(0);
    fixture.run(&["run", "say"]).ends(0);
    assert_eq!(said(&fixture), "file\nenv\nflag\nfile\n");
}

#[test]
fn ineffective_overrides_are_refused() {
    let fixture = Fixture::with(SAYS);
    let schedule = |command: &[&str], code| {
        let args = [command, &["--config", "night.at=23:00"]].concat();
        fixture.run(&args).ends(code)
    };
    schedule(&["night"], 2)
        .expect_text("--config night.at: ")
        .expect_text("runner config set night.at");
    schedule(&["tick"], 2).expect_text("--config night.at: ");
    schedule(&["enqueue", "say"], 2).expect_text("--set");
    schedule(&["status"], 2);
    schedule(&["schedule", "next", "dream", "-n", "1"], 0).expect_text("23:00");
    fixture.run(&["night", "--config", "night.at"]).ends(2).expect_text("KEY=VALUE");
    fixture
        .run(&["night", "--config", "nigth.budget.calls=3"])
        .ends(2)
        .expect_text("did you mean \"night\"");
    for (name, words) in [
        ("RUNNER_CONFIG__NIGHT__AT", "stores this setting for all commands"),
        ("RUNNER_CONFIG__JOBS__SEY__ARGS", "did you mean \"say\"?"),
        ("RUNNER_CONFIG__NIGTH__BUDGET", "did you mean \"night\"?"),
        ("RUNNER_CONFIG_NIGHT_AT", "two underscores"),
        ("RUNNER_CONFIG__PROJECT__ID", "history"),
    ] {
        with_env(&fixture, &["night"], name, "23:00").ends(78).expect_text(name).expect_text(words);
    }
    assert!(!fixture.path(".runner/reports").exists());
}

#[test]
fn published_schema_matches_printed_schema() {
    let fixture = Fixture::new();
    let schema = fixture.run(&["config", "schema"]).ends(0);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schemas/runner.schema.json");
    if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
        fs::write(&path, &schema.out).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(
        kept == schema.out,
        "{} differs; INSTA_UPDATE=always accepts the new text",
        path.display()
    );
}

#[test]
fn check_json_describes_each_mistake() {
    let fixture = Fixture::with("[night]\nlenght = \"8h\"\n[jobs.dream]\nmax_ideas = \"x\"\n");
    let reported = fixture.run(&["config", "check", "--json"]).ends(78).json();
    let first = &reported["mistakes"][0];
    let text = fixture.read("runner.toml");
    let line = 1 + text.lines().position(|line| line.starts_with("lenght")).unwrap();
    let file = fixture.path("runner.toml").canonicalize().unwrap();
    assert_eq!(
        *first,
        serde_json::json!({
            "file": file, "line": line, "column": 1, "key": "night.lenght",
            "message": "there is no such setting", "hint": "did you mean \"length\"?", "nearest": "length",
        })
    );
    let second = &reported["mistakes"][1];
    assert_eq!(second["key"], "jobs.dream.max_ideas");
    assert_eq!(second["message"], "expected a whole number of at least 1, found \"x\"");
    assert_eq!(second["nearest"], serde_json::Value::Null);
}

#[test]
fn setting_a_key_reports_remaining_mistakes() {
    let fixture = Fixture::with("[night]\nlenght = \"8h\"\n");
    fixture
        .run(&["config", "set", "jobs.dream.max_ideas", "9"])
        .ends(0)
        .expect_text("1 mistake remains")
        .expect_text("runner config check");
    assert!(fixture.read("runner.toml").contains("max_ideas = 9"));
}

#[test]
fn init_with_invalid_settings_writes_nothing() {
    let fixture = Fixture::new();
    fixture.write("runner.toml", "[night]\nlenght = \"8h\"\n");
    let before = fixture.tree(".");
    fixture.run(&["init"]).ends(78).expect_text("runner.toml:2:1: night.lenght");
    assert_eq!(fixture.tree("."), before);
    assert!(!fixture.path("ideas").exists() && !fixture.state().exists());
    fixture.write("runner.toml", "[night]\nlength = \"8h\"\n");
    fixture.write(".ctxrc", "dream:\n  max: many\n");
    fixture.run(&["init"]).ends(78).expect_text(".ctxrc:2:8: dream.max");
    fixture.write(".ctxrc", "dream:\n  max: 4\n");
    fixture.run(&["init"]).ends(0);
    fixture
        .run(&["config", "show", "--origin"])
        .ends(0)
        .expect_text("max_ideas = 4")
        .expect_text("# ctxrc ");
    fixture.run(&["status"]).ends(0);
    // A change to the file takes effect immediately.
    fixture.write(".ctxrc", "dream:\n  cadence: '0 9 * * *'\n");
    fixture.run(&["schedule", "explain", "dream"]).ends(0).expect_text("09:00");
}

#[test]
fn changed_schedule_starts_at_the_change() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 1h\"\n",
    );
    let at = |now: &str, args: &[&str]| fixture.run_at(now, args).ends(0);
    let next = || fixture.count("SELECT next_due / 60000 FROM jobs WHERE name = 'tidy'");
    at("2030-01-10T10:00:00Z", &["tick"]);
    let hourly = next();
    at("2030-01-10T10:10:00Z", &["config", "set", "jobs.tidy.trigger", "every 20m"]);
    assert_eq!(next(), hourly - 30, "the new schedule does not start at the time of the change");
    // A setting in the user's file applies to all projects.
    at("2030-01-10T10:12:00Z", &["config", "set", "--user", "defaults.catch_up", "none"]);
    let kept = "SELECT count(*) FROM jobs WHERE name = 'tidy' AND policy LIKE '%none%'";
    assert_eq!(fixture.count(kept), 1);
    assert_eq!(next(), hourly - 30, "the schedule changed");
}
