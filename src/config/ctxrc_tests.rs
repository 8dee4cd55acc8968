//! Tests for the settings and errors that a `.ctxrc` produces.

use std::fs;
use std::time::Duration;

use runner_backends::BackendKind;
use runner_jobs::dream::DreamSpec;

use super::{Config, Overrides, ResolvedSettings, Stack, TriggerSpec, load, mistakes};
use crate::ui::Failure;

/// Creates a project with these files, and passes its configuration sources to `read`.
fn with<T>(ctxrc: &str, project: &str, read: impl FnOnce(&Stack<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".ctxrc"), ctxrc).unwrap();
    let file = folder.path().join("runner.toml");
    fs::write(&file, project).unwrap();
    read(&Stack {
        user: &folder.path().join("none"),
        project: Some(&file),
        overrides: &Overrides::default(),
    })
}

fn of(ctxrc: &str, project: &str) -> Result<Config, Failure> {
    with(ctxrc, project, load)
}

#[test]
fn empty_folder_as_ctxrc_is_ignored() {
    with("", "", |stack| {
        let place = stack.project.unwrap().with_file_name(".ctxrc");
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        load(stack).unwrap();
        fs::write(place.join("x"), "").unwrap();
        let said = load(stack).unwrap_err().to_string();
        assert!(said.contains("not a regular file"), "{said}");
    });
}

#[test]
fn ctxrc_keys_map_to_settings() {
    let ctxrc = "# somebody else's\ncontext_dir: .context\nnotify: {events: [a, b]}\ndream:\n  enabled: false\n  \
        mode: discipline\n  max: 7\n  cadence: \"30 2 * * *\"\n  quiet_minutes: 60\n  model: fast\n  budget:\n    \
        calls: 3\n    money: 0.5\n  executor: [my-model, --json]\nother: |\n  dream: no\n";
    let config = of(ctxrc, "").unwrap();
    let job = config.job("dream").unwrap();
    let Some(dream) = job.spec.kind.of::<DreamSpec>() else { panic!("{job:?}") };
    assert_eq!((dream.max_ideas, dream.quiet_minutes, job.enabled), (7, 60, false));
    assert_eq!(job.when.to_string(), "cron 30 2 * * *");
    assert_eq!((job.spec.budget.calls, job.spec.budget.micros), (Some(3), Some(500_000)));
    assert_eq!(job.spec.total, Duration::from_secs(1800), "a missing key changed a setting");
    let backend = &config.backends[&job.spec.backend];
    let BackendKind::Command(own, child) = &backend.kind else { panic!("{backend:?}") };
    assert_eq!((own.program.as_str(), child.model.as_deref()), ("my-model", Some("fast")));
    assert_eq!(child.args, ["--json"]);
    // The project's `runner.toml` overrides individual settings of the section. If it gives the
    // backend another type, it replaces the backend.
    let faster = of(ctxrc, "[backends.ctxrc]\nmodel = \"faster\"\n").unwrap();
    assert_eq!(faster.backends["ctxrc"].kind.model(), Some("faster"));
    assert_eq!(faster.backends["ctxrc"].kind.name(), "command");
    let other = of(ctxrc, "[backends.ctxrc]\ntype = \"claude\"\n").unwrap();
    assert_eq!(other.backends["ctxrc"].kind.name(), "claude");
    assert_eq!(other.backends["ctxrc"].kind.model(), None);
    let chained =
        "[backends.near]\ntype = \"command\"\nprogram = \"x\"\nfallback = [\"builtin\"]\n";
    let (mut under, over) =
        (chained.parse::<toml::Table>().unwrap(), "[backends.near]\ntype = \"claude\"\n");
    super::sources::replace_types(&mut under, &over.parse().unwrap());
    assert_eq!(
        under["backends"]["near"].as_table().unwrap().keys().collect::<Vec<_>>(),
        ["fallback"]
    );
    let config =
        of(ctxrc, "[jobs.dream]\nmax_ideas = 9\ntrigger = \"night\"\nbackend = \"builtin\"\n")
            .unwrap();
    let job = config.job("dream").unwrap();
    assert_eq!((&job.when, job.spec.backend.as_str()), (&TriggerSpec::Night, "builtin"));
    assert_eq!(
        of("dream:\n  budget: 5000\n", "").unwrap().job("dream").unwrap().spec.budget.tokens,
        Some(5000)
    );
    for nothing in [
        "",
        "# only words\n",
        "~",
        "dream:\n",
        "dream: ~\nx: 1\n",
        "a: {dream: {max: x}}\n",
        "---\n",
        "dream: {model: ~, executor: null}\n",
    ] {
        let config = of(nothing, "").unwrap_or_else(|failure| panic!("{nothing:?}: {failure}"));
        assert_eq!(config.job("dream").unwrap().spec.backend, "builtin");
    }
}

