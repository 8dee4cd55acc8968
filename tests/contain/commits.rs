//! Tests legitimate work: commits, branches, stashes, rebases, hooks and submodules.

use crate::fixture::CommandOutput;
use crate::project;

/// Returns the subjects of the commits of a branch, the newest first.
fn subjects(fixture: &crate::Fixture, name: &str) -> Vec<String> {
    let text = fixture.git(&["log", "--format=%s", name]);
    text.lines().map(str::to_owned).collect()
}

fn run(fixture: &crate::Fixture) -> CommandOutput {
    fixture.run(&["run", "work", "--json"])
}

#[test]
fn commit_arrives_in_the_repository() {
    let fixture = project("echo more >> src/a.txt; git add src/a.txt; git commit -q -m 'Add more'");
    let output = run(&fixture).ends(0);
    assert_eq!(subjects(&fixture, "main")[0], "Add more", "{output:?}");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{output:?}");
    assert!(output.out.contains("committed "), "{}", output.out);
    fixture.git(&["fsck", "--strict"]);
    assert_eq!(fixture.git(&["for-each-ref", "refs/runner"]), "");
}
