//! Tests the private git directory of children that may write the project: legitimate work arrives
//! in the person's repository, and other changes have no effect there.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

// Other suites share this file and use more of it.
#[allow(unused)]
#[path = "../cli/fixture.rs"]
mod fixture;

mod attacks;
mod attempts;
mod commits;
mod interrupted;

use fixture::{CommandOutput, Fixture, skip};
use runner_engine::sandbox::bwrap;

/// The level at which a child runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Full,
    FilesOnly,
    /// Without a sandbox, to show that an attempt is realistic.
    Off,
}

/// Returns the levels that this machine supports.
pub fn levels() -> Vec<Level> {
    if bwrap::find().is_some() {
        return vec![Level::Full, Level::FilesOnly];
    }
    skip("bwrap", "the level full: bubblewrap is not installed");
    vec![Level::FilesOnly]
}

/// Creates a project with the job `work`, which runs a shell script.
pub fn project(script: &str) -> Fixture {
    let fixture = Fixture::with("");
    // At the level `files-only`, no new file can appear in the top folder.
    fixture.write("src/a.txt", "a\n");
    fixture.write("src/b.txt", "b\n");
    set_script(&fixture, "work", script);
    fixture
}

/// Adds a job that runs a shell script, and commits the project.
pub fn set_script(fixture: &Fixture, job: &str, script: &str) {
    let path = fixture.root().join(format!("{job}.sh"));
    std::fs::write(&path, script).unwrap();
    fixture.configure(&format!(
        "[jobs.{job}]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-e\", {path:?}]\nretries = 0\n"
    ));
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "Configure"]);
}

/// Runs the job `work` at a level.
pub fn run(fixture: &Fixture, level: Level) -> CommandOutput {
    let mut command = fixture.runner(&["run", "work", "--json"]);
    match level {
        Level::Full => {}
        Level::FilesOnly => _ = command.env("RUNNER_TEST_SANDBOX", "landlock"),
        Level::Off => _ = command.args(["--config", "jobs.work.sandbox=off"]),
    }
    CommandOutput::of(command.output().unwrap())
}
