//! Tests `runner demo` and its sample project.

use std::fs;

use crate::fixture::Fixture;

#[test]
fn demo_reports_despite_a_hostile_idea() {
    let fixture = Fixture::new();
    let said = fixture.run(&["demo", "../demo"]).ends(0);
    assert!(said.out.contains("report.md"), "{said:?}");
    assert!(said.out.contains("# Night "), "{said:?}");
    let (_, next) = said.out.split_once("\nDo this first:\n").unwrap();
    let next: Vec<&str> = next.lines().filter(|line| line.starts_with("  ")).collect();
    // `runner` is not in `PATH`, so each command contains the program's path.
    let path = env!("CARGO_BIN_EXE_runner");
    assert_eq!(next.len(), 3, "{next:?}");
    assert!(next.iter().all(|line| line.contains(path)), "{next:?}");
    // The sample project is not registered in the user's own database.
    assert!(!fixture.state().join("database.sqlite").exists());
    let demo = fixture.root().join("demo");
    let git = |args: &[&str]| {
        let mut all = vec!["-C", demo.to_str().unwrap()];
        all.extend(args);
        fixture.git(&all)
    };

    let passes: Vec<_> = fs::read_dir(demo.join("dreams"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("proposals.json"))
        .filter(|path| path.is_file())
        .collect();
    assert_eq!(passes.len(), 1);
    let proposals: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(&passes[0]).unwrap()).unwrap();
    let with = |status: &str| -> Vec<&serde_json::Value> {
        proposals.iter().filter(|proposal| proposal["status"] == status).collect()
    };
    let implemented = with("implemented");
    assert!(!implemented.is_empty(), "{proposals:#?}");
    for proposal in &implemented {
        let evidence = proposal["evidence"].as_str().unwrap();
        let hash = evidence
            .split(|c: char| !c.is_ascii_hexdigit())
            .find(|word| word.len() >= 7)
            .unwrap_or_else(|| panic!("no commit in {evidence}"));
        assert_eq!(git(&["cat-file", "-t", hash]).trim(), "commit", "{evidence}");
    }
    assert_eq!(implemented[0]["targets"][0], "ideas/csv-export.md");
    let duplicate = with("duplicate");
    assert_eq!(duplicate.len(), 1, "{proposals:#?}");
    let pair = duplicate[0]["targets"].as_array().unwrap();
    assert!(pair.iter().all(|target| target.as_str().unwrap().contains("moon")), "{pair:?}");
    assert!(!with("meritorious").is_empty(), "{proposals:#?}");
    assert!(
        with("sidenote").iter().any(|p| p["targets"][0] == "ideas/moon-phase.md"),
        "{proposals:#?}"
    );
    assert_eq!(with("blog-candidate").len(), 1, "{proposals:#?}");

    // The hostile idea is treated as data like any other.
    let hostile: Vec<_> =
        proposals.iter().filter(|p| p["targets"][0] == "ideas/urgent-from-the-admin.md").collect();
    assert_eq!(hostile.len(), 1, "{hostile:?}");
    assert!(hostile.iter().all(|p| p["action"] == "keep"), "{hostile:?}");
    assert_eq!(
        fs::read_to_string(demo.join("README.md")).unwrap(),
        "# tides\nA small service that tells when the water is high.\n"
    );
    assert_eq!(fs::read_dir(demo.join("ideas")).unwrap().count(), 6);
    assert_cycle_ran(&fixture, &demo);

    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(demo.join("dreams/state.json")).unwrap()).unwrap();
    assert_eq!(state.as_array().unwrap().len(), 6);
    fixture.run(&["demo", "../demo"]).ends(65).expect_text("already exists");
    std::fs::create_dir(fixture.root().join("my demo")).unwrap();
    fixture.run(&["demo", "../my demo"]).ends(65).expect_text("/../my demo-2' ");
    let runner = |args: &[&str]| {
        let mut all = vec!["-C", demo.to_str().unwrap()];
        all.extend(args);
        fixture.run(&all)
    };
    runner(&["setup", "--apply"]).ends(2).expect_text("own database");
    for proposal in &proposals {
        let id = proposal["id"].as_str().unwrap();
        runner(&["dream", "accept", id]).ends(0);
    }
    // After the sample project has been removed, a tick ignores the demo, and the next demo removes
    // its state.
    fs::remove_dir_all(&demo).unwrap();
    fixture.run(&["tick"]).ends(0);
    fixture.run(&["demo", "../demo2", "--agent", "builtin"]).ends(0);
    assert_eq!(fs::read_dir(fixture.root().join("state/runner-demo")).unwrap().count(), 1);
}

