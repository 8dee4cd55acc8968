//! Tests the doctor's findings, one defect at a time, and the environment of a scheduled tick.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::fixture::{CommandOutput, Fixture};

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Creates a fixture with a fake `crontab`, in a folder that only a login shell has in its `PATH`.
fn fixture(toml: &str) -> Fixture {
    let fixture = Fixture::with(toml);
    let tab = fixture.root().join("tab");
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in -l) cat '{0}' 2>/dev/null || {{ echo 'no crontab for me' >&2; exit 1; }} ;; -r) rm '{0}' ;; *) cat \"$1\" > '{0}' ;; esac\n",
        tab.display()
    );
    program(&fixture.root().join("login/crontab"), &text);
    fixture
}

fn run(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    CommandOutput::of(command(fixture, args).output().unwrap())
}

fn command(fixture: &Fixture, args: &[&str]) -> Command {
    let path = format!("{}:/usr/bin:/bin", fixture.root().join("login").display());
    let mut command = fixture.runner(args);
    command.env("PATH", path).env("USER", "me").env("XDG_RUNTIME_DIR", "/nonexistent");
    command
}

/// Returns the places of all findings except notes.
fn places(said: &CommandOutput) -> Vec<String> {
    let found = said.json();
    let wrong = found["findings"].as_array().unwrap().iter();
    wrong
        .filter(|one| one["severity"] != "note")
        .map(|one| one["where"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn doctor_reports_programs_missing_at_night() {
    let fixture = fixture(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"tidy-up\"\nartifacts = [{ from = \"a\", to = \"a\" }]\ntrigger = \"night\"\n",
    );
    program(&fixture.root().join("login/tidy-up"), "#!/bin/sh\n");
    let here = run(&fixture, &["doctor", "--json"]);
    assert!(!places(&here).contains(&"tidy-up".to_owned()), "{here:?}");
    let bare = run(&fixture, &["doctor", "--as-scheduler", "--json"]).ends(1);
    assert!(places(&bare).contains(&"tidy-up".to_owned()), "{bare:?}");
    assert_eq!(bare.json()["as_scheduler"], true);
    run(&fixture, &["doctor", "--as-scheduler"]).ends(1).expect_text("runner setup --apply");
    // With the saved environment, the program is also found at night.
    run(&fixture, &["setup", "--scheduler", "cron", "--apply"]).ends(0);
    let frozen = run(&fixture, &["doctor", "--as-scheduler", "--json"]);
    assert!(!places(&frozen).contains(&"tidy-up".to_owned()), "{frozen:?}");
}

#[test]
fn keys_reach_ticks_only_through_credentials_file() {
    let fixture = fixture(
        "[backends.mine]\ntype = \"command\"\nprogram = \"sh\"\nenv = [\"MY_KEY\"]\n[jobs.dream]\nbackend = \"mine\"\n",
    );
    run(&fixture, &["setup", "--scheduler", "cron", "--apply"])
        .ends(0)
        .expect_text("MY_KEY is never saved by setup");
    let keyless = run(&fixture, &["doctor", "--as-scheduler", "--json"]).ends(1);
    let others = self::fixture(
        "[backends.api]\ntype = \"openai\"\nmodel = \"m\"\n[backends.near]\ntype = \"ollama\"\nmodel = \"m\"\n[backends.own]\ntype = \"command\"\nprogram = \"sh\"\n",
    );
    run(&others, &["setup", "--scheduler", "cron", "--apply"])
        .ends(0)
        .expect_text("api: OPENAI_API_KEY is never saved by setup")
        .expect_text("near: no key is needed")
        .expect_text("own: its program keeps a login under HOME");
    assert!(places(&keyless).contains(&"MY_KEY".to_owned()), "{keyless:?}");
    let file = fixture.root().join("config/runner/credentials.env");
    fs::write(&file, "MY_KEY=hush\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    run(&fixture, &["doctor", "--as-scheduler"]).ends(78).expect_text("chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let said = run(&fixture, &["doctor", "--as-scheduler", "--json"]);
    assert!(!places(&said).contains(&"MY_KEY".to_owned()), "{said:?}");
    assert!(!said.out.contains("hush"), "{said:?}");
}

/// Checks that a scheduled tick uses the saved variables, the keys, and the host's variables.
#[test]
fn host_tick_uses_the_saved_environment() {
    let fixture = fixture(
        "[jobs.tell]\nkind = \"command\"\nprogram = \"tell\"\nenv = [\"MY_KEY\", \"FROM_HOST\"]\nartifacts = [{ from = \"env\", to = \"env\" }]\ntrigger = \"manual\"\n",
    );
    program(
        &fixture.root().join("login/tell"),
        "#!/bin/sh\necho \"$USER $MY_KEY $FROM_HOST\" > \"$RUNNER_OUT/env\"\n",
    );
    let mut setup = command(&fixture, &["setup", "--scheduler", "cron", "--apply"]);
    setup.env("CLAUDE_CONFIG_DIR", "/night/claude").env("CODEX_HOME", "/night/codex");
    CommandOutput::of(setup.output().unwrap()).ends(0);
    let saved = fs::read_to_string(fixture.state().join("environment")).unwrap();
    assert!(saved.contains("/night/claude") && saved.contains("/night/codex"), "{saved}");
    let keys = fixture.root().join("config/runner/credentials.env");
    fs::write(&keys, "# mine\nMY_KEY=hush\n").unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    run(&fixture, &["enqueue", "tell"]).ends(0);
    let environment = fixture.state().join("environment");
    let tick = || {
        let args = ["tick", "--environment", environment.to_str().unwrap()];
        let mut command = fixture.runner(&args);
        // A host scheduler starts the tick with only these variables.
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("FROM_HOST", "host");
        CommandOutput::of(command.output().unwrap())
    };
    // A log that nobody reads must not grow without limit.
    let log = fixture.state().join("timer.log");
    fs::write(&log, vec![b'x'; (1 << 20) + 1]).unwrap();
    tick().ends(0);
    assert_eq!(fixture.read("env"), "me hush host\n");
    assert!(!log.exists() && fixture.state().join("timer.log.old").exists());
    fs::remove_file(&environment).unwrap();
    tick().ends(78).expect_text("runner setup --apply");
}

#[test]
fn each_setup_defect_has_a_finding() {
    let fixture = fixture("");
    let wrong = |words: &str, hint: &str| {
        let said = run(&fixture, &["doctor"]).ends(1);
        assert!(said.out.contains(words) && said.out.contains(hint), "{words}: {said:?}");
    };
    wrong("no host timer is set up", "runner setup --apply");
    run(&fixture, &["setup", "--scheduler", "cron", "--apply"]).ends(0);
    let tab = fixture.root().join("tab");
    let text = fs::read_to_string(&tab).unwrap();
    fs::write(&tab, "").unwrap();
    wrong("runner's lines are gone", "runner setup --apply");
    // Nothing starts a tick, so none is promised.
    wrong("note: timers: `runner tick` has not run yet\n", "runner setup --status");
    fs::write(&tab, text.replace("0,15", "7")).unwrap();
    wrong("differ from those that setup would write now", "runner setup --apply");
    fs::write(&tab, format!("{text}9 * * * * runner tick\n")).unwrap();
    wrong("several schedulers run ticks", "crontab -e");
    fs::write(&tab, text).unwrap();
    let environment = fixture.state().join("environment");
    let frozen = fs::read(&environment).unwrap();
    fs::remove_file(&environment).unwrap();
    wrong("the file does not exist", "runner setup --apply");
    fs::write(&environment, frozen).unwrap();
    wrong("other users can read or write it", "chmod 600");
    fs::set_permissions(&environment, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(fixture.state().join("tick.stamp"), "2020-01-01T00:00:00Z\n").unwrap();
    wrong("`runner tick` has not run since 2020-01-01", "runner tick");
    fs::write(fixture.state().join("tick.stamp"), "2199-01-01T00:00:00Z\n").unwrap();
    wrong("the last tick is in the future", "date");
    run(&fixture, &["tick"]);
    fixture.write(
        "dreams/.failed",
        "{\"at\":\"2026-11-01T00:00:00Z\",\"job\":\"dream\",\"class\":\"crash\",\"message\":\"fell\",\"hint\":\"look\",\"run_id\":\"01M80Z6VYFHD73P8T596P945VE\"}",
    );
    wrong("failed at 2026-11-01 00:00:00 UTC: fell", "jobs reset dream");
    fs::remove_file(fixture.path("dreams/.failed")).unwrap();
    let good = fixture.read("runner.toml");
    fixture.write("runner.toml", "[nigth]\n");
    wrong("nigth", "");
    fixture.write("runner.toml", good);
    fs::write(fixture.state().join("setup.json"), "{").unwrap();
    wrong("setup.json", "runner setup --apply");
}

#[test]
fn missing_or_unauthenticated_agent_is_reported() {
    let fixture =
        fixture("[backends.claude]\ntype = \"claude\"\n[jobs.dream]\nbackend = \"claude\"\n");
    let hints = |said: &CommandOutput| -> Vec<String> {
        let found = said.json();
        let all = found["findings"].as_array().unwrap();
        let ours = |one: &&serde_json::Value| {
            one["where"].as_str().unwrap().starts_with("backend claude of ")
        };
        let hints = all.iter().filter(ours).map(|one| &one["hint"]);
        hints.map(|hint| hint.as_str().unwrap().to_owned()).collect()
    };
    let said = run(&fixture, &["doctor", "--json"]).ends(1);
    assert_eq!(hints(&said), ["npm install -g @anthropic-ai/claude-code", "claude setup-token"]);
    program(&fixture.root().join("login/claude"), "#!/bin/sh\necho 2.1.330\n");
    let said = run(&fixture, &["doctor", "--json"]).ends(1);
    assert_eq!(hints(&said), ["claude setup-token"]);
    // At night, the program's folder is not in `PATH`.
    let said = run(&fixture, &["doctor", "--as-scheduler", "--json"]).ends(1);
    assert!(hints(&said).contains(&"npm install -g @anthropic-ai/claude-code".to_owned()));
}

#[test]
fn job_without_work_is_not_overdue() {
    let fixture = Fixture::new();
    let overdue = |now: &str| {
        let said = fixture.run_at(now, &["doctor", "--json"]);
        places(&said).iter().any(|place| place.starts_with("job dream of "))
    };
    fixture.run_at("2026-11-01T12:00:00Z", &["init"]).ends(0);
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.run_with_clock(&["run", "dream"]).ends(0);
    assert!(!overdue("2026-11-08T11:00:00Z"));
    assert!(overdue("2026-11-09T12:00:00Z"));
    fixture.run_with_clock(&["run", "dream"]).ends(0).expect_text("no delta");
    assert!(!overdue("2026-11-09T12:00:01Z"));
}

/// Checks that a shell can parse every fix, and that only notes have none.
#[test]
fn every_fix_is_a_valid_command() {
    let fixture = fixture(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"tidy-up\"\nartifacts = [{ from = \"a\", to = \"a\" }]\n",
    );
    fs::write(fixture.state().join("tick.stamp"), "2020-01-01T00:00:00Z\n").unwrap();
    fixture.write("dreams/.lock", "999999 somebody\n");
    let said = run(&fixture, &["doctor", "--as-scheduler", "--json"])
        .ends(1)
        .expect_text("export USER=$(id -un) && runner setup --apply");
    let found = said.json();
    let mut count = 0;
    for one in found["findings"].as_array().unwrap() {
        let Some(hint) = one["hint"].as_str() else {
            assert_eq!(one["severity"], "note", "{one}");
            continue;
        };
        let read = fixture.command("sh", &["-n", "-c", hint]).status().unwrap();
        assert!(read.success() && !hint.contains("   "), "{one}");
        count += 1;
    }
    assert!(count >= 3, "{said:?}");
}
