//! Tests the settings of a night, including the names that other programs use.

use std::fs;

use super::{JOB, LATEST, corpus, night, run_ok, start, summary_of};
use crate::fixture::{CommandOutput, Fixture};

#[test]
fn own_settings_override_alternate_names() {
    let fixture = Fixture::with(
        "[dream]\nrun_timeout = \"2h\"\nrunners = [\"claude-haiku\"]\nkeep_awake = false\nmax_iterations = 4\ngoal = \"theirs\"\nat = \"02:30\"\n\
         [dream.local_curator]\nhourly_cap = 3\n[backends.claude-haiku]\ntype = \"command\"\nprogram = \"true\"\n[jobs.overnight]\ngoal = \"ours\"\n",
    );
    for (key, value) in [
        ("kind", "overnight"),
        ("timeout", "2h"),
        ("runners", "claude-haiku"),
        ("keep_awake", "false"),
        ("max_iterations", "4"),
        ("goal", "ours"),
        ("trigger", "daily 02:30"),
    ] {
        fixture
            .run(&["config", "get", &format!("jobs.overnight.{key}")])
            .ends(0)
            .expect_text(value);
    }
    fixture.run(&["config", "get", "curator.hourly_cap"]).ends(0).expect_text("3");
    // An error names the line of the file and the setting as the file spells it.
    let toml = fixture.read("runner.toml");
    let line = |word: &str| toml.lines().position(|it| it.starts_with(word)).unwrap() + 1;
    fixture.write("runner.toml", toml.replace("run_timeout = \"2h\"", "run_timeout = \"soon\""));
    fixture
        .run(&["config", "check"])
        .ends(78)
        .expect_text(&format!("runner.toml:{}:", line("run_timeout")))
        .expect_text("dream.run_timeout");
    fixture.write("runner.toml", toml.replace("max_iterations", "max_iteration"));
    fixture
        .run(&["config", "check"])
        .ends(78)
        .expect_text(&format!("runner.toml:{}:", line("max_iterations")))
        .expect_text("max_iterations");
}

#[test]
fn alternate_names_alone_configure_manual_nights() {
    let fixture = Fixture::with(
        "[dream]\noutput_dir = \".agents/overnight/theirs\"\nmax_iterations = 1\nretries = 0\n",
    );
    corpus(&fixture);
    fixture.set_clock("2026-11-22T02:30:00Z");
    fixture.run(&["config", "get", "jobs.overnight.trigger"]).ends(0).expect_text("manual");
    start(&fixture, &[]).ends(0);
    assert!(!fixture.path(LATEST).exists());
    run_ok(&fixture, &["overnight", "report"]).ends(0).expect_text("  done");
    run_ok(&fixture, &["overnight", "report", "--validate", "--from", ".agents/overnight/theirs"])
        .ends(0);
    // If the job is also configured under its own name, the alternate settings still apply.
    let fixture = Fixture::with(&format!("{JOB}[dream]\nmax_iterations = 1\n"));
    corpus(&fixture);
    fixture.set_clock("2026-11-22T02:30:00Z");
    start(&fixture, &[]).ends(0);
    assert_eq!(summary_of(&fixture)["iterations"].as_array().unwrap().len(), 1);
}

#[test]
fn start_needs_only_a_corpus() {
    let fixture = night();
    fs::remove_file(fixture.path("runner.toml")).unwrap();
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    assert!(fixture.read("runner.toml").contains("[jobs.overnight]"));
    assert_eq!(summary_of(&fixture)["status"], "done");
    // A configured job is left as it is.
    let before = fixture.read("runner.toml");
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    assert_eq!(fixture.read("runner.toml"), before);
}

