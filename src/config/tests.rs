//! Tests of the resolved layers and the reported errors.

use std::fs;

use runner_engine::policy::{CatchUpScope, Overlap, Policy};

use runner_jobs::command::CommandSpec;
use runner_jobs::dream::DreamSpec;

use super::*;

fn with(text: &str) -> Result<Config, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runner.toml");
    fs::write(&path, text).unwrap();
    load(&Stack {
        user: &folder.path().join("none.toml"),
        project: Some(&path),
        overrides: &Overrides::default(),
    })
}

#[test]
fn embedded_default_is_valid() {
    let config = with("").unwrap();
    assert_eq!(config.jobs.keys().collect::<Vec<_>>(), ["dream"]);
    assert_eq!(config.night.budget.calls, Some(50));
    assert_eq!(config.night.budget.micros, Some(5_000_000));
    assert_eq!(config.jobs["dream"].spec.total.as_secs(), 30 * 60);
}

#[test]
fn project_overrides_single_keys() {
    let config = with("[night]\nat = \"23:15\"\n[jobs.dream]\nmax_ideas = 7\n").unwrap();
    assert_eq!(config.night.at.to_string(), "23:15:00");
    let Some(dream) = config.jobs["dream"].spec.kind.of::<DreamSpec>() else {
        panic!("not a dream")
    };
    assert_eq!(dream.max_ideas, 7);
    assert_eq!(dream.quiet_minutes, 5);
}

#[test]
fn mistakes_name_file_line_and_hint() {
    let cases = [
        ("[night]\nlenght = \"8h\"\n", ":2", "did you mean \"length\""),
        ("[jobs.dream]\nbackend = \"bultin\"\n", ":2", "did you mean \"builtin\""),
        ("[jobs.dream]\n\nmax_idea = 3\n", ":3", "did you mean \"max_ideas\""),
        ("[jobs.dream]\ncanonical = 3\n", ":2", "jobs.dream.canonical"),
        ("[jobs.dream]\ntimeout = \"soon\"\n", ":2", "timeout"),
        ("[jobs.dream]\nkind = \"dreem\"\n", ":2", "dream"),
        ("[night]\nzone = \"Mars/Olympus\"\n", ":2", "time zone"),
        ("[jobs.report]\nkind = \"prompt\"\n", ":1", "\"report\" is reserved"),
        ("[night\n", ":1", "runner.toml"),
        (
            "[jobs.a]\nkind = \"command\"\nprogram = \"x\"\nartifacts = [{ from = \"a\", to = \".Git/config\" }]\n",
            ":4",
            "a job cannot write to .git",
        ),
        ("[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"../x.md\"\n", ":4", ".."),
        ("[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"n/{dat}.md\"\n", ":4", "placeholder"),
        ("night = 3\n", ":1", "table"),
        ("[jobs.a]\nkind = \"prompt\"\nquiet = \"9-17\"\n", ":3", "time of day"),
        ("[defaults]\nqiuet = \"09:00-17:00\"\n", ":2", "did you mean \"quiet\""),
        ("[jobs.dream]\nmax_lod = 1\n", ":2", "did you mean \"max_load\""),
        ("[jobs.dream]\nquiet = \"09:00-09:00\"\n", ":2", "starts and ends at the same time"),
        ("[jobs.dream]\ncatch_up = \"lats\"\n", ":2", "did you mean \"last\""),
        ("[jobs.dream]\ncatch_up_cap = 0\n", ":2", "of at least 1"),
        ("[jobs.dream]\ncatch_up_window = \"0s\"\n", ":2", "duration"),
        ("[jobs.dream]\noverlap = true\n", ":2", "one of \"skip\""),
        ("[jobs.dream]\nmin_battery = 101\n", ":2", "from 0 to 100"),
        ("[jobs.dream]\nmax_load = -1\n", ":2", "from 0 to 1000"),
        ("[jobs.dream]\nmax_load = 2000\n", ":2", "from 0 to 1000"),
        ("[jobs.dream]\nretries = -1\n", ":2", "whole number"),
        ("[jobs.dream]\nbackoff = []\n", ":2", "at least one item"),
        ("[jobs.dream]\nbackoff = [\"1\"]\n", ":2", "duration"),
        (
            "[defaults]\n\ngroup = \"nightly\"\n[groups.nightl]\nslots = 1\n",
            ":3",
            "did you mean \"nightl\"",
        ),
        ("[groups.a]\nslots = 0\n", ":2", "of at least 1"),
        ("[groups.a]\n", ":1", "no slots"),
        ("[backends.a]\nmodel = \"x\"\n", ":1", "no type"),
        (
            "[backends.a]\ntype = \"openai\"\nnum_ctx = 9\n",
            ":3",
            "only backends of type ollama have this setting",
        ),
        (
            "[jobs.a]\nkind = \"command\"\nprogram = \"x\"\nmax_ideas = 1\n",
            ":4",
            "only jobs of kind dream have this setting",
        ),
        ("[backends.a]\ntype = \"comand\"\n", ":2", "did you mean \"command\""),
        ("[backends.a]\ntype = \"replay\"\n", ":1", "no recording"),
        ("[channels.a]\nurl = \"https://example.org\"\n", ":1", "no type"),
        ("[jobs.a]\ntrigger = \"night\"\n", ":1", "no kind"),
        ("[groups.a]\nslot = 2\n", ":", "slots"),
        ("[jobs.dream]\nzone = \"Asia/Tokyo\"\n", ":2", "the zone of the night"),
        ("[defaults]\nzone = \"Asia/Tokio\"\n", ":2", "time zone"),
        (
            "[jobs.dream]\ntrigger = \"after draem\"\n",
            ":2",
            "there is no job \"draem\"; did you mean \"dream\"",
        ),
        ("[jobs.dream]\ntrigger = \"after dream\"\n", ":2", "cannot follow itself"),
        ("[jobs.dream]\ntrigger = \"cron 61 * * * *\"\n", ":2", "cron expression"),
    ];
    for (text, line, hint) in cases {
        let error = with(text).unwrap_err().to_string();
        assert!(
            error.contains("runner.toml") && error.contains(line) && error.contains(hint),
            "{text}: {error}"
        );
    }
}