/// Checks the results of the cycle: commits, recorded tool calls, one journal entry, and a changed
/// board.
fn assert_cycle_ran(fixture: &Fixture, demo: &std::path::Path) {
    let git = |args: &[&str]| {
        let mut all = vec!["-C", demo.to_str().unwrap()];
        all.extend(args);
        fixture.git(&all)
    };
    let runner = |args: &[&str]| {
        let mut all = vec!["-C", demo.to_str().unwrap()];
        all.extend(args);
        fixture.run(&all).ends(0)
    };
    let read = |path: &str| fs::read_to_string(demo.join(path)).unwrap();
    assert_eq!(
        fs::read_dir(demo.join("rem")).unwrap().count(),
        2,
        "expected one entry and the manifest"
    );
    let shown = runner(&["lifecycle", "show", "--json"]).json();
    assert_eq!(shown["position"]["state"], "wake_add");
    let subjects = git(&["log", "--format=%s", "-6"]);
    let tags: Vec<&str> = subjects.lines().filter_map(|it| it.split(':').next()).collect();
    assert_eq!(tags[..5], ["plan", "audit", "add", "add", "add"], "{subjects}");
    assert_eq!(git(&["status", "--porcelain"]).matches(" M plan.org").count(), 0);
    let steps = read("_steps.jsonl");
    let steps: Vec<serde_json::Value> =
        steps.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(steps.len() >= 15, "{}", steps.len());
    // An agent must not write a journal entry. Its failed attempt is recorded.
    let forged: Vec<_> = steps.iter().filter(|it| it["args"]["path"] == "rem/forged.org").collect();
    assert!(forged.len() == 1 && forged[0]["exit_code"] != 0, "{forged:?}");
    assert!(!demo.join("rem/forged.org").exists());
    let board = read("plan.org");
    for line in [
        "** DONE how to read the blue lines :help:",
        "** TODO a page for the weather desk",
        "** CANCELLED short notes for the launch — there is no launch in sight",
        "** DOING a page that colour-blind readers can use",
    ] {
        assert!(board.lines().any(|it| it == line), "{line}: {board}");
    }
    let report = runner(&["report"]).out;
    for reported in [
        "wake_add (3 of 3)",
        "TODO → CANCELLED: short notes for the launch",
        "oriented by the carry of rem/",
        "sandbox: f",
    ] {
        assert!(report.contains(reported), "{reported}: {report}");
    }
    // The next audit checks the dream's claims.
    runner(&["lifecycle", "goto", "wake_audit"]);
    runner(&["lifecycle", "tick"]).expect_text("holds");
    assert_eq!(fs::read_dir(demo.join("rem")).unwrap().count(), 3);
}

#[test]
fn demo_runs_without_an_agent() {
    let fixture = Fixture::new();
    fixture.run(&["demo", "../demo", "--agent", "builtin"]).ends(0).expect_text("7 model calls");
    let demo = fixture.root().join("demo");
    let board = fs::read_to_string(demo.join("plan.org")).unwrap();
    assert!(board.contains("** DOING how to read the blue lines"), "{board}");
    assert_eq!(fs::read_dir(demo.join("rem")).unwrap().count(), 2);
}

#[test]
fn night_works_in_a_new_project() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0).expect_text("runner.toml").expect_text(".git/info/exclude");
    fixture.run(&["init"]).ends(0).expect_text("nothing was written");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "?? runner.toml\n");
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    let before = fixture.tree("ideas");
    let night = fixture.run(&["night", "--json"]).ends(0).json();
    assert_eq!(night["worst"], "succeeded");
    assert_eq!(night["runs"][0]["job"], "dream");
    assert_eq!(fixture.tree("ideas"), before);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "?? ideas/\n?? runner.toml\n");
    let name = night["night"].as_str().unwrap();
    let report = fixture.run(&["report"]).ends(0);
    assert_eq!(
        report.out,
        fixture.read(&format!(".runner/reports/{name}/report.md")),
        "the report differs when it is generated again"
    );
    let published: serde_json::Value =
        serde_json::from_str(&fixture.read(&format!(".runner/reports/{name}/report.json")))
            .unwrap();
    assert_eq!(published, fixture.run(&["report", "--json"]).ends(0).json());
    // A second night on the same day gets another name, and its dream is skipped.
    let second = fixture.run(&["night", "--json"]).ends(0).json();
    assert_eq!(second["night"], format!("{name}-2"));
    assert_eq!(second["runs"][0]["outcome"]["outcome"], "skipped");
    assert!(
        second["runs"][0]["outcome"]["why"]
            .as_str()
            .unwrap()
            .contains("no delta (1 idea unchanged)")
    );
}