#[test]
fn ctxrc_values_record_their_origin() {
    let origins = with("x: 1\ndream:\n  max: 7\n  executor: m\n", "", |stack| {
        let view = ResolvedSettings::of(stack).unwrap();
        let reported = view.entries.iter().filter(|entry| entry.origin.layer == "ctxrc");
        reported.map(|entry| (entry.name(), entry.origin.line.unwrap())).collect::<Vec<_>>()
    });
    let expected = [
        ("backends.ctxrc.args", 4),
        ("backends.ctxrc.program", 4),
        ("backends.ctxrc.type", 4),
        ("jobs.dream.backend", 4),
        ("jobs.dream.max_ideas", 3),
    ];
    assert_eq!(origins, expected.map(|(name, line)| (name.to_owned(), line)));
}

#[test]
fn ctxrc_errors_report_their_location() {
    for (ctxrc, place, why) in [
        (
            "dream:\n  quiet_minute: 3\n",
            ".ctxrc:2:3: dream.quiet_minute",
            "did you mean \"quiet_minutes\"?",
        ),
        ("dream:\n  max: many\n", ".ctxrc:2:8: dream.max (jobs.dream.max_ideas)", "a whole number"),
        ("dream:\n  max: \"3\"\n", ".ctxrc:2:8", "found \"3\""),
        ("dream:\n  max: 0\n", ".ctxrc:2:8", "of at least 1"),
        ("dream:\n  max: [[1]]\n", ".ctxrc:2:9", "too deep"),
        ("dream:\n  max: !!int 3\n", ".ctxrc:2:", "tags"),
        ("a: &x 3\ndream:\n  max: *x\n", ".ctxrc:3:8", "aliases"),
        ("dream:\n  max: 3\n  max: 4\n", ".ctxrc:3:3: dream.max", "twice"),
        ("dream: {max: 3}\ndream: {max: 4}\n", ".ctxrc:2:1: dream", "twice"),
        ("dream:\n  mode: creative\n", ".ctxrc:2:9: dream.mode", "unknown mode \"creative\""),
        (
            "dream:\n  cadence: nightly\n",
            ".ctxrc:2:12: dream.cadence (jobs.dream.trigger)",
            "not a cron expression",
        ),
        ("dream:\n  cadence: 3\n", ".ctxrc:2:12", "a cron expression"),
        ("dream:\n  enabled: yes\n", ".ctxrc:2:12: dream.enabled", "true or false"),
        ("dream:\n  model: x\n", ".ctxrc:2:10: dream.model", "without `executor`"),
        ("dream:\n  executor: claude -p\n", ".ctxrc:2:13: dream.executor", "a list"),
        ("dream:\n  executor: []\n", ".ctxrc:2:13", "a program"),
        ("dream:\n  budget: {calls: x}\n", ".ctxrc:2:19: dream.budget.calls", "a whole number"),
        (
            "dream:\n  budget: {cals: 3}\n",
            ".ctxrc:2:12: dream.budget.cals",
            "did you mean \"calls\"?",
        ),
        ("dream: [1]\n", ".ctxrc:1:8: dream", "a mapping"),
        ("- 1\n", ".ctxrc:1:1", "a mapping"),
        ("\u{feff}ü: \"x\"\ndream:\r\n  ü: 3\r\n", ".ctxrc:3:3: dream.ü", "no such setting"),
        ("a: [1\n", ".ctxrc:", ""),
        ("a: b: c\n", ".ctxrc:1:", ""),
        ("\tdream: 1\n", ".ctxrc:1:", ""),
    ] {
        let failure = of(ctxrc, "").map(|_| ()).expect_err(ctxrc).to_string();
        assert!(failure.contains(place) && failure.contains(why), "{ctxrc:?}: {failure}");
        let reported = with(ctxrc, "", mistakes);
        assert!(
            reported[0].line.is_some() && reported[0].column.is_some(),
            "{ctxrc:?}: {reported:?}"
        );
        assert!(failure.ends_with(&reported[0].said_why()), "{ctxrc:?}: {reported:?}");
    }
}

#[test]
fn deep_files_do_not_overflow_the_stack() {
    let deep = 200_000;
    for ctxrc in [
        "[".repeat(deep),
        "{a: ".repeat(deep),
        "- ".repeat(deep),
        "? ".repeat(deep),
        format!("dream: {}", "[".repeat(deep)),
        format!("a: {}{}", "[".repeat(100), "]".repeat(100)),
        (0..1000).map(|at| format!("{}a:\n", " ".repeat(at))).collect(),
        format!(
            "a: &a [x,x]\n{}",
            (0..9).map(|n| format!("b{n}: &b{n} [*a,*a,*a,*a]\n")).collect::<String>()
        ),
        "x".repeat(2 << 20),
        "\0".repeat(9),
        "dream:\n  max: 1\n...\n---\n".repeat(1000),
    ] {
        // Any result is correct; the call only has to return.
        let _read = of(&ctxrc, "");
    }
    for toml in [
        format!("{}a = 1", "a.".repeat(deep)),
        format!("[{}a]\nb = 1", "a.".repeat(deep)),
        format!("[[{}a]]\nb = 1", "a.".repeat(deep)),
        format!("a = {}", "[".repeat(deep)),
        format!("a = {}", "{a = ".repeat(deep)),
    ] {
        assert!(of("", &toml).is_err());
        assert!(!with("", &toml, mistakes).is_empty());
    }
    let flag = format!("{}a=1", "a.".repeat(30_000));
    assert!(Overrides::default().add_flags(&[flag]).is_err());
}