const COMMANDS: &str = "[jobs.a]\nkind = \"command\"\nprogram = \"x\"\n[jobs.b]\nkind = \"command\"\nprogram = \"x\"\n";

#[test]
fn trigger_cycles_are_reported() {
    let dream = |trigger: &str| format!("[jobs.dream]\ntrigger = \"{trigger}\"\n");
    let text = COMMANDS.replace("[jobs.b]", "trigger = \"after b\"\n[jobs.b]");
    let circle = format!("{text}trigger = \"after dream ends\"\n{}", dream("after a"));
    let error = with(&circle).unwrap_err().to_string();
    assert!(
        error.contains(":4:11: jobs.a.trigger: ")
            && error.contains("a after b after dream after a"),
        "{error}"
    );
    let line = format!("{text}enabled = false\n{}", dream("after a"));
    let config = with(&line).unwrap();
    assert_eq!(config.jobs["dream"].when.to_string(), "after a");
}

#[test]
fn jobs_have_the_default_policy() {
    let config = with(COMMANDS).unwrap();
    for job in config.jobs.values() {
        assert_eq!(job.policy, Policy::default());
        assert_eq!(job.zone, config.night.zone);
    }
}

#[test]
fn job_keys_override_the_defaults() {
    let text = format!(
        "{COMMANDS}trigger = \"daily 07:00\"\nquiet = \"none\"\nstart_within = \"3h\"\nmax_load = 0\npriority = 4\n\
         backoff = [\"0s\", \"1h\"]\nzone = \"Asia/Tokyo\"\n\
         [defaults]\nquiet = \"22:00-06:00\"\nstart_within = \"2h\"\nmin_interval = \"6h\"\nmin_battery = 20\n\
         max_load = 1.5\ngroup = \"few\"\npriority = -1\nzone = \"Europe/Berlin\"\ncatch_up = \"all\"\n\
         catch_up_cap = 7\nstagger = \"0s\"\noverlap = \"replace\"\nretries = 0\n[groups.few]\nslots = 1\n\
         [groups.default]\nslots = 9\n"
    );
    let config = with(&text).unwrap();
    let (a, b) = (&config.jobs["a"].policy, &config.jobs["b"].policy);
    let hours = SignedDuration::from_hours;
    assert_eq!(a.quiet.unwrap().to, Time::constant(6, 0, 0, 0));
    assert_eq!((a.start_within, a.max_load), (Some(hours(2)), Some(1500)));
    assert_eq!((a.priority, a.min_battery), (-1, 20));
    assert_eq!((a.group.name.as_str(), a.group.slots), ("few", 1));
    assert_eq!((a.retry.count, a.overlap), (0, Overlap::Replace));
    assert_eq!((a.catch_up.which, a.catch_up.cap), (CatchUpScope::All, 7));
    assert_eq!(a.catch_up.stagger, SignedDuration::ZERO);
    assert_eq!((b.quiet, b.start_within), (None, Some(hours(3))));
    assert_eq!((b.max_load, b.priority), (None, 4));
    assert_eq!(b.min_interval, Some(hours(6)));
    assert_eq!(b.retry.backoff, [SignedDuration::ZERO, hours(1)]);
    // The night keeps its zone; a scheduled job has its own zone or that of `[defaults]`.
    assert_eq!(config.jobs["a"].zone, config.night.zone);
    let rows = config.job_rows().unwrap();
    let row = rows.iter().find(|row| row.name == "b").unwrap();
    assert_eq!(row.schedule.zone, "Asia/Tokyo");
    let text = text.replace("zone = \"Asia/Tokyo\"\n", "");
    assert_eq!(with(&text).unwrap().jobs["b"].zone, "Europe/Berlin");
    let config = with("[groups.default]\nslots = 9\n").unwrap();
    assert_eq!(config.jobs["dream"].policy.group.slots, 9);
}

