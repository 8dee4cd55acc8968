//! Tests the commands of a user's first hour: `init`, jobs, settings, runs and logs.

use std::fs;

use crate::fixture::{CommandOutput, Fixture};

#[test]
fn init_prints_a_summary_without_a_terminal() {
    let fixture = Fixture::new();
    let said = fixture.run(&["init", "--json"]).ends(0).json();
    assert_eq!(said["backend"], "builtin");
    assert_eq!(said["accepted"], true);
    assert_eq!(said["notes"], 0);
    assert_eq!(said["next"].as_array().unwrap().len(), 3);
    assert!(said["written"].to_string().contains("runner.toml"), "{said:#}");
    let again = fixture.run(&["init"]).ends(0);
    for text in ["nothing was written", "without a model", "02:30", "50 calls", "next:"] {
        assert!(again.err.contains(text), "{text}: {again:?}");
    }
    // Without a terminal, `init` asks no questions, so it writes no note and no backend.
    assert_eq!(fs::read_dir(fixture.path("ideas")).unwrap().count(), 0);
    assert!(!fixture.read("runner.toml").contains("backends"));
    fixture.run(&["init", "--private-notes"]).ends(0).expect_text("are private");
}

#[test]
fn job_is_added_run_and_found_by_name() {
    let fixture = Fixture::with("");
    let add = ["jobs", "add", "tidy", "--kind", "command"];
    fixture.run(&add).ends(78).expect_text("has no program").expect_text("KEY=VALUE");
    fixture.run(&[&add[..], &["program"]].concat()).ends(2).expect_text("KEY=VALUE");
    let script = "args=[\"-c\", \"echo one; echo two >&2; exit 3\"]";
    let settings = ["--trigger", "daily 03:00", "program=sh", script];
    fixture.run(&[&add[..], &settings].concat()).ends(0).expect_text("runner jobs run tidy");
    fixture.run(&add).ends(65).expect_text("already a job");
    fixture.run(&["logs", "tidy"]).ends(65).expect_text("tidy has not run yet");
    let queued = fixture.run(&["--quiet", "enqueue", "tidy"]).ends(0).out;
    fixture.run(&["cancel", queued.trim()]).ends(0);
    let none = fixture.run(&["logs", "tidy"]).ends(65);
    none.expect_text("no run of tidy has started yet").expect_text("fix: runner runs show");
    fixture.run(&["jobs", "run", "tidy"]).ends(1).expect_text("failed (exit)");

    let jobs = fixture.run(&["jobs", "--json"]).ends(0).json();
    let tidy = jobs.as_array().unwrap().iter().find(|job| job["job"] == "tidy").unwrap();
    assert_eq!(tidy["trigger"], "daily 03:00");
    assert_eq!(tidy["last"]["class"], "exit", "{tidy:#}");
    assert_eq!(tidy["failures"], 1);
    assert!(tidy["next_due"].is_string(), "{tidy:#}");
    let list = fixture.run(&["jobs"]).ends(0).out;
    for text in ["JOB", "LAST RUN", "BREAKER", "closed, 1 failed", "daily 03:00", "never ran"] {
        assert!(list.contains(text), "{text}: {list}");
    }

    let log = fixture.run(&["logs", "tidy"]).ends(0).out;
    assert!(log.contains("one") && log.contains("two") && log.contains("the run begins"), "{log}");
    let log = fixture.run(&["logs", "tidy", "--json"]).ends(0).json();
    assert_eq!(log["files"]["stdout"], "one\n", "{log:#}");
    fixture.run(&["logs", "nothing"]).ends(65).expect_text("no run nothing");
    let run = log["run"].as_str().unwrap();
    let folder = log["folder"].as_str().unwrap();
    let shown = fixture.run(&["runs", "show", run]).ends(0).out;
    for text in ["folder", "last lines of the log", "last lines of stderr:\n  two"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // Runs that never started do not hide the last one that did.
    for _ in 0..21 {
        let queued = fixture.run(&["--quiet", "enqueue", "tidy"]).ends(0);
        fixture.run(&["cancel", queued.out.trim()]).ends(0);
    }
    fs::remove_dir_all(folder).unwrap();
    fixture.run(&["logs", "tidy"]).expect_text("the log of run").expect_text("no longer exists");
}

#[test]
fn runs_are_filtered_by_outcome_and_time() {
    let toml = "[jobs.good]\nkind = \"command\"\nprogram = \"true\"\n\
        [jobs.bad]\nkind = \"command\"\nprogram = \"false\"\n";
    let fixture = Fixture::with(toml);
    fixture.run(&["run", "good"]).ends(0);
    fixture.run(&["run", "bad"]).ends(1);
    let count = |args: &[&str]| {
        let args = [&["runs", "--json"], args].concat();
        fixture.run(&args).ends(0).json().as_array().unwrap().len()
    };
    for (args, expected) in [
        (&[][..], 2),
        (&["--failed"], 1),
        (&["--failed", "--job", "good"], 0),
        (&["--since", "7d"], 2),
        (&["--failed", "--since", "7d", "--job", "bad"], 1),
    ] {
        assert_eq!(count(args), expected, "{args:?}");
    }
    fixture.run(&["runs", "--failed", "--job", "good"]).ends(0).expect_text("no such runs");
    fixture.run(&["runs", "--since", "yesterday"]).ends(2).expect_text("--since");
}

#[test]
fn denied_access_names_its_setting() {
    let says = |text: &str| {
        let script = format!("echo '{text}' >&2; exit 6");
        let toml = format!(
            "[jobs.x]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n"
        );
        Fixture::with(&toml).run(&["run", "x"]).ends(1).err
    };
    let host = says("curl: (6) Could not resolve host: example.org");
    assert!(host.contains("(example.org); `network = true`"), "{host}");
    let path = says("touch: cannot touch /etc/passwd2: Permission denied");
    assert!(path.contains("denied access to /etc/passwd2; `writes`"), "{path}");
    let test = says("3 tests failed");
    assert!(!test.contains("network") && !test.contains("writes"), "{test}");
}

#[test]
fn page_and_run_show_the_end_of_the_output() {
    let script = "echo first; echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6";
    let fixture = Fixture::with(&format!(
        "[jobs.x]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ));
    fixture.run(&["night"]).ends(1);
    let runs = fixture.run(&["runs", "--job", "x", "--json"]).json();
    let run = runs[0]["id"].as_str().unwrap();
    let folder = fixture.state().join("runs").join(run).display().to_string();
    let page = fixture.run(&["report", "--html"]).ends(0).out.replace("&#x2f;", "/");
    let shown = fixture.run(&["runs", "show", run]).ends(0).out;
    for text in ["last lines of stdout", "first", "last lines of stderr", "network = true", &folder]
    {
        assert!(page.contains(text), "{text}: {page}");
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn settings_are_edited_and_checked() {
    let fixture = Fixture::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n");
    // Without this variable, only the user's config.toml accepts the project's settings.
    let run = |args: &[&str], editor: &str| {
        let mut command = fixture.runner(args);
        command.env("EDITOR", editor).env_remove("RUNNER_CONFIG__TRUST__PATHS");
        CommandOutput::of(command.output().unwrap())
    };
    let edit = |editor: &str| run(&["config", "edit"], editor);
    run(&["trust", "--yes"], "").ends(0);
    edit("sed -i s/true/false/").ends(0).expect_text("ok");
    assert!(fixture.read("runner.toml").contains("program = \"false\""));
    run(&["trust"], "").ends(0);
    edit("sed -i s/kind/kimd/").ends(78).expect_text("did you mean \"kind\"");
    edit("false").ends(78).expect_text("EDITOR=nano runner config edit");
    edit("sed -i s/kimd/kind/").ends(0);
    fixture.run(&["config", "unset", "jobs.tidy"]).ends(0).expect_text("removed jobs.tidy");
    assert!(!fixture.read("runner.toml").contains("tidy"));
    fixture.run(&["config", "unset", "jobs.tidy"]).ends(0).expect_text("nothing was written");
}

#[test]
fn new_timer_needs_no_tick_yet() {
    let fixture = Fixture::with(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 1h\"\n",
    );
    fixture.run(&["status"]).ends(0).expect_text("set up a timer with `runner setup --apply`");
    let record = "{\"pending\": false, \"everywhere\": true, \"hosts\": {\"cron\": {}}}";
    fs::write(fixture.state().join("setup.json"), record).unwrap();
    let status = fixture.run(&["status"]).ends(0).out;
    assert!(!status.contains("NO TICKS"), "{status}");
}