/// Writes another program's corpus: a registry, settings, and two interrupted commits.
fn foreign(fixture: &Fixture) {
    let row = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"source\":{{\"repo\":\"r\",\"file\":\"a.md\"}},\"date\":\"2026-03-09\",\"severity\":\"significant\",\
             \"pattern\":\"Locks are held too long\",\"detection_question\":\"Is it held?\",\"checklist_item\":\"Release it.\",\"ttl_days\":30}}\n"
        )
    };
    let registry = format!(
        "---\nhit_count: 1\n---\n{}{}not a row\n{}",
        row("f-1"),
        row("../../etc/x"),
        row("f-2")
    );
    fixture.write(".agents/findings/registry.jsonl", registry);
    fixture.write(".agents/findings/f-2.md", "---\nid: f-2\n---\n# Known\n");
    fixture.write(
        ".agents/ao/config.yaml",
        "dream:\n  report_dir: .agents/overnight/latest\n  run_timeout: 90m\n  keep_awake: false\n  scheduler_mode: cron\n  runners: [codex]\n",
    );
    fixture.write(".agents/overnight/COMMIT-MARKER.4", "{\"state\":");
    fixture.write(".agents/learnings/kept.md", "# half\n");
    fixture.write(".agents/learnings/new.md", "# new\n");
    fixture
        .write(".agents/overnight/COMMIT-MARKER.3", "{\"state\":\"READY\",\"iteration_id\":\"i\"}");
    fixture.write(".agents/overnight/prev.3/learnings/kept.md", "# whole\n");
    fixture.write(".agents/overnight/staging/3/.agents/patterns/p.md", "# p\n");
    // Files that are not nodes are part of a commit too.
    fixture.write(".agents/overnight/prev.3/rpi/next-work.jsonl", "{\"id\":\"old\"}\n");
    fixture.write(".agents/rpi/next-work.jsonl", "{\"id\":\"half\"}\n");
    fixture.write(".agents/learnings/new.txt", "new\n");
}

#[test]
fn data_of_another_program_is_imported() {
    let fixture = Fixture::with("");
    foreign(&fixture);
    let before = fixture.tree(".agents");
    let shown = fixture.run(&["overnight", "import"]).ends(0);
    assert_eq!(fixture.tree(".agents"), before, "the preview changed files");
    for line in ["rolled back, 4 files", "1 new, 1 already known", "line 5", "line 6", "--apply"] {
        assert!(shown.out.contains(line), "{line}: {}", shown.out);
    }
    assert!(shown.out.contains("no such setting: .agents/ao/config.yaml: dream.scheduler_mode"));
    let refused = "not imported: jobs.overnight.runners (";
    assert!(shown.out.contains(refused) && shown.out.contains("[backends.codex]"), "{}", shown.out);
    assert!(shown.out.contains("COMMIT-MARKER.4: its marker cannot be read"), "{}", shown.out);
    fixture.run(&["overnight", "import", "--apply"]).ends(0);
    assert_eq!(fixture.read(".agents/learnings/kept.md"), "# whole\n");
    assert!(!fixture.path(".agents/learnings/new.md").exists());
    assert!(!fixture.path(".agents/learnings/new.txt").exists());
    assert_eq!(fixture.read(".agents/rpi/next-work.jsonl"), "{\"id\":\"old\"}\n");
    assert!(!fixture.path(".agents/overnight/COMMIT-MARKER.3").exists());
    let finding = fixture.read(".agents/findings/f-1.md");
    assert!(finding.contains("# Locks are held too long") && finding.contains("ttl_days: 30"));
    assert_eq!(fixture.read(".agents/findings/f-2.md"), "---\nid: f-2\n---\n# Known\n");
    let config = fixture.read("runner.toml");
    assert!(
        config.contains("timeout = \"90m\"") && config.contains("keep_awake = false"),
        "{config}"
    );
    let again = fixture.run(&["overnight", "import", "--json"]).ends(0).json();
    assert_eq!(again["findings"]["added"], serde_json::json!([]));
    assert_eq!(again["commits"][0]["end"], "left-alone");
    assert_eq!(again["commits"].as_array().unwrap().len(), 1);
    fixture.run(&["overnight", "start", "--max-iterations", "1"]).ends(0);
}

