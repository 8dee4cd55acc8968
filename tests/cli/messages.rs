//! Tests that messages about missing paths and keys, and about nights without due jobs, are plain.

use crate::fixture::{CommandOutput, Fixture};

/// Checks that the output contains no raw message of the operating system.
#[track_caller]
fn plain(said: CommandOutput) -> CommandOutput {
    for raw in ["os error", "entity not found", "No such file"] {
        let there = said.out.contains(raw) || said.err.contains(raw);
        assert!(!there, "{raw:?} in {said:?}");
    }
    said
}

#[test]
fn missing_paths_are_reported_plainly() {
    let fixture = Fixture::with(
        "[backends.far]\ntype = \"ollama\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1\"\n",
    );
    std::fs::remove_dir_all(fixture.path(".runner/curator")).unwrap();
    plain(fixture.run(&["curator", "status"])).ends(0).expect_text("/docs: it does not exist");
    plain(fixture.run(&["curator", "diagnose"])).ends(1);
    plain(fixture.run(&["backends", "check", "far"])).ends(69);
    plain(fixture.run(&["backends", "list"])).ends(0);
    plain(fixture.run(&["overnight", "report"]))
        .ends(65)
        .expect_text("it does not exist")
        .expect_text("runner overnight start");
    // A new night would not create an explicitly given path, so the message suggests no new night.
    for args in [
        &["overnight", "report", "--from", "/nowhere"][..],
        &["overnight", "report", "--from", "/nowhere/at/all", "--validate"],
    ] {
        let said = plain(fixture.run(args)).ends(65).expect_text("/nowhere");
        assert!(said.err.contains("it does not exist"), "{said:?}");
        assert!(!said.err.contains("overnight start"), "{said:?}");
    }
    plain(fixture.run(&["overnight", "report", "--validate"]))
        .ends(65)
        .expect_text("it does not exist");
    plain(fixture.run(&["journal", "export", "runner.toml/page"]))
        .ends(73)
        .expect_text("a part of its path is not a folder");
    plain(fixture.run(&["-C", "/nowhere", "status"]))
        .ends(65)
        .expect_text("/nowhere: it does not exist");
}

#[test]
fn night_without_due_jobs_is_not_opened() {
    let fixture = Fixture::with("[jobs.dream]\nenabled = false\n");
    for _ in 0..2 {
        let said = fixture.run(&["night"]).ends(0).expect_text("nothing is due");
        assert!(!said.err.contains("could not"), "{said:?}");
    }
    let reported = fixture.run(&["night", "--json"]).ends(0).json();
    assert!(reported["night"].is_null(), "{reported}");
    assert_eq!(reported["runs"], serde_json::json!([]));
    assert!(!fixture.path(".runner/reports").exists());
    // The status reports no trouble.
    let status = fixture.run(&["status"]).ends(0);
    assert!(!status.out.contains("TROUBLE"), "{status:?}");
    fixture.configure("[jobs.one]\nkind = \"command\"\nprogram = \"true\"\n");
    fixture.run(&["night"]).ends(0);
    assert!(fixture.path(".runner/reports").is_dir());
}

/// Checks that an unusable keyring reference is reported, both without the feature and with it on a
/// host without a desktop.
#[test]
fn unusable_keyring_reference_is_reported() {
    let fixture = Fixture::with(
        "[backends.kept]\ntype = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\nkey = \"keyring:work\"\n\
         [backends.bare]\ntype = \"openai\"\nmodel = \"m\"\nkey = \"keyring:\"\n",
    );
    let said = fixture.run(&["backends", "check", "kept"]).ends(77);
    assert!(said.out.contains("FAILED  key"), "{said:?}");
    assert!(
        said.out.contains("--features keyring") || said.out.contains("keyring is locked"),
        "{said:?}"
    );
    let said = fixture.run(&["backends", "check", "bare"]).ends(78);
    assert!(said.out.contains("name of a secret"), "{said:?}");
}
