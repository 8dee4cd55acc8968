//! Tests all formats of `runner report`, and opening the page.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::fixture::{CommandOutput, Fixture};

/// Creates a project with two ideas, and runs a night in which a job fails. Also returns the
/// night's name.
fn after_a_night() -> (Fixture, String) {
    let fixture = Fixture::with(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n\
         [jobs.broken]\nkind = \"command\"\nprogram = \"false\"\n",
    );
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.write(
        "ideas/evil.md",
        "# <script>alert(1)</script> ![x](http://evil.example/x.png)\n\nDo it.\n",
    );
    let night = fixture.run(&["night", "--json"]).ends(1).json();
    let name = night["night"].as_str().unwrap().to_owned();
    (fixture, name)
}

/// Returns a `PATH` that contains the opener, if there is one, and none of the host's programs.
fn path_with(fixture: &Fixture, opener: Option<&str>) -> String {
    let bin = fixture.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let name = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if let Some(script) = opener {
        let path = bin.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin.display().to_string()
}

fn open(fixture: &Fixture, path: &str) -> CommandOutput {
    let mut command = fixture.runner(&["report", "--open"]);
    CommandOutput::of(command.env("PATH", path).output().unwrap())
}

#[test]
fn report_outside_a_project_lists_all_projects() {
    let (fixture, name) = after_a_night();
    let outside = |args: &[&str]| {
        let mut command = fixture.runner(args);
        CommandOutput::of(command.current_dir(fixture.root()).output().unwrap())
    };
    let text = outside(&["report"]).ends(0).out;
    let row = text.lines().nth(1).unwrap();
    let project = fixture.project().display().to_string();
    assert!(row.starts_with(&project) && row.contains(&name) && row.contains("failed"), "{text}");
    let json = outside(&["report", "--json"]).ends(0).json();
    assert_eq!(json["projects"][0]["worst"], "failed", "{json}");
    assert_eq!(json["projects"].as_array().unwrap().len(), 1, "{json}");
    let none = outside(&["report", "--json", "--night", "2001-01-01"]).ends(0).json();
    assert_eq!(none["projects"], serde_json::json!([]));
    // A page covers one project, and a named folder selects one project.
    outside(&["report", "--html"]).ends(78);
    outside(&["--dir", ".", "report"]).ends(78);
}

#[test]
fn report_needs_no_valid_project_files() {
    let (fixture, name) = after_a_night();
    let printed = |args: &[&str], problem: &str| {
        let mut command = fixture.runner(args);
        let said = CommandOutput::of(command.current_dir(fixture.root()).output().unwrap());
        let said = said.ends(0).expect_text(&name);
        assert!(said.err.contains(problem), "{said:?}");
        said.out
    };
    let project = fixture.project().display().to_string();
    let git = fixture.root().join("git");
    fs::rename(fixture.path(".git"), &git).unwrap();
    printed(&["--dir", &project, "report"], ".git");
    fs::rename(&git, fixture.path(".git")).unwrap();
    fixture.configure("[nigth\n");
    let said = printed(&["--dir", &project, "report"], "unclosed table");
    assert!(said.contains("| broken | failed |"), "{said}");
    printed(&["--dir", &project, "report", "--list"], "unclosed table");
    fs::rename(fixture.project(), fixture.root().join("away")).unwrap();
    printed(&["--dir", &project, "report"], "does not exist");
}

#[test]
fn all_report_formats_agree() {
    let (fixture, name) = after_a_night();
    let published = |file: &str| fixture.read(&format!(".runner/reports/{name}/{file}"));
    let page = fixture.run(&["report", "--html"]).ends(0).out;
    assert_eq!(page, published("report.html"));
    assert_eq!(fixture.run(&["report", "--md"]).ends(0).out, published("report.md"));
    let json = fixture.run(&["report", "--json", "--night", &name]).ends(0).json();
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(&published("report.json")).unwrap());
    // The report suggests a command for the failed run first, and the command works.
    let command = json["first"][0]["command"].as_str().unwrap();
    assert!(json["first"][0]["what"].as_str().unwrap().contains("broken"), "{json}");
    assert!(page.contains(command), "{page}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    fixture.run(&words).ends(0).expect_text("failed");
    // The page shows the notes' content only as text.
    assert_eq!(json["proposals"].as_array().unwrap().len(), 2, "{json}");
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("Content-Security-Policy"));
    let calls = json["budgets"].as_array().unwrap().iter().find(|it| it["unit"] == "calls");
    assert!(calls.is_some(), "{json}");
    fixture.run(&["report", "--html", "--json"]).ends(2);
}

#[test]
fn report_shows_later_decisions() {
    let fixture = Fixture::with("");
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.run(&["night"]).ends(0);
    let before = fixture.run(&["report", "--json"]).ends(0).json();
    let id = before["proposals"][0]["id"].as_str().unwrap();
    assert_eq!(before["proposals"][0]["decided"], serde_json::Value::Null);
    fixture.run(&["dream", "reject", id]).ends(0);
    let after = fixture.run(&["report", "--json"]).ends(0).json();
    assert_eq!(after["proposals"][0]["decided"], "rejected");
    assert!(fixture.run(&["report", "--html"]).ends(0).out.contains("1 decided"));
}

#[test]
fn opener_gets_page_path_as_one_argument() {
    let (fixture, name) = after_a_night();
    // The opener records its arguments.
    let seen = fixture.root().join("seen");
    let script = format!("#!/bin/sh\nprintf '%s|%s' \"$#\" \"$1\" > '{}'\n", seen.display());
    let path = path_with(&fixture, Some(&script));
    let said = open(&fixture, &path).ends(0);
    let shown = said.out.trim().to_owned();
    assert!(shown.ends_with(&format!(".runner/reports/{name}/report.html")), "{said:?}");
    assert_eq!(fs::read_to_string(&seen).unwrap(), format!("1|{shown}"));
    // If the published page is missing, runner writes it to its state folder.
    fs::remove_file(&shown).unwrap();
    let shown = PathBuf::from(open(&fixture, &path).ends(0).out.trim());
    assert!(shown.starts_with(fixture.state().join("pages")), "{}", shown.display());
    assert_eq!(fs::read_to_string(&shown).unwrap(), fixture.run(&["report", "--html"]).ends(0).out);
    assert_eq!(fs::metadata(&shown).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn page_path_is_printed_without_an_opener() {
    let (fixture, name) = after_a_night();
    let path = path_with(&fixture, None);
    let said = open(&fixture, &path).ends(69).expect_text("fix: ");
    assert!(said.out.trim().ends_with(&format!("{name}/report.html")), "{said:?}");
    let path = path_with(&fixture, Some("#!/bin/sh\nexit 3\n"));
    open(&fixture, &path).ends(69).expect_text("open it manually");
}

#[test]
fn empty_night_has_a_page() {
    let fixture = Fixture::with("[jobs.dream]\nenabled = false\n");
    // Earlier versions published no report for an empty night.
    fixture.run(&["tick"]);
    fixture
        .store()
        .execute(
            "INSERT INTO nights (project, name, opens, closes, closed) SELECT id, '2026-01-01', 0, 1, 1 FROM projects",
            [],
        )
        .unwrap();
    let page = fixture.run(&["report", "--html"]).ends(0).out;
    assert!(page.contains("Nothing was due."), "{page}");
    fixture
        .run(&["report", "--night", "1999-01-01"])
        .ends(65)
        .expect_text("fix: runner report --night 2026-01-01");
}