#[test]
fn failed_inhibition_degrades_the_night_only_if_requested() {
    let fixture = night();
    for (more, degrades) in [(&[][..], false), (&["--keep-awake"], true)] {
        let mut command = fixture.runner_with_clock(&[&["overnight", "start"][..], more].concat());
        command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent");
        CommandOutput::of(command.output().unwrap()).ends(0);
        let summary = summary_of(&fixture);
        let note = summary["runtime"]["keep_awake_note"].as_str().unwrap().to_owned();
        assert!(note.starts_with("not kept awake"), "{note}");
        assert_eq!(
            summary["degraded"].to_string().contains("not kept awake"),
            degrades,
            "{more:?}"
        );
    }
}

#[test]
fn overnight_curator_is_the_same_command() {
    let fixture = night();
    let [one, two] = [&["curator", "status"][..], &["overnight", "curator", "status"]]
        .map(|args| run_ok(&fixture, args).ends(0).out);
    assert_eq!(one, two);
}

#[test]
fn unfinished_foreign_commit_stops_the_night() {
    let fixture = night();
    let staged = "staging/3/.agents/learnings/a.md";
    fixture
        .write(".agents/overnight/COMMIT-MARKER.3", "{\"state\":\"READY\",\"iteration_id\":\"i\"}");
    fixture.write(".agents/overnight/prev.3/patterns/first.md", "# old\n");
    fixture.write(&format!(".agents/overnight/{staged}"), "# new\n");
    fs::remove_dir_all(fixture.path(".agents/patterns")).unwrap();
    start(&fixture, &[]).ends(78).expect_text("COMMIT-MARKER.3").expect_text("overnight import");
    assert_eq!(fixture.read(&format!(".agents/overnight/{staged}")), "# new\n");
    // Even without its staged files, a commit is incomplete until the old files are restored.
    fs::remove_dir_all(fixture.path(".agents/overnight/staging")).unwrap();
    fixture.run(&["overnight", "import", "--apply"]).ends(0).expect_text("rolled back, 1 file");
    assert_eq!(fixture.read(".agents/patterns/first.md"), "# old\n");
    start(&fixture, &["--max-iterations", "1"]).ends(0);
}

#[test]
fn linked_corpus_is_replaced_by_a_copy() {
    let fixture = Fixture::with("");
    fixture.write("../shared/learnings/a.md", "# a\n");
    std::os::unix::fs::symlink("../shared", fixture.path(".agents")).unwrap();
    let said = fixture.run(&["overnight", "start"]);
    assert!(said.code != 0 && said.err.contains("runner overnight import --apply"), "{said:?}");
    fixture.run(&["overnight", "import"]).ends(0).expect_text("is a link to ../shared");
    fixture.run(&["overnight", "import", "--apply"]).ends(0);
    assert!(!std::fs::symlink_metadata(fixture.path(".agents")).unwrap().is_symlink());
    assert_eq!(fixture.read(".agents/learnings/a.md"), "# a\n");
    assert_eq!(fixture.read("../shared/learnings/a.md"), "# a\n");
    // A kill after the exchange leaves the link under the name of the copy.
    let left = fixture.path(".agents.importing");
    std::os::unix::fs::symlink("../shared", &left).unwrap();
    fixture.run(&["overnight", "import", "--apply"]).ends(0);
    assert!(!left.is_symlink());
}

#[test]
fn setup_writes_scheduler_files_without_registering_them() {
    let fixture = Fixture::with("");
    let folder = ".agentops/generated/dream";
    let args = ["overnight", "setup", "--scheduler", "task-scheduler", "--at", "02:30"];
    fixture.run(&args).ends(0);
    assert!(!fixture.path(folder).exists(), "the preview wrote files");
    let done = fixture.run(&[&args[..], &["--apply"]].concat()).ends(0);
    assert!(done.err.contains("nothing was registered"), "{done:?}");
    let names: Vec<String> = fixture.tree(folder).into_iter().map(|(name, _)| name).collect();
    let file = names.iter().find(|name| name.ends_with(".xml")).unwrap();
    assert!(fixture.read(file).contains("<Task "), "{names:?}");
    assert!(fixture.read(&format!("{folder}/overnight.md")).contains("no program runs them"));
    assert!(fixture.read("runner.toml").contains("trigger = \"daily 02:30\""));
}
