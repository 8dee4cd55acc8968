//! What the layers resolve to, and what mistakes are told.

use std::fs;

use super::*;

fn with(text: &str) -> Result<Config, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runner.toml");
    fs::write(&path, text).unwrap();
    load(&folder.path().join("none.toml"), &path)
}

#[test]
fn the_embedded_default_is_whole_and_good() {
    let config = with("").unwrap();
    assert_eq!(config.jobs.keys().collect::<Vec<_>>(), ["dream"]);
    assert_eq!(config.night.budget.calls, Some(50));
    assert_eq!(config.night.budget.micros, Some(5_000_000));
    assert_eq!(config.jobs["dream"].spec.total.as_secs(), 30 * 60);
}

#[test]
fn a_project_overrides_key_by_key() {
    let config = with("[night]\nat = \"23:15\"\n[jobs.dream]\nmax_ideas = 7\n").unwrap();
    assert_eq!(config.night.at.to_string(), "23:15:00");
    let runner_jobs::KindSpec::Dream(dream) = &config.jobs["dream"].spec.kind else {
        panic!("not a dream")
    };
    assert_eq!(dream.max_ideas, 7);
    assert_eq!(dream.quiet_minutes, 5);
}

#[test]
fn mistakes_name_the_file_the_line_and_the_nearest_key() {
    let cases = [
        (
            "[night]\nlenght = \"8h\"\n",
            ":2",
            "did you mean \"length\"",
        ),
        (
            "[jobs.dream]\nbackend = \"bultin\"\n",
            ":2",
            "did you mean \"builtin\"",
        ),
        (
            "[jobs.dream]\n\nmax_idea = 3\n",
            ":3",
            "did you mean \"max_ideas\"",
        ),
        (
            "[jobs.dream]\ncanonical = 3\n",
            ":2",
            "jobs.dream.canonical",
        ),
        ("[jobs.dream]\ntimeout = \"soon\"\n", ":2", "timeout"),
        ("[jobs.dream]\nkind = \"dreem\"\n", ":2", "dream"),
        ("[night]\nzone = \"Mars/Olympus\"\n", ":2", "time zone"),
        ("[jobs.report]\nkind = \"prompt\"\n", ":1", "not \"report\""),
        ("[night\n", ":1", "runner.toml"),
        (
            "[jobs.a]\nkind = \"command\"\nprogram = \"x\"\nartifacts = [{ from = \"a\", to = \".Git/config\" }]\n",
            ":4",
            "no job places anything in .git",
        ),
        (
            "[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"../x.md\"\n",
            ":4",
            "..",
        ),
        (
            "[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"n/{dat}.md\"\n",
            ":4",
            "placeholder",
        ),
        ("night = 3\n", ":1", "table"),
    ];
    for (text, line, hint) in cases {
        let error = with(text).unwrap_err().to_string();
        assert!(
            error.contains("runner.toml") && error.contains(line) && error.contains(hint),
            "{text}: {error}"
        );
    }
}