fn with_set(text: &str, job: &str, settings: &[(&str, &str)]) -> Result<Config, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runner.toml");
    fs::write(&path, text).unwrap();
    let settings: Vec<(String, String)> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let stack = Stack {
        user: &folder.path().join("none.toml"),
        project: Some(&path),
        overrides: &Overrides::default(),
    };
    load_with(&stack, job, &settings)
}

#[test]
fn command_line_settings_override_one_job() {
    let settings =
        [("budget.calls", "3"), ("timeout", "90s"), ("max_ideas", "2"), ("quiet", "09:00-10:00")];
    let config = with_set("[jobs.dream]\nmax_ideas = 9\n", "dream", &settings).unwrap();
    let dream = &config.jobs["dream"];
    assert_eq!(dream.spec.budget.calls, Some(3));
    assert_eq!(dream.spec.total.as_secs(), 90);
    assert_eq!(dream.spec.budget.ideas, Some(2));
    assert!(dream.policy.quiet.is_some());
    let config = with_set(COMMANDS, "a", &[("program", "3 4"), ("args", "[\"-c\"]")]).unwrap();
    let Some(command) = config.jobs["a"].spec.kind.of::<CommandSpec>() else {
        panic!("not a command")
    };
    assert_eq!((command.program.as_str(), command.args.len()), ("3 4", 1));
    assert!(with_set("", "dream", &[]).is_ok());
}

#[test]
fn set_errors_name_their_key() {
    for (key, value, why) in [
        ("max_idea", "3", "did you mean \"max_ideas\""),
        ("budget.cals", "3", "did you mean \"calls\""),
        ("budget.calls", "many", "whole number"),
        ("budget", "3", "table"),
        ("timeout", "soon", "not a duration"),
        ("max_idea_bytes", "1XB", "not a size"),
        ("kind.of", "x", "schedule"),
        ("backend.x", "y", "not a table"),
        ("trigger", "manual", "schedule"),
        ("catch_up_window", "1h", "schedule"),
        ("backend", "bultin", "did you mean \"builtin\""),
        ("", "x", "KEY=VALUE"),
        ("a..b", "x", "KEY=VALUE"),
    ] {
        let failure = with_set("[jobs.dream]\n", "dream", &[(key, value)]).unwrap_err();
        let said = failure.to_string();
        assert!(said.starts_with(&format!("--set {key}: ")) && said.contains(why), "{key}: {said}");
        assert_eq!(failure.exit, runner_engine::outcome::Exit::Usage, "{key}");
    }
    // An error in the file is reported for the file, regardless of `--set`.
    let said = with_set("[jobs.dream]\nmax_idea = 3\n", "dream", &[("max_idea", "3")]);
    assert!(said.unwrap_err().to_string().contains("runner.toml:2"));
    let said = with_set("", "dreem", &[("timeout", "1m")]);
    assert!(said.unwrap_err().to_string().contains("no job"));
}
